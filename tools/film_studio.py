"""Film the studio for the README: a picture is opened, a box drawn, epsilon dragged, and the release made and verified.

    .venv/bin/python tools/film_studio.py docs/studio.webp

Starts a studio of its own with an account of its own, and needs playwright and a Chromium (`apt install chromium`).
The picture is scikit-image's astronaut, which is in the public domain.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright
from skimage.data import astronaut

from dpose.media.images import write_image

SIZE: ViewportSize = {"width": 1120, "height": 800}
WIDE = 1000
"""Pixels of the film."""
LARGEST = 1_500_000
"""Bytes of the film."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def film(page: Page, picture: Path) -> list[tuple[Image.Image, int]]:
    """Frames, and for how many milliseconds each is shown."""
    frames: list[tuple[Image.Image, int]] = []

    def shot(milliseconds: int) -> None:
        page.wait_for_timeout(350)
        whole = Image.open(BytesIO(page.screenshot())).convert("RGB")
        frames.append(
            (whole.resize((WIDE, WIDE * SIZE["height"] // SIZE["width"]), Image.Resampling.LANCZOS), milliseconds)
        )

    shot(1200)
    page.set_input_files("#file", picture)
    page.wait_for_selector("#preview[src^=data]")
    page.locator("#work").scroll_into_view_if_needed()
    page.evaluate("document.getElementById('opening').scrollIntoView()")
    shot(1500)
    page.check("input[value=box]")
    frame = page.locator("#shown").bounding_box()
    assert frame is not None
    left, top, wide, tall = (frame[name] for name in ("x", "y", "width", "height"))
    page.mouse.move(left + 0.44 * wide, top + 0.11 * tall)
    page.mouse.down()
    for part in (0.3, 0.65, 1.0):
        page.mouse.move(left + (0.44 + 0.06 * part) * wide, top + (0.11 + 0.08 * part) * tall)
        shot(250)
    page.mouse.up()
    shot(1200)
    for value in (52, 58, 64, 70, 76):
        page.evaluate(
            "(value) => { const e = document.getElementById('epsilon'); e.value = value; "
            "e.dispatchEvent(new Event('input', {bubbles: true})); }",
            value,
        )
        page.wait_for_timeout(300)
        shot(600)
    shot(1000)
    page.click("#release")
    page.wait_for_selector(".job .tag:text('finished')", timeout=60_000)
    page.click(".job button:text('Verify')")
    page.wait_for_selector(".job .holds")
    page.evaluate("document.getElementById('jobs-title').scrollIntoView()")
    shot(3500)
    return frames


def main() -> None:
    """Write the film."""
    out = Path(sys.argv[1])
    browser = next(path for name in BROWSERS if (path := shutil.which(name)))
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        write_image(here / "ward.png", astronaut())
        command = [sys.executable, "-P", "-m", "dpose", "studio", "--no-browser", "--out", str(here / "released")]
        environment = os.environ | {"XDG_STATE_HOME": str(here / "state")}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=here) as studio:
            assert studio.stdout is not None
            address = studio.stdout.readline().split()[-1]
            with sync_playwright() as started:
                page = started.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page(viewport=SIZE)
                page.goto(address)
                page.wait_for_selector("#drop")
                page.wait_for_timeout(4000)  # previews are quick once their libraries are loaded
                frames = film(page, here / "ward.png")
            studio.send_signal(signal.SIGINT)
    pictures, times = zip(*frames, strict=True)
    pictures[0].save(out, save_all=True, append_images=pictures[1:], duration=list(times), loop=0, quality=72, method=6)
    size = out.stat().st_size
    print(f"{out}: {len(frames)} frames, {size:,} bytes")
    assert size < LARGEST, f"larger than {LARGEST:,} bytes"


if __name__ == "__main__":
    main()
