"""Artefacts that several goldens look at, each made once; nobody may change them."""

from pathlib import Path

import pytest

import dpose_scene.data as synthetic_module
import small_nano
from clips import write as write_clip
from goldens import doors
from goldens.pictures import COLOUR, GREY

POSE = "train --data synthetic:ward --limit 12 --epochs 1 --batch-size 12 --epsilon 2 --delta 1e-3"
POSE += " --set plan.accountant=rdp --preset nano --strategy light"
POSE += " --set data.validation_data=none --set canaries.count=20 --set canaries.kind=gradient"
SCORES = {
    "mean": "--epsilon 1",
    "mean, gaussian": "--epsilon 1 --delta 1e-5",
    "pooled": "--epsilon 1 --pooled --joints-per-unit 14",
    "groups": "--epsilon 1 --pooled --joints-per-unit 14 --groups",
}


@pytest.fixture(scope="session")
def dots_run(tmp_path_factory):
    """`dots_run(name, **settings)`: the run of this name, trained when it is first asked for."""
    place, made = tmp_path_factory.mktemp("dots-runs"), {}

    def run(name, **settings):
        if name not in made:
            with doors.same_draws():
                made[name] = doors.train_on_dots(out=place / f"{len(made)}", **settings)
        return made[name]

    return run


@pytest.fixture(scope="session")
def pose_run(tmp_path_factory) -> Path:
    """A folder with a run of `dpose train` on rendered people, "run", noised scores of it, and what
    opens its commitment."""
    place = tmp_path_factory.mktemp("pose")
    with pytest.MonkeyPatch.context() as patch:
        small_nano.use(patch)
        patch.setattr(synthetic_module, "SPLITS", {"train": 40, "val": 6, "test": 6, "public": 110})
        doors.done(*POSE.split(), "--out", place / "run")
        for name, options in SCORES.items():
            words = ["evaluate", place / "run", "--data", "synthetic:ward:val", *options.split()]
            doors.done(*words, "--out", place / f"{name}.json")
        doors.done("audit", "opening", place / "run", "--out", place / "opening.json")
    return place


@pytest.fixture(scope="session")
def released(tmp_path_factory) -> Path:
    """A folder with releases of each sort."""
    place = tmp_path_factory.mktemp("released")
    options = {"epsilon": "2", "neighbours": "pixels:4", "block": 16, "restore": "none"}
    grey = doors.pixelize(GREY, **options)
    for name in ("grey.png", "grey.jpg", "alone.npz", "beside.png", "beside.npz"):
        grey.save(place / name)
    regions = doors.pixelize(GREY, **options, subdivide=4, regions="private")
    regions.save(place / "regions.npz")
    doors.pixelize(COLOUR, **options, delta="1e-5").save(place / "colour.png")
    doors.pixelize(GREY, **options, seed=3).save(place / "seeded.png")
    video = write_clip(place / "original.mp4", frames=6)
    doors.release_video(video, place / "projected.mp4", epsilon="8", delta="1e-5", restore="none")
    words = ["pixelize", video, "--epsilon", "2", "--neighbours", "pixels:4", "--block", "8", "--public"]
    doors.done(*words, "--out", place / "pixelized.mp4")
    words = ["obfuscate", video, "--method", "blur", "--public"]
    doors.done(*words, "--out", place / "blurred.mp4")
    video.unlink()
    return place
