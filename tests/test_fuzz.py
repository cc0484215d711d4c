"""Files that once broke their reader (found by `benchmarks/fuzz.py`) end in one line."""

import contextlib
import io
import json
import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from rich.console import Console

from archives import npy, rebuilt
from dpose.account import charges, conclude
from dpose.account import store as high_water
from dpose.account.charges import groups
from dpose.account.store import close_connections, opened
from dpose.action.model import load_action_model
from dpose.cli import main
from dpose.errors import LONGEST, DposeError
from dpose.media.images import encode_image
from dpose.pose.boxes import read_detections
from dpose.pose.data.coco import read_coco
from dpose.pose.data.matlab import read_mat
from dpose.pose.data.mpii import read_mpii
from dpose.pose.data.yolo import read_yolo
from dpose.pose.evaluate import score_results
from dpose.pose.folder import load_model
from dpose.pose.model import PoseConfig
from dpose.privacy.entries import GENESIS, Entry, EntryType
from dpose.privacy.ledger import read_ledger
from dpose.privacy.sections import AuditResult, PlantedCanaries, PublicInput
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.archive import pack_archive, unpack
from dpose.release.jobs import known_names
from dpose.release.manifest import Manifest, verify_manifest
from dpose.runs.account import account_of
from dpose.runs.config import RunConfig, read_yaml
from dpose.runs.places import run_config
from dpose.runs.tune_config import TuningConfig
from dpose.training.checkpoint import load_checkpoint
from dpose.training.folder import updates_of
from dpose.training.plan import TrainingPlan
from dpose_lab.attacks.adversary import onnx_embedder
from public_doors import pixelize
from refusals import refused
from stored import charged, run_charge

DEEP = "[" * 100_000


def test_nested_too_deeply(tmp_path):
    for name in ("config.json", "ledger.jsonl", "privacy.json"):
        (tmp_path / name).write_text(DEEP + "\n")
    # YAML's reader is slow, and calls itself more often
    for name in ("data.yaml", "run.yaml"):
        (tmp_path / name).write_text("[" * 500)
    for read in (
        lambda: load_model(tmp_path),
        lambda: load_action_model(tmp_path),
        lambda: read_ledger(tmp_path / "ledger.jsonl"),
        lambda: PrivacyStatement.from_json(DEEP, "privacy.json"),
        lambda: read_yolo(tmp_path, "train"),
        lambda: read_yaml(tmp_path / "run.yaml"),
    ):
        with pytest.raises(DposeError):
            read()


def test_a_ledger_of_no_numbers(tmp_path):
    entry = Entry(0, GENESIS, EntryType.OPEN, None, 0, 0, "", "", "a" * 32).sealed()
    line = entry.line()
    assert b'"steps":0' in line
    (tmp_path / "ledger.jsonl").write_bytes(line.replace(b'"steps":0', b'"steps":NaN'))
    with refused("ledger-entry-invalid"):
        read_ledger(tmp_path / "ledger.jsonl")


def test_a_date_that_does_not_exist(tmp_path):
    (tmp_path / "run.yaml").write_text("a: 2026-13-45\n")
    with refused("yaml-invalid"):
        read_yaml(tmp_path / "run.yaml")


def test_an_array_whose_header_does_not_end():
    made = pixelize(np.arange(384, dtype=np.uint8).reshape(16, 24), 2, 4, 8)
    data = pack_archive(made.frames[0], made.statement)
    header = b"{'descr': ('|u1', ".ljust(118)
    broken = npy(np.zeros(1, np.uint8))[:6] + b"\x01\x00" + len(header).to_bytes(2, "little") + header
    with refused("archive-damaged"):
        unpack(rebuilt(data, about=broken), "x.npz")


def test_a_value_as_long_as_a_file_is_told_in_part():
    assert len(DposeError("json-invalid", f"is {'x' * 70_000}", "a.json").line()) <= LONGEST + 4


