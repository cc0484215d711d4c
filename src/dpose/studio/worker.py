"""The worker process: reads untrusted files and runs long tasks, with limits, and can be stopped.

    echo '{"source": "a.jpg", "room": "/private"}' | python -m dpose.studio.worker decode

It gets its task as JSON on standard input and answers with JSON, a line for each thing that happens; the last one has
"done", "error" or "stopped".
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpose.errors import DposeError
from dpose.studio.roots import OUTSIDE, Roots

if TYPE_CHECKING:
    from dpose.release.items import Work
    from dpose.release.jobs import Job

Task = Mapping[str, Any]
SHOWN = 1400
"""Longer side of a picture as shown on a page, pixels."""
CLIP_FRAMES, CLIP_BYTES = 40, 256 << 20
"""Largest number of frames, and of bytes of frames, stored from a clip's beginning for its preview."""


def _decode(task: Task) -> dict[str, Any]:
    """Decode a picture or the beginning of a clip: its pixels for previews, and a small copy to draw a box on."""
    from dpose.media.kinds import kind_of, unknown_kind

    source = _source(task)
    kind = kind_of(source)
    if not kind:
        raise unknown_kind(source.name)
    return (_decode_picture if kind == "picture" else _decode_clip)(source, Path(task["room"]))


def _decode_picture(source: Path, room: Path) -> dict[str, Any]:
    import numpy as np

    from dpose.files import read_bytes
    from dpose.media.identity import picture_hashes
    from dpose.media.images import decode_pixels

    data = read_bytes(source)
    pixels = decode_pixels(data, str(source))
    np.save(room / "pixels.npy", pixels)
    _write_shown(room, pixels)
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    hashes = picture_hashes(data, pixels)
    return {
        "kind": "picture",
        "digest": hashes[0],
        "height": height,
        "width": width,
        "channels": channels,
        "peak": 255 if pixels.dtype == np.uint8 else 65535,
        "hashes": list(hashes),
    }


