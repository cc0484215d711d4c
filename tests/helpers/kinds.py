"""The tests marked `bits`, run again under each kind of arithmetic: one machine stands for many.

    python tests/helpers/kinds.py                 # every kind, as many at a time as there are processors
    python tests/helpers/kinds.py MKL_CBWR        # those whose name holds this

A kind is an environment by which kernels choose their instructions and their threads. One that a processor does not
have is taken by it as the nearest one that it has; the tests must pass all the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

FARTHEST = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "OMP_NUM_THREADS": "2",
}
"""Of each variable the value that is farthest from the default: `tests/test_kinds.py` tries these together."""
KINDS = (
    *({name: value} for name, value in FARTHEST.items()),
    {"MKL_CBWR": "AVX2"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"OMP_NUM_THREADS": "1"},
)


def tried(kind: dict[str, str], cache: str) -> tuple[int, str, float]:
    """The exit status, what was printed and the seconds of one run; calibrated noise is kept in `cache`."""
    chosen = {name for each in KINDS for name in each}
    chosen |= {name for name in os.environ if name.startswith("PYTEST_XDIST")}
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    # each run keeps to one processor, for as many run at a time as there are
    environment |= {"OMP_NUM_THREADS": "1", "DPOSE_TEST_CACHE": cache, **kind}
    command = [sys.executable, "-m", "pytest", "-m", "bits", "-p", "no:cacheprovider", *BITS]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout + done.stderr, time.perf_counter() - started


BITS = [f"tests/training/test_{name}.py" for name in ("arithmetic", "grid", "mixed_precision", "resume")]
"""Where those tests are: collecting all others takes longer than they do (`tests/test_kinds.py` sees to it)."""


def main() -> int:
    wanted = [kind for kind in KINDS if not sys.argv[1:] or any(sys.argv[1] in name for name in kind)]
    failed = 0
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for kind, (code, printed, seconds) in zip(wanted, pool.map(partial(tried, cache=cache), wanted), strict=True):
            name = " ".join(f"{key}={value}" for key, value in kind.items())
            print(f"{'failed' if code else 'passed'}  {name}  ({seconds:.0f} s)", flush=True)
            if code:
                failed += 1
                print(printed)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
