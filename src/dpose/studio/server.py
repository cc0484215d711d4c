"""Starting and stopping the studio: a socket on loopback alone, an address with a secret, a browser."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from rich.console import Console

from dpose.errors import DposeError
from dpose.studio.app import Studio, make_app
from dpose.studio.roots import Roots, Workplace, open_private
from dpose.studio.security import LOOPBACK, Door

WAIT = 1.5
"""Seconds before the code for previews is loaded, so that the first page is fast."""
MOST_HEADERS = 2 << 20
"""Largest request head, bytes: it holds the cookies of all programs on this host, which are not read."""


def serve_studio(folders: Sequence[Path], out: Path, port: int = 0, *, browser: bool = True, console: Console) -> None:
    """Serve the studio until it is stopped by Ctrl-C or SIGTERM.

    Args:
        folders: Folders that the studio may read.
        out: Folder that releases are written to.
        port: Port to listen on; 0 for any free one.
        browser: True to open a browser.
        console: Console that the address is printed on.
    """
    listener = _listen(port)
    door, roots = Door(listener.getsockname()[1]), Roots.of(folders)
    studio = Studio(door, roots, out.resolve(), Workplace())
    try:
        app = make_app(studio)
        config = uvicorn.Config(
            app,
            log_level=logging.CRITICAL,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=3,
            lifespan="on",
            http="h11",
            h11_max_incomplete_event_size=MOST_HEADERS,
        )
        console.print(f"dpose studio is at {door.address}", soft_wrap=True)
        console.print("Only this machine can reach it, and only with this address. Ctrl-C ends it.", soft_wrap=True)
        for folder in roots.absent:
            console.print(f"{folder} is not there yet; it is read once it is.", soft_wrap=True, highlight=False)
        if studio.workplace.swept:
            console.print("What an earlier studio had left when it was killed has been removed.", soft_wrap=True)
        # code for previews is loaded while the user looks at the page, not before
        warming = threading.Timer(WAIT, _warm)
        warming.daemon = True
        warming.start()
        if browser:
            page = _page_to_open(studio.workplace.folder, door.address).as_uri()
            threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        studio.close()
        listener.close()


def _page_to_open(folder: Path, address: str) -> Path:
    """Write a page, readable by this user alone, that leads to `address`: every user can read a browser's command line.

    Args:
        folder: A private folder, which is removed with the studio.
        address: Address with the secret.
    """
    page = folder / "open.html"
    with os.fdopen(open_private(page), "w", encoding="utf-8") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0;url={address}"><title>dpose studio</title>'
            f'<a href="{address}">dpose studio</a>\n'
        )
    return page


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(128)  # two may share an address until one of them listens
    except OSError as error:
        listener.close()
        raise DposeError(
            "port-unavailable", f"the port cannot be had ({error.strerror})", f"--port {port}", "leave it out"
        ) from error
    return listener


def _warm() -> None:
    """Load and compile the code for previews, but none of the code for models."""
    with contextlib.suppress(DposeError):
        import numpy as np

        from dpose.jit import load_numba
        from dpose.release.partition import block_sums
        from dpose.release.planes import Observed, Plane
        from dpose.release.restoration import Restoration
        from dpose.studio.account_view import stands

        load_numba()  # from here on kernels are used
        block_sums(np.zeros((8, 8, 3), np.uint8), 4)
        few, ones = np.zeros((4, 4), np.float32), np.ones((4, 4), np.float32)
        for method in ("learned", "tv"):
            Restoration.chosen(method).apply(Observed((Plane(few, ones, 2),), "grey", 8, 8))
        assert callable(stands)
