"""Kernels: compiled when they are called, seen by each other, and without a folder for numba's cache."""

import json
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpose import jit
from dpose.jit import kernel
from dpose.privacy import discrete
from dpose.release import partition
from tiers import rest_slow

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


def test_numba_is_loaded_at_the_first_call_that_is_worth_it():
    code = (
        "import sys, numpy as np\n"
        "import dpose.privacy.gaussian_noise\n"
        "from dpose.privacy import discrete\n"
        "from dpose.release import partition\n"
        "from dpose import jit\n"
        "pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)\n"
        "words, digits = pixels.reshape(-1, 350).astype(np.uint16), np.full(30, 99, np.uint16)\n"
        "def both(): return [partition.block_sums(pixels, 16), *discrete.compare_bits(words, digits)]\n"
        "plain = both()\n"
        "assert 'numba' not in sys.modules\n"
        "jit._spared = jit.WORTH\n"
        "compiled = both()\n"
        "assert 'numba' in sys.modules\n"
        "assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(plain, compiled, strict=True))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def spared(monkeypatch):
    """As in a process that has not loaded numba, until the test says otherwise."""
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(jit, "_spared", 0)


def test_much_work_is_worth_numba(spared):
    assert jit.without_numba(jit.WORTH)
    assert not jit.without_numba(1)


@settings(deadline=None)  # the first call compiles
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([1, 3]),
    st.integers(1, 45),
    st.sampled_from([np.uint8, np.uint16]),
    st.integers(0, 2**32 - 1),
)
def test_sums_are_the_same_either_way(height, width, channels, block, kind, seed):
    pixels = np.random.default_rng(seed).integers(0, np.iinfo(kind).max, (height, width, channels), kind, True)
    ways = []
    for spare in (True, False):
        with mock.patch.object(partition, "without_numba", lambda values, spare=spare: spare):
            ways.append(partition.block_sums(pixels, block))
    assert ways[0].dtype == ways[1].dtype == np.int64
    np.testing.assert_array_equal(*ways)
    assert ways[0][0, 0, 0] == pixels[:block, :block, 0].sum(dtype=np.int64)


@settings(deadline=None)  # the first call compiles
@given(st.integers(1, 62), st.integers(0, 50), st.integers(0, 2**32 - 1))
def test_coins_fall_the_same_either_way(rows, count, seed):
    generator = np.random.default_rng(seed)
    words, digits = (generator.integers(0, 4, (rows, count), np.uint16), generator.integers(0, 4, rows, np.uint16))
    ways = []
    for spare in (True, False):
        with mock.patch.object(discrete, "without_numba", lambda values, spare=spare: spare):
            ways.append(discrete.compare_bits(words, digits))
    for plain, compiled in zip(*ways, strict=True):
        assert plain.dtype == compiled.dtype
        np.testing.assert_array_equal(plain, compiled)


def test_where_no_cache_can_be_written_it_is_compiled_all_the_same(monkeypatch):
    import numba

    real = numba.njit

    def nowhere(*values, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available for file")
        return real(*values, **options)

    monkeypatch.setattr(numba, "njit", nowhere)
    assert kernel(lambda value: value + 1)(1) == 2


INSTALLED = {
    "numbers_of.py": "STEP = 3\nTABLE = __import__('numpy').arange(3000)\n",
    "steps.py": (
        "from dpose.jit import kernel\nfrom numbers_of import STEP, TABLE\n"
        "@kernel\ndef plus(value):\n    return value + STEP + TABLE[2000]\n"
    ),
    "sums.py": (
        "from dpose.jit import kernel\nfrom steps import plus\n"
        "@kernel\ndef twice(value):\n    return plus(plus(value))\n"
    ),
}
"""Kernels of an installed package: one calls another module's, which names a third one's numbers."""


@pytest.fixture
def installed(tmp_path):
    """A folder with `INSTALLED` in which nothing can be cached, and a run of it: what it says, hits, and files."""
    place = tmp_path / "installed"
    place.mkdir()
    (place / "__pycache__").touch()  # no folder, whoever asks: root may write where others may not
    for name, source in INSTALLED.items():
        (place / name).write_text(source)

    def run(**environment):
        code = (
            "import json, sums\n"
            "found = sums.twice(1)\n"
            "stats = getattr(sums.twice.compiled, 'stats', None)\n"
            "print(json.dumps([found, sum(stats.cache_hits.values())]))\n"
        )
        own = {"PYTHONPATH": os.pathsep.join([str(place), *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], env={**clean, **own, **environment}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    run.place = place
    return run


def test_an_installation_that_is_read_only_caches_in_the_users_folder(installed, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert installed(**cache) == [1 + 2 * 2003, 0]
    assert {path.name.partition(".")[0] for path in (tmp_path / "cache/numba").rglob("*.nbi")} == {"steps", "sums"}
    assert installed(**cache) == [1 + 2 * 2003, 1]
    assert sorted(path.name for path in installed.place.iterdir()) == sorted([*INSTALLED, "__pycache__"])


def test_a_folder_that_is_named_comes_first(installed, tmp_path):
    named = {"NUMBA_CACHE_DIR": str(tmp_path / "named"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert installed(**named)[0] == 1 + 2 * 2003
    assert list((tmp_path / "named").rglob("*.nbi"))
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_where_nothing_can_be_written_it_runs_and_so_it_does_where_a_file_cannot(installed, tmp_path):
    (tmp_path / "file").touch()
    nowhere = {"XDG_CACHE_HOME": str(tmp_path / "file" / "below")}
    assert installed(**nowhere) == installed(**nowhere) == [1 + 2 * 2003, 0]
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    installed(**cache)
    for index in (tmp_path / "cache").rglob("*.nbi"):  # as another user's, or on a disk that is full
        index.unlink()
        index.mkdir()
    assert installed(**cache) == [1 + 2 * 2003, 0]


@pytest.mark.parametrize(("number", "found"), rest_slow([("TABLE[2000] = 7\n", 10), ("STEP = 5\n", 2005)]))
def test_what_is_cached_knows_the_numbers_of_other_modules(installed, tmp_path, number, found):
    """numba looks at the kernel's own module alone: code with the old number would go on after an update."""
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert installed(**cache) == [1 + 2 * 2003, 0]
    with (installed.place / "numbers_of.py").open("a") as source:
        source.write(number)
    assert installed(**cache) == [1 + 2 * found, 0]


@pytest.mark.slow
def test_what_is_cached_is_of_one_kind_of_processor(installed, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ({}, {"NUMBA_CPU_NAME": "generic"}):
        assert installed(**cache, **name) == [1 + 2 * 2003, 0]  # nobody else's is taken
        assert installed(**cache, **name) == [1 + 2 * 2003, 1]


def test_a_kernel_is_named_alike_in_every_process():
    code = (
        "import sys; from dpose_scene import albedo; from dpose.privacy import gaussian_noise as drawn;"
        "print(albedo.albedo.digest, drawn._fast.digest)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_a_mistake_in_a_kernel_is_not_hidden():
    with pytest.raises(TypeError, match="argument"):
        plus(1, 2)
