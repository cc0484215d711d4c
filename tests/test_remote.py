"""Releases out of and into a bucket: nothing half-written, nothing overwritten, no secret told."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from dpose.cli import main
from dpose.errors import DposeError
from dpose.privacy.keys import state_folder
from dpose.remote import copy_here, local_path, put_all, put_new, url_of

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


def test_a_folder_in_a_bucket_is_released_into_a_bucket_and_verifies(bucket, capsys, tmp_path):
    store, name = bucket
    for number in range(2):
        store.pipe_file(f"{name}/in/{number}.png", picture(60 + 90 * number))
    command = ["pixelize", f"s3://{name}/in", "--epsilon", "2", "--out", f"s3://{name}/out", "--block", "8"]
    assert main(command) == 0
    assert {Path(f).suffix for f in store.find(f"{name}/out")} == {".png", ".npz"}
    before = {f: store.cat_file(f) for f in store.find(f"{name}/out")}
    assert main(command) == 0, "the same command again releases nothing twice"
    assert {f: store.cat_file(f) for f in store.find(f"{name}/out")} == before
    capsys.readouterr()
    assert main(["verify", f"s3://{name}/out"]) == 0
    assert "epsilon" in capsys.readouterr().out
    state = Path(os.environ["XDG_STATE_HOME"])
    assert list(state.rglob("copies/*")) == [], "no copy of an input stays"
    everything = [
        *before.values(),
        *(p.read_bytes() for f in (state, tmp_path) for p in f.rglob("*") if p.is_file()),
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
    command = [
        "pixelize",
        f"s3://{name}/a.png",
        "--epsilon",
        "2",
        "--out",
        f"s3://{name}/out",
        "--block",
        "8",
    ]
    with monkeypatch.context() as patch:
        patch.setattr("dpose.cli.remote.put_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
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
    with pytest.raises(DposeError, match="another object"):
        put_new(mine, f"s3://{name}/a.png")
    assert store.cat_file(f"{name}/a.png") == b"mine"


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


def test_paths_stay_paths():
    assert url_of("photos/s3") is None
    assert url_of(Path("s3://ward/a/")) == "s3://ward/a"
    assert local_path("file:///data/a") == Path("/data/a")
    assert local_path(Path("file:///data/a")) == Path("/data/a")
