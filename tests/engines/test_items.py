"""A stream of items over workers: results as they come, bounded, retried where a worker died, failures kept apart."""

import itertools
import os
import signal
from pathlib import Path

import pytest

from dpose.engines import AHEAD, ATTEMPTS, engine, run_items
from dpose.engines.local import LocalEngine
from dpose.errors import DposeError
from dying import Dying


def square(shared, item):
    if item == 7:
        raise DposeError("is unlucky", f"item {item}", "leave it out")
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
    ended = list(
        run_items(Dying({0, 1, 4}), square, [1, 2, 3], shared=1, retry=lambda k: again.append(k) or k)
    )
    assert sorted(one.result for one in ended) == [1, 4, 9]
    assert len(again) == 3


def test_a_retry_that_is_refused_is_the_items_failure():
    def refuse(item):
        raise DposeError("would pass a budget", str(item))

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


@pytest.mark.parametrize("name", ["rai", "local://here", "", "ray://nowhere", "ray://127.0.0.1:1"])
def test_an_engine_that_is_none_is_told_in_one_line(name):
    pytest.importorskip("ray")
    with pytest.raises(
        DposeError, match=r"engine: must be one of|must be ray://HOST:PORT|no Ray cluster answers"
    ):
        engine(name, workers=1)


def test_a_ray_that_does_not_start_is_told_in_one_line(monkeypatch):
    ray = pytest.importorskip("ray")

    def slow(*_, **__):
        raise Exception("The current node timed out during startup.\nAnd more.")

    monkeypatch.setattr(ray, "init", slow)
    with pytest.raises(DposeError, match=r"no cluster starts .* timed out during startup\.\)"):
        engine("ray", workers=2)
