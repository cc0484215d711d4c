"""Where a folder may be made."""

import pytest

from dpose.errors import DposeError
from dpose.files import check_free


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
