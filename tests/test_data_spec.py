"""One grammar for every spec of data; and one door: a dataset from outside is an entry in a registry."""

from functools import partial

import numpy as np
import pytest

import dpose
from dpose.action.data import ActionSpec
from dpose.action.data.spec import SOURCES as VIDEOS
from dpose.cli import main
from dpose.data_spec import Dataset, Spec
from dpose.errors import DposeError
from dpose.media import read_image, write_image
from dpose.pose.data import SOURCES, DataSpec, Person, Picture, PoseDataset, PoseUnits
from dpose.pose.model import PoseConfig
from dpose.pose.skeletons import COCO
from dpose.runs.build import open_units
from dpose.runs.config import RunConfig
from dpose.runs.data import in_a_folder, public_split
from dpose.runs.places import shown_settings
from dpose_lab.photos.spec import SOURCES as PHOTOS
from dpose_lab.photos.spec import PhotoSpec
from dpose_scene.films import FILM_SPLITS
from dpose_scene.looks import LOOKS
from dpose_scene.splits import SPLITS as SCENE_SPLITS


class ToySpec(Spec):
    datasets = {  # noqa: RUF012
        "files": Dataset(
            splits=("train", "val", "part"),
            default={"train": "train", "evaluate": "val"},
            options=("annotations", "every"),
            distinct=("annotations",),
            within={"part": "train"},
        ),
        "looks": Dataset(root="look", roots=("red", "blue"), default_root="red", public_roots=("blue",)),
    }
    what = "toys"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("files", ("files", "", "", ())),
        ("files:/a:b/c", ("files", "/a:b/c", "", ())),
        ("files:/a:b/c:val", ("files", "/a:b/c", "val", ())),
        (r"files:C:\data\toys", ("files", r"C:\data\toys", "", ())),
        (r"files:C:\data\toys:val", ("files", r"C:\data\toys", "val", ())),
        ("files:C:/data/toys:val,every=2", ("files", "C:/data/toys", "val", (("every", "2"),))),
        ("files:/a,b:val,annotations=x,y.json", ("files", "/a,b", "val", (("annotations", "x,y.json"),))),
        ("files:/a,annotations=a=b.json,every=3", ("files", "/a", "", (("annotations", "a=b.json"), ("every", "3")))),
        ("looks:blue", ("looks", "blue", "", ())),
    ],
)
def test_specs_are_parsed_and_written_back(text, parts):
    spec = ToySpec.parse(text)
    assert (spec.name, spec.root, spec.split, spec.options) == parts
    assert str(spec) == text
    assert ToySpec.parse(str(spec)) == spec


def test_what_is_not_given_has_its_default():
    assert str(ToySpec.parse("looks")) == "looks:red"
    assert ToySpec.parse("files:/a").for_purpose("evaluate").split == "val"
    assert str(ToySpec.parse("files:/a,every=")) == "files:/a"
    assert ToySpec.parse("files:/a").option("every") == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file:/a", "no toys called 'file'; did you mean files?; known are files, looks"),
        (r"C:\data\toys", "no toys called 'C'; known are files, looks"),
        ("files:/a,evry=2", "files takes no option evry; did you mean every?"),
        ("files:/a,stride=2", "files takes no option stride; its options: annotations, every"),
        ("looks:blue,every=2", "looks takes no option every"),
        ("files", "files needs a folder; write files:ROOT[:SPLIT]"),
        ("files:/no/such:vall", "/no/such:vall: no such folder; or the split is misspelt: did you mean val?"),
        ("files:/tmp:other", "/tmp:other: no such folder; or the split is misspelt: splits are train, val, part"),
        ("files:/no/such", "/no/such: no such folder"),
        ("looks:bleu", "no look called 'bleu'; did you mean blue?; looks are red, blue"),
    ],
)
def test_every_mistake_is_told_with_what_is_near(text, words):
    with pytest.raises(DposeError) as told:
        ToySpec.parse(text).located("train")
    assert words in told.value.line()


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("files:/d:train", "files:/d/../d:train", True),
        ("files:/d:part", "files:/d:train", True),
        ("files:/d:part", "files:/d:val", False),
        ("files:/d:train,every=2", "files:/d:train", True),  # an option is no other data unless it says so
        ("files:/d:train,annotations=a", "files:/d:train,annotations=b", False),
        ("looks:red", "looks:blue", False),
    ],
)
def test_which_specs_share_units(one, other, shared):
    specs = ToySpec.parse(one), ToySpec.parse(other)
    assert specs[0].same_units(specs[1]) == specs[1].same_units(specs[0]) == shared


