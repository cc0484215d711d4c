"""The mutation run over the source: small faults in the modules that a guarantee hangs on, tried on the tests of each.

    make mutants                                 # faults with names, and a sample of all others
    make mutants ALL=1                           # all faults, which takes hours
    python tests/mutants/run.py --only account/  # faults of modules whose path has the text, or else whose name has
    python tests/mutants/run.py --named          # faults with names, which once passed every test
    python tests/mutants/run.py --sample 100 --seed 1     # those, and 100 of all others
    python tests/mutants/run.py --part 3/24      # those, and the third of 24 parts of all others
    python tests/mutants/run.py --again          # try those that survived again, and take over what was killed

A run goes on where an earlier one stopped; results are in .mutants/. A larger sample of one seed contains the smaller.

One process imports torch and all the rest, then forks a child for every fault. The child imports dpose anew, with one
module's syntax tree changed, and runs the tests that reach the changed function, quickest first, until one fails. Which
tests those are is measured beforehand on the true source, where all must pass. A fault with a name (`planted`) is
planted on the objects of dpose instead, and names the tests that find it.

Results are good for the sources and tests that they were taken with; where either changes, the run begins anew. Exit
code 1: a fault survived that tests/mutants/survivors.yaml does not explain, or a fault with a name was not killed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS, SOURCE = ROOT / "tests", ROOT / "src"
PACKAGES = ("dpose", "dpose_lab", "dpose_scene")
STORE = ROOT / ".mutants"
EXPLAINED = TESTS / "mutants" / "survivors.yaml"
CPU_SECONDS, WALL_SECONDS, TIMES = 12, 300, 1
"""A fault may take so many seconds beyond so many times what its tests take; then it counts as killed."""
MEMORY = 24 << 30
"""Of address space; a fault that asks for more gets none."""

WARM = (
    *("torch", "pytest", "hypothesis", "hypothesis.extra.numpy", "numba", "cv2", "av", "scipy.stats"),
    "dp_accounting.rdp.rdp_privacy_accountant",
)
ROOMS = (
    *("dpose.training.trainer", "dpose.release.api", "dpose.release.batch", "dpose.runs.demo"),
    *("dpose.audits.findings", "dpose_scene.data", "dpose_lab.commands"),
)
"""What children need not import, and what of dpose leads to the rest of it."""

sys.path[:0] = [str(path) for path in (TESTS, TESTS / "helpers", SOURCE) if str(path) not in sys.path]
from mutants.guards import GUARDED  # noqa: E402
from mutants.operators import Mutant, mutants_of, uncached  # noqa: E402
from mutants.planted.patches import Patches, Planted  # noqa: E402
from mutants.planted.rooms import planted_faults  # noqa: E402

NOT_TRIED = (4, 5, 72)
"""Exit codes of a child whose fault no test was tried on: pytest's for tests that are not there, and none planted."""


@dataclass(frozen=True)
class Fault:
    """What is tried: a module's changed tree and the function it was changed in, or what is planted on objects."""

    name: str
    file: str
    functions: tuple[str, ...] = ()
    tree: Callable[[], ast.Module] | None = None
    planted: Planted | None = None

    @property
    def named(self) -> bool:
        """Whether it has a name."""
        return self.planted is not None


def source_of(file: str) -> Path:
    """The file of a guarded module: below src/dpose, or below src where another package is named."""
    return (SOURCE if file.split("/")[0] in PACKAGES else SOURCE / "dpose") / file


def named_faults() -> list[Fault]:
    """Those with names, room by room."""
    rooms = planted_faults().items()
    return [Fault(f"{room}: {p.name}", f"planted/{room}.py", planted=p) for room, some in rooms for p in some]


def modules_of(only: str) -> list[str]:
    """The guarded modules whose path contains the text; all of them if none does."""
    return [file for file in GUARDED if only in file] or list(GUARDED)


