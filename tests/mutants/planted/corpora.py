"""Faults of releasing a corpus by workers: what is reserved, what travels, and what is done after a worker died."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from mutants.planted.patches import Patches, Planted


def never_another(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def again(self: Any, item: Any) -> Any:
            original(self, replace(item, charge=None))
            return item

        return again

    patch.replace("dpose.release.batch:_Batch._again", make)


def at_no_frame(patch: Patches) -> None:
    """What travelled with the key, and tells no frames, takes the place of what was reserved."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def again(self: Any, item: Any) -> Any:
            if item.charge is not None:
                self.reserved[item.charge.id] = item.charge
            return original(self, item)

        return again

    patch.replace("dpose.release.batch:_Batch._again", make)


def one_key(patch: Patches) -> None:
    patch.argument("dpose.release.batch:_Batch._secret", "name", lambda _: "")


def with_all_digests(patch: Patches) -> None:
    patch.seen_by("dpose.release.batch", "slight", lambda _: lambda job: job, within="_Batch._item")


def not_what_was_reserved(patch: Patches) -> None:
    """A picture is released whatever it was when it was reserved."""

    def unheard(item: Any) -> Any:
        return item if item.job.video else replace(item, job=replace(item.job, original=None))

    patch.argument("dpose.release.items:release_item", "item", unheard)


def second_unasked(patch: Patches) -> None:
    patch.argument("dpose.release.counting:ReleaseHistory.check", "again", lambda _: True)


def keys_of_another(patch: Patches) -> None:
    """The same key is taken up by other code, and reservations are named alike whatever the code."""

    corpus = importlib.import_module("dpose.release.manifest")

    def resumed(original: Callable[..., Any]) -> Callable[..., Any]:
        def kept_key(*args: Any) -> Any:
            kept = original(*args)
            return kept and replace(kept, surroundings={**kept.surroundings, "code": corpus.worker_code()})

        return kept_key

    def named(original: Callable[..., Any]) -> Callable[..., Any]:
        def named_alike(self: Any, one: Any) -> Any:
            with mock.patch.object(corpus, "worker_code", str):
                return original(self, one)

        return named_alike

    patch.seen_by("dpose.release.manifest", "kept_key", resumed, within="CorpusFolder.open")
    patch.replace("dpose.release.batch:_Batch._id", named)


CORPORA = (
    Planted(
        "a corpus: another attempt is never another release",
        never_another,
        ("release/test_corpus.py::test_where_sums_may_differ_another_attempt_is_another_release",),
    ),
    Planted(
        "a corpus: another attempt is one at no frame",
        at_no_frame,
        ("release/test_corpus.py::test_what_a_killed_worker_had_begun_to_write_does_not_stay",),
    ),
    Planted(
        "a corpus: one key for all its releases", one_key, ("release/test_corpus.py::test_secrets_stay_out_of_sight",)
    ),
    Planted(
        "a corpus: a key travels with the digests of all frames",
        with_all_digests,
        ("release/test_corpus.py::test_a_key_travels_with_little_however_long_a_video_is",),
    ),
    Planted(
        "a corpus: a worker's folder may be another one",
        lambda patch: patch.nothing("dpose.release.items:check_folder"),
        ("release/test_corpus.py::test_a_worker_that_has_another_folder_releases_nothing",),
    ),
    Planted(
        "a corpus: what is released is not what was reserved",
        not_what_was_reserved,
        ("release/test_corpus.py::test_a_file_that_was_changed_after_it_was_reserved_is_refused",),
    ),
    Planted(
        "a corpus: a worker releases by a plan of its own",
        lambda patch: patch.nothing("dpose.release.items:_check_plan"),
        ("release/test_corpus.py::test_a_worker_whose_plan_is_another_releases_nothing",),
    ),
    Planted(
        "a corpus: nobody asks for a second release",
        second_unasked,
        ("release/test_corpus.py::test_a_second_release_is_refused_without_again",),
    ),
    Planted(
        "a corpus: a cut-off command's reservations are another's keys",
        keys_of_another,
        ("release/test_corpus.py::test_other_code_is_another_release",),
    ),
)