@pytest.mark.parametrize("unit", ["", "thing", None, 3])
def test_a_statement_names_a_unit_that_is_one(unit):
    values = PrivacyStatement(Kind.NONE, unit="image").to_dict()
    assert PrivacyStatement.from_json(json.dumps(values)).unit == "image"
    with refused("field-choice-unknown", where="unit"):
        PrivacyStatement.from_json(json.dumps(values | {"unit": unit}))


def coco_folder(root, **changes):
    (root / "annotations").mkdir(parents=True)
    (root / "train2017").mkdir()
    (root / "train2017" / "1.png").write_bytes(b"x")
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": 32, "height": 24}],
        "annotations": [],
        "categories": [{"id": 1, "name": "person"}],
    }
    (root / "annotations" / "person_keypoints_train2017.json").write_text(json.dumps(content | changes))
    return root


@pytest.mark.parametrize("wrong", [{}, [1], None, "1"])
def test_numbers_of_pictures_and_categories_that_are_none(wrong, tmp_path):
    for name in ("image_id", "category_id"):
        entry = {"id": 7, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "keypoints": [3, 3, 2] * 17}
        labels = read_coco(coco_folder(tmp_path / name, annotations=[entry | {name: wrong}]), "train")
        assert len(labels.people) == (wrong == "1")
    people = [{"id": 7, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "keypoints": [3, 3, 2] * 17}]
    folder = coco_folder(tmp_path / "c", annotations=people, categories=[{"id": wrong, "name": "person"}])
    assert len(read_coco(folder, "train").people) == 1


def test_a_box_so_far_out_that_it_has_no_width(tmp_path):
    boxes = [{"image_id": 1, "bbox": [2.0**63, 1, 20, 16], "score": 0.9}]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    with refused("detections-all-unusable"):
        read_detections(tmp_path / "boxes.json")


def mat(**arrays):
    raw = io.BytesIO()
    scipy.io.savemat(raw, arrays)
    return raw.getvalue()


def test_arrays_of_matlab(tmp_path):
    path = tmp_path / "a.mat"
    for kind in (np.float64, np.float32, np.uint8, np.int16, np.int64):
        for shape in ((2, 3), (14, 3, 5), (1, 1), (0, 4), (3, 1, 2, 2)):
            array = (np.arange(np.prod(shape)).reshape(shape) * 3).astype(kind)
            for compressed in (False, True):
                scipy.io.savemat(
                    path, {"other": {"inside": 1}, "joints": array, "text": "a"}, do_compression=compressed
                )
                found = read_mat(path, ("joints", "text", "other"))
                assert list(found) == ["joints"]
                assert found["joints"].dtype == kind
                assert np.array_equal(found["joints"], scipy.io.loadmat(path)["joints"])


def test_a_damaged_file_of_matlab_does_not_end_the_process(tmp_path):
    path, whole = tmp_path / "a.mat", mat(joints=np.ones((14, 3, 3)))
    for broken in (
        b"",
        whole[:200],
        whole.replace(struct.pack("<I", 14 * 9 * 8), struct.pack("<I", 8)),
        whole.replace(struct.pack("<III", 14, 3, 3), struct.pack("<III", 2**30, 2**30, 3)),
        whole.replace(struct.pack("<III", 14, 3, 3), struct.pack("<iii", -14, -3, 3)),
        whole[:124] + b"\0\2IM" + whole[128:],
    ):
        path.write_bytes(broken)
        with refused("matlab-unreadable"):
            read_mat(path, ("joints",))


def test_a_list_of_pictures_that_is_a_device(tmp_path):
    (tmp_path / "data.yaml").write_text("train: /dev/zero\nnames: ['person']\nkpt_shape: [3, 3]\n")
    with refused("picture-list-invalid"):
        read_yolo(tmp_path, "train")


def test_text_that_is_none():
    values = PrivacyStatement(Kind.NONE, unit="image").to_dict()
    with refused("statement-not-json"):
        PrivacyStatement.from_json(json.dumps(values | {"caveats": ["\ud800"]}))


def test_a_checkpoint_of_lists(tmp_path):
    (tmp_path / "state.json").write_text('{"sha256": []}')
    with refused("checkpoint-broken"):
        load_checkpoint(tmp_path)


