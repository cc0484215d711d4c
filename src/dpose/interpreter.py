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

SAFE = "PYTHONSAFEPATH"
"""The variable that keeps every Python, and those that it starts, from importing out of the current folder."""
_changing = threading.RLock()


def settle_environment() -> None:
    """Set the variables by which torch's libraries compute as a run wants, unless they are set.

    Each library reads its own once: OpenMP when torch is imported, MKL and cuBLAS at their first use.
    """
    # Threads that wait spin. Where anything else wants a core that can cost ten times the speed; sleeping at once costs
    # a third of it on an idle machine. So they spin briefly, then sleep (docs/lab/results.md, "Waiting threads")
    if "OMP_WAIT_POLICY" not in os.environ and "torch" not in sys.modules:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # by MKL's choice of instructions a product's bits would depend on where in memory numbers begin (performance.md)
    os.environ.setdefault("MKL_CBWR", "AUTO")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without, cuBLAS is not deterministic


def version_of(package: str) -> str:
    """The version of an installed package; "source" of one that is imported from its source tree."""
    from importlib import metadata  # which takes long to import

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
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
