"""Videos released by projection, `dpose release-video`, and files that are merely obscured, `dpose obfuscate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dpose.cli.options import Settings, option, plain_console
from dpose.cli.release_options import (
    ABOUT,
    ABOUT_CLASS,
    Counting,
    CountingNoised,
    EngineOptions,
    Hiding,
    OutputOptions,
    about_of,
    release_jobs,
    say_explained,
    say_line,
    say_lines,
)
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.release.items import Work
    from dpose.release.jobs import JobList


RELEASE_VIDEO = Settings(
    (("", "dpose.release.config:Projection"), ABOUT_CLASS),
    {"epsilon": (), "delta": (), "neighbours": (), "operator": (), "restoration": ("--restore",)},
    required=("epsilon", "delta"),
    texts=("delta",),
    left_out=("grid",),
)


Paths = Annotated[list[str], typer.Argument(help="Videos, folders of them, globs.")]


def release_videos(
    paths: Paths,
    output: OutputOptions,
    settings: Annotated[dict[str, Any], RELEASE_VIDEO],
    *,
    hiding: Hiding,
    at: EngineOptions,
    counting: CountingNoised,
) -> None:
    """Release videos under differential privacy: few noisy numbers a frame, restored to a picture."""
    from dpose.media.kinds import left_out
    from dpose.media.spans import cut
    from dpose.privacy.noise import AesNoise, Key
    from dpose.release.batch import raise_failed
    from dpose.release.config import LEARNED, Projection
    from dpose.release.items import Work
    from dpose.release.jobs import find_videos
    from dpose.release.plans import bind_video

    about, spans = about_of(settings), output.spans()
    neighbours = hiding.neighbours(settings.pop("neighbours", None), "")
    config = Projection.of(
        settings.pop("epsilon"),
        settings.pop("delta"),
        neighbours,
        settings.pop("operator", "block"),
        restore=settings.pop("restoration", LEARNED),
        **settings,
    )
    console = plain_console()
    explain = hiding.only_explains(output)
    left: list[str] = []
    found = find_videos(paths, output.folder(explain=explain), keep_names=output.keep_names, left=left)
    say_lines(left_out(left), console)
    broken = [(job, info) for job, info in found if isinstance(info, DposeError)]
    if len(broken) == len(found):
        raise_failed(broken, len(found), partial(say_line, console))
    jobs = [replace(job, about=about) for job, _ in found]
    hiding.draw(jobs, config, spans, released=False)
    hiding.say_preset(console)
    videos = [(job, cut(info, spans)) for job, info in found if not isinstance(info, DposeError)]
    plans = ((job.source, bind_video(config, info, AesNoise(Key.fresh())), info.rate) for job, info in videos)
    say_explained(plans, console, hiding, alone=explain)
    if explain:
        say_lines([f"skipped: {error.line()}" for _, error in broken], console)
        return
    work = Work(config, keep_sound=output.keep_audio, spans=spans, **vars(counting))
    release_jobs(work, jobs, output, console, at, sum(info.frames for _, info in videos))


@dataclass(frozen=True)
class MethodOptions:
    """Options of single methods: of isr the seed, of face-blur how faces are looked for."""

    seed: Annotated[int | None, option("isr: makes the random shift, scale and rotation repeatable.", min=0)] = None
    detector: Annotated[
        Path | None,
        option("An ONNX face detector, YuNet's or BlazeFace's outputs. Default: a cascade that finds few faces."),
    ] = None
    hold: Annotated[
        int | None, option("Frames before and after a find where its face is blurred too. Default: 14.", min=0)
    ] = None


@dataclass(frozen=True)
class BoxOptions:
    """Options for the boxes that are obscured."""

    boxes: Annotated[
        Path | None, option("A .json or .csv file, as --boxes-out writes it: these boxes alone are obscured.")
    ] = None
    keep: Annotated[str | None, option("Numbers of boxes that stay open: 2,5.")] = None
    boxes_out: Annotated[
        Path | None,
        option("Look for faces and write their boxes here, to correct; without --out nothing else is done."),
    ] = None
    preview: Annotated[Path | None, option("With --boxes-out: a folder for pictures with boxes and numbers drawn.")] = (
        None
    )

    def check(self, method: str) -> bool:
        """True if faces are looked for.

        Raises:
            DposeError: options exclude each other, or need one that is missing.
        """
        from dpose.release.boxes import check_boxes_name

        if self.boxes is not None and self.boxes_out is not None:
            raise DposeError("boxes-both-ways", "boxes are given or looked for", "boxes", "leave one of them out")
        for name, value, needed in (("keep", self.keep, "boxes"), ("preview", self.preview, "boxes-out")):
            if value is not None and getattr(self, needed.replace("-", "_")) is None:
                raise DposeError("option-needs-another", f"needs --{needed}", name)
        if self.boxes_out is not None:
            check_boxes_name(self.boxes_out)
            if self.boxes_out.exists():
                raise DposeError("output-exists", "another file is in the way", str(self.boxes_out), "remove it first")
        return self.boxes_out is not None or (method == "face-blur" and self.boxes is None)


def obfuscate(
    paths: Annotated[list[str], typer.Argument(help="Pictures, videos, folders of them, globs.")],
    method: Annotated[str, option("isr-32x24, isr-16x12, face-blur, blur or pixelate.")],
    output: OutputOptions,
    settings: Annotated[dict[str, Any], ABOUT],
    *,
    chosen: MethodOptions,
    given: BoxOptions,
    at: EngineOptions,
    counting: Counting,
) -> None:
    """Obscure pictures and videos in ways that guarantee nothing, to compare private ones with.

    The account counts them as releases that nothing bounds; where a budget stands they are refused.
    """
    from dpose.media.kinds import left_out
    from dpose.release.faces import face_finder
    from dpose.release.items import Work
    from dpose.release.jobs import find_jobs
    from dpose.release.obfuscate import HOLD, check_method

    check_method(method)
    finds, console = given.check(method), plain_console()
    if not finds and (chosen.detector is not None or chosen.hold is not None):
        said = "only --method face-blur and --boxes-out look for faces"
        raise DposeError("detector-without-faces", said, "detector", "leave --detector and --hold out")
    hold = HOLD if chosen.hold is None else chosen.hold
    work = Work(
        None, method, chosen.detector, hold, chosen.seed, output.keep_audio, spans=output.spans(), **vars(counting)
    )
    if finds and at.engine is None:
        work = replace(work, detector=face_finder(chosen.detector))  # read once
    folder = output.folder(explain=given.boxes_out is not None)
    jobs = find_jobs(paths, folder, keep_names=output.keep_names, archives=False)
    say_lines(left_out(jobs.left), console)
    jobs = jobs.said(about=about_of(settings))
    if given.boxes_out is not None:
        work = _found(work, jobs, given.boxes_out, given.preview, console)
        if output.out is None:
            return
    elif given.boxes is not None:
        work = _given(work, jobs, given.boxes, given.keep, console)
    release_jobs(work, jobs, output, console, at)


def _found(work: Work, jobs: JobList, out: Path, preview: Path | None, console: Console) -> Work:
    """Look for faces, write their boxes, and obscure these."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from dpose.release.boxes import matched, write_boxes
    from dpose.release.finding import draw_found, find_boxes

    problems: list[DposeError] = []
    columns = (TextColumn("looking for faces"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("files", total=len(jobs))
        found = find_boxes(work, jobs, problems.append, lambda: bar.advance(task))
    if len(problems) == len(jobs):
        raise problems[0]
    write_boxes(out, found)
    say_lines([f"skipped: {error.line()}" for error in problems], console)
    files = len({box.file for box in found})
    console.print(
        f"{len(found):,} boxes in {files:,} of {len(jobs):,} files, in {out}, for you alone. Correct it and give it "
        "back with --boxes; --keep 2,5 leaves numbers open.",
        highlight=False,
        soft_wrap=True,
    )
    if preview is not None:
        drawn, having = draw_found(jobs, found, preview), {box.file for box in found}
        films = sum(job.video and name in having for job, name in zip(jobs, jobs.names(), strict=True))
        lines = [f"{drawn:,} pictures with their boxes drawn, nothing obscured, in {preview}"] if drawn else []
        say_lines([*lines, *([f"films are not drawn: {films:,} with boxes"] if films else [])], console)
    return replace(work, boxes=matched(found, jobs)[0])


def _given(work: Work, jobs: JobList, file: Path, keep: str | None, console: Console) -> Work:
    """Obscure the boxes of a file alone."""
    from dpose.release.boxes import leave_open, matched, read_boxes

    boxes = read_boxes(file)
    given, others = matched(boxes if keep is None else leave_open(boxes, keep), jobs)
    bare = [source for source in jobs.sources if not given[str(Path(source).absolute())]]
    for what, names in (("without a box, and shown as they are", bare), ("boxes of files not named", others)):
        if names:
            more = " ..." if len(names) > 3 else ""
            say_lines([f"{what}: {len(names):,} ({', '.join(names[:3])}{more})"], console)
    return replace(work, boxes=given)
