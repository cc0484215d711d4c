"""Epsilon and noise of training plans and of releases.

Numbers of plans are compared within one part in a hundred million: accounts are convolved by fast Fourier transform,
whose last bits are the processor's, and small deltas enlarge them (1.3e-9 apart on two AMD processors at a delta of
1e-7); the search for noise may end elsewhere by as much. Pure releases are exact strings, and compared as such. Others
hold numbers that follow from cosines or from a search.
"""

import pytest

from clips import write as write_clip
from goldens import doors
from goldens.held import hold, hold_cases
from goldens.meaning import meaning
from goldens.pictures import CLIP, COLOUR, DEEP, GREY, MASK

RDP = {"accountant": "rdp"}
BASE = {"method": "dp-sgd", "delta": 1e-5, "steps": 200, "expected_batch_size": 100}
PAPER = {"delta": 4e-5, "steps": None, "epochs": 25, "expected_batch_size": 1024}
PLANS = {
    "dp-sgd, noise given": (1000, {"noise_multiplier": 1.0}),
    "dp-sgd, noise given, rdp": (1000, {"noise_multiplier": 1.0, **RDP}),
    "dp-sgd, budget": (1000, {"epsilon": 2.0}),
    "dp-sgd, budget, rdp": (1000, {"epsilon": 2.0, **RDP}),
    "the paper's, budget": (22146, {"epsilon": 0.8, **PAPER}),
    "the paper's, budget, rdp": (22146, {"epsilon": 0.8, **PAPER, **RDP}),
    "the paper's, fpdp-sgd": (22146, {"method": "fpdp-sgd", "noise_multiplier": 4.6, **PAPER}),
    "add-or-remove": (900, {"noise_multiplier": 1.0, "relation": "add-or-remove", "nominal_units": 1000, **RDP}),
    "add-or-remove, pld": (
        22146,
        {"noise_multiplier": 3.0, "relation": "add-or-remove", "nominal_units": 22000, **PAPER},
    ),
    "replace": (1000, {"noise_multiplier": 3.0, "relation": "replace"}),
    "replace, pld": (22146, {"noise_multiplier": 3.0, "relation": "replace", **PAPER}),
    "not normalised": (1000, {"noise_multiplier": 1.0, "clip_norm": 0.3, "normalise": False, **RDP}),
    "floating-point noise": (1000, {"noise_multiplier": 1.0, "noise": "float", **RDP}),
    "pdp-sgd, replace": (1000, {"method": "pdp-sgd", "noise_multiplier": 2.0, "relation": "replace"}),
    "subspace-sgd": (1000, {"method": "subspace-sgd", "noise_multiplier": 2.0, **RDP}),
    "scaled-sgd": (1000, {"method": "scaled-sgd", "noise_multiplier": 2.0, **RDP}),
    "fdp-sgd": (1000, {"method": "fdp-sgd", "noise_multiplier": 2.0, **RDP}),
    "non-private": (1000, {"method": "non-private", "delta": None}),
    "public-only": (1000, {"method": "public-only", "delta": None}),
    "every unit in every step": (50, {"noise_multiplier": 5.0, "steps": 3, **RDP}),
    "one step": (10_000, {"noise_multiplier": 0.5, "steps": 1, **RDP}),
    "a million units": (10**6, {"noise_multiplier": 0.8, "delta": 1e-7, "expected_batch_size": 4096}),
    "epochs that do not divide": (1017, {"noise_multiplier": 1.0, "epochs": 2.5, "steps": None, **RDP}),
}

