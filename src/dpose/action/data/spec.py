"""Specs of videos, `NAME[:ROOT][:SPLIT]`, and `open_videos`, which opens them.

`synthetic-clips`: rendered films of a few actions by imaginary people, with their attributes. UCF101, HMDB51, PA-HMDB
and VISPR are read in their own layouts, split 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

from dpose.action.data.sources import Held, StillFile, VideoFile
from dpose.action.data.units import Video, VideoSet
from dpose.data_spec import Dataset, Purpose, Spec
from dpose.errors import DposeError
from dpose.extensions import rendered_people
from dpose.files import file_json, file_text, leads_out
from dpose.privacy.selection import Selection, as_selection

SKIRTS = ("skirt", "dress", "gown")
WITNESS: Mapping[str, Callable[[Mapping[str, str]], bool]] = {
    "dark skin": lambda a: a["skin"] in ("brown", "deep", "ebony"),
    "fair skin": lambda a: a["skin"] in ("porcelain", "fair", "beige"),
    "dark hair": lambda a: a["hair"].startswith(("black", "dark brown")),
    "child": lambda a: a["age"] == "child",
    "elderly": lambda a: a["age"] == "elderly",
    "stout": lambda a: a["build"] == "stout",
    "skirt or dress": lambda a: a["bottom"].endswith(SKIRTS),
    "shorts": lambda a: a["bottom"].endswith("shorts"),
}
"""Attributes of a person by name, each true or not."""
HUMAN = ("skin colour", "gender", "face, complete", "face, partial", "semi-nudity", "relationship")
"""Attributes that PA-HMDB and VISPR share: seed 004's cross-dataset evaluation."""
_VISPR = {
    "skin colour": ("a17_color",),
    "gender": ("a4_gender",),
    "face, complete": ("a9_face_complete",),
    "face, partial": ("a10_face_partial",),
    "semi-nudity": ("a12_semi_nudity",),
    "relationship": ("a64_rel_personal", "a65_rel_soci"),
}
_PICTURES = (".jpg", ".jpeg", ".png")
_LISTS = {"train": "trainlist01.txt", "test": "testlist01.txt"}
_GROUP = re.compile(r"_(g\d+)_c\d+$")


@lru_cache(maxsize=16)
def open_clips(look: str, split: str, size: tuple[int, int] | None = None) -> VideoSet:
    """Open one split of the films of a look; each is rendered on first use, and stays in memory.

    Args:
        look: `studio` or `ward`.
        split: One of the look's splits.
        size: (height, width) in pixels; None for the default size.
    """
    people = rendered_people()
    videos = []
    for index in range(people.FILM_SPLITS[split]):
        labels = people.film_labels(look, split, index)
        videos.append(
            Video(
                f"{split}/{labels.name}",
                Held(partial(people.film, look, split, index, size or people.FILM_SIZE)),
                people.FILM_ACTIONS.index(labels.action),
                tuple(int(true_of(labels.attributes)) for true_of in WITNESS.values()),
                f"rendered-{labels.identity}",
            )
        )
    note = f"synthetic-clips:{look}:{split}: {len(videos):,} rendered films, one imaginary person in each"
    return VideoSet(tuple(videos), people.FILM_ACTIONS, tuple(WITNESS), (note,))


def open_ucf101(root: Path, split: str) -> VideoSet:
    """Open UCF101: `UCF-101/<Class>/v_<Class>_gXX_cYY.avi`, listed in `ucfTrainTestlist/`."""
    lists = root / "ucfTrainTestlist"
    numbered = [line.split() for line in _lines(lists / "classInd.txt")]
    if not all(len(parts) == 2 and re.fullmatch("[0-9]{1,9}", parts[0]) for parts in numbered):
        raise DposeError("class-list-invalid", "is not a list of numbered classes", str(lists / "classInd.txt"))
    actions = tuple(name for _, name in sorted((int(number), name) for number, name in numbered))
    place = lists / _LISTS[split]
    videos = []
    for line in _lines(place):
        name = line.split()[0]
        action, _, file = name.partition("/")
        if action not in actions or not file or leads_out(name):
            raise DposeError("class-unknown", f"names {name!r}, which is of no class", str(place))
        group = _GROUP.search(Path(file).stem)
        subject = f"{action}-{group[1]}" if group else ""
        videos.append(Video(name, VideoFile(root / "UCF-101" / name), actions.index(action), subject=subject))
    return _there(videos, actions, f"ucf101:{split}", root)


