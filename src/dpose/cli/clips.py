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
    Again,
    EngineName,
    EngineWorkers,
    Explain,
    ExplainPicture,
    FaceSize,
    OutputOptions,
    Protect,
    Public,
    Seed,
    about_of,
    draw_hidden,
    release_with,
    requested_neighbours,
    say_lines,
    say_preset,
    say_sum,
    tell_each,
)
from dpose.errors import DposeError, naming

if TYPE_CHECKING:
    from dpose.media.video import VideoInfo
    from dpose.release.batch import Work
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
    protect: Protect = None,
    face_size: FaceSize = None,
    explain: Explain = False,
    explain_picture: ExplainPicture = None,
    workers: EngineWorkers = 1,
    engine: EngineName = None,
    public: Public = False,
    again: Again = False,
    seed: Seed = None,
) -> None:
    """Release videos under differential privacy: few noisy numbers a frame, restored to a picture."""
    from dpose.privacy.noise import AesNoise, Key
    from dpose.release.batch import Work
    from dpose.release.config import LEARNED, Projection
    from dpose.release.explain import explain_release
    from dpose.release.jobs import find_videos
    from dpose.release.plans import bind_video

    about = about_of(settings)
    neighbours = requested_neighbours(
        settings.pop("neighbours", None), protect, face_size, explain_picture, ""
    )
    config = Projection.of(
        settings.pop("epsilon"),
        settings.pop("delta"),
        neighbours,
        settings.pop("operator", "block"),
        restore=settings.pop("restoration", LEARNED),
        **settings,
    )
    console = Console()
    explain = explain or (explain_picture is not None and output.out is None)
    found = find_videos(paths, output.folder(explain=explain), keep_names=output.keep_names)
    found = [(replace(job, about=about), info) for job, info in found]
    if explain_picture is not None:
        draw_hidden([job for job, _ in found], config, explain_picture, face_size, released=False)
    say_preset(protect, face_size, console)
    for job, info in found:
        with naming(info.path):
            plan = bind_video(config, info, AesNoise(Key.fresh()))
        console.print(f"{job.source}:", highlight=False, soft_wrap=True)
        for line in explain_release(plan, info.rate, curve=explain):
            console.print(f"  {line}", highlight=False)
    if explain:
        return
    work = Work(config, seed=seed, keep_sound=output.keep_audio, public=public, again=again)
    _release_videos(work, found, output, console, engine, workers)


def obfuscate(
    paths: Paths,
    method: Annotated[str, option("isr-32x24, isr-16x12, face-blur, blur or pixelate.")],
    output: OutputOptions,
    settings: Annotated[dict[str, Any], ABOUT],
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
    public: Public = False,
    again: Again = False,
) -> None:
    """Obscure videos in ways that guarantee nothing, to compare private ones with.

    The account counts them as releases that nothing bounds; where a budget stands they are refused.
    """
    from dpose.release.batch import Work
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
    work = Work(
        None, method, detector, HOLD if hold is None else hold, seed, output.keep_audio, public, again
    )
    if work.finder is not None and engine is None:
        work = replace(work, detector=work.finder)  # read once
    found = find_videos(paths, output.folder(), keep_names=output.keep_names)
    found = [(replace(job, about=about_of(settings)), info) for job, info in found]
    _release_videos(work, found, output, Console(), engine, workers)


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
