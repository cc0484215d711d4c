"""What a real run passes to its sampler, its clipping and its noise is what its accountant counts, and nothing else."""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from dots import train
from dpose.privacy.entries import EntryType, read_ledger
from dpose.privacy.events import SampledGaussian, event_from_dict
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.training import step
from dpose.training.clip import Clip
from dpose.training.distributed import ProcessGroup
from dpose.training.gradients import trainable_params
from dpose.training.loader import Copies, Loader
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.step import StepInputs, global_norm, plain_batches, private_gradient
from dpose.units import MAX_VIEWS
from refusals import refused
from replays import called_again

N, BATCH, STEPS = 50, 10, 4


@dataclass
class Seen:
    """What a run passed, call by call."""

    sampled: list[dict[str, Any]] = field(default_factory=list)
    clipped: list[dict[str, Any]] = field(default_factory=list)
    noised: list[dict[str, Any]] = field(default_factory=list)
    divided: list[float] = field(default_factory=list)
    streams: list[tuple[Purpose, int, bytes]] = field(default_factory=list)
    events: list[SampledGaussian] = field(default_factory=list)


def a_plan(**changes):
    values = {
        "method": "dp-sgd",
        "noise_multiplier": 1.5,
        "delta": 1e-4,
        "steps": STEPS,
        "expected_batch_size": BATCH,
        "accountant": "rdp",
        "clip_norm": 0.25,
        **changes,
    }
    return TrainingPlan(**values)


def spied(dots, folder: Path, monkeypatch, plan, units=N):
    """A whole run through the front door, with every call of sampler, clipping and noise written down."""
    seen = Seen()
    asked: dict[int, tuple[Purpose, int, bytes]] = {}
    kept = []
    real_stream = AesNoise.stream

    def stream(self, purpose, step=0, context=b""):
        given = real_stream(self, purpose, step, context)
        kept.append(given)  # or its number would be another's
        asked[id(given)] = (purpose, step, context)
        seen.streams.append(asked[id(given)])
        return given

    def watch(name, where):
        real = getattr(step, name)

        def call(*arguments, **options):
            passed = dict(inspect.signature(real).bind(*arguments, **options).arguments)
            if "stream" in passed:
                passed["stream"] = asked[id(passed["stream"])]
            where.append(passed)
            return real(*arguments, **options)

        monkeypatch.setattr(step, name, call)

    monkeypatch.setattr(AesNoise, "stream", stream)
    for name, where in (("poisson_batch", seen.sampled), ("clipped_sum", seen.clipped), ("add_gaussian", seen.noised)):
        watch(name, where)
    train(
        dots.task,
        dots.task.build_model(),
        private=dots.data(units),
        plan=plan,
        out=folder / "run",
        optimizer=OptimizerConfig("sgd", lr=0.1, schedule="constant", warmup=0.0),
        state_dir=folder / "state",
        console=Console(quiet=True),
    )
    entries = read_ledger(folder / "run" / "ledger.jsonl")
    seen.events = [event_from_dict(e.event, kind=SampledGaussian) for e in entries if e.type is EntryType.RESERVE]
    return seen


RELATIONS = pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({}, BATCH / N),
        ({"normalise": False}, BATCH / N),
        # fixed beforehand, whatever the number there really is
        ({"relation": "add-or-remove", "nominal_units": 80}, BATCH / 80),
        ({"relation": "replace", "accountant": "pld"}, BATCH / N),
    ],
    ids=["zero-out", "not normalised", "add-or-remove", "replace"],
)


