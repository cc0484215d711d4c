"""Small accounts, made by the library: charges of runs and releases that were never computed."""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpose.account import Charge, charge
from dpose.privacy.events import Gaussian, Laplace, SampledGaussian
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Relation


def pure(epsilon, pixels=0, points=()) -> Laplace:
    """Discrete Laplace noise that costs `epsilon` for so many pixels, and what `points` say for others."""
    return Laplace(Fraction(1), Fraction(epsilon), 1, pixels, tuple((m, Fraction(e)) for m, e in points))


def zcdp(rho, pixels=0, points=()) -> Gaussian:
    """Discrete Gaussian noise that costs `rho` of zCDP."""
    return Gaussian(Fraction(1, 2), Fraction(rho), 1, pixels, tuple((m, Fraction(r)) for m, r in points))


EVENT = SampledGaussian(q=0.25, sigma=3.0, steps=20, sensitivity=1.0)
WARD = marks_of([f"ward {i}" for i in range(40)])


def run_charge(number=0, marks=WARD, **changes) -> Charge:
    """A training run of everybody in `marks`."""
    made = Charge(
        id=f"{number:032x}",
        what="training",
        data="ward",
        folder=f"/secret/runs/{number}",
        at=f"2026-10-{number + 1:02}T00:00:00+00:00",
        unit="image",
        relation=Relation.ZERO_OUT,
        delta=1e-5,
        events=(EVENT,),
        beyond=False,
        marks=marks,
        units=len(marks),
    )
    return replace(made, **changes)


def release_charge(number, marks, epsilon=2.0, pixels=16, **changes) -> Charge:
    """A release of one picture of 48 x 64 pixels."""
    whole = {"what": "release", "unit": "pixel", "relation": Relation.REPLACE, "delta": 0.0, "area": 48 * 64}
    events = (pure(epsilon, pixels=pixels),)
    return run_charge(number, marks, **{**whole, "data": f"photos/{number}.png", "events": events, **changes})


def charged(*entries, where=None) -> None:
    for entry in entries:
        charge(entry, where)


def union(*marks):
    return np.unique(np.concatenate(marks))
