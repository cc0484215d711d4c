"""How many frames of a video are shown: declared, less what an edit list cuts away, or counted."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import lazy_loader

from dpose.errors import DposeError
from dpose.files import open_regular
from dpose.media.container import opened_video, picture_stream

av = lazy_loader.load("av")

LONGEST_INDEX = 1 << 26
"""Bytes of an AVI's index that are read: four million frames."""


def empty_chunks(path: Path, stream: int, declared: int) -> frozenset[int]:
    """Return the numbers of the frames of an AVI whose chunks its index declares empty: they show the one before.

    Empty if there is no index of `declared` chunks for the stream, or the first is empty.
    """
    with open_regular(path) as file:
        if file.read(12)[8:] != b"AVI ":
            return frozenset()
        while len(head := file.read(8)) == 8:
            name, size = head[:4], int.from_bytes(head[4:], "little")
            if name == b"idx1":
                index = file.read(min(size, LONGEST_INDEX))
                break
            file.seek(size + size % 2, os.SEEK_CUR)
        else:
            return frozenset()
    wanted = (b"%02ddc" % stream, b"%02ddb" % stream)
    entries = [index[at : at + 16] for at in range(0, len(index) - 15, 16)]
    sizes = [int.from_bytes(entry[12:], "little") for entry in entries if entry[:4] in wanted]
    if len(sizes) != declared or not sizes or sizes[0] == 0:
        return frozenset()
    return frozenset(number for number, size in enumerate(sizes) if size == 0)


def shown_frames(path: Path, declared: int) -> int:
    """Frames of a video that its edit list shows; as many as are declared where not all of those are in the file.

    A trimmed video still holds, and declares, the frames that were cut away. They count when a file that ends early is
    to be told from a trimmed one, and not in what is released.
    """
    shown, cut = _packets(path)
    if shown == declared and not cut:
        return declared
    whole, _ = _packets(path, {"ignore_editlist": "1"})
    if whole != declared:
        return declared
    if shown < 1:
        raise DposeError("video-without-frames", "has no frame that is shown", str(path))
    return shown


def _packets(path: Path, options: dict[str, str] | None = None) -> tuple[int, int]:
    """How many whole packets of the video are shown and how many are not."""
    shown = cut = 0
    with opened_video(path, options) as container:
        for packet in container.demux(picture_stream(container, path)):
            if packet.size and not packet.is_corrupt:
                cut += packet.is_discard
                shown += not packet.is_discard
    return shown, cut


def counted_frames(path: Path) -> tuple[int, Fraction]:
    """Frames of a video that does not declare them, and how many seconds before its declared duration they end.

    A container that ends a second before or more is refused.
    """
    count, end = 0, Fraction(0)
    with opened_video(path) as container:
        video = picture_stream(container, path)
        declared = container.duration
        for packet in container.demux():
            count += packet.size > 0 and packet.stream.index == video.index
            if packet.size and packet.pts is not None:
                end = max(end, (packet.pts + (packet.duration or 0)) * packet.time_base)
    # Matroska counts its duration from zero, whenever the first frame is shown
    lacking = Fraction(declared, av.time_base) - end if declared else Fraction(0)
    if lacking > 1:
        raise DposeError(
            "video-cut-short",
            f"the video ends early: {float(end):.1f} of {declared / av.time_base:.1f} seconds are there",
            str(path),
            "copy or download it again",
        )
    if count < 1:
        raise DposeError("video-without-frames", "has no frame", str(path))
    return count, lacking
