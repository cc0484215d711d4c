"""Videos, frame by frame (PyAV): time stamps kept, everything else dropped unless asked for.

    info = probe("clip.mp4")
    with open_writer(Path("out.mp4"), info) as (writer, temporary):        # dpose.media.video_writer
        for frame in read_frames(info):
            writer.add(frame.pixels, frame.pts, frame.duration)
    settle(temporary, Path("out.mp4"))

Nothing is held but the frames in work, so memory does not depend on the length. A video that is not whole is refused,
since what is released or learnt from must be what the statement counts. `VideoReader` reads one as far as it goes, for
who only wants to see it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import lazy_loader
import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import open_regular
from dpose.media.container import UNSTAMPED, is_cover, opened_video, picture_stream
from dpose.media.shown import UPRIGHT, Display, display_of, shown_array

av = lazy_loader.load("av")  # what handles pictures alone does not wait for it

MAX_FRAME_PIXELS = 100_000_000
"""Larger frames are refused before they are decoded."""
LONGEST_INDEX = 1 << 26
"""Bytes of an AVI's index that are read: four million frames."""


class Part(NamedTuple):
    """A part of a film that is kept, in ticks since the film begins.

    Attributes:
        start: The first frame's time stamp.
        stop: The part's end: what is shown there or later is no more in it.
        at: When the first frame is shown, with what was left out before it gone.
    """

    start: int
    stop: int
    at: int


@dataclass(frozen=True)
class VideoInfo:
    """What a video says about itself.

    Attributes:
        path: The file.
        width: Pixels, as shown (after any rotation).
        height: Pixels, as shown.
        frames: How many frames are shown: declared by the container, less what an edit list cuts away, or else
            counted.
        rate: Frames a second, on average.
        time_base: Seconds a tick of the time stamps.
        grey: Whether it has one channel.
        sound: Whether it has sound.
        stamped: Whether frames have time stamps of their own; an AVI's follow from their number.
        display: How frames are shown: turned, mirrored, in which colours.
        start: When the container begins, in seconds, on its own clock; time stamps are counted from here.
        repeated: Numbers of the frames that show the one before again: empty chunks of an AVI.
        notes: What of the file is left out or changed, for the terminal.
        length: How long its pictures are declared to last, in seconds; None if nothing says.
        whole_length: As `length`, of all that the container holds.
        parts: What is kept of a film that was cut (`dpose.media.spans.cut`); empty for a whole film.
        film: The whole film that was cut; None for a whole film.
    """

    path: Path
    width: int
    height: int
    frames: int
    rate: Fraction
    time_base: Fraction
    grey: bool
    sound: bool
    stamped: bool
    display: Display = UPRIGHT
    start: Fraction = Fraction()
    repeated: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    length: Fraction | None = None
    whole_length: Fraction | None = None
    parts: tuple[Part, ...] = ()
    film: VideoInfo | None = None

    def moved(self, tick: Fraction) -> Fraction | None:
        """When what the film shows at a tick is shown, in ticks; None if that is left out."""
        if not self.parts:
            return tick
        return next((tick - part.start + part.at for part in self.parts if part.start <= tick < part.stop), None)

    @property
    def first_tick(self) -> int:
        """The container's time stamp of its beginning."""
        return round(self.start / self.time_base)

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        return 1 if self.grey else 3


@dataclass(frozen=True)
class Frame:
    """One frame.

    Attributes:
        pixels: uint8, (H, W, C), as shown.
        pts: Time stamp, in ticks since the container begins.
        duration: In ticks; 0 if the container does not say.
    """

    pixels: NDArray[np.uint8]
    pts: int
    duration: int


