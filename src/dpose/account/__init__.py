"""The account of private pictures, over all runs and releases: epsilon belongs to the data, not to a run.

    charge(Charge(...))                                    # everything does so before it computes anything
    charges(of=marks)                                      # what has read any of these pictures
    spending(Neighbours("image"), 1e-5, of=marks).epsilon  # of the picture that has spent the most

Tuning runs, audits, releases and the run that is published have all read the same people. Their mechanisms compose,
regardless of who ran them and what was published. The account is a database that a team may share. From the bottom up:
`store` (the database, its key and its journal), `charges` (what runs and releases took, and from which sets of
pictures), `composition` (what charges cost together), `budgets` (charging, the steps of a run's ledger, and filters
that hold for runs chosen after seeing results), `words` (the answers that a user reads).

**Guarantee.** docs/proofs/odometer.md. Pictures are recognized by their contents, so that a subset, a second copy or
another order of the same pictures is the same data. What is not charged to the account is not known to it.
"""

from __future__ import annotations

from dpose.account.budgets import (
    Budget,
    BudgetState,
    budget_states,
    budgets,
    charge,
    charge_all,
    claim_window,
    committing,
    conclude,
    last_window,
    lift_budget,
    note_weights,
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
    Charge,
    State,
    charges,
    check_account,
    groups,
    lineage,
    names_of_run,
    overlapping,
    rollback_count,
    unbounded,
)
from dpose.account.composition import Spent, composed, composed_each, spending
from dpose.account.store import Where, accept_account, account_exists

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
    "claim_window",
    "committing",
    "composed",
    "composed_each",
    "conclude",
    "groups",
    "last_window",
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
