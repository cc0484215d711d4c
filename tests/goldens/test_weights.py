"""Seeded weights of every method after three steps: where they are, within what another processor may change.

A run's weights are told by the norm of their change and by eight projections of it onto fixed cosines.
"""

import numpy as np
import pytest
import torch

from goldens import doors
from goldens.held import hold, hold_cases

CLOSE, LEAST = 2e-4, 2e-4
"""Of numbers of about one: single precision and other kernels leave a change of less than a tenth of that in three
steps; a fault in the mechanism moves some of them by a tenth or more."""
RUNS = {
    **{name: {"method": name} for name in ("non-private", "public-only", "dp-sgd", "pdp-sgd")},
    **{name: {"method": name} for name in ("subspace-sgd", "scaled-sgd", "fdp-sgd", "fpdp-sgd")},
    "dp-sgd, not normalised": {"method": "dp-sgd", "normalise": False},
    "dp-sgd, noise in floating point": {"method": "dp-sgd", "noise": "float"},
    "dp-sgd, add-or-remove": {"method": "dp-sgd", "relation": "add-or-remove", "nominal_units": 150},
    "dp-sgd, two copies": {"method": "dp-sgd", "augmentation_multiplicity": 2},
    "dp-sgd, averaged": {"method": "dp-sgd", "ema_decay": 0.5},
    "dp-sgd, the end averaged": {"method": "dp-sgd", "average_last": 0.7},
    "fdp-sgd, residual": {"method": "fdp-sgd", "private_loss": "residual"},
}


def told(run):
    """The norm of what training changed, and its projections onto eight cosines of norm one."""
    before, after = doors.first_weights(), run.model.state_dict()
    change = torch.cat([(after[name] - before[name]).double().flatten() for name in sorted(before)]).numpy()
    places = np.arange(len(change))
    cosines = [np.cos(np.pi * (k + 1) * (places + 0.5) / len(change)) for k in range(8)]
    return {
        "norm": float(np.linalg.norm(change)),
        "projections": [float(change @ c / np.linalg.norm(c)) for c in cosines],
    }


@pytest.fixture
def trained(tmp_path):
    def train(**settings):
        with doors.same_draws():
            return told(doors.train_on_dots(out=tmp_path / "run", **settings))

    return train


@pytest.mark.parametrize("name", RUNS)
def test_the_weights_of_a_seeded_run(name, dots_run):
    hold("weights", name, told(dots_run(name, **RUNS[name])), close=CLOSE, least=LEAST)


def test_no_run_is_lost():
    hold_cases("weights", RUNS)


PLAIN = "dp-sgd, not normalised"
"""Where the bound scales the sum, as it does not once sums are divided by it."""


def refused(found):
    """Whether the golden sees that these weights are others."""
    try:
        hold("weights", PLAIN, found, close=CLOSE, least=LEAST, writing=False)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("fault", [{"lr": 0.55}, {"noise_multiplier": 1.05}], ids=str)
def test_other_settings_are_seen(fault, trained):
    assert refused(trained(**RUNS[PLAIN], **fault))


@pytest.mark.parametrize("fault", [doors.without_noise, doors.doubled_clip])
def test_a_mechanism_with_a_fault_is_seen(fault, trained):
    with fault():
        assert refused(trained(**RUNS[PLAIN]))


def test_the_same_is_not_refused(trained):
    assert not refused(trained(**RUNS[PLAIN]))
