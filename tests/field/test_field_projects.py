"""Projects of labelling tools, from a folder or straight from the zip file that the tool has written."""

import json
import stat
import zipfile

import numpy as np
import pytest

from dpose.cli import main
from dpose.fetched import unpacked_folder
from dpose.media.images import write_image
from dpose.pose.data.spec import DataSpec, open_data, open_labels
from dpose.pose.skeletons import COCO, MPII
from labelled import HEIGHT, WIDTH, coco, pictures
from refusals import refused

NAMES = ("left_wrist", "nose", "right_wrist")
PLACES = {"nose": (40.0, 30.0), "left_wrist": (60.0, 50.0), "right_wrist": (20.0, 55.0)}


def percent(x, y):
    return {"x": 100 * x / WIDTH, "y": 100 * y / HEIGHT}


def region(kind, name, own, parent=None, **value):
    flat = {"type": kind, "id": own, "original_width": WIDTH, "original_height": HEIGHT, "image_rotation": 0}
    return {**flat, **({"parentID": parent} if parent else {}), "value": {**value, kind: [name]}}


def rectangle(own, x, y, w, h):
    size = {"width": 100 * w / WIDTH, "height": 100 * h / HEIGHT}
    return region("rectanglelabels", "person", own, **percent(x, y), **size)


def points(places=PLACES, parent=None, shift=0.0):
    return [
        region("keypointlabels", name, f"{parent}-{name}-{shift}", parent, **percent(x + shift, y), width=0.5)
        for name, (x, y) in places.items()
    ]


def studio(root, *results, names=("1.png", "2.png"), change=lambda tasks: tasks):
    pictures(root / "images", names)
    tasks = [
        {
            "id": k,
            "data": {"image": f"/data/local-files/?d=images/{name}"},
            "annotations": [{"was_cancelled": True, "result": []}, {"result": result}],
        }
        for k, (name, result) in enumerate(zip(names, results, strict=False), 1)
    ]
    (root / "export.json").write_text(json.dumps(change(tasks)))
    return f"labelstudio:{root}"


def test_label_studio_in_per_cent(tmp_path):
    spec = studio(tmp_path, [rectangle("r", 10, 20, 80, 60), *points(parent="r")], points())
    spec += ",joints=left_wrist,nose,right_wrist"
    labels = open_labels(spec, purpose="train")
    assert labels.skeleton.joints == ("l_wrist", "nose", "r_wrist")
    assert labels.skeleton.flip_pairs == ((0, 2),)
    first, second = labels.people
    assert first.box == pytest.approx([10, 20, 80, 60])
    assert first.keypoints == pytest.approx(np.array([PLACES[name] for name in NAMES]))
    assert np.isfinite(second.box).all()
    assert (len(open_data(spec)), labels.problems) == (2, labels.problems)
    assert DataSpec.parse(spec).for_purpose("train").skeleton == labels.skeleton


def test_points_belong_to_their_parent_or_to_the_smallest_rectangle_around_them(tmp_path):
    large, small = rectangle("large", 0, 0, 150, 110), rectangle("small", 90, 20, 45, 60)
    labels = open_labels(
        studio(tmp_path, [large, small, *points(parent="large"), *points(shift=80.0)], []), purpose="train"
    )
    assert [round(float(one.keypoints[0, 0])) for one in labels.people] == [40, 120]
    assert [one.labelled for one in labels.people] == [3, 2]  # two of the three lie in the small one
    assert [problem.kind for problem in labels.problems] == ["a joint twice"]
    assert labels.skeleton == COCO  # nobody declares any


def test_the_last_annotation_that_was_not_cancelled_counts(tmp_path):
    def change(tasks):
        tasks[0]["annotations"].append({"was_cancelled": True, "result": points({"nose": (1.0, 1.0)})})
        return tasks

    (someone,) = open_labels(studio(tmp_path, points(), [], change=change), purpose="train").people
    assert someone.labelled == 3


def test_an_earlier_annotation_of_a_task_is_told(tmp_path):
    """Two people may have labelled one picture: the last is read, and the report says that there was another."""

    def change(tasks):
        tasks[0]["annotations"].append({"result": points({"nose": (40.0, 30.0), "left_eye": (50.0, 35.0)})})
        return tasks

    labels = open_labels(studio(tmp_path, points(), points(), change=change), purpose="train")
    assert [one.labelled for one in labels.people] == [2, 3]
    (problem,) = [problem for problem in labels.problems if problem.action != "kept"]
    assert str(problem) == "export.json task 1: an earlier annotation of the same task; not used"