def test_a_list_of_released_files_that_is_nested_too_deeply(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(DEEP + "\n")
    with refused("manifest-unreadable"):
        verify_manifest(tmp_path)


def test_a_log_that_cannot_be_read_says_nothing(tmp_path):
    """And what follows is nobody's, until a line names a key: the line may have named another one."""
    step = '{"type": "step", "step": %d, "update": "u%d"}\n'
    begun = '{"type": "open", "key_id": "k"}\n'
    path = tmp_path / "log.jsonl"
    for spoilt in ("[" * 100_000, "\0\0\0", "[]", "{}", "\udcff"):
        content = begun + step % (1, 1) + spoilt + "\n" + step % (2, 2) + begun + step % (3, 3)
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        assert updates_of(path, "k") == {0: "u1", 2: "u3"}
    assert updates_of(tmp_path / "none", "k") == {}


@pytest.fixture
def account(tmp_path):
    """An account of two runs, and what runs SQL on its database."""
    charged(run_charge(0), run_charge(1), where=tmp_path)
    close_connections(opened(tmp_path).url)

    def edited(*statements):
        (file,) = tmp_path.glob("*.sqlite")
        with sqlite3.connect(file) as base:
            for statement in statements:
                base.execute(statement)
        base.close()

    return tmp_path, edited


def sqlite_dump(where):
    (file,) = where.glob("*.sqlite")
    with contextlib.closing(sqlite3.connect(file)) as base:
        return list(base.iterdump())


@pytest.mark.parametrize("change", ["DELETE FROM meets", "UPDATE meets SET other = 'x'"])
def test_an_account_whose_sets_meet_no_more(account, change):
    where, edited = account
    assert len(groups(where)) == 1
    edited(change)
    with refused("account-altered"):
        groups(where)


@pytest.mark.parametrize("value", ["'[[['", "'x'", "NULL", "9e999", "x'ff'", "-1"])
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE meta SET value = {} WHERE name = 'head'",
        "UPDATE meta SET value = {} WHERE name = 'schema'",
        "UPDATE journal SET seq = {} WHERE seq = 2",
        "UPDATE journal SET seq = {} WHERE seq = 1",
        "UPDATE journal SET mac = {} WHERE seq = 1",
        "UPDATE journal SET body = {} WHERE seq = 2",
    ],
)
def test_an_account_with_anything_in_the_place_of_numbers_and_texts(account, change, value):
    where, edited = account
    before = sqlite_dump(where)
    try:
        edited(change.format(value))
    except sqlite3.IntegrityError:
        assert sqlite_dump(where) == before
        return
    with refused("account-altered"):
        charges(where)
    with refused("account-altered"):
        conclude({run_charge(1).id: ()}, where=where)


def test_an_account_whose_tables_have_names_that_are_no_text(account):
    where, _ = account
    (file,) = where.glob("*.sqlite")
    content = file.read_bytes()
    assert b"CREATE TABLE meta" in content
    file.write_bytes(content.replace(b"CREATE TABLE meta", b"CREATE TABLE \xff\xffta"))
    with refused(("account-altered", "account-unusable")):
        charges(where)


def test_how_far_an_account_was_seen(tmp_path):
    file = high_water.seen_file(tmp_path, "a")
    file.parent.mkdir()
    water = high_water.HighWater(7, "ab")
    high_water.note_seen(tmp_path, "a", water)
    whole = file.read_bytes()
    assert high_water.seen(tmp_path, "a") == water
    # a power cut leaves a part of it, or zeros; it is then as if it had not been kept
    for part in (b"", whole[:-1], whole[:20], bytes(len(whole))):
        file.write_bytes(part)
        assert high_water.seen(tmp_path, "a") == high_water.HighWater()
    numbers = (b'{"seq": 1e999}', b'{"seq": %d}' % 2**63, b'{"seq": -1}')
    for wrong in (DEEP.encode() + b"}", b"[}", b'{"seq": []}', *numbers):
        file.write_bytes(wrong)
        with refused("high-water-unreadable"):
            high_water.seen(tmp_path, "a")


