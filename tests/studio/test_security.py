"""Refusals: what a page of another site, another name for this machine, or an old address is answered."""

import http.client
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from dpose.studio import opened as opened_files
from dpose.studio.app import MOST_JSON, VIEWS
from dpose.studio.jobs import answer
from dpose.studio.roots import Roots, Workplace
from dpose.studio.runs_view import folder_entries, run_list
from dpose.studio.security import HEADER, LOOPBACK, Door
from dpose.studio.server import _listen, serve_studio
from refusals import refused
from studios import HOME, PORT, photo

PATHS = ["/", "/api/jobs", "/api/upload", "/static/studio.js", "/report/0/a"]


CLOSED = ["/api/jobs", "/api/upload", "/report/0/a", "/files/0/shown.jpg", "/written/0/000001.png"]
"""What takes the secret, or a key."""


def method_of(path):
    return "POST" if path.startswith("/api/j") else "PUT" if path.startswith("/api/u") else "GET"


def send(client, path, **headers):
    return client.request(method_of(path), path, headers={k.replace("_", "-"): v for k, v in headers.items()})


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
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{PORT + 1}", f"http://localhost:{PORT}"):
        assert send(client, path, origin=origin).status_code == 403
    assert send(client, path, sec_fetch_site="cross-site").status_code == 403
    assert send(client, path, sec_fetch_site="same-site").status_code == 403


def test_what_changes_anything_names_its_origin(studio, stranger):
    secret = {HEADER: studio.door.secret}
    assert stranger.post("/api/jobs", json={}, headers=secret).status_code == 403
    assert stranger.post("/api/jobs", json={}, headers=secret | {"origin": HOME}).status_code == 200


@pytest.mark.parametrize("path", CLOSED)
def test_no_secret_or_yesterdays_opens_nothing(stranger, studio, path):
    for given in ({}, {HEADER: Door(PORT).secret}, {HEADER: ""}, {"cookie": f"{HEADER}={studio.door.secret}"}):
        refused = send(stranger, path, origin=HOME, **given)
        assert refused.status_code == 403
        assert "earlier start" in refused.text
        assert "set-cookie" not in refused.headers
    twice = [("origin", HOME), (HEADER, studio.door.secret), (HEADER, studio.door.secret)]
    assert stranger.request(method_of(path), path, headers=twice).status_code == 403


def test_cookies_let_no_one_in_and_lock_no_one_out(stranger, client, studio):
    """A browser sends a machine's cookies to every port of it: other programs get ours, and we get theirs."""
    for found in (client.get("/"), client.post("/api/jobs", json={})):
        assert "set-cookie" not in found.headers
    secret = studio.door.secret
    for cookie in (f"dpose-studio-{PORT}={secret}", f"session={secret}"):
        assert stranger.post("/api/jobs", json={}, headers={"origin": HOME, "cookie": cookie}).status_code == 403
    for cookie in ("a[b]=1; x", 'q="', "\xe4=\xff", "=;;=", f"dpose-studio-{PORT}=yesterday", "k=" + "v" * 9000):
        found = client.post("/api/jobs", json={}, headers={"cookie": cookie.encode("latin-1")})
        assert found.status_code == 200, cookie


def test_a_view_says_nothing_of_whose_studio_it_is(stranger, client, studio, folder):
    """What is sent to who has no secret: the same text for everybody."""
    for path in VIEWS:
        found = stranger.get(path)
        assert found.status_code == 200
        for private in (studio.door.secret, str(studio.out), str(folder), folder.name, *studio.files._files):
            assert private not in found.text
        assert stranger.post(path).status_code == 403
    assert ask_out(client) == str(studio.out)


def ask_out(client):
    return client.post("/api/browse", json={}).json()["out"]


def test_the_first_page_may_be_come_to_from_anywhere_and_nothing_else(stranger, studio):
    """From a mail, or the file that the browser is given at the start; not into a frame, and by no script."""
    assert "#" in studio.door.address
    assert studio.door.address.partition("#")[2] == studio.door.secret  # a fragment is sent with no request
    far = {"sec-fetch-site": "cross-site"}
    assert stranger.get("/", headers=far | {"sec-fetch-dest": "document"}).status_code == 200
    for path, kind in (("/", "iframe"), ("/", "empty"), ("/plan", "document"), ("/api/jobs", "document")):
        assert stranger.get(path, headers=far | {"sec-fetch-dest": kind}).status_code == 403