def test_a_task_without_an_annotation_is_told_as_that(tmp_path):
    """A model's predictions are no labels, neither beside nor in place of an annotation."""

    def change(tasks):
        tasks[1]["annotations"] = []
        tasks[1]["predictions"] = [{"result": points()}]
        tasks[2]["annotations"] = [{"was_cancelled": True, "result": points()}]
        tasks[2]["predictions"] = []
        tasks[3] = {"data": tasks[3]["data"], "predictions": [{"result": points()}]}
        return tasks

    names = ("1.png", "2.png", "3.png", "4.png")
    labels = open_labels(studio(tmp_path, points(), [], [], [], names=names, change=change), purpose="train")
    skipped = [problem for problem in labels.problems if problem.action == "skipped"]
    assert [problem.kind for problem in skipped] == ["a task without an annotation"] * 3
    assert [problem.where for problem in skipped] == [f"export.json task {k}" for k in (2, 3, 4)]
    assert [picture.name for picture in labels.pictures] == ["images/1.png"]


def test_the_short_form_of_json(tmp_path):
    """JSON_MIN: a task is flat, and its regions have no "value"."""

    def change(tasks):
        for task in tasks:
            kept = [{**r, **r["value"]} for r in task.pop("annotations")[1]["result"]]
            task.update(image=task.pop("data")["image"], kp=kept)
        return tasks

    labels = open_labels(studio(tmp_path, points(), points(), change=change), purpose="train")
    assert [one.labelled for one in labels.people] == [3, 3]


@pytest.mark.parametrize("declared", ["mpii", ",".join(reversed(MPII.joints))])
def test_joints_that_are_a_known_skeletons_are_that_skeleton(tmp_path, declared):
    places = {name: (20.0 + k, 30.0 + k) for k, name in enumerate(reversed(MPII.joints))}
    labels = open_labels(f"{studio(tmp_path, points(places), [])},joints={declared}", purpose="train")
    assert labels.skeleton == MPII
    assert labels.people[0].keypoints[0] == pytest.approx(places[MPII.joints[0]])


def cvat(root, body, meta=None, names=("1.png", "2.png")):
    pictures(root / "images", names)
    listed = "".join(f"<label><name>{n}</name><type>points</type><parent>person</parent></label>" for n in meta or ())
    images = "".join(
        f'<image id="{k}" name="{name}" width="{WIDTH}" height="{HEIGHT}">{inside}</image>'
        for k, (name, inside) in enumerate(zip(names, body, strict=False))
    )
    text = f"<annotations><version>1.1</version><meta><job><labels>{listed}</labels></job></meta>{images}</annotations>"
    (root / "annotations.xml").write_text(text)
    return f"cvat:{root}"


def skeleton(places=PLACES, **more):
    inside = "".join(
        f'<points label="{name}" source="manual" outside="0" occluded="0" points="{x:.2f},{y:.2f}"></points>'
        for name, (x, y) in places.items()
    )
    return f'<skeleton label="person" z_order="0">{inside}</skeleton>'


def test_skeletons_of_cvat(tmp_path):
    hidden = skeleton().replace('occluded="0"', 'occluded="1"', 1).replace('outside="0"', 'outside="1"', 2)
    spec = cvat(tmp_path, (skeleton() + hidden, skeleton()), meta=("right_wrist", "left_wrist", "nose"))
    labels = open_labels(spec, purpose="train")
    assert labels.skeleton.joints == ("r_wrist", "l_wrist", "nose")
    whole, partly, _ = labels.people
    assert whole.keypoints == pytest.approx(np.array([PLACES["right_wrist"], PLACES["left_wrist"], PLACES["nose"]]))
    assert (whole.labelled, partly.labelled) == (3, 1)
    assert len(open_data(spec)) == 2
    assert DataSpec.parse(spec).for_purpose("train").skeleton == labels.skeleton


