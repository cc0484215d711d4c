"""What the commands that release files share: options for what they write, and how they tell what they wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dpose.cli.options import Settings, hanging, option
from dpose.errors import DposeError, printable

if TYPE_CHECKING:
    from fractions import Fraction

    from rich.console import Console

    from dpose.media.spans import Span
    from dpose.privacy.neighbours import Neighbours
    from dpose.privacy.sections import About
    from dpose.privacy.statement import PrivacyStatement
    from dpose.release.config import ReleaseConfig
    from dpose.release.items import Work
    from dpose.release.jobs import Job
    from dpose.release.plans import AnyPlan

Public = Annotated[bool, option("The files need no protection: the account does not count them.", "--public")]


EngineName = Annotated[
    str | None,
    option("Who works on many files: local, ray (started here) or ray://HOST:PORT. Default: this process.", "--engine"),
]
EngineWorkers = Annotated[int, option("An engine's processes.", "--workers", min=1)]


@dataclass(frozen=True)
class EngineOptions:
    """Options for who works on many files."""

    workers: Annotated[int, option("Pictures, frames or processes at work.", min=1)] = 1
    engine: EngineName = None


@dataclass(frozen=True)
class Hiding:
    """Options for what a release hides: by a preset, told and drawn."""

    protect: Annotated[
        str | None, option("Instead of --neighbours: detail (16 pixels), face or person, as large as --face-size says.")
    ] = None
    face_size: Annotated[
        str | None, option("WxH pixels of a face for --protect and --explain-picture, or 100x100.")
    ] = None
    explain: Annotated[bool, option("Say what the setting will do; release nothing.", "--explain")] = False
    explain_picture: Annotated[
        Path | None, option("A PNG file: draw to scale what is hidden beside a face and a person.")
    ] = None

    def neighbours(self, given: str | None, default: str) -> str | int | Neighbours:
        """What is to be hidden, by itself or by a preset."""
        from dpose.release.objects import either

        return either(given, self.protect, self.face_size, drawn=self.explain_picture is not None) or default

    @property
    def face(self) -> tuple[int, int]:
        """Width and height of a face, as declared."""
        from dpose.release.objects import FACE_SIZE, parse_face

        return parse_face(self.face_size or FACE_SIZE)

    def only_explains(self, output: OutputOptions) -> bool:
        """True if nothing is to be released."""
        return self.explain or (self.explain_picture is not None and output.out is None)

    def say_preset(self, console: Console) -> None:
        """Say what a preset protects and what it does not, if one was chosen."""
        if self.protect is not None:
            from dpose.release.objects import FACE_SIZE, preset_line

            console.print(preset_line(self.protect, self.face_size or FACE_SIZE), highlight=False)

    def draw(self, jobs: Sequence[Job], config: ReleaseConfig, spans: Sequence[Span], *, released: bool) -> None:
        """Draw what the release of one file hides, if a drawing is wanted.

        Args:
            jobs: One.
            config: How it is released.
            spans: Of a film, what is released.
            released: Whether it has been released: a picture is drawn on then.
        """
        file = self.explain_picture
        if file is None:
            return
        from dpose.media.images import read_pixels
        from dpose.release.explain_picture import draw_explanation
        from dpose.release.objects import FACE_SIZE, parse_face
        from dpose.release.plans import plan_of

        if len(jobs) != 1:
            said = f"one picture or video can be drawn, not {len(jobs)}"
            raise DposeError("drawing-of-several", said, "explain-picture", "name one")
        (job,) = jobs
        if file.resolve() in {path.resolve() for path in (job.source, *job.outputs)}:
            raise DposeError(
                "drawing-over-picture", "would take the place of the picture itself", str(file), "choose another name"
            )
        plan, rate = plan_of(job.source, config, spans)
        is_picture = job.target.suffix.lower() in (".png", ".jpg", ".jpeg")
        shown = read_pixels(job.target) if released and is_picture else None
        draw_explanation(plan, file, rate=rate, face=parse_face(self.face_size or FACE_SIZE), released=shown)


@dataclass(frozen=True)
class Counting:
    """Options for how the account counts releases."""

    public: Public = False
    again: Annotated[bool, option("Release once more what was released before; epsilons add up.", "--again")] = False


@dataclass(frozen=True)
class CountingNoised(Counting):
    """Options for how the account counts releases, and where their noise is from."""

    seed: Annotated[int | None, option("Makes the noise repeatable and takes the guarantee away.", min=0)] = None


ABOUT_CLASS = ("about.", "dpose.privacy.sections:About")
ABOUT = Settings((ABOUT_CLASS,))
"""What a statement says of who releases something."""


def about_of(settings: dict[str, Any]) -> About:
    """What was said of the release; the rest is not stated."""
    from dpose.privacy.sections import About

    return About(**settings.pop("about", {}))


@dataclass(frozen=True)
class OutputOptions:
    """The options for what is written, and of how much of a film."""

    out: Annotated[Path | None, option("A folder, or the name of one file: a picture, archive or video.")] = None
    keep_audio: Annotated[bool, option("Copy a video's sound, unprotected.", "--keep-audio")] = False
    keep_names: Annotated[
        bool, option("Keep the files' names, which may identify; else they are numbered.", "--keep-names")
    ] = False
    starts: Annotated[
        list[str] | None, option("Of a film, only from here (12.5, 1:02); repeat with --to for several.", "--from")
    ] = None
    ends: Annotated[list[str] | None, option("And to here; the rest is left out.", "--to")] = None

    def spans(self) -> tuple[Span, ...]:
        """The spans of films that are released; none for whole films."""
        if not (self.starts or self.ends):
            return ()
        from dpose.media.spans import paired

        found = paired(self.starts or (), self.ends or ())
        if len(found) < max(len(self.starts or ()), len(self.ends or ())):
            print("Spans that overlap or touch are taken as one.")
        return found

    def folder(self, *, explain: bool = False) -> Path:
        """Where to write."""
        if self.out is None and not explain:
            raise DposeError("out-missing", "releasing needs --out", fix="name a folder or a file")
        return self.out or Path("released")

    def say_names(self, names: Path | None, console: Console) -> None:
        """Say where the originals' names are written down, or that they travel."""
        if names is not None:
            said = "The files are numbered in the order of their names; which is which stands in"
            say_lines([f"{said} {names}, for you alone."], console)
        if self.keep_names:
            console.print("File names were kept; they are public with the files.", highlight=False)