@RELATIONS
def test_sampler_clipping_and_noise_get_what_is_accounted(dots, tmp_path, monkeypatch, changes, rate):
    plan = a_plan(**changes)
    seen = spied(dots, tmp_path, monkeypatch, plan)
    assert sum(event.steps for event in seen.events) == STEPS
    (kind,) = {(event.q, event.sigma, event.sensitivity) for event in seen.events}
    assert kind == (rate, 1.5, 1.0 if plan.normalise else plan.clip_norm)
    # every unit there is, at the accounted rate; once a step
    assert [(call["n"], call["rate"]) for call in seen.sampled] == [(N, rate)] * STEPS
    # every coordinate of every tensor, at the accounted standard deviation; once a step
    assert [call["stddev"] for call in seen.noised] == [kind[1] * kind[2]] * STEPS
    names = set(trainable_params(dots.task.build_model()))
    assert all(set(call["sums"]) == names for call in seen.noised)
    assert seen.clipped
    for call in seen.clipped:
        assert call["clip"] == Clip(plan.clip_norm, plan.normalise)


@RELATIONS
def test_every_step_has_a_sample_and_noise_of_its_own(dots, tmp_path, monkeypatch, changes, rate):
    seen = spied(dots, tmp_path, monkeypatch, a_plan(**changes))
    for calls, purpose in ((seen.sampled, Purpose.PRIVATE_SAMPLER), (seen.noised, Purpose.NOISE)):
        streams = [call["stream"] for call in calls]
        assert [(p, number) for p, number, _ in streams] == [(purpose, k) for k in range(STEPS)]
        # the past is in it: a step that is taken again after another one draws anew
        assert len({context for _, _, context in streams}) == STEPS
        assert all(len(context) >= 32 for _, _, context in streams)
    # of one step, both come from the same past
    assert [c["stream"][2] for c in seen.sampled] == [c["stream"][2] for c in seen.noised]
    drawn = defaultdict(int)
    for asked in seen.streams:
        drawn[asked] += asked[0] in (Purpose.PRIVATE_SAMPLER, Purpose.NOISE)
    assert max(drawn.values()) == 1


def test_the_number_of_units_moves_no_constant_under_add_or_remove(dots, tmp_path, monkeypatch):
    """What is published of two neighbours' runs has the same constants."""
    plan = a_plan(relation="add-or-remove", nominal_units=80)
    with monkeypatch.context() as patch:
        one = spied(dots, tmp_path / "a", patch, plan)
    with monkeypatch.context() as patch:
        other = spied(dots, tmp_path / "b", patch, plan, units=N - 1)
    assert one.events == other.events
    assert {c["rate"] for c in one.sampled} == {c["rate"] for c in other.sampled} == {BATCH / 80}
    assert {c["stddev"] for c in one.noised} == {c["stddev"] for c in other.noised}
    assert ({c["n"] for c in one.sampled}, {c["n"] for c in other.sampled}) == ({N}, {N - 1})


def an_engine(dots, plan, n=N, key=1):
    model, noise = dots.task.build_model(), AesNoise(Key.from_seed(key))
    return StepInputs(dots.task, model, Loader(dots.task, dots.data(n), noise), plan.bind(n), noise, b"here", 8)


@pytest.mark.parametrize(
    ("changes", "divisor"),
    [({}, BATCH), ({"relation": "add-or-remove", "nominal_units": 80}, BATCH), ({"expected_batch_size": 99}, N)],
)
def test_the_divisor_is_the_plans_and_not_the_samples(dots, monkeypatch, changes, divisor):
    engine = an_engine(dots, a_plan(**changes))
    monkeypatch.setattr(
        step, "add_gaussian", lambda sums, stddev, stream, *_: {n: torch.ones_like(v) for n, v in sums.items()}
    )
    for number in range(3):
        for value in private_gradient(engine, trainable_params(engine.model), number).values():
            torch.testing.assert_close(value, torch.full_like(value, 1 / divisor))


