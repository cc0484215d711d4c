"""`dpose keys`: what is kept on this machine, and how to be rid of it."""

import pytest

from dpose.cli import run
from dpose.privacy.keys import StoredKey, keep_key, keys_kept
from dpose.privacy.noise import Key

RUN = "ab" * 16


def dpose(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["dpose", *arguments])
    with pytest.raises(SystemExit) as ended:
        run()
    told = capsys.readouterr()
    return ended.value.code or 0, told.out + told.err


def test_keys_are_listed_and_discarded(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep_key(RUN, StoredKey(Key.fresh(), "00" * 32, {}))
    code, told = dpose(monkeypatch, capsys, "keys")
    assert (code, RUN in told) == (0, True)
    code, told = dpose(monkeypatch, capsys, "keys", RUN, "--discard")
    assert (code, "overwritten and deleted" in told) == (0, True)
    assert keys_kept() == []
    code, told = dpose(monkeypatch, capsys, "keys")
    assert (code, "No key is kept" in told) == (0, True)


@pytest.mark.parametrize("arguments", [(RUN,), ("--discard",), ("runs/no-such-run", "--discard")])
def test_what_is_not_clear_deletes_nothing(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep_key(RUN, StoredKey(Key.fresh(), "00" * 32, {}))
    code, told = dpose(monkeypatch, capsys, "keys", *arguments)
    assert code == 2
    assert len(told.strip().splitlines()) == 1
    assert keys_kept() == [RUN]
