"""What a mistake of the user ends in: an error with a code; on the command line one line, and exit code 2."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dpose.cli import main
from dpose.errors import DposeError


@contextmanager
def refused(
    code: str | tuple[str, ...], where: object = None, error: type[DposeError] = DposeError
) -> Iterator[pytest.ExceptionInfo[DposeError]]:
    """As `pytest.raises`, of an error of dpose's by its code, so that sentences may be mended.

    Args:
        code: It; several in a tuple, where it depends on chance or on the machine which comes first.
        where: What its line must name: a file, an option, a number; several in a tuple.
        error: Its class.

    Yields:
        What holds the error as `value` afterwards.
    """
    with pytest.raises(error) as caught:
        yield caught
    told = caught.value
    assert told.code in (code if isinstance(code, tuple) else (code,)), f"{told.code}, not {code}: {told.line()}"
    for named in where if isinstance(where, tuple) else (() if where is None else (where,)):
        assert str(named) in told.line(), f"{named} is not named: {told.line()}"


def command_refused(capsys, arguments, *words, code=2):
    """The command line ends with this code and one line that has these words."""
    capsys.readouterr()
    assert main(arguments) == code
    (line,) = capsys.readouterr().err.strip().splitlines()
    for word in words:
        assert word in line
