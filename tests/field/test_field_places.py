"""Where files lie: names with the folders of another machine, as tools for labelling write them."""

import shutil
import zipfile

import pytest

from dpose.pose.data.label_files import PictureFinder
from dpose.pose.data.spec import open_data, open_labels
from labelled import coco, yolo
from refusals import command_refused, refused

WRITTEN = [
    "images\\{}",
    ".\\images\\{}",
    "C:\\Users\\me\\set\\images\\{}",
    "\\\\server\\share\\{}",
    "/content/drive/set/{}",
    "/home/me/images/{}",
    "../set/images/{}",
    "./images/{}",
    "images//{}",
    "/data/local-files/?d={}",
    "/data/local-files/?d=images/{}",
    "/data/local-files/?d=images%5C{}",
    "http://localhost:8080/data/local-files/?d=set/{}",
    "https://example.org/set/{}?token=1",
    "file:///home/me/set/{}",
    "s3://bucket/set/images/{}",
]


@pytest.mark.parametrize("written", WRITTEN)
def test_pictures_are_found_by_the_end_of_their_names(tmp_path, written):
    def change(content):
        for image in content["images"]:
            image["file_name"] = written.format(image["file_name"])

    units = open_data(coco(tmp_path, change))
    assert (len(units), units.problems) == (2, ())
    assert [units.pictures[k].path.name for k in range(2)] == ["1.png", "2.png"]
    assert all("me" not in picture.name and ":" not in picture.name for picture in units.pictures)


def test_of_two_files_of_one_name_the_folder_decides(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.png").touch()
    finder = PictureFinder([(tmp_path, "")])
    assert finder.find("/elsewhere/b/1.png") == tmp_path / "b" / "1.png"
    assert finder.find("/elsewhere/c/1.png") is None


def test_two_names_that_lead_to_one_file_are_said(tmp_path):
    def change(content):
        for image, folder in zip(content["images"], "ab", strict=True):
            image["file_name"] = f"/set/{folder}/1.png"

    labels = open_labels(coco(tmp_path, change), purpose="train")
    assert len(labels.pictures) == 1
    assert "two ids for one picture" in {problem.kind for problem in labels.problems}


def test_the_missing_file_is_named(tmp_path):
    def change(content):
        content["images"][1]["file_name"] = "D:\\photos\\gone.png"

    (problem, _) = open_labels(coco(tmp_path, change), purpose="train").problems
    assert (problem.kind, problem.detail) == ("the picture is missing", "D:\\photos\\gone.png")


@pytest.mark.parametrize(
    "train",
    ["images\\train", ".\\images\\train", "C:\\set\\images\\train", "/home/me/set/images/train", "../images/train"],
)
def test_a_folder_of_pictures_is_found(tmp_path, train):
    assert len(open_data(yolo(tmp_path, train=train))) == 2
    assert len(open_data(yolo(tmp_path / "elsewhere", path="/home/me/set", train=train))) == 2


@pytest.mark.parametrize("form", ["/home/me/set/images/train/{}", "images\\train\\{}", "./images/train/{}", "{}"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_list_of_pictures_is_found(tmp_path, form, encoding):
    spec = yolo(tmp_path, train="train.txt")
    folder = tmp_path / ("images/train" if form == "{}" else "")
    (folder / "train.txt").write_text("".join(form.format(n) + "\n" for n in ("a.png", "b.png")), encoding=encoding)
    units = open_data(spec if folder == tmp_path else yolo(tmp_path, train="images/train/train.txt"))
    assert (len(units), units.problems) == (2, ())


@pytest.mark.parametrize("name", ["coco8-pose.yaml", "dataset.yml"])
def test_the_only_yaml_of_a_folder_may_have_another_name(tmp_path, name):
    assert len(open_data(yolo(tmp_path, name=name))) == 2


def test_of_several_none_is_guessed(tmp_path):
    yolo(tmp_path, name="one.yaml")
    with refused("labels-ambiguous", where=("one.yaml, two.yaml",)):
        open_data(yolo(tmp_path, name="two.yaml"))
    assert len(open_data(yolo(tmp_path, name="two.yaml") + ",annotations=two.yaml")) == 2


def test_names_in_capitals_as_other_systems_take_them(tmp_path):
    def change(content):
        for image in content["images"]:
            image["file_name"] = image["file_name"].upper()

    spec = coco(tmp_path / "c", change)
    assert len(open_labels(spec, purpose="train").pictures) == 2
    folder = next((tmp_path / "c").rglob("*.png")).parent
    first = sorted(folder.iterdir())[0]
    shutil.copy(first, folder / f"{first.stem}.Png")  # now it may be either of two
    assert len(open_labels(spec, purpose="train").pictures) == 1


@pytest.mark.parametrize("junk", [[], ["__MACOSX/._set", "set/.DS_Store"]])
def test_a_zip_file_of_a_whole_folder(tmp_path, junk):
    spec = coco(tmp_path / "set")
    packed = tmp_path / "set.zip"
    with zipfile.ZipFile(packed, "w") as out:
        for file in sorted((tmp_path / "set").rglob("*")):
            if file.is_file():
                out.write(file, file.relative_to(tmp_path))
        for name in junk:
            out.writestr(name, b"junk")
    assert len(open_labels(f"coco:{packed}", purpose="train").people) == len(open_labels(spec, purpose="train").people)


def test_a_check_of_pictures_that_are_all_unusable_ends_with_2(tmp_path, capsys):
    def change(content):
        for image in content["images"]:
            image["width"], image["height"] = image["height"], image["width"]

    spec = coco(tmp_path / "c", change)
    command_refused(capsys, ["data", "check", str(spec), "--out", str(tmp_path / "s.png")], "pictures-all-unreadable")
