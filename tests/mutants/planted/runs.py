"""Faults of what is asked of a run: scores with and without noise, first weights by name, statements' files."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from mutants.planted.patches import Patches, Planted


def _without_joints_left_out(original):
    def contributions(self, values):
        if self.joints is None:
            values = np.asarray(values, np.float64)
            values = values[~np.isnan(values)]
        return original(self, values)

    return contributions


def _left_out_of_the_divisor(patch: Patches) -> None:
    scored: list = []

    def noised_sums(original):
        def called(query, values, *rest):
            scored.append(values)
            return original(query, values, *rest)

        return called

    def ratio_of(original):
        return lambda query, sums, units: original(query, sums, units and int(np.count_nonzero(scored[-1])))

    patch.seen_by("dpose.runs.noised_score", "noised_sums", noised_sums, "evaluate_noised")
    patch.seen_by("dpose.runs.noised_score", "ratio_of", ratio_of, "_result")


def _left_out_alone(patch: Patches) -> None:
    grid = patch.get("dpose.privacy.noised_query:GRID")

    def make(original):
        return lambda self: original(self) if self.joints is None else self.joints * grid

    patch.replace("dpose.privacy.noised_query:NoisedQuery.l1", make)


def _told_by_files(patch: Patches, folder) -> dict:
    """The queries that the noised scores in a run folder say they are, by their files' names."""
    query_of = patch.get("dpose.privacy.scores:query_of")
    score_name = patch.get("dpose.privacy.scores:score_name")
    told = {}
    for file in sorted((folder / patch.get("dpose.privacy.scores:FOLDER")).glob("*.json")):
        raw = file.read_bytes()
        try:
            content = json.loads(raw)
        except ValueError:
            continue
        if isinstance(content, dict) and "privacy" in content:
            told[file.name] = query_of(content, score_name(raw, file.name), str(file))
    return told


def _bound_to_nothing(patch: Patches) -> None:
    def make(original):
        def check(folder, queries):
            told = _told_by_files(patch, folder)
            return original(folder, [told.get(q.score.partition("  ")[2], q) for q in queries])

        return check

    patch.replace("dpose.privacy.scores:check_scores", make)


def _without_a_line(patch: Patches) -> None:
    def make(original):
        def check(folder, queries):
            known = {query.score.partition("  ")[2] for query in queries}
            told = _told_by_files(patch, folder)
            return original(folder, [*queries, *(told[name] for name in told.keys() - known)])

        return check

    patch.replace("dpose.privacy.scores:check_scores", make)


def _noise_in_one_sum(original):
    def noised_sums(query, values, *rest):
        return (original(query, values, *rest)[0], *query.sums(values)[1:])

    return noised_sums


def _drawn_by_place(original):
    def load(self, index, rng):
        given = SimpleNamespace(load=lambda index, _own: self.dataset.load(index, rng))
        return original(SimpleNamespace(dataset=given), index, rng)

    return load


def _scored_first(patch: Patches) -> None:
    known: dict = {}

    def kept(name):
        def make(original):
            def called(*args, **kw):
                known[name] = original(*args, **kw)
                return known[name]

            return called

        return make

    def reserve(original):
        def called(folder, statement, units, *args, **kw):
            scores = patch.get("dpose.runs.noised_score:unit_scores")  # as it is by then
            scores(known["task"], known["model"], units)
            return original(folder, statement, units, *args, **kw)

        return called

    patch.seen_by("dpose.runs.noised_score", "on_device", kept("model"), "evaluate_noised")
    patch.seen_by("dpose.runs.noised_score", "_by_unit", kept("task"), "evaluate_noised")
    patch.seen_by("dpose.runs.noised_score", "reserve_noised_score", reserve, "evaluate_noised")


def _beside_a_picture(patch: Patches) -> None:
    sidecar_of = patch.get("dpose.release.embed:sidecar_of")
    released = patch.get("dpose.release.verify:ARTEFACTS")

    def beside(found, path):
        if path.is_file() and path.suffix.lower() in released and sidecar_of(path).is_file():
            return replace(found, file=sidecar_of(path))
        return found

    patch.result("dpose.runs.statement_files:open_statement", beside)


def _by_the_run_beside_them(origin):
    def origin_of(first, entries):
        runs, unknown = origin(first, entries)
        return runs, [digest for digest in unknown if digest != first.digest or not runs]

    return origin_of


