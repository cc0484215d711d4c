"""Pictures of people with known identities: the attacked people, and public ones that the attacker learns from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpose.data_spec import Dataset, Spec
from dpose.errors import DposeError
from dpose.media.identity import pixel_hash, read_known
from dpose.media.kinds import kind_of
from dpose.privacy.marks import Marks, marks_of
from dpose_lab.attacks.appearance import Descriptors, describe_appearance
from dpose_lab.photos.celeba import open_celeba
from dpose_lab.photos.photo import grey
from dpose_scene.looks import LOOKS
from dpose_scene.render import render_person
from dpose_scene.splits import IDENTITIES

Picture = NDArray[np.uint8]
Progress = Callable[[], None]
Read = tuple[Picture, tuple[str, ...]]
"""A picture with the digests of its original."""
Reader = Callable[[], Read]
T = TypeVar("T")

TEACHERS = "train"
"""The split whose rendered people the attacker knows."""
FEWEST_TEACHERS = 10

FRAME = 1 << 12
"""Picture k + f * `FRAME` of a rendered person is frame f of the scene that picture k shows the beginning of."""

_FIRST_SEED = 1 << 40
"""Scenes of attacks: far from those of every split, and no two pictures share a room."""


@dataclass(frozen=True)
class PersonPictures:
    """Pictures with the identities of the people in them.

    Attributes:
        pictures: uint8, (H, W, 3) or (H, W) each.
        people: (N,) numbers of the people shown.
        boxes: (N, 4) x0, y0, x1, y1 around the person, pixels.
        names: Names of the pictures, which select the noise of seeded releases.
        attributes: Descriptions of the people, one a picture; () if there are none.
        hashes: Digests of the originals (`dpose.media.identity`), those of each together.
    """

    pictures: tuple[Picture, ...]
    people: NDArray[np.int64]
    boxes: NDArray[np.int64]
    names: tuple[str, ...]
    attributes: tuple[Mapping[str, str], ...] = ()
    hashes: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.pictures)

    def instead(self, pictures: Sequence[Picture]) -> PersonPictures:
        """Replace the pictures by others of the same sizes."""
        return replace(self, pictures=tuple(pictures))

    def taken(self, indices: Sequence[int]) -> PersonPictures:
        """Select pictures, in this order."""

        def some(values: tuple[T, ...]) -> tuple[T, ...]:
            return tuple(values[k] for k in indices) if values else ()

        return PersonPictures(
            some(self.pictures),
            self.people[list(indices)],
            self.boxes[list(indices)],
            some(self.names),
            some(self.attributes),
            some(self.hashes),
        )

    def described(self) -> Descriptors:
        """Describe the person in each picture: the attacker is given the person's place, not the identity."""
        return describe_appearance(self.pictures, self.boxes)


