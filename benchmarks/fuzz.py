"""Bad input for every reader and every command that takes a file: each must end in a result or in one line.

    python benchmarks/fuzz.py --inputs 10000 [--seed 0] [--only archive] [--out runs/fuzz.jsonl]

Valid files of each kind are mutated (`fuzzing.mutations`): fields and types changed, hashes and checksums made to fit
again, sizes claimed that are not there, names that lead out of their folder. Each is read under limits of time and
memory (`fuzzing.workers`). A `DposeError`, of a command exit code 2 and one line, is an answer; anything else that is
raised, a signal, the end of the time, or a file opened outside of its folder is a crash. Where the file bears a claim
(archives, accounts, run folders) a mutant that is accepted must say what the original says; one that says something
else is told as `altered`, to be looked at by hand.

Results are appended to a file of JSON lines, and input k of a seed is the same whenever it is made: a run that was
stopped goes on where it was. Exit code 1 where there was a crash.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import cv2
import torch
from rich.console import Console
from rich.progress import Progress

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "helpers")]
from fuzzing.workers import READERS, Workers, reader_of


def main() -> int:
    """Make and read the inputs that are still missing, and sum up."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--inputs", type=int, default=10_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--only", choices=sorted(READERS), action="append")
    asked.add_argument("--out", type=Path, default=Path("runs/fuzz.jsonl"))
    options = asked.parse_args()
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    names = options.only or list(READERS)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    found = {(line["reader"], line["number"]): line for line in map(json.loads, lines) if line["seed"] == options.seed}
    claims = {}
    for name in names:
        workers = Workers()
        for k in range(len(reader_of(name).files)):
            whole = workers.ask(name, -1 - k, options.seed)
            if whole["ended"] != "result":
                raise SystemExit(f"{name}: the valid file is not read: {whole}")
            claims[name, whole["suffix"]] = whole["what"]
        workers.close()
    wanted = [(names[k % len(names)], k // len(names)) for k in range(options.inputs)]
    # reader by reader: a worker stays warm for its kind
    missing = sorted((one for one in wanted if one not in found), key=lambda one: (one[1] // 25, names.index(one[0])))
    workers = Workers()
    with options.out.open("a") as out, Progress(console=Console(stderr=True)) as bar:
        for name, number in bar.track(missing, description="inputs"):
            line = workers.ask(name, number, options.seed)
            if line["ended"] == "result":
                line["ended"] = "result" if line["what"] == claims[name, line["suffix"]] else "altered"
            line = {"reader": name, "number": number, "seed": options.seed, **line}
            if line["ended"] in ("result", "refused"):
                line["what"] = line["what"][:200]
            found[name, number] = line
            out.write(json.dumps(line) + "\n")
            out.flush()
    workers.close()
    told = [found[one] for one in wanted]
    for name in names:
        mine = [line for line in told if line["reader"] == name]
        slowest, largest = (max((line[key] for line in mine), default=0) for key in ("seconds", "memory"))
        ends = dict(Counter(line["ended"] for line in mine))
        print(f"{name:28} {ends} slowest {slowest:.2f} s, {largest >> 20} MiB")
    print(f"{len(told)} inputs: {dict(Counter(line['ended'] for line in told))}")
    crashes = [line for line in told if line["ended"] == "crash"]
    ends = Counter((c["reader"], c["what"].strip().splitlines()[-1][:200]) for c in crashes)
    for last, count in ends.items():
        print(count, *last)
    return int(bool(crashes))


if __name__ == "__main__":
    sys.exit(main())
