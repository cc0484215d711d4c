"""Where a folder may be made, and who may look into it."""

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import dpose
from dpose.files import (
    check_free,
    check_place,
    closed_folder,
    folder_beside,
    locked_folder,
    parsed_json,
    private_folder,
    take_lock,
    umask,
    write_atomic,
    write_private,
)
from refusals import refused


def test_a_folder_is_made_only_where_nothing_is(tmp_path):
    empty, full, file = tmp_path / "empty", tmp_path / "full", tmp_path / "full" / "file"
    empty.mkdir()
    full.mkdir()
    file.write_text("kept")
    for may_be_empty in (False, True):
        check_free(tmp_path / "new", may_be_empty=may_be_empty)
        for taken in (full, file):
            with refused("output-exists", where=taken):
                check_free(taken, may_be_empty=may_be_empty)
    with refused("output-below-file", where=file / "below"):
        check_free(file / "below")
    check_free(empty, may_be_empty=True)
    with refused("output-exists"):
        check_free(empty)


def test_a_link_to_nothing_is_no_place(tmp_path):
    (link := tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for as_file in (False, True):
        with refused("output-exists", where=link):
            check_place(link, as_file=as_file)
    with refused("output-below-file", where=link):
        check_place(link / "below", as_file=True)


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_is_private_is_made_so(tmp_path):
    file = tmp_path / "state" / "account" / "a.json"
    write_private(file, "{}")
    assert (file.read_text(), mode(file), mode(file.parent)) == ("{}", 0o600, 0o700)


def test_what_lay_open_is_closed(tmp_path):
    folder, outside = tmp_path / "fingerprints", tmp_path / "outside"
    (folder / "ab").mkdir(parents=True)
    for path in (folder / "old", folder / "ab" / "older", outside):
        path.write_text("x")
        path.chmod(0o644)
    (folder / "link").symlink_to(outside)
    for path in (folder, folder / "ab"):
        path.chmod(0o755)
    assert private_folder(folder)
    assert [mode(p) for p in (folder, folder / "ab", folder / "old", folder / "ab" / "older")] == [
        0o700,
        0o700,
        0o600,
        0o600,
    ]
    assert mode(outside) == 0o644


def test_a_link_and_somebody_elses_folder_are_not_ours(tmp_path, monkeypatch):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o755)
    link.symlink_to(real)
    assert not private_folder(link)
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    assert not private_folder(real)
    (tmp_path / "file").write_text("")
    assert not private_folder(tmp_path / "file")


def test_a_new_folder_is_closed_until_it_is_whole_and_then_as_asked(tmp_path):
    for asked in (0o700, 0o755):
        out = tmp_path / f"{asked:o}"
        with folder_beside(out, asked) as folder:
            assert mode(folder) == 0o700
        assert mode(out) == asked


def test_what_is_not_private_has_the_rights_that_the_user_gives(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", "")
        with folder_beside(tmp_path / "b"):
            pass
    finally:
        os.umask(before)
    assert (mode(tmp_path / "a"), mode(tmp_path / "b")) == (0o640, 0o750)
    assert umask() == before


def test_what_must_be_closed_is_refused_where_it_cannot_be(tmp_path):
    closed_folder(tmp_path / "ours")
    assert mode(tmp_path / "ours") == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    with refused("folder-not-private", where="link"):
        closed_folder(tmp_path / "link")


def test_json_says_everything_once():
    assert parsed_json(b'{"a": [{"b": 1}, {"b": 2}]}') == {"a": [{"b": 1}, {"b": 2}]}
    for text in ('{"a": 1, "b": 2, "a": 1}', '[{"c": {"d": 1, "d": 2}}]', "[" * 100_000):
        with pytest.raises(ValueError, match=r"twice|deeply"):
            parsed_json(text)


class TestLocks:
    def test_one_at_a_time(self, tmp_path):
        with locked_folder(tmp_path):
            with refused("folder-busy"):
                locked_folder(tmp_path).__enter__()
            assert take_lock(tmp_path / ".lock") is None
        with locked_folder(tmp_path):
            pass

    def test_an_error_and_the_end_of_a_process_let_go(self, tmp_path):
        with pytest.raises(KeyError), locked_folder(tmp_path):
            raise KeyError
        held = "import os, sys; from pathlib import Path; from dpose.files import take_lock\n"
        held += "lock = take_lock(Path(sys.argv[1])); print(bool(lock), flush=True); sys.stdin.read(); os._exit(1)"
        command = [sys.executable, "-c", held, str(tmp_path / ".lock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout.readline() == "True\n"
            assert take_lock(tmp_path / ".lock") is None
            other.kill()
        with locked_folder(tmp_path):
            pass

    def test_a_folder_that_is_not_there(self, tmp_path):
        with refused("file-access-failed", where="nowhere"), locked_folder(tmp_path / "nowhere"):
            pass

    def test_nothing_asks_for_what_unix_alone_has(self):
        """macOS and Windows import the package too: locks are `filelock`'s, and no module needs `fcntl`."""
        for file in Path(dpose.__file__).parent.rglob("*.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
            can_do_without = {
                id(inner)
                for node in tries
                if any(isinstance(h.type, ast.Name) and h.type.id == "ImportError" for h in node.handlers)
                for inner in node.body
            }
            for node in ast.walk(tree):
                if id(node) in can_do_without:
                    continue
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) else []
                assert not {"fcntl", "resource", "pwd", "grp", "termios"} & set(names), file
        without = "import sys; sys.modules['fcntl'] = None; import dpose.files, dpose.privacy.ledger"
        subprocess.run([sys.executable, "-c", without], check=True)
