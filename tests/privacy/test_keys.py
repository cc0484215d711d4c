"""Keys of runs that may go on: kept for their owner alone, and gone when the run is."""

import json

import pytest

from dpose.privacy.keys import StoredKey, forget_key, keep_key, kept_key
from dpose.privacy.noise import Key

RUN = "ab" * 16


def kept():
    return StoredKey(Key.fresh(), "00" * 32, {"torch": "2.15"})


def test_a_key_is_read_back_and_forgotten(tmp_path):
    mine = kept()
    keep_key(RUN, mine, tmp_path)
    assert kept_key(RUN, tmp_path) == mine
    (file,) = (tmp_path / "keys").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    forget_key(RUN, tmp_path)
    assert kept_key(RUN, tmp_path) is None
    forget_key(RUN, tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"schema": 2}', '{"schema": 1, "key": "zz"}'])
def test_a_broken_key_is_no_key(tmp_path, content):
    keep_key(RUN, kept(), tmp_path)
    (tmp_path / "keys" / f"{RUN}.json").write_text(content)
    assert kept_key(RUN, tmp_path) is None


def test_a_short_key_is_no_key(tmp_path):
    keep_key(RUN, kept(), tmp_path)
    file = tmp_path / "keys" / f"{RUN}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "key": "00"}))
    assert kept_key(RUN, tmp_path) is None


def test_a_key_does_not_show_itself():
    mine = kept()
    assert mine.key.secret.hex() not in repr(mine)
    assert repr(mine.key.secret) not in repr(mine)