def tell_each(
    run: Callable[[Callable[[], None]], Iterator[tuple[Job, PrivacyStatement | None]]],
    files: int,
    frames: int | None,
    console: Console,
) -> int:
    """Show how far a command is, each statement once, and where each file went; return how many were released.

    `run` is called with what advances the frames, of which there are `frames` (None if they were not counted), and
    yields each file with its statement, once it is written; of one that stood there, or has None, more was said.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown: list[str] = []
    released = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("files", total=files)
        of_frames = bar.add_task("frames", total=frames, visible=frames != 0)
        for job, statement in run(lambda: bar.advance(of_frames)):
            bar.advance(task)
            if statement is None or job.standing:
                continue
            released += 1
            text = statement.words().printed()
            if text not in shown:  # one statement often holds for a whole folder
                shown.append(text)
                bar.console.print(text, highlight=False)
                say_lines([f"The whole statement: dpose statement show {job.outputs[0]}", ""], bar.console)
            notes = (f"  {note}" for note in job.notes)
            say_lines([f"{job.source} -> {', '.join(map(str, job.outputs))}", *notes], bar.console)
    return released


def release_jobs(
    work: Work,
    jobs: Sequence[Job],
    output: OutputOptions,
    console: Console,
    at: EngineOptions,
    frames: int | None = None,
) -> Sequence[Job]:
    """Release what is not released yet, and tell each; return the files that this process was to release.

    `frames` is how many the files have together; None if they were not counted.
    """
    from dpose.release.batch import release_all, skip_finished
    from dpose.release.jobs import record_names

    if at.engine is not None:
        release_with(at.engine, at.workers, jobs, work, output, console)
        return ()
    pending = skip_finished(jobs, work, workers=at.workers, console=console)
    say_lines(pending.lines, console)
    if not (todo := pending.todo):
        return ()
    names = record_names(todo, output.folder())
    if not any(job.video for job in todo):
        frames = 0
    say = partial(say_line, console)
    try:
        released = tell_each(
            lambda on: release_all(todo, work, workers=at.workers, progress=on, say=say, named=len(jobs)),
            len(todo),
            frames,
            console,
        )
        if work.config is not None:
            say_sum(released, console)
    finally:  # some may have failed, and the others are there
        if any(job.target.exists() for job in todo):
            output.say_names(names, console)
    return todo


def release_with(
    name: str, workers: int, jobs: Sequence[Job], work: Work, output: OutputOptions, console: Console
) -> None:
    """Release a folder of files by an engine's workers, and tell each.

    Raises:
        IncompleteError: some could not be released.
        DposeError: there is no such engine, or --out is no folder.
    """
    from dpose.engines import engine
    from dpose.release.batch import release_corpus
    from dpose.release.jobs import names_file
    from dpose.release.manifest import MANIFEST

    out = output.folder()
    if jobs[0].target.parent != out and jobs[0].target == out:
        raise DposeError(
            "out-not-folder", "an engine releases into a folder", str(out), "name a folder, or leave --engine out"
        )
    with engine(name, workers=workers) as at:
        released = tell_each(
            lambda _: release_corpus(jobs, work, at, out, partial(say_line, console)), len(jobs), 0, console
        )
    say_sum(released, console)
    output.say_names(names_file(out) if jobs[0].number else None, console)
    console.print(f"What was released is listed in {out / MANIFEST}.", highlight=False, soft_wrap=True)


def say_lines(lines: Sequence[str], console: Console) -> None:
    """Say lines about files, whatever is in their names."""
    for line in lines:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def say_line(console: Console, line: str) -> None:
    """Say one line about a file, as `say_lines` does."""
    say_lines([line], console)


def say_explained(
    found: Iterable[tuple[Path, AnyPlan, Fraction | None]], console: Console, hiding: Hiding, *, alone: bool
) -> None:
    """Say what releases of files by these plans will do, once where it is the same; `alone` if nothing is released."""
    from dpose.release.explain import explain_release

    first: dict[tuple[str, ...], Path] = {}
    for source, plan, rate in found:
        lines = tuple(explain_release(plan, rate, alone=alone, face=hiding.face))
        like = first.setdefault(lines, source)
        say_lines([f"{source}:" if like is source else f"{source}: as {like}"], console)
        if like is source:
            console.print(hanging((f"  {line}" for line in lines), console, 4), highlight=False)


def say_sum(files: int, console: Console) -> None:
    """Say that epsilons add up, where there are several files."""
    if files > 1:
        console.print(
            "Each file has this epsilon for itself; for a person or thing in several of them, epsilons add up.",
            highlight=False,
        )
