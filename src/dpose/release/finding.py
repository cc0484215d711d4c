"""Faces that are found in files before any is obscured: for a person to look at, and to correct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpose.errors import DposeError
from dpose.files import make_folder, write_atomic
from dpose.media.drawing import draw_box
from dpose.media.identity import as_shown
from dpose.media.images import encode_image, read_pixels
from dpose.media.video import VideoInfo, read_frames
from dpose.release.boxes import FoundBox
from dpose.release.items import Work, read_item
from dpose.release.jobs import JobList
from dpose.release.obfuscate import Obfuscator


def find_boxes(
    work: Work, jobs: JobList, failed: Callable[[DposeError], None], progress: Callable[[], None]
) -> tuple[FoundBox, ...]:
    """The faces of all files, numbered from 1 on; nothing is released or counted.

    Args:
        work: Says who finds them, for how many frames they hold, and which spans of a film are looked at.
        jobs: The files.
        failed: Called with what is wrong with a file that cannot be read.
        progress: Called after each file.
    """
    looking = replace(work, method="face-blur", boxes=None, public=True)
    found: list[FoundBox] = []
    for job, name in zip(jobs, jobs.names(), strict=True):
        try:
            read = read_item(looking, job, identify=False)
            assert isinstance(read.plan, Obfuscator)
            shown = read.shown
            frames = (frame.pixels for frame in read_frames(shown)) if isinstance(shown, VideoInfo) else iter([shown])
            here = [box for _, boxes in read.plan.located(frames) for box in boxes]
        except DposeError as error:
            failed(error)
            here = []
        found += [replace(box, file=name, number=len(found) + place) for place, box in enumerate(here, 1)]
        progress()
    return tuple(found)


def draw_found(jobs: JobList, boxes: Sequence[FoundBox], folder: Path) -> int:
    """Draw the boxes of each picture, with their numbers, into a folder; films are not drawn.

    Nothing is obscured there, so its files, and the folder if it is new, are for their owner alone.

    Returns:
        How many pictures were drawn.
    """
    drawn = 0
    for job, name in zip(jobs, jobs.names(), strict=True):
        own = [box for box in boxes if box.file == name]
        if job.video or not own:
            continue
        image = as_shown(read_pixels(job.source))
        for box in own:
            image = draw_box(image, np.array([box.left, box.top, box.width, box.height]), box.number)
        target = folder / f"{name}.png"
        make_folder(target.parent, 0o700)
        write_atomic(target, encode_image(image, ".png"), mode=0o600)
        drawn += 1
    return drawn
