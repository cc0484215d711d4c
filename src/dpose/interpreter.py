"""The Python processes that dpose starts, and which dpose runs in them.

    subprocess.Popen(python("dpose", "train", "--resume", "r"), env=child_environment())
    ProcessPoolExecutor(2, spawning())      # dpose.engines.local

`python -m` and `python -c`, by which also multiprocessing begins, look for every module in the current folder first: a
`cv2.py` among photographs would be executed. None of the processes that dpose starts does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from importlib import metadata

SAFE = "PYTHONSAFEPATH"
"""The variable that keeps every Python, and those that it starts, from importing out of the current folder."""
_changing = threading.RLock()


def settle_environment() -> None:
    """Set the variables of the environment by which torch's libraries compute as a run wants; those that are set stay.

    Each library reads its variables once: torch's threads when torch is imported, MKL and cuBLAS when they are first
    used. A run that begins later than that says what it lacks.
    """
    # torch's OpenMP threads wait for each other by spinning. Where anything else wants a core (a second run, a test, a
    # browser) that can cost ten times the speed; sleeping at once costs a third of it on an idle machine. So they spin
    # briefly, then sleep (docs/lab/results.md, "Waiting threads")
    if "OMP_WAIT_POLICY" not in os.environ and "torch" not in sys.modules:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # MKL may take other instructions for the first rows of a product, depending on where in memory its numbers begin;
    # on an AMD processor the bits of a matrix times a vector then change from run to run, and a run that was stopped
    # cannot take a step again as it was. In this mode they do not, at no cost that could be measured
    # (docs/performance.md, "Bits")
    os.environ.setdefault("MKL_CBWR", "AUTO")
    # cuBLAS is deterministic only with a workspace of its own
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def version_of(package: str) -> str:
    """The version of an installed package; "source" of one that is imported from its source tree."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "source"


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module in a Python of its own, which imports nothing from the current folder.

    Args:
        module: Its full name.
        arguments: Of its command line.
    """
    return sys.executable, "-P", "-m", module, *arguments


def child_environment() -> dict[str, str]:
    """The variables for such a process on this machine: it finds every module where this process does."""
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    return {**os.environ, SAFE: "1", "PYTHONPATH": paths}


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Keep the processes that are started meanwhile, by whatever library, from importing out of the current folder."""
    with _changing:
        before = os.environ.get(SAFE)
        os.environ[SAFE] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[SAFE]
            else:
                os.environ[SAFE] = before