@dataclass(frozen=True)
class Identities:
    """Data with known identities.

    Attributes:
        title: The data in words.
        people: People who may be attacked.
        public: People whom the attacker learns from; no person is in both groups.
        available: Number of pictures of each person; None if it is unlimited.
        load: Function from (person, number) pairs to their pictures.
        look: Look of rendered people; "" for photographs.
    """

    title: str
    people: tuple[int, ...]
    public: tuple[int, ...]
    available: Mapping[int, int] | None
    load: Callable[[Sequence[tuple[int, int]], Progress], PersonPictures] = field(repr=False)
    look: str = ""

    def chosen(self, count: int, pictures: int) -> Identities:
        """Choose at most `count` people to attack who have at least so many pictures each."""
        if self.available is None:
            return replace(self, people=self.people[:count])
        enough = [who for who in self.people if self.available[who] >= pictures]
        if len(enough) < 2:
            raise DposeError(
                "pictures-of-people-too-few",
                f"fewer than two people have {pictures} pictures",
                self.title,
                "ask for fewer pictures of each",
            )
        attacked = enough[:count]
        rest = [who for who in (*self.public, *enough[count:]) if self.available[who] >= 2]
        return replace(self, people=tuple(attacked), public=tuple(rest))

    def teaching(self, people: int, pictures: int, progress: Progress) -> PersonPictures:
        """Pictures of public people, for the attacker to learn from."""
        self.check_taught()
        return self.load(self.first(self.public[:people], 0, pictures), progress)

    def check_taught(self) -> None:
        """Refuse data with too few public people to learn from."""
        if len(self.public) < FEWEST_TEACHERS:
            raise DposeError(
                "people-left-too-few",
                f"leaves {len(self.public)} people for the attacker to learn from",
                self.title,
                "attack fewer with --identities, or give --embedder FILE and --attacker plain",
            )

    def album(self, first: int, count: int, progress: Progress) -> PersonPictures:
        """Pictures `first` to `first + count` of every attacked person."""
        return self.load(self.first(self.people, first, count), progress)

    def read(self, wanted: Sequence[tuple[int, int]], progress: Progress) -> tuple[Identities, Marks]:
        """Read these pictures and their marks; afterwards no other files can be read.

        So the attacked pictures are the charged ones, even if files change meanwhile. Rendered public people,
        who are in no data, are rendered when needed.

        Args:
            wanted: (person, number) pairs.
            progress: Called after each picture.
        """
        pairs = list(dict.fromkeys(wanted))
        held, load = self.load(pairs, progress), self.load
        place = {pair: k for k, pair in enumerate(pairs)}

        def known(pairs: Sequence[tuple[int, int]], progress: Progress) -> PersonPictures:
            if self.look and all(who in self.public for who, _ in pairs):
                return load(pairs, progress)
            return held.taken([place[pair] for pair in pairs])

        return replace(self, load=known), marks_of(chain.from_iterable(held.hashes))

    def first(self, people: Sequence[int], first: int, count: int) -> list[tuple[int, int]]:
        """(person, number) of pictures `first` to `first + count` of some people, as far as they exist."""
        most = self.available or {}
        return [(who, k) for who in people for k in range(first, min(first + count, most.get(who, 1 << 30)))]


def open_identities(spec: str, size: tuple[int, int], *, in_grey: bool = False) -> Identities:
    """Open the people that `spec` names.

    Args:
        spec: `synthetic:LOOK[:SPLIT]`, `folder:ROOT` or `celeba:ROOT`.
        size: (height, width) of rendered pictures; files keep their own.
        in_grey: True for grey pictures, as in seed 002.
    """
    parsed = IdentitySpec.parse(spec).located("evaluate")
    return parsed.dataset.open(parsed.place, parsed.split, size, in_grey)


def _rendered(look: str, split: str, size: tuple[int, int], in_grey: bool) -> Identities:
    if split == TEACHERS:
        raise DposeError(
            "split-unknown",
            f"cannot attack the split {split!r}",
            f"synthetic:{look}",
            f"choose one of {', '.join(name for name in IDENTITIES if name != TEACHERS)}: the attacker knows the rest",
        )
    return Identities(
        f"rendered people, {look}:{split}, {size[0]} x {size[1]} pixels{', grey' if in_grey else ''}",
        tuple(IDENTITIES[split]),
        tuple(IDENTITIES[TEACHERS]),
        None,
        partial(_render_all, look, size, in_grey),
        look,
    )


def scene_of(person: int, number: int) -> int:
    """Seed of a person's picture with this number; frames of one scene share it."""
    return _FIRST_SEED + person * FRAME + number % FRAME


