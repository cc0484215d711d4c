"""Where a folder may be made, and who may look into it."""

import os
import stat

import pytest

from dpose.errors import DposeError
from dpose.files import check_free, folder_beside, private_folder, write_private


def test_a_folder_is_made_only_where_nothing_is(tmp_path):
    empty, full, file = tmp_path / "empty", tmp_path / "full", tmp_path / "full" / "file"
    empty.mkdir()
    full.mkdir()
    file.write_text("kept")
    for may_be_empty in (False, True):
        check_free(tmp_path / "new", may_be_empty=may_be_empty)
        for taken in (full, file):
            with pytest.raises(DposeError, match=f"{taken}: already exists; choose another --out"):
                check_free(taken, may_be_empty=may_be_empty)
    check_free(empty, may_be_empty=True)
    with pytest.raises(DposeError, match="already exists"):
        check_free(empty)


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
