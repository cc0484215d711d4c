"""The public names exist."""

import pytest

import dpose


@pytest.mark.parametrize("name", dpose.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(dpose, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        dpose.trian  # noqa: B018
