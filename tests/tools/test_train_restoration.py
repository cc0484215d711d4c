"""The weights of the learned restoration, and the command that made them."""

import json
import lzma

import cv2
import numpy as np
import pytest
import torch
from rich.console import Console

import train_restoration as tool
from dpose.release.restoration import MAPS, WEIGHTS

RNG = np.random.default_rng(0)
CLIPS = [RNG.integers(0, 256, (frames, 50, 70, 3), dtype=np.uint8) for frames in (1, 3)]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(tool, "CELLS", 128)
    monkeypatch.setattr(tool, "SIDES", (8,))


def test_what_it_is_measured_on_is_not_learnt_from():
    assert not {"astronaut", "coffee", "chelsea", "cat", "rocket"} & set(tool.PHOTOGRAPHS)


def test_a_batch(small):
    for step in range(20):
        inputs, guess, target, weight = tool.batch(CLIPS, np.random.default_rng(step))
        assert inputs.shape == (2, MAPS, 8, 8)
        assert guess.shape == target.shape == (2, 3, 16, 16)
        assert bool(weight.gt(0).any())
        assert all(bool(part.isfinite().all()) for part in (inputs, guess, target, weight))


def test_opencv_gives_what_torch_gives(tmp_path):
    torch.manual_seed(0)
    net = tool.RestorationNet((8, 8, 16, 16))
    for block in (*net.encoders, *net.decoders, *net.middle):
        torch.nn.init.normal_(block.two.weight, std=0.1)
    tool.write_weights(net, tmp_path / "a.xz")
    other = cv2.dnn.readNetFromONNX(np.frombuffer(lzma.decompress((tmp_path / "a.xz").read_bytes()), np.uint8))
    for shape in ((1, MAPS, 40, 64), (1, MAPS, 8, 24)):
        maps = torch.randn(shape)
        other.setInput(maps.numpy())
        assert np.allclose(other.forward(), net(maps).detach().numpy(), atol=1e-4)


@pytest.mark.slow
def test_it_goes_on_where_it_was_stopped(small, tmp_path, monkeypatch):
    pictures = tool.Pictures(CLIPS, CLIPS[:1])
    monkeypatch.setattr(tool, "open_pictures", lambda *_: pictures)
    console = Console(quiet=True)
    tool.train(tmp_path, tmp_path, 1, console)
    tool.train(tmp_path, tmp_path, 2, console)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert tool.COMMAND in tool.card(tmp_path, "0" * 64, 2)


def test_the_card_is_of_the_shipped_weights():
    card = (WEIGHTS.parent / "README.md").read_text()
    assert tool.COMMAND in card
    assert all(name in card for name in tool.PHOTOGRAPHS)
