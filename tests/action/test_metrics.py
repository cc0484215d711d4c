"""Top-1, class-wise average precision and F1, by hand and against scikit-like definitions."""

import numpy as np
import pytest
import torch

from dpose.action.task import Attributes, Top1, average_precision, f1_score


def test_top1():
    metric = Top1()
    metric.update(torch.tensor([[1.0, 2, 0], [3, 2, 1]]), {"action": torch.tensor([1, 2])})
    metric.update(torch.tensor([[0.0, 0, 9]]), {"action": torch.tensor([2])})
    result = metric.compute()
    assert result.top1 == pytest.approx(200 / 3)
    assert result.to_dict()["columns"] == {"Top-1": pytest.approx(200 / 3)}


def test_average_precision_by_hand():
    scores = np.array([0.9, 0.8, 0.7, 0.6])
    assert average_precision(scores, np.array([True, False, True, False])) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(scores, np.array([False, False, False, True])) == pytest.approx(0.25)


def test_equal_scores_are_worth_the_prevalence():
    truth = np.array([True, False, False, True, False])
    assert average_precision(np.zeros(5), truth) == pytest.approx(0.4)


def test_f1():
    assert f1_score(np.array([True, True, False]), np.array([True, False, True])) == pytest.approx(0.5)
    assert f1_score(np.array([False]), np.array([False])) == 0


def test_attributes_leave_out_what_cannot_be_scored():
    metric = Attributes(("a", "b", "c"))
    logits = torch.tensor([[2.0, 1, 1], [1.0, 1, 1], [-1.0, 5, 1]])
    labels = torch.tensor([[1, 1, -1], [0, 1, 1], [1, 1, 0]])
    metric.update(logits, {"attributes": labels})
    result = metric.compute()
    assert result.names == ("a", "c")
    assert result.ap[0] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert result.f1[0] == pytest.approx(50)
    assert result.chance == pytest.approx((200 / 3 + 50) / 2)
    assert result.cmap == pytest.approx(np.mean(result.ap))
    assert Attributes(("a",)).compute().cmap == 0