def faults(files: Sequence[str]) -> list[Fault]:
    """Those of the operators, module by module.

    To name a module's faults takes a second or more, so that names are stored by what they follow from; the tree of a
    fault is made when it is tried.
    """
    folder = STORE / "names"
    folder.mkdir(parents=True, exist_ok=True)
    operators = (TESTS / "mutants" / "operators.py").read_bytes()
    found = []
    for file in files:
        of = (source_of(file).read_bytes(), operators, "\0".join(GUARDED[file].within).encode())
        digest = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in of)).hexdigest()
        stored = folder / f"{file.replace('/', '-')}.json"
        content = json.loads(stored.read_text()) if stored.exists() else {}
        if content.get("digest") != digest:
            names = [(mutant.name, mutant.function) for mutant in _mutants(file)]
            content = {"digest": digest, "names": names}
            stored.write_text(json.dumps(content))
        found += [Fault(name, file, (function,), partial(_tree, file, name)) for name, function in content["names"]]
    return found


@lru_cache(maxsize=4)
def _mutants(file: str) -> list[Mutant]:
    return mutants_of(file, source_of(file).read_text(encoding="utf-8"), GUARDED[file].within)


def _tree(file: str, name: str) -> ast.Module:
    return next(mutant for mutant in _mutants(file) if mutant.name == name).tree()


# ------------------------------------------------------------------------------------------------------ children


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads one module from a syntax tree."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> object:
        return compile(self._tree, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, file: str, tree: ast.Module) -> None:
        path = source_of(file)
        self.name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        self.path, self.tree = str(path), tree

    def find_spec(self, fullname: str, path: object, target: object = None) -> object:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(
            fullname, self.path, loader=_Changed(fullname, self.path, self.tree)
        )


def warm() -> None:
    """Import all that dpose and its tests import, then forget dpose."""
    import dpose  # noqa: F401  (before torch)

    for name in (*WARM, *ROOMS):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # children look through their own objects only


def forked(work: Callable[[], int], log: Path) -> int:
    """The pid of a child that does `work` and exits with its result."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = work()
        sys.stdout.flush()
    except BaseException as error:  # whatever it is, the fault caused it
        print(repr(error), flush=True)
        code = 71
    finally:
        os._exit(code)


def run_tests(files: Sequence[str], plugin: object, folder: Path, *more: str) -> int:
    """Run test files in this process; pytest's exit code."""
    import hypothesis
    import pytest

    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutants")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["DPOSE_TEST_CACHE"] = str(STORE / "cache")
    os.chdir(ROOT)
    arguments = [
        *more,
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:unraisableexception",
        f"--basetemp={folder}",
        "--tb=line",
    ]
    return int(pytest.main([*arguments, *(f"tests/{file}" for file in files)], plugins=[plugin]))


class Recorder:
    """Which functions of the guarded modules each test runs, and how long it takes."""

    def __init__(self) -> None:
        self.names = {str(source_of(file)): file for file in GUARDED}
        self.reached: dict[str, set[str]] = defaultdict(set)
        self.shared: dict[str, set[str]] = defaultdict(set)  # in fixtures, by test file
        self.seconds: dict[str, float] = defaultdict(float)
        self._into: set[str] = set()

    def _trace(self, frame: object, event: str, argument: object) -> None:
        file = self.names.get(frame.f_code.co_filename)
        if file is not None:
            self._into.add(f"{file}::{frame.f_code.co_qualname.split('.<locals>')[0]}")

    def pytest_runtest_setup(self, item: object) -> None:
        self._into = self.shared[item.nodeid.split("::")[0]]

    def pytest_runtest_call(self, item: object) -> None:
        self._into = self.reached[item.nodeid]

    def pytest_runtest_logreport(self, report: object) -> None:
        self.seconds[report.nodeid] += report.duration

    def on(self) -> None:
        import threading

        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def found(self) -> dict[str, dict[str, object]]:
        return {
            test: {
                "seconds": round(seconds, 3),
                "reached": sorted(self.reached[test] | self.shared[test.split("::")[0]]),
            }
            for test, seconds in self.seconds.items()
        }


