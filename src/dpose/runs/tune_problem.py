"""What there is to choose from: settings with their noise, the data in two sides, first weights, and what it takes.

The same for every trial of a choice (`dpose.runs.tune`), and fixed before the first of them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from dpose.account import TUNING, Charge, charges, names_of_run
from dpose.errors import DposeError
from dpose.known_sets import set_names_of
from dpose.privacy.events import ROUNDED, Renyi, SampledGaussian
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.protected import protect, unit_of
from dpose.privacy.ranges import as_given, check_delta, upper
from dpose.privacy.trial_law import TrialLaw
from dpose.privacy.tuning import Sides, Tuning, calibrated, split_sides
from dpose.runs.config import RunConfig
from dpose.runs.places import learnt_from
from dpose.runs.tasks import PreparedRun, task_entry
from dpose.runs.tune_config import TuningConfig
from dpose.training.first_weights import Inherited, first_of, inherited
from dpose.training.guards import check_disjoint, check_not_watched, learnt_again
from dpose.training.plan import BoundPlan
from dpose.training.statement import StatementFacts
from dpose.units import Unit


@dataclass(frozen=True)
class TuningProblem:
    """What there is to choose from, with its data: the same for every trial."""

    config: TuningConfig
    found: PreparedRun
    sides: Sides
    runs: tuple[RunConfig, ...]
    bounds: tuple[BoundPlan, ...]
    tuning: Tuning
    whole: Charge

    @property
    def digest(self) -> str:
        """Digest of the settings."""
        content = [run.to_dict() for run in self.runs], self.config.score_share, self.tuning.to_dict()
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def data(self) -> str:
        """Digest of the units on both sides."""
        both = self.sides.training.identity.digest + self.sides.scored.identity.digest
        return hashlib.sha256(both).hexdigest()

    def charges(self, whole: Charge) -> list[Charge]:
        """What the choice takes: of the pictures of each side what was done to that side, in a charge of its own.

        The account adds up whatever read one picture, and knows neither which crops are on it nor in which pictures a
        person is, or a video. Units of more or less than a picture have one charge, of what the dearer side costs at
        each order.
        """
        nobody, sides = marks_of(()), (self.sides.training, self.sides.scored)
        training, scored = (side.identity.marks for side in sides)
        if np.isin(training, scored).any() or Neighbours(Unit(whole.unit)).together:
            return [replace(whole, events=(Renyi(self.tuning.curve()),))]
        parts = zip(names_of_run(whole.id), TUNING, sides, self.tuning.curves(), strict=True)
        return [
            replace(
                whole,
                id=name,
                what=what,
                events=(Renyi(curve),),
                marks=side.identity.marks,
                units=side.identity.units,
                opened=nobody if side is self.sides.scored else whole.opened,
            )
            for name, what, side, curve in parts
        ]


def open_problem(config: TuningConfig, law: TrialLaw, out: Path, key: Key, console: Console) -> TuningProblem:
    """Data, first weights and noise.

    Raises:
        DposeError: they are not possible.
    """
    base = config.runs[0]
    # first weights that are drawn at random are those of every trial, and the same when it goes on
    seed = int.from_bytes(AesNoise(key).stream(Purpose.INIT).bytes(4), "big")
    found = task_entry(base.task).prepare(base.model_copy(update={"seed": seed}), console)
    if found.validation_data and not found.validation_data.public:
        raise DposeError(
            "tuning-watches-private",
            "scores of private data while training would be outside the price",
            "validation_data",
            "watch public data, or none",
        )
    config.plan.check_unit(unit_of(found.units))
    every = protect(found.units, config.plan.relation, console=console)
    sides = split_sides(every, config.score_share, console=console)
    if found.validation_data:
        check_not_watched(found.validation_data.units, every, 2, console)
    fits = any(run.plan.fits_public for run in config.runs)
    opened = marks_of(())
    if fits and found.public is not None:
        check_disjoint(found.public, every, 2, console)
        opened = protect(found.public).identity.marks
    with console.status("finding the noise that the budget asks for"):
        bounds, tuning = priced_trials(config, law, sides.training.identity.units, sides.scored.identity.units)
    unit = every.neighbours.unit.value
    bounds = tuple(replace(bound.plan, unit=unit).bind_to(sides.training) for bound in bounds)
    settled = found.config.model_copy(update={"seed": None})
    runs = tuple(
        settled.model_copy(update={"plan": bound.plan, "optimizer": run.optimizer})
        for run, bound in zip(config.runs, bounds, strict=True)
    )
    whole = Charge(
        id="",
        what=TUNING[0],
        data=found.data_name,
        folder=str(out.resolve()),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        unit=unit,
        relation=config.plan.relation,
        delta=config.delta,
        events=(),  # of each side its own: `TuningProblem.charges`
        beyond=False,
        marks=every.identity.marks,
        units=every.identity.units,
        opened=opened,
    )
    return TuningProblem(config, found, sides, runs, bounds, tuning, whole)


def priced_trials(config: TuningConfig, law: TrialLaw, units: int, scored: int) -> tuple[tuple[BoundPlan, ...], Tuning]:
    """The noise of every setting and of the score, so that everything together costs the budget."""
    check_delta(config.delta, units + scored)
    rough = [plan.bind(units) for plan in config.plans([1.0] * len(config.runs))]
    kinds = [(bound.sampling_rate, bound.steps) for bound in rough]
    sigmas = calibrated(law, config.epsilon, config.delta, kinds)
    (noise,) = calibrated(law, config.epsilon, config.delta, [(1.0, 1)])
    bounds = tuple(plan.bind(units) for plan in config.plans(sigmas))
    events = tuple(bound.event for bound in bounds if bound.event)
    tuning = Tuning(law, config.settings, events, SampledGaussian(1.0, noise, 1, 1 / scored, type=ROUNDED), scored)
    # recomputed from what will be claimed
    claimed = tuning.epsilon(config.delta)
    if claimed > config.epsilon * (1 + 1e-6):
        raise DposeError(
            "calibration-failed", f"calibration gave epsilon {upper(claimed, 6)} for {as_given(config.epsilon)}"
        )
    return bounds, tuning


def facts_of_tuning(problem: TuningProblem) -> StatementFacts:
    """What the run's statement calls public because it was chosen."""
    return StatementFacts(
        public=(
            f"the number of units that trials are scored on, {problem.tuning.scored:,}",
            "the grid of settings, and the law of the number of trials",
            "which units trials learn from and which they are scored on: a function of their names",
        ),
        about=problem.config.runs[0].about,
    )


def origin_of_tuning(problem: TuningProblem, entry: Charge, state_dir: Path | None) -> Inherited:
    """Where the first weights are from, for the units of both sides."""
    found = problem.found
    entries = charges(state_dir)
    first = first_of(found.start, found.model, entries)
    again = learnt_again(found.units, 2, Console(quiet=True), partial(learnt_from, state_dir=state_dir))
    known = inherited(first, entry, problem.config.plan, entries, again, set_names_of(found.units))
    if known.events or known.beyond:
        raise DposeError(
            "tuning-first-weights-learnt",
            "a choice among trials has no price where the first weights learnt from the same units",
            "--init",
            "start from other weights",
        )
    return known
