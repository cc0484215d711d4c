"""Released integers, to the last bit: sums and noise are whole numbers, the same on every processor.

Archives are compared member by member, for one of them holds the versions of what made it. Values of projections onto
cosines are real numbers: a black clip's are noise alone, and exact; another's are compared within their grid's step.
"""

import hashlib
import json

import numpy as np
import pytest

from goldens import doors
from goldens.held import hold, hold_cases
from goldens.pictures import CLIP, COLOUR, DEEP, GREY, MASK

PLAIN = {"epsilon": "2", "neighbours": "pixels:16", "block": 16, "restore": "none"}
FINE = {"neighbours": "pixels:4", "subdivide": 4}
PICTURES = {
    "grey": (GREY, {}),
    "grey, ragged": (GREY[:45, :61], {"block": 8}),
    "16 bits": (DEEP, {}),
    "rgb": (COLOUR, {"colour": "rgb"}),
    "ycc": (COLOUR, {"colour": "ycc", "block": 8}),
    "grey of colours": (COLOUR, {"colour": "grey"}),
    "gaussian": (GREY, {"delta": "1e-5"}),
    "gaussian, ycc": (COLOUR, {"delta": "1e-5", "block": 8, "chroma": 2}),
    "regions, private": (GREY, {**FINE, "regions": "private"}),
    "regions, public": (GREY, {**FINE, "regions": MASK}),
    "regions, ycc": (COLOUR, {**FINE, "regions": "private"}),
    "another seed": (GREY, {"seed": 12}),
}
CLIPS = {
    "one block size": {},
    "each frame": {"neighbours": "pixels:16/frame"},
    "box, gaussian": {"neighbours": "box:10x10/frames:3", "delta": "1e-5"},
}
BLACK = np.zeros_like(CLIP)
NOISE = {"epsilon": "8", "delta": "1e-5"}
PROJECTIONS = {
    "block": (CLIP, {}),
    "block, ycc": (CLIP, {"colour": "ycc"}),
    "block, pooled": (CLIP, {"k": 48, "pool": 3}),
    "low-pass, black": (BLACK, {"operator": "low-pass", "k": 48}),
    "random, black": (BLACK, {"operator": "random", "k": 48, "pool": 2}),
    "clipped, black": (BLACK, {"clip_norm": "500", "k": 48}),
}
REAL = {
    "low-pass": (CLIP, {"operator": "low-pass", "k": 48, "pool": 3}),
    "random": (CLIP, {"operator": "random", "k": 48, "pool": 3}),
    "clipped": (CLIP, {"clip_norm": "500", "k": 48, "pool": 3}),
}


def digest(array):
    """Of an array's numbers in one byte order, with its type and shape."""
    array = np.ascontiguousarray(array)
    little = array.astype(array.dtype.newbyteorder("<"))
    return f"{array.dtype.name} {list(array.shape)} {hashlib.sha256(little.tobytes()).hexdigest()}"


@pytest.mark.parametrize("name", PICTURES)
def test_the_archive_and_the_pixels_of_a_picture(name, tmp_path):
    picture, options = PICTURES[name]
    made = doors.pixelize(picture, **{"seed": 11, **PLAIN, **options})
    made.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        members = {member: digest(file[member]) for member in file.files if member != "about"}
        about = json.loads(file["about"].tobytes())
    sizes = {each: value for each, value in about.items() if each not in ("statement", "sealed")}
    found = {"members": members, "about": sizes}
    if picture.ndim == 2 or options.get("colour") in ("rgb", "grey"):  # others were converted to colours again
        found["pixels"] = digest(made.picture)
    hold("releases", f"picture: {name}", found)


@pytest.mark.parametrize("name", CLIPS)
def test_the_frames_of_a_pixelized_clip(name):
    made = doors.pixelize(CLIP, seed=11, colour="rgb", **{**PLAIN, **CLIPS[name]})
    hold("releases", f"clip: {name}", [digest(frame) for frame in made.picture])


@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_values_of_a_projected_clip(name):
    clip, options = PROJECTIONS[name]
    groups = doors.projected(clip, 11, **NOISE, **options)
    # what was multiplied by the grid's step, a power of two, is divided by it again to the last bit
    hold("releases", f"projection: {name}", [digest(values) for values in groups])


@pytest.mark.parametrize("name", REAL)
def test_the_values_of_a_projection_onto_real_numbers(name):
    clip, options = REAL[name]
    groups = doors.projected(clip, 11, **NOISE, **options)
    found = [
        {"values": len(values), "norm": float(np.linalg.norm(values)), "first": [float(v) for v in values[:4]]}
        for values in groups
    ]
    hold("releases", f"projection: {name}", found, close=1e-6, least=0.01)


def test_no_release_is_lost():
    names = [f"picture: {n}" for n in PICTURES] + [f"clip: {n}" for n in CLIPS]
    hold_cases("releases", names + [f"projection: {n}" for n in (*PROJECTIONS, *REAL)])
