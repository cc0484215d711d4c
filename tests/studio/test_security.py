"""Nobody gets in: what a page of another site, another name for this machine, or an old address is answered."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from dpose.errors import DposeError
from dpose.studio import opened as opened_files
from dpose.studio.app import MOST_JSON, VIEWS
from dpose.studio.children import answer
from dpose.studio.roots import Roots
from dpose.studio.runs_view import folder_entries, run_list
from dpose.studio.security import LOOPBACK, Door
from dpose.studio.server import _listen, serve_studio
from dpose.studio.workplace import Workplace
from studios import HOME, PORT, photo

PATHS = ["/", "/api/jobs", "/api/upload", "/static/studio.js", "/report/0/a"]


def send(client, path, **headers):
    method = "POST" if path.startswith("/api/j") else "PUT" if path.startswith("/api/u") else "GET"
    return client.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})


@pytest.mark.parametrize("path", PATHS)
def test_another_name_of_this_machine_is_misdirected(client, path):
    """DNS rebinding: the page is a stranger's, its address is ours, and its Host header says so."""
    for host in (
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        f"127.0.0.1:{PORT + 1}",
        f"{LOOPBACK}.evil:{PORT}",
        "",
    ):
        assert send(client, path, host=host).status_code == 421


@pytest.mark.parametrize("path", PATHS)
def test_a_page_of_another_site_gets_no_answer(client, path):
    for origin in (
        "https://evil.example",
        "null",
        f"http://127.0.0.1:{PORT + 1}",
        f"http://localhost:{PORT}",
    ):
        assert send(client, path, origin=origin).status_code == 403
    assert send(client, path, sec_fetch_site="cross-site").status_code == 403
    assert send(client, path, sec_fetch_site="same-site").status_code == 403


def test_what_changes_anything_names_its_origin(studio, stranger):
    cookie = {"cookie": f"{studio.door.cookie}={studio.door.session}"}
    assert stranger.post("/api/jobs", json={}, headers=cookie).status_code == 403
    assert stranger.post("/api/jobs", json={}, headers=cookie | {"origin": HOME}).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_no_token_or_yesterdays_opens_nothing(stranger, studio, path):
    yesterday = Door(PORT)
    wrong = {"origin": HOME, "cookie": f"{yesterday.cookie}={yesterday.session}"}
    assert send(stranger, path, origin=HOME).status_code == 403
    assert send(stranger, path, **wrong).status_code == 403
    assert (
        send(stranger, path, origin=HOME, cookie=f"{studio.door.cookie}={studio.door.token}").status_code
        == 403
    )
    old = stranger.get(f"/?token={yesterday.token}")
    assert old.status_code == 403
    assert "earlier start" in old.text
    assert "set-cookie" not in old.headers


def test_the_printed_address_opens_it_in_two_tabs(stranger, studio):
    for _ in range(2):
        entry = stranger.get(studio.door.address.removeprefix(HOME), headers={"sec-fetch-site": "none"})
        assert entry.status_code == 200
        cookie = entry.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert studio.door.token not in entry.text + cookie
    assert stranger.get("/").status_code == 200
    stranger.cookies.clear()


def test_the_token_opens_the_first_page_alone(stranger, studio):
    for path in ("/plan", "/api/jobs", "/static/studio.js"):
        assert stranger.get(f"{path}?token={studio.door.token}").status_code == 403
    assert stranger.get(f"/?token={studio.door.token}&token=x").status_code == 403


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_says_what_a_browser_may_do(client, path):
    for found in (send(client, path), send(client, path, host="evil.example")):
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "http:" not in policy
        assert "https:" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert found.headers["cache-control"] == "no-store"


def test_it_listens_on_loopback_alone():
    listener = _listen(0)
    try:
        address, port = listener.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(DposeError, match=f"--port {port}"):
            _listen(port)
    finally:
        listener.close()


def test_no_page_asks_another_host_or_holds_a_script(client):
    for path in VIEWS:
        text = client.get(path).text
        assert "http:" not in text
        assert "https:" not in text
        assert 'style="' not in text
        assert " onclick" not in text
        assert text.count("<script") == text.count('<script type="module" src="/static/') == 1


# --- folders


def test_no_path_leaves_the_folders(ask, folder):
    for place in (
        "0/../x",
        "0//etc/passwd",
        "1/a",
        "-1/a",
        "0/link.png",
        "0/door/secret.png",
        "0/no.png",
        "0/\0",
        "",
        "x",
        None,
    ):
        assert isinstance(ask("open_file", place=place), str), place
        assert isinstance(ask("browse", place=place or "9/"), str), place
        assert isinstance(ask("run", run=place), str), place
    listed = ask("browse", place="0/")
    assert [one["name"] for one in listed["files"]] == ["tool.jpg", "ward.png"]
    assert [one["name"] for one in listed["folders"]] == ["inner"]


def test_a_run_whose_log_is_a_link_out_is_not_read(tmp_path):
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    (tmp_path / "secret").write_text("{}")
    (run / "config.json").symlink_to(tmp_path / "secret")
    roots = Roots.of([tmp_path / "runs"])
    with pytest.raises(DposeError, match="links out"):
        roots.closed(roots.find("0/a"))


def test_a_folder_that_is_none_is_told(tmp_path):
    (tmp_path / "file").touch()
    for none in ("no/runs", "file"):
        with pytest.raises(DposeError, match="no such folder"):
            Roots.of([tmp_path / none])


