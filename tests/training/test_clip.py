"""The clip: by brute force, the sensitivity for each relation holds, and is reached."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from clipped import clipped_sum
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import Relation
from dpose.training.clip import Clip, Grid
from dpose.training.gradients import trainable_params
from dpose.training.plan import TrainingPlan
from dpose.units import UnitBatch

WIDTH = 3
EMPTY = torch.zeros(1, WIDTH)


class Aligned:
    """The gradient of a unit is its picture: WIDTH weights, loss <w, x>."""

    name = "aligned"

    def loss(self, model, params, inputs, targets):
        return inputs @ params["weight"][0]


def sum_of(rows, clip):
    model = torch.nn.Linear(WIDTH, 1, bias=False)
    batch = UnitBatch(rows[:, None], {}, torch.ones(len(rows), 1))
    return clipped_sum(Aligned(), model, trainable_params(model), batch, clip)["weight"][0]


def moved(whole, other):
    """The squared distance, without rounding."""
    pairs = zip(whole.tolist(), other.tolist(), strict=True)
    return sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)


def neighbours_of(rows, relation, others):
    """Every neighbour: each unit in turn emptied, taken out, or exchanged for each of `others`."""
    for u in range(len(rows)):
        before, after = rows[:u], rows[u + 1 :]
        if relation is Relation.ZERO_OUT:
            yield torch.cat([before, EMPTY, after])
        elif relation is Relation.ADD_REMOVE:
            yield torch.cat([before, after])
        else:
            for other in (*others, -rows[u]):
                yield torch.cat([before, other[None], after])


ROWS = some.lists(some.lists(some.floats(-1e6, 1e6, width=32), min_size=WIDTH, max_size=WIDTH), min_size=2, max_size=5)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("normalised", [False, True])
@settings(max_examples=25, deadline=None)
@given(rows=ROWS, norm=some.floats(1e-4, 1e4))
def test_by_brute_force_no_neighbour_is_further_than_the_sensitivity(relation, normalised, rows, norm):
    clip, rows = Clip(norm, normalised), torch.tensor(rows)
    whole, limit = sum_of(rows, clip), Fraction(clip.sensitivity(relation)) ** 2
    for other in neighbours_of(rows, relation, rows):
        assert moved(whole, sum_of(other, clip)) <= limit


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("clip", [Clip(0.3), Clip(7.0), Clip(0.3, True), Clip(7.0, True)], ids=str)
def test_the_sensitivity_is_reached_and_what_is_accounted_is_a_units_share(relation, clip):
    rows = 100 * torch.ones(3, WIDTH)
    whole = sum_of(rows, clip)
    furthest = max(moved(whole, sum_of(other, clip)) for other in neighbours_of(rows, relation, ()))
    reached = {Relation.REPLACE: 2.0}.get(relation, 1.0) * (1.0 if clip.normalised else clip.norm)
    assert 0.999 * reached**2 <= furthest <= Fraction(reached) ** 2
    assert clip.sensitivity(relation) == reached
    plan = TrainingPlan(delta=1e-5, noise_multiplier=1.0, clip_norm=clip.norm, normalise=clip.normalised)
    assert plan.clip == clip
    assert Clip(clip.norm) == Clip(clip.norm, normalised=False)
    event = plan.bind(1000).event
    assert isinstance(event, SampledGaussian)
    assert event.sensitivity == clip.sensitivity(Relation.ZERO_OUT)  # doubled by accountants, not here


def test_rounding_to_the_grid_leaves_the_bound_as_it_is():
    for clip in (Clip(0.3), Clip(1e-30), Clip(1e30), Clip(0.3, True)):
        bound = Fraction(1 if clip.normalised else clip.norm)
        assert clip.grid == Grid.of(float(bound))
        step = Fraction(clip.grid.step)
        assert step**2 * clip.grid.most <= bound**2 < step**2 * (clip.grid.most + 1)
