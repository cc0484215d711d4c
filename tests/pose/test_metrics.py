import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from dpose.pose.metrics import GROUPS, SCORED, UNSCORED, PCKh
from dpose.pose.skeletons import MPII

COLUMNS = ["Head", "Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle", "Mean", "Mean@0.1"]


def people(count, distance=0.0, length=10.0, visible=True):
    """Everyone's joints at the origin, predictions `distance` to the right."""
    true = np.zeros((count, 16, 2))
    predicted = true + np.array([distance, 0])
    return predicted, true, np.full((count, 16), visible), np.full(count, length)


def scored(*batch, thresholds=(0.5, 0.1)):
    metric = PCKh(thresholds)
    metric.update(*batch)
    return metric.compute()


def test_perfect_predictions_score_100_everywhere():
    assert list(scored(*people(3)).columns()) == COLUMNS
    assert set(scored(*people(3)).columns().values()) == {100.0}


@pytest.mark.parametrize(
    ("distance", "at_half", "at_tenth"), [(1.0, 100, 100), (1.0 + 1e-9, 100, 0), (5.0, 100, 0), (5.0 + 1e-9, 0, 0)]
)
def test_the_threshold_itself_is_found(distance, at_half, at_tenth):
    columns = scored(*people(2, distance)).columns()
    assert (columns["Mean"], columns["Mean@0.1"]) == (at_half, at_tenth)


@pytest.mark.parametrize("length", [3.0, 7.3, 20.91, 61.6])
def test_the_boundary_holds_for_lengths_that_are_not_round(length):
    assert scored(*people(1, 0.1 * length, length)).mean(0.1) == 100


def test_mean_at_a_tenth_is_not_row_eleven_of_the_references_table():
    """At distance 0.105 a threshold of 0.11 (HRNet's row 11) would find every joint."""
    assert np.arange(0, 0.51, 0.01)[11] == pytest.approx(0.11)
    assert scored(*people(1, 1.05)).mean(0.1) == 0
    assert scored(*people(1, 1.05), thresholds=(0.5, 0.11)).mean(0.11) == 100


def test_the_mean_weighs_joints_by_how_often_they_are_visible():
    predicted, true, visible, length = people(4)
    visible[:] = False
    visible[:, 0] = True  # right ankle: seen four times, found once
    predicted[1:, 0] = 100
    visible[0, 9] = True  # head top: seen once, found
    result = scored(predicted, true, visible, length)
    assert result.mean(0.5) == pytest.approx(100 * 2 / 5)
    assert np.nanmean(result.joint(0.5)) == pytest.approx((25 + 100) / 2)  # what equal weights would say
    assert result.columns()["Head"] == 100


def test_hidden_joints_are_neither_right_nor_wrong():
    predicted, true, visible, length = people(2)
    predicted[:, 10] = 1000
    visible[:, 10] = False
    assert scored(predicted, true, visible, length).columns()["Mean"] == 100
    predicted[:, 11] = 1000
    assert scored(predicted, true, visible, length).mean(0.5) == pytest.approx(100 * 12 / 13)


def test_pelvis_and_thorax_change_nothing():
    predicted, true, visible, length = people(2)
    before = scored(predicted, true, visible, length).columns()
    predicted[:, list(UNSCORED)] = 500
    assert scored(predicted, true, visible, length).columns() == before
    assert len(SCORED) == 14
    assert [MPII.joints[j] for j in UNSCORED] == ["pelvis", "thorax"]


def test_upper_neck_counts_in_the_mean_only():
    predicted, true, visible, length = people(1)
    predicted[:, 8] = 500
    columns = scored(predicted, true, visible, length).columns()
    assert columns["Head"] == 100
    assert columns["Mean"] == pytest.approx(100 * 13 / 14)