def probe(path: str | Path, *, lenient: bool = False) -> VideoInfo:
    """What a video says about itself. Decodes one frame; reads packets where frames may be trimmed or not declared.

    Args:
        path: The file.
        lenient: Take one that is damaged or ends early too; `frames` is 0 then where none are declared.
    """
    path = Path(path)
    damage = Damage() if lenient else None
    with opened_video(path) as container:
        stream = picture_stream(container, path)
        size = stream.codec_context
        if size.width * size.height > MAX_FRAME_PIXELS:
            raise DposeError(
                "frame-too-large", f"frames of {size.width} x {size.height} are larger than allowed", str(path)
            )
        first = next(
            (frame for packet in packets_of(container, [stream], damage) for frame in _decoded(packet, damage)), None
        )
        if first is None:
            raise DposeError("video-without-frames", "has no frame that can be decoded", str(path))
        _check_opaque(first, path, stream)
        display, container_name = display_of(first), str(container.format.name)
        rate = stream.average_rate or stream.guessed_rate or Fraction(25)
        stamped, edited = container_name not in UNSTAMPED, "mp4" in container_name
        base = Fraction(stream.time_base or 1 / rate) if stamped or container_name == "avi" else 1 / rate
        grey = str(first.format.name).startswith("gray")
        frames, sound = int(stream.frames), bool(container.streams.audio)
        repeated = empty_chunks(path, stream.index, frames) if container_name == "avi" else frozenset()
        start = Fraction(max(0, container.start_time or 0), av.time_base) if stamped else Fraction(0)
        notes = _left_out(container, stream, display)
        length = None if stream.duration is None else stream.duration * base
        whole = None if container.duration is None else Fraction(container.duration, av.time_base)
        if whole is not None and "matroska" in container_name:  # which counts from zero, whenever its first frame is
            whole -= start
    with contextlib.suppress(DposeError) if lenient else contextlib.nullcontext():
        if frames < 1:
            frames, lacking = (0, Fraction(0)) if lenient else counted_frames(path)
            if lacking > 2 / Fraction(rate):
                read = f"{frames:,} frame{'s' if frames > 1 else ''} could be read"
                notes = (*notes, f"not whole: {read}, and {float(lacking):.1f} seconds are missing at the end")
        elif edited:
            frames = shown_frames(path, frames)
    width, height = (first.height, first.width) if display.exchanged else (first.width, first.height)
    return VideoInfo(
        path,
        width,
        height,
        frames,
        Fraction(rate),
        base,
        grey,
        sound,
        stamped,
        display,
        start,
        repeated,
        notes,
        length,
        whole,
    )


def _left_out(container: Any, stream: Any, display: Display) -> tuple[str, ...]:
    """Say what of a container is not taken, and what is changed."""
    cameras = sum(not is_cover(other) for other in container.streams.video) - 1
    sounds = len(container.streams.audio) - 1
    lines = []
    if cameras > 0:
        lines.append(f"of {cameras + 1} videos in the file the first is taken")
    if sounds > 0:
        lines.append(f"of {sounds + 1} sounds in the file only the first can be kept")
    if display.hdr:
        lines.append("HDR: brightness is mapped to ordinary brightness by one fixed curve")
    return tuple(lines)


def frame_ticks(info: VideoInfo) -> list[int]:
    """When each frame of a whole film is shown, in ticks, in order: the container's time stamps, which are public."""
    if not info.stamped:
        step = max(1, round(1 / (info.rate * info.time_base)))
        return [number * step for number in range(info.frames)]
    with opened_video(info.path) as container:
        stamps = [
            packet.pts - info.first_tick
            for packet in container.demux(picture_stream(container, info.path))
            if packet.size and not packet.is_discard and packet.pts is not None
        ]
    if len(stamps) != info.frames:
        stamps = [frame.pts for frame in read_frames(info)]
    return sorted(stamps)


def frame_times(info: VideoInfo) -> list[Fraction]:
    """When each frame that is shown is shown, in seconds, in order."""
    moved = (info.moved(Fraction(tick)) for tick in frame_ticks(info.film or info))
    return [tick * info.time_base for tick in moved if tick is not None]


@dataclass
class Damage:
    """What was passed over of a video that is not whole.

    Attributes:
        packets: That could not be read or decoded.
    """

    packets: int = 0


def read_frames(
    info: VideoInfo, add_sound: Callable[[Any], None] | None = None, damage: Damage | None = None
) -> Iterator[Frame]:
    """All frames in order; `add_sound` receives the sound's packets on the way.

    Args:
        info: The video.
        add_sound: Copies one packet of the sound; None where it is not kept.
        damage: Counts what cannot be decoded, which is passed over then. None refuses it.
    """
    with opened_video(info.path) as container:
        stream = picture_stream(container, info.path)
        stream.thread_type = "AUTO"
        sound = container.streams.audio[0] if add_sound else None
        count, kept, last = 0, 0, -1
        headless, keyed = 0, False
        primer = None
        for packet in packets_of(container, [stream, *([sound] if sound else [])], damage):
            if sound is not None and packet.stream.type == "audio":
                assert add_sound is not None
                primer = _copy_sound(packet, info, add_sound, primer)
                continue
            if info.parts and sound is None and last >= info.parts[-1].stop:
                break  # nothing after it is kept
            keyed = keyed or packet.is_keyframe
            headless += packet.size > 0 and not keyed
            for picture in _decoded(packet, damage):
                _check_opaque(picture, info.path, stream)
                if (picture.height, picture.width) != (first_size := _stored_size(info)):
                    raise DposeError(
                        "frame-size-differs",
                        f"frame {count + 1} is {picture.width} x {picture.height}, not {first_size[1]} x "
                        f"{first_size[0]} as the first",
                        str(info.path),
                    )
                stamps = [_stamp(picture, info, count, last, damage is not None)]
                while count + len(stamps) in info.repeated:
                    stamps.append(_stamp(None, info, count + len(stamps), stamps[-1], damage is not None))
                count, last = count + len(stamps), stamps[-1]
                if shown := [at for stamp in stamps if (at := info.moved(Fraction(stamp))) is not None]:
                    pixels, kept = shown_array(picture, info.display, info.grey), kept + len(shown)
                    yield from (Frame(pixels, int(at), int(picture.duration or 0)) for at in shown)
    if kept != info.frames and damage is None:
        how, fix = "ends early" if kept < info.frames else "is longer than it says", "copy or download it again"
        if headless and kept < info.frames:
            how = f"begins with frames that need earlier ones, which it does not hold ({headless} of them)"
            fix = "release what `ffmpeg -i IN -c:v libx264 OUT.mp4` makes of it"
        raise DposeError(
            "video-length-differs",
            f"the video {how}: {kept} of {info.frames} frames could be decoded",
            str(info.path),
            fix,
        )


