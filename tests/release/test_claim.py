"""Only a fresh key guarantees anything, and it serves one artefact."""

import ast
import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import dpose
from dpose.privacy.keys import StoredKey, keep_key, kept_key
from dpose.privacy.noise import AesNoise, Key, Origin
from dpose.privacy.statement import Kind
from dpose.release.mechanism import GIVEN
from plain_configs import plain_projection
from public_doors import pixelize, release_array

GREY = np.full((16, 16), 90, np.uint8)
CLIP = np.full((4, 16, 16, 3), 90, np.uint8)
SETTING = plain_projection(8, "1e-5", 4)


def of_a_picture(source):
    return pixelize(GREY, 1, 4, 8, source=source).statement


def of_a_clip(source):
    return release_array(CLIP, SETTING, source=source).statement


RELEASES = pytest.mark.parametrize("release", [of_a_picture, of_a_clip])


@RELEASES
@pytest.mark.parametrize("key", [bytes(32), bytes(range(32)), os.urandom(32)], ids=["zeros", "counted", "random"])
def test_a_key_that_a_caller_made_guarantees_nothing(release, key):
    statement = release(AesNoise(Key(key)))
    assert statement.kind is Kind.SEEDED
    assert statement.paragraph().startswith("NOTHING IS GUARANTEED")
    assert GIVEN in statement.caveats


@RELEASES
def test_a_fresh_key_does_and_only_once(release):
    key = Key.fresh()
    assert release(AesNoise(key)).kind is Kind.PRIVATE
    for again in (key, copy.copy(key), copy.deepcopy(key)):
        with pytest.raises(RuntimeError, match="twice"):
            release(AesNoise(again))


@RELEASES
def test_a_fresh_key_on_both_sides_of_a_fork_is_refused(release, monkeypatch):
    key = Key.fresh()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="fork"):
        release(AesNoise(key))
    assert release(AesNoise(Key.fresh())).kind is Kind.PRIVATE


def test_one_key_for_a_picture_and_a_clip_is_refused():
    source = AesNoise(Key.fresh())
    of_a_picture(source)
    with pytest.raises(RuntimeError, match="twice"):
        of_a_clip(source)


def test_a_refused_setting_spends_nothing():
    source = AesNoise(Key.fresh())
    with pytest.raises(dpose.DposeError):
        pixelize(GREY, 1, 4, 99, source=source)
    assert of_a_picture(source).kind is Kind.PRIVATE


def test_a_key_that_left_the_process_is_a_given_one():
    key = Key.fresh()
    other = pickle.loads(pickle.dumps(key))  # noqa: S301
    assert other.secret == key.secret
    assert other.origin is Origin.GIVEN
    assert of_a_picture(AesNoise(other)).kind is Kind.SEEDED


def test_a_source_does_not_cross_a_fork(monkeypatch):
    source = AesNoise(Key.fresh())
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="fork"):
        of_a_picture(source)


def test_a_source_of_ones_own_guarantees_nothing():
    class Own:
        key_id, seeded = "0" * 16, False

        def __init__(self):
            self.stream = AesNoise(Key(bytes(32))).stream

    statement = of_a_picture(Own())
    assert statement.kind is Kind.SEEDED


def test_the_bytes_cannot_be_called_fresh():
    with pytest.raises(TypeError):
        Key(bytes(32), Origin.FRESH)
    with pytest.raises(TypeError):
        Key(bytes(32), seeded=False)


def test_a_kept_key_stays_private(tmp_path):
    key = Key.fresh()
    keep_key("run", StoredKey(key, "", {}), tmp_path)
    kept = kept_key("run", tmp_path)
    assert kept.key == key
    assert kept.key.origin is Origin.KEPT
    assert not AesNoise(kept.key).seeded
    # a run goes on under it, a release does not: its first one may have been made by another process
    assert of_a_picture(AesNoise(kept.key)).kind is Kind.SEEDED


def test_keys_that_count_as_fresh_are_made_in_few_places():
    """`kept`: the state folder's, a corpus's releases'; `drawn`: of a frame, a trial, for the processes of one run."""
    source = Path(dpose.__file__).parent
    found = {
        (file.relative_to(source).as_posix(), node.attr)
        for file in source.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in ("kept", "drawn")
        and isinstance(node.value, ast.Name)
        and node.value.id == "Key"
    }
    assert found == {
        ("privacy/keys.py", "kept"),
        ("release/items.py", "kept"),
        ("release/pixelization.py", "drawn"),
        ("runs/tune.py", "drawn"),
        ("training/resume.py", "drawn"),
    }
