"""Cut work off at random moments, go on with it, and compare: what was begun, seen or granted, and what is counted.

    python benchmarks/crash.py --kills 1000 [--only training] [--out runs/crash.jsonl]
    python benchmarks/crash.py --power-cuts 300

Small trainings by one process and by two, choices of a setting, releases of folders by commands and by their workers,
and reservations in accounts (`crashes.stories`) are begun in processes of their own. With `--kills` these are killed
with SIGKILL after a random time, all or one of several alone, again and again, and begun again until they end. With
`--power-cuts` their system calls are recorded by strace; after some of these the disk is made as a power cut may leave
it (`crashes.disk`), any part of what was not yet made durable lost, and the work goes on from there. Every other
training loses its key on the way, as if it went on on another machine.

After every cut, each step that was begun, each reservation that was granted and each released file that could be seen
must be counted, and no file that has its name may be half-written. Every work must end: a run with its key with the
weights of the same run unbroken, to the last bit, and with as many steps counted as planned; a choice with those of the
same choice unbroken, for one price, having said and left nothing that tells how many trials there were.

Results are appended to a file of JSON lines; a run that was stopped goes on after them. Exit code 1 where something did
not hold. `--share` measures instead what ledger, log and checkpoints take of a step of `nano`.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import cv2
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "helpers")]
from crashes.cuts import Outcome, killed, measure, power_cut
from crashes.stories import KINDS

from dpose.training import run as loops

EACH = {"kills": 12, "power cuts": 10}
"""Cuts of one story."""


def cut_off(how: str, wanted: int, seed: int, names: list[str], out: Path, console: Console) -> bool:
    """Cut stories off until there were as many cuts as wanted, those in `out` among them; whether all held."""
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = map(json.loads, out.read_text().splitlines() if out.exists() else [])
    found = [Outcome(**line["story"]) for line in lines if (line["how"], line["seed"]) == (how, seed)]
    for name in names:
        measure(name)
    with out.open("a") as file, Progress(console=console) as bar:
        task = bar.add_task(how, total=wanted)
        while (cuts := sum(one.cuts for one in found)) < wanted:
            bar.update(task, completed=cuts)
            # as many of each kind, though the stories of some are longer
            kind = min(names, key=lambda name: sum(one.cuts for one in found if one.kind == name))
            which = sum(one.kind == kind for one in found)
            rng = random.Random(f"{seed}/{how}/{kind}/{which}")
            cut = killed if how == "kills" else power_cut
            found.append(cut(kind, which, rng, min(EACH[how], wanted - cuts)))
            file.write(json.dumps({"how": how, "seed": seed, "story": asdict(found[-1])}) + "\n")
            file.flush()
    table = Table(title=f"{sum(one.cuts for one in found)} {how}, seed {seed}")
    for column in ("of", "stories", how, "did not hold"):
        table.add_column(column, justify="left" if column == "of" else "right")
    for name in names:
        mine = [one for one in found if one.kind == name]
        wrong = sum(bool(one.wrong) for one in mine)
        table.add_row(name, str(len(mine)), str(sum(one.cuts for one in mine)), str(wrong))
    console.print(table)
    for one in found:
        for what in one.wrong:
            console.print(one.kind, one.number, what.strip().splitlines()[-1], highlight=False)
    return not any(one.wrong for one in found)


def share(console: Console) -> None:
    """How much of a step of `nano`, 256 units, ledger, log and checkpoints take."""
    from dpose.privacy.ledger import Ledger
    from dpose.runs.config import RunConfig
    from dpose.runs.train import train_run
    from dpose.training.folder import RunLog

    took: dict[str, float] = {}

    def timed(owner, name, label):
        real = getattr(owner, name)

        def wrapped(*given, **named):
            started = time.perf_counter()
            try:
                return real(*given, **named)
            finally:
                took[label] = took.get(label, 0.0) + time.perf_counter() - started

        setattr(owner, name, wrapped)

    timed(Ledger, "_append", "ledger")
    timed(RunLog, "write", "log")
    timed(loops, "save_checkpoint", "checkpoints")
    timed(loops, "digest_of", "digests of updates")
    timed(loops.Run, "_step", "steps")
    with tempfile.TemporaryDirectory() as folder:
        values = {
            "data": {"private": "synthetic:ward", "limit": 2000, "validation_data": "none"},
            "plan": {"method": "dp-sgd", "epsilon": 8.0, "delta": 1e-5, "epochs": 4},
            "seed": 0,
        }
        train_run(RunConfig.from_dict(values, "benchmark"), Path(folder) / "run", Console(quiet=True))
    table = Table(title="nano, 32 steps of 256 units on average, a checkpoint a minute")
    table.add_column("part")
    table.add_column("seconds", justify="right")
    table.add_column("of the steps", justify="right")
    for label, seconds in took.items():
        table.add_row(label, f"{seconds:.3f}", f"{100 * seconds / took['steps']:.2f} %")
    console.print(table)


def main() -> None:
    """Do what was asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--power-cuts", type=int, default=0)
    parser.add_argument("--only", choices=sorted(KINDS), action="append")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, default=Path("runs/crash.jsonl"))
    parser.add_argument("--share", action="store_true")
    arguments = parser.parse_args()
    console = Console(width=110)
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    good = True
    if arguments.share:
        share(console)
    names = arguments.only or list(KINDS)
    for how, wanted in (("kills", arguments.kills), ("power cuts", arguments.power_cuts)):
        if wanted:
            good &= cut_off(how, wanted, arguments.seed, names, arguments.out, console)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, seed {arguments.seed}"
    console.print(json.dumps({"holds": good}), versions, highlight=False)
    if not good:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
