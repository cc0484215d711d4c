"""Faults of the studio: who is let in, what is read and served, and what a release of it says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np

from mutants.planted.patches import Patches, Planted


def listed(patch: Patches, path: str, name: str, make: Callable[[Any], Any]) -> None:
    """Exchange one function of a mapping from names to functions."""
    patch.replace(path, lambda calls: {**calls, name: make(calls[name])})


# ---------------------------------------------------------------------------------------- who is let in


def any_host(patch: Patches) -> None:
    class Every(frozenset[str]):
        def __contains__(self, _: object) -> bool:
            return True

    patch.result("dpose.studio.security:Door.hosts", lambda hosts, _: Every(hosts))


def any_origin(patch: Patches) -> None:
    def own(scope: Any) -> Any:
        headers = list(scope["headers"])
        host = next((value for name, value in headers if name.lower() == b"host"), b"")
        mended = [(name, b"http://" + host if name.lower() == b"origin" else value) for name, value in headers]
        return {**scope, "headers": mended}

    patch.argument("dpose.studio.security:Door.refusal", "scope", own)


def any_secret(patch: Patches) -> None:
    header = patch.get("dpose.studio.security:HEADER").encode()

    def known(knows: bool, _: Any, scope: Any) -> bool:
        return knows or [name.lower() for name, _ in scope["headers"]].count(header) == 1

    patch.result("dpose.studio.security:Door.knows", known)


def any_key(patch: Patches) -> None:
    def known(knows: bool, _: Any, scope: Any) -> bool:
        return knows or len(parse_qs(scope["query_string"].decode("latin-1")).get("key", [])) == 1

    patch.result("dpose.studio.security:Door.knows", known)


def one_key(patch: Patches) -> None:
    patch.argument("dpose.studio.security:Door._key", "path", lambda _: "")


def no_policy(patch: Patches) -> None:
    patch.seen_by(
        "dpose.studio.app",
        "HTMLResponse",
        lambda response: lambda content, headers=None: response(content),
        within="make_app",
    )


def no_sandbox(patch: Patches) -> None:
    patch.replace("dpose.studio.security:REPORT_POLICY", lambda policy: policy.removeprefix("sandbox; "))


DOOR = (
    Planted(
        "studio: another name of this machine is let in",
        any_host,
        ("studio/test_security.py::test_another_name_of_this_machine_is_misdirected",),
    ),
    Planted(
        "studio: a page of another site is answered",
        any_origin,
        ("studio/test_security.py::test_a_page_of_another_site_gets_no_answer",),
    ),
    Planted(
        "studio: any secret opens it",
        any_secret,
        ("studio/test_security.py::test_no_secret_or_yesterdays_opens_nothing",),
    ),
    Planted("studio: any key opens a path", any_key, ("studio/test_security.py::test_a_key_opens_its_own_path_alone",)),
    Planted(
        "studio: a key opens every path", one_key, ("studio/test_security.py::test_a_key_opens_its_own_path_alone",)
    ),
    Planted(
        "studio: a report may run what it holds",
        no_policy,
        ("studio/test_views.py::test_a_report_runs_nothing_whatever_it_holds",),
    ),
    Planted(
        "studio: a report's policy has no sandbox",
        no_sandbox,
        ("studio/test_views.py::test_a_report_runs_nothing_whatever_it_holds",),
    ),
)


# ---------------------------------------------------------------------------------------- what is read and served


def every_file_served(patch: Patches) -> None:
    class Generous:
        """A job that has written all that lies beside what it wrote."""

        def __init__(self, job: Any) -> None:
            vars(self)["job"] = job

        def __getattr__(self, name: str) -> Any:
            found = getattr(vars(self)["job"], name)
            if name != "files":
                return found
            return [path for folder in {file.parent for file in found} for path in folder.iterdir()]

        def __setattr__(self, name: str, value: object) -> None:
            setattr(vars(self)["job"], name, value)

    patch.result("dpose.studio.jobs:Jobs.get", lambda job, *_: Generous(job))


def exchanged_for_a_model(patch: Patches) -> None:
    digest = patch.get("dpose.files:file_digest")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda task: original({**task, "digest": digest(Path(task["source"]))})

    listed(patch, "dpose.studio.worker:WORK", "predict", make)


def links_followed(patch: Patches) -> None:
    patch.replace("dpose.studio.worker:_inside", lambda _: lambda jobs, task: list(jobs))


def among_what_is_written(patch: Patches) -> None:
    """What the studio writes of an upload lies in the upload's own folder."""

    def decoded(answer: Callable[..., Any]) -> Callable[..., Any]:
        def called(work: str, task: Any, **limits: Any) -> Any:
            beside = Path(task["source"]).is_relative_to(task["room"])
            room = str(Path(task["source"]).parent) if beside else task["room"]
            return answer(work, {**task, "room": room}, **limits)

        return called

    def kept(opened: Callable[..., Any]) -> Callable[..., Any]:
        return lambda name, source, roots, room, facts: opened(
            name, source, roots, source.parent if source.is_relative_to(room) else room, facts
        )

    patch.seen_by("dpose.studio.opened", "answer", decoded, within="OpenedFiles.open")
    patch.seen_by("dpose.studio.opened", "OpenedFile", kept, within="OpenedFiles.open")


