"""Which values of a parameter `make test` tries; the others are tried by `make test-all`.

    @pytest.mark.parametrize("steps", rest_slow([1, 2, 3], 1))     # 2 in `make test`, 1 and 3 in `make test-all`

One value for each way through the code is tried always; more values of the same way are slow and rarely tell more.
"""

from collections.abc import Iterable

import pytest


def rest_slow(values: Iterable, *always: int) -> list:
    """The values, of which all but those at the places `always` (by default the first) are marked slow."""
    values = list(values)
    always = tuple(range(len(values))[place] for place in always or (0,))
    return [value if place in always else _slow(value) for place, value in enumerate(values)]


def _slow(value):
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, id=value.id, marks=[*value.marks, pytest.mark.slow])
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
