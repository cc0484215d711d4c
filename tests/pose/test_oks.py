import contextlib
import io

import numpy as np
import pytest
from pycocotools import coco
from pycocotools.cocoeval import COCOeval

from dpose.pose.metrics import KEPT, OKS, joint_similarity, oks, oks_nms, person_score
from dpose.pose.skeletons import COCO

SIGMAS = COCO.sigmas


def people(count, seed=0):
    return np.random.default_rng(seed).uniform(0, 100, (count, 17, 2))


def test_a_joint_by_hand():
    # 10 pixels off, area 2500, k = 2 * 0.107: exp(-100 / (2 * 2500 * 0.214^2))
    result = joint_similarity([[10.0, 0]], [[0.0, 0]], np.array(2500.0), (0.107,))
    assert result[0] == pytest.approx(np.exp(-100 / (2 * 2500 * 0.214**2)), abs=1e-12)


def test_it_is_pycocotools_own():
    rng = np.random.default_rng(1)
    true, labelled = people(6), rng.random((6, 17)) < 0.7
    area = rng.uniform(200, 9000, 6)
    predicted = true[:, None] + rng.normal(0, 8, (6, 5, 17, 2))
    rows = np.dstack([true, 2.0 * labelled])
    truth = {
        "images": [{"id": i} for i in range(6)],
        "categories": [{"id": 1}],
        "annotations": [
            {
                "id": i + 1, "image_id": i, "category_id": 1, "iscrowd": 0, "area": area[i], "bbox": [0, 0, 99, 99],
                "keypoints": rows[i].ravel().tolist(), "num_keypoints": int(labelled[i].sum()),
            }
            for i in range(6)
        ],
    }  # fmt: skip
    results = [
        {"image_id": i, "category_id": 1, "score": 1 - 0.1 * d,
         "keypoints": np.column_stack([predicted[i, d], np.ones(17)]).ravel().tolist()}
        for i in range(6) for d in range(5)
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        labels = coco.COCO()
        labels.dataset = truth
        labels.createIndex()
        evaluation = COCOeval(labels, labels.loadRes(results), "keypoints")
        evaluation.evaluate()
    for i in range(6):
        theirs = evaluation.ious[i, 1][:, 0]
        ours = oks(predicted[i], true[i], labelled[i], np.full(5, area[i]), SIGMAS)
        assert np.abs(ours - theirs).max() < 1e-12


def test_unlabelled_joints_do_not_count_and_infinite_ones_miss():
    true = people(1)[0]
    labelled = np.zeros(17)
    labelled[:2] = 1
    predicted = true + 1e6
    predicted[0] = true[0]
    predicted[1] = np.nan
    assert oks(predicted, true, labelled, np.array(900.0), SIGMAS) == 0.5
    assert np.isnan(oks(true, true, np.zeros(17), np.array(900.0), SIGMAS))


class TestPersonScore:
    def test_by_hand(self):
        result = person_score([0.5, 0.8, 1.0], [[0.9, 0.7, 0.1], [0.2, 0.1, 0.0], [1.0, 1.0, 1.0]])
        assert result.tolist() == pytest.approx([0.5 * 0.8, 0.0, 1.0])

    def test_the_bound_itself_is_left_out(self):
        assert person_score([1.0], [[KEPT, KEPT + 0.1]])[0] == pytest.approx(KEPT + 0.1)

    def test_it_is_bounded(self):
        rng = np.random.default_rng(0)
        result = person_score(rng.random(500), rng.random((500, 17)))
        assert result.min() >= 0
        assert result.max() <= 1


class TestSuppression:
    def test_doubles_go_and_the_better_one_stays(self):
        one, other = people(1)[0], people(1, 9)[0]
        remaining = oks_nms([one, one + 0.5, other], [0.5, 0.9, 0.1], [4000, 4000, 4000], SIGMAS)
        assert remaining == [1, 2]

    def test_only_what_is_more_alike_than_the_threshold_goes(self):
        one = people(1)[0]
        two = one + 6
        area = 4000.0
        alike = float(oks(two, one, np.ones(17), np.array(area), SIGMAS))
        for threshold, remaining in ((alike + 1e-9, [0, 1]), (alike - 1e-9, [0])):
            assert oks_nms([one, two], [0.9, 0.8], [area, area], SIGMAS, threshold) == remaining

    def test_at_most_twenty_stay(self):
        assert oks_nms(people(30), np.linspace(0, 1, 30), np.ones(30), SIGMAS) == list(range(29, 9, -1))

    def test_nobody(self):
        assert oks_nms(np.zeros((0, 17, 2)), [], [], SIGMAS) == []


def test_the_metric_counts_people_and_leaves_out_what_cannot_be_scored():
    metric = OKS(SIGMAS)
    assert np.isnan(metric.compute().columns()["Mean"])
    true = people(4)
    labelled = np.ones((4, 17))
    labelled[3] = 0
    predicted = true.copy()
    predicted[1] += 1e4
    metric.update(predicted, true, labelled, [900, 900, np.nan, 900])
    result = metric.compute()
    assert result.columns() == {"Mean": 0.5, "OKS50": 0.5, "OKS75": 0.5}
    assert result.left_out == 2
    assert "2 people in their own boxes, 2 left out" in str(result)
    assert result.to_dict()["people"] == 2
