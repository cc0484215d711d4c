"""Files that once broke their reader (found by `benchmarks/fuzz.py`) end in one line."""

import json

import numpy as np
import pytest

from archives import npy, rebuilt
from dpose.action.folder import load_action_model
from dpose.errors import LONGEST, DposeError
from dpose.pose.data.yolo import read_yolo
from dpose.pose.folder import load_model
from dpose.privacy.entries import GENESIS, Entry, EntryType
from dpose.privacy.ledger import read_ledger
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.archive import pack_archive, unpack
from dpose.runs.config import read_yaml
from public_doors import pixelize

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
    entry = Entry(0, GENESIS, EntryType.RESUME, None, 0, 0, "", "", "a" * 32).sealed()
    line = entry.line()
    assert b'"steps":0' in line
    (tmp_path / "ledger.jsonl").write_bytes(line.replace(b'"steps":0', b'"steps":NaN'))
    with pytest.raises(DposeError, match="altered"):
        read_ledger(tmp_path / "ledger.jsonl")


def test_a_date_that_does_not_exist(tmp_path):
    (tmp_path / "run.yaml").write_text("a: 2026-13-45\n")
    with pytest.raises(DposeError, match="not YAML"):
        read_yaml(tmp_path / "run.yaml")


def test_an_array_whose_header_does_not_end():
    made = pixelize(np.arange(384, dtype=np.uint8).reshape(16, 24), 2, 4, 8)
    data = pack_archive(made.frames[0], made.statement)
    header = b"{'descr': ('|u1', ".ljust(118)
    broken = npy(np.zeros(1, np.uint8))[:6] + b"\x01\x00" + len(header).to_bytes(2, "little") + header
    with pytest.raises(DposeError, match="archive is damaged"):
        unpack(rebuilt(data, about=broken), "x.npz")


def test_a_value_as_long_as_a_file_is_told_in_part():
    assert len(DposeError(f"is {'x' * 70_000}", "a.json").line()) <= LONGEST + 4


@pytest.mark.parametrize("unit", ["", "thing", None, 3])
def test_a_statement_names_a_unit_that_is_one(unit):
    values = PrivacyStatement(Kind.NONE, unit="image").to_dict()
    assert PrivacyStatement.from_json(json.dumps(values)).unit == "image"
    with pytest.raises(DposeError, match="unit"):
        PrivacyStatement.from_json(json.dumps(values | {"unit": unit}))
