"""Commands that read and write object stores: copied here first, put there in the end."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpose.cli.options import plain_console
from dpose.errors import DposeError

if TYPE_CHECKING:
    from rich.console import Console


def on_this_machine(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, with a path in an object store refused: it would become a folder called `s3:`.

    `file://` is a path like others.
    """

    @functools.wraps(command)
    def reading(**given: Any) -> None:
        from dpose.remote import local_path, url_of

        for name, value in given.items():
            if any(isinstance(place, Path) and url_of(place) for place in _all(value)):
                raise DposeError(
                    "place-not-local",
                    "must be on this machine for this command",
                    next(url for place in _all(value) if (url := url_of(place))),
                    "copy it, and name the copy",
                )
            if isinstance(value, Path):
                given[name] = local_path(value)
        command(**given)

    return reading


def with_stores(command: Callable[..., None], *reads: str) -> Callable[..., None]:
    """`command`, with URLs for the parameters `reads` and for `out`.

    Inputs are copied into the user's state folder for as long as the command runs; those of one that was killed go when
    the next one starts. Outputs are made there and stay: what is made is never made again, so the same command after an
    interruption puts what is not yet in the store.

    Args:
        command: Takes paths, as `expand_groups` gives it.
        reads: Names of parameters that are a path, or a list of them.
    """

    @functools.wraps(command)
    def reading(**given: Any) -> None:
        from dpose.remote import check_puts, copy_here, local_path, put_all, staged, url_of

        out = given.get("out")
        url = url_of(out) if out is not None else None
        remote = url or any(
            url_of(place) or str(place).startswith("file:") for name in reads for place in _all(given[name])
        )
        if not remote:
            if out is not None:
                given["out"] = local_path(out)
            command(**given)
            return
        from dpose.privacy.keys import state_folder
        from dpose.studio.roots import Workplace

        below, place = state_folder() / "stores", Workplace(state_folder() / "copies")
        copies = place.folder
        try:
            for name in reads:
                here = [
                    copy_here(source, copies) if (source := url_of(place)) else local_path(place)
                    for place in _all(given[name])
                ]
                given[name] = [str(path) for path in here] if isinstance(given[name], list) else here[0]
            if url is None:
                given["out"] = local_path(out) if out is not None else None
                if "out" not in command.__annotations__:
                    del given["out"]
                command(**given)
                return
            check_puts(url)
            given["out"] = copy_here(url, below, missing_ok=True)
            staged(url, below).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                command(**given)
            finally:  # what is whole is put, also where another file failed or the user stopped
                if given["out"].exists():
                    count = put_all(given["out"], url)
                    plain_console().print(f"{count} files put into {url}", soft_wrap=True)
        finally:
            place.close()

    return reading


@contextlib.contextmanager
def stored_run(out: Path | None, resume: Path | None, console: Console) -> Iterator[tuple[Path | None, Path | None]]:
    """A run folder in a store, for `out` or `resume`: the run is made here, and put there when it is complete.

    Checkpoints stay here: they are overwritten as the run goes on, and nothing in a store is.

    Yields:
        `out` and `resume` as paths of this machine.
    """
    from dpose.remote import check_nothing_at, local_path, put_all, staged, url_of

    url = url_of(resume or out or "")
    if url is None:
        yield (local_path(out) if out else None), (local_path(resume) if resume else None)
        return
    from dpose.files import private_folder
    from dpose.privacy.keys import state_folder
    from dpose.training.distributed import process_group

    below = state_folder() / "stores"
    here, first = staged(url, below), process_group().first
    private_folder(below)
    here.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if resume is None and first:
        if here.exists() and any(path.name != ".lock" for path in here.iterdir()):
            raise DposeError(
                "run-not-put",
                f"a run for it is here, not complete or not yet put ({here})",
                url,
                f"say dpose train --resume {url}",
            )
        check_nothing_at(url)
    try:
        yield (None, here) if resume else (here, None)
    except BaseException:
        if first and here.exists():
            console.print(f"Not put: the run is in {here}; dpose train --resume {url} goes on and puts it")
        raise
    if first:
        count = put_all(here, url, but=("checkpoints",))
        console.print(f"{count} files put into {url}; its checkpoints stay in {here}", soft_wrap=True)


def _all(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list) else [given] if given is not None else []