def test_every_micro_batch_is_summed_and_told_of(dots, monkeypatch):
    """However many there are, each counts once; and the weights' own gradients start at nothing."""
    engine = an_engine(dots, a_plan(expected_batch_size=40))
    told, batches = [], []

    def summed(loss, params, units, clip, **more):
        batches.append(units)
        return {name: torch.ones_like(p) for name, p in params.items()}

    monkeypatch.setattr(step, "clipped_sum", summed)
    monkeypatch.setattr(step, "add_gaussian", lambda sums, stddev, stream, *_: dict(sums))
    gradient = private_gradient(engine, trainable_params(engine.model), 0, on_micro_batch=lambda: told.append(1))
    assert len(batches) > 2
    assert len(told) == len(batches)
    for value in gradient.values():
        torch.testing.assert_close(value * engine.bound.divisor, torch.full_like(value, float(len(batches))))


def test_the_loader_gets_sample_step_and_micro_batch(dots, monkeypatch):
    """Padded: every unit is computed in a batch of one shape, whoever else was drawn."""
    engine = an_engine(dots, a_plan())
    asked = []
    real = engine.loader.micro_batches

    def spy(indices, step, microbatch_size, *, padded=False):
        asked.append((list(indices), step, microbatch_size, padded))
        return real(indices, step, microbatch_size, padded=padded)

    monkeypatch.setattr(engine.loader, "micro_batches", spy)
    drawn = []
    sampler = step.poisson_batch
    monkeypatch.setattr(step, "poisson_batch", lambda *a: drawn.append(sampler(*a)) or drawn[-1])
    private_gradient(engine, trainable_params(engine.model), 3)
    assert asked == [(drawn[0].tolist(), 3, 8, True)]
    asked.clear()
    step.plain_gradient(engine, trainable_params(engine.model), np.array([5, 2]), 4)
    assert asked == [([5, 2], 4, 8, False)]


def test_the_public_loss_is_the_mean_over_units_whatever_the_micro_batch(dots):
    found = []
    for room in (1, 4, 64):
        engine = replace(an_engine(dots, a_plan()), microbatch_size=room)
        gradient, loss = step.plain_gradient(engine, trainable_params(engine.model), np.arange(11), 0)
        assert isinstance(loss, float)
        found.append((torch.cat([g.flatten() for g in gradient.values()]), loss))
    engine = an_engine(dots, a_plan())
    params = trainable_params(engine.model)
    alone = [step.plain_gradient(engine, params, np.array([k]), 0)[1] for k in range(11)]
    for gradient, loss in found:
        torch.testing.assert_close(gradient, found[0][0], rtol=1e-4, atol=1e-6)
        assert loss == pytest.approx(sum(alone) / 11, rel=1e-5)