def _with_the_statements_events(original):
    def expected(statement, *rest):
        *given, first = rest
        return original(statement, *given, replace(first, events=statement.events[1:]))

    return expected


TWO_RUNS = "runs/test_two_runs.py"


def _with_most_noise(plan):
    return replace(plan, epsilon=None, noise_multiplier=60_000.0)


RUNS = (
    Planted(
        "two private runs: the one behind is left out of the budget that both share",
        lambda patch: patch.argument("dpose.training.plan:shared_budget", "behind", _with_most_noise),
        ("runs/test_two_runs.py::test_two_private_runs_share_one_budget", "training/test_plan.py"),
    ),
    Planted(
        "two private runs: copies of a unit count as units when the budget is shared",
        lambda patch: patch.seen_by(
            "dpose.runs.stages", "published_count", lambda _: lambda config, count: 2 * count, "private_stage"
        ),
        ("runs/test_two_runs.py::test_both_runs_keep_the_budget_where_pictures_have_copies",),
    ),
    Planted(
        "two private runs: the budget is shared for the nominal number of units, whatever the limit",
        lambda patch: patch.seen_by(
            "dpose.runs.stages",
            "published_count",
            lambda _: lambda config, count: config.plan.nominal_units or count,
            "private_stage",
        ),
        (f"{TWO_RUNS}::test_both_runs_keep_the_budget_where_a_limit_stands_below_the_nominal_number",),
    ),
    Planted(
        "two private runs: the key of a first run that was killed at its end stays",
        lambda patch: patch.seen_by("dpose.runs.stages", "keys_kept", lambda _: list, "_taken"),
        (f"{TWO_RUNS}::test_a_first_run_that_was_killed_before_it_forgot_its_key_is_ended",),
    ),
    Planted(
        "first weights: the statement alone says which of their events count",
        lambda patch: patch.replace("dpose.runs.verify_plan:_expected", _with_the_statements_events),
        ("training/test_first_weights.py::test_an_event_that_is_taken_out_of_the_statement_alone_is_missed",),
    ),
    Planted(
        "two private runs: the last goes on from a first one that the account does not know",
        lambda patch: patch.replace("dpose.runs.stages:_check_charged", lambda _: lambda folder: None),
        ("runs/test_two_runs.py::test_a_budget_that_lets_in_the_first_run_alone_lets_in_none",),
    ),
    Planted(
        "two private runs: the statement of the last counts its own event alone",
        lambda patch: patch.replace("dpose.training.first_weights:_events_of", lambda _: lambda read: ()),
        ("runs/test_two_runs.py::test_two_private_runs_share_one_budget",),
    ),
    Planted(
        "first weights: a run that the account does not know may have taught them on the same set",
        lambda patch: patch.replace("dpose.training.first_weights:_check_known", lambda _: lambda *given: None),
        ("training/test_first_weights.py::test_so_are_those_that_a_run_unknown_to_the_account_taught_on_the_same_set",),
    ),
    Planted(
        "first weights: what lies beside a run's ledger is what it released",
        lambda patch: patch.replace("dpose.training.first_weights:_origin", _by_the_run_beside_them),
        ("training/test_first_weights.py::test_nor_are_they_where_no_seal_says_so",),
    ),
    Planted(
        "first weights: sets share pictures under the same name alone",
        lambda patch: patch.seen_by(
            "dpose.known_sets", "_origins", lambda _: lambda key: frozenset(), "shares_pictures"
        ),
        ("training/test_trained_on.py::TestTable::test_relations_hold_both_ways",),
    ),
    Planted(
        "verify: what is taken as given of first weights may be left out",
        lambda patch: patch.argument(
            "dpose.runs.verify_plan:given_of_first", "first", lambda first: replace(first, conditions=())
        ),
        ("runs/test_seen.py",),
    ),
    Planted(
        "a score's divisor: the private number of units",
        lambda patch: patch.replace(
            "dpose.privacy.noised_query:NoisedQuery.counts_units", lambda _: lambda self: False
        ),
        ("privacy/test_noised_query.py::test_the_number_of_units_is_a_sum_where_it_is_private_and_only_there",),
    ),
    Planted(
        "units without joints left out of the mean",
        lambda patch: patch.replace("dpose.privacy.noised_query:NoisedQuery.contributions", _without_joints_left_out),
        ("privacy/test_noised_query.py::test_the_number_of_units_is_a_sum_where_it_is_private_and_only_there",),
    ),
    Planted(
        "units without joints left out of the number that divides",
        _left_out_of_the_divisor,
        ("runs/test_noised_score.py::test_the_mean_divides_by_all_units_also_those_without_joints",),
    ),
    Planted(
        "no cap on a unit's joints",
        lambda patch: patch.seen_by(
            "dpose.runs.group_scores", "smallest", lambda _: lambda names, most: range(len(names)), "capped"
        ),
        ("runs/test_noised_score.py::test_at_most_so_many_joints_of_a_unit_count",),
    ),
    Planted(
        "pooled joints noised as if a unit could only be left out",
        _left_out_alone,
        ("privacy/test_noised_query.py::test_by_brute_force_the_sensitivity_is_what_is_said_and_no_less",),
    ),
    Planted(
        "a noised score that is bound to nothing",
        _bound_to_nothing,
        ("runs/test_noised_score.py::test_a_score_is_bound_to_the_query_that_records_it",),
    ),
    Planted(
        "a noised score that no line is about",
        _without_a_line,
        ("runs/test_noised_score.py::test_a_score_is_bound_to_the_query_that_records_it",),
    ),
    Planted(
        "a noised score whose line names no file",
        lambda patch: patch.seen_by(
            "dpose.runs.evaluate", "score_name", lambda _: lambda raw, file: "", "record_score"
        ),
        ("runs/test_noised_score.py::test_a_score_is_bound_to_the_query_that_records_it",),
    ),
    Planted(
        "a score's interval without its noise",
        lambda patch: patch.seen_by(
            "dpose.privacy.noised_query",
            "tail",
            lambda _: lambda event, beyond, *_: np.where(beyond <= 0, 1.0, 0.0),
            "ratio_of",
        ),
        ("privacy/test_noised_query.py::test_the_interval_holds_the_score_without_noise",),
    ),
    Planted(
        "a score's noise in one of two sums",
        lambda patch: patch.replace("dpose.privacy.noised_query:noised_sums", _noise_in_one_sum),
        ("privacy/test_noised_query.py::test_the_noise_that_is_added_has_the_events_law",),
    ),
    Planted(
        "a unit's views drawn by its place among the units",
        lambda patch: patch.replace("dpose.runs.group_scores:_FixedDraws.load", _drawn_by_place),
        ("runs/test_noised_score.py::test_a_unit_scores_the_same_whatever_the_others_are_and_wherever_it_stands",),
    ),
    Planted(
        "a score that is computed before it is reserved",
        _scored_first,
        ("runs/test_noised_score.py::test_it_is_reserved_before_anything_is_computed",),
    ),
    Planted("a file beside a picture is taken for what was signed", _beside_a_picture, ("cli/test_statement.py",)),
    Planted(
        "absent pictures are scored past a budget that may be theirs",
        lambda patch: patch.seen_by("dpose.runs.scored", "budgets", lambda _: lambda *args: [], "reserve_labels"),
        ("runs/test_scoring.py::test_while_a_budget_stands_absent_pictures_are_refused",),
    ),
    Planted(
        "pictures that are there are on no account where others are absent",
        lambda patch: patch.argument("dpose.runs.scored:reserve_labels", "units", lambda _: None),
        ("runs/test_scoring.py::test_some_missing_are_charged_beside_those_that_are_there",),
    ),
    Planted(
        "a noised score of protected units, by content or copies",
        lambda patch: patch.seen_by(
            "dpose.runs.scored", "_check_unprotected", lambda _: lambda *args, **kw: None, "reserve_noised_score"
        ),
        ("runs/test_tasks.py::test_copies_and_people_of_protected_units_are_neither_watched_nor_scored",),
    ),
    Planted(
        "a score of protected units, by content or copies",
        lambda patch: patch.seen_by(
            "dpose.runs.scored", "_check_unprotected", lambda _: lambda *args, **kw: None, "reserve_score"
        ),
        ("runs/test_tasks.py::test_copies_and_people_of_protected_units_are_neither_watched_nor_scored",),
    ),
)
