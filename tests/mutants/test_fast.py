"""Faults of the fast per-unit gradients, planted in the real path; each is rejected by the check meant for it.

What a wrong norm costs is the guarantee itself: a unit then adds more to the sum than the noise is for.
"""

from __future__ import annotations

import pytest
import torch

from clipped import clipped_sum
from dpose.training import bookkeeping as book
from dpose.training import grad_sample, gradients, layers
from dpose.training.clip import Clip, Grid
from dpose.training.grad_sample import track
from dpose.training.gradients import unit_loss
from dpose.training.kernels import cpu, reference
from layered import MODELS, Mutant, distance, norm, only, setup, without

VIEWS, PLACES, WINDOW = 3, 16, 4
SMALL = 1e-3
"""A clipping norm below every unit's norm: what a unit adds has that norm, and not less as if it were dropped."""


def batch_of(name):
    return setup(MODELS[name](), torch.float32, VIEWS)


# ---------------------------------------------------------------------------------------------------- the checks


def the_sum_is_that_of_the_plain_way(name, monkeypatch):
    task, model, params, batch = batch_of(name)
    got, plain = (clipped_sum(task, model, params, batch, Clip(SMALL), way=way) for way in ("fast", "plain"))
    assert distance(got, plain) <= 1e-5


def a_unit_contributes_at_most_c(name, monkeypatch):
    task, model, params, batch = batch_of(name)
    for u in range(len(batch)):
        assert 0.999 * SMALL <= norm(clipped_sum(task, model, params, only(batch, u), Clip(SMALL))) <= SMALL


def a_unit_that_goes_takes_its_own_share(name, monkeypatch):
    """Brute force: the others' contributions do not know of it."""
    task, model, params, batch = batch_of(name)
    whole = clipped_sum(task, model, params, batch, Clip(SMALL))
    for u in range(len(batch)):
        rest = clipped_sum(task, model, params, without(batch, u), Clip(SMALL))
        assert norm({n: whole[n] - rest[n] for n in whole}) <= SMALL * (1 + 1e-5)  # of another shape


def a_unit_that_is_not_finite_is_dropped(name, monkeypatch):
    task, model, params, batch = batch_of(name)
    clean = clipped_sum(task, model, params, without(batch, 1), Clip(SMALL))
    batch.inputs[1] = float("nan")
    assert distance(clipped_sum(task, model, params, batch, Clip(SMALL)), clean) <= 1e-4


def a_small_clip_keeps_the_bound(name, monkeypatch):
    """On a grid of four steps, where a step too many is a quarter of C."""
    coarse = Grid.of(SMALL, bits=2)
    monkeypatch.setattr(Clip, "grid", coarse)
    task, model, params, batch = batch_of(name)
    for u in range(len(batch)):
        assert norm(clipped_sum(task, model, params, only(batch, u), Clip(SMALL))) <= SMALL


def opposite_places_are_bounded(name, monkeypatch):
    """Two places whose gradients cancel to rounding: what rounding leaves in the sum is bounded as well."""
    torch.manual_seed(0)
    a, b = torch.randn(1, 1, 4096).repeat(1, 2, 1), torch.randn(1, 1, 64)
    found = book.Bookkeeping({"w": torch.Size((64, 4096))}, 1, products=True)
    found.add_products("w", a, torch.cat([b, -b * (1 + 3e-7)], 1))
    scales = gradients.clip_scales(found.norms(), Clip(1e-9))
    exact = (found._pairs["w"][1].double().mT @ found._pairs["w"][0].double()).norm()
    rounding = 2.0**-24 * found._pairs["w"][0].norm() * found._pairs["w"][1].norm()
    assert float(scales[0]) * float(exact + rounding) <= 1e-9


def a_norm_does_not_know_its_place(name, monkeypatch):
    """Of five units over many parameters: four are added up side by side, and the last by itself."""
    numbers = torch.Generator().manual_seed(0)
    for small in (0, book._SMALL) * 10:
        monkeypatch.setattr(book, "_SMALL", small)
        rows = torch.randn(130, 5, 3, generator=numbers)
        books = (book.Bookkeeping({}, 5, products=False), book.Bookkeeping({}, 5, products=False))
        for i, row in enumerate(rows):
            for each, values in zip(books, (row, row.roll(1, 0)), strict=True):
                each._whole[str(i)] = values
        assert torch.equal(books[0].norms().roll(1), books[1].norms())


# ---------------------------------------------------------------------------------------------------- the faults


def apart(size):
    """Norms from products in which only pairs of places of the same run of `size` places meet."""

    def plant(monkeypatch):
        def squares(inputs, outputs):
            a, b = (t.unflatten(1, (-1, size)) for t in (inputs, outputs))
            return ((a @ a.mT) * (b @ b.mT)).sum((1, 2, 3))

        monkeypatch.setattr(book, "ghost_pays", lambda *sizes: True)
        monkeypatch.setattr(book, "_ghost_squares", squares)

    return plant


def whole_gradients_view_by_view(monkeypatch):
    real = reference.in_groups

    def apart_(x, gradient, *rest):
        parts = [real(x[:, v : v + 1], gradient[:, v : v + 1], *rest) for v in range(x.shape[1])]
        return torch.stack(parts).square().sum(0).sqrt()

    monkeypatch.setattr(reference, "in_groups", apart_)


def rows_by_a_guess(monkeypatch):
    """Tokens counted out to units in the order in which they lie in a map that has windows outermost."""
    real = layers.Linear.backward

    def shuffled(self, x, weight, saved, gradient, wanted):
        found = real(self, x, weight, saved, gradient, wanted)
        a, b = (t.flatten(1, -2).transpose(0, 1).reshape(len(x), -1, t.shape[-1]) for t in (x, gradient))
        self.book._whole.pop(self.weight, None)
        self.book._pairs.pop(self.weight, None)
        self.book.add_products(self.weight, a, b)
        return found

    monkeypatch.setattr(layers.Linear, "backward", shuffled)


