"""An account that is not the one that was left: an older copy, one or one of several of a key."""

import json
import shutil
import sqlite3

import pytest

from dpose.account import accept_account, charges, check_account, rollback_count
from dpose.account import store as store_module
from dpose.account.store import opened
from dpose.cli import main
from dpose.privacy.keys import state_folder
from refusals import refused
from stored import WARD, charged, run_charge


def forget(where):
    """What a new process would not know."""
    opened(where).ready = opened(where).known = None


def set_back(where, to):
    """An older copy of the account: its journal ends at row `to`, and everything in it holds."""
    forget(where)
    with opened(where).transaction() as account:
        account.run("DELETE FROM journal WHERE seq > :to", to=to)
        last = account.rows("SELECT mac FROM journal WHERE seq = :to", to=to)[0][0]
        account.set_meta("head", f"{to} {last}")


def other_account(where):
    return f"sqlite:///{where}/other.sqlite"


def test_an_older_copy_is_refused_and_taken_only_where_that_is_wanted(where):
    charged(*map(run_charge, range(3)), where=where)
    set_back(where, 2)
    for ask in (lambda: charges(where), lambda: charges(where, of=WARD), lambda: charged(run_charge(3), where=where)):
        with refused("account-set-back", where=("3", "ends at", "row 2")) as told:
            ask()
        assert "account accept" in told.value.line()
    assert "set back" in check_account(where)
    with refused("account-set-back", where="--yes"):
        accept_account(where)
    with refused("account-set-back"):
        charges(where)
    assert "counts as never spent" in accept_account(where, yes=True)
    assert [len(charges(where)), rollback_count(where), check_account(where)] == [2, 1, ""]
    assert "nothing is missing" in accept_account(where, yes=True)
    charged(run_charge(3), run_charge(4), where=where)
    set_back(where, 2)  # the same copy again, under the row that says that it was taken
    with refused("account-set-back", where="row 5"):
        charges(where)


def test_another_history_of_the_same_length_or_longer_is_not_the_one_that_was_seen(where):
    charged(*map(run_charge, range(3)), where=where)
    set_back(where, 2)
    mark = opened(where).seen
    store_module.note_seen(opened(where).folder, opened(where).name, store_module.HighWater())  # another machine
    charged(run_charge(7), run_charge(8), where=where)
    store_module.note_seen(opened(where).folder, opened(where).name, mark)
    with refused("account-set-back", where=("another", "there")):
        charges(where)


def test_a_copy_of_the_file_is_an_older_copy(tmp_path):
    charged(run_charge(0), where=tmp_path)
    with sqlite3.connect(tmp_path / "account.sqlite") as source, sqlite3.connect(tmp_path / "kept") as copy:
        source.backup(copy)
    charged(run_charge(1), where=tmp_path)
    store_module.close_connections(opened(tmp_path).url)
    for file in tmp_path.glob("account.sqlite*"):
        file.unlink()
    shutil.copy(tmp_path / "kept", tmp_path / "account.sqlite")
    forget(tmp_path)
    with refused("account-set-back", where=("2", "ends at", "row 1")):
        charges(tmp_path)


def test_a_crash_between_commit_and_mark_costs_nothing(where, monkeypatch):
    charged(run_charge(0), where=where)
    with monkeypatch.context() as planted:
        planted.setattr(store_module, "note_seen", lambda *args: None)
        charged(run_charge(1), where=where)
    assert opened(where).seen.seq == 1
    forget(where)
    assert len(charges(where)) == 2
    assert opened(where).seen.seq == 2  # whoever reads has seen it, too


def test_what_was_rolled_back_was_not_seen(where):
    charged(run_charge(0), where=where)
    with pytest.raises(TypeError), opened(where).transaction() as account:
        account.append("charge", "x", {"no": print})
    with refused("account-unusable"), opened(where).transaction() as account:
        account.append("charge", "x", {}) and account.rows("SELECT * FROM nothing_of_this_name")
    assert opened(where).seen.seq == 1


