"""Faults of private steps in bfloat16, planted in the real path; each is rejected by the check meant for it."""

from __future__ import annotations

import pytest
import torch

from clipped import clipped_sum
from dpose.training import bookkeeping, layers
from dpose.training.clip import Clip
from dpose.training.kernels import cpu
from dpose.units import pad_units
from layered import MODELS, MixedTask, Mutant, emptied, norm, only, setup

VIEWS, CLIP = 3, 1e-3


def batch_of(name):
    _, model, params, batch = setup(MODELS[name](), torch.float32, VIEWS, units=8)
    return MixedTask(), model, params, batch


# ---------------------------------------------------------------------------------------------------- the checks


def a_unit_contributes_at_most_c(name):
    task, model, params, batch = batch_of(name)
    for u in range(len(batch)):
        alone = norm(clipped_sum(task, model, params, pad_units(only(batch, u), len(batch)), Clip(CLIP)))
        assert 0.999 * CLIP <= alone <= CLIP  # no more, and not dropped for being too large


def a_unit_that_goes_takes_its_own_share(name):
    """Brute force: the sum without it is the sum less what it adds by itself."""
    task, model, params, batch = batch_of(name)
    whole = clipped_sum(task, model, params, batch, Clip(CLIP))
    for u in range(len(batch)):
        rest = clipped_sum(task, model, params, emptied(batch, [u]), Clip(CLIP))
        alone = clipped_sum(task, model, params, pad_units(only(batch, u), len(batch)), Clip(CLIP))
        assert norm({n: whole[n] - rest[n] for n in whole}) <= CLIP
        assert norm({n: whole[n] - rest[n] - alone[n] for n in whole}) <= 1e-5 * CLIP


# ---------------------------------------------------------------------------------------------------- the faults


def sums_in_bfloat16(monkeypatch):
    """The sum over units as a product in bfloat16, rounded when all are in it."""
    real = bookkeeping.Bookkeeping.sums

    def rounded(self, *given):
        return {n: v.bfloat16().double() for n, v in real(self, *given).items()}

    monkeypatch.setattr(bookkeeping.Bookkeeping, "sums", rounded)


def factors_scaled_in_bfloat16(monkeypatch):
    """What is summed is rounded after it was measured."""
    real = bookkeeping.Bookkeeping.sums

    def rounded(self, scales, *given):
        return real(self, (scales * (1 + 2**-7)).bfloat16().float(), *given)

    monkeypatch.setattr(bookkeeping.Bookkeeping, "sums", rounded)


def norms_in_bfloat16(monkeypatch):
    """Long sums of squares in eight bits stop growing."""

    def squares(rows):
        total = torch.zeros(len(rows), dtype=torch.bfloat16)
        for column in rows.bfloat16().T:
            total += column.square()
        return total.float()

    monkeypatch.setattr(cpu.KERNELS, "square_norms", squares)
    monkeypatch.setattr(bookkeeping, "ghost_pays", lambda *sizes: False)


def weights_summed_over_units(monkeypatch):
    """A layer that takes the mean of the whole micro-batch off its gradient, as a rounded common part would."""
    real = layers.Linear.backward

    def mixing(self, x, weight, saved, gradient, wanted):
        return real(self, x, weight, saved, gradient + 2**-8 * gradient.nan_to_num().mean(0), wanted)

    monkeypatch.setattr(layers.Linear, "backward", mixing)


MUTANTS = [
    Mutant("the sum in bfloat16", sums_in_bfloat16, a_unit_that_goes_takes_its_own_share, "tokens"),
    Mutant("the sum in bfloat16, of factors", sums_in_bfloat16, a_unit_that_goes_takes_its_own_share, "linear, ghost"),
    Mutant("scaled in bfloat16", factors_scaled_in_bfloat16, a_unit_contributes_at_most_c, "linear, ghost"),
    Mutant("norms in bfloat16", norms_in_bfloat16, a_unit_contributes_at_most_c, "linear, ghost"),
    Mutant("units mixed by rounding", weights_summed_over_units, a_unit_that_goes_takes_its_own_share, "windows"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.fault)
def test_the_true_code_passes(mutant):
    mutant.check(mutant.model)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.fault)
def test_fault_is_rejected(mutant, monkeypatch):
    mutant.plant(monkeypatch)
    with pytest.raises(AssertionError):
        mutant.check(mutant.model)
