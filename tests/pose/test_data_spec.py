import numpy as np
import pytest

from dpose.pose.data import spec as module
from dpose.pose.data.augment import Augment
from dpose.pose.data.spec import DataSpec, open_data
from dpose.pose.data.units import PoseUnits
from refusals import refused

SIZE = (64, 48)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("lspet:/data/lspet:private", ("lspet", "/data/lspet", "private")),
        ("lspet:/data/lspet", ("lspet", "/data/lspet", "")),
        ("lspet:/odd:name/lspet", ("lspet", "/odd:name/lspet", "")),
        ("lspet:/odd:name/lspet:public", ("lspet", "/odd:name/lspet", "public")),
        ("lspet:public", ("lspet", "", "public")),
        ("lspet:./public", ("lspet", "./public", "")),
        ("lspet:/data:val", ("lspet", "/data:val", "")),  # LSPET has no split of that name
        ("lspet", ("lspet", "", "")),
        ("synthetic:ward:test", ("synthetic", "ward", "test")),
        ("synthetic:studio", ("synthetic", "studio", "")),
    ],
)
def test_specs_are_parsed_and_written_back(text, parts):
    spec = DataSpec.parse(text)
    assert (spec.name, spec.root, spec.split) == parts
    assert str(spec) == text


@pytest.mark.parametrize(
    ("text", "train", "evaluate"),
    [
        ("lspet:/d", "private", "validation"),
        ("synthetic:ward", "train", "val"),
        ("synthetic:ward:test", "test", "test"),
    ],
)
def test_the_purpose_fills_in_the_split(text, train, evaluate):
    spec = DataSpec.parse(text)
    assert (spec.for_purpose("train").split, spec.for_purpose("evaluate").split) == (train, evaluate)


@pytest.mark.parametrize("text", ["mpi:/data", "", ":", "LSPET:/data", "/data/lspet"])
def test_unknown_names_list_the_known(text):
    with refused("data-unknown"):
        open_data(text, purpose="train", input_size=SIZE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/data/lspet:private", "say lspet:/data/lspet:private, or whichever of coco, cvat,"),
        ("~/ward", "say coco:~/ward, or whichever"),
        ("./ward,annotations=a.json", "say coco:./ward,annotations=a.json, or"),
        ("ward", "say coco:ward, or"),
    ],
)
def test_a_path_alone_is_told_to_say_what_it_is(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward").mkdir()
    with refused("data-unknown", where=("does not say what kind of data it is", said)) as caught:
        DataSpec.parse(text)
    assert caught.value.where == text
    with refused("data-unknown", where="no dataset called 'wards'; known are coco"):
        DataSpec.parse("wards")


@pytest.mark.parametrize("text", ["lspet", "lspet:private", "synthetic", "synthetic:", "synthetic:test"])
def test_a_missing_root_says_how_to_write_it(text):
    with refused("data-root-missing"):
        open_data(text, purpose="train", input_size=SIZE)


def test_a_misspelt_look_or_split_lists_both():
    with refused("data-root-unknown", where="'wards'; did you mean ward?; looks are studio, ward; splits are"):
        open_data("synthetic:wards", purpose="train", input_size=SIZE)
    with refused("split-unknown", where="ward: no split called 'tset'; did you mean test?; splits are train, val"):
        open_data("synthetic:ward:tset", purpose="train", input_size=SIZE)


def test_a_misspelt_folder_is_named(tmp_path):
    with refused("folder-missing", where="lspet:privat"):
        open_data(f"lspet:{tmp_path}/lspet:privat", purpose="train", input_size=SIZE)


def test_the_home_folder_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "lspet").mkdir()
    with refused("file-missing", where="lspet/joints.mat"):
        open_data("lspet:~/lspet", purpose="train", input_size=SIZE)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("lspet:/d:choosing-test", "lspet:/d:private", True),
        ("lspet:/d:choosing-train", "lspet:/d/../d:private", True),
        ("lspet:/d:choosing-train", "lspet:/d:choosing-train", True),
        ("lspet:/d:choosing-train", "lspet:/d:choosing-test", False),
        ("lspet:/d:choosing-test", "lspet:/d:validation", False),
        ("lspet:/d:choosing-test", "lspet:/d:public", False),
        ("lspet:/d:choosing-test", "lspet:/e:private", False),
        ("synthetic:ward:val", "synthetic:ward:train", False),
    ],
)
def test_a_part_shares_its_units_with_the_whole(one, other, shared):
    specs = DataSpec.parse(one), DataSpec.parse(other)
    assert specs[0].same_units(specs[1]) == specs[1].same_units(specs[0]) == shared


def test_what_settings_are_chosen_on_is_not_public_and_not_what_benchmarks_report():
    for name, source in module.SOURCES.items():
        if source.choosing:
            train, test = (DataSpec(name, "x", split) for split in source.choosing)
            assert set(source.choosing) <= set(source.splits)
            assert not train.same_units(test)
            assert not train.public
            assert not test.public
            reported = "test" if "test" in source.splits else source.default["evaluate"]
            assert not test.same_units(DataSpec(name, "x", reported))


def test_arguments_reach_the_units():
    units = open_data(
        "synthetic:ward", purpose="train", input_size=SIZE, augment=Augment.private(), unit="crop", limit=5
    )
    assert len(units) == 5
    assert units.augment == Augment.private()
    assert units.input_size == SIZE
    assert units.unit_id(0).endswith("#0")
    assert "5 of 8,000" in units.report[-1]


@pytest.mark.parametrize("size", [128, (128,), (64, 48, 3), (64.0, 48), (0, 48), (-64, 48), (True, 48), "64x48", None])
def test_a_size_that_is_none_is_refused(size):
    with refused("input-size-malformed", where=("input_size", size)):
        open_data("synthetic:ward", input_size=size)


def test_a_size_may_come_from_anywhere():
    for size in ([64, 48], np.array([64, 48])):
        assert open_data("synthetic:ward", input_size=size, limit=1).input_size == SIZE


@pytest.mark.parametrize(("unit", "said"), [("imagee", "did you mean image?"), ("foo", "image, crop"), (3, "crop")])
def test_an_unknown_unit_is_refused(unit, said):
    with refused("unit-unsupported", where=(unit, said)):
        open_data("synthetic:ward", input_size=SIZE, unit=unit)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_leaves_nothing_is_refused(limit):
    with refused("limit-not-positive"):
        open_data("synthetic:ward", purpose="train", input_size=SIZE, limit=limit)


def test_an_empty_split_is_refused_with_its_reasons(monkeypatch, tmp_path):
    def nobody(root, split, *, input_size, augment, unit):
        units = PoseUnits([], input_size=input_size)
        units.report = ("3 left out: people without a visible joint",)
        return units

    source = module.PoseDataset(splits=("private",), default={"train": "private"}, open=nobody)
    monkeypatch.setitem(module.SOURCES, "lspet", source)
    with refused("people-missing"):
        open_data(f"lspet:{tmp_path}", purpose="train", input_size=SIZE)


@pytest.mark.slow
def test_real_data_opens_by_its_spec(lspet):
    units = open_data(f"lspet:{lspet}", purpose="train", input_size=(256, 192), limit=20)
    assert len(units) == 20
    assert units.load(3, np.random.default_rng(0))[0].image.shape == (256, 192, 3)
