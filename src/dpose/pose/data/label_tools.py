"""Projects of labelling tools as they are exported: Label Studio's JSON, and CVAT's XML for images.

    labelstudio:ROOT       an export in JSON or JSON_MIN, and the pictures anywhere below ROOT
    cvat:ROOT              annotations.xml ("CVAT for images 1.1"), and images/

CVAT's COCO layout is read as `coco:ROOT`. ROOT may be the `.zip` file that the tool has written.

**Joints** are those that are declared: by `,joints=NAME`, `,joints=NUMBER` or `,joints=A,B,C`, else by CVAT's project,
else COCO's. They are never those that happen to be labelled: a model has its joints for everybody to see, and a label
of one private picture would decide them. A joint that is labelled and not declared is not used.

**People.** Of several annotations of one Label Studio task the last is read, and the others are told. Its points belong
to the rectangle that they name as their parent, else to the smallest rectangle that they lie in, else to one person of
the picture. CVAT's are skeletons, lists of points, or single points that have a group in common, which a box may be of
too. A person without a rectangle has a box around the joints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.pose.data.label_files import LabelFile, PictureFinder, Problems, label_text, numbers, read_json, whole
from dpose.pose.data.labels import LabelledPicture, Labels, boxed_person, photographs
from dpose.pose.skeletons import COCO, Skeleton, declared_skeleton, listed_skeleton, plain_joint

NO_BOX = np.full(4, np.nan)


@dataclass
class ProjectPerson:
    """One labelled person, as the tool has it.

    Attributes:
        box: (4,), x, y, width, height in pixels; nan if there is none.
        joints: x, y in pixels and 0 not labelled, 1 hidden, 2 seen, by the joint's name.
    """

    box: NDArray[np.float64] = field(default_factory=NO_BOX.copy)
    joints: dict[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ProjectPicture:
    """A picture of a project.

    Attributes:
        name: As the tool writes it: a path, or an address.
        size: (H, W) in pixels; None if the tool does not say.
        people: The people in it.
        where: The entry, for problems.
    """

    name: str
    size: tuple[int, int] | None
    people: tuple[ProjectPerson, ...]
    where: str


@dataclass(frozen=True)
class Project:
    """A project that was read.

    Attributes:
        tool: Its name as data, such as "cvat:train".
        path: The label file.
        pictures: In the file's order.
        declared: The joints; None if neither the file nor anybody else says.
        problems: What is odd in it.
        notes: Further lines for the report.
    """

    tool: str
    path: Path
    pictures: tuple[ProjectPicture, ...]
    declared: Skeleton | None
    problems: Problems
    notes: tuple[str, ...]


LABEL_STUDIO_FILE = LabelFile(
    dict.fromkeys(("train", "val"), ("project.json",)), b"[", "give the folder or .zip file of an export as JSON"
)
CVAT_FILE = LabelFile(
    dict.fromkeys(("train", "val"), ("annotations.xml", "annotations/annotations.xml")),
    b"<",
    "give the folder or .zip file of an export as CVAT for images",
)


def read_label_studio(root: Path, split: str, annotations: str = "", pictures: bool = True, joints: str = "") -> Labels:
    """Read a Label Studio project, a picture with all its people a unit (`PoseDataset.labels`)."""
    path, note = LABEL_STUDIO_FILE.find(root, split, annotations)
    problems = Problems()
    drawn = tuple(_tasks(read_json(path, problems), path, problems))
    declared = declared_skeleton(joints, f"joints={joints}", by_name=True) if joints else None
    project = Project(f"labelstudio:{split}", path, drawn, declared, problems, (note,) if note else ())
    return _labels(project, root, pictures)


def read_cvat(root: Path, split: str, annotations: str = "", pictures: bool = True, joints: str = "") -> Labels:
    """Read a CVAT project of images, a picture with all its people a unit (`PoseDataset.labels`)."""
    path, note = CVAT_FILE.find(root, split, annotations)
    problems = Problems()
    top = _xml(path)
    if top.find("track") is not None:
        fix = "export it as CVAT for images, or as COCO key points"
        raise DposeError("labels-of-video", "is a project of a video", str(path), fix)
    if top.tag != "annotations" or top.find("image") is None:
        raise DposeError("labels-malformed", "holds no images", str(path), CVAT_FILE.get_it)
    listed = [label.findtext("name", "") for label in top.iterfind("meta//label") if label.findtext("parent")]
    drawn = tuple(_image(image, problems) for image in top.iter("image"))
    declared: Skeleton | None = None
    if joints:
        declared = declared_skeleton(joints, f"joints={joints}", by_name=True)
    elif listed:
        declared = listed_skeleton(tuple(dict.fromkeys(listed)), str(path))
    project = Project(f"cvat:{split}", path, drawn, declared, problems, (note,) if note else ())
    return _labels(project, root, pictures)


def label_studio_skeleton(root: Path, split: str, annotations: str = "", joints: str = "") -> Skeleton:
    """Return the joints of a Label Studio project, whose exports list none."""
    return declared_skeleton(joints, by_name=True) if joints else COCO


def cvat_skeleton(root: Path, split: str, annotations: str = "", joints: str = "") -> Skeleton:
    """Return the joints of a CVAT project."""
    return read_cvat(root, split, annotations, pictures=False, joints=joints).skeleton


def _labels(project: Project, root: Path, pictures: bool) -> Labels:
    """Make labels of a project's pictures."""
    skeleton = _joints(project)
    places = {name: place for place, name in enumerate(skeleton.joints)}
    finder = PictureFinder([(root / "images", ""), (root, "")])
    made: list[LabelledPicture] = []
    problems, people = project.problems, 0
    for number, picture in enumerate(project.pictures, 1):
        placed = finder.place_once(picture.name, picture.size, picture.where, problems, absent=not pictures)
        if placed is None:
            continue
        name, file, size = placed
        persons = []
        for shape in picture.people:
            rows = np.zeros((len(skeleton), 3))
            for joint, values in shape.joints.items():
                if (place := places.get(plain_joint(joint))) is None:
                    problems.add("a joint that is not declared", picture.where, "not used", joint)
                else:
                    rows[place] = values
            people += 1
            persons.append(boxed_person(people, rows, shape.box, size, where=picture.where, problems=problems))
        made.append(LabelledPicture(name, file, tuple(persons), size, number))
    if not made:
        raise problems.all_unusable(project.path, f"{len(project.pictures):,} pictures")
    return Labels(project.tool, project.path, skeleton, tuple(made), tuple(problems), project.notes)