def test_a_folder_that_is_not_there_yet_is_read_once_it_is(tmp_path):
    (tmp_path / "secret").mkdir()
    roots = Roots.of([tmp_path / "runs", tmp_path / "linked"])
    assert roots.absent == roots.folders
    assert folder_entries(roots, {})["folders"] == run_list(roots) == []
    with pytest.raises(DposeError, match="no such file or folder"):
        roots.find("0/")
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "secret")
    assert roots.find("0/a") == tmp_path / "runs" / "a"
    with pytest.raises(DposeError, match="outside"):  # what came in its place leads elsewhere
        roots.find("1/")


# --- copies of private pictures


def test_work_files_are_their_owners_alone_and_go(tmp_path):
    base = tmp_path / "studio"
    first = Workplace(base)
    room = first.room()
    with os.fdopen(opened_files.open_private(room / "a.png"), "wb") as file:
        file.write(b"secret")
    assert stat.S_IMODE((room / "a.png").stat().st_mode) == 0o600
    for folder in (base, first.folder, room):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    second = Workplace(base)
    assert room.exists()  # the first one lives
    assert second.swept == 0
    second.close()
    first.close()
    assert list(base.iterdir()) == []


def test_what_a_killed_studio_left_goes_at_the_next_start(tmp_path):
    code = (
        "import os, sys, pathlib; from dpose.studio.workplace import Workplace; "
        "w = Workplace(pathlib.Path(sys.argv[1])); (w.room() / 'a.png').write_text('secret'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "studio")], check=False)
    assert len(list((tmp_path / "studio").rglob("a.png"))) == 1
    next_one = Workplace(tmp_path / "studio")
    assert next_one.swept == 1
    assert list((tmp_path / "studio").iterdir()) == [next_one.folder]
    next_one.close()


def test_an_upload_lies_in_a_private_file_and_a_broken_one_leaves_nothing(client, studio, tmp_path):
    before = set(studio.workplace.folder.iterdir())
    data = photo(tmp_path / "a.png").read_bytes()
    found = client.put("/api/upload", params={"name": "../../a.png"}, content=data).json()
    assert found["name"] == "a.png"
    (room,) = set(studio.workplace.folder.iterdir()) - before
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in room.iterdir())
    for name, content in (("tool.jpg", b"\x7fELF" + bytes(99)), ("a.png", data[:-40]), ("a.exe", data)):
        failed = client.put("/api/upload", params={"name": name}, content=content)
        assert failed.status_code == 400
        assert str(studio.workplace.folder) not in failed.json()["error"]
    assert set(studio.workplace.folder.iterdir()) == before | {room}


def test_a_file_that_is_too_large_is_refused_while_it_comes(client, studio, monkeypatch):
    monkeypatch.setattr(opened_files, "MOST_BYTES", 1 << 10)
    before = set(studio.workplace.folder.iterdir())
    failed = client.put("/api/upload", params={"name": "a.png"}, content=bytes(5 << 10))
    assert "larger than" in failed.json()["error"]
    assert set(studio.workplace.folder.iterdir()) == before


def test_a_page_that_asks_too_much_is_refused(client):
    assert "too much" in client.post("/api/jobs", content=b" " * (MOST_JSON + 1)).json()["error"]
    assert "no JSON" in client.post("/api/jobs", content=b"{").json()["error"]
    assert "no JSON object" in client.post("/api/jobs", content=b"[]").json()["error"]


def test_decoding_passes_no_limit(tmp_path):
    """The limits are the worker's own: with less than it takes to begin, nothing is decoded."""
    source = photo(tmp_path / "a.png")
    with pytest.raises(DposeError, match="memory"):
        answer("decode", {"source": str(source), "room": str(tmp_path)}, memory=200 << 20)
    assert not (tmp_path / "pixels.npy").exists()


def test_a_header_that_declares_a_huge_picture_is_refused(client, tmp_path):
    data = bytearray(photo(tmp_path / "a.png").read_bytes())
    data[16:24] = (20_000).to_bytes(4, "big") + (10_001).to_bytes(4, "big")
    failed = client.put("/api/upload", params={"name": "a.png"}, content=bytes(data))
    assert "more than the 200,000,000 allowed" in failed.json()["error"]


def test_the_token_is_on_no_command_line(tmp_path, monkeypatch):
    """Whoever has an account on this machine reads everybody's command lines, a browser's too."""
    seen, opened = [], threading.Event()

    class NoServer:
        def __init__(self, config):
            pass

        def run(self, sockets):
            assert opened.wait(60)  # the browser is opened by a thread of its own
            (url,) = seen
            page = Path(url.removeprefix("file://"))
            assert stat.S_IMODE(page.stat().st_mode) == 0o600
            assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
            assert "/?token=" in page.read_text()
            seen.append(page)

    def note(url):
        seen.append(url)
        opened.set()

    monkeypatch.setattr("dpose.studio.server.webbrowser.open", note)
    monkeypatch.setattr("dpose.studio.server.uvicorn.Server", NoServer)
    monkeypatch.setattr("dpose.studio.server._warm", lambda: None)
    serve_studio([tmp_path], tmp_path / "out", console=Console(quiet=True))
    url, page = seen
    assert "token" not in url
    assert not page.exists(), "it goes with the studio"