def test_a_mark_is_its_owners_alone_and_one_machines(where, monkeypatch, tmp_path):
    charged(run_charge(0), where=where)
    (mark,) = (opened(where).folder / "accounts-seen").iterdir()
    assert mark.stat().st_mode & 0o777 == 0o600
    assert mark.parent.stat().st_mode & 0o777 == 0o700
    assert set(json.loads(mark.read_text())) == {"account", "seq", "mac"}
    for torn in ("", "[", '{"account": "x", "se'):  # power was cut
        mark.write_text(torn)
        assert len(charges(where)) == 1
    mark.write_text('{"seq": }')
    with refused("high-water-unreadable"):
        charges(where)
    mark.unlink()
    assert len(charges(where)) == 1


def test_a_view_of_one_moment_is_not_held_to_what_was_seen_after_it(where):
    charged(run_charge(0), where=where)
    with opened(where).transaction(write=False) as account:
        account.meta("head")  # the moment
        charged(run_charge(1), where=where)
        assert opened(where).seen.seq == 2
        assert account.head.seq == 1


def test_a_mark_that_cannot_be_written_stops_nobody(where, monkeypatch):
    charged(run_charge(0), where=where)

    def full(*args, **how):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module.tempfile, "mkstemp", full)
    charged(run_charge(1), where=where)
    assert (len(charges(where)), opened(where).seen.seq) == (2, 1)


# several accounts of one key


def test_two_accounts_may_share_the_key_of_their_user(tmp_path):
    """In whichever order they are made; each is missed when it is gone, and neither is taken for the other."""
    one, other = None, other_account(tmp_path)
    for first, second in ((one, other), (f"sqlite:///{tmp_path}/third.sqlite", f"sqlite:///{tmp_path}/fourth.sqlite")):
        charged(run_charge(0), where=first)
        charged(run_charge(1), where=second)
        assert [[entry.id[-1] for entry in charges(where)] for where in (first, second)] == [["0"], ["1"]]
    assert len(list(state_folder().glob("*.key"))) == 1
    for where, file in ((one, state_folder() / "account.sqlite"), (other, tmp_path / "other.sqlite")):
        store_module.close_connections(opened(where).url)
        for gone in file.parent.glob(f"{file.name}*"):
            gone.unlink()
        forget(where)
        for ask in (lambda: charges(where), lambda: charged(run_charge(2), where=where)):  # noqa: B023
            with refused("account-set-back", where="here any more"):
                ask()
        assert "never spent" in accept_account(where, yes=True)
        assert charges(where) == []


def test_the_users_own_account_may_be_the_second(tmp_path):
    charged(run_charge(0), where=other_account(tmp_path))
    charged(run_charge(1))
    assert len(charges()) == 1


def test_another_key_is_no_key_of_an_account_that_shares_none(tmp_path, monkeypatch):
    charged(run_charge(0), where=other_account(tmp_path))
    forget(other_account(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another"))
    with refused("account-key-missing"):
        charges(other_account(tmp_path))
    charged(run_charge(1))  # which makes a key
    with refused("account-key-wrong"):
        charges(other_account(tmp_path))


def test_a_key_from_before_marks_stands_for_the_account_beside_it(tmp_path):
    charged(run_charge(0), where=tmp_path)
    shutil.rmtree(tmp_path / "accounts-seen")
    for file in tmp_path.glob("account.sqlite*"):
        file.unlink()
    forget(tmp_path)
    with refused("account-missing"):
        charges(tmp_path)


def test_the_command_accepts_and_the_account_says_so(tmp_path, capsys):
    charged(run_charge(0), run_charge(1))
    assert main(["account", "accept"]) == 0
    assert "nothing is missing" in capsys.readouterr().out
    set_back(None, 1)
    assert main(["account"]) == 2
    assert "[account-set-back]" in capsys.readouterr().err
    assert main(["account", "accept"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["account", "accept", "--yes"]) == 0
    assert main(["account"]) == 0
    assert "was set back once" in capsys.readouterr().out
