"""A stream of items over workers: results as they come, bounded, retried where a worker died, failures kept apart."""

import itertools
import os
import signal
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest

from dpose.account import charges
from dpose.cli import main
from dpose.engines import AHEAD, ATTEMPTS, engine, run_items, worker_code
from dpose.engines.local import LocalEngine
from dpose.errors import DposeError
from dpose.media.images import encode_image
from dying import Dying
from refusals import refused


def square(shared, item):
    if item == 7:
        raise DposeError("item-unlucky", "is unlucky", f"item {item}", "leave it out")
    if item == 8:
        raise ZeroDivisionError("a bug")
    return shared * item * item


def die_once(folder, item):
    mark = Path(folder) / str(item)
    if item == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_every_item_ends_once_and_failures_cost_no_other():
    ended = list(run_items(Dying(), square, range(10), shared=2))
    assert sorted(one.item for one in ended) == list(range(10))
    assert {one.item: one.result for one in ended if one.failure is None} == {
        k: 2 * k * k for k in range(10) if k not in (7, 8)
    }
    lines = {one.item: one.failure.error.line() for one in ended if one.failure}
    assert lines == {7: "item 7: is unlucky; leave it out", 8: "ZeroDivisionError: a bug"}


def test_the_stream_is_taken_from_only_as_workers_are_free():
    taken = []
    at = Dying(workers=3)
    run = run_items(at, square, (taken.append(k) or 1 for k in itertools.count()))
    for _ in range(20):
        next(run)
        assert len(taken) <= 20 + AHEAD * 3
    run.close()
    assert at.most == AHEAD * 3


def test_a_dead_workers_item_is_asked_for_again_as_retry_says():
    again = []
    ended = list(run_items(Dying({0, 1, 4}), square, [1, 2, 3], shared=1, retry=lambda k: again.append(k) or k))
    assert sorted(one.result for one in ended) == [1, 4, 9]
    assert len(again) == 3


def test_a_retry_that_is_refused_is_the_items_failure():
    def refuse(item):
        raise DposeError("budget-exceeded", "would pass a budget", str(item))

    ended = {one.item: one for one in run_items(Dying({0}), square, [1, 2], shared=1, retry=refuse)}
    assert ended[1].failure.error.line() == "1: would pass a budget"
    assert ended[2].result == 4


def test_an_item_that_kills_every_worker_fails():
    (ended,) = run_items(Dying(range(100)), square, [1], shared=1)
    assert f"{ATTEMPTS} times" in ended.failure.what


def test_a_killed_process_of_this_machine_is_replaced(tmp_path):
    with LocalEngine(2) as at:
        ended = list(run_items(at, die_once, range(6), shared=str(tmp_path)))
    assert sorted(one.result for one in ended) == list(range(6))


def test_this_process_begins_an_item_when_its_turn_comes():
    begun = []
    with LocalEngine() as at:
        run = run_items(at, lambda _, item: begun.append(item) or item, range(5))
        assert next(run).result == 0
        assert begun == [0]
        assert [one.result for one in run] == [1, 2, 3, 4]


def test_threads_of_this_process_end_in_order_and_leave_to_the_caller_what_is_not_theirs():
    with LocalEngine(3, threads=lambda item: item % 2 == 0) as at:
        ended = list(run_items(at, lambda _, item: (item, threading.get_ident()), range(9)))
    assert [one.result[0] for one in ended] == list(range(9))
    here = threading.get_ident()
    assert [one.result[1] == here for one in ended] == [item % 2 == 1 for item in range(9)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bug_in_this_process_is_not_an_items_failure(workers):
    with LocalEngine(workers, threads=lambda _: True) as at:
        assert next(run_items(at, square, [7], shared=1)).failure.code == "item-unlucky"
        with pytest.raises(ZeroDivisionError):
            next(run_items(at, square, [8], shared=1))


@pytest.mark.parametrize("name", ["rai", "local://here", "", "ray://nowhere", "ray://127.0.0.1:1"])
def test_an_engine_that_is_none_is_told_in_one_line(name):
    pytest.importorskip("ray")
    with refused(("cluster-unreachable", "engine-address-malformed", "engine-unknown")):
        engine(name, workers=1)


@pytest.mark.parametrize("mode", [None, "disabled"])
@pytest.mark.parametrize("where", ["home", "RAY_AUTH_TOKEN", None])
def test_a_token_that_lies_where_ray_looks_for_it_is_given_to_a_cluster(monkeypatch, tmp_path, where, mode):
    """Its client would give it only where told to, and a cluster that asks for it would seem not to answer."""
    pytest.importorskip("ray")
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", mode or "unset")  # so that it is as it was when the test ends
    if mode is None:
        monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setenv("HOME", str(tmp_path))
    if where == "home":
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    elif where:
        monkeypatch.setenv(where, "secret")
    seen = []

    def refuse(*_, **__):
        seen.append(os.environ.get("RAY_AUTH_MODE"))
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refuse)
    with refused("cluster-unreachable"):
        engine("ray://127.0.0.1:1", workers=1)
    assert seen == [mode or ("token" if where else None)]
    assert os.environ.get("RAY_AUTH_MODE") == mode, (
        "a cluster that is started here next would ask for what nobody gives"
    )


