"""Replays add up what each call would, at the weights and with the transform of their own step, and nothing else."""

import contextlib
import itertools
from dataclasses import replace

import pytest
import torch
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from dots import train
from dpose.pose.codec import CODECS
from dpose.pose.model import PoseConfig, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.privacy.gaussian_noise import DrawnAhead, add_gaussian
from dpose.privacy.keys import kept_key
from dpose.privacy.ledger import read_ledger
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.training import bookkeeping, clip, gradients, layers, step, trainer
from dpose.training import run as loops
from dpose.training.dry_run import check_units_apart
from dpose.training.gradients import trainable_params
from dpose.training.graph import Captures, FromHost, ReplayedSums
from dpose.training.loader import Loader
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.preclipping import Scales, stand_in
from dpose.training.reproducibility import CALL_BY_CALL, HOW
from dpose.training.step import StepInputs, private_gradient, replayed_sums
from dpose.training.validation import Validation
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
    with pytest.warns(UserWarning, match=r"call by call, more slowly: .*tracing tensor") as said:
        other = [private_gradient(replayed, params, number) for number in range(2)]
    assert len([one for one in said if "slower" in str(one.message) or "slowly" in str(one.message)]) == 1
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
    for other in (inputs.model.held.view(3, 1), inputs.model.held.view(torch.int32), torch.zeros(3)):
        (first,) = inputs.replayed._programs.values()
        inputs.model.held = other
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


def test_targets_are_known_by_their_names():
    """Two of one shape and type, in another order from batch to batch."""

    def compute(params, batch, transform, *, only_fast):
        return {"w": ((batch.targets["a"] + 10 * batch.targets["b"]).nan_to_num() * batch.weights).sum().double()[None]}

    params = {"w": torch.zeros(1)}
    replayed = ReplayedSums(compute, torch.nn.Module(), called_again, lambda t: t.long())
    a, b = torch.full((2, 1), 1.0), torch.full((2, 1), 3.0)
    for targets in ({"a": a, "b": b}, {"b": b, "a": a}):
        assert total(replayed, params, UnitBatch(torch.zeros(2, 1, 1), targets, torch.ones(2, 1)))["w"].item() == 62
    assert len(replayed._programs) == 1


def test_a_replay_that_adds_up_something_else_is_not_taken(dots):
    """Nothing at all, for one: every comparison of totals with each other would hold."""
    plain, replayed = engine_of(dots), engine_of(dots, lambda run: (run(), lambda: None)[1])
    with pytest.warns(UserWarning, match="call by call, more slowly: a replay"):
        check_units_apart(dots.task, plain.model, batches_of(dots, 1), 4, 1, None, replayed.replayed)
    assert replayed.replayed.how.startswith("call by call")
    params = trainable_params(plain.model)
    assert same(private_gradient(plain, params, 0), private_gradient(replayed, params, 0))


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


# ---------------------------------------------------------------------------------------- captures


class Stream:
    def __init__(self, name="beside"):
        self.name = name

    def wait_stream(self, other):
        Cuda.done.append(f"{self.name} waits for {other.name}")


class Cuda:
    """What `Captures` asks of torch.cuda, without a GPU; a capture that fails stays in its stream, as torch's does."""

    done, at, fails = [], [Stream("main")], False

    class CUDAGraph:
        def pool(self):
            return self.given

        def replay(self):
            Cuda.done.append("replayed")

    @staticmethod
    @contextlib.contextmanager
    def stream(given):
        before = len(Cuda.at)
        Cuda.at.append(given)
        try:
            yield
        finally:
            del Cuda.at[before:]

    @staticmethod
    @contextlib.contextmanager
    def graph(graph, pool):
        graph.given = pool or object()
        Cuda.done.append("a pool of its own" if pool is None else "the pool that there is")
        Cuda.at.append(Stream("capture"))
        yield
        if Cuda.fails:
            raise RuntimeError("cannot be captured")
        Cuda.at.pop()


@pytest.fixture
def cuda(monkeypatch):
    for name, value in {"Stream": Stream, "current_stream": lambda: Cuda.at[-1]}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    for name in ("stream", "graph", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, getattr(Cuda, name))
    for name, value in (("done", []), ("at", [Stream("main")]), ("fails", False)):
        monkeypatch.setattr(Cuda, name, value)
    return Cuda


def test_a_capture_is_warmed_up_beside_and_shares_one_pool(cuda):
    captures = Captures()

    def run():
        cuda.done.append(f"runs on {cuda.at[-1].name}")

    warm = ["beside waits for main", *["runs on beside"] * 3, "main waits for beside"]
    replays = []
    for pool in ("a pool of its own", "the pool that there is", "the pool that there is"):
        replays.append(captures(run))
        assert cuda.done == [*warm, pool, "runs on capture"]
        cuda.done.clear()
    replays[1]()
    assert cuda.done == ["replayed"]
    del replays[:]  # and the pool with its last graph
    cuda.done.clear()
    replays.append(captures(run))
    assert "a pool of its own" in cuda.done


def test_a_capture_that_fails_leaves_the_stream_that_was(cuda):
    cuda.fails = True
    with pytest.raises(RuntimeError, match="captured"):
        Captures()(lambda: None)
    assert [stream.name for stream in cuda.at] == ["main"]


there = torch.zeros(2, device="meta")


