"""The papers' numbers as data: transcribed whole, and in the range that a mean must be in."""

import pytest

from dpose_lab.papers.pose.printed import SEEDS, printed, tables_of

JOINTS = ("Head", "Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle")
ROWS = {
    "000/table1": 3,
    "000/table2": 72,
    "000/table3": 72,
    "003/table1": 6,
    "003/appendix-dp": 36,
    "003/appendix-pdp": 36,
    "003/appendix-fdp": 36,
    "003/appendix-fpdp": 36,
    "003/humanart-dp": 16,
    "003/humanart-pdp": 32,
    "003/humanart-fdp": 16,
    "003/humanart-fpdp": 20,
}
ALL = [name for seed in SEEDS for name in tables_of(seed)]


def values(name, strategy, clip_norm, epsilon, method=None):
    (line,) = [
        line
        for line in printed(name).lines
        if (line.strategy, line.clip_norm, line.epsilon) == (strategy, clip_norm, epsilon)
        and method in (None, line.method)
    ]
    return line.values


def test_every_table_has_all_its_rows_once():
    assert {name: len(printed(name).lines) for name in ALL} == ROWS
    for name in ALL:
        settings = [(x.method, x.strategy, x.clip_norm, x.epsilon) for x in printed(name).lines]
        assert len(set(settings)) == len(settings)
        assert {len(x.values) for x in printed(name).lines} == {len(printed(name).columns)}


@pytest.mark.parametrize(
    ("name", "setting", "column", "value"),
    [
        ("000/table1", ("finetune", None, None), "Mean", 89.36),
        ("000/table1", ("scratch", None, None), "Ankle", 60.60),
        ("000/table2", ("finetune", 1.0, 0.2), "Head", 0.00),
        ("000/table2", ("finetune", 0.01, 0.2), "Mean", 63.85),
        ("000/table2", ("finetune", 0.01, 7.0), "Mean@0.1", 16.47),
        ("000/table2", ("full", 0.1, 3.0), "Wrist", 14.53),
        ("000/table2", ("scratch", 0.01, 7.0), "Mean", 17.37),
        ("000/table3", ("finetune", 0.01, 0.2), "Mean", 78.48),
        ("000/table3", ("finetune", 1.0, 0.4), "Mean", 36.99),
        ("000/table3", ("full", 0.01, 7.0), "Mean", 69.81),
        ("000/table3", ("scratch", 0.01, 3.0), "Mean", 14.89),
        ("003/appendix-fdp", ("finetune", 0.01, 0.2), "Mean", 75.47),
        ("003/appendix-fpdp", ("finetune", 0.1, 0.8), "Mean", 82.62),
        ("003/appendix-fpdp", ("finetune", 0.01, 0.8), "Mean", 81.91),
        ("003/appendix-fpdp", ("scratch", 0.1, 0.8), "Mean", 33.49),
        ("003/humanart-dp", ("finetune", 0.01, 0.4), "AP", 40.7),
        ("003/humanart-pdp", ("finetune", 1.0, 0.8), "AR(L)", 31.5),
        ("003/humanart-fdp", ("full", 0.1, 0.4), "AR75", 0.09),
        ("003/humanart-fpdp", ("finetune", 0.01, 0.8), "AP", 51.6),
    ],
)
def test_spot_values(name, setting, column, value):
    assert values(name, *setting)[column] == value


def test_the_public_baseline_stands_above_the_best_private_number():
    public = values("003/table1", "finetune", None, None, "public-only")["Mean"]
    best = max(line.values["Mean"] for line in printed("003/appendix-fpdp").lines)
    assert (public, best) == (83.61, 82.62)


def test_a_mean_lies_among_its_joints():
    outside = [
        (name, line.strategy, line.clip_norm, line.epsilon)
        for name in ALL
        if printed(name).scored_by == "PCKh"
        for line in printed(name).lines
        if not min(line.values[j] for j in JOINTS) <= line.values["Mean"] <= max(line.values[j] for j in JOINTS)
    ]
    # the one that a note of the table explains: the upper neck counts in the mean and has no column
    assert outside == [("003/appendix-fdp", "scratch", 1.0, 0.2)]


@pytest.mark.parametrize("kind", ["dp", "pdp"])
def test_the_later_paper_repeats_the_earlier_ones_rows(kind):
    earlier = printed({"dp": "000/table2", "pdp": "000/table3"}[kind])
    for line in printed(f"003/appendix-{kind}").lines:
        assert values(earlier.name, line.strategy, line.clip_norm, line.epsilon) == line.values


def test_oddities_are_footnotes_and_shifted_rows_are_marked():
    notes = " ".join(printed("003/appendix-fpdp").notes)
    assert "82.62" in notes
    assert "C = 0.01" in notes
    assert "lost their epsilon" in notes
    unsure = [(x.strategy, x.clip_norm, x.epsilon) for x in printed("003/humanart-pdp").lines if not x.sure]
    assert unsure == [("scratch", 0.1, 0.2), ("scratch", 0.1, 0.8)]
    assert sum(not line.sure for name in ALL for line in printed(name).lines) == 2
