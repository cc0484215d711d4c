"""Faults of the account: what is charged, what all charges cost together, and what the file says of itself."""

from __future__ import annotations

import contextlib
from collections import ChainMap
from dataclasses import replace
from types import SimpleNamespace

from dpose.account.charges import sets_meeting
from mutants.planted.patches import Patches, Planted


def _own_plan_for_each_copy(patch: Patches) -> None:
    def make(original):
        @contextlib.contextmanager
        def moving(self):
            with original(self):
                yield self.planned - self.ledger.spent_steps

        return moving

    patch.replace("dpose.account.budgets:CountedSteps._moving", make)


def _reserved_forgotten(patch: Patches) -> None:
    reserved = patch.get("dpose.account.charges:State").RESERVED

    def make(original):
        def shares(account, kept, known, without=""):
            seen = SimpleNamespace(among=lambda sets: [c for c in known.among(sets) if c.state is not reserved])
            return original(account, kept, seen, without)

        return shares

    patch.replace("dpose.account.budgets:_shares", make)


def _bound_does_not_grow(patch: Patches) -> None:
    read = patch.get("dpose.account.budgets:_read_bound")
    write = patch.get("dpose.account.budgets:_write_bound")

    def make(original):
        def admit(account, kept, *rest):
            stored = read(account, kept)
            original(account, kept, *rest)
            write(account, kept, stored)

        return admit

    patch.replace("dpose.account.budgets:_admit", make)


def _replaced_as_zeroed(patch: Patches) -> None:
    def make(original):
        return lambda q, sigma, order, replaces: original(q, sigma, order, False)

    patch.replace("dpose.privacy.renyi:step_divergence", make)


def _delta_not_taken_off(patch: Patches) -> None:
    approximate = patch.get("dpose.privacy.events:Approximate")

    def make(original):
        def by_renyi(counted, delta, replaces):
            failing = sum(event.delta * count for event, count in counted if isinstance(event, approximate))
            return original(counted, delta + failing, replaces)

        return by_renyi

    patch.seen_by("dpose.privacy.accounting", "_by_renyi", make)


def _seen(account) -> object:
    return account.store.seen if account.before is None else account.before


def _older_copy(patch: Patches) -> None:
    nothing_seen = patch.get("dpose.account.store:HighWater")()

    def make(original):
        def head(self):
            if not self.rows("SELECT 1 FROM journal WHERE seq = :seq", seq=_seen(self).seq):
                self.before = nothing_seen
            return original(self)

        return head

    patch.replace("dpose.account.store:Transaction.head", make)


def _another_history(patch: Patches) -> None:
    nothing_seen = patch.get("dpose.account.store:HighWater")()

    def make(original):
        def head(self):
            if self.rows("SELECT 1 FROM journal WHERE seq = :seq", seq=_seen(self).seq):
                self.before = nothing_seen
            return original(self)

        return head

    patch.replace("dpose.account.store:Transaction.head", make)


def _begun_anew(patch: Patches) -> None:
    nothing_seen = patch.get("dpose.account.store:HighWater")()

    def make(original):
        return lambda self: original(SimpleNamespace(file=self.file, folder=self.folder, seen=nothing_seen))

    patch.replace("dpose.account.store:Store._absent", make)


def _read_later(patch: Patches) -> None:
    def make(original):
        def with_rows(self, rows, where):
            made = original(self, rows, where)
            first = {
                one: tuple(n for n in names if n not in self.charges or n in self.by_set.get(one, ()))
                for one, names in made.by_set.items()
            }
            return replace(made, by_set=ChainMap(first))

        return with_rows

    patch.replace("dpose.account.charges:History.with_rows", make)


def _committed_early(patch: Patches) -> None:
    conclude = patch.get("dpose.account.budgets:conclude")

    def make(original):
        @contextlib.contextmanager
        def committing(name, outputs=(), where=None):
            with original(name, outputs, where):
                if name:
                    conclude({name: tuple(outputs)}, where=where)
                yield

        return committing

    patch.replace("dpose.account.budgets:committing", make)


CLAIM = ("what", "unit", "within", "relation", "beyond")


