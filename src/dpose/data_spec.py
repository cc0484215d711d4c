"""`NAME[:ROOT][:SPLIT][,OPTION=VALUE...]`: one short text says which data, be they poses, videos or photos.

Each of the three keeps a registry by name of what its datasets say of themselves (a `Dataset`), and a class of specs
(a `Spec` with that registry) which reads the text:

    spec = DataSpec.parse("lspet:/data/lspet:public")
    spec.name, spec.root, spec.split      # "lspet", "/data/lspet", "public"

A dataset from outside is an entry more: `dpose.pose.data.SOURCES["mine"] = PoseDataset(...)`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from dpose.errors import DposeError, did_you_mean
from dpose.extensions import registered
from dpose.known_sets import SetNames, sets_in
from dpose.remote import local_path, url_of

Purpose = Literal["train", "evaluate"]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What a dataset says of itself, whatever it is opened for.

    Attributes:
        root: What ROOT is, for messages: "folder", or "look" where it is one of `roots`.
        roots: The names that ROOT may have; () where it is a folder.
        default_root: ROOT where none is given; "" if one must be.
        splits: The names that SPLIT may have.
        default: The split of each purpose, where none is given.
        options: The names that an OPTION may have.
        distinct: Those of the options that name other units. Whatever differs in the rest, the units are the same.
        within: For a split that is part of another, that other.
        conditions: For a split whose content depends on private data, what a guarantee that builds on it takes as
            given.
        public_roots: The `roots` in which no person needs protection.
        public_splits: The `splits` in which no person needs protection.
        rendered: Whether everybody in it is rendered and so not real, even where they stand for private people.
        holds: Of a format that anybody's data may have: takes the root, the split and the options, and gives the public
            set that the data say they are, and the one that the names of their pictures look like, each "" if there
            is none. None: the data are the set of this name.
    """

    root: str = "folder"
    roots: tuple[str, ...] = ()
    default_root: str = ""
    splits: tuple[str, ...] = ()
    default: Mapping[Purpose, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    distinct: tuple[str, ...] = ()
    within: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    public_roots: tuple[str, ...] = ()
    public_splits: tuple[str, ...] = ("public",)
    rendered: bool = False
    holds: Callable[..., tuple[str, str]] | None = None

    @property
    def in_a_folder(self) -> bool:
        """Whether ROOT is a path on this machine."""
        return not self.roots


@dataclass(frozen=True)
class Spec:
    """A parsed data spec.

    A class of specs names its registry:

        class PhotoSpec(Spec):
            datasets = PHOTOS
            what = "photos"

    Attributes:
        name: A key of `datasets`.
        root: A folder, or one of the dataset's `roots`; "" if not given.
        split: "" if not given; the purpose then decides.
        options: Names and values, by name.
    """

    datasets: ClassVar[Mapping[str, Dataset]] = {}
    what: ClassVar[str] = "dataset"

    name: str
    root: str = ""
    split: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        r"""Read `NAME[:ROOT][:SPLIT][,OPTION=VALUE...]`.

        The name ends at the first colon. What follows the last colon is the split if the dataset has one of that name,
        and otherwise belongs to the root; so a root may contain colons (`lspet:C:\data\lspet`). An option begins at a
        comma that a word and "=" follow; other commas belong to what they stand in.
        """
        place, *given = re.split(r",(?=[a-z][a-z0-9_-]*=)", text)
        name, _, rest = place.partition(":")
        if not registered(name, cls.datasets):
            near, known = did_you_mean(name, cls.datasets), f"known are {', '.join(cls.datasets)}"
            what, fix = f"no {cls.what} called {name!r}", f"{near}; {known}" if near else known
            folders = [one for one, dataset in cls.datasets.items() if dataset.in_a_folder]
            if folders and (place.startswith(("/", ".", "~")) or os.path.exists(place)):
                likely = next((one for one in folders if one in place.lower()), folders[0])
                what = "does not say what kind of data it is"
                fix = f"say {likely}:{text}, or whichever of {', '.join(folders)} it is"
            raise DposeError("data-unknown", what, text, fix)
        root, _, last = rest.rpartition(":")
        root, split = (root, last) if last in cls.datasets[name].splits else (rest, "")
        spec = cls(name, root or cls.datasets[name].default_root, split)
        for option in given:
            spec = spec.with_option(*option.split("=", 1))
        return spec

    def __str__(self) -> str:
        place = ":".join(part for part in (self.name, self.root, self.split) if part)
        return ",".join((place, *(f"{option}={value}" for option, value in self.options)))

    @property
    def dataset(self) -> Dataset:
        """What the data say of themselves."""
        return self.datasets[self.name]

    def option(self, name: str) -> str:
        """The value of an option; "" if it is not given."""
        return dict(self.options).get(name, "")

    @property
    def options_taken(self) -> tuple[str, ...]:
        """The names of options that may be given."""
        return self.dataset.options

    @property
    def reader_options(self) -> dict[str, str]:
        """The options that the dataset's own functions take."""
        return dict(self.options)

    def with_option(self, name: str, value: str) -> Self:
        """The same with an option set; nothing changes where the value is ""."""
        known = self.options_taken
        if name not in known:
            near = did_you_mean(name, known)
            fix = near or (f"its options: {', '.join(known)}" if known else "")
            raise DposeError(
                "data-option-unknown", f"{self.name} takes no option {name}", f"{self},{name}={value}", fix
            )
        return replace(self, options=tuple(sorted({**dict(self.options), name: value}.items()))) if value else self

    def for_purpose(self, purpose: Purpose) -> Self:
        """The same spec with its split filled in."""
        return replace(self, split=self.split or self.dataset.default.get(purpose, ""))

    def located(self, purpose: Purpose) -> Self:
        """The same spec with its split filled in, and a root that there is."""
        spec, dataset = self.for_purpose(purpose), self.dataset
        if not spec.root:
            raise DposeError(
                "data-root-missing", f"{self.name} needs a {dataset.root}", str(self), f"write {self.name}:ROOT[:SPLIT]"
            )
        before, _, last = spec.root.rpartition(":")
        near = did_you_mean(last, dataset.splits) if before else ""
        if dataset.in_a_folder:
            if url := url_of(spec.root):
                from dpose.fetched import fetch

                fetch(url)
            if not spec.folder.is_dir():
                if before and not near and os.path.isdir(before):
                    near = f"splits are {', '.join(dataset.splits)}"
                raise DposeError(
                    "folder-missing", "no such folder", spec.root, near and f"or the split is misspelt: {near}"
                )
        elif before in dataset.roots:
            splits = f"splits are {', '.join(dataset.splits)}"
            fix = f"{near}; {splits}" if near else splits
            raise DposeError("split-unknown", f"no split called {last!r}", f"{self.name}:{before}", fix)
        elif spec.root not in dataset.roots:
            near = near or did_you_mean(spec.root, dataset.roots)
            known = f"{dataset.root}s are {', '.join(dataset.roots)}; splits are {', '.join(dataset.splits)}"
            what, fix = f"no {dataset.root} called {spec.root!r}", f"{near}; {known}" if near else known
            raise DposeError("data-root-unknown", what, self.name, fix)
        return spec

    @property
    def folder(self) -> Path:
        """The root as a path; of data in an object store or a zip file, where they stand once they are there."""
        if url := url_of(self.root):
            from dpose.fetched import data_folder

            return data_folder(url)
        path = local_path(self.root) if self.root.startswith("file:") else Path(self.root).expanduser()
        if path.suffix.lower() == ".zip" and path.is_file():
            from dpose.fetched import unpacked

            return unpacked(path)
        return path

    @property
    def place(self) -> Path | str:
        """What readers take: the root's folder, or its name where it is one of the dataset's `roots`."""
        return self.folder if self.dataset.in_a_folder else self.root

    @property
    def shown(self) -> str:
        """The spec for readers elsewhere: of every path, which is one of this machine, only the last part."""
        options = tuple((option, Path(value).name) for option, value in self.options)
        return str(replace(self, root=Path(self.root).name, options=options))

    @property
    def public(self) -> bool:
        """True if the data need no protection: the split or the root is public."""
        return self.split in self.dataset.public_splits or self.root in self.dataset.public_roots

    @property
    def may_be_shown(self) -> bool:
        """Whether the pictures may be shown to anybody: they are public, or of rendered people."""
        return self.public or self.dataset.rendered

    @property
    def condition(self) -> str:
        """What a guarantee takes as given that builds on these data; "" if nothing."""
        return self.dataset.conditions.get(self.split, "")

    @property
    def set_names(self) -> SetNames:
        """Which public set these data are, of a spec with its split filled in.

        Data in a common format (`Dataset.holds`) are a set where the folder or the label file is called so, or where
        the labels say it; a folder called "coco" may hold anything in COCO's format.
        """
        split = "" if any(name in self.dataset.distinct for name, _ in self.options) else self.named_split
        if not self.dataset.in_a_folder:
            notes = f"{self.name}-{self.root}:{split}"
            return SetNames((notes,), (notes,), whole=True)
        if self.dataset.holds is None:
            notes = f"{self.name}:{split}".rstrip(":")
            return SetNames((notes,), (notes,), whole=True)
        files = [Path(value).stem for name, value in self.options if name in self.dataset.distinct]
        called = [n for text in (Path(self.root).name, *files) for n in sets_in(text) if n != "coco"]
        try:
            said, like = self.dataset.holds(self.place, self.split, **self.reader_options)
        except DposeError:  # anyone who opens the data says what is wrong with them
            said = like = ""
        named_sets = tuple(dict.fromkeys([*called, *([said] if said else [])]))
        own = f"folder {Path(self.root).name}:{self.split}"
        sets = (*named_sets, *([like] if like and not named_sets else []))
        return SetNames(named_sets or (own,), sets, whole=True)

    @property
    def named_split(self) -> str:
        """The split, where what is read for it is that split of the set and no more."""
        return self.split

    def same_units(self, other: Spec) -> bool:
        """Whether two specs with their splits filled in share units, as far as names tell.

        A part of a split shares its units with the whole.
        """
        one, another = self._resolved(), other._resolved()
        return one == another or one._whole() == another or one == another._whole()

    def _resolved(self) -> Self:
        options = tuple((name, value) for name, value in self.options if name in self.dataset.distinct)
        root = str(self.folder.resolve()) if self.dataset.in_a_folder else self.root
        return replace(self, root=root, options=options)

    def _whole(self) -> Self:
        return replace(self, split=self.dataset.within.get(self.split, self.split))
