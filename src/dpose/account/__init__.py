"""What private pictures have been spent for, over all runs and releases: epsilon belongs to the data, not to a run.

    charge(Charge(...))                                    # everything does so before it computes anything
    charges(of=marks)                                      # what has read any of these pictures
    spending(Neighbours("image"), 1e-5, of=marks).epsilon     # of the one that has given the most

Tuning runs, audits, releases and the run that is published have all read the same people. Their mechanisms compose,
whoever ran them and whatever was published. The account is a database that a team may share. From the bottom up: `keys`
(its key, how far this machine has seen it), `journal` (what has happened, row by row), `store` (the database), `sets`
(of pictures), `charges` (one run's or release's share), `history` (what has read some pictures), `composition` (what
charges cost together), `budgets` (their filters hold for runs chosen after seeing results), `reservations` (charging,
and the steps of a run's ledger), `words`.

**Guarantee.** docs/proofs/odometer.md. Data are told by the contents of pictures, so that a subset, a second copy or
another order of the same pictures is the same data. What is not charged to the account is not known to it.
"""

from __future__ import annotations

from dpose.account.budgets import (
    BudgetState,
    budget_states,
    budgets,
    lift_budget,
    set_budget,
    what_fits,
)
from dpose.account.charges import (
    ATTACK,
    EVALUATION,
    EXPERIMENT,
    PAGE,
    PIXEL,
    TUNING,
    Budget,
    Charge,
    State,
    lineage,
    names_of_run,
    unbounded,
)
from dpose.account.composition import Spent, composed, composed_each, spending
from dpose.account.history import charges, check_account, groups, overlapping, rollback_count
from dpose.account.journal import Where
from dpose.account.reservations import charge, charge_all, committing, conclude, note_weights
from dpose.account.store import accept_account, account_exists

__all__ = [
    "ATTACK",
    "EVALUATION",
    "EXPERIMENT",
    "PAGE",
    "PIXEL",
    "TUNING",
    "Budget",
    "BudgetState",
    "Charge",
    "Spent",
    "State",
    "Where",
    "accept_account",
    "account_exists",
    "budget_states",
    "budgets",
    "charge",
    "charge_all",
    "charges",
    "check_account",
    "committing",
    "composed",
    "composed_each",
    "conclude",
    "groups",
    "lift_budget",
    "lineage",
    "names_of_run",
    "note_weights",
    "overlapping",
    "rollback_count",
    "set_budget",
    "spending",
    "unbounded",
    "what_fits",
]