PICTURES = {
    "grey, block 16": (GREY, {"epsilon": "2", "neighbours": "pixels:16", "block": 16}),
    "grey, a third": (GREY, {"epsilon": "1/3", "neighbours": "pixels:1", "block": 8}),
    "16 bits": (DEEP, {"epsilon": "2", "neighbours": "pixels:4", "block": 16}),
    "ycc": (COLOUR, {"epsilon": "2", "neighbours": "pixels:16", "block": 8}),
    "ycc, chroma 4": (COLOUR, {"epsilon": "2", "neighbours": "pixels:16", "block": 4, "chroma": 4}),
    "rgb": (COLOUR, {"epsilon": "2", "neighbours": "pixels:16", "block": 16, "colour": "rgb"}),
    "grey of colours": (COLOUR, {"epsilon": "2", "neighbours": "pixels:16", "colour": "grey", "block": 16}),
    "block chosen": (COLOUR, {"epsilon": "8", "neighbours": "pixels:4"}),
    "gaussian": (GREY, {"epsilon": "2", "neighbours": "pixels:16", "block": 16, "delta": "1e-5"}),
    "gaussian, ycc": (COLOUR, {"epsilon": "2", "neighbours": "pixels:16", "block": 8, "delta": "1e-5"}),
    "regions, private": (
        GREY,
        {"epsilon": "2", "neighbours": "pixels:4", "block": 16, "subdivide": 4, "regions": "private"},
    ),
    "regions, public, gaussian": (
        GREY,
        {"epsilon": "2", "neighbours": 40, "block": 16, "delta": "1e-5", "subdivide": 4, "regions": MASK},
    ),
    "a face": (COLOUR, {"epsilon": "10", "protect": "face", "face_size": "20x20", "block": 16}),
    "clip": (CLIP, {"epsilon": "2", "neighbours": "pixels:16", "block": 16}),
    "clip, each frame": (CLIP, {"epsilon": "2", "neighbours": "pixels:16/frame", "block": 16}),
    "clip, box": (CLIP, {"epsilon": "4", "neighbours": "box:10x10/frames:3", "block": 16}),
    "clip, box, gaussian": (CLIP, {"epsilon": "4", "neighbours": "box:10x10/frames:3", "block": 16, "delta": "1e-5"}),
    "paper 1": (GREY, {"epsilon": "2", "neighbours": "pixels:16", "block": 16, "paper": 1}),
}
VIDEO = {"epsilon": "8", "delta": "1e-5"}
VIDEOS = {
    "block": {"neighbours": "pixels:16"},
    "block, each frame": {"neighbours": "pixels:16/frame", "colour": "rgb"},
    "one frame": {"neighbours": "frame"},
    "low-pass": {"neighbours": "pixels:16", "operator": "low-pass", "k": 48},
    "random": {"neighbours": "pixels:4", "operator": "random", "k": 48, "pool": 3, "seed": 3},
    "clipped": {"neighbours": "clip", "clip_norm": "500"},
    "clipped by segment": {"neighbours": "frame", "clip_norm": "500", "clip_segment": True},
    "box": {"neighbours": "box:8x8/frames:3"},
    "paper": {"paper": True, "k": 48},
}


@pytest.mark.parametrize("name", PLANS)
def test_epsilon_and_noise_of_a_training_plan(name):
    units, settings = PLANS[name]
    hold("plans", name, doors.planned(units, **{**BASE, **settings}), close=1e-8)


def test_no_plan_is_lost():
    hold_cases("plans", PLANS)


def close_of(statement):
    return 0.0 if statement.to_dict()["accountant"] == "pure" else 1e-9


@pytest.mark.parametrize("name", PICTURES)
def test_epsilon_and_noise_of_a_picture(name):
    picture, options = PICTURES[name]
    made = doors.pixelize(picture, restore="none", **options)
    hold("plans-releases", f"pixelize: {name}", meaning(made.statement.to_dict()), close=close_of(made.statement))


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("videos") / "a.mp4", frames=6)


@pytest.mark.parametrize("name", VIDEOS)
def test_epsilon_and_noise_of_a_video(name, video, tmp_path):
    made = doors.release_video(video, tmp_path / "b.mp4", **VIDEO, restore="none", **VIDEOS[name])
    hold("plans-releases", f"release-video: {name}", meaning(made.to_dict()), close=close_of(made))


def test_no_release_is_lost():
    hold_cases("plans-releases", [f"pixelize: {n}" for n in PICTURES] + [f"release-video: {n}" for n in VIDEOS])
