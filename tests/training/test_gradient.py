"""A method is the sum of its parts: each part alone, put together by hand, gives what the run takes."""

import numpy as np
import pytest
import torch
from rich.console import Console

import dpose.training.step as step
from dots import train
from dpose.privacy.neighbours import BEYOND
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.training.gradients import trainable_params
from dpose.training.loader import Loader
from dpose.training.methods import METHODS, SubspaceConfig
from dpose.training.plan import TrainingPlan
from dpose.training.preclipping import PublicFit
from dpose.training.public_view import PublicView
from dpose.training.step import StepInputs, open_parts
from dpose.training.subspace import project_onto
from refusals import refused

N = 120
VIEW = PublicView("pixelize", width=86.0)  # blocks of 2x2 in pictures of 6x6


def plan(method, **changes):
    return TrainingPlan(
        method,
        **{
            "epsilon": 8.0 if METHODS[method].private else None,
            "delta": 1e-4 if METHODS[method].private else None,
            "steps": 4,
            "expected_batch_size": 40,
            "accountant": "rdp",
            "public_view": VIEW,
            "subspace": SubspaceConfig(rank=3, units=20, refresh=2),
            **changes,
        },
    )


def taken(dots, method, steps=3, seed=3, data=None, **changes):
    """The first gradients of a method, at weights that stay where they are, and what was found."""
    model = dots.task.build_model().train()
    params = trainable_params(model)
    bound = plan(method, **changes).bind(N)
    fitted = bound.plan.fits_public
    public = dots.data(30, seed=5) if fitted else None
    noise = AesNoise(Key.from_seed(seed))
    units = data or dots.data(N)
    loader = Loader(dots.task, units, noise, threads=1)
    inputs = StepInputs(dots.task, model, loader, bound, noise, b"same", 64)
    with open_parts(inputs, public) as parts:
        return [parts.gradient(params, k) for k in range(steps)]


def flat(gradient):
    return torch.cat([gradient[name].flatten() for name in sorted(gradient)])


def test_feature_privacy_adds_the_gradient_of_public_views(dots):
    """With the same key the noised parts are equal, so what fdp-sgd adds is what public-only takes."""
    private, public, both = (taken(dots, m) for m in ("dp-sgd", "public-only", "fdp-sgd"))
    for (a, _), (b, _), (c, _) in zip(private, public, both, strict=True):
        assert torch.allclose(flat(a) + flat(b), flat(c), atol=1e-6)


def test_the_public_gradient_has_a_weight(dots):
    private, once, thrice = (taken(dots, "dp-sgd"), taken(dots, "fdp-sgd"), taken(dots, "fdp-sgd", public_weight=3.0))
    for (a, _), (b, _), (c, _) in zip(private, once, thrice, strict=True):
        assert torch.allclose(flat(a) + 3 * (flat(b) - flat(a)), flat(c), atol=1e-5)


def test_projection_acts_on_the_noised_sum_alone(dots, monkeypatch):
    """What is projected is dp-sgd's gradient; what fpdp-sgd adds to pdp-sgd is public-only's."""
    seen = []
    real = PublicFit.apply

    def watched(self, gradient, params, number):
        made = real(self, gradient, params, number)
        seen.append((gradient, made[0], self.subspace))
        return made

    monkeypatch.setattr(PublicFit, "apply", watched)
    private, projected, public = (taken(dots, m) for m in ("dp-sgd", "pdp-sgd", "public-only"))
    both = taken(dots, "fpdp-sgd")
    for k in range(3):
        before, after, subspace = seen[k]
        assert torch.equal(flat(before), flat(private[k][0]))
        assert torch.allclose(flat(after), flat(project_onto(before, subspace)[0]), atol=1e-6)
        assert torch.equal(flat(after), flat(projected[k][0]))
        assert torch.allclose(flat(projected[k][0]) + flat(public[k][0]), flat(both[k][0]), atol=1e-5)
    assert float(flat(projected[0][0]).norm()) < float(flat(private[0][0]).norm())


def test_the_subspace_is_refreshed_and_its_diagnostics_told(dots):
    found = [f.diagnostics for _, f in taken(dots, "pdp-sgd", steps=4)]
    assert [f["subspace_age"] for f in found] == [0, 1, 0, 1]
    for f in found:
        assert f["subspace_directions"] == 3
        assert f["subspace_rank"] >= 3
        assert 0 < f["subspace_energy"] <= 1
        assert 0 < f["surviving_norm"] < 1
        assert f["public_gradients_not_finite"] == 0


def test_controls(dots):
    """Random directions keep their share of the norm; the identity keeps everything."""
    identity, plain = taken(dots, "pdp-sgd", subspace=SubspaceConfig("identity")), taken(dots, "dp-sgd")
    assert all(torch.equal(flat(a), flat(b)) for (a, _), (b, _) in zip(identity, plain, strict=True))
    found = taken(dots, "pdp-sgd", subspace=SubspaceConfig("random", rank=5, refresh=1), steps=30)
    kept = np.mean([f.diagnostics["surviving_norm"] ** 2 for _, f in found])
    assert kept == pytest.approx(5 / 20, rel=0.35)  # 20 parameters
    assert "subspace_energy" not in found[0][1].diagnostics


