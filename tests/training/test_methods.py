"""A method is one value: one with mechanics of its own is entered here, from outside, and nothing else learns of it."""

import inspect
import json
import re

import pytest
import torch
from rich.console import Console

import dpose
from dots import train
from dpose.privacy.noise import AesNoise, Key
from dpose.runs.verify import verify_run
from dpose.training import step as steps
from dpose.training.gradients import trainable_params
from dpose.training.loader import Loader
from dpose.training.methods import METHODS, Method, register_method
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.reproducibility import code_digest
from dpose.training.step import StepInputs, open_parts
from refusals import refused

SIGN = OptimizerConfig("sgd", lr=0.02, schedule="constant", warmup=0.0)


def sign_momentum(parts):
    """The sign of a moving average of noised gradients (Bernstein et al. 2018, "signSGD with momentum")."""
    noised = parts.noised()
    parts.state = {name: 0.8 * parts.state.get(name, 0 * value) + 0.2 * value for name, value in noised.items()}
    return {name: value.sign() for name, value in parts.state.items()}


@pytest.fixture(autouse=True)
def _methods():
    """What a test enters is gone after it."""
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@pytest.fixture
def sign():
    return register_method(
        Method(
            "dp-signsgd",
            "dp-sgd, whose noised gradients are averaged over the steps and reduced to their signs",
            sign_momentum,
            private=True,
            protects=("each unit as a whole",),
            relations=("zero-out", "replace"),
        )
    )


def plan(method, **changes):
    settings = {"epsilon": 8.0, "delta": 1e-4, "steps": 40, "expected_batch_size": 60, "accountant": "rdp"}
    return TrainingPlan(method, **{**settings, **changes})


def a_run(dots, out, **options):
    return train(
        dots.task,
        dots.task.build_model(),
        private=dots.data(240),
        plan=plan("dp-signsgd"),
        out=out,
        optimizer=SIGN,
        state_dir=out.parent / "state",
        console=Console(quiet=True),
        **options,
    )


def test_one_from_outside_trains_and_its_statement_verifies(dots, tmp_path, sign):
    done = a_run(dots, tmp_path / "run")
    assert done.statement.kind == "private"
    found = verify_run(tmp_path / "run", tmp_path / "state")
    assert found.spent == pytest.approx(done.statement.epsilon) == pytest.approx(8.0, rel=0.02)
    # signs were taken: sgd moved every weight by the learning rate in every step
    moved = done.model.classify.weight - dots.task.build_model().classify.weight
    assert torch.allclose((moved / SIGN.lr).round(), moved / SIGN.lr, atol=1e-3)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["run"]["plan"]["method"] == "dp-signsgd"


def test_what_it_keeps_is_saved_with_the_run(dots, tmp_path, sign, monkeypatch):
    """Stopped and gone on with, it ends where an unbroken run does: its average is in the checkpoint."""
    whole = a_run(dots, tmp_path / "whole", seed=3)
    real, taken = steps.private_gradient, []

    def dying(*arguments):
        taken.append(1)
        if len(taken) == 30:
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("dpose.training.run.CHECKPOINT_UNITS", 0)
        patch.setattr(steps, "private_gradient", dying)
        with pytest.raises(KeyboardInterrupt):
            a_run(dots, tmp_path / "run", seed=3)
    done = a_run(dots, tmp_path / "run", seed=3, resume=True)
    assert torch.equal(done.model.classify.weight, whole.model.classify.weight)


def parts_of(dots, method):
    bound = plan(method).bind(60)
    noise, model = AesNoise(Key.from_seed(0)), dots.task.build_model().train()
    loader = Loader(dots.task, dots.data(60), noise, threads=1)
    inputs = StepInputs(dots.task, model, loader, bound, noise, b"", 16)
    return open_parts(inputs, None), trainable_params(model)


@pytest.mark.parametrize(
    ("update", "told"),
    [
        (lambda parts: parts.plain(), "does not say that it reads: the plain gradient"),
        (lambda parts: parts.projected(parts.noised()), "does not say that it reads: the projection"),
        (lambda parts: [parts.noised(), parts.noised()][1], "takes twice in a step: the noised gradient"),
    ],
)
def test_a_method_gets_what_it_says_it_reads_and_once_a_step(dots, update, told):
    register_method(Method("greedy", "takes what it can", update, private=True, relations=("zero-out",)))
    opened, params = parts_of(dots, "greedy")
    with opened as parts, pytest.raises(ValueError, match=told):
        parts.gradient(params, 0)


def test_the_code_of_a_method_is_among_what_a_step_depends_on(dots):
    assert code_digest(dots.task, sign_momentum) != code_digest(dots.task)


def test_names_are_taken_once(sign):
    assert register_method(sign) is sign
    with refused("method-exists"):
        register_method(Method("dp-sgd", "another", sign_momentum, private=True, relations=("zero-out",)))


@pytest.mark.parametrize(("private", "relations"), [(True, ()), (False, ("zero-out",))])
def test_a_guarantee_has_relations(private, relations):
    with refused("method-relations-inconsistent"):
        Method("odd", "odd", sign_momentum, private=private, relations=relations)


def test_help_names_the_methods_that_come_with_dpose():
    """It is made of the plan's own words."""
    assert [name for name in METHODS if not re.search(rf"(?<![\w-]){name}(?![\w-])", TrainingPlan.__doc__)] == []


def test_training_takes_ten_arguments():
    assert len(inspect.signature(dpose.train).parameters) <= 10
