"""People side by side: who is shown, by which models, and when no one may be shown."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import dpose_scene.data as synthetic_module
from dpose.media.images import decode_image
from dpose_lab.papers.experiment import Cell, GridRequest, Outcome, Request
from dpose_lab.papers.pose import pictures
from dpose_lab.papers.pose.tables import Ours
from dpose_lab.papers.pose.training_cell import START, Training
from dpose_lab.papers.reproduce import reproduce
from small_nano import small_nano  # noqa: F401

SMALL = {"train": 40, "val": 16, "test": 16, "public": 8}


class ReachedError(Exception):
    """The pictures would have been opened."""


@pytest.mark.parametrize(
    ("evaluate", "asked", "shown"),
    [
        ("lspet:absent:validation", False, False),
        ("lspet:absent:private", False, False),
        ("mpii:absent:val", False, False),
        ("lspet:absent:validation", True, True),
        ("lspet:absent:public", False, True),
        ("synthetic:ward:test", False, True),
    ],
)
def test_private_people_are_shown_only_where_somebody_says_so(evaluate, asked, shown, monkeypatch, tmp_path):
    def reached(_):
        raise ReachedError

    monkeypatch.setattr(pictures, "_chosen", reached)
    setup = SimpleNamespace(evaluate=evaluate)
    if shown:
        with pytest.raises(ReachedError):
            pictures.side_by_side("ward-dp-1", setup, tmp_path, (), asked)
    else:
        assert pictures.side_by_side("ward-dp-1", setup, tmp_path, (), asked) is None


def done(training, mean):
    cell = Cell(training.key, training.values)
    return training, Ours((Outcome(cell, "done", {"metric": "PCKh", "columns": {"Mean": mean}}),))


def test_a_method_is_shown_at_its_largest_epsilon_and_best_clipping_norm():
    best = Training("dp-sgd", "finetune", 0.1, 8.0)
    ours = dict(
        [
            done(Training(START, START), 40.0),
            done(Training("dp-sgd", "finetune", 1.0, 0.8), 60.0),
            done(Training("dp-sgd", "finetune", 1.0, 8.0), 41.0),
            done(best, 42.0),
            done(Training("pdp-sgd", "full", 0.1, 8.0), 70.0),  # another strategy than most
        ]
    )
    assert pictures._chosen(ours) == [Training(START, START), best]
    assert pictures._chosen({}) == []


def test_people_are_ranked_by_the_share_found_over_all_models(tmp_path):
    found = {
        "one": {"a": (8, 8), "b": (2, 8), "c": (7, 7), "d": (5, 10), "e": (9, 9)},
        "two": {"a": (4, 8), "b": (4, 8), "c": (7, 7), "d": (9, 10)},  # e was not tested
    }
    files = []
    for name, people in found.items():
        content = {
            "units": [*people, "twice", "twice"],
            "found": [f for f, _ in people.values()] + [9, 9],
            "scored": [s for _, s in people.values()] + [9, 9],
        }
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(content))

    class Units:
        names = ("d", "c", "b", "a", "e", "twice")

        def __len__(self):
            return len(self.names)

        def unit_id(self, index):
            return self.names[index]

    # a 0.75, d 0.7, b 0.375; c has too few joints, "twice" two people under a name
    order = pictures._ranked(files, Units())
    assert [Units.names[i] for i in order] == ["a", "d", "b"]


def test_the_sheet_of_a_real_grid(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic_module, "SPLITS", SMALL)
    grid = GridRequest(core=True, methods=("dp-sgd",), epsilons=(8.0,), epochs=1.0, batch_size=20)
    out = tmp_path / "out"
    reproduce("ward-dp-1", Request(data=("synthetic:ward",), grid=grid), out, Console(quiet=True))
    sheet = decode_image((out / "ward-dp-1-people.png").read_bytes(), "sheet")
    rows, columns = 2 * pictures.EACH, 3  # labels, start, dp-sgd
    assert sheet.shape[0] > rows * pictures.HEIGHT
    assert sheet.std() > 10
    told = (out / "results.md").read_text()
    assert "Columns: labels; the starting model, as it is" in told
    assert "dp-sgd, own, C = 1, epsilon = 8" in told
    width = pictures.HEIGHT * 96 // 128
    assert round(sheet.shape[1] / (width + 6)) == columns
    # what a model found is drawn, and not the labels again
    first = sheet[: pictures.HEIGHT]
    panels = [first[:, i * (width + 6) : i * (width + 6) + width] for i in range(2)]
    assert not np.array_equal(*panels)
