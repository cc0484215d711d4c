"""Tables on a terminal: whole where they fit, their last columns where they do not, never a cut word."""

import io

import pytest
from rich.console import Console

from dpose.report.results import Table
from dpose_lab.terminal import fitting, print_table

JOINTS = ("Head", "Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle", "Mean", "Mean@0.1")
FIGURES = tuple(f"{k}.00 / 76.67 / +76.67" for k in range(9))
WIDE = Table("paper / ours", ("training", *JOINTS), (("public-only, tested on public views", *FIGURES),))


def printed(table, width):
    file = io.StringIO()
    print_table(table, Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize(("width", "kept"), [(80, JOINTS[-2:]), (300, JOINTS)])
def test_the_last_columns_are_kept(width, kept):
    table, left = fitting(WIDE, width)
    assert table.head == ("training", *kept)
    assert left == JOINTS[: len(JOINTS) - len(kept)]
    assert table.rows[0][1:] == FIGURES[len(JOINTS) - len(kept) :]
    text = printed(WIDE, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for figure in table.rows[0][1:]:
        assert figure in text
    assert ("left out" in text) == bool(left)


def test_a_table_with_prose_is_folded_and_whole():
    prose = "whether the average of the weights hides noise of the last steps"
    name = "dp-sgd-finetune-C0.1-eps0.8-run1"
    table = Table("t", ("cell", "asks", "changed", "why"), ((name, prose, prose, "0.7"),))
    assert fitting(table, 60) == (table, ())
    text = printed(table, 60)
    assert "…" not in text
    assert "".join(line[2:].split(" ")[0] for line in text.splitlines() if line.startswith("│")) == name
