"""A studio without a browser, and one in a process of its own with a browser that asks it."""

import pytest

pytest.importorskip("starlette")

from starlette.testclient import TestClient

from dpose.studio.app import Studio, make_app
from dpose.studio.roots import Roots, Workplace
from dpose.studio.security import HEADER, Door
from studios import HOME, PORT, photo


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a picture, a broken one, and links that lead out."""
    made = tmp_path_factory.mktemp("photos")
    outside = tmp_path_factory.mktemp("elsewhere")
    photo(made / "ward.png")
    (made / "inner").mkdir()
    photo(made / "inner" / "b.png", seed=1)
    photo(outside / "secret.png", seed=2)
    (made / "link.png").symlink_to(outside / "secret.png")
    (made / "door").symlink_to(outside)
    (made / "tool.jpg").write_bytes(b"\x7fELF" + bytes(500))
    return made


@pytest.fixture(scope="module")
def studio(folder, tmp_path_factory):
    """A studio; its state folder is the one of all fixtures that live longer than a test."""
    base = tmp_path_factory.mktemp("studio")
    made = Studio(Door(PORT), Roots.of([folder]), base / "released", Workplace(base / "work"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def stranger(studio):
    """A client without the secret."""
    return TestClient(make_app(studio), base_url=HOME, follow_redirects=False)


@pytest.fixture(scope="module")
def client(studio):
    """A client that opened the printed address."""
    return TestClient(make_app(studio), base_url=HOME, headers={"origin": HOME, HEADER: studio.door.secret})


@pytest.fixture(scope="module")
def ask(client):
    """`ask(name, **body)`: what the studio answers, or an error's line."""

    def asking(name, **body):
        found = client.post(f"/api/{name}", json=body)
        return found.json() if found.status_code == 200 else found.json()["error"]

    return asking


@pytest.fixture(scope="module")
def kept():
    """What `opened` opened last."""
    return {}


@pytest.fixture
def opened(ask, studio, kept):
    """The picture of the folder, open: again, where others have been opened since."""
    if kept.get("id") not in studio.files._files:
        kept |= ask("open_file", place="0/ward.png")
    return kept
