"""The public names exist, and the package itself is light."""

import subprocess
import sys

import pytest

import dpose


@pytest.mark.parametrize("name", dpose.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(dpose, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        dpose.trian  # noqa: B018


def test_help_needs_no_torch():
    code = (
        "import sys, dpose.cli; code = dpose.cli.main(['train', '--help']); "
        "sys.exit(code or ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--epsilon" in done.stdout
