"""Quick stand-ins for what takes long and is not what a test is about.

    from quick import quick                                    # a fixture for all tests of the module

Losses are accounted on the coarse grid (an epsilon that is larger by little, and holds), charts hold their texts and no
drawing, and a person who was rendered once is not rendered again. Accounting, charts and renderer are tested as they
are, and so is what is printed of an epsilon.
"""

import functools
import html
import io
import os

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from dpose.audits import noise_family
from dpose.media.images import encode_image
from dpose.privacy import accounting
from dpose_scene import data
from dpose_scene.render import render_person

COARSE_CACHE, FINE, DRAW = "-coarse", accounting.FINE, Figure.savefig
DOT = encode_image(np.zeros((1, 1, 3), np.uint8), ".png")
rendered_once = functools.cache(render_person)


def texts_alone(figure: Figure, file: io.IOBase, *, format: str, **_: object) -> None:
    """In the place of `Figure.savefig`."""
    texts = (f"<text>{html.escape(text.get_text())}</text>" for text in figure.findobj(Text))
    drawn = DOT if format == "png" else f"<svg><g >{''.join(texts)}</g></svg>".encode()
    file.write(drawn.decode() if isinstance(file, io.TextIOBase) else drawn)


def account_on(patch: pytest.MonkeyPatch, grid: float) -> None:
    """Account on this grid; what was remembered of another is not an answer."""
    for module in (accounting, noise_family):
        patch.setattr(module, "FINE", grid)
    for module, name in ((accounting, "_curve"), (accounting, "_least_cost")):
        patch.setattr(module, name, functools.lru_cache(getattr(module, name).__wrapped__))


def use(patch: pytest.MonkeyPatch) -> None:
    """Put them in the place of what they stand for."""
    account_on(patch, accounting.COARSE)
    cache = os.environ["XDG_CACHE_HOME"]
    # noise that was calibrated on the coarse grid is for these tests alone
    patch.setenv("XDG_CACHE_HOME", cache.removesuffix(COARSE_CACHE) + COARSE_CACHE)
    patch.setattr(Figure, "savefig", texts_alone)
    patch.setattr(data, "render_person", rendered_once)


@pytest.fixture(scope="module", autouse=True)
def quick():
    """For as long as the module's tests take."""
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        yield


@pytest.fixture
def drawn(monkeypatch):
    """For a test that looks at a drawing."""
    monkeypatch.setattr(Figure, "savefig", DRAW)


@pytest.fixture
def fine(monkeypatch):
    """For a test that looks at an epsilon."""
    account_on(monkeypatch, FINE)
