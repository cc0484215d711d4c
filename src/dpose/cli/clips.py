"""Videos released by projection, `dpose release-video`, and videos that are merely obscured, `dpose obfuscate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dpose.cli.names import KeepNames, Rename, check_names, say_names
from dpose.errors import DposeError, naming

if TYPE_CHECKING:
    from dpose.media.video import VideoInfo
    from dpose.privacy.statement import PrivacyStatement
    from dpose.release.files import Job


def register(app: typer.Typer) -> None:
    """Add this module's commands to the command line."""
    app.command(
        epilog="Example: dpose release-video ward.mp4 --epsilon 8 --delta 1e-5 --neighbours pixels:16 --out private.mp4"
    )(release_video)
    app.command(epilog="Example: dpose obfuscate ward.mp4 --method face-blur --out blurred.mp4")(obfuscate)


Paths = Annotated[list[str], typer.Argument(help="Videos, folders of them, globs.")]
Out = Annotated[Path | None, typer.Option(help="A folder, or the name of one video.")]
KeepAudio = Annotated[bool, typer.Option("--keep-audio", help="Copy the sound, unprotected.")]


def release_video(
    paths: Paths,
    epsilon: Annotated[
        str, typer.Option(help="Privacy budget of each video, as a whole. 0.5, 2 or 1/3: taken exactly.")
    ],
    delta: Annotated[str, typer.Option(help="Probability that the bound may fail, above 0. Say 1e-5.")],
    out: Out = None,
    neighbours: Annotated[
        str | None,
        typer.Option(
            help="What is hidden: pixels:M of the whole video (default pixels:16), pixels:M/frame of every frame, one "
            "frame, or the whole clip."
        ),
    ] = None,
    operator: Annotated[
        str,
        typer.Option(
            help="block: means of cells in space and time. low-pass: cosines. random: a random projection."
        ),
    ] = "block",
    k: Annotated[
        int | None,
        typer.Option(help="The most values kept of a group of frames. Default: what the noise allows."),
    ] = None,
    pool: Annotated[
        int | None, typer.Option(help="Frames taken together. Default: what the noise allows.")
    ] = None,
    clip_norm: Annotated[
        str | None,
        typer.Option(help="Clip the projected values' norm: less noise for frame and clip, less contrast."),
    ] = None,
    clip_segment: Annotated[
        bool, typer.Option("--clip-segment", help="Clip 64 frames' values together, not each group's.")
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="Run Video-DPRP as published (slow). Guarantees nothing.")
    ] = False,
    split: Annotated[
        float | None,
        typer.Option(help="With --paper: b, the budget's share for the projection. Default: 0.8."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what the setting will do; release nothing.")
    ] = False,
    keep_audio: KeepAudio = False,
    keep_names: KeepNames = False,
    rename: Rename = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Makes the noise repeatable and takes the guarantee away.")
    ] = None,
) -> None:
    """Release videos under differential privacy: few noisy numbers a frame, restored to a picture."""
    from dpose.privacy.noise import AesNoise, Key
    from dpose.release.clip_config import SPLIT, ClipSetting
    from dpose.release.clip_statements import explain_clip
    from dpose.release.clips import bind_clip, release_file, shape_of

    chosen = ClipSetting.of(
        epsilon,
        delta,
        neighbours,
        operator,
        k=k,
        pool=pool,
        clip_norm=clip_norm,
        clip_segment=clip_segment,
        paper=paper,
        split=SPLIT if split is None else split,
    )
    console = Console()
    check_names(keep_names, rename)
    found = _found(paths, out, explain, keep_names)
    for job, info in found:
        with naming(info.path):
            plan = bind_clip(chosen, shape_of(info), AesNoise(Key.fresh()))
        console.print(f"{job.source}:", highlight=False, soft_wrap=True)
        for line in explain_clip(plan):
            console.print(f"  {line}", highlight=False)
    if explain:
        return

    def release(number: int, job: Job, info: VideoInfo, progress: Callable[[], None]) -> PrivacyStatement:
        own = None if seed is None else seed + number
        return release_file(info, job.target, chosen, seed=own, keep_sound=keep_audio, progress=progress)

    names = _remember(found, out)
    _each(found, release, console)
    if len(found) > 1:
        console.print(
            "Each file has this epsilon for itself; for whoever or whatever is in several of them, epsilons add up.",
            highlight=False,
        )
    say_names(names, keep_names, console)


def obfuscate(
    paths: Paths,
    method: Annotated[str, typer.Option(help="isr-32x24, isr-16x12, face-blur, blur or pixelate.")],
    out: Out = None,
    keep_audio: KeepAudio = False,
    keep_names: KeepNames = False,
    rename: Rename = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="isr: makes the random shift, scale and rotation repeatable.")
    ] = None,
) -> None:
    """Obscure videos in ways that guarantee nothing, to compare private ones with."""
    from dpose.release.obfuscate import check_method, obfuscate_file

    check_method(method)
    console = Console()

    def run(number: int, job: Job, info: VideoInfo, progress: Callable[[], None]) -> PrivacyStatement:
        own = None if seed is None else seed + number
        return obfuscate_file(info, job.target, method, seed=own, keep_sound=keep_audio, progress=progress)

    check_names(keep_names, rename)
    found = _found(paths, out, False, keep_names)
    names = _remember(found, out)
    _each(found, run, console)
    say_names(names, keep_names, console)


def _found(
    paths: list[str], out: Path | None, explain: bool, keep_names: bool
) -> list[tuple[Job, VideoInfo]]:
    from dpose.release.clips import find_videos

    if out is None and not explain:
        raise DposeError("releasing needs --out", fix="name a folder or a video")
    return find_videos(paths, out or Path("released"), keep_names=keep_names)


def _remember(found: list[tuple[Job, VideoInfo]], out: Path | None) -> Path | None:
    from dpose.release.files import record_names

    return record_names([job for job, _ in found], out or Path("released"))


def _each(found: list[tuple[Job, VideoInfo]], run: Any, console: Console) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        frames = bar.add_task("frames", total=sum(info.frames for _, info in found))
        for number, (job, info) in enumerate(found):
            statement = run(number, job, info, lambda: bar.advance(frames))
            text = statement.paragraph()
            if text not in shown:  # one statement often holds for a whole folder
                shown.append(text)
                bar.console.print(text + "\n", highlight=False)
            bar.console.print(
                f"{job.source} -> {', '.join(map(str, job.outputs))}", highlight=False, soft_wrap=True
            )
