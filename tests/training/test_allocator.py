"""What is freed stays with the process where glibc can be told so, and settings of the user's own stand."""

import os
import platform
import subprocess
import sys

import pytest

from dpose.training.gradients import keep_freed_memory

FAULTS = """
import resource, torch
from dpose.training.gradients import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(8_000_000)  # 32 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
kept = keep_freed_memory()
faults()
print(kept, faults())
"""


def run(code, **settings):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**{n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_"))}, **settings},
    )
    return done.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is of glibc")
def test_blocks_are_used_again():
    kept, faults = run(FAULTS)
    assert kept == "True"
    assert int(faults) < 100


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_settings_of_the_environment_stand(name):
    assert run(FAULTS, **{name: "131072"})[0] == "False"


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_another_c_library_is_left_alone(error, monkeypatch):
    def nothing(name):
        raise error

    monkeypatch.setattr("ctypes.CDLL", nothing)
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    assert not keep_freed_memory.__wrapped__()