def link_out(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def find(self: Any, place: Any) -> Path:
            root, inner = self._split(place)
            led = os.path.realpath(root / inner)
            return Path(led) if os.path.exists(led) else original(self, place)

        return find

    patch.replace("dpose.studio.roots:Roots.find", make)


SERVED = (
    Planted(
        "studio: any file of the output folder is served",
        every_file_served,
        ("studio/test_release.py::test_what_a_job_wrote_is_served_and_nothing_else_of_the_folder",),
    ),
    Planted(
        "studio: a model is tried on a file that was exchanged",
        exchanged_for_a_model,
        ("studio/test_release.py::test_no_worker_tells_of_other_bytes_than_were_opened",),
    ),
    Planted(
        "studio: a file that was exchanged since it was opened is released",
        lambda patch: patch.nothing("dpose.studio.worker:_check_same"),
        ("studio/test_release.py::test_a_file_that_was_exchanged_since_it_was_opened_is_not_released",),
    ),
    Planted(
        "studio: a folder's links out are released",
        links_followed,
        ("studio/test_release.py::test_a_folder_is_released_without_what_leads_out_of_it",),
    ),
    Planted(
        "studio: an upload lies among what the studio writes",
        among_what_is_written,
        ("studio/test_release.py::test_an_upload_keeps_its_bytes_whatever_it_is_called",),
    ),
    Planted(
        "studio: a link leads out of the folders",
        link_out,
        ("studio/test_security.py::test_a_folder_that_is_not_there_yet_is_read_once_it_is",),
    ),
)


# ---------------------------------------------------------------------------------------- jobs and releases


def always_holds(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda studio, body: original(studio, body) | {"holds": True}

    listed(patch, "dpose.studio.app:CALLS", "verify_job", make)


def jobs_outlive(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def close(self: Any) -> None:
            self.stop = lambda name: None
            original(self)
            del self.stop

        return close

    patch.replace("dpose.studio.jobs:Jobs.close", make)


def same_noise(patch: Patches) -> None:
    patch.argument("dpose.studio.preview:_noise", "rng", lambda _: np.random.default_rng(0))


def unlimited(patch: Patches) -> None:
    patch.argument("dpose.studio.worker:limit", "memory", lambda _: 0)


def not_said(patch: Patches) -> None:
    seen = patch.get("dpose.studio.settings:SEEN")

    def less(caveats: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(caveat for caveat in caveats if caveat != seen)

    patch.argument("dpose.release.jobs:JobList.said", "caveats", less)


def step_below(patch: Patches) -> None:
    patch.argument("dpose.studio.settings:up_the_ladder", "pixels", lambda pixels: max(1, pixels // 2 + 1))


JOBS = (
    Planted(
        "studio: whatever a job wrote holds",
        always_holds,
        ("studio/test_release.py::test_a_release_that_was_altered_does_not_verify",),
    ),
    Planted(
        "studio: jobs outlive it", jobs_outlive, ("studio/test_views.py::test_the_end_of_the_studio_ends_its_jobs",)
    ),
    Planted(
        "studio: the noise of previews is the same each time",
        same_noise,
        ("studio/test_release.py::test_a_preview_is_another_one_each_time",),
    ),
    Planted(
        "studio: releases have no limit of memory",
        unlimited,
        ("studio/test_release.py::test_a_worker_limits_itself_before_it_reads_anything",),
    ),
    Planted(
        "studio: the statement does not say that whoever chose saw the picture",
        not_said,
        ("studio/test_release.py::test_a_clip_is_previewed_and_released",),
    ),
    Planted(
        "studio: m is a step of the ladder below the box",
        step_below,
        ("studio/test_release.py::test_sizes_go_up_a_public_ladder",),
    ),
)

STUDIO = (*DOOR, *SERVED, *JOBS)
