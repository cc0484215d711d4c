"""Faults of attacks, experiments and data of actions: what is counted before it is looked at."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from mutants.planted.patches import Patches, Planted


def _reserved_once_made(patch: Patches) -> None:
    def committing(original):
        @contextlib.contextmanager
        def called(reserve):
            yield
            with original(reserve()):
                pass

        return called

    patch.seen_by(
        "dpose_lab.papers.reproduce", "_reserved", lambda original: lambda *args: partial(original, *args), "reproduce"
    )
    patch.seen_by("dpose_lab.papers.reproduce", "committing", committing, "reproduce")


LAB = (
    Planted(
        "an attack that reserves nothing",
        lambda patch: patch.seen_by(
            "dpose_lab.attacks.context", "charge", lambda _: lambda *args, **kw: SimpleNamespace(id=""), "_reserved"
        ),
        (
            "lab/attacks/test_counted.py::test_all_that_it_may_look_at_is_reserved_before_it_computes_and_committed_when_it_is_written",
        ),
    ),
    Planted(
        "releases attacked as painted whatever their name says",
        lambda patch: patch.argument("dpose_lab.attacks.transforms:private", "restore", lambda _: "none"),
        ("lab/attacks/test_attacks.py::test_restorations_of_one_release_share_its_noise_and_say_which_they_are",),
    ),
    Planted(
        "an attack on pictures that are read again after they were counted",
        lambda patch: patch.result(
            "dpose_lab.attacks.identities:Identities.read",
            lambda found, self, *_: (replace(found[0], load=self.load), found[1]),
        ),
        ("lab/attacks/test_counted.py::test_what_is_attacked_is_what_was_counted_whatever_becomes_of_the_files",),
    ),
    Planted(
        "people who teach an attacker are not counted",
        lambda patch: patch.result(
            "dpose_lab.attacks.attack:ReleaseAttack.reads",
            lambda found, self, config, people: found[: len(people.first(people.people, 0, self.pictures))],
        ),
        (
            "lab/attacks/test_counted.py::test_all_that_it_may_look_at_is_reserved_before_it_computes_and_committed_when_it_is_written",
        ),
    ),
    Planted(
        "an experiment that is reserved once it is made",
        _reserved_once_made,
        (
            "lab/papers/test_papers.py::TestCounted::test_originals_are_reserved_first_and_committed_when_all_is_written",
        ),
    ),
    Planted(
        "a video's frames are on no account",
        lambda patch: patch.seen_by(
            "dpose.action.data.sources",
            "video_hashes",
            lambda original: lambda *args: original(*args)[:2],
            "VideoFile._hashes",
        ),
        ("action/test_data.py::test_a_video_is_known_by_its_file_its_frames_together_and_each_of_them",),
    ),
)