def test_a_few_lines_that_merge_into_a_billion_keys(tmp_path):
    lines = ["a0: &a0 {x: 1}"] + [f"a{k}: &a{k} {{<<: [*a{k - 1}, *a{k - 1}]}}" for k in range(1, 60)]
    (tmp_path / "run.yaml").write_text("\n".join(lines))
    # PyYAML before 6.0.4 merges the same key again and again
    with contextlib.suppress(DposeError):
        assert read_yaml(tmp_path / "run.yaml")["a59"] == {"x": 1}
    (tmp_path / "run.yaml").write_text("".join(f"k{k}: 1\n" for k in range(10_001)))
    with refused("yaml-invalid"):
        read_yaml(tmp_path / "run.yaml")
    (tmp_path / "run.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert read_yaml(tmp_path / "run.yaml")["b"] == {"x": 1, "y": 3}


@pytest.mark.parametrize("place", [{"scale": 1e-320}, {"center": [2.0**63, 1.0]}])
def test_a_person_whose_box_holds_nothing(place, tmp_path):
    entry = {"image": "1.png", "center": [9.0, 9.0], "scale": 0.1, "joints": [[3, 3]] * 16, "joints_vis": [1] * 16}
    (tmp_path / "annot").mkdir()
    (tmp_path / "annot" / "train.json").write_text(json.dumps([entry, entry | place]))
    labels = read_mpii(tmp_path, "train", pictures=False)
    assert len(labels.people) == 1
    assert "centre and scale" in str(labels.problems[0])


def test_a_grid_over_a_number():
    values = {"optimizer": 0.5, "grid": {"optimizer": {"lr": [0.1, 0.2]}}, "plan": {"epsilon": 1.0, "delta": 1e-5}}
    with refused("section-not-mapping"):
        TuningConfig.from_dict(values)


def test_a_model_of_pictures_that_nobody_has():
    with refused("input-size-too-large"):
        PoseConfig("nano", input_size=(2**63, 96))


@pytest.mark.parametrize(
    "change", ["UPDATE cells SET parent = id", "UPDATE cells SET members = 'x'", "UPDATE cells SET parent = 99"]
)
def test_an_account_whose_cells_are_no_tree(account, change):
    where, edited = account
    quiet = Console(quiet=True)
    account_of(None, None, quiet, where=where)
    edited(change)
    with contextlib.suppress(DposeError):  # told as altered, or without use here; and it ends
        account_of(None, None, quiet, where=where)


def test_a_runs_settings_that_are_none(tmp_path):
    for values in ("x", ["x"], None):
        (tmp_path / "config.json").write_text(json.dumps({"run": values}))
        with refused("run-missing"):
            run_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with refused("config-damaged", where=tmp_path / "config.json"):
        run_config(tmp_path)


@pytest.mark.parametrize("value", [10**400, float("nan"), float("inf"), 0])
def test_a_batch_of_no_size(value):
    with refused("setting-not-positive", where="expected_batch_size"):
        TrainingPlan(epsilon=4.0, delta=1e-5, epochs=2, expected_batch_size=value)


def test_a_recipe_that_is_a_list():
    with refused("setting-invalid", where="recipe"):
        RunConfig.from_dict(
            {"recipe": ["recommended"], "data": {"private": "synthetic:ward"}, "plan": {"epsilon": 1.0, "delta": 1e-5}}
        )


def test_a_model_with_more_bins_than_there_are_numbers(tmp_path):
    config = PoseConfig("nano").to_dict() | {"split_ratio": 2**60}
    (tmp_path / "config.json").write_text(json.dumps({"task": "pose", "model": config}))
    with refused("config-invalid", where="config.json"):
        load_model(tmp_path)


def test_a_folder_whose_name_no_file_system_can_hold(tmp_path):
    (tmp_path / "data.yaml").write_text(f"train: {'a' * 70_000}\nnames: [person]\nkpt_shape: [1, 3]\n")
    with refused("file-missing", where="aaaa"):
        read_yolo(tmp_path, "train")


def test_an_embedder_of_pictures_that_nobody_has(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 2**40, 4])
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 3, 2**40, 4])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "x", [given], [made])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "x.onnx")
    with refused("onnx-input-too-large", where="4096"):
        onnx_embedder(str(tmp_path / "x.onnx"))