def test_points_of_cvat_in_a_list_and_in_groups(tmp_path):
    rows = ";".join(f"{x},{y}" for x, y in PLACES.values())
    listed = cvat(tmp_path / "a", (f'<points label="person" points="{rows}"/>', ""))
    with refused("joints-not-declared", where="joint_0"):
        open_labels(listed, purpose="train")
    labels = open_labels(f"{listed},joints=3", purpose="train")
    assert labels.skeleton.joints == ("joint_0", "joint_1", "joint_2")
    assert labels.people[0].keypoints == pytest.approx(np.array(list(PLACES.values())))
    single = "".join(f'<points label="{n}" group_id="7" points="{x},{y}"/>' for n, (x, y) in PLACES.items())
    box = '<box label="person" group_id="7" xtl="10" ytl="20" xbr="90" ybr="80"/>'
    (someone,) = open_labels(cvat(tmp_path / "b", (single + box, "")), purpose="train").people
    assert (someone.labelled, someone.box.tolist()) == (3, [10, 20, 80, 60])


def test_the_box_of_a_skeletons_group_is_its_own(tmp_path):
    """Two skeletons of one group have no box of their own: it may be either's."""
    box = '<box label="person" group_id="{}" xtl="{}" ytl="20" xbr="90" ybr="80"/>'
    one, other = (skeleton().replace("<skeleton", f'<skeleton group_id="{k}"') for k in (1, 2))
    body = one + other + box.format(1, 10) + box.format(2, 15) + box.format(3, 5)
    labels = open_labels(cvat(tmp_path / "a", (body, one + one + box.format(1, 10))), purpose="train")
    first, second, *unsure = labels.people
    assert (first.box.tolist(), second.box.tolist()) == ([10, 20, 80, 60], [15, 20, 75, 60])
    assert [len(unsure), *(round(float(someone.box[0])) for someone in unsure)] == [2, 16, 16]


def test_no_picture_decides_the_joints_of_the_others(tmp_path):
    """A model has its joints for everybody to see, and a score adds up over them: they are declared, or COCO's."""
    extra = {**PLACES, "amputation_left_knee": (30.0, 40.0)}
    rows = ";".join(f"{x},{y}" for x, y in PLACES.values())
    longer = f'<points label="person" points="{rows};9,9;8,8"/>'

    def of_coco(root, joints):
        def change(content):
            content["annotations"][0]["keypoints"] = [5.0, 6.0, 2] * joints
            content["annotations"][2]["keypoints"] = [7.0, 8.0, 2] * 3

        return coco(root, change)

    both = {
        "labelstudio": [studio(tmp_path / f"l{k}", points(PLACES), points(p)) for k, p in enumerate((PLACES, extra))],
        "cvat skeletons": [
            cvat(tmp_path / f"s{k}", (skeleton(), skeleton(p)), meta=tuple(PLACES))
            for k, p in enumerate((PLACES, extra))
        ],
        "cvat lists": [
            cvat(tmp_path / f"c{k}", (f'<points label="person" points="{rows}"/>', one))
            for k, one in enumerate((f'<points label="person" points="{rows}"/>', longer))
        ],
        "coco": [of_coco(tmp_path / f"o{k}", joints) for k, joints in enumerate((3, 5))],
    }
    declared = {"labelstudio": ",joints=left_wrist,nose,right_wrist", "cvat lists": ",joints=3", "coco": ",joints=3"}
    for name, specs in both.items():
        one, other = (open_labels(spec + declared.get(name, ""), purpose="train") for spec in specs)
        assert one.skeleton == other.skeleton, name
        assert len(one.skeleton) == 3, name
        same = 1 if name == "coco" else 0  # the picture that is the same in both
        mine, its = (labels.pictures[same].people[0] for labels in (one, other))
        assert np.array_equal(mine.keypoints, its.keypoints), name
        assert np.array_equal(mine.flags, its.flags), name
    with refused("joints-not-declared", where="amputation_left_knee"):
        open_labels(both["labelstudio"][1], purpose="train")
    problems = open_labels(both["labelstudio"][1] + declared["labelstudio"], purpose="train").problems
    assert [p.detail for p in problems if p.kind == "a joint that is not declared"] == ["amputation_left_knee"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<annotations><track/></annotations>", "labels-of-video"),
        ("<annotations/>", "labels-malformed"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotations>&b;</annotations>', "xml-with-entities"),
        ("<annotations>", "xml-invalid"),
    ],
)
def test_xml_that_is_no_project_of_images(tmp_path, text, code):
    (tmp_path / "annotations.xml").write_text(text)
    with refused(code):
        open_data(f"cvat:{tmp_path}")


