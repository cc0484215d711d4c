"""Label files in COCO's format, read with care: pictures, people, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import leads_out
from dpose.media.images import read_image
from dpose.pose.data.cache import PictureCache, picture_cache
from dpose.pose.data.files import PictureFinder
from dpose.pose.data.problems import Problem, Problems, numbers, read_json
from dpose.pose.skeletons import COCO, Skeleton, skeleton_of
from dpose.privacy.selection import smallest

GET_IT = "give the folder that holds annotations/ and train2017/ or val2017/ of COCO 2017"
"""What helps where labels are not there or are none."""
FAR_OUTSIDE = 0.5
"""A labelled joint further outside the picture than this share of its longer side is told as a problem; it is kept."""


@dataclass(frozen=True)
class CocoImage:
    """A picture as the label file has it.

    Attributes:
        id: The file's own number.
        name: The file name that the labels give.
        path: Where it is; None where it is not there, which only `parse_coco(..., pictures=False)` lets pass.
        width: Pixels.
        height: Pixels.
        group: What tables are split by: Human-Art's category; "" where there is none.
    """

    id: int
    name: str
    path: Path | None
    width: int
    height: int
    group: str = ""


@dataclass(frozen=True)
class CocoPerson:
    """An annotation of a person, as the label file has it.

    Attributes:
        id: The file's own number.
        image: The picture's id.
        keypoints: (J, 2) float64, pixels; 17 joints in COCO.
        flags: (J,) float64: 0 not labelled, 1 hidden, 2 seen.
        box: (4,) float64, x, y, width, height in pixels, as written.
        area: Of the segmentation, pixels squared.
        crowd: Several people in one annotation.
    """

    id: int
    image: int
    keypoints: NDArray[np.float64]
    flags: NDArray[np.float64]
    box: NDArray[np.float64]
    area: float
    crowd: bool

    @property
    def labelled(self) -> int:
        """Number of labelled joints."""
        return int((self.flags > 0).sum())


@dataclass(frozen=True)
class CocoSet:
    """The labels of one split, and where its pictures are.

    Attributes:
        name: Such as "coco:val".
        source: The label file.
        images: With and without people, in the file's order.
        people: Crowds and people without joints too.
        problems: What was wrong with the file.
        notes: Anything else worth telling.
        cache: Decoded pictures on disk.
        skeleton: Of the people's joints.
    """

    name: str
    source: Path
    images: tuple[CocoImage, ...]
    people: tuple[CocoPerson, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    cache: PictureCache | None = None
    skeleton: Skeleton = COCO

    def read(self, image: CocoImage) -> NDArray[np.uint8]:
        """The decoded picture, uint8 (H, W, 3) RGB, of the size that the labels speak of (`read_labelled`)."""
        if image.path is None:
            raise DposeError("picture-missing", "the picture is missing", image.name)
        return read_labelled(image.path, (image.height, image.width), self.cache)

    def limit(self, count: int, seed: int = 0) -> CocoSet:
        """At most `count` pictures with their people, chosen by name (`smallest`)."""
        if count >= len(self.images):
            return self
        images = tuple(self.images[i] for i in smallest([i.name for i in self.images], count, seed))
        kept = {image.id for image in images}
        note = f"limited to {count:,} of {len(self.images):,} pictures (seed {seed})"
        return replace(
            self,
            images=images,
            people=tuple(p for p in self.people if p.image in kept),
            notes=(*self.notes, note),
        )

    def learnt(self) -> dict[int, list[tuple[CocoPerson, NDArray[np.float32]]]]:
        """By picture id, the people to learn from with their clipped boxes (x0, y0, x1, y1)."""
        sizes = {image.id: (image.width, image.height) for image in self.images}
        chosen: dict[int, list[tuple[CocoPerson, NDArray[np.float32]]]] = {}
        for person in self.people:
            if not person.crowd and person.labelled:
                box = clipped(person.box, sizes[person.image])
                if box is not None:
                    chosen.setdefault(person.image, []).append((person, box))
        return chosen

    def truth(self) -> dict[str, Any]:
        """The labels as a COCO dictionary, for `pycocotools`."""
        return {
            "images": [
                {"id": i.id, "width": i.width, "height": i.height, "file_name": i.name} for i in self.images
            ],
            "categories": [
                {"id": 1, "name": "person", "keypoints": list(self.skeleton.joints), "skeleton": []}
            ],
            "annotations": [
                {
                    "id": p.id,
                    "image_id": p.image,
                    "category_id": 1,
                    "iscrowd": int(p.crowd),
                    "num_keypoints": p.labelled,
                    "keypoints": np.column_stack([p.keypoints, p.flags]).ravel().tolist(),
                    "bbox": p.box.tolist(),
                    "area": p.area,
                }
                for p in self.people
            ],
        }


def read_labelled(path: Path, size: tuple[int, int], cache: PictureCache | None) -> NDArray[np.uint8]:
    """A picture of the (H, W) that its labels speak of.

    Where EXIF turns the picture and the labels were made on the pixels as stored, those are what is returned.

    Raises:
        DposeError: the picture is damaged, or of another size.
    """

    def decode() -> NDArray[np.uint8]:
        image = read_image(path)
        if image.shape[:2] == size[::-1] != size:
            image = read_image(path, orient=False)
        if image.shape[:2] != size:
            found = f"{image.shape[1]} x {image.shape[0]}"
            raise DposeError(
                "picture-size-differs",
                f"is {found} pixels, but its labels are for {size[1]} x {size[0]}",
                str(path),
            )
        return image

    return decode() if cache is None else cache.read(path, decode, repr(size))


def clipped(box: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float32] | None:
    """A box x, y, w, h as x0, y0, x1, y1 within a picture of (W, H) pixels; None where nothing is left of it."""
    x, y, w, h = box
    high = np.array(size, np.float64) - 1
    low_corner = np.clip([x, y], 0, high)
    high_corner = np.clip([x + w, y + h], 0, high)
    if w <= 0 or h <= 0 or (high_corner <= low_corner).any():
        return None
    return np.concatenate([low_corner, high_corner]).astype(np.float32)


def parse_coco(
    path: Path,
    finder: PictureFinder,
    *,
    name: str,
    notes: tuple[str, ...] = (),
    group_key: str = "",
    skeleton: Skeleton | None = None,
    pictures: bool = True,
) -> CocoSet:
    """Read a label file in COCO's format.

    An annotation that makes no sense is left out and told in `problems` by its id; so is a picture that is missing,
    with its people.

    Args:
        path: The label file.
        finder: Finds the pictures.
        name: What to call the data.
        notes: Lines to hand on.
        group_key: The picture's field that tables are split by.
        skeleton: Of the labels; as the file's categories say where None.
        pictures: Whether a missing picture is left out. Otherwise it stays, without a path: labels alone can be scored.

    Raises:
        DposeError: the file is unreadable or not in this format, or none of its pictures can be used.
    """
    problems = Problems()
    content = read_json(path, problems)
    if not isinstance(content, dict) or not all(
        isinstance(content.get(k), list) for k in ("images", "annotations")
    ):
        raise DposeError(
            "labels-malformed", 'should be a JSON object with "images" and "annotations"', str(path), GET_IT
        )
    person, named = category_of(content, path)
    joints = skeleton or named
    images, lost = _images(content["images"], finder, group_key, problems, pictures)
    if content["images"] and not images:
        first = problems.found[0] if len(problems) else ""
        raise DposeError(
            "labels-all-unusable",
            f"not one of its {len(content['images']):,} pictures can be used; {first}",
            str(path),
        )
    people = _people(content["annotations"], person, images, lost, problems, len(joints))
    absent = sum(image.path is None for image in images.values())
    if absent:
        notes = (*notes, f"{absent:,} of {len(images):,} pictures are not there: their labels alone are read")
    found = tuple(images.values())
    return CocoSet(name, path, found, tuple(people), tuple(problems), notes, picture_cache(), joints)


def category_of(content: dict[str, Any], path: Path) -> tuple[set[int], Skeleton]:
    """The numbers of the categories that are read, and their joints."""
    listed = content.get("categories")
    entries = [c for c in listed if isinstance(c, dict) and "id" in c] if isinstance(listed, list) else []
    posed = [c for c in entries if isinstance(c.get("keypoints"), list) and c["keypoints"]]
    chosen = [c for c in entries if c.get("name") == "person"] or (posed if len(posed) == 1 else [])
    described = next((c for c in chosen if c in posed), None)
    if any(type(c["id"]) is not int for c in chosen):
        raise DposeError("category-id-invalid", 'the "id" of a category should be a whole number', str(path))
    if described is None:
        return {c["id"] for c in chosen} or {1}, COCO
    try:
        edges = [(int(a) - 1, int(b) - 1) for a, b in described.get("skeleton") or ()]  # COCO counts from 1
    except (TypeError, ValueError) as error:
        raise DposeError(
            "skeleton-edges-invalid", '"skeleton" should be pairs of joints', str(path)
        ) from error
    return {c["id"] for c in chosen}, skeleton_of(described["keypoints"], edges, where=str(path))


def _images(
    entries: list[Any], finder: PictureFinder, group_key: str, problems: Problems, pictures: bool
) -> tuple[dict[int, CocoImage], set[int]]:
    """The usable pictures by id, and the ids of those that are not."""
    images: dict[int, CocoImage] = {}
    lost: set[int] = set()
    paths: set[Path] = set()
    for number, entry in enumerate(entries, 1):
        where = f"image entry {number}"
        if not isinstance(entry, dict) or type(entry.get("id")) is not int:
            problems.add("a picture without a whole number as id", where)
            continue
        where = f"image {entry['id']}"
        if entry["id"] in images or entry["id"] in lost:
            problems.add("two pictures with one id", where)
            continue
        lost.add(entry["id"])
        file = entry.get("file_name")
        size = (entry.get("width"), entry.get("height"))
        if not isinstance(file, str) or leads_out(file):
            problems.add("no usable file name", where, detail=repr(file)[:80])
        elif not all(type(v) is int and 0 < v < 2**31 for v in size):
            problems.add("no width and height", where, detail=file)
        elif (found := finder.find(file)) is None and pictures:
            problems.add("the picture is missing", where, detail=file)
        elif (place := found or Path(file)) in paths:
            problems.add("two ids for one picture", where, detail=file)
        else:
            paths.add(place)
            lost.discard(entry["id"])
            group = entry.get(group_key, "") if group_key else ""
            images[entry["id"]] = CocoImage(
                entry["id"],
                file,
                found,
                entry["width"],
                entry["height"],
                group if isinstance(group, str) else "",
            )
    return images, lost


def _people(
    entries: list[Any],
    person: set[int],
    images: dict[int, CocoImage],
    lost: set[int],
    problems: Problems,
    joints: int,
) -> list[CocoPerson]:
    people: dict[int, CocoPerson] = {}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or type(entry.get("id")) is not int:
            problems.add("an annotation without a whole number as id", f"annotation entry {number}")
            continue
        where = f"annotation {entry['id']}"
        category, image = entry.get("category_id", 1), entry.get("image_id")
        if not isinstance(category, int | float) or category not in person:
            continue
        if entry["id"] in people:
            problems.add("two annotations with one id", where)
        elif not isinstance(image, int | float):
            problems.add("its picture has no number", where)
        elif image in lost:
            problems.add("its picture cannot be used", where, detail=f"image {image}")
        elif image not in images:
            problems.add("its picture is not in the file", where, detail=f"image {image}")
        else:
            made = _annotation(entry, images[int(image)], where, problems, joints)
            if made is not None:
                people[made.id] = made
    return list(people.values())


_KEYS = frozenset({
    "id", "image_id", "category_id", "keypoints", "num_keypoints", "bbox", "area", "iscrowd", "segmentation",
    "keypoints_21", "num_keypoints_21", "self_contact", "annotator", "ignore", "score", "attributes",
})  # fmt: skip


def _annotation(
    entry: dict[str, Any], image: CocoImage, where: str, problems: Problems, joints: int
) -> CocoPerson | None:
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        problems.add("an unknown key", where, "not used", repr(unknown[0]))
    missing = [key for key in ("keypoints", "bbox") if key not in entry]
    if missing:
        problems.add(f"has no {missing[0]}", where)
        return None
    flat, box = numbers(entry["keypoints"], 3 * joints), numbers(entry["bbox"], 4)
    if flat is None:
        problems.add(f"keypoints are not {3 * joints} finite numbers", where)
        return None
    if box is None:
        problems.add("bbox is not 4 finite numbers", where)
        return None
    points, flags = flat.reshape(-1, 3)[:, :2], flat.reshape(-1, 3)[:, 2]
    if not np.isin(flags, (0, 1, 2)).all():
        problems.add("a visibility other than 0, 1 or 2", where)
        return None
    area = entry.get("area", box[2] * box[3])
    if type(area) not in (int, float) or not 0 <= area < 1e300:
        problems.add("area is no positive number", where)
        return None
    crowd = entry.get("iscrowd", 0)
    if crowd not in (0, 1):
        problems.add("iscrowd is neither 0 nor 1", where)
        return None
    _doubts(entry, image, where, points, flags, box, bool(crowd), problems)
    return CocoPerson(entry["id"], image.id, points.copy(), flags.copy(), box, float(area), bool(crowd))


def _doubts(
    entry: dict[str, Any],
    image: CocoImage,
    where: str,
    points: NDArray[np.float64],
    flags: NDArray[np.float64],
    box: NDArray[np.float64],
    crowd: bool,
    problems: Problems,
) -> None:
    """What is odd about an annotation without making it useless."""
    labelled = int((flags > 0).sum())
    counted = entry.get("num_keypoints", labelled)
    if counted != labelled:
        problems.add(
            "num_keypoints is not the number of labelled joints", where, "kept", f"{counted}, {labelled}"
        )
    if labelled and not crowd and clipped(box, (image.width, image.height)) is None:
        problems.add("an empty box", where, "not used", f"{box.tolist()} in {image.width} x {image.height}")
    reach = FAR_OUTSIDE * max(image.width, image.height)
    far = (points < -reach) | (points > np.array([image.width, image.height]) + reach)
    if (far.any(axis=1) & (flags > 0)).any():
        problems.add("a labelled joint far outside the picture", where, "kept")