def test_names_that_are_no_text_are_shown_escaped(tmp_path, monkeypatch):
    """Where standard output takes nothing but UTF-8: a list of released files, and files called by any bytes."""
    said = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(said, "utf-8", errors="strict", write_through=True))
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/\udcff.png").write_bytes(encode_image(np.zeros((24, 32, 3), np.uint8), ".png"))
    released = ["--epsilon", "1", "--block", "8", "--public", "--out", "out"]
    assert main(["pixelize", "in", *released]) == 0
    assert "in/\\udcff.png -> out/000001.png" in said.getvalue().decode()
    assert known_names(Path("out")) == {"000001": str(tmp_path.resolve() / "in/\udcff.png")}
    with Manifest(Path("out")) as listed:
        listed.failed(Path("out/\udcff.png"))
        listed.end()
    assert main(["verify", "out"]) == 0


def test_what_is_said_on_the_command_line_is_text(tmp_path, capsys):
    (tmp_path / "a.png").write_bytes(encode_image(np.zeros((24, 32, 3), np.uint8), ".png"))
    given = ["--epsilon", "1", "--block", "8", "--public", "--out", str(tmp_path / "b.png")]
    assert main(["pixelize", str(tmp_path / "a.png"), *given, "--set", "about.curator=Ward \udcff"]) == 2
    assert capsys.readouterr().err == "dpose: curator: is no text in UTF-8; write it with letters [text-not-utf8]\n"
    assert not (tmp_path / "b.png").exists()
    for kind in (AuditResult, PlantedCanaries, PublicInput):
        with refused("text-not-utf8"):
            kind("\ud800", "1", "0.5")


def test_a_list_of_released_files_whose_claims_are_no_numbers(tmp_path):
    statement = PrivacyStatement(Kind.NONE, "pixel")
    with Manifest(tmp_path) as listed:
        listed._write({"type": "file", "file": "a", "sha256": {}, "epsilon": "\ud800"})
        listed.end()
    with refused("manifest-unreadable"):
        verify_manifest(tmp_path)
    (tmp_path / "corpus.jsonl").unlink()
    with Manifest(tmp_path) as listed:
        listed.add(tmp_path / "a", {}, statement)
        listed.failed(tmp_path / "b")
        listed.end()
    assert verify_manifest(tmp_path).endswith("each claims nothing, 1 that failed")


def test_a_folder_of_more_joints_than_anybody_has(tmp_path):
    for count in (10**400, 1001):
        (tmp_path / "data.yaml").write_text(f"train: images\nkpt_shape: [{count}, 3]\n")
        with refused("kpt-shape-invalid", where=("kpt_shape", "1,000")):
            read_yolo(tmp_path, "train")


def test_predictions_of_other_things_than_people(pose_fixtures, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"image_id": 1, "category_id": [1]}]))
    labels = read_coco(pose_fixtures / "coco", "val")
    with refused("predictions-all-unusable"):
        score_results(tmp_path / "a.json", labels)


def test_a_picture_wider_than_any_number_is_as_wide_as_it_is(tmp_path):
    (tmp_path / "train2017").mkdir()
    (tmp_path / "train2017" / "1.png").write_bytes(encode_image(np.zeros((24, 32, 3), np.uint8), ".png"))
    picture = {"id": 1, "file_name": "1.png", "width": 10**400, "height": 24}
    person = {"image_id": 1, "category_id": 1, "keypoints": [3, 4, 2] * 17, "bbox": [1, 1, 9, 9], "id": 1}
    (tmp_path / "a.json").write_text(json.dumps({"images": [picture], "annotations": [person], "categories": []}))
    (picture,) = read_coco(tmp_path, "train", "a.json").pictures
    assert picture.size == (24, 32)
