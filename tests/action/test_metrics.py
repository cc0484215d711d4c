"""Top-1 accuracy, by hand."""

import pytest
import torch

from dpose.action.task import Top1


def test_top1():
    metric = Top1()
    metric.update(torch.tensor([[1.0, 2, 0], [3, 2, 1]]), {"action": torch.tensor([1, 2])})
    metric.update(torch.tensor([[0.0, 0, 9]]), {"action": torch.tensor([2])})
    result = metric.compute()
    assert result.top1 == pytest.approx(200 / 3)
    assert result.to_dict()["columns"] == {"Top-1": pytest.approx(200 / 3)}
