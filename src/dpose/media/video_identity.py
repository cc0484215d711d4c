"""What a video file is: digests of its bytes, of its decoded frames together, and of each of them.

    file, whole, *frames = video_hashes(probe("clip.mp4"))         # and of motion JPEG the frames' packets

A frame of motion JPEG is a JPEG file, which as a picture another decoder reads to other pixels. So it is known as that
file, too: by its bytes and by the pixels that it has as a picture.

To decode a video takes long and always gives the same, since all of it is in the file itself
(`dpose.media.container.DEMUXERS`). So the digests are kept in the user's cache folder by the digest of the file's bytes
and the versions of what decodes them, and never by its name or times: a file that was changed is another one. They are
functions of private frames without noise, by which a copy can be recognised: only the user can read them, and none are
kept where that cannot be had. Deleting them is harmless.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import lazy_loader
import platformdirs

from dpose.errors import DposeError
from dpose.files import file_digest, file_text, private_folder, write_private
from dpose.media.container import opened_video, picture_stream
from dpose.media.identity import LINKED_FRAMES, clip_hashes, file_hash, picture_hashes
from dpose.media.images import decode_image
from dpose.media.video import Damage, VideoInfo, packets_of, read_frames

av = lazy_loader.load("av")


def video_hashes(info: VideoInfo, damage: Damage | None = None) -> tuple[str, ...]:
    """The digests of a video file (`dpose.media.identity`): its bytes', those of `clip_hashes`, then of JPEG packets.

    One frame is in memory at a time.

    Args:
        info: The file, probed.
        damage: Counts what cannot be decoded, which is left out then. None refuses it.
    """
    digest = checked_digest(info.path)
    decoder = f"av {av.__version__} {sorted(av.library_versions.items())}"
    way = "whole" if damage is None else "in part"
    recipe = f"dpose/clips/4 {LINKED_FRAMES} {decoder} {way} {digest}"
    store = Path(platformdirs.user_cache_dir("dpose")) / "clips" / hashlib.sha256(recipe.encode()).hexdigest()
    ours = private_folder(store.parent)
    if ours and (known := _kept(store, digest)):
        return known
    shape = (info.frames, info.height, info.width)
    decoded = clip_hashes((frame.pixels for frame in read_frames(info, damage=damage)), shape)
    hashes = tuple(dict.fromkeys((digest, *decoded, *_jpeg_hashes(info))))
    if checked_digest(info.path) != digest:
        raise DposeError("file-changed", "was changed while it was read", str(info.path), "run the command again")
    # a cache that cannot be written only costs the next run its time
    with contextlib.suppress(DposeError):
        if ours:
            write_private(store, "\n".join(hashes))
    return hashes


def _jpeg_hashes(info: VideoInfo) -> Iterator[str]:
    """The digests that frames of motion JPEG have as picture files, but for those of one colour; none of other videos.

    Like `clip_hashes`, none where the clip has more than `LINKED_FRAMES`. What ends early is read as far as it goes.
    """
    with opened_video(info.path) as container:
        stream = picture_stream(container, info.path)
        if stream.codec_context.name != "mjpeg" or info.frames > LINKED_FRAMES:
            return
        for packet in packets_of(container, [stream], Damage()):
            if not packet.size:
                continue
            data = bytes(packet)
            try:
                pixels = decode_image(data, str(info.path))
            except DposeError:  # without its tables, which some cameras leave out, it is no picture file
                yield file_hash(data)
                continue
            if (pixels != pixels[0, 0]).any():
                yield from picture_hashes(data, pixels)


def checked_digest(path: Path) -> str:
    """`dpose.files.file_digest`, its error in one line.

    Raises:
        DposeError: the file cannot be read.
    """
    try:
        return file_digest(path)
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error.strerror})", str(path)) from error


def _kept(store: Path, digest: str) -> tuple[str, ...]:
    """What the cache holds; () where it holds nothing usable."""
    try:
        found = tuple(file_text(store, encoding="ascii").split("\n"))
    except (OSError, ValueError):
        return ()
    whole = len(found) > 1 and found[0] == digest and all(re.fullmatch("[0-9a-f]{64}", one) for one in found)
    return found if whole else ()
