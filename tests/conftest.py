"""What every test may ask for: real data where it is at hand, and a state folder of its own."""

import os
from pathlib import Path

import pytest

import dpose  # noqa: F401  (before torch: it settles how torch's threads wait)
from dots import dots  # noqa: F401  (a fixture)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def _no_state_of_the_user(tmp_path_factory):
    """For fixtures that live longer than a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-of-all")))
        yield


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory, monkeypatch):
    """Keys, heads and caches go to a temporary folder, never to the user's own."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("DPOSE_TEST_CACHE", str(folder / "cache")))


def _data(name: str) -> Path:
    folder = ROOT.parent / "shared" / "data" / name
    if not folder.exists():
        pytest.skip(f"real data absent: {folder}")
    return folder


@pytest.fixture(scope="session")
def lspet() -> Path:
    """The folder of Leeds Sports Pose Extended, or a skip."""
    return _data("lspet")


@pytest.fixture(scope="session")
def pose_fixtures() -> Path:
    """The folder of real COCO, MPII and Human-Art samples, or a skip."""
    return _data("pose_fixtures")
