"""The studio: from its start to the first paint, a preview of a large picture, and memory over many previews.

    python benchmarks/studio.py                         # 7 starts, 200 previews of 12 megapixels

A start counts from the process' beginning until Chromium, which is open already, has painted the first page's text (its
own first-contentful-paint). Previews go the page's way, over HTTP, with settings that change each time; memory is the
studio's resident set (Linux).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
from rich.console import Console
from rich.table import Table

from dpose.studio.security import HEADER

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def studio(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str], float]]:
    """One that runs: its address, process and when it began."""
    began = time.time()
    command = [sys.executable, "-m", "dpose", "studio", "--no-browser", "--folder", str(folder)]
    state = {"XDG_STATE_HOME": str(folder / "state")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | state) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1], process, began
        finally:
            process.send_signal(signal.SIGINT)


def first_paints(folder: Path, starts: int) -> list[float] | None:
    """Seconds from each start to its first paint; None where there is no browser."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser = None
    if browser is None:
        return None
    taken = []
    with sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        for _ in range(starts):
            with studio(folder) as (address, _, began):
                page.goto(address)
                page.wait_for_timeout(300)
                painted = "performance.timeOrigin + performance.getEntriesByName('first-contentful-paint')[0].startTime"
                taken.append(page.evaluate(painted) / 1000 - began)
    return taken


def previews(folder: Path, count: int) -> tuple[list[float], dict[int, float]]:
    """Seconds of each preview, and the studio's memory in MB after some of them."""
    taken, memory = [], {}
    with studio(folder) as (address, process, _):
        host, _, secret = address.removeprefix("http://").partition("/#")
        door = http.client.HTTPConnection(host)
        headers = {HEADER: secret, "content-type": "application/json", "origin": f"http://{host}"}

        def ask(name: str, body: dict[str, object]) -> dict[str, object]:
            door.request("POST", f"/api/{name}", json.dumps(body), headers)
            answer = door.getresponse()
            text = answer.read().decode()
            if answer.status != 200:
                raise SystemExit(f"{name}: {text}")
            found: dict[str, object] = json.loads(text)
            return found

        time.sleep(5)  # as a person would: what the first preview needs is loaded meanwhile
        opened = ask("open_file", {"place": "0/large.jpg"})["id"]
        for i in range(count):
            settings = {"file": opened, "hide": ("detail", "face", "person")[i % 3], "box": None, "face": "100x100"}
            settings |= {"epsilon": str(0.5 + i % 16), "delta": "0", "restore": "learned"}
            settings |= {"block": ("auto", 4, 8, 16, 32)[i // 3 % 5]}
            began = time.perf_counter()
            ask("preview", settings)
            taken.append(time.perf_counter() - began)
            if i + 1 in (10, count):
                status = Path(f"/proc/{process.pid}/status").read_text()
                memory[i + 1] = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return taken, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--previews", type=int, default=200)
    asked = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        small = rng.integers(0, 256, (60, 80, 3), np.uint8)
        cv2.imwrite(str(folder / "large.jpg"), cv2.resize(small, (4000, 3000), interpolation=cv2.INTER_CUBIC))
        with console.status("starting, again and again"):
            paints = first_paints(folder, asked.starts)
        with console.status("previews of 4,000 x 3,000 pixels"):
            taken, memory = previews(folder, asked.previews)
    table = Table("what", "median", "slowest", title=f"{platform.machine()}, {os.cpu_count()} processors, seed 0")
    if paints is None:
        console.print(f"no browser ({', '.join(BROWSERS)}) or no playwright: first paint is left out")
    else:
        table.add_row(
            f"first paint after the start, {asked.starts} starts",
            f"{statistics.median(paints):.2f} s",
            f"{max(paints):.2f} s",
        )
    table.add_row(
        f"a preview of 12 megapixels, {asked.previews}",
        f"{statistics.median(taken) * 1000:.0f} ms",
        f"{max(taken) * 1000:.0f} ms",
    )
    table.add_row("  95 % of them within", f"{np.quantile(taken, 0.95) * 1000:.0f} ms", "")
    for after, megabytes in memory.items():
        table.add_row(f"memory after {after} previews", f"{megabytes:.0f} MB", "")
    console.print(table)


if __name__ == "__main__":
    main()