def open_hmdb51(root: Path, split: str) -> VideoSet:
    """Open HMDB51: a folder of videos a class, and `<class>_test_split1.txt` with 1 for training and 2 for testing.

    The lists may stand in `root` or in a folder of it.
    """
    videos, actions = _hmdb(root, split)
    return _there(videos, actions, f"hmdb51:{split}", root)


def open_pahmdb(root: Path, split: str) -> VideoSet:
    """Open PA-HMDB: HMDB51's folder with `PrivacyAttributes/<class>.json` in it, annotations by frame.

    Split "test" is the annotated videos, each with the attributes of its middle frame; "train" is all videos of HMDB51
    that are not annotated.
    """
    annotations = root / "PrivacyAttributes"
    files = sorted(annotations.glob("*.json"))
    if not files:
        raise DposeError(
            "annotations-missing", "holds no annotations", str(annotations), "put PA-HMDB's PrivacyAttributes there"
        )
    known = {file.stem: _object(file) for file in files}
    videos, actions = _hmdb(root, "all")
    marked = {f"{action}/{name}" for action, entries in known.items() for name in entries}
    if split == "train":
        return _there([v for v in videos if v.name not in marked], actions, "pahmdb:train", root)
    labelled = []
    for video in videos:
        if video.name not in marked or not (root / video.name).is_file():
            continue
        action, name = video.name.split("/")
        middle = round((video.source.count() - 1) / 2)
        values = _at(known[action][name], middle, annotations / f"{action}.json")
        labelled.append(Video(video.name, video.source, video.action, values))
    return _there(labelled, actions, "pahmdb:test", root, HUMAN)


def open_vispr(root: Path, split: str) -> VideoSet:
    """Open VISPR: pictures in folders called `<split>2017`, and for each a JSON file with its `labels`."""
    folder = f"{split}2017"
    pictures = {p.stem: p for p in root.rglob(f"{folder}/*") if p.suffix.lower() in _PICTURES}
    videos = []
    missing = 0
    for path in sorted(root.rglob(f"{folder}/*.json")):
        labels = _object(path).get("labels")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise DposeError("labels-missing", "has no list of labels", str(path))
        if path.stem not in pictures:
            missing += 1
            continue
        values = tuple(int(any(name in labels for name in _VISPR[attribute])) for attribute in HUMAN)
        videos.append(Video(f"{folder}/{path.stem}", StillFile(pictures[path.stem]), attributes=values))
    if not videos:
        raise DposeError("pictures-missing", f"holds no pictures with labels in {folder}", str(root))
    notes = (f"vispr:{split}: {len(videos):,} pictures, {missing:,} labels without a picture",)
    return VideoSet(tuple(videos), (), HUMAN, notes)


def _hmdb(root: Path, split: str) -> tuple[list[Video], tuple[str, ...]]:
    lists = sorted(root.rglob("*_test_split1.txt"))
    if not lists:
        raise DposeError(
            "split-list-missing",
            "holds no <class>_test_split1.txt",
            str(root),
            "unpack test_train_splits.rar beside the classes",
        )
    actions = tuple(path.name.removesuffix("_test_split1.txt") for path in lists)
    wanted = {"train": ("1",), "test": ("2",), "all": ("0", "1", "2")}[split]
    videos = []
    for number, (action, path) in enumerate(zip(actions, lists, strict=True)):
        for line in _lines(path):
            name, _, use = line.rpartition(" ")
            if use not in ("0", "1", "2") or leads_out(name.strip()):
                raise DposeError("label-line-invalid", f"a line is not a video and 0, 1 or 2: {line!r}", str(path))
            if use in wanted:
                video = f"{action}/{name.strip()}"
                videos.append(Video(video, VideoFile(root / video), number))
    return videos, actions