def test_a_key_opens_its_own_path_alone(stranger, client, studio, opened):
    """Pictures, downloads and reports are fetched by no script: their addresses let in to just them."""
    shown = opened["shown"]
    assert stranger.get(shown).headers["content-type"] == "image/jpeg"
    assert stranger.get(f"{shown}&show").status_code == 200
    path, _, key = shown.partition("?")
    assert studio.door.secret not in shown
    for other in (path, f"{path}?key=", f"{path}?{key[:-1]}", f"{shown}&{key}", f"{path}?key={studio.door.secret}"):
        assert stranger.get(other).status_code == 403
    for other in (path.replace("shown", "predicted"), "/api/jobs", "/report/0/a"):
        assert stranger.get(f"{other}?{key}").status_code == 403
    assert stranger.get(Door(PORT).keyed(path)).status_code == 403
    assert send(stranger, shown, host="evil.example").status_code == 421
    assert send(stranger, shown, origin="https://evil.example").status_code == 403


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
        with refused("port-unavailable", where=f"--port {port}"):
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
        "0/" + "a" * 5_000,
        "0/" + "a/" * 3_000,
        "\u00b2/ward.png",
        "9" * 5_000,
        "",
        "x",
        None,
    ):
        assert isinstance(ask("open_file", place=place), str), place
        assert isinstance(ask("browse", place=place or "9/"), str), place
        assert isinstance(ask("run", run=place), str), place
    for place in ("0/ward.png", "0/tool.jpg"):  # no folders
        assert "cannot be read as a folder" in ask("browse", place=place)
        assert "cannot be read as a folder" in ask("run", run=place)
    listed = ask("browse", place="0/")
    assert [one["name"] for one in listed["files"]] == ["tool.jpg", "ward.png"]
    assert [one["name"] for one in listed["folders"]] == ["inner"]


def test_a_run_whose_log_is_a_link_out_is_not_read(tmp_path):
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    (tmp_path / "secret").write_text("{}")
    (run / "config.json").symlink_to(tmp_path / "secret")
    roots = Roots.of([tmp_path / "runs"])
    with refused("file-outside-folders"):
        roots.closed(roots.find("0/a"))


def test_no_link_at_any_depth_leads_out_of_a_run(tmp_path):
    """What reads a run's folder, a model's loader or a training that goes on, looks deeper than one floor."""
    deep = tmp_path / "runs" / "a" / "checkpoints" / "7"
    deep.mkdir(parents=True)
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "a" / "beside").symlink_to(
        tmp_path / "runs" / "b"
    )  # within the folders, and round in a circle
    (tmp_path / "runs" / "b" / "back").symlink_to(tmp_path / "runs" / "a")
    roots = Roots.of([tmp_path / "runs"])
    assert roots.closed(tmp_path / "runs" / "a") == tmp_path / "runs" / "a"
    for place in (deep, tmp_path / "runs" / "b"):
        (place / "state").symlink_to(tmp_path / "secret")
        with refused("file-outside-folders"):
            roots.closed(tmp_path / "runs" / "a")
        (place / "state").unlink()


def test_a_folder_that_is_none_is_told(tmp_path):
    (tmp_path / "file").touch()
    for none in ("no/runs", "file"):
        with refused("folder-missing"):
            Roots.of([tmp_path / none])


def test_a_folder_that_is_not_there_yet_is_read_once_it_is(tmp_path):
    (tmp_path / "secret").mkdir()
    roots = Roots.of([tmp_path / "runs", tmp_path / "linked"])
    assert roots.absent == roots.folders
    assert folder_entries(roots, {})["folders"] == run_list(roots) == []
    with refused("file-missing"):
        roots.find("0/")
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "secret")
    assert roots.find("0/a") == tmp_path / "runs" / "a"
    with refused("file-outside-folders"):  # what came in its place leads elsewhere
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
        "import os, sys, pathlib; from dpose.studio.roots import Workplace; "
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
    for found in (room, *room.rglob("*")):
        assert stat.S_IMODE(found.stat().st_mode) == (0o700 if found.is_dir() else 0o600)
    for name, content in (("tool.jpg", b"\x7fELF" + bytes(99)), ("a.png", data[:-40]), ("a.exe", b"MZ" + bytes(99))):
        failed = client.put("/api/upload", params={"name": name}, content=content)
        assert failed.status_code == 400
        assert str(studio.workplace.folder) not in failed.json()["error"]
    assert set(studio.workplace.folder.iterdir()) == before | {room}


def test_a_file_that_is_too_large_is_refused_while_it_comes(client, studio, monkeypatch):
    monkeypatch.setattr(opened_files, "MOST_BYTES", 1 << 10)
    before = set(studio.workplace.folder.iterdir())
    failed = client.put("/api/upload", params={"name": "a.png"}, content=bytes(5 << 10))
    assert failed.json()["code"] == "file-too-large"
    assert set(studio.workplace.folder.iterdir()) == before


def test_a_page_that_asks_too_much_is_refused(client):
    assert client.post("/api/jobs", content=b" " * (MOST_JSON + 1)).json()["code"] == "request-too-large"
    assert client.post("/api/jobs", content=b"{").json()["code"] == "json-invalid"
    assert client.post("/api/jobs", content=b"[]").json()["code"] == "json-not-object"


@pytest.mark.parametrize(
    "body", ["[" * 30_000, '{"file": ' * 7_000, '{"block": ' + "[" * 400 + "]" * 400 + "}", '{"box": [{}]}']
)
def test_what_is_nested_too_deeply_is_told(client, body):
    for name in ("jobs", "preview", "release"):
        found = client.post(f"/api/{name}", content=body.encode())
        assert found.status_code == 400
        # Python from 3.13 on reads deeper, to where what is not closed ends
        cut_short = body.count("{") > body.count("}")
        codes = {"json-nested-too-deeply", *(["json-invalid"] if cut_short else [])}
        assert found.json()["code"] in codes