@pytest.mark.parametrize("name", [g for g in GROUPS if g != "Head"])
def test_a_column_is_the_plain_mean_of_its_two_sides(name):
    predicted, true, visible, length = people(4)
    right, left = GROUPS[name]
    assert {MPII.joints[right], MPII.joints[left]} == {f"{s}_{name.lower()}" for s in "rl"}
    predicted[0, right] = 500  # right: three of four; left: seen once, missed
    visible[1:, left] = False
    predicted[0, left] = 500
    columns = scored(predicted, true, visible, length).columns()
    assert columns[name] == pytest.approx((75 + 0) / 2)
    assert all(columns[other] == 100 for other in GROUPS if other != name)


def test_one_side_stands_for_its_pair_and_none_is_nan():
    predicted, true, visible, length = people(1)
    visible[:, [0, 1, 4]] = False
    result = scored(predicted, true, visible, length)
    assert result.columns()["Ankle"] == 100
    assert math.isnan(result.columns()["Knee"])
    assert json.loads(json.dumps(result.to_dict()))["columns"]["Knee"] is None


@pytest.mark.parametrize("length", [np.nan, 0.0, -3.0, np.inf])
def test_people_without_a_usable_head_length_are_left_out_and_counted(length):
    predicted, true, visible, lengths = people(3, 100.0)
    predicted[0] = 0
    lengths[1:] = length
    result = scored(predicted, true, visible, lengths)
    assert (result.people, result.left_out) == (1, 2)
    assert result.mean(0.5) == 100
    assert "2 people left out" in str(result)


def test_predictions_that_are_not_finite_are_misses():
    predicted, true, visible, length = people(1)
    predicted[0, :7] = np.nan
    assert scored(predicted, true, visible, length).mean(0.5) == pytest.approx(100 * 8 / 14)


def test_batches_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    true = rng.normal(size=(50, 16, 2)) * 50
    predicted = true + rng.normal(size=true.shape) * 5
    visible, length = rng.random((50, 16)) < 0.8, rng.uniform(5, 30, 50)
    parts = PCKh()
    for rows in (slice(0, 7), slice(7, 7), slice(7, 50)):
        parts.update(predicted[rows], true[rows], visible[rows], length[rows])
    whole = scored(predicted, true, visible, length)
    assert parts.compute().columns() == whole.columns()

    error = np.linalg.norm(predicted - true, axis=-1) / length[:, None]
    keep = visible.copy()
    keep[:, 6:8] = False
    assert whole.mean(0.5) == pytest.approx(100 * (error[keep] <= 0.5).mean())
    assert whole.mean(0.1) == pytest.approx(100 * (error[keep] <= 0.1).mean())
    assert 5 < whole.mean(0.1) < whole.mean(0.5) < 95


def test_nothing_seen_is_nan_and_not_an_error():
    result = PCKh().compute()
    assert all(math.isnan(v) for v in result.columns().values())
    assert "0 people" in str(result)


def test_results_print_the_columns_and_become_json():
    result = scored(*people(2, 2.0))
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(result)
    for text in (str(result), console.export_text()):
        assert all(name in text for name in COLUMNS)
        assert "100.00" in text
    flat = json.loads(json.dumps(result.to_dict()))
    assert flat["columns"]["Mean@0.1"] == 0
    assert flat["joints"]["0.5"]["head_top"] == 100


def test_wrong_shapes_and_thresholds_are_refused():
    predicted, true, visible, length = people(2)
    with pytest.raises(ValueError, match="do not match"):
        PCKh().update(predicted[:1], true, visible, length)
    with pytest.raises(ValueError, match="do not match"):
        PCKh().update(predicted, true, visible[:, :14], length)
    for bad in ((), (0.5, 0.5), (0.0,)):
        with pytest.raises(ValueError, match="thresholds"):
            PCKh(bad)


def test_a_perfect_score_fits_a_terminal_and_is_drawn(tmp_path):
    import io

    from rich.console import Console

    metric = PCKh()
    points = np.random.default_rng(0).uniform(0, 90, (3, 16, 2))
    metric.update(points, points, np.ones((3, 16)), np.full(3, 10.0))
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(metric.compute())
    assert console.export_text().count("100.00") == 9
    metric.compute().plot().savefig(tmp_path / "pckh.png")
    assert (tmp_path / "pckh.png").stat().st_size > 10_000
