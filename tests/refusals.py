"""What a mistake of the user ends in: one line and exit code 2."""

from dpose.cli import main


def refused(capsys, arguments, *words):
    capsys.readouterr()
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    for word in words:
        assert word in line