def _render_all(
    look: str, size: tuple[int, int], in_grey: bool, wanted: Sequence[tuple[int, int]], progress: Progress
) -> PersonPictures:
    assert look in LOOKS

    def one(which: tuple[int, int]) -> tuple[Picture, tuple[int, ...], Mapping[str, str], str]:
        who, number = which
        scene = render_person(look, scene_of(who, number), size, identity=who, frame=number // FRAME)
        rows, columns = np.nonzero(scene.mask)
        box = (0, 0, size[1], size[0])
        if len(rows):
            box = (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1)
        progress()
        shown = grey(scene.image) if in_grey else scene.image
        return shown, box, scene.attributes, pixel_hash(scene.image)

    pool = ThreadPoolExecutor()
    try:
        made = list(pool.map(one, wanted))
    finally:
        # after a stop, pictures that were not begun are not waited for
        pool.shutdown(cancel_futures=True)
    return PersonPictures(
        tuple(picture for picture, *_ in made),
        np.asarray([who for who, _ in wanted], np.int64),
        np.asarray([box for _, box, *_ in made], np.int64).reshape(-1, 4),
        tuple(f"{look}-{who}-{number}" for who, number in wanted),
        tuple(attributes for _, _, attributes, _ in made),
        tuple((digest,) for *_, digest in made),
    )


def _celeba(root: Path) -> Identities:
    photos = open_celeba(root)
    files: dict[int, list[Reader]] = {}

    def read(index: int) -> Read:
        photo = photos.read(index)
        return photo.pixels, photo.hashes

    for index, who in enumerate(photos.identities):
        files.setdefault(who, []).append(partial(read, index))
    return _read(photos.title + ", grey", files)


def _folder(root: Path, in_grey: bool) -> Identities:
    folders = sorted(path for path in root.iterdir() if path.is_dir())

    def read(path: Path) -> Read:
        image, hashes = read_known(path)
        return (grey(image) if in_grey else image), hashes

    files = {
        who: [partial(read, path) for path in sorted(folder.iterdir()) if kind_of(path) == "picture"]
        for who, folder in enumerate(folders)
    }
    if not any(files.values()):
        raise DposeError(
            "people-folders-missing", "has no folders of pictures in it", str(root), "make one for each person"
        )
    return _read(root.name, files)


def _read(title: str, files: Mapping[int, Sequence[Reader]]) -> Identities:
    """All people may be attacked; those who are not become public (`Identities.chosen`)."""

    def load(wanted: Sequence[tuple[int, int]], progress: Progress) -> PersonPictures:
        pictures, hashes = [], []
        for who, number in wanted:
            picture, known = files[who][number]()
            pictures.append(picture)
            hashes.append(known)
            progress()
        boxes = [(0, 0, picture.shape[1], picture.shape[0]) for picture in pictures]
        return PersonPictures(
            tuple(pictures),
            np.asarray([who for who, _ in wanted], np.int64),
            np.asarray(boxes, np.int64).reshape(-1, 4),
            tuple(f"{who}-{number}" for who, number in wanted),
            hashes=tuple(hashes),
        )

    return Identities(title, tuple(files), (), {who: len(pictures) for who, pictures in files.items()}, load)


@dataclass(frozen=True, kw_only=True)
class IdentityDataset(Dataset):
    """A kind of data with identities, for the registry.

    Attributes:
        open: Opens the people; takes the root (a `Path`, or a name where the dataset has `roots`), the split, the
            (height, width) of rendered pictures, and whether pictures are to be grey.
    """

    open: Callable[..., Identities]


SOURCES: dict[str, IdentityDataset] = {
    "synthetic": IdentityDataset(
        root="look",
        roots=tuple(LOOKS),
        public_roots=("studio",),
        rendered=True,
        splits=tuple(IDENTITIES),
        default={"evaluate": "test"},
        open=_rendered,
    ),
    "folder": IdentityDataset(open=lambda root, split, size, in_grey: _folder(root, in_grey)),
    "celeba": IdentityDataset(open=lambda root, split, size, in_grey: _celeba(root)),
}
"""Kinds of data with identities, by name."""


class IdentitySpec(Spec):
    """A parsed spec of data with identities; `name` is a key of `SOURCES`."""

    datasets: ClassVar = SOURCES
    what = "people"

    @property
    def dataset(self) -> IdentityDataset:
        """The kind of data."""
        return SOURCES[self.name]