def test_the_residual_is_the_plain_loss_less_the_public_views(dots, monkeypatch):
    """Unclipped and without noise, over everyone: residual + public view = plain, to within the grid's steps."""
    monkeypatch.setattr(step, "add_gaussian", lambda sums, stddev, stream, *_: sums)
    monkeypatch.setattr(step, "poisson_batch", lambda n, q, stream: np.arange(n))
    monkeypatch.setattr(step, "plain_batches", lambda inputs, first: iter([np.arange(N)] * 9))

    class Still(dots.data):
        def augmented(self, view, rng):
            return view

    settings = {"data": Still(N), "clip_norm": 100.0, "normalise": False, "steps": 1}
    (plain, _), (residual, _), (public, _) = (
        taken(dots, "fdp-sgd", public_weight=1e-12, **settings)[0],
        taken(dots, "fdp-sgd", public_weight=1e-12, private_loss="residual", **settings)[0],
        taken(dots, "public-only", data=Still(N))[0],
    )
    scale = N / 40  # the noised sum is divided by the expected batch, of 40; here everyone was in it
    assert torch.allclose(flat(plain) / scale, flat(residual) / scale + flat(public), atol=1e-4)
    assert float(flat(residual).norm()) < float(flat(plain).norm())


@pytest.mark.parametrize("method", ["public-only", "fdp-sgd", "fpdp-sgd"])
def test_the_public_part_reads_nothing_but_canonical_views(dots, method, monkeypatch):
    """Pictures are loaded for the private part alone; of a unit that no private batch draws, none is."""

    loaded = []

    class Watched(dots.data):
        def load(self, index, rng):
            loaded.append(index)
            return super().load(index, rng)

    monkeypatch.setattr(step, "poisson_batch", lambda n, q, stream: np.empty(0, np.int64))
    taken(dots, method, data=Watched(N))
    assert loaded == []


def test_data_without_canonical_views_are_refused(dots):
    class Bare:
        def __init__(self, data):
            self.data = data
            self.unit_id, self.content_hashes, self.load = data.unit_id, data.content_hashes, data.load

        def __len__(self):
            return len(self.data)

    with refused("canonical-views-missing"):
        taken(dots, "fdp-sgd", data=Bare(dots.data(N)))


def test_copies_are_averaged_before_the_clip(dots, monkeypatch):
    """Four copies of everyone cost no more noise: the sensitivity, the steps and the event are the same."""
    one, four = plan("dp-sgd").bind(N), plan("dp-sgd", augmentation_multiplicity=4).bind(N)
    assert one.event == four.event
    monkeypatch.setattr(step, "add_gaussian", lambda sums, stddev, stream, *_: sums)
    (alone, _), (copied, _) = (
        taken(dots, "dp-sgd", steps=1)[0],
        taken(dots, "dp-sgd", steps=1, augmentation_multiplicity=2)[0],
    )
    # dots load without randomness, so two copies are one picture twice; views beyond eight would be dropped
    assert torch.allclose(flat(alone), flat(copied), atol=1e-6)


class TestStatements:
    def run(self, dots, tmp_path, method, **changes):
        public = dots.data(30, seed=5) if METHODS[method].fitted else None
        return train(
            dots.task,
            dots.task.build_model(),
            private=dots.data(N),
            public=public,
            plan=plan(method, **changes),
            out=tmp_path / "run",
            state_dir=tmp_path / "state",
            console=Console(quiet=True),
        )

    # one that solves has a model of its own (tests/runs/test_dp_head.py)
    @pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.solves])
    def test_every_method_runs_and_says_what_it_is(self, dots, tmp_path, method):
        done = self.run(dots, tmp_path, method)
        kind, said = METHODS[method], done.statement
        assert PrivacyStatement.from_json((tmp_path / "run" / "privacy.json").read_text()) == said
        assert said.kind is (Kind.PRIVATE if kind.private else Kind.NONE)
        text = said.paragraph()
        assert ("public view" in text) == kind.public_views
        assert ("subspace" in text) == (kind.projects or kind.pre_clipping == "subspace")
        if kind.private:
            assert (said.neighbours.scope == BEYOND) == kind.public_views
            assert said.verify() <= 8.0
        if kind.public_views and kind.private:
            assert any("3x3 points" in condition for condition in said.conditional_on)
            assert "holds beyond its public view" in text

    def test_replacement_with_the_view_fixed(self, dots, tmp_path):
        done = self.run(dots, tmp_path, "fdp-sgd", relation="replace", accountant="pld", epsilon=1.0)
        assert "the same public view and labels" in done.statement.paragraph()
        assert done.statement.neighbours.relation == "replace"

    @pytest.mark.parametrize("method", ["fdp-sgd", "fpdp-sgd"])
    def test_a_unit_that_is_added_brings_its_public_view(self, method):
        with refused("relation-unsupported"):
            plan(method, relation="add-or-remove", nominal_units=100)