def no_bias_table(monkeypatch):
    monkeypatch.setattr(layers.LookupTable, "backward", lambda *arguments: None)


def no_bias(monkeypatch):
    real = layers.Linear.__init__
    monkeypatch.setattr(layers.Linear, "__init__", lambda self, book, weight, bias: real(self, book, weight, None))


def uses_measured_apart(monkeypatch):
    """A weight that is used twice, as if it were two weights."""
    real = book.Bookkeeping.add

    def add(self, name, value):
        self.__dict__.setdefault("squares", []).append(cpu.KERNELS.square_norms(value.flatten(1)))
        real(self, name, value)

    monkeypatch.setattr(book.Bookkeeping, "add", add)
    monkeypatch.setattr(book, "ghost_pays", lambda *sizes: False)
    monkeypatch.setattr(book.Bookkeeping, "norms", lambda self: torch.stack(self.squares).sum(0).sqrt())


def half_of_the_gradients(first):
    """The backward pass as if it gave nothing for the parameters themselves, or for their copies."""

    def plant(monkeypatch):
        real = torch.autograd.grad

        def blind(outputs, inputs, *more, **options):
            found = list(real(outputs, inputs, *more, **options))
            if more:  # the plain way's own backward pass
                return found
            half = len(inputs) // 2
            found[slice(0, half) if first else slice(half, None)] = [None] * half
            return found

        monkeypatch.setattr(grad_sample.torch.autograd, "grad", blind)

    return plant


def units_scaled_and_not_dropped(monkeypatch):
    """Neither by their norm nor by what they are on the grid."""
    real = gradients.clip_scales
    monkeypatch.setattr(gradients, "clip_scales", lambda *given: real(*given).clamp_min(1e-9))
    nobody_looks_at_the_grid(monkeypatch)


def nobody_looks_at_the_grid(monkeypatch):
    monkeypatch.setattr(Grid, "within", lambda self, squares: torch.ones_like(squares, dtype=torch.bool))


def half_norms(monkeypatch):
    real = book.Bookkeeping.norms
    monkeypatch.setattr(book.Bookkeeping, "norms", lambda self: real(self) / 2)


def half_norms_unseen(monkeypatch):
    half_norms(monkeypatch)
    nobody_looks_at_the_grid(monkeypatch)


def truncation_away_from_zero(monkeypatch):
    real = Grid.add

    def add(self, rows, factors, *given):
        real(self, rows + rows.sign() * (0.999 * self.step / factors)[:, None], factors, *given)

    monkeypatch.setattr(Grid, "add", add)
    nobody_looks_at_the_grid(monkeypatch)


def norms_added_side_by_side(monkeypatch):
    monkeypatch.setattr(book, "total_norms", lambda squares: torch.stack(squares).sum(0).sqrt())


def norms_without_slack(monkeypatch):
    monkeypatch.setattr(book, "SLACK", 0.0)


MUTANTS = [
    Mutant("no cross terms between views", apart(PLACES), a_unit_contributes_at_most_c, "tokens"),
    Mutant(
        "no cross terms between views, whole",
        whole_gradients_view_by_view,
        the_sum_is_that_of_the_plain_way,
        "depthwise",
    ),
    Mutant("a window taken as a unit", apart(WINDOW), a_unit_contributes_at_most_c, "windows"),
    Mutant("a place taken as a unit", apart(1), a_unit_contributes_at_most_c, "tokens"),
    Mutant("rows given to units by a guess", rows_by_a_guess, a_unit_that_goes_takes_its_own_share, "windows first"),
    Mutant("a missing bias table", no_bias_table, the_sum_is_that_of_the_plain_way, "windows"),
    Mutant("a missing bias", no_bias, the_sum_is_that_of_the_plain_way, "tokens"),
    Mutant(
        "parameters of unknown functions forgotten",
        half_of_the_gradients(first=False),
        the_sum_is_that_of_the_plain_way,
        "strange",
    ),
    Mutant("uses of one weight measured apart", uses_measured_apart, a_unit_contributes_at_most_c, "shared"),
    Mutant("a use that is not seen", half_of_the_gradients(first=True), the_sum_is_that_of_the_plain_way, "hidden"),
    Mutant("0 * nan", units_scaled_and_not_dropped, a_unit_that_is_not_finite_is_dropped, "tokens"),
    Mutant("norms that are too small", half_norms, a_unit_contributes_at_most_c, "tokens"),
    Mutant("norms that are too small, unseen", half_norms_unseen, a_unit_contributes_at_most_c, "tokens"),
    Mutant("truncation away from zero", truncation_away_from_zero, a_small_clip_keeps_the_bound, "tokens"),
    Mutant("rounding above the norm", norms_without_slack, opposite_places_are_bounded, "tokens"),
    Mutant("units added up side by side", norms_added_side_by_side, a_norm_does_not_know_its_place, "tokens"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.fault)
def test_the_true_code_passes(mutant, monkeypatch):
    mutant.check(mutant.model, monkeypatch)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.fault)
def test_fault_is_rejected(mutant, monkeypatch):
    mutant.plant(monkeypatch)
    with pytest.raises(AssertionError):
        mutant.check(mutant.model, monkeypatch)


def test_no_check_passes_by_the_plain_way():
    """The models of the mutants run the code that the faults are in."""
    for mutant in MUTANTS:
        task, model, params, batch = batch_of(mutant.model)
        seen = track(unit_loss(task, model), params, batch.parts, products=True)
        assert (seen is None) == (mutant.model == "hidden")