def _another_claim(patch: Patches) -> None:
    def make(original):
        return lambda before, entry: original(replace(before, **{name: getattr(entry, name) for name in CLAIM}), entry)

    patch.replace("dpose.account.charges:joined", make)


def _bounded_later(patch: Patches) -> None:
    def make(original):
        return lambda before, entry: original(replace(before, events=before.events or entry.events), entry)

    patch.replace("dpose.account.charges:joined", make)


def _always_planned(patch: Patches) -> None:
    chosen = patch.get("dpose.account.composition:chosen_epsilon")
    share = patch.get("dpose.account.composition:chosen_share")
    patch.replace(
        "dpose.account.composition:Compositions.chosen",
        lambda _: (
            lambda self, entries, delta, asked: chosen(entries, delta, asked, self.of(entries, share(delta), asked))
        ),
    )


def _scores_passed_over(patch: Patches) -> None:
    score = patch.get("dpose.account.charges:EVALUATION")

    def make(original):
        def spent(computed, found, chains, asked, delta, also):
            bounded, more = ([e for e in part if e.what != score] for part in (found, also))
            told = original(computed, bounded, chains, asked, delta, more)
            scores = len(found) + len(also) - len(bounded) - len(more)
            return replace(told, charges=tuple(found), scores=scores)

        return spent

    patch.replace("dpose.account.composition:_spent", make)


