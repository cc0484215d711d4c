"""Replays add up what each call would, at the weights and with the transform of their own step, and nothing else."""

import itertools
from dataclasses import replace

import pytest
import torch

from dots import train
from dpose.privacy.gaussian_noise import DrawnAhead, add_gaussian
from dpose.privacy.keys import kept_key
from dpose.privacy.ledger import read_ledger
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.training import bookkeeping, clip, gradients, layers, step, trainer
from dpose.training import run as loops
from dpose.training.batch_invariance import check_units_apart
from dpose.training.gradients import trainable_params
from dpose.training.loader import Loader
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.preclipping import Scales, stand_in
from dpose.training.reproducibility import CALL_BY_CALL, HOW
from dpose.training.step import StepInputs, private_gradient, replayed_sums
from dpose.units import UnitBatch, pad_units
from quick import quick  # noqa: F401
from refusals import refused
from replays import Unasking, called_again, recorded
from resumed import GRADIENT, killed
from resumed import quiet as quiet
from resumed import run as run_dots

N, UNASKING = 60, Unasking()


@pytest.fixture
def unasking(monkeypatch):
    """As on a GPU: kernels that ask the host nothing, and nothing kept as products."""
    for module in (bookkeeping, clip, gradients, layers):
        monkeypatch.setattr(module, "for_device", lambda device: UNASKING)
    monkeypatch.setattr(bookkeeping, "ghost_pays", lambda *sizes: False)


def engine_of(dots, record=None, task=None, **changes):
    """Inputs of steps that are replayed as `record` has it, or computed call by call."""
    given = {"epsilon": 3.0, "delta": 1e-4, "steps": 9, "expected_batch_size": 20, "clip_norm": 0.1, **changes}
    noise, task = AesNoise(Key.from_seed(3)), task or dots.task
    loader = Loader(task, dots.data(N), noise)
    inputs = StepInputs(task, task.build_model(), loader, TrainingPlan(**given).bind(N), noise, b"same", 4)
    return replace(inputs, replayed=replayed_sums(inputs, record)) if record else inputs


def transforms(params):
    """None, and two fits of each kind: new tensors for the same program."""
    scales = [Scales({n: torch.full_like(p, 10.0**k) for n, p in params.items()}) for k in (0, 1)]
    halved = stand_in(params, 3)
    halved = halved.with_tensors({n: t / 2 for n, t in halved.tensors().items()})
    return [None, None, stand_in(params, 3), halved, *scales, None]


