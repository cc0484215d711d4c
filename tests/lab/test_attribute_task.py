"""Attributes: what is not known is not learnt from; class-wise average precision and F1 by hand."""

import numpy as np
import pytest
import torch

from dpose.action.model import ActionConfig, fresh_model
from dpose_lab.attribute_task import Attributes, AttributeTask, average_precision, f1_score


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


def test_attributes_that_are_not_known_are_not_learnt_from():
    config = ActionConfig(("a", "b"), frames=1, input_size=(16, 16))
    model, task = fresh_model(config, 0), AttributeTask(("a", "b"))
    inputs = torch.randint(0, 256, (1, 3, 1, 16, 16))
    some = [task.loss(model, {}, inputs, {"attributes": torch.tensor([[1, b]])}) for b in (-1, 0, 1)]
    only_a = torch.nn.functional.softplus(-model(inputs)[:, 0])
    torch.testing.assert_close(some[0], only_a)
    assert some[1] != some[2]
