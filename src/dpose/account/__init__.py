"""The account of private pictures, over all runs and releases: epsilon belongs to the data, not to a run.

    charge(Charge(...))                                    # everything does so before it computes anything
    charges(of=marks)                                      # what has read any of these pictures
    spending(Neighbours("image"), 1e-5, of=marks).epsilon  # of the picture that has spent the most

Tuning runs, audits, releases and the run that is published have all read the same people. Their mechanisms compose,
regardless of who ran them and what was published. The account is a database that a team may share. From the bottom up:
`store` (the database, its key and its journal), `charges` (what runs and releases took, and from which sets of
pictures), `composition` (what charges cost together), `budgets` (charging, the steps of a run's ledger, and filters
that hold for runs chosen after seeing results), `words` (the answers that a user reads).

An account is named by `where` (`Where`). All that reads or writes one raises `DposeError` where it cannot.

**Guarantee.** docs/proofs/odometer.md. Pictures are recognized by their contents, so that a subset, a second copy or
another order of the same pictures is the same data. What is not charged to the account is not known to it.
"""

from __future__ import annotations

from dpose.account.budgets import Budget as Budget
from dpose.account.budgets import BudgetState as BudgetState
from dpose.account.budgets import budget_states as budget_states
from dpose.account.budgets import budgets as budgets
from dpose.account.budgets import charge as charge
from dpose.account.budgets import charge_all as charge_all
from dpose.account.budgets import claim_window as claim_window
from dpose.account.budgets import committing as committing
from dpose.account.budgets import conclude as conclude
from dpose.account.budgets import last_window as last_window
from dpose.account.budgets import lift_budget as lift_budget
from dpose.account.budgets import note_weights as note_weights
from dpose.account.budgets import set_budget as set_budget
from dpose.account.budgets import what_fits as what_fits
from dpose.account.charges import ATTACK as ATTACK
from dpose.account.charges import EVALUATION as EVALUATION
from dpose.account.charges import EXPERIMENT as EXPERIMENT
from dpose.account.charges import PAGE as PAGE
from dpose.account.charges import PIXEL as PIXEL
from dpose.account.charges import TUNING as TUNING
from dpose.account.charges import Charge as Charge
from dpose.account.charges import State as State
from dpose.account.charges import charges as charges
from dpose.account.charges import check_account as check_account
from dpose.account.charges import groups as groups
from dpose.account.charges import lineage as lineage
from dpose.account.charges import names_of_run as names_of_run
from dpose.account.charges import overlapping as overlapping
from dpose.account.charges import rollback_count as rollback_count
from dpose.account.charges import unbounded as unbounded
from dpose.account.composition import Spent as Spent
from dpose.account.composition import composed as composed
from dpose.account.composition import composed_each as composed_each
from dpose.account.composition import spending as spending
from dpose.account.store import Where as Where
from dpose.account.store import accept_account as accept_account
from dpose.account.store import account_exists as account_exists