def moved_weights(params, by):
    return {name: p + by * torch.linspace(-1, 1, p.numel()).view(p.shape) for name, p in params.items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_steps_that_are_replayed_are_todays_to_the_last_bit(dots):
    """Over every number of views, at new weights and after new fits: nothing of the step before is left."""
    plain, replayed = engine_of(dots), engine_of(dots, called_again)
    params = trainable_params(plain.model)
    found = []
    for number, transform in enumerate(transforms(params)):
        at = moved_weights(params, 0.3 * number)
        one, other = (
            private_gradient(replace(inputs, transform=transform), at, number) for inputs in (plain, replayed)
        )
        assert same(one, other), number
        found.append(one)
    assert not any(same(a, b) for a, b in itertools.combinations(found, 2))


def test_a_recorded_graph_follows_weights_and_fits(dots, unasking):
    """With a stand-in that runs no Python again: what is not copied into its buffers stays as it was."""
    plain, replayed = engine_of(dots), engine_of(dots, recorded)
    params = trainable_params(plain.model)
    for number, transform in enumerate(transforms(params)[1:4]):
        at = moved_weights(params, 0.3 * number)
        one, other = (
            private_gradient(replace(inputs, transform=transform), at, number) for inputs in (plain, replayed)
        )
        assert same(one, other), number
    assert replayed.replayed.how == "captured and replayed"


def test_an_empty_sample_has_totals_of_zero_whatever_was_before(dots, monkeypatch):
    inputs = engine_of(dots, called_again)
    params = trainable_params(inputs.model)
    private_gradient(inputs, params, 0)
    monkeypatch.setattr(step, "poisson_batch", lambda n, q, stream: torch.arange(0).numpy())
    sums = []
    monkeypatch.setattr(step, "add_gaussian", lambda given, *_: sums.append(given) or dict(given))
    private_gradient(inputs, params, 1)
    assert not any(value.any() for value in sums[0].values())


def batches_of(dots, units=4):
    data = dots.data(units, most=1)
    return dots.task.collate([data.load(k, None) for k in range(units)])


def total(replayed, params, *batches):
    replayed.begin(params, None)
    for batch in batches:
        replayed.add(batch)
    return replayed.totals()


def test_buffers_hold_no_unit_after_a_replay(dots):
    replayed = engine_of(dots, called_again).replayed
    params = trainable_params(dots.task.build_model())
    before = total(replayed, params, batches_of(dots))
    (program,) = replayed._programs.values()
    assert not program.place.weights.any()
    assert (program.place.inputs == 1).all()
    assert any(value.any() for value in before.values())
    program.replay()
    assert same(replayed.totals(), before), "what is replayed again adds nothing"


def test_places_that_no_unit_fills_add_nothing_whatever_they_hold(dots):
    replayed = engine_of(dots, called_again).replayed
    params = trainable_params(dots.task.build_model())
    batch = pad_units(batches_of(dots, 2), 4)
    worse = UnitBatch(batch.inputs.clone(), batch.targets, batch.weights)
    worse.inputs[2:] = 255
    alone = total(replayed, params, batch)
    assert same(alone, total(replayed, params, worse))
    assert not same(alone, total(replayed, params, pad_units(batches_of(dots, 1), 4)))


def test_recording_adds_no_unit(dots):
    """However often the function runs before it is replayed, and although a micro-batch waits."""
    once, often = called_again, lambda run: [run() for _ in range(3)] and run
    params = trainable_params(dots.task.build_model())
    totals = [total(engine_of(dots, record).replayed, params, batches_of(dots)) for record in (once, often)]
    assert same(*totals)
    noted = []

    def counting(run):
        run()
        noted.append(bool(replayed._totals.any()))
        return run

    replayed = engine_of(dots, counting).replayed
    total(replayed, params, batches_of(dots))
    assert noted
    assert not any(noted)


class Asking:
    """A task whose loss asks the host what a number is."""

    def __init__(self, task):
        self.task, self.name, self.collate, self.build_model = task, task.name, task.collate, task.build_model

    def loss(self, model, params, inputs, targets):
        found = self.task.loss(model, params, inputs, targets)
        return 2 * found if bool(torch.ones(()).add(1).item()) else found


def test_what_cannot_be_recorded_is_computed_call_by_call_and_says_so_once(dots, unasking):
    task = Asking(dots.task)
    plain, replayed = engine_of(dots, task=task), engine_of(dots, recorded, task=task)
    params = trainable_params(plain.model)
    with pytest.warns(UserWarning, match="call by call") as said:
        other = [private_gradient(replayed, params, number) for number in range(2)]
    assert len([one for one in said if "call by call" in str(one.message)]) == 1
    assert same(private_gradient(plain, params, 0), other[0])
    assert same(private_gradient(plain, params, 1), other[1])
    assert replayed.replayed.how.startswith("call by call")


def test_the_plain_way_is_never_recorded(dots, monkeypatch):
    monkeypatch.setattr(gradients, "track", lambda *given, **more: None)  # a use of a parameter escapes
    plain, replayed = engine_of(dots), engine_of(dots, called_again)
    params = trainable_params(plain.model)
    with pytest.warns(UserWarning, match="call by call"):
        other = private_gradient(replayed, params, 0)
    assert same(private_gradient(plain, params, 0), other)


def test_frozen_weights_that_are_elsewhere_are_recorded_anew(dots):
    inputs = engine_of(dots, called_again)
    inputs.model.register_buffer("held", torch.zeros(3))
    params = trainable_params(inputs.model)
    total(inputs.replayed, params, batches_of(dots))
    (first,) = inputs.replayed._programs.values()
    inputs.model.held.add_(1)
    total(inputs.replayed, params, batches_of(dots))
    assert next(iter(inputs.replayed._programs.values())) is first
    inputs.model.held = torch.zeros(3)
    total(inputs.replayed, params, batches_of(dots))
    assert next(iter(inputs.replayed._programs.values())) is not first


def test_a_transform_whose_tensors_are_not_told_is_not_replayed(dots):
    class Doubled:
        def each(self, gradients):
            return {name: 2 * g for name, g in gradients.items()}

        def like(self, params):
            return params

        def back(self, noised):
            return noised

    plain, replayed = (replace(engine_of(dots, r), transform=Doubled()) for r in (None, called_again))
    params = trainable_params(plain.model)
    assert same(private_gradient(plain, params, 0), private_gradient(replayed, params, 0))
    assert not replayed.replayed._programs


@pytest.mark.parametrize("fault", ["none", "the place of a unit", "other units"])
def test_units_are_seen_to_be_apart_in_what_steps_replay(dots, fault):
    """The gradients themselves are as they should be; only what is replayed has the fault."""
    replayed = engine_of(dots, called_again).replayed
    real = replayed._compute

    def mixing(params, batch, transform, *, only_fast):
        if fault == "the place of a unit":
            inputs = batch.inputs.clone()
            inputs[3] //= 2
            return real(params, replace(batch, inputs=inputs), transform, only_fast=only_fast)
        part = real(params, batch, transform, only_fast=only_fast)
        others = int(batch.weights.sum() > 3) if fault == "other units" else 0
        return {name: value + others for name, value in part.items()}

    replayed._compute = mixing
    given = (dots.task, dots.task.build_model(), batches_of(dots, 1), 4, 1, None, replayed)
    if fault == "none":
        check_units_apart(*given)
        assert replayed._programs
        return
    with refused("units-not-apart"):
        check_units_apart(*given)


# ---------------------------------------------------------------------------------------- noise that is drawn ahead


@pytest.mark.parametrize("grid_step", [None, 2.0**-20])
def test_noise_drawn_ahead_is_the_streams_own(grid_step):
    sums = {"b": torch.zeros(3, 5, dtype=torch.float64), "a": torch.ones(70, dtype=torch.float64)}

    def stream():
        return AesNoise(Key.from_seed(1)).stream(Purpose.NOISE, 4)

    now = add_gaussian(sums, 0.5, stream(), grid_step)
    assert same(now, add_gaussian(sums, 0.5, DrawnAhead(sums, 0.5, stream(), grid_step), grid_step))


def test_noise_drawn_ahead_is_for_one_sum_alone():
    sums = {"a": torch.zeros(4, dtype=torch.float64)}

    def ahead():
        return DrawnAhead(sums, 0.5, AesNoise(Key.from_seed(1)).stream(Purpose.NOISE, 4))

    for other in (
        lambda drawn: add_gaussian(sums, 0.25, drawn),
        lambda drawn: add_gaussian(sums, 0.5, drawn, 2.0**-20),
        lambda drawn: add_gaussian({"a": torch.zeros(5, dtype=torch.float64)}, 0.5, drawn),
        lambda drawn: add_gaussian(sums, 0.5, drawn) and add_gaussian(sums, 0.5, drawn),
    ):
        with pytest.raises(ValueError, match="alone"):
            other(ahead())


def test_a_replayed_step_draws_its_own_noise_and_no_other_steps(dots, monkeypatch):
    drawn, real = [], AesNoise.stream

    def stream(self, purpose, number=0, context=b""):
        if purpose is Purpose.NOISE:
            drawn.append((number, context))
        return real(self, purpose, number, context)

    monkeypatch.setattr(AesNoise, "stream", stream)
    inputs = engine_of(dots, called_again)
    params = trainable_params(inputs.model)
    for number in range(3):
        step.private_gradient(inputs, params, number, bytes([number]))
        assert drawn == [(k, b"same" + bytes([k])) for k in range(number + 1)]


# ---------------------------------------------------------------------------------------- whole runs

FITS = {"subspace": SubspaceConfig(rank=3, units=10, refresh=3)}
METHODS = {"dp-sgd": {"ema_decay": 0.8}, "pdp-sgd": FITS, "subspace-sgd": FITS, "scaled-sgd": FITS}


def seeded(dots, out, quiet, method):
    return train(
        dots.task,
        dots.task.build_model(),
        private=dots.data(40),
        public=dots.data(30, seed=5),
        plan=TrainingPlan(
            method, epsilon=8.0, delta=1e-4, steps=8, expected_batch_size=20, accountant="rdp", **METHODS[method]
        ),
        out=out,
        optimizer=OptimizerConfig("sgd", lr=0.3, options={"momentum": 0.9}),
        state_dir=out.parent / f"state-{out.name}",
        console=quiet,
        seed=7,
        microbatch_size=8,
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_replays_ends_where_one_call_by_call_does(dots, tmp_path, quiet, monkeypatch, method):
    """With average, and with fits that are made anew while it runs."""
    plain = seeded(dots, tmp_path / "plain", quiet, method)
    made, real = [], step.ReplayedSums.add
    monkeypatch.setattr(step.ReplayedSums, "add", lambda self, batch: made.append(1) or real(self, batch))
    monkeypatch.setattr(trainer, "recorder", lambda device: called_again)
    done = seeded(dots, tmp_path / "replayed", quiet, method)
    assert made
    assert torch.equal(plain.model.classify.weight, done.model.classify.weight)


def test_a_killed_run_that_replays_goes_on_under_its_key_and_not_call_by_call(dots, tmp_path, quiet, monkeypatch):
    """How steps are computed is part of what the key is bound to."""
    monkeypatch.setattr(loops, "CHECKPOINT_UNITS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "recorder", lambda device: called_again)
        killed(monkeypatch, GRADIENT, 9, dots, tmp_path / "run", quiet)
        entry = read_ledger(tmp_path / "run" / "ledger.jsonl")[0]
        assert kept_key(entry.run_id, tmp_path / "state").surroundings[HOW] == "captured and replayed"
        killed(monkeypatch, GRADIENT, 3, dots, tmp_path / "run", quiet, resume=True)
        keys = {e.key_id for e in read_ledger(tmp_path / "run" / "ledger.jsonl") if e.key_id}
        assert len(keys) == 1
    run_dots(dots, tmp_path / "run", quiet, resume=True)
    assert len({e.key_id for e in read_ledger(tmp_path / "run" / "ledger.jsonl") if e.key_id}) == 2
    assert CALL_BY_CALL != "captured and replayed"
