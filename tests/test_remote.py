"""Releases out of and into a bucket: nothing half-written, nothing overwritten, no secret told."""

import json
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest
from rich.console import Console

from dpose.account import charges
from dpose.cli import main
from dpose.cli.remote import stored_run
from dpose.fetched import data_folder, fetch
from dpose.pose.data.spec import DataSpec
from dpose.privacy.keys import state_folder
from dpose.remote import copy_here, local_path, opened_store, put_all, put_new, url_of
from refusals import refused

SECRET = "wJalrXUtnFEMIsecretEXAMPLE"  # no real one


@pytest.fixture(scope="module")
def server():
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server, monkeypatch, tmp_path, request):
    """An empty bucket, and credentials in the environment."""
    s3fs = pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.chdir(tmp_path)
    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem(use_listings_cache=False)
    name = f"ward-{abs(hash(request.node.name)) % 10**9}"
    store.mkdir(name)
    return store, name


def picture(level):
    return cv2.imencode(".png", np.full((32, 48), level, np.uint8))[1].tobytes()


def test_a_folder_in_a_bucket_is_released_into_a_bucket_and_verifies(bucket, capfd, tmp_path):
    store, name = bucket
    for number in range(2):
        store.pipe_file(f"{name}/in/{number}.png", picture(60 + 90 * number))
    command = ["pixelize", f"s3://{name}/in", "--epsilon", "2", "--out", f"s3://{name}/out", "--block", "8"]
    assert main(command) == 0
    assert {Path(f).suffix for f in store.find(f"{name}/out")} == {".png", ".npz"}
    before = {f: store.cat_file(f) for f in store.find(f"{name}/out")}
    assert main(command) == 0, "the same command again releases nothing twice"
    assert {f: store.cat_file(f) for f in store.find(f"{name}/out")} == before
    said = capfd.readouterr()
    assert main(["verify", f"s3://{name}/out"]) == 0
    verified = capfd.readouterr()
    assert "epsilon" in verified.out
    state = Path(os.environ["XDG_STATE_HOME"])
    assert list(state.rglob("copies/*")) == [], "no copy of an input stays"
    everything = [
        *before.values(),
        *everything_written(state, tmp_path),
        *(text.encode() for text in (*said, *verified)),
    ]
    assert not any(SECRET.encode() in content for content in everything)


def test_copies_of_a_command_that_was_killed_go_with_the_next(bucket, tmp_path):
    store, name = bucket
    store.pipe_file(f"{name}/a.png", picture(70))
    left = state_folder() / "copies" / "0123456789abcdef"
    left.mkdir(parents=True)
    (left / "raw.png").write_bytes(b"private")
    out = ["--epsilon", "2", "--block", "8", "--out", str(tmp_path / "out")]
    assert main(["pixelize", f"s3://{name}/a.png", *out]) == 0
    assert not left.exists()


