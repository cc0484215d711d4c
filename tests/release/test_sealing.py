"""What the digest of released values is of: sizes, mask or grid, and the values, each ended where the next begins."""

import hashlib
import json
from types import SimpleNamespace

import numpy as np
import pytest

from dpose.release.embed import sums_digest
from dpose.release.linear import ReleasedValues
from dpose.release.mechanism import Released
from dpose.release.partition import BlockSums, RegionSums
from dpose.release.released import ReleasedSums
from public_doors import pixelize

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (24, 32, 3)).astype(np.uint8)
MASK = np.arange(12).reshape(3, 4) % 2 == 0
SIZES = {"height": 24, "width": 32, "channels": 1, "peak": 255, "block": 8, "subdivide": 1}


def joined(*parts):
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def as_json(sizes):
    return json.dumps(dict(sorted(sizes.items()))).encode()


def sums(**more) -> ReleasedSums:
    made = pixelize(COLOUR, 3, 4, 8, **more).frames[0]
    assert isinstance(made, ReleasedSums)
    return made


def of_sums(made, *mask):
    return joined(as_json(made.layers.sizes), *(made.sums[n].astype("<i8").tobytes() for n in made.sums), *mask)


def test_of_sums():
    made = sums()
    assert len(made.sums) > 1
    assert sums_digest(made) == of_sums(made)
    assert sums_digest(ReleasedSums(made.layers, dict(reversed(made.sums.items())), ())) == of_sums(made)


def test_of_sums_with_a_mask():
    made = sums(subdivide=2, regions="private")
    assert sums_digest(made) == of_sums(made, np.packbits(made.cells.mask).tobytes())


@pytest.mark.parametrize("deep", [False, True])
def test_of_gray_levels(deep):
    """A published algorithm's, which are whole from the start."""
    levels = RNG.integers(0, 256, (12, 1)).astype(np.uint16 if deep else np.uint8)
    peak = 65535 if deep else 255
    blocks = Released(BlockSums(24, 32, 8, peak=peak), levels)
    written = levels.astype("<u2").tobytes() if deep else levels.tobytes()
    assert sums_digest(blocks) == joined(as_json({**SIZES, "peak": peak}), written)


def test_of_gray_levels_with_a_mask():
    """Equal values under another mask are another picture."""
    levels = RNG.integers(0, 256, (6 + 4 * 6, 1)).astype(np.uint8)
    found = set()
    for mask in (MASK, ~MASK):
        parts = Released(RegionSums(24, 32, 8, 2, mask), levels)
        expected = joined(as_json({**SIZES, "subdivide": 2}), levels.tobytes(), np.packbits(mask).tobytes())
        assert sums_digest(parts) == expected
        found.add(expected)
    assert len(found) == 2


def test_of_values_on_a_grid():
    """Every number of the grid counts, and the values are another part than the grid's last word."""
    values = RNG.normal(size=20)
    grid = {"shape": (24, 32), "rows": 4, "columns": 5, "groups": 2}
    expected = joined(b"((24, 32), 4, 5, 2)", values.astype("<f8").tobytes())
    assert sums_digest(ReleasedValues(SimpleNamespace(**grid), values)) == expected
    for name, value in (("shape", (32, 24)), ("rows", 5), ("columns", 4), ("groups", 1)):
        assert sums_digest(ReleasedValues(SimpleNamespace(**grid | {name: value}), values)) != expected