@pytest.mark.parametrize(
    ("copies", "run"),
    [
        (True, lambda: torch.ops.aten.lift_fresh(there)),  # of a GPU's tensor, the end of `torch.tensor(numbers)`
        (True, lambda: torch.ones(()).to("meta")),
        (True, lambda: torch.empty(2, device="meta").copy_(torch.ones(2))),
        (True, lambda: there[torch.tensor([1, 0])]),
        (False, lambda: torch.full((2,), 3.0, device="meta") + there),
        (False, lambda: 2.0 * there[1:] + torch.arange(2, device="meta")),
        (False, lambda: there * torch.tensor(0.5)),
        (False, lambda: torch.tensor([1.0, 2.0]) + 1),
    ],
)
def test_copies_from_the_host_are_refused_before_a_capture(copies, run):
    refusal = pytest.raises(RuntimeError, match="from the host") if copies else contextlib.nullcontext()
    with refusal, FromHost("meta"):
        run()


@pytest.mark.parametrize("name", CODECS)
def test_no_codec_copies_numbers_from_the_host_in_its_loss(name):
    config = PoseConfig("nano", (64, 48), norm="folded")
    codec, joints = CODECS[name].make(config), 16
    if name == "blazepose":
        outputs = (torch.randn(2, 39, 5), torch.randn(2, 39, 64, 64), torch.randn(2, 1))
    else:
        features = torch.randn(2, 32, 64 // config.stride, 48 // config.stride)
        outputs = tuple(t.detach() for t in codec.head(32, joints, tuple(features.shape[2:])).eval()(features))

    def loss(outputs, keypoints, visible):
        return codec.loss(tuple(t[None] for t in outputs), keypoints[None], visible[None]).sum()

    given = (outputs, 48 * torch.rand(2, joints, 2), torch.ones(2, joints))
    graph = make_fx(lambda *each: vmap(grad(loss))(*each), tracing_mode="real")(*given)
    assert not [node for node in graph.graph.nodes if "lift_fresh" in str(node.target)]


NETWORKS = {
    "nano": ("light", (32, 32)),
    "lite0": ("full", (32, 32)),
    "timm:vit_tiny_patch16_224": ("full", (64, 64)),
    "vitpose:small": ("light", (32, 32)),
    "blazepose:lite": ("light", (256, 256)),
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("preset", NETWORKS)
def test_graphs_of_networks_give_what_each_call_does(dots, unasking, preset, precision):
    strategy, size = NETWORKS[preset]
    config = PoseConfig(preset, size, skeleton="blazepose" if preset.startswith("blaze") else "mpii")
    task = PoseTask(config.skeleton, CODECS[config.codec].make(config), precision=precision)
    torch.manual_seed(0)
    model = fold_batchnorm(task.build_model(config)).train()
    for p in model.parameters():  # zeros at the ends of branches would hide what stands before them
        p.data += 0.02 * torch.randn_like(p)
    apply_strategy(model, strategy)
    inputs = replace(engine_of(dots), task=task, model=model)
    targets = {"keypoints": min(size) * torch.rand(2, 1, config.joints, 2), "visible": torch.ones(2, 1, config.joints)}
    pictures = torch.randint(0, 256, (2, 1, 3, *size), dtype=torch.uint8)
    batch, params = UnitBatch(pictures, targets, torch.ones(2, 1)), trainable_params(model)
    replayed = replayed_sums(inputs, recorded)
    found = total(replayed, params, batch)
    assert replayed.how == "captured and replayed"
    called = step.clipped_part(inputs, params, batch)
    assert same(found, {name: inputs.bound.plan.clip.grid.steps(value) for name, value in called.items()})
    assert any(value.any() for value in found.values())


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
        validation_data=Validation(dots.data(9, seed=9), "dots", public=True),
        state_dir=out.parent / f"state-{out.name}",
        console=quiet,
        seed=7,
        microbatch_size=8,
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_replays_ends_where_one_call_by_call_does(dots, tmp_path, quiet, monkeypatch, method):
    """With average, scores between steps, and fits that are made anew while it runs."""
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


@pytest.mark.parametrize("falls", [False, True])
def test_a_run_gives_buffers_and_graphs_back_however_it_ends(dots, tmp_path, quiet, monkeypatch, falls):
    began, ended = [], []
    begin, close = ReplayedSums.begin, ReplayedSums.close
    monkeypatch.setattr(ReplayedSums, "begin", lambda self, *given: (began.append(self), begin(self, *given))[1])
    monkeypatch.setattr(ReplayedSums, "close", lambda self: (ended.append(self), close(self))[1])
    monkeypatch.setattr(trainer, "recorder", lambda device: called_again)
    if falls:
        monkeypatch.setattr(trainer, "_release", lambda run: 1 / 0)
    with pytest.raises(ZeroDivisionError) if falls else contextlib.nullcontext():
        seeded(dots, tmp_path / "run", quiet, "dp-sgd")
    assert began[-1] is ended[-1]
    assert (began[-1]._programs, began[-1]._params, len(began[-1]._totals)) == ({}, {}, 0)


def test_chance_in_a_loss_is_refused_and_never_recorded(dots, monkeypatch):
    """Its draws would be the device's: of the place of a unit, and the same in each replay."""
    made = []
    inputs = engine_of(dots, lambda run: made.append(run()) or run)
    real = inputs.task.loss
    monkeypatch.setattr(inputs.task, "loss", lambda *given: torch.nn.functional.dropout(real(*given), 0.5))
    inputs.replayed.begin(trainable_params(inputs.model), None)
    with pytest.warns(UserWarning, match="call by call"), refused("model-draws-random"):
        inputs.replayed.add(batches_of(dots))
    assert not made
