"""Kernels: compiled when they are called, seen by each other, and without a folder for numba's cache."""

import subprocess
import sys

import numpy as np
import pytest

from dpose.jit import kernel

STEP = 3


@kernel
def plus(value):
    """One more step."""
    return value + STEP


@kernel
def total(values):
    found = 0
    for value in values:
        found += plus(value)
    return found


def test_a_kernel_calls_others_and_keeps_its_name():
    assert total(np.arange(4)) == 6 + 4 * STEP
    assert plus.__name__ == "plus"
    assert plus.__doc__ == "One more step."
    assert total.compiled.nopython_signatures  # compiled, and not only called


def test_numba_is_loaded_at_the_first_call_alone():
    code = (
        "import sys, numpy as np\n"
        "import dpose.privacy.rounded_gaussian, dpose.release.kernels as kernels\n"
        "assert 'numba' not in sys.modules\n"
        "assert kernels.block_sums(np.ones((4, 4, 1), np.uint8), 2).ravel().tolist() == [4] * 4\n"
        "assert 'numba' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_where_no_cache_can_be_written_it_is_compiled_all_the_same(monkeypatch):
    import numba

    real = numba.njit

    def nowhere(*values, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available for file")
        return real(*values, **options)

    monkeypatch.setattr(numba, "njit", nowhere)
    assert kernel(lambda value: value + 1)(1) == 2


def test_a_mistake_in_a_kernel_is_not_hidden():
    with pytest.raises(TypeError, match="argument"):
        plus(1, 2)
