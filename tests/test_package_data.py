"""Every file beside the code is named as package data, so that a wheel holds it; `tests/test_dist.py` builds one."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
MADE = {"__pycache__", "evaluations"}


@pytest.mark.parametrize("package", NAMED)
def test_a_wheel_would_hold_it(package):
    folder = ROOT / "src" / package
    beside = {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".py" and not MADE & set(path.parts)
    }
    held = {path.relative_to(folder) for pattern in NAMED[package] for path in folder.glob(pattern)}
    assert beside - held == set()
    for pattern in NAMED[package]:
        assert list(folder.glob(pattern)) or pattern == "*.pyi", f"{pattern} names nothing"
