"""A picture or clip as the account knows it: by what it shows, wherever it lies and whatever it is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import read_bytes
from dpose.media.headers import Header, read_header
from dpose.media.identity import LINKED_FRAMES, clip_hashes, exact_hashes, picture_hashes
from dpose.media.images import decode_pixels
from dpose.media.video import VideoInfo
from dpose.media.video_identity import checked_digest, video_hashes
from dpose.privacy.marks import Marks, marks_of
from dpose.release.grid import is_tensor


@dataclass(frozen=True)
class Original:
    """A picture or clip as the account knows it.

    Attributes:
        name: For readers.
        hashes: Digests of its content, each of which names it; a clip's are those of its frames, too.
        area: Pixels of all its frames.
        within: "image" or "video".
        file: Digest of the file that it was read from; "" where it was none.
        linked: True if a clip's frames are among `hashes`.
    """

    name: str
    hashes: tuple[str, ...] = field(repr=False)
    area: int
    within: str = "image"
    file: str = ""
    linked: bool = True

    @property
    def own(self) -> tuple[str, ...]:
        """The digests that name all of it: not those of a clip's frames."""
        return self.hashes[: 2 if self.file else 1]

    @property
    def deep(self) -> bool:
        """True for a picture with 16 bits a value: it is known by all of them, too, beside what it shows in 8."""
        return self.within == "image" and len(self.hashes) > len(self.own)

    @cached_property
    def marks(self) -> Marks:
        """The original's marks for the account."""
        return marks_of(self.hashes)

    def check_unchanged(self, path: Path) -> None:
        """Refuse a file that is no longer what was counted.

        Raises:
            DposeError: it is not.
        """
        if checked_digest(path) != self.file:
            raise DposeError(
                "file-changed", "was changed while it was to be released", str(path), "run the command again"
            )


def array_original(frames: Sequence[Any], *, clip: bool) -> Original:
    """A picture, or the frames of a clip, in memory: uint8 or uint16, (H, W) or (H, W, C), arrays or tensors."""
    held = [frame.cpu().numpy() if is_tensor(frame) else frame for frame in frames]
    height, width = held[0].shape[:2]
    if not clip:
        return Original("an array", exact_hashes(held[0]), height * width)
    linked = len(held) <= LINKED_FRAMES
    hashes = clip_hashes(held, (len(held), height, width))
    return Original("a clip in memory", hashes, len(held) * height * width, "video", linked=linked)


def picture_original(path: Path) -> tuple[Original, NDArray[Any], Header]:
    """A picture file, read once.

    Returns:
        It; its pixels, as `read_pixels` gives them; and its header.
    """
    data = read_bytes(path)
    pixels = decode_pixels(data, str(path))
    hashes = picture_hashes(data, pixels)
    found = Original(str(path), hashes, pixels.shape[0] * pixels.shape[1], file=hashes[0])
    return found, pixels, read_header(data)


def video_original(info: VideoInfo) -> Original:
    """A video file; all of it is decoded, a frame at a time, unless that was done before."""
    hashes, area = video_hashes(info), info.frames * info.height * info.width
    linked = info.frames <= LINKED_FRAMES
    return Original(str(info.path), hashes, area, "video", hashes[0], linked)
