"""What a run takes besides its plan: `dpose.train(..., options=RunOptions(start="runs/public"))`; and all of that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dpose.account import Charge
from dpose.privacy.canaries import Opening
from dpose.privacy.noise import Key
from dpose.privacy.sections import UNSTATED
from dpose.privacy.tuning import Tuning
from dpose.training.distributed import ALONE, ProcessGroup
from dpose.training.first_weights import FirstWeights
from dpose.training.folder import Places
from dpose.training.guards import LearntFrom
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.statement import StatementFacts
from dpose.training.validation import Validation
from dpose.units import Task


@dataclass(frozen=True)
class TuningTrial:
    """What a run takes that is one of a random number of trials (`dpose.privacy.tuning`).

    **Guarantee.** The run charges nothing and claims what all trials cost: the tuning has charged that before, and
    shows nothing of it unless it is the one that is chosen.

    Attributes:
        tuning: What it is chosen from.
        charge: What all trials and the choice take from their pictures; the run bears its name.
        key: Where the run's randomness comes from.
        account: The state folder whose account is asked for the origin of the first weights; the run's own state
            folder is a secret one.
    """

    tuning: Tuning
    charge: Charge
    key: Key
    account: Path | None = None


@dataclass(frozen=True)
class RunOptions:
    """Where a run starts from, what its statement and its records say, and how this machine takes its steps.

    Attributes:
        seed: Makes the run reproducible and takes its guarantee away.
        resume: Go on from the last checkpoint in `out`, with the arguments that the run began with. Steps that were
            taken after it are taken again: at no cost where they come out the same to the last bit, otherwise with a
            new key and counted twice, and the run ends early enough to keep its epsilon (docs/proofs/resume.md).
        start: Where the model's weights are from: a model folder or a file of weights, or as `FirstWeights` says;
            `FirstWeights.drawn()` for weights drawn at random. None: the account is searched for just these weights,
            and where no run released them the statement takes as given that no unit had influence on them.
        validation_data: Scored before the first step and some ten times after; see `Validation` for what that means.
        facts: What the statement says besides what the run itself knows.
        settings: Written to `config.json` under "run", and so into a folder that travels: without paths.
        places: The settings with their paths, kept in the state folder by the run's name (`kept_places`).
        data_name: What the account calls the data (`dpose account`).
        what: What the account calls the run: "training" or "audit".
        state_dir: Where the ledger's head is kept apart; the user's state folder by default.
        microbatch_size: The micro-batch in views; fitted to memory when None.
        threads: Threads that decode pictures, before the first step and for every one: by default one for each of the
            machine's processors, at least 2 and at most 16. They change no number.
        console: Where progress goes; None for the terminal.
        trial: Of a run that is a trial among others.
        canaries: Of those that are among the private units: what they are committed to before the first step. A run
            that goes on is given the same again.
        public_licence: Under which the public units may be used: those that a method is fitted on, or those that a run
            without privacy trains on.
        data_is_public: Whether the data of a run without privacy are public, so that its statement may
            have their digest.
        learnt_from: By a run's name what it learnt from, opened again: whether first weights have learnt from copies or
            people of the units is told by that. None: by content alone.
    """

    seed: int | None = None
    resume: bool = False
    start: FirstWeights | str | Path | None = None
    validation_data: Validation | None = None
    facts: StatementFacts = field(default_factory=StatementFacts)
    settings: Mapping[str, Any] = field(default_factory=dict)
    places: Places | None = None
    data_name: str | None = None
    what: str = "training"
    state_dir: Path | None = None
    microbatch_size: int | None = None
    threads: int = field(default_factory=lambda: min(16, max(2, os.cpu_count() or 2)))
    console: Console | None = None
    trial: TuningTrial | None = None
    canaries: Opening | None = None
    public_licence: str = UNSTATED
    data_is_public: bool = False
    learnt_from: LearntFrom | None = None


@dataclass(frozen=True)
class RunRequest:
    """What `dpose.train` was called with, but for the data; see there.

    Attributes:
        ranks: Which process of the run this is.
        console: Where progress goes; quiet in all processes but the first.
    """

    task: Task
    model: torch.nn.Module
    plan: TrainingPlan
    folder: Path
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    options: RunOptions = field(default_factory=RunOptions)
    ranks: ProcessGroup = ALONE
    console: Console = field(default_factory=lambda: Console(quiet=True))