def _joints(project: Project) -> Skeleton:
    """Return the skeleton that is declared, or else COCO's, which every label then has to be one of."""
    used = dict.fromkeys(name for picture in project.pictures for shape in picture.people for name in shape.joints)
    if not used:
        raise DposeError("labels-malformed", "labels no joints", str(project.path), "label them as key points")
    if project.declared:
        return project.declared
    if others := sorted(name for name in used if plain_joint(name) not in COCO.joints):
        said = f"declares no joints, and labels others than COCO's, such as {others[0]}"
        tool = project.tool.partition(":")[0]
        fix = f"say which the model shall have, as in {tool}:ROOT,joints=nose,left_hand,right_hand or ,joints=mpii"
        raise DposeError("joints-not-declared", said, str(project.path), f"{fix}; all who have the model see them")
    return COCO


# ------------------------------------------------------------------------------------------------ Label Studio


def _tasks(content: Any, path: Path, problems: Problems) -> Iterator[ProjectPicture]:
    """Yield the pictures of an export: a task each, in JSON or JSON_MIN."""
    if not isinstance(content, list):
        raise DposeError("labels-malformed", "should be a JSON list of tasks", str(path), LABEL_STUDIO_FILE.get_it)
    for number, task in enumerate(content, 1):
        where = f"{path.name} task {number}"
        if not isinstance(task, dict):
            problems.add("a task that is no object", where)
            continue
        data = task["data"] if isinstance(task.get("data"), dict) else task
        name = next((data[key] for key in ("image", "img", "url", "picture") if isinstance(data.get(key), str)), None)
        name = name or next((v for v in data.values() if isinstance(v, str) and "." in v), None)
        if name is None:
            problems.add("a task without a picture", where)
            continue
        done = _results(task)
        if not done:
            problems.add("a task without an annotation", where)
            continue
        for _ in done[1:]:
            problems.add("an earlier annotation of the same task", where, "not used")
        regions = list(_regions(done[-1]))
        sides = {(whole(r.get("original_height")), whole(r.get("original_width"))) for r in regions}
        height, width = sides.pop() if len(sides) == 1 else (None, None)
        if regions and not (height and width):
            problems.add("regions without the size of their picture", where)
            continue
        size = (height, width) if height and width else None
        yield ProjectPicture(name, size, tuple(_people(regions, size, where, problems)) if size else (), where)


def _results(task: Mapping[str, Any]) -> list[Any]:
    """Return the regions of each annotation that was not cancelled; JSON_MIN has one, whose regions are the task's."""
    if "annotations" not in task and "predictions" not in task:
        return [[region for values in task.values() if isinstance(values, list) for region in values]]
    listed = task.get("annotations")
    those = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [one.get("result") for one in those if not one.get("was_cancelled")]


def _regions(listed: Any) -> Iterator[dict[str, Any]]:
    """Yield the regions of an annotation, flat: a value's fields beside its own."""
    for region in listed if isinstance(listed, list) else ():
        if isinstance(region, dict):
            yield {**region, **(region["value"] if isinstance(region.get("value"), dict) else {})}