def test_a_spec_for_readers_elsewhere_holds_no_folder():
    shown = ToySpec.parse("files:/home/ann/toys:val,annotations=/home/ann/labels.json").shown
    assert shown == "files:toys:val,annotations=labels.json"


def test_looks_and_splits_that_are_written_down_are_the_scenes_own():
    for source in (SOURCES["synthetic"], PHOTOS["synthetic"]):
        assert (source.roots, source.splits) == (tuple(LOOKS), tuple(SCENE_SPLITS))
    assert VIDEOS["synthetic-clips"].roots == tuple(LOOKS)
    assert VIDEOS["synthetic-clips"].splits == tuple(FILM_SPLITS)


@pytest.mark.parametrize("kind", [DataSpec, ActionSpec, PhotoSpec])
def test_what_datasets_say_of_themselves_holds_together(kind):
    for name, source in kind.datasets.items():
        assert set(source.default.values()) <= set(source.splits), name
        assert set(source.within) | set(source.within.values()) | set(source.conditions) <= set(source.splits)
        assert set(source.public_roots) <= set(source.roots)
        assert set(source.distinct) <= set(source.options)
        assert not source.default_root or source.default_root in source.roots


# a dataset from outside: a reader, and an entry


def open_dots(root, split, *, input_size, augment, unit, joint="l_knee"):
    """Pictures `SPLIT-*.png`, in each a person whose one labelled joint is in the middle."""

    def read(path):
        image = read_image(path)
        height, width = image.shape[:2]
        keypoints, visible = np.zeros((17, 2), np.float32), np.zeros(17, bool)
        keypoints[COCO.joints.index(joint)] = (width / 2, height / 2)
        visible[COCO.joints.index(joint)] = True
        return image, (Person(keypoints, visible, np.float32([0, 0, width, height])),)

    pictures = [Picture(p.stem, 1, partial(read, p)) for p in sorted(root.glob(f"{split}-*.png"))]
    return PoseUnits(pictures, input_size=input_size, augment=augment, unit=unit, skeleton=COCO)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    entry = PoseDataset(
        splits=("train", "val", "public"),
        default={"train": "train", "evaluate": "val"},
        options=("joint",),
        open=open_dots,
        skeleton=COCO,
    )
    monkeypatch.setitem(SOURCES, "toy", entry)
    folder = tmp_path / "toys"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for split, count in {"train": 5, "val": 3, "public": 2}.items():
        for k in range(count):
            write_image(folder / f"{split}-{k}.png", rng.integers(0, 255, (48, 36, 3), np.uint8))
    return folder


class TestADatasetFromOutside:
    def test_it_opens_by_its_spec(self, toy):
        units = dpose.open_data(f"toy:{toy}:val,joint=l_hip")
        assert [units.unit_id(k) for k in range(len(units))] == ["val-0", "val-1", "val-2"]
        (view,) = units.load(0, np.random.default_rng(0))
        assert view.image.shape == (256, 192, 3)
        assert np.flatnonzero(view.target["labelled"]).tolist() == [COCO.joints.index("l_hip")]

    def test_it_is_checked_by_the_command(self, toy, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(["data", "check", f"toy:{toy}"]) == 0
        said = capsys.readouterr().out
        assert "5 pictures decoded, 5 people" in said
        assert "check-toy.png" in said

    def test_its_mistakes_are_told_like_those_of_any(self, toy, capsys):
        assert main(["data", "check", f"toy:{toy},joints=l_knee"]) == 2
        assert "toy takes no option joints; did you mean joint?" in capsys.readouterr().err
        assert main(["data", "check", "toi:x"]) == 2
        assert "did you mean toy?" in capsys.readouterr().err

    def test_a_run_learns_from_it(self, toy):
        config = RunConfig.from_dict(
            {
                "data": {"private": f"toy:{toy},joint=l_knee", "limit": 4},
                "plan": {"method": "dp-sgd", "epsilon": 1.0, "delta": 1e-3},
            }
        )
        units = open_units(config, PoseConfig("nano", input_size=(64, 48)))
        assert (len(units), units.skeleton) == (4, COCO)
        assert str(public_split(config)) == f"toy:{toy}:public,joint=l_knee"
        assert in_a_folder(config.data.private)
        assert shown_settings(config)["data"]["private"] == "toy:toys,joint=l_knee"