def test_a_ray_that_does_not_start_is_told_in_one_line(monkeypatch):
    ray = pytest.importorskip("ray")

    def slow(*_, **__):
        raise Exception("The current node timed out during startup.\nAnd more.")

    monkeypatch.setattr(ray, "init", slow)
    with refused("cluster-not-started", where="timed out during startup."):
        engine("ray", workers=2)


class OtherRay(types.ModuleType):
    """A cluster, played by this process, whose workers answer to have another dpose: from the start, or a new one."""

    def __init__(self, others):
        super().__init__("ray")
        self.job_config = types.SimpleNamespace(JobConfig=dict)
        self.others, self.started, self.worked = others, 0, []
        self.exceptions = types.SimpleNamespace(
            RayError=KeyError, RayActorError=KeyError, GetTimeoutError=TimeoutError, RayTaskError=ValueError
        )

    def init(self, **_):
        """It is there."""

    shutdown = kill = lambda self, *_: None

    def put(self, value):
        return value

    def wait(self, tasks, **_):
        return tasks, []

    def get(self, value, timeout=None):
        if isinstance(value, KeyError):
            raise value
        return value

    def remote(self, kind):
        cluster = self

        class Actor:
            def __init__(self):
                cluster.started += 1
                code = "0" * 16 if cluster.started > cluster.others else worker_code()
                first = cluster.started == 1

                def work(own, attempted, work, shared, item):
                    if first:  # it dies, and another one takes its place
                        return KeyError()
                    cluster.worked.append(item)
                    return code, attempted(work, shared, item) if own == code else None

                self.code = types.SimpleNamespace(remote=lambda: code)
                self.work = types.SimpleNamespace(remote=lambda *given: Task(work(*given)))

        return types.SimpleNamespace(options=lambda **_: types.SimpleNamespace(remote=Actor))


class Task:
    def __init__(self, answer):
        self.answer = answer


@pytest.mark.parametrize("others", [0, 1])
def test_a_worker_of_another_dpose_is_refused_in_one_line(tmp_path, monkeypatch, capsys, others):
    """Where it starts, and where it takes the place of one that died: nothing of it is taken, nothing counted."""
    cluster = OtherRay(others)
    cluster.get = lambda value, timeout=None: OtherRay.get(cluster, value.answer if isinstance(value, Task) else value)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    (tmp_path / "a.png").write_bytes(encode_image(np.zeros((16, 16, 3), np.uint8), ".png"))
    command = ["pixelize", str(tmp_path / "a.png"), "--epsilon", "2", "--block", "8", "--out", str(tmp_path / "out")]
    assert main([*command, "--engine", "ray", "--workers", "1"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "a worker runs another dpose than this machine (code 0000000000000000" in line
    assert "[worker-code-differs]" in line
    assert len(cluster.worked) == others
    assert not list(tmp_path.glob("out/*.png"))
    assert charges() == []


def test_an_item_that_ray_would_write_to_its_store_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", OtherRay(9))
    with engine("ray", workers=1) as at, refused("item-too-large"):
        next(run_items(at, square, ["x" * 100_000]))


@pytest.mark.parametrize("at", ["wait", "get", "work"])
def test_a_cluster_that_is_lost_is_told_in_one_line(monkeypatch, at):
    cluster = OtherRay(9)

    def lost(*_, **__):
        raise ConnectionError("Client is shutting down.")

    monkeypatch.setitem(sys.modules, "ray", cluster)
    with engine("ray", workers=1) as workers:
        if at == "work":
            workers._actors[0].work.remote = lost
        else:
            setattr(cluster, at, lost)
        with refused("cluster-lost", where="ray"):
            next(run_items(workers, square, [1]))