def test_empty_units_change_nothing_of_the_public_gradient(dots, monkeypatch):
    engine = an_engine(dots, a_plan())
    given = (engine, trainable_params(engine.model), np.arange(11), 0)
    gradient, loss = step.plain_gradient(*given)
    real = engine.loader.micro_batches
    sizes = []

    def filled(*asked, padded):  # as on a GPU
        for batch in real(*asked, padded=True):
            sizes.append(batch.weights.numel())
            yield batch

    monkeypatch.setattr(engine.loader, "micro_batches", filled)
    again, same = step.plain_gradient(*given)
    assert set(sizes) == {8}
    assert same == pytest.approx(loss, rel=1e-6)
    for name, value in gradient.items():
        torch.testing.assert_close(again[name], value, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("replayed", [False, True])
def test_noise_is_drawn_ahead_of_sums_that_are_replayed(dots, monkeypatch, replayed):
    """In a thread, from before the first micro-batch on; a processor draws it when it has the sums."""
    inputs, order = an_engine(dots, a_plan()), []
    inputs = replace(inputs, replayed=step.replayed_sums(inputs, called_again) if replayed else None)
    ahead, part = step.noise_ahead, step.clipped_part
    monkeypatch.setattr(step, "noise_ahead", lambda *given: order.append("noise") or ahead(*given))
    monkeypatch.setattr(step, "clipped_part", lambda *given: order.append("sum") or part(*given))
    private_gradient(inputs, trainable_params(inputs.model), 0)
    assert order.count("noise") == replayed
    assert order[0] == ("noise" if replayed else "sum")


def test_another_past_gives_another_sample_and_noise(dots):
    engine = an_engine(dots, a_plan())
    params = trainable_params(engine.model)
    first = private_gradient(engine, params, 0, b"one past")
    again = private_gradient(an_engine(dots, a_plan()), params, 0, b"another past")
    assert all(not torch.equal(first[name], again[name]) for name in first)


def test_processes_share_the_sample_and_one_adds_the_noise(dots, monkeypatch):
    """Each unit is one process's; what another process hands back is no gradient of anybody."""
    sample = np.arange(4, 21)  # by their numbers: not by their places in the sample
    shares = [step._share(sample, ProcessGroup(index, 3)) for index in range(3)]
    assert sorted(i for share in shares for i in share) == sample.tolist()
    assert [len(share) for share in shares] == [5, 6, 6]
    # where copies of a unit stand apart from it, all of them are read by the process that has its pictures
    numbers = [place // 2 for place in range(21)]
    shares = [step._share(sample, ProcessGroup(index, 3), numbers) for index in range(3)]
    assert sorted(i for share in shares for i in share) == sample.tolist()
    assert [{numbers[i] % 3 for i in share} for share in shares] == [{0}, {1}, {2}]
    noised = []
    monkeypatch.setattr(step, "add_gaussian", lambda *a: noised.append(a) or a[0])
    monkeypatch.setattr(
        ProcessGroup, "sum_to_first", lambda self, sums: {n: torch.zeros_like(v) for n, v in sums.items()}
    )
    engine = an_engine(dots, a_plan())
    other = replace(engine, ranks=ProcessGroup(1, 2))
    got = private_gradient(other, trainable_params(engine.model), 0)
    assert not noised
    assert all((value == 0).all() for value in got.values())


def test_the_norm_is_over_all_tensors():
    assert global_norm({"a": torch.tensor([3.0]), "b": torch.tensor([[0.0, 4.0]])}) == 5.0
    assert isinstance(global_norm({"a": torch.ones(1)}), float)


# ------------------------------------------------------------------------------------------------ units' own draws


class Drawn:
    """Units that are all alike, and write down what each was augmented with."""

    def __init__(self, dots, n=40):
        self.one = dots.data(1).views[0][:1]
        self.n, self.drawn = n, defaultdict(list)

    def __len__(self):
        return self.n

    def unit_id(self, index):
        return f"unit-{index}"

    def content_hashes(self, index):
        return (f"hash-{index}",)

    def load(self, index, rng):
        self.drawn[index].append(int(rng.integers(1 << 62)))
        return list(self.one)


def a_loader(dots, data, label=b"", threads=2, key=0):
    return Loader(dots.task, data, AesNoise(Key.from_seed(key)), threads=threads, label=label)


def test_augmentation_goes_with_the_unit_and_not_with_its_place(dots):
    """A neighbour's sample has every other unit in another place: their draws must not move."""
    data = Drawn(dots)
    loader = a_loader(dots, data)
    for indices in ([4, 9, 17, 30], [9, 17, 30], [30, 2, 17, 4, 9], [9]):
        for batch in loader.micro_batches(indices, 3, 2):
            assert len(batch) > 0
    for index in (4, 9, 17, 30):
        alone = Drawn(dots)
        a_loader(dots, alone).unit(index, 3)
        assert set(data.drawn[index]) == set(alone.drawn[index])
    firsts = [draws[0] for draws in data.drawn.values()]
    assert len(set(firsts)) == len(firsts)


def test_augmentation_differs_by_step_label_and_key(dots):
    data = Drawn(dots)
    for number, label, key in ((0, b"", 0), (1, b"", 0), (0, b"public", 0), (0, b"", 1)):
        list(a_loader(dots, data, label, key=key).units([5], number))
    assert len(set(data.drawn[5])) == 4


def test_streams_of_augmentation_are_augmentations(dots, monkeypatch):
    """A sampler's or the noise's bits are nobody else's."""
    asked = []
    real = AesNoise.stream
    monkeypatch.setattr(AesNoise, "stream", lambda self, *a: asked.append(a) or real(self, *a))
    a_loader(dots, Drawn(dots), b"label").unit(7, 2)
    ((purpose, number, context),) = asked
    assert (purpose, number) == (Purpose.AUGMENT, 2)
    assert context == (7).to_bytes(8, "big") + b"label"


def test_units_come_in_order_and_few_are_decoded_ahead(dots):
    data = Drawn(dots, n=200)
    loader = a_loader(dots, data, threads=1)
    coming = loader.units(range(200), 0)
    for taken in range(200):
        assert len(next(coming)) == 1
        assert len(data.drawn) <= taken + 6
    assert next(coming, None) is None
    assert list(data.drawn) == list(range(200))
    loader.close()
    with pytest.raises(RuntimeError):
        loader.unit and list(loader.units([0], 0))


def test_many_views_are_cut_to_a_random_few(dots):
    data = dots.data(1)
    few = list(range(MAX_VIEWS + 5))
    data.views[0] = few  # stands for views: only their places matter
    chosen = [tuple(a_loader(dots, data, key=key).unit(0, 0)) for key in range(12)]
    assert all(len(set(one)) == MAX_VIEWS and list(one) == sorted(one) for one in chosen)
    assert len(set(chosen)) > 6
    assert set().union(*chosen) == set(few)
    data.views[0] = few[:MAX_VIEWS]
    assert a_loader(dots, data).unit(0, 0) == few[:MAX_VIEWS]


def test_micro_batches_hold_as_much_as_they_may_and_are_filled_up_where_asked(dots):
    data = dots.data(30, seed=2)  # 1, 2 or 3 views
    loader = a_loader(dots, data)
    for room in (1, 4, 8):
        for padded in (False, True):
            batches = list(loader.micro_batches(range(30), 0, room, padded=padded))
            weights = [b.weights for b in batches]
            assert sum(int((w.sum(1) > 0).sum()) for w in weights) == 30
            for w in weights:
                most = max(1, room // w.shape[1])
                assert len(w) == most if padded else len(w) <= most
            full = [w for w in weights if len(w) == max(1, room // w.shape[1])]
            assert len(full) >= len(weights) - 3  # at most one of each kind is not


def test_copies_are_loads_one_after_the_other(dots):
    data = Drawn(dots, n=3)
    copies = Copies(data, 4)
    assert len(copies) == 3
    assert copies.unit_id(2) == "unit-2"
    assert copies.content_hashes(1) == ("hash-1",)
    assert len(copies.load(1, np.random.default_rng(0))) == 4
    assert len(set(data.drawn[1])) == 4
    for count in (1, MAX_VIEWS):
        assert Copies(data, count).count == count
    for count in (0, -1, MAX_VIEWS + 1):
        with refused("augmentation-multiplicity-out-of-range"):
            Copies(data, count)


def test_public_batches_go_through_everybody_epoch_by_epoch(dots):
    """And go on where an interrupted run stopped."""

    def batches(first=0, key=1, context=b"here"):
        engine = an_engine(dots, a_plan(expected_batch_size=20), n=50, key=key)
        return plain_batches(replace(engine, context=context), first)

    whole = batches()
    taken = [next(whole) for _ in range(9)]
    assert [len(b) for b in taken] == [20, 20, 10] * 3
    epochs = [np.concatenate(taken[k : k + 3]) for k in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    for first in range(8):
        assert np.array_equal(next(batches(first)), taken[first])
    assert not np.array_equal(next(batches(key=2)), taken[0])
    assert not np.array_equal(next(batches(context=b"there")), taken[0])
