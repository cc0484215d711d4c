"""Scoring: every view of every unit once, padding never, and the model left as it was."""

import torch

from dpose.training.validation import metric_of_views


def test_every_view_counts_once(dots, monkeypatch):
    data = dots.data(23)
    seen = []
    metric = type(dots.task.metric())
    real = metric.update
    monkeypatch.setattr(metric, "update", lambda self, o, t: seen.append(len(o)) or real(self, o, t))
    model = dots.task.build_model()
    model.train()
    result = metric_of_views(dots.task, model, data, views_at_once=7)
    assert sum(seen) == sum(len(v) for v in data.views)
    assert model.training

    right = total = 0
    with torch.no_grad():
        for views in data.views:
            for view in views:
                inputs = torch.from_numpy(view.image).movedim(-1, 0)[None]
                right += int(model(inputs).argmax() == int(view.target["way"]))
                total += 1
    assert result.accuracy == right / total


def test_weights_that_changed_are_the_ones_scored(dots):
    data = dots.data(40)
    model = dots.task.build_model()
    with torch.no_grad():
        model.classify.weight.zero_()
        model.classify.bias.copy_(torch.tensor([1.0, 0, 0, 0]))
    share = sum(int(v.target["way"]) == 0 for views in data.views for v in views) / sum(map(len, data.views))
    assert metric_of_views(dots.task, model, data).accuracy == share