def _at(entry: Any, frame: int, where: Path) -> tuple[int, ...]:
    """Return the attributes of one frame: `HUMAN`, each 1, 0 or -1 if the frame is in no range."""

    def value(name: str) -> list[int] | None:
        for first, last, level in entry[name]:
            if first <= frame <= last:
                return [int(v) for v in level] if isinstance(level, list) else [int(level)]
        return None

    try:
        values_by_name = {name: value(name) for name in ("skin_color", "gender", "face", "nudity", "relationship")}
    except (KeyError, TypeError, ValueError) as error:
        raise DposeError("annotation-invalid", f"an annotation is not understood ({error})", str(where)) from error

    def says(name: str, *levels: int) -> int:
        values = values_by_name[name]
        if values is None:
            return -1
        return int(any(v in levels for v in values) if levels else any(v > 0 for v in values))

    return (
        says("skin_color"),
        says("gender"),
        says("face", 2),
        says("face", 1),
        says("nudity", 2),
        says("relationship"),
    )


def _there(
    videos: Sequence[Video], actions: tuple[str, ...], what: str, root: Path, attributes: tuple[str, ...] = ()
) -> VideoSet:
    """Return the videos whose files are there, with a note of how many are not."""
    present = [v for v in videos if isinstance(v.source, VideoFile) and v.source.path.is_file()]
    if not present:
        raise DposeError("videos-missing", f"not one of the {len(videos):,} videos of {what} is there", str(root))
    missing = len(videos) - len(present)
    notes = (f"{what}: {len(present):,} videos" + (f", {missing:,} are listed and not there" if missing else ""),)
    return VideoSet(tuple(present), actions, attributes, notes)


def _lines(path: Path) -> Iterator[str]:
    try:
        text = file_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise DposeError("file-unreadable", f"cannot be read ({reason})", str(path)) from error
    return (line.strip() for line in text.splitlines() if line.strip())


def _object(path: Path) -> Mapping[str, Any]:
    try:
        content = file_json(path)
    except (OSError, ValueError) as error:
        raise DposeError("json-invalid", "is no JSON", str(path)) from error
    if not isinstance(content, dict):
        raise DposeError("json-not-object", "is no JSON object", str(path))
    return content


@dataclass(frozen=True, kw_only=True)
class VideoDataset(Dataset):
    """Description of a dataset of videos.

    Attributes:
        open: Returns the videos; takes the root (a `Path`, or a name if the dataset has `roots`), the split, and
            options by name.
    """

    open: Callable[..., VideoSet]


def _folder(read: Callable[[Path, str], VideoSet], held_out: str = "test", *more: str) -> VideoDataset:
    default: Mapping[Purpose, str] = {"train": "train", "evaluate": held_out}
    return VideoDataset(splits=("train", held_out, *more), default=default, open=read)


SOURCES: dict[str, VideoDataset] = {
    "hmdb51": _folder(open_hmdb51),
    "pahmdb": _folder(open_pahmdb),
    "synthetic-clips": VideoDataset(
        root="look",
        roots=("studio", "ward"),
        default_root="studio",
        public_roots=("studio",),
        rendered=True,
        splits=("train", "val", "test"),
        default={"train": "train", "evaluate": "val"},
        open=open_clips,
    ),
    "ucf101": _folder(open_ucf101),
    "vispr": _folder(open_vispr, "val", "test"),
}
"""Every kind of videos by name."""


class ActionSpec(Spec):
    """A parsed spec of videos; `name` is a key of `SOURCES`.

    >>> spec = ActionSpec.parse("synthetic-clips:ward").for_purpose("evaluate")
    >>> str(spec), spec.public
    ('synthetic-clips:ward:val', False)
    """

    datasets: ClassVar = SOURCES
    what = "videos"

    @property
    def dataset(self) -> VideoDataset:
        """Description of the videos."""
        return SOURCES[self.name]


def open_videos(spec: str | ActionSpec, *, purpose: Purpose, limit: int | Selection | None = None) -> VideoSet:
    """Open videos by a spec.

    Args:
        spec: Such as `ucf101:/data/ucf`, `synthetic-clips:ward:test`.
        purpose: Decides the split if the spec names none.
        limit: Largest number of videos, chosen by name.
    """
    parsed = (ActionSpec.parse(spec) if isinstance(spec, str) else spec).located(purpose)
    opened = parsed.dataset.open(parsed.place, parsed.split, **dict(parsed.options))
    videos = replace(opened, set_names=parsed.set_names)
    selection = as_selection(limit)
    return videos if selection is None else videos.limit(selection)
