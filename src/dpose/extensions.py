"""What packages beside dpose add to it, found by entry points; dpose works without any of them.

    [project.entry-points."dpose.commands"]
    lab = "dpose_lab.commands"                  # has COMMANDS: a table as in dpose.cli.app

`dpose.registrations` names modules that register methods, codecs, backbones, data or tasks as they are imported, which
happens where a name is not known otherwise. `dpose.data` names modules that render people, as `RenderedPeople` says,
for data specs `synthetic:...`; `dpose.operators` names modules whose `PUBLISHED` has published release algorithms
(`dpose.release.published`). A source tree that is not installed has no entry points: there the packages that come with
dpose are looked for beside it.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dpose.errors import DposeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
HERE = Path(__file__).parent
SHIPPED = ("dpose_lab", "dpose_scene")
"""The packages that come with dpose."""


@cache
def extensions(group: str) -> tuple[ModuleType, ...]:
    """The modules that add something to dpose, those of `SHIPPED` first.

    Args:
        group: "commands", "data", "operators" or "registrations".
    """
    beside = [f"{name}.{group}" for name in SHIPPED if (HERE.parent / name / f"{group}.py").exists()]
    named = sorted(entry.value for entry in metadata.entry_points(group=f"dpose.{group}"))
    found = []
    for name in dict.fromkeys((*beside, *named)):
        try:
            found.append(import_module(name))
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:  # else it was installed once, and deleted since
                raise
    return tuple(found)


YOUR_OWN = "or, if it is your own, import what registers it (docs/guide/extend.md says how for commands)"
"""What helps against a name that is not registered."""


def registered(name: str, registry: Mapping[str, object]) -> bool:
    """Whether a registry has a name, after the modules that register something were imported, if that has to be."""
    return name in registry or bool(extensions("registrations") and name in registry)


class Registry(UserDict[str, T]):
    """Objects by name. One that is given as "module:name" is imported when it is looked up.

    >>> Registry({"root": "math:sqrt"})["root"](9)
    3.0
    """

    def __init__(self, objects: Mapping[str, T | str]) -> None:
        super().__init__(cast("Mapping[str, T]", objects))

    def __getitem__(self, name: str) -> T:
        found = super().__getitem__(name)
        if isinstance(found, str):
            found = self.data[name] = resolve_name(found)
        return found


def source_files() -> list[tuple[str, Path]]:
    """The Python files of dpose and of the packages that come with it: each one's name below their folder, and path."""
    roots = (HERE, *(HERE.parent / name for name in SHIPPED))
    files = (file for root in roots for file in root.rglob("*.py"))
    return sorted((file.relative_to(HERE.parent).as_posix(), file) for file in files)


class RenderedPerson(Protocol):
    """A picture of one person, with its labels."""

    @property
    def image(self) -> NDArray[np.uint8]:
        """(H, W, 3), RGB."""

    @property
    def keypoints(self) -> NDArray[np.float32]:
        """(16, 2): x, y in pixels, MPII's joints."""

    @property
    def visible(self) -> NDArray[np.bool_]:
        """(16,)."""

    @property
    def of_ward(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(3, 2) and (3,): palms and footing, as keypoints and visible; the footing only of who stands on the floor."""

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(H, W): the person's pixels."""

    @property
    def head_box(self) -> NDArray[np.float32]:
        """(4,): x0, y0, x1, y1 in pixels."""


class RenderedFilm(Protocol):
    """What is known of a film without rendering it."""

    @property
    def name(self) -> str:
        """The name, as in ward-train-0007."""

    @property
    def action(self) -> str:
        """One of `FILM_ACTIONS`."""

    @property
    def identity(self) -> int:
        """Who is in it."""

    @property
    def attributes(self) -> Mapping[str, str]:
        """What a witness would say of that person."""


class RenderedScene(Protocol):
    """A short film of a rendered day, with what truly happens in it."""

    @property
    def begin(self) -> Fraction:
        """When it begins, seconds since midnight."""

    @property
    def people(self) -> int:
        """How many people are there."""

    @property
    def falls(self) -> int:
        """How many of them fall."""


class RenderedPeople(Protocol):
    """A module that renders people who do not exist. Pictures and films are numbered within the split of a look.

    Attributes:
        SPLITS: How many pictures each split has.
        FILM_SPLITS: How many films each split has.
        FILM_ACTIONS: What people in films do.
        FILM_SIZE: (height, width) of films where nothing else is said, pixels.
    """

    SPLITS: Mapping[str, int]
    FILM_SPLITS: Mapping[str, int]
    FILM_ACTIONS: tuple[str, ...]
    FILM_SIZE: tuple[int, int]

    def identity_at(self, look: str, split: str, index: int) -> int:
        """Who is in picture `index`."""

    def render_at(self, look: str, split: str, index: int, size: tuple[int, int]) -> RenderedPerson:
        """Picture `index`, `size` (height, width) pixels."""

    def groups_at(self, look: str, split: str, index: int) -> dict[str, str]:
        """What a witness would say of the person in picture `index`, and what that person leans on or sits in."""

    def film(self, look: str, split: str, index: int, size: tuple[int, int]) -> NDArray[np.uint8]:
        """Film `index`: its frames, uint8 (T, height, width, 3)."""

    def film_labels(self, look: str, split: str, index: int) -> RenderedFilm:
        """What is known of film `index`."""

    def day_scenes(self, an_hour: int) -> Sequence[RenderedScene]:
        """The scenes of a day, so many an hour."""

    def day_frames(self, scene: RenderedScene) -> Iterator[tuple[Fraction, NDArray[np.uint8]]]:
        """Times, in seconds since midnight, and frames of a scene, uint8 (height, width, 3)."""


def rendered_people() -> RenderedPeople:
    """The module that renders people."""
    found: tuple[Any, ...] = extensions("data")
    if not found:
        raise DposeError(
            "rendered-people-missing",
            "rendered people are not installed",
            "synthetic",
            "install dpose with dpose_scene, which renders them",
        )
    return cast("RenderedPeople", found[0])