ACCOUNT = (
    Planted(
        "account: steps past the plan are not charged",
        lambda patch: patch.seen_by(
            "dpose.account.budgets", "charge_within", lambda _: lambda *args, **kw: None, "CountedSteps._note"
        ),
        ("account/test_ledgers.py::test_what_passes_the_plan_is_charged",),
    ),
    Planted(
        "account: a copy that is behind goes on under its key",
        lambda patch: patch.replace(
            "dpose.account.budgets:CountedSteps._may",
            lambda original: (
                lambda self, use, *rest: original(self, use and replace(use, head=self.ledger.head), *rest)
            ),
        ),
        ("account/test_ledgers.py::test_a_copy_that_is_behind_has_no_key",),
    ),
    Planted(
        "account: each copy of a ledger has the plan's steps for itself",
        _own_plan_for_each_copy,
        ("account/test_ledgers.py::test_copies_together_keep_to_the_plan",),
    ),
    Planted(
        "choosing: weights that the account knows of one side",
        lambda patch: patch.seen_by(
            "dpose.account.budgets",
            "names_of_run",
            lambda original: lambda run_id: original(run_id)[:1],
            "note_weights",
        ),
        ("runs/test_tune.py::test_the_best_trial_becomes_a_run_whose_statement_carries_the_price",),
    ),
    Planted(
        "audits left out of the composed epsilon",
        lambda patch: patch.argument(
            "dpose.account.composition:composed",
            "entries",
            lambda entries: [entry for entry in entries if entry.what != "audit"],
        ),
        ("account/test_account.py::test_an_audit_counts_as_any_run_does",),
    ),
    Planted(
        "a filter that forgets what was only reserved",
        _reserved_forgotten,
        ("account/test_account.py::test_a_budget_refuses_beforehand",),
    ),
    Planted(
        "a stored bound that does not grow",
        _bound_does_not_grow,
        ("account/test_account.py::test_a_budget_refuses_beforehand",),
    ),
    Planted(
        "replacement accounted as zeroing out",
        _replaced_as_zeroed,
        ("account/test_store.py::test_replacement_under_sampling_is_bounded",),
    ),
    Planted(
        "group privacy of zCDP that grows with k and not with its square",
        lambda patch: patch.seen_by(
            "dpose.privacy.events",
            "_restated",
            lambda original: lambda event, name, _power, *rest: original(event, name, 1, *rest),
            "Gaussian.for_neighbours",
        ),
        ("account/test_store.py::test_losses_are_restated_by_group_privacy_or_better",),
    ),
    Planted(
        "people in parallel, as if each were in one picture",
        lambda patch: patch.replace(
            "dpose.privacy.neighbours:Neighbours.together", lambda _: lambda self: self.unit == "video"
        ),
        ("account/test_store.py::test_people_are_added_up_whatever_pictures_share",),
    ),
    Planted(
        "an older copy of an account taken for the account",
        _older_copy,
        ("account/test_set_back.py::test_an_older_copy_is_refused_and_taken_only_where_that_is_wanted",),
    ),
    Planted(
        "another history of an account taken for its own",
        _another_history,
        ("account/test_set_back.py::test_another_history_of_the_same_length_or_longer_is_not_the_one_that_was_seen",),
    ),
    Planted(
        "an account that is gone begun anew",
        _begun_anew,
        ("account/test_store.py::test_an_account_that_is_gone_is_not_begun_anew",),
    ),
    Planted(
        "SQLite's transactions begin without the lock",
        lambda patch: patch.replace(
            "dpose.account.store:Store._begun",
            lambda original: lambda self, connection, write: original(self, connection, write and not self.lite),
        ),
        ("account/test_store.py::test_who_writes_waits_before_anything_is_read",),
    ),
    Planted(
        "the account: a picture taken to be public is not found by it",
        lambda patch: patch.replace(
            "dpose.account.charges:row_sets", lambda _: lambda row: frozenset(map(int, row.body["sets"]))
        ),
        ("account/test_store.py::test_the_charges_of_a_picture_are_found_without_looking_at_the_others",),
    ),
    Planted(
        "the account: what a charge read later is not found by it",
        _read_later,
        ("account/test_store.py::test_the_charges_of_a_picture_are_found_without_looking_at_the_others",),
    ),
    Planted(
        "committed before it is computed",
        _committed_early,
        (
            "lab/attacks/test_counted.py::test_all_that_it_may_look_at_is_reserved_before_it_computes_and_committed_when_it_is_written",
        ),
    ),
    Planted(
        "charged again: another claim takes the place of the first",
        _another_claim,
        ("account/test_account.py::test_charged_again_a_charge_claims_no_more_than_before",),
    ),
    Planted(
        "charged again: what nothing bounded becomes bounded",
        _bounded_later,
        ("account/test_account.py::test_charged_again_a_charge_claims_no_more_than_before",),
    ),
    Planted(
        "charged again: two equal losses become one",
        lambda patch: patch.result(
            "dpose.account.charges:_joined_events", lambda events, before, after: tuple(dict.fromkeys(events))
        ),
        ("account/test_account.py::test_charged_again_events_only_grow",),
    ),
    Planted(
        "a fixed plan: the delta of approximate losses is not taken off",
        _delta_not_taken_off,
        ("account/test_account.py::test_the_delta_of_an_approximate_loss_is_no_longer_there_for_the_others",),
    ),
    Planted(
        "a budget for subjects counts what read its own pictures alone",
        lambda patch: patch.replace(
            "dpose.account.charges:sets_of_people", lambda _: lambda account, known, sets: sets_meeting(account, sets)
        ),
        ("account/test_store.py::test_a_budget_for_subjects_counts_what_runs_for_subjects_connect",),
    ),
    Planted(
        "a budget: approximate losses have all the delta that they like",
        lambda patch: patch.argument("dpose.account.budgets:_within", "cost", lambda cost: (cost[0], 0.0)),
        ("account/test_account.py::test_a_budget_keeps_a_tenth_of_its_delta_for_approximate_losses",),
    ),
    Planted(
        "chosen after earlier ones: every filter has the whole delta",
        lambda patch: patch.replace("dpose.account.composition:chosen_share", lambda _: lambda delta: delta),
        ("account/test_account.py::test_the_filters_that_are_asked_together_share_delta",),
    ),
    Planted(
        "chosen after earlier ones: approximate losses have all the delta that they like",
        lambda patch: patch.seen_by(
            "dpose.account.composition",
            "renyi_cost",
            lambda original: lambda *args, **kw: (original(*args, **kw)[0], 0.0),
            "chosen_epsilon",
        ),
        ("account/test_account.py::test_what_no_filter_lets_in_has_no_figure",),
    ),
    Planted(
        "chosen after earlier ones: several runs as one that was planned",
        _always_planned,
        (
            "account/test_account.py::test_what_holds_for_runs_chosen_after_earlier_ones_is_what_a_budget_would_have_let_in",
        ),
    ),
    Planted(
        "chosen after earlier ones: a score without noise is passed over",
        _scores_passed_over,
        ("account/test_account.py::test_what_no_filter_lets_in_has_no_figure",),
    ),
)