def test_the_coco_layout_of_cvat(tmp_path):
    coco(tmp_path)
    (tmp_path / "annotations").mkdir()
    (tmp_path / "labels.json").rename(tmp_path / "annotations" / "person_keypoints_default.json")
    (tmp_path / "images").rename(tmp_path / "default")
    (tmp_path / "images").mkdir()
    (tmp_path / "default").rename(tmp_path / "images" / "default")
    assert len(open_data(f"coco:{tmp_path}")) == 2


def test_the_label_file_of_another_split_is_not_taken(tmp_path):
    coco(tmp_path)
    (tmp_path / "annotations").mkdir()
    (tmp_path / "labels.json").rename(tmp_path / "annotations" / "person_keypoints_train2017.json")
    with refused("labels-missing"):
        open_data(f"coco:{tmp_path}:val")
    with refused("labels-missing", where="it holds the split train: say NAME:ROOT:train"):
        open_data(f"coco:{tmp_path}:val")


def test_the_split_that_is_there_is_named(tmp_path):
    (tmp_path / "annot").mkdir()
    (tmp_path / "annot" / "valid.json").write_text("[]")
    with refused("labels-missing", where="holds no annot/train.json; it holds the split val: say NAME:ROOT:val"):
        open_data(f"mpii:{tmp_path}")


# ------------------------------------------------------------------------------------------------------ zip files


def zipped(folder, file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                out.write(path, path.relative_to(folder))
    return file


def test_data_are_read_from_a_zip_file_and_unpacked_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = {
        "cvat": cvat(tmp_path / "c", (skeleton(), skeleton())),
        "labelstudio": studio(tmp_path / "l", points(), points()),
        "coco": coco(tmp_path / "o"),
    }
    for name, spec in made.items():
        file = zipped(tmp_path / spec.rpartition("/")[2], tmp_path / f"{name}.zip")
        assert len(open_data(f"{name}:{file}")) == 2
        assert len(open_data(f"{name}:{file}")) == 2
    folders = list(unpacked_folder().iterdir())
    assert len(folders) == 3
    for path in unpacked_folder().rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert main(["data", "cache"]) == 0
    assert "files unpacked" in capsys.readouterr().out
    assert main(["data", "cache", "--clear"]) == 0
    assert not unpacked_folder().exists()


def entry(name, mode=0):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    "odd",
    [entry("../out.txt"), entry("/etc/out.txt"), entry("a\\..\\..\\out.txt"), entry("link", stat.S_IFLNK | 0o777)],
    ids=["climbs", "absolute", "backslashes", "a link"],
)
def test_nothing_is_unpacked_outside(tmp_path, monkeypatch, odd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as out:
        out.writestr("labels.json", "{}")
        out.writestr(odd, "/etc/hostname")
    with refused("zip-entry-unusable"):
        open_data(f"coco:{tmp_path / 'a.zip'}")
    assert [path.name for path in unpacked_folder().iterdir()] == []
    assert not list(tmp_path.rglob("out.txt"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no more", b"no zip file"])
def test_what_is_no_zip_file_is_refused(tmp_path, monkeypatch, content):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.zip").write_bytes(content)
    with refused("zip-invalid"):
        open_data(f"coco:{tmp_path / 'a.zip'}")


def test_a_longer_member_than_declared_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("labels.json", "x" * 50_000)
    data = bytearray(file.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(mark) + offset
        data[at : at + 4] = (100).to_bytes(4, "little")
    file.write_bytes(data)
    with refused("zip-invalid"):
        open_data(f"coco:{file}")


def test_a_picture_of_unknown_size_that_cannot_be_read_costs_itself_alone(tmp_path):
    """CVAT's picture without width and height, whose file is cut short."""
    (tmp_path / "images").mkdir()
    write_image(tmp_path / "images" / "a.png", np.zeros((40, 60, 3), np.uint8))
    (tmp_path / "images" / "b.png").write_bytes((tmp_path / "images" / "a.png").read_bytes()[:30])
    points = '<points label="nose" points="5,6"/>'
    entries = [f'<image id="{n}" name="{name}.png">{points}</image>' for n, name in enumerate("aba")]
    (tmp_path / "annotations.xml").write_text(f"<annotations>{''.join(entries)}</annotations>")
    labels = open_labels(DataSpec.parse(f"cvat:{tmp_path}"))
    assert [picture.size for picture in labels.pictures] == [(40, 60)]
    assert {"no width and height", "two ids for one picture"} <= {problem.kind for problem in labels.problems}