def _copy_sound(packet: Any, info: VideoInfo, add_sound: Callable[[Any], None], primer: Any) -> Any:
    """Copy a packet of sound that is heard, at its time.

    What an edit list cuts away is not heard and stays behind, but for the one packet that a decoder of sound needs to
    begin with.

    Returns:
        That packet, until it is copied.
    """
    if packet.dts is None:
        return primer
    shift = round(info.start / packet.time_base)
    packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
    if packet.is_discard:
        return packet
    scale = packet.time_base / info.time_base
    tick, length = packet.pts * scale, max(0, (packet.duration or 0) - 1) * scale
    # one that runs on beyond its part would overlap the next part's first
    if (at := info.moved(tick)) is None or info.moved(tick + length) != at + length:
        return None
    shift = round((tick - at) * info.time_base / packet.time_base)
    packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
    if primer is not None:
        add_sound(primer)
    add_sound(packet)
    return None


class VideoReader:
    """A video as far as it can be read, once.

    Iterating yields (frame, time): uint8 (H, W, 3) RGB, turned upright, and the time since the first frame in seconds,
    an exact fraction. Frames that cannot be decoded are passed over; when the iteration is over, `whole` says whether
    there were none, `damage` how many packets were, and `missing` how many frames fewer came out than the file
    announces.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        self.info = probe(path, lenient=True)
        self.damage = Damage()
        self.read = 0
        self._latest = Fraction(0)

    @property
    def missing(self) -> int:
        """How many frames fewer were read than the file announces; 0 if it announces none."""
        return max(0, self.info.frames - self.read)

    @property
    def whole(self) -> bool:
        """After the iteration: whether all came out that the file announces, by number or by length."""
        length = self.info.length or self.info.whole_length
        short = length is not None and self._latest + 2 / self.info.rate < length
        return not (self.damage.packets or self.missing or short)

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint8], Fraction]]:
        first = 0
        for frame in read_frames(self.info, damage=self.damage):
            first = first if self.read else frame.pts
            self._latest = (frame.pts - first) * self.info.time_base
            self.read += 1
            yield frame.pixels.repeat(3, 2) if self.info.grey else frame.pixels, self._latest


def _check_opaque(picture: Any, path: Path, stream: Any) -> None:
    if stream.codec_context.name == "gif":
        return  # each pixel shows or not, and `shown_array` lays them on white
    # some containers keep alpha in a track of its own, which the decoder does not look at
    if any(part.is_alpha for part in picture.format.components) or stream.metadata.get("alpha_mode", "0") != "0":
        raise DposeError(
            "video-transparent",
            "has transparency, and what that hides would be shown",
            str(path),
            "lay its frames on a colour first",
        )


def packets_of(container: Any, streams: list[Any], damage: Damage | None) -> Iterator[Any]:
    """The packets of some streams; `damage` counts the end of a file in the middle of one, and None refuses it."""
    packets = container.demux(streams)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except (av.error.FFmpegError, OSError):  # the file ends in the middle of a packet
            if damage is None:
                raise
            damage.packets += 1
            return
        yield packet


def _decoded(packet: Any, damage: Damage | None) -> Iterator[Any]:
    try:
        yield from packet.decode()
    except av.error.FFmpegError:
        if damage is None:
            raise
        damage.packets += 1


def _stored_size(info: VideoInfo) -> tuple[int, int]:
    return (info.width, info.height) if info.display.exchanged else (info.height, info.width)


def _stamp(picture: Any, info: VideoInfo, count: int, last: int, lenient: bool) -> int:
    # an AVI has decoding times alone, which are of use where frames were passed over
    stamp = None if picture is None else picture.pts if info.stamped else picture.dts if lenient else None
    if stamp is not None and (count == 0 or stamp - info.first_tick > last):
        return int(stamp) - info.first_tick
    # no usable stamp: one frame after the last
    return last + max(1, round(1 / (info.rate * info.time_base))) if count else 0


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