def test_decoding_passes_no_limit(tmp_path):
    """The limits are the worker's own: with less than it takes to begin, nothing is decoded."""
    source = photo(tmp_path / "a.png")
    with refused("decoding-limit-passed"):
        answer("decode", {"source": str(source), "roots": [str(tmp_path)], "room": str(tmp_path)}, memory=20 << 20)
    assert not (tmp_path / "pixels.npy").exists()


def test_a_header_that_declares_a_huge_picture_is_refused(client, tmp_path):
    data = bytearray(photo(tmp_path / "a.png").read_bytes())
    data[16:24] = (20_000).to_bytes(4, "big") + (10_001).to_bytes(4, "big")
    failed = client.put("/api/upload", params={"name": "a.png"}, content=bytes(data))
    assert failed.json()["code"] == "picture-too-large"  # as the process that decodes it says
    assert "200,000,000" in failed.json()["error"]


def test_the_secret_is_on_no_command_line(tmp_path, monkeypatch):
    """Every user of this machine can read all command lines, a browser's too."""
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
            assert "/#" in page.read_text()
            seen.append(page)

    def note(url):
        seen.append(url)
        opened.set()

    monkeypatch.setattr("dpose.studio.server.webbrowser.open", note)
    monkeypatch.setattr("dpose.studio.server.uvicorn.Server", NoServer)
    monkeypatch.setattr("dpose.studio.server._warm", lambda: None)
    serve_studio([tmp_path], tmp_path / "out", console=Console(quiet=True))
    url, page = seen
    assert "#" not in url
    assert not page.exists(), "it goes with the studio"


def test_over_the_wire_host_comes_first_then_origin_then_secret(tmp_path):
    """The studio as it is started, asked by what is no browser."""
    command = [sys.executable, "-m", "dpose", "studio", "--no-browser", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address, _, secret = process.stdout.readline().split()[-1].partition("/#")
        good = address.removeprefix("http://")

        def asked(path="/api/jobs", **headers):
            connection = http.client.HTTPConnection(good, timeout=20)
            connection.putrequest("POST", path, skip_host=True)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return connection.getresponse().status

        try:
            let_in = {"x_dpose_studio": secret, "content_length": "0"}
            assert asked(host="evil.example", origin="http://evil.example", **let_in) == 421
            assert asked(host=good, origin="http://evil.example", **let_in) == 403
            assert asked(host=good, origin=address) == 403
            assert asked(host=good, origin=address, **let_in | {"x_dpose_studio": "yesterday"}) == 403
            assert asked(host=good, origin=address, **let_in) == 200
            # as many cookies of other programs of this machine as a browser keeps for it
            cookies = "; ".join(f"other{k}=" + "v" * 4000 for k in range(180))
            assert asked(host=good, origin=address, cookie=cookies, **let_in) == 200
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)


@pytest.mark.parametrize(
    "name",
    ["a\0b.png", "..", "a" * 5000 + ".png", "\U0001d51e" * 200 + ".png", "\u202egnp.exe.png", "con:.png", "-.png", ""],
)
def test_an_uploads_name_is_harmless_whatever_it_is(client, studio, tmp_path, name):
    before = set(studio.workplace.folder.iterdir())
    data = photo(tmp_path / "a.png").read_bytes()
    found = client.put("/api/upload", params={"name": name}, content=data)
    assert found.status_code == 200  # what it is, its content says
    held = studio.files.get(found.json()["id"])
    assert held.source.read_bytes() == data
    assert held.source.parent.parent == held.room
    assert len(os.fsencode(held.source.name)) <= 104
    assert not set(held.source.name) & set("/\\\0:\u202e")
    nothing = client.put("/api/upload", params={"name": name}, content=b"MZ" + bytes(99))
    assert nothing.status_code == 400
    assert set(studio.workplace.folder.iterdir()) <= before | {held.room}  # old uploads make room


@pytest.mark.parametrize("suffix", [".html", ".svg", ".png", ".mp4", ".zip", ".npz"])
def test_what_a_browser_would_run_is_never_served(client, studio, suffix):
    """Of an upload nothing is served but what the decoder drew."""
    text = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    before = set(studio.workplace.folder.iterdir())
    found = client.put("/api/upload", params={"name": f"a{suffix}"}, content=text)
    assert found.status_code == 400
    assert set(studio.workplace.folder.iterdir()) == before


def test_of_an_opened_file_only_the_drawn_pictures_are_served(client, studio, opened):
    room = studio.files.get(opened["id"]).room
    (room / "predicted.html").write_text("<script>")
    for name in ("pixels.npy", "predicted.html", "predicted.jpg", "..%2f.lock", "dropped%2fa.png"):
        found = client.get(f"/files/{opened['id']}/{name}")
        assert found.status_code in (400, 404)
        assert b"<script>" not in found.content
    assert client.get("/files/none/shown.jpg").status_code == 400
    assert client.get(f"/files/{opened['id']}/shown.jpg").headers["content-type"] == "image/jpeg"
