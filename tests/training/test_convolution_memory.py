"""No gradient of a convolution writes where it must not, or is another than in float64, whatever its layout."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiers import rest_slow

HERE = Path(__file__).parent
DEBUG = "libc_malloc_debug.so.0"
"""What looks at the ends of blocks of memory, in glibc from 2.34 on; before, glibc itself does."""


def preloaded():
    try:
        ctypes.CDLL(DEBUG)
    except OSError:
        return {}
    return {"LD_PRELOAD": DEBUG}


@pytest.mark.parametrize("isa", rest_slow(["DEFAULT", "AVX2"]))
def test_gradients_of_convolutions_are_right_and_write_nowhere_else(isa):
    done = subprocess.run(
        [sys.executable, str(HERE / "convolutions.py")],
        env=os.environ
        | {
            "MALLOC_CHECK_": "3",
            "ONEDNN_MAX_CPU_ISA": isa,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(HERE.parent / "helpers"),
            **preloaded(),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("done\n"), (done.returncode, done.stdout.splitlines()[-1:], done.stderr[-2000:])