class Chosen:
    """Keeps the chosen tests, in their order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.place = {test: k for k, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.place), key=lambda i: self.place[i.nodeid])


# ------------------------------------------------------------------------------------------------------ the run


Known = dict[str, dict[str, object]]


def baseline(files: Mapping[str, Sequence[str]], here: str, workers: int, traced: bool) -> Known:
    """What tests reach on the true source, and how long they take, each file's in a child of its own.

    Args:
        files: Of each file below tests/, the tests that are run: itself, or "file::test".
        here: Digest of all that a result depends on; empty where only a test file's own text counts.
        workers: Children at a time.
        traced: Whether it is found out what they reach.

    Raises:
        SystemExit: one of them fails.
    """
    (STORE / "baseline").mkdir(parents=True, exist_ok=True)
    found: Known = {}
    waiting, running = [], {}
    for file, tests in files.items():
        name = file.replace("/", "-") + ("" if traced else ".timed")
        kept = STORE / "baseline" / f"{name}.json"
        if not (TESTS / file).exists():
            raise SystemExit(f"there is no tests/{file}")
        own = hashlib.sha256((TESTS / file).read_bytes() + "\0".join(tests).encode()).hexdigest()
        content = json.loads(kept.read_text()) if kept.exists() else {}
        if content.get("own") == own and (not here or content.get("digest") == here):
            found.update(content["tests"])
        else:
            waiting.append((tests, kept, own))
    while waiting or running:
        while waiting and len(running) < workers:
            tests, kept, own = waiting.pop()
            folder = Path(tempfile.mkdtemp(prefix="dpose-mutants-"))
            work = partial(_record, tests, kept, folder, (here, own), traced)
            running[forked(work, kept.with_suffix(".log"))] = (kept, folder)
        pid, status = os.wait()
        kept, folder = running.pop(pid)
        shutil.rmtree(folder, ignore_errors=True)
        if status:
            raise SystemExit(f"a test does not pass on the true source: {kept.with_suffix('.log')}")
        found.update(json.loads(kept.read_text())["tests"])
    return found


def _record(tests: Sequence[str], kept: Path, folder: Path, digests: tuple[str, str], traced: bool) -> int:
    recorder = Recorder()
    if traced:
        recorder.on()
    code = run_tests(tests, recorder, folder / "t")
    sys.settrace(None)
    if code == 0:
        kept.write_text(json.dumps({"digest": digests[0], "own": digests[1], "tests": recorder.found()}))
    return code


def named_tests(todo: Sequence[Fault]) -> dict[str, list[str]]:
    """By file, the tests that the faults with names among these name."""
    wanted = sorted({test for fault in todo if fault.planted for test in fault.planted.tests})
    return {file: list(some) for file, some in groupby(wanted, lambda test: test.split("::")[0])}


def tests_for(fault: Fault, known: Known, timed: Known) -> list[str]:
    """The module's tests that reach the fault's function, quickest first; all of them for the module's own level.

    Of a fault with a name those that it names, in its order.
    """
    if fault.planted:
        told = [f"tests/{test}" for test in fault.planted.tests]
        return [t for one in told for t in timed if t == one or t.startswith((f"{one}::", f"{one}["))]
    files = tuple(f"tests/{file}::" for file in GUARDED[fault.file].tests)
    wanted = [f"{fault.file}::{function}" for function in fault.functions]

    def reaches(reached: Sequence[str]) -> bool:
        if any(function in reached for function in wanted):
            return True
        # a class body, a module's own level, and kernels, which run outside of Python
        return not any(w in everywhere for w in wanted) and any(r.startswith(f"{fault.file}::") for r in reached)

    everywhere = {r for found in known.values() for r in found["reached"]}
    chosen = [t for t, found in known.items() if t.startswith(files) and reaches(found["reached"])]
    return sorted(chosen, key=lambda t: (known[t]["seconds"], t))


def start(fault: Fault, tests: Sequence[str], seconds: float, folder: Path) -> int:
    """The pid of the child that tries a fault."""

    def work() -> int:
        limit = int(CPU_SECONDS + TIMES * seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if fault.planted:
            files = dict.fromkeys(test.removeprefix("tests/").split("::")[0] for test in tests)
            try:
                fault.planted.plant(Patches())
            except Exception as error:
                print(repr(error), flush=True)
                return NOT_TRIED[-1]
        else:
            files = GUARDED[fault.file].tests
            sys.meta_path.insert(0, _Finder(fault.file, uncached(fault.tree())))
        chosen = Chosen(tests)
        for file in files:  # one after the other: most faults end at the first
            if any(test.startswith(f"tests/{file}::") for test in tests):
                code = run_tests([file], chosen, folder / file.replace("/", "-"), "-x")
                if code:
                    return code
        return 0

    return forked(work, folder / "log")


def attempt_all(
    todo: Sequence[Fault], known: Known, timed: Known, workers: int
) -> Iterator[tuple[Fault, dict[str, object]]]:
    """Each fault with what became of it."""
    waiting = list(reversed(todo))
    running: dict[int, tuple[Fault, Path, float, float]] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            fault = waiting.pop()
            tests = tests_for(fault, known, timed)
            if not tests:
                yield fault, {"outcome": "survived", "by": "no test reaches it", "seconds": 0.0}
                continue
            seconds = sum(float((timed if fault.planted else known)[test]["seconds"]) for test in tests)
            folder = Path(tempfile.mkdtemp(prefix="dpose-mutants-"))
            pid = start(fault, tests, seconds, folder)
            running[pid] = (fault, folder, time.monotonic(), WALL_SECONDS + TIMES * seconds)
        if not running:
            continue
        pid, status, used = os.wait3(os.WNOHANG)
        if pid == 0:
            for late, (_, _, began, limit) in running.items():
                if time.monotonic() - began > limit:
                    os.kill(late, signal.SIGKILL)
            time.sleep(0.02)
            continue
        if pid not in running:
            continue
        fault, folder, _, _ = running.pop(pid)
        yield fault, _outcome(fault, status, used.ru_utime + used.ru_stime, folder / "log")
        shutil.rmtree(folder, ignore_errors=True)


def _outcome(fault: Fault, status: int, seconds: float, log: Path) -> dict[str, object]:
    code = os.waitstatus_to_exitcode(status)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if code == 0:
        return {"outcome": "survived", "by": "", "seconds": round(seconds, 2)}
    if fault.planted and code in NOT_TRIED:
        return {"outcome": "survived", "by": f"not tried: {text[-300:]}", "seconds": round(seconds, 2)}
    by = next((line.split(" - ")[0] for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    why = next((line.strip() for line in text.splitlines() if line.startswith(("E  ", f"{ROOT}/"))), "")
    return {"outcome": "killed", "by": by or f"exit {code}", "why": why, "seconds": round(seconds, 2)}


def in_part(fault: Fault, part: str) -> bool:
    """Whether a fault belongs to the K-th of N parts, "K/N": by its name's digest, and in every part if it has a name.

    All parts together are all faults. A whole run takes hours: parts run on several machines, or one after a change.
    """
    if not part or fault.named:
        return True
    number, count = map(int, part.split("/"))
    if not 1 <= number <= count:
        raise SystemExit(f"there is no part {part}")
    return int(hashlib.sha256(fault.name.encode()).hexdigest(), 16) % count == number - 1


def sampled(some: Sequence[Fault], count: int, seed: int) -> list[Fault]:
    """Those with names, and `count` of the others, by digests of their names and the seed; in their order."""

    def place(fault: Fault) -> str:
        return hashlib.sha256(f"{seed} {fault.name}".encode()).hexdigest()

    others = {fault.name for fault in sorted((f for f in some if not f.named), key=place)[:count]}
    return [fault for fault in some if fault.named or fault.name in others]


def digest() -> str:
    """Of all that a result depends on here."""
    made = hashlib.sha256()
    for path in sorted([*SOURCE.rglob("*.py"), *TESTS.rglob("*.py")]):
        made.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return made.hexdigest()


def explanations() -> dict[str, str]:
    """Why each survivor that is known survives, by its name."""
    import yaml

    groups = yaml.safe_load(EXPLAINED.read_text(encoding="utf-8")) or []
    return {name: group["why"] for group in groups for name in group["mutants"]}


def main() -> int:
    """The run; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--only", default="", help="faults of modules whose path contains this, or else whose name does"
    )
    parser.add_argument("--sample", type=int, help="of the faults without a name so many, chosen by --seed")
    parser.add_argument("--seed", type=int, default=1, help="of --sample")
    parser.add_argument("--part", default="", help="K/N: of the faults without a name the K-th of N parts")
    parser.add_argument("--named", action="store_true", help="faults with a name alone, of planted/")
    parser.add_argument("--again", action="store_true", help="take over what an earlier run killed, whatever changed")
    options = parser.parse_args()
    began, results = time.monotonic(), STORE / "results.jsonl"
    STORE.mkdir(exist_ok=True)
    here, done = digest(), {}
    if results.exists():
        first, *lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        if first["digest"] == here or options.again:
            done = {line["name"]: line for line in lines}
            if options.again and first["digest"] != here:
                done = {name: line for name, line in done.items() if line["outcome"] == "killed"}
    files = [] if options.named else modules_of(options.only)
    every = [*named_faults(), *faults(files)]
    names = {fault.name for fault in every}
    done = {n: line for n, line in done.items() if n in names or n.split("::")[0] not in files}
    chosen = [fault for fault in every if options.only in fault.name and in_part(fault, options.part)]
    if options.sample is not None:
        chosen = sampled(chosen, options.sample, options.seed)
    todo = [fault for fault in chosen if fault.name not in done]
    with results.open("w", encoding="utf-8") as opened:
        for line in ({"digest": here}, *done.values()):
            opened.write(json.dumps(line) + "\n")
    if todo:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        warm()
        print(f"{len(every)} faults, {len(done)} known, {len(todo)} to try", flush=True)
        tests = sorted({test for fault in todo if not fault.named for test in GUARDED[fault.file].tests})
        same = "" if options.again else here
        known = baseline({file: [file] for file in tests}, same, options.workers, traced=True)
        timed = baseline(named_tests(todo), same, options.workers, traced=False)
        with results.open("a", encoding="utf-8") as opened:
            for number, (fault, found) in enumerate(attempt_all(todo, known, timed, options.workers), 1):
                done[fault.name] = {"name": fault.name, **found}
                opened.write(json.dumps(done[fault.name]) + "\n")
                opened.flush()
                if found["outcome"] == "survived":
                    print(f"survived: {fault.name}", flush=True)
                if number % 100 == 0:
                    print(f"{number} of {len(todo)}, {time.monotonic() - began:.0f} s", flush=True)
    return summary(every, done, time.monotonic() - began)