def test_a_command_stopped_before_it_put_goes_on(bucket, monkeypatch):
    store, name = bucket
    store.pipe_file(f"{name}/a.png", picture(70))
    command = ["pixelize", f"s3://{name}/a.png", "--epsilon", "2", "--out", f"s3://{name}/out", "--block", "8"]
    with monkeypatch.context() as patch:
        patch.setattr("dpose.remote.put_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(command) == 130
    assert store.find(f"{name}/out") == []
    assert main(command) == 0
    assert len(store.find(f"{name}/out")) == 2


def test_what_is_there_is_never_replaced(bucket, tmp_path):
    store, name = bucket
    mine = tmp_path / "a.png"
    mine.write_bytes(b"mine")
    put_new(mine, f"s3://{name}/a.png")
    put_new(mine, f"s3://{name}/a.png")
    mine.write_bytes(b"other")
    with refused("object-exists"):
        put_new(mine, f"s3://{name}/a.png")
    assert store.cat_file(f"{name}/a.png") == b"mine"


def test_a_list_takes_the_place_of_its_own_beginning_alone(bucket, tmp_path):
    store, name = bucket
    mine, url = tmp_path / "corpus.jsonl", f"s3://{name}/corpus.jsonl"
    mine.write_bytes(b"one\n")
    put_new(mine, url)
    mine.write_bytes(b"one\ntwo\n")
    put_new(mine, url)
    assert store.cat_file(f"{name}/corpus.jsonl") == b"one\ntwo\n"
    for other in (b"one\nTWO\nthree\n", b"one\n", b""):
        mine.write_bytes(other)
        with refused("object-exists"):
            put_new(mine, url)
    assert store.cat_file(f"{name}/corpus.jsonl") == b"one\ntwo\n"


def test_a_corpus_whose_command_failed_is_gone_on_with_by_the_same_command(bucket, capsys):
    store, name = bucket
    photos = Path("photos")
    photos.mkdir()
    for number in range(2):
        (photos / f"{number}.png").write_bytes(picture(60 + 90 * number))
    (photos / "2.png").write_bytes(b"no picture yet")
    command = ["pixelize", "photos", "--epsilon", "2", "--block", "8", "--out", f"s3://{name}/out"]
    command += ["--engine", "local", "--workers", "1"]
    assert main(command) == 1, "one failed, the others are done"
    assert main(["verify", f"s3://{name}/out"]) == 0
    assert "1 that failed" in capsys.readouterr().out
    before = {f: store.cat_file(f) for f in store.find(f"{name}/out")}
    (photos / "2.png").write_bytes(picture(200))
    assert main(command) == 0
    after = {f: store.cat_file(f) for f in store.find(f"{name}/out")}
    listed = f"{name}/out/corpus.jsonl"
    assert after[listed].startswith(before.pop(listed))
    assert before.items() <= after.items()
    assert len(after) == len(before) + 3
    assert main(["verify", f"s3://{name}/out"]) == 0
    assert "3 files, all as they were released" in " ".join(capsys.readouterr().out.split())


def test_what_was_put_is_known(bucket, tmp_path, monkeypatch):
    _, name = bucket
    (tmp_path / "made").mkdir()
    for word in ("a", "b"):
        (tmp_path / "made" / word).write_text(word)
    assert put_all(tmp_path / "made", f"s3://{name}/x") == 2
    monkeypatch.setattr("dpose.remote.put_new", None)
    assert put_all(tmp_path / "made", f"s3://{name}/x") == 0
    assert (copy_here(f"s3://{name}/x", tmp_path / "copy") / "b").read_text() == "b"


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (f"s3://somebody:{SECRET}@ward/in", "credentials"),
        (f"s3://ward/in?X-Amz-Signature={SECRET}", "credentials"),
        ("s3:///in", "bucket"),
        ("s3://ward/../other", "bucket"),
    ],
)
def test_places_that_are_refused(place, named, capsys):
    assert main(["pixelize", place, "--epsilon", "2", "--out", "released"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert named in line
    assert SECRET not in line


def test_a_bucket_that_is_missing_is_told_in_one_line(bucket, capsys):
    assert main(["pixelize", "s3://no-such-bucket/in", "--epsilon", "2", "--out", "released"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "s3://no-such-bucket/in" in line
    assert SECRET not in line


@pytest.fixture
def closed(monkeypatch, tmp_path):
    """A store that refuses whoever asks, as for credentials that it does not know; what was asked of it."""
    s3fs, asked = pytest.importorskip("s3fs"), []

    class Refusing(BaseHTTPRequestHandler):
        def refuse(self):
            asked.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = f"<Error><Code>InvalidAccessKeyId</Code><Message>{SECRET}?</Message></Error>".encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_):
            """Nothing."""

    for method in ("GET", "HEAD", "PUT", "POST"):
        setattr(Refusing, f"do_{method}", Refusing.refuse)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.chdir(tmp_path)
    s3fs.S3FileSystem.clear_instance_cache()
    yield asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "command",
    [
        ["pixelize", "s3://ward/in", "--epsilon", "2", "--out", "released"],
        ["pixelize", "a.png", "--epsilon", "2", "--block", "8", "--out", "s3://ward/out"],
        ["data", "check", "yolo:s3://ward/yolo"],
        ["verify", "s3://ward/out"],
    ],
)
def test_a_bucket_that_refuses_credentials_is_told_in_one_line(closed, command, capsys, cache):
    Path("a.png").write_bytes(picture(90))
    assert main(command) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "[store-denied]" in line
    assert "s3://ward/" in line
    assert SECRET not in line
    assert closed
    assert charges() == [], "nothing was released that could not be put anywhere"


def everything_written(*folders):
    return [p.read_bytes() for folder in folders for p in Path(folder).rglob("*") if p.is_file()]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "dpose" / "stores"


def test_data_in_a_bucket_are_fetched_once_and_again_where_they_changed(bucket, cache, monkeypatch, capsys):
    store, name = bucket
    files = {"val/a.txt": b"first", "val/b.txt": b"second", "c.json": b"{}"}
    for file, content in files.items():
        store.pipe_file(f"{name}/data/{file}", content)
    got = []

    class Counted:
        def __init__(self, url):
            self.store, self.root = opened_store(url)

        def __getattr__(self, what):
            return getattr(self.store, what)

        def get_file(self, remote, local):
            got.append(remote.partition("data/")[2])
            self.store.get_file(remote, local)

    monkeypatch.setattr("dpose.fetched.opened_store", lambda url: ((one := Counted(url)), one.root))

    def fetched():
        got.clear()
        folder = fetch(f"s3://{name}/data")
        return {f: (folder / f).read_bytes() for f in files if (folder / f).exists()}

    assert fetched() == files
    assert sorted(got) == sorted(files)
    folder = data_folder(f"s3://{name}/data")
    assert folder == cache / "s3" / name / "data"
    assert all(p.stat().st_mode & 0o077 == 0 for p in cache.rglob("*") if p.is_file())
    assert cache.stat().st_mode & 0o077 == 0
    assert fetched() == files
    assert got == [], "what is there and the same is used again"
    store.pipe_file(f"{name}/data/val/a.txt", b"other")
    (folder / "val" / "b.txt").write_bytes(b"SECOND")  # of the same length, as a damaged disk leaves it
    store.rm_file(f"{name}/data/c.json")
    assert fetched() == {"val/a.txt": b"other", "val/b.txt": b"second"}
    assert sorted(got) == ["val/a.txt", "val/b.txt"]
    (folder / ".fetched.json").write_text("no record")
    assert fetched() == {"val/a.txt": b"other", "val/b.txt": b"second"}
    assert len(got) == 2
    assert main(["data", "cache", "--clear"]) == 0
    assert "2 files fetched from stores" in capsys.readouterr().out
    assert not cache.exists()


def test_no_object_of_a_store_names_files_to_remove(bucket, cache, tmp_path):
    """The record of what was fetched says what is removed: no object may be one, and no name in one leads out."""
    store, name = bucket
    mine = tmp_path / "mine"
    mine.write_text("mine")
    record = json.dumps({str(mine): {}, "../../../../../mine": {}})
    for place in ("data", "data/below"):
        store.pipe_file(f"{name}/{place}/a.txt", b"a")
        store.pipe_file(f"{name}/{place}/.fetched.json", record.encode())
        folder = fetch(f"s3://{name}/data")
        assert mine.exists()
    assert sorted(p.name for p in folder.rglob("*") if p.is_file()) == [".fetched.json", "a.txt", "a.txt"]
    (folder / ".fetched.json").write_text(record)
    assert fetch(f"s3://{name}/data") == folder
    assert mine.exists()


def test_a_spec_names_data_in_a_bucket(bucket, cache, capsys):
    store, name = bucket
    store.pipe_file(f"{name}/root/annotations/nothing.json", b"{}")
    spec = DataSpec.parse(f"coco:s3://{name}/root:val")
    assert (spec.root, spec.split) == (f"s3://{name}/root", "val")
    assert spec.located("evaluate").folder == cache / "s3" / name / "root"
    assert spec.shown == "coco:root:val"
    assert main(["data", "check", f"coco:s3://{name}/nowhere"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"s3://{name}/nowhere" in line
    assert DataSpec.parse("coco:file:///data/coco:val").folder == Path("/data/coco")


def test_a_run_is_put_when_it_is_complete_and_its_checkpoints_stay(bucket, capsys):
    store, name = bucket
    url, console = f"s3://{name}/runs/a", Console()

    def made(folder):
        (folder / "checkpoints" / "step-1").mkdir(parents=True, exist_ok=True)
        (folder / "checkpoints" / "step-1" / "state").write_text("private")
        (folder / "privacy.json").write_text("{}")
        (folder / ".lock").touch()

    def stopped_run():
        with stored_run(Path(url), None, console) as (here, _):
            made(here)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_run()
    assert store.find(f"{name}/runs") == []
    assert f"dpose train --resume {url}" in " ".join(capsys.readouterr().out.split())
    with refused("run-not-put"), stored_run(Path(url), None, console):
        pass
    with stored_run(None, Path(url), console) as (_, stopped):
        assert (stopped / "checkpoints").is_dir()
    assert store.find(f"{name}/runs") == [f"{name}/runs/a/privacy.json"]
    shutil.rmtree(stopped)
    with refused("object-exists"), stored_run(Path(url), None, console):
        pass
    missing = Path("s3://no-such-bucket/runs/a")
    with refused("object-missing", where="no-such-bucket"), stored_run(missing, None, console):
        pass
    assert (
        main(["train", "--data", "synthetic:ward", "--out", url, "--engine", "slurm", "--set", "job.partition=l"]) == 2
    )
    assert "[out-in-store]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_training_into_a_bucket_verifies_there_and_tells_no_secret(bucket, capfd, tmp_path):
    store, name = bucket
    train = "--data synthetic:ward --limit 24 --epochs 1 --batch-size 12 --preset nano --strategy scratch"
    budget = "--epsilon 8 --delta 1e-3 --set plan.accountant=rdp"
    url = f"s3://{name}/runs/a"
    assert main(["train", *train.split(), *budget.split(), "--out", url]) == 0
    put = {f.partition("runs/a/")[2] for f in store.find(f"{name}/runs/a")}
    assert {"model.safetensors", "privacy.json", "ledger.jsonl", "config.json", "report.html"} <= put
    assert not any(f.startswith("checkpoints") for f in put)
    assert main(["verify", url]) == 0
    told = capfd.readouterr()
    written = everything_written(os.environ["XDG_STATE_HOME"], tmp_path)
    contents = [*written, *(store.cat_file(f) for f in store.find(name)), told.out.encode(), told.err.encode()]
    assert not any(SECRET.encode() in content for content in contents)


@pytest.mark.parametrize(
    "command",
    [
        ["reproduce", "ward-dp-1", "--core", "--out", "s3://ward/grid"],
        ["evaluate", "s3://ward/run", "--data", "synthetic:ward"],
        ["compare", "runs/a", "s3://ward/run"],
        ["data", "convert", "coco:/data", "--out", "gs://ward/yolo"],
    ],
)
def test_commands_that_take_folders_refuse_stores(command, capsys, tmp_path, monkeypatch):
    """They would make a folder called `s3:`."""
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "://ward/" in line
    assert "[place-not-local]" in line
    assert list(tmp_path.iterdir()) == []


def test_a_file_url_is_a_path_to_every_command(capsys, tmp_path):
    assert main(["report", (tmp_path / "run").as_uri()]) == 2
    assert f"dpose: {tmp_path / 'run'}: holds no run" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["2024.10.0", "0.9"])
def test_a_client_that_would_replace_what_is_there_is_refused(bucket, tmp_path, monkeypatch, version, capsys):
    store, name = bucket
    (tmp_path / "a.png").write_bytes(picture(90))
    monkeypatch.setattr("dpose.remote.metadata.version", lambda _: version)
    command = ["pixelize", "a.png", "--epsilon", "2", "--block", "8", "--out", f"s3://{name}/out"]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"its client {version} is too old to leave alone what is there; pip install --upgrade" in line
    assert "'s3fs>=2024.12'" in line
    assert store.find(name) == []
    assert charges() == []


def test_paths_stay_paths():
    assert url_of("photos/s3") is None
    assert url_of(Path("s3://ward/a/")) == "s3://ward/a"
    assert local_path("file:///data/a") == Path("/data/a")
    assert local_path(Path("file:///data/a")) == Path("/data/a")
