"""What depends on the last bit stands under another kind of arithmetic; and `tests/helpers/kinds.py` runs all of it."""

from pathlib import Path

import pytest

import kinds

ROOT = Path(__file__).parents[1]


def test_every_marked_test_is_run_under_each_kind():
    here = Path(__file__).name
    marked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.name != here and "mark.bits" in path.read_text()
    }
    assert marked == set(kinds.BITS)


def test_the_kinds_are_those_by_which_kernels_are_chosen():
    chosen_by = {"MKL_CBWR", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "OMP_NUM_THREADS"}
    assert {name for kind in kinds.KINDS for name in kind} == set(kinds.FARTHEST) == chosen_by


@pytest.mark.slow
def test_what_depends_on_the_last_bit_stands_under_the_farthest_kind(request):
    code, printed, _ = kinds.tried(kinds.FARTHEST, request.getfixturevalue("_cache"))
    assert code == 0, printed
