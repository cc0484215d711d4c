"""What a first step would refuse is refused before the account is charged and before anything is written."""

from functools import partial

import pytest
import torch
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from dots import Dots, train
from dpose.account import charges
from dpose.training.methods import SubspaceConfig
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.public_view import PublicView
from dpose.units import UnitBatch, pad_views
from refusals import refused

SETTINGS = {"epsilon": 8.0, "delta": 1e-4, "steps": 4, "expected_batch_size": 10, "accountant": "rdp"}
VIEW = PublicView("pixelize", width=86.0)  # blocks of 2x2 in pictures of 6x6


def in_bfloat16(task, **attributes):
    """The task with its loss under autocast."""

    class Short(type(task)):
        def loss(self, *arguments):
            with torch.autocast("cpu", torch.bfloat16):
                return super().loss(*arguments).float()

    return type("Short", (Short,), attributes)()


class Writes(torch.nn.Linear):
    """Keeps the last input's mean, as batch normalisation would."""

    def __init__(self, *size):
        super().__init__(*size)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = torch.ones(())
        return super().forward(x)


class Draws(torch.nn.Linear):
    """Drops inputs with a function, where no layer tells of it."""

    def forward(self, x):
        return super().forward(torch.nn.functional.dropout(x, 0.5))


class Jitters(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x + 0.1 * torch.randn_like(x))


class Asks(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum().item() > 0 else super().forward(-x)


class Recurs(torch.nn.Linear):
    """Torch's GRU adds to a state in place, which has no dimension of units."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.recurrent = torch.nn.GRU(inputs, inputs)

    def forward(self, x):
        return super().forward(self.recurrent(x[None])[0][0])


class NoCanonical:
    """Dots that cannot tell a picture from its augmentation."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getattr__(self, name):
        if name in ("canonical", "augmented"):
            raise AttributeError(name)
        return getattr(self.data, name)


def residual_in_bfloat16(dots):
    plan = TrainingPlan("fdp-sgd", **SETTINGS, private_loss="residual", public_view=VIEW)
    return in_bfloat16(dots.task, precision="bf16"), dots.task.build_model(), dots.data(60), plan, {}


def silent_bfloat16(dots):
    return in_bfloat16(dots.task), dots.task.build_model(), dots.data(60), TrainingPlan(**SETTINGS), {}


def with_layer(layer, dots):
    model = dots.task.build_model()
    model.classify = layer(4, 4)
    return dots.task, model, dots.data(60), TrainingPlan(**SETTINGS), {}


def with_task(dots, model=None, **changes):
    task = type("Changed", (type(dots.task),), changes)()
    return task, model or dots.task.build_model(), dots.data(60), TrainingPlan(**SETTINGS), {}


def centred(self, units):
    batch = pad_views(units)
    inputs = batch.inputs.float()
    return UnitBatch(inputs - inputs.mean(), batch.targets, batch.weights)


def with_loss(change, dots):
    loss = type(dots.task).loss
    return with_task(dots, loss=lambda self, *given: change(loss(self, *given)))


def loss_of_the_model(dots):
    """Forgets the parameters that it is given."""

    def loss(self, model, params, inputs, targets):
        return torch.nn.functional.cross_entropy(model(inputs), targets["way"], reduction="none")

    return with_task(dots, loss=loss)


class Recomputes(torch.nn.Linear):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


def in_parallel(dots):
    return with_task(dots, model=torch.nn.DataParallel(dots.task.build_model()))


def scripted(dots):
    def loss(self, model, params, inputs, targets):
        return functional_call(model, dict(params), (inputs.float().mean((1, 2, 3)),)).sum(1)

    return with_task(dots, model=torch.jit.script(torch.nn.Linear(6, 4)), loss=loss)


def no_canonical_views(dots):
    plan = TrainingPlan("fdp-sgd", **SETTINGS, public_view=VIEW)
    return dots.task, dots.task.build_model(), NoCanonical(dots.data(60)), plan, {}


def too_few_public_units(dots):
    plan = TrainingPlan("pdp-sgd", **SETTINGS, subspace=SubspaceConfig(rank=4, units=10))
    return dots.task, dots.task.build_model(), dots.data(60), plan, {"public": Dots(9, seed=5)}


def wrong_optimizer(dots):
    wrong = {"optimizer": OptimizerConfig("adam", options={"momentum": 0.5})}
    return dots.task, dots.task.build_model(), dots.data(60), TrainingPlan(**SETTINGS), wrong


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (residual_in_bfloat16, ("precision-unsupported",)),
        (silent_bfloat16, ("precision-not-declared",)),
        (partial(with_layer, Writes), ("model-wrote-state",)),
        (partial(with_layer, Draws), ("model-draws-random",)),
        (partial(with_layer, Jitters), ("model-draws-random",)),
        (partial(with_layer, Asks), ("model-not-unit-by-unit", ".item()")),
        (partial(with_layer, Recurs), ("model-not-unit-by-unit", "broadcast shape", "recurrent layers")),
        (partial(with_task, collate=centred), ("collate-mixes-units", "inputs")),
        (partial(with_loss, torch.mean), ("loss-not-per-view", "()")),
        (partial(with_loss, lambda found: found[:, None]), ("loss-not-per-view", "(1, 1)")),
        (partial(with_loss, lambda found: [found]), ("loss-not-per-view", "list")),
        (partial(with_loss, torch.detach), ("loss-without-parameters",)),
        (loss_of_the_model, ("loss-without-parameters",)),
        (partial(with_layer, Recomputes), ("model-checkpoints-activations",)),
        (in_parallel, ("model-in-data-parallel", "model.module")),
        (scripted, ("model-is-scripted",)),
        (no_canonical_views, ("canonical-views-missing",)),
        (too_few_public_units, ("public-units-too-few", "are 9")),
        (wrong_optimizer, ("optimizer-option-refused",)),
    ],
)
def test_a_refused_run_costs_nothing_and_leaves_nothing(dots, tmp_path, mistake, told):
    task, model, data, plan, options = mistake(dots)
    state = tmp_path / "state"
    with refused(told[0], where=told[1:]):
        train(task, model, private=data, plan=plan, out=tmp_path / "run", state_dir=state, **options)
    assert not (tmp_path / "run").exists()
    assert charges(state) == []
    assert not [path for path in state.rglob("*") if path.is_file()]


def test_a_rehearsal_changes_nothing_of_the_run(dots, tmp_path, monkeypatch):
    """The same seed gives the same weights, with the rehearsal and without; torch's own generator is left alone."""
    from dpose.training import trainer

    def weights(out):
        plan = TrainingPlan("dp-sgd", **SETTINGS)
        model = dots.task.build_model()
        torch.manual_seed(7)
        state = tmp_path / "state"
        train(dots.task, model, private=dots.data(60), plan=plan, out=out, state_dir=state, seed=1)
        return model.classify.weight.detach().clone(), torch.get_rng_state()

    one, drawn = weights(tmp_path / "one")
    monkeypatch.setattr(trainer, "dry_run", lambda *arguments: None)
    two, drawn_too = weights(tmp_path / "two")
    assert torch.equal(one, two)
    assert torch.equal(drawn, drawn_too)
