"""A preset `nano` of 30,000 parameters with weights of its own, for tests of everything around the network.

    from small_nano import small_nano                          # a fixture for all tests of the module

Model, layers, gradients, export and what is printed of scores are tested on the preset as it is. The stand-ins of
`quick` come with it.
"""

import functools
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import quick
from dpose import files
from dpose.pose import backbones, folder, tinyvit
from dpose.pose.folder import save_model
from dpose.pose.model import PoseConfig, PoseModel

SMALL = {"embed_dims": [16, 16, 16, 24], "depths": [1, 1, 1, 1], "num_heads": [1] * 4, "mbconv_expand_ratio": 2.0}
PREAMBLE = "import pytest, small_nano; small_nano.use(pytest.MonkeyPatch())\n"
"""For programs in processes of their own."""


def use(patch: pytest.MonkeyPatch) -> None:
    """Put it in the place of `nano`, and its weights in the place of those that come with dpose."""
    quick.use(patch)
    patch.setattr(tinyvit, "NANO", SMALL)
    patch.setitem(backbones.BACKBONES, "nano", replace(backbones.BACKBONES["nano"], input_size=(64, 48)))
    patch.setattr(files, "SHIPPED", Path(_weights().name))
    patch.setattr(folder, "PREDICTOR", "nano")


@functools.cache
def _weights() -> tempfile.TemporaryDirectory:
    place = tempfile.TemporaryDirectory()
    model = Path(place.name) / "nano"
    model.mkdir()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_model(PoseModel(PoseConfig("nano", norm="folded")), model)
    shutil.copy(files.SHIPPED / "nano" / "privacy.json", model)
    return place


@pytest.fixture(scope="module", autouse=True)
def small_nano():
    """For as long as the module's tests take."""
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        yield