def _people(
    regions: list[dict[str, Any]], size: tuple[int, int], where: str, problems: Problems
) -> Iterator[ProjectPerson]:
    """Yield the people that the regions of one picture show."""
    height, width = size
    shapes: dict[str, ProjectPerson] = {}
    for number, region in enumerate(regions):
        box = numbers([region.get(key) for key in ("x", "y", "width", "height")], 4)
        if "rectanglelabels" in region and box is not None:
            shapes[str(region.get("id", number))] = ProjectPerson(box * [width, height, width, height] / 100)
    alone = ProjectPerson()
    for region in regions:
        names, point = region.get("keypointlabels"), numbers([region.get("x"), region.get("y")], 2)
        if not (isinstance(names, list) and names and isinstance(names[0], str)):
            continue
        if point is None:
            problems.add("a joint without a place", where, "not used", names[0])
            continue
        x, y = point * [width, height] / 100
        shape = shapes.get(str(region.get("parentID"))) or _smallest_around(shapes.values(), x, y) or alone
        if names[0] in shape.joints:
            problems.add("a joint twice", where, "not used", names[0])
            continue
        shape.joints[names[0]] = (x, y, 2.0)
    yield from (shape for shape in (*shapes.values(), alone) if shape.joints)


def _smallest_around(shapes: Iterable[ProjectPerson], x: float, y: float) -> ProjectPerson | None:
    around = [
        shape
        for shape in shapes
        if shape.box[0] <= x <= shape.box[0] + shape.box[2] and shape.box[1] <= y <= shape.box[1] + shape.box[3]
    ]
    return min(around, key=lambda shape: float(shape.box[2] * shape.box[3]), default=None)


# -------------------------------------------------------------------------------------------------------- CVAT


def _xml(path: Path) -> ElementTree.Element:
    """Parse an XML file; one that declares a document type, which could define entities, is refused."""
    text = label_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DposeError("xml-with-entities", "declares a document type", str(path), CVAT_FILE.get_it)
    try:
        return ElementTree.fromstring(text.encode())
    except ElementTree.ParseError as error:
        raise DposeError("xml-invalid", f"is no XML ({error})", str(path), CVAT_FILE.get_it) from error


def _image(image: ElementTree.Element, problems: Problems) -> ProjectPicture:
    """Read a picture of a CVAT project."""
    name = image.get("name", "")
    where = f"image {image.get('id', name)}"
    height, width = whole(image.get("height")), whole(image.get("width"))
    boxes = [(box.get("group_id"), _box(box)) for box in image.iter("box")]
    people: list[ProjectPerson] = []
    groups: dict[str, ProjectPerson] = {}
    drawn_in = Counter(shape.get("group_id") for shape in image.findall("skeleton"))
    for skeleton in image.findall("skeleton"):
        shape = ProjectPerson()
        for points in skeleton.findall("points"):
            _add(shape, points.get("label", ""), points, 0, where, problems)
        people.append(shape)
        # a box in a group with several skeletons may be that of any of them
        if (group := skeleton.get("group_id")) and drawn_in[group] == 1:
            shape.box = next((box for name, box in boxes if name == group and box is not None), shape.box)
    for points in image.findall("points"):
        if ";" in points.get("points", ""):
            shape = ProjectPerson()
            for place in range(points.get("points", "").count(";") + 1):
                _add(shape, f"joint_{place}", points, place, where, problems)
            people.append(shape)
        else:
            shape = groups.setdefault(points.get("group_id") or "", ProjectPerson())
            _add(shape, points.get("label", ""), points, 0, where, problems)
    for group, box in boxes:
        if group in groups and box is not None:
            groups[group].box = box
    drawn = tuple(shape for shape in (*people, *groups.values()) if shape.joints)
    return ProjectPicture(name, (height, width) if height and width else None, drawn, where)


def _add(
    shape: ProjectPerson, name: str, points: ElementTree.Element, place: int, where: str, problems: Problems
) -> None:
    """Add a joint of a CVAT shape; one that is outside the picture is not labelled, an occluded one is hidden."""
    if points.get("outside") == "1":
        shape.joints.setdefault(name, (0.0, 0.0, 0.0))
        return
    try:
        x, y = (float(value) for value in points.get("points", "").split(";")[place].split(","))
    except ValueError:
        problems.add("a joint without a place", where, "not used", name)
        return
    if name in shape.joints:
        problems.add("a joint twice", where, "not used", name)
        return
    shape.joints[name] = (x, y, 1.0 if points.get("occluded") == "1" else 2.0)


def _box(box: ElementTree.Element) -> NDArray[np.float64] | None:
    try:
        x0, y0, x1, y1 = (float(box.get(key, "")) for key in ("xtl", "ytl", "xbr", "ybr"))
    except ValueError:
        return None
    return np.array([x0, y0, x1 - x0, y1 - y0])


OPTIONS = ("annotations", "joints")

LABEL_STUDIO = photographs(
    read_label_studio,
    options=OPTIONS,
    own_skeleton=label_studio_skeleton,
    label_file=LABEL_STUDIO_FILE,
    oks=True,
    skeleton=COCO,
)
CVAT = photographs(
    read_cvat, options=OPTIONS, own_skeleton=cvat_skeleton, label_file=CVAT_FILE, oks=True, skeleton=COCO
)
