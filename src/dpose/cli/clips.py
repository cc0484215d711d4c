"""Videos released by projection, `dpose release-video`, and videos that are merely obscured, `dpose obfuscate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dpose.cli.options import Settings, option
from dpose.cli.release_options import (
    ABOUT,
    ABOUT_CLASS,
    Counting,
    CountingNoised,
    EngineName,
    EngineWorkers,
    Hiding,
    OutputOptions,
    about_of,
    release_with,
    say_lines,
    say_sum,
    tell_each,
)
from dpose.errors import DposeError, naming

if TYPE_CHECKING:
    from dpose.media.video import VideoInfo
    from dpose.release.items import Work
    from dpose.release.jobs import Job


RELEASE_VIDEO = Settings(
    (("", "dpose.release.config:Projection"), ABOUT_CLASS),
    {"epsilon": (), "delta": (), "neighbours": (), "operator": (), "restoration": ("--restore",)},
    required=("epsilon", "delta"),
    texts=("delta",),
    left_out=("grid",),
)


Paths = Annotated[list[str], typer.Argument(help="Videos, folders of them, globs.")]


def release_video(
    paths: Paths,
    output: OutputOptions,
    settings: Annotated[dict[str, Any], RELEASE_VIDEO],
    *,
    hiding: Hiding,
    workers: EngineWorkers = 1,
    engine: EngineName = None,
    counting: CountingNoised,
) -> None:
    """Release videos under differential privacy: few noisy numbers a frame, restored to a picture."""
    from dpose.media.kinds import left_out
    from dpose.media.spans import cut
    from dpose.privacy.noise import AesNoise, Key
    from dpose.release.config import LEARNED, Projection
    from dpose.release.explain import explain_release
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
    console = Console()
    explain = hiding.only_explains(output)
    left: list[str] = []
    found = find_videos(paths, output.folder(explain=explain), keep_names=output.keep_names, left=left)
    say_lines(left_out(left), console)
    found = [(replace(job, about=about), cut(info, spans)) for job, info in found]
    hiding.draw([job for job, _ in found], config, spans, released=False)
    hiding.say_preset(console)
    for job, info in found:
        with naming(info.path):
            plan = bind_video(config, info, AesNoise(Key.fresh()))
        console.print(f"{job.source}:", highlight=False, soft_wrap=True)
        for line in explain_release(plan, info.rate, curve=explain):
            console.print(f"  {line}", highlight=False)
    if explain:
        return
    work = Work(config, keep_sound=output.keep_audio, spans=spans, **vars(counting))
    _release_videos(work, found, output, console, engine, workers)


def obfuscate(
    paths: Paths,
    method: Annotated[str, option("isr-32x24, isr-16x12, face-blur, blur or pixelate.")],
    output: OutputOptions,
    settings: Annotated[dict[str, Any], ABOUT],
    *,
    seed: Annotated[
        int | None, option("isr: makes the random shift, scale and rotation repeatable.", min=0)
    ] = None,
    detector: Annotated[
        Path | None,
        option(
            "face-blur: an ONNX face detector, YuNet's or BlazeFace's outputs. Default: a bundled cascade that "
            "finds few faces."
        ),
    ] = None,
    hold: Annotated[
        int | None,
        option(
            "face-blur: frames before and after a find where its face is blurred too. Default: 14.", min=0
        ),
    ] = None,
    workers: EngineWorkers = 1,
    engine: EngineName = None,
    counting: Counting,
) -> None:
    """Obscure videos in ways that guarantee nothing, to compare private ones with.

    The account counts them as releases that nothing bounds; where a budget stands they are refused.
    """
    from dpose.media.kinds import left_out
    from dpose.release.items import Work
    from dpose.release.jobs import find_videos
    from dpose.release.obfuscate import HOLD, check_method

    check_method(method)
    if method != "face-blur" and (detector is not None or hold is not None):
        raise DposeError(
            "detector-without-faces",
            "only --method face-blur looks for faces",
            "detector",
            "leave --detector and --hold out",
        )
    kept, spans = HOLD if hold is None else hold, output.spans()
    work = Work(None, method, detector, kept, seed, output.keep_audio, spans=spans, **vars(counting))
    if work.finder is not None and engine is None:
        work = replace(work, detector=work.finder)  # read once
    left: list[str] = []
    found = find_videos(paths, output.folder(), keep_names=output.keep_names, left=left)
    console = Console()
    say_lines(left_out(left), console)
    found = [(replace(job, about=about_of(settings)), info) for job, info in found]
    _release_videos(work, found, output, console, engine, workers)


def _release_videos(
    work: Work,
    found: list[tuple[Job, VideoInfo]],
    output: OutputOptions,
    console: Console,
    engine: str | None,
    workers: int,
) -> None:
    from dpose.release.batch import release_all, skip_finished
    from dpose.release.jobs import record_names

    if engine is not None:
        release_with(engine, workers, [job for job, _ in found], work, output, console)
        return
    sifted = skip_finished([job for job, _ in found], work, console=console)
    say_lines(sifted.lines, console)
    if not (todo := sifted.todo):
        return
    infos = {job.place: info for job, info in found}
    names = record_names(todo, output.folder())
    frames = sum(infos[job.place].frames for job in todo)
    tell_each(lambda advance: release_all(todo, work, progress=advance), len(todo), frames, console)
    if work.config is not None:
        say_sum(len(todo), console)
    output.say_names(names, console)
