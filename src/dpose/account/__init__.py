"""What private pictures have been spent for, over all runs and releases: epsilon belongs to the data, not to a run.

    charge_account(Charge(...))                            # everything does so before it computes anything
    found = readers(marks)                                 # what has read any of these pictures
    composed(found, delta=1e-5)                            # epsilon of all of it together

Tuning runs, audits, releases and the run that is published have all read the same people. Their mechanisms compose,
whoever ran them and whatever was published. The account is a database that a team may share (`store`); a budget is
kept by a filter that holds for runs chosen after seeing results (`filters`).

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
from dpose.account.composition import composed
from dpose.account.questions import (
    Spent,
    charges,
    check_account,
    composed_each,
    finished_alike,
    groups,
    lineage,
    read_with,
    readers,
    spent_among,
    spent_on,
    times_set_back,
    touching,
)
from dpose.account.records import (
    ATTACK,
    EVALUATION,
    EXPERIMENT,
    PAGE,
    PIXEL,
    TUNING,
    Budget,
    Charge,
    State,
    names_of_run,
    unbounded,
)
from dpose.account.reservations import (
    charge,
    charge_account,
    check_budgets,
    commit,
    commit_each,
    committing,
    fail,
    note_weights,
    reserve_after,
    reserve_all,
    reserve_all_after,
)
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
    "charge_account",
    "charges",
    "check_account",
    "check_budgets",
    "commit",
    "commit_each",
    "committing",
    "composed",
    "composed_each",
    "fail",
    "finished_alike",
    "groups",
    "lift_budget",
    "lineage",
    "names_of_run",
    "note_weights",
    "read_with",
    "readers",
    "reserve_after",
    "reserve_all",
    "reserve_all_after",
    "set_budget",
    "spent_among",
    "spent_on",
    "times_set_back",
    "touching",
    "unbounded",
    "what_fits",
]