def _decode_clip(source: Path, room: Path) -> dict[str, Any]:
    import numpy as np

    from dpose.files import unchanged
    from dpose.media.video import frame_times, probe, read_frames
    from dpose.media.video_identity import checked_digest

    with unchanged(source):
        digest, info = checked_digest(source), probe(source)
        most = max(1, min(CLIP_FRAMES, CLIP_BYTES // (info.height * info.width * info.channels)))
        frames = []
        for frame in read_frames(info):
            frames.append(frame.pixels)
            if len(frames) == most:
                break
        times = frame_times(info)
    np.save(room / "pixels.npy", np.stack(frames))
    _write_shown(room, frames[0])
    return {
        "kind": "clip",
        "digest": digest,
        "height": info.height,
        "width": info.width,
        "channels": info.channels,
        "peak": 255,
        "frames": info.frames,
        "seconds": float(info.frames / info.rate),
        "times": [str(time) for time in times],
        "rate": str(info.rate),
    }


def _write_shown(room: Path, pixels: Any) -> None:
    import cv2

    from dpose.media.images import encode_image

    factor = min(1.0, SHOWN / max(pixels.shape[:2]))
    if factor < 1:
        pixels = cv2.resize(pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    flat = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    (room / "shown.jpg").write_bytes(encode_image(flat, ".jpg", quality=88))


def _release(task: Task) -> dict[str, Any]:
    """Release files as `dpose pixelize` and `dpose release-video` do: charged beforehand, each written atomically.

    The file that the settings were chosen on must be the one that was opened, and no file lies outside the roots.
    """
    from dpose.media.video import probe
    from dpose.release.batch import raise_failed, release_all, skip_finished
    from dpose.release.items import Work
    from dpose.release.jobs import find_jobs, record_names
    from dpose.studio.settings import SEEN, wanted

    out, again = Path(task["out"]), bool(task.get("again"))
    clip = task["kind"] == "clip"
    config = wanted(task["settings"], task["height"], task["width"], clip=clip).config
    work = Work(config, again=again)
    jobs = find_jobs([str(_source(task))], out).said(caveats=(SEEN,))
    say(say="comparing with the account")
    pending = skip_finished(_inside(jobs, task), work)
    for line in pending.lines:
        say(line=line)
    todo, unread = _checked(pending.todo, task, work)
    if not todo:
        raise_failed(unread, len(jobs))
        return {"files": 0}
    frames = sum(probe(job.source).frames if job.video else 1 for job in todo)
    record_names(todo, out)
    written = 0

    def advance() -> None:
        nonlocal written
        written += 1
        say(at=written, of=frames, say=f"frame {written:,} of {frames:,}")

    say(at=0, of=frames, say=f"reserved one by one; releasing 1 of {len(todo):,}")
    for number, (job, statement) in enumerate(release_all(todo, work, progress=advance), 1):
        written += not job.video
        say(
            at=written,
            of=frames,
            say=f"{number:,} of {len(todo):,} written",
            files=[str(path) for path in job.outputs],
            statement=statement.paragraph(),
        )
    raise_failed(unread, len(jobs))
    return {"files": len(todo)}


def _inside(jobs: Sequence[Job], task: Task) -> list[Job]:
    """Jobs whose files lie in the roots after following links; the others are reported and left out."""
    roots, accepted = _roots(task), []
    for job in jobs:
        if roots.holds(job.source):
            accepted.append(job)
        else:
            say(line=f"{job.source.name} {OUTSIDE}: it is left out")
    return accepted


def _checked(todo: Sequence[Job], task: Task, work: Work) -> tuple[list[Job], list[tuple[Job, DposeError]]]:
    """Jobs that may be released, and jobs whose files could not be read, with the reason.

    A release uses only bytes whose digest was computed when the file was read; an unreadable file has none.

    Raises:
        DposeError: the file that the settings were chosen on has other bytes than when it was opened, or is gone.
    """
    from dpose.release.items import read_item

    _source(task)
    opened = task.get("seen", task["source"])
    seen, accepted, unread = {opened, os.path.realpath(opened)}, [], []
    for job in _inside(todo, task):
        if job.original is None:
            try:
                read_item(work, job)
                raise DposeError(
                    "file-changed", "was changed while it was to be released", str(job.source), "try again"
                )
            except DposeError as error:
                say(line=error.line())
                unread.append((job, error))
            continue
        if not seen.isdisjoint((str(job.source), os.path.realpath(job.source))):
            _check_same(job.original.file, task)
        accepted.append(job)
    return accepted, unread


def _roots(task: Task) -> Roots:
    return Roots(tuple(Path(folder) for folder in task["roots"]))


def _source(task: Task) -> Path:
    """The file or folder to read."""
    source = Path(task["source"])
    if not _roots(task).holds(source):
        raise DposeError("file-gone", f"is gone, or {OUTSIDE}", source.name, "open it again")
    return source


def _check_same(digest: str, task: Task) -> None:
    """Refuse a file of other bytes than the one that was opened.

    Raises:
        DposeError: the digest differs.
    """
    if digest != task["digest"]:
        name = Path(task.get("seen", task["source"])).name
        raise DposeError(
            "file-changed", "was changed since it was opened here; nothing was released", name, "open it again"
        )


def _marks(task: Task) -> dict[str, Any]:
    """The digests by which the account knows a picture or clip."""
    from dpose.media.kinds import kind_of
    from dpose.media.video import probe
    from dpose.release.originals import picture_original, video_original

    source = _source(task)
    clip = kind_of(source) == "video"
    original = video_original(probe(source)) if clip else picture_original(source)[0]
    _check_same(original.file, task)
    return {"hashes": list(original.hashes)}


def _predict(task: Task) -> dict[str, Any]:
    """The joints that a run's model finds in a picture, drawn on it."""
    from dpose.media.drawing import draw_skeleton
    from dpose.media.identity import read_known
    from dpose.media.images import encode_image
    from dpose.pose.folder import load_model
    from dpose.pose.predict import predict_image
    from dpose.pose.skeletons import SKELETONS

    image, hashes = read_known(_source(task))
    _check_same(hashes[0], task)
    model = load_model(Path(task["run"]))
    skeleton = SKELETONS[model.config.skeleton]
    box = tuple(task["box"]) if task.get("box") else None
    pose = predict_image(model, image, box, flip_test=True)
    joints, lines = (pose.keypoints, pose.scores), (skeleton.edges, skeleton.colours)
    drawn = draw_skeleton(image, *joints, *lines, threshold=0.0)
    Path(task["out"]).write_bytes(encode_image(drawn, ".jpg", quality=90))
    rows = zip(skeleton.joints, pose.keypoints, pose.scores, strict=True)
    return {"joints": [[name, f"{x:.1f}", f"{y:.1f}", f"{score:.2f}"] for name, (x, y), score in rows]}


WORK: Mapping[str, Callable[[Task], dict[str, Any]]] = {
    one.__name__[1:]: one for one in (_decode, _release, _marks, _predict)
}


def say(**line: Any) -> None:
    """Send a line to the studio. If the studio is gone, the task continues."""
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(line), flush=True)


def limit(memory: int, seconds: int) -> None:
    """Limit memory (writable bytes of its own) and processor time (seconds), where the system can; 0 for no limit.

    Address space is no measure: threads reserve much more of it than they use, on machines with many processors.
    """
    try:
        import resource
    except ImportError:  # not on Windows: there the parent's time limit is the only one
        return
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main() -> None:
    """Read the task from standard input, run it and print the answer."""
    os.umask(0o077)
    # as Ctrl-C does, so that unfinished files are removed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    task = json.load(sys.stdin)
    try:
        limit(int(task.get("memory", 0)), int(task.get("seconds", 0)))
        say(done=WORK[sys.argv[1]](task))
    except DposeError as error:
        say(error=error.line(), code=error.code)
    except MemoryError:  # the parent knows the limit and reports it
        sys.exit(1)
    except KeyboardInterrupt:
        say(stopped=True)


if __name__ == "__main__":
    _main()