def stale_explanations(reasons: Mapping[str, str], every: Sequence[Fault], done: Mapping[str, dict]) -> list[str]:
    """Explained faults that do not survive or are not made any more, of modules all of whose faults were tried."""
    left = {fault.file for fault in every if fault.name not in done}
    whole = {fault.file for fault in every if not fault.named} - left
    survived = {name for name, line in done.items() if line["outcome"] == "survived"}
    return sorted(n for n in reasons if n.split("::")[0] in whole and n not in survived)


def summary(every: Sequence[Fault], done: dict[str, dict], seconds: float) -> int:
    """Print what was found; 1 where something survived without a reason."""
    reasons = explanations()
    planted, killed, survived = Counter(), Counter(), Counter()
    left, explained = [], 0
    for fault in every:
        if fault.name not in done:
            continue
        planted[fault.file] += 1
        if done[fault.name]["outcome"] == "killed":
            killed[fault.file] += 1
            continue
        survived[fault.file] += 1
        if fault.name in reasons and not fault.named:
            explained += 1
        else:
            left.append(fault.name)
    for file in planted:
        print(f"{file:28} {planted[file]:5} planted {killed[file]:5} killed {survived[file]:4} survived")
    print(
        f"{planted.total()} planted, {killed.total()} killed, {survived.total()} survived: {explained} explained, "
        f"{len(left)} not; {sum(fault.named for fault in every)} of them have names; {seconds:.0f} s"
    )
    tried = sum(float(line["seconds"]) for line in done.values())
    print(f"{tried:.0f} s of processor time for all of them")
    if stale := stale_explanations(reasons, every, done):
        print(f"{len(stale)} explanations are of no survivor any more, the first: {stale[0]}")
    for name in left:
        print(f"NOT EXPLAINED: {name}")
    missing = len(every) - planted.total()
    if missing:
        print(f"{missing} not tried yet")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
