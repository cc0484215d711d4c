"""Releases of one and the same grey: channels, frames, groups, files and runs share no noise, as a reader sees them.

What is compared is what is published. The pictures are one flat grey, so whatever is left after its mean is noise.
"""

from __future__ import annotations

import itertools
import math

import av
import numpy as np
import pytest

from dpose.media.images import encode_image, read_pixels
from dpose.media.video import probe, read_frames
from dpose.release.grid import Shape
from dpose.release.jobs import find_jobs
from dpose.release.regions import PrivateRegions
from plain_configs import plain_cells, plain_projection
from public_doors import pixelize, release_all, release_array, release_file

SIDE, BLOCK, FRAMES = 128, 4, 6
GREY = np.full((SIDE, SIDE, 3), 128, np.uint8)
EPSILON = 2
"""About 30 gray levels of noise in a block: far from black and white, and far above what encoding changes."""


def in_blocks(pictures) -> np.ndarray:
    """The blocks' values less their mean, (pictures, channels, blocks)."""
    found = np.asarray(pictures, float)
    side = found.shape[1] // BLOCK
    means = found.reshape(len(found), side, BLOCK, side, BLOCK, -1).mean((2, 4))
    means = means.transpose(0, 3, 1, 2).reshape(len(found), -1, side * side)
    return means - means.mean(2, keepdims=True)


def share_nothing(values: np.ndarray, names, most: float = 7) -> None:
    """Every two of the rows are uncorrelated, place for place and moved by any number of places.

    Args:
        values: Rows of noise.
        names: Of the rows.
        most: Standard deviations of a correlation. Of a million of them none passes 7 by chance.
    """
    assert values.std(1).min() > 8, "there is no noise"
    spectra = np.fft.rfft(values)
    for (a, one), (b, other) in itertools.combinations(enumerate(names), 2):
        moved = np.fft.irfft(spectra[a] * np.conj(spectra[b]), values.shape[1])
        found = np.abs(moved).max() / values.shape[1] / values[a].std() / values[b].std()
        assert found < most / math.sqrt(values.shape[1]), (one, other, found)


def check(pictures, names, most: float = 7) -> None:
    """Of some pictures, all channels with all channels."""
    found = in_blocks(pictures)
    channels = found.shape[1]
    labels = [f"{name}, {'RGB'[c]}" for name in names for c in range(channels)]
    share_nothing(found.reshape(-1, found.shape[2]), labels, most)


MECHANISMS = pytest.mark.parametrize(
    "more",
    [{}, {"delta": 1e-5, "epsilon": 1}, {"regions": np.ones((SIDE, SIDE), bool), "subdivide": 2, "block": 8}],
    ids=["Laplace", "Gaussian", "mask"],
)


def spread(more: dict) -> float:
    """Parts of a block are drawn towards it, so there are fewer independent values than places."""
    return 12 if "regions" in more else 7


@MECHANISMS
def test_channels_of_a_picture_and_pictures_of_two_releases(more):
    values = {"epsilon": EPSILON, "block": BLOCK, "restore": "none", **more}
    released = [pixelize(GREY, neighbours=1, colour="rgb", **values) for _ in range(2)]
    assert not any(one.statement.kind == "seeded" for one in released)
    check([one.picture for one in released], ["first", "second"], spread(more))


@MECHANISMS
def test_frames_of_a_clip_that_is_an_array(more):
    values = {"epsilon": EPSILON, "block": BLOCK, "restore": "none", **more}
    clip = np.stack([GREY] * FRAMES)
    one, other = (pixelize(clip, neighbours=1, colour="rgb", **values).picture for _ in range(2))
    check([*one, *other], [*range(FRAMES), *(f"again {k}" for k in range(FRAMES))], spread(more))


def test_both_stages_have_noise_of_their_own():
    """What the coarse stage shows of a block, and the sum of what the fine one shows of its parts."""
    from dpose.release import mechanism

    drawn = []
    real = mechanism.NoiseStage.noised
    with pytest.MonkeyPatch.context() as patch:

        def spy(self, sums, stream):
            noisy = real(self, sums, stream)
            drawn.append((self.name, (noisy - sums).astype(float)))
            return noisy

        patch.setattr(mechanism.NoiseStage, "noised", spy)
        pixelize(np.stack([GREY, GREY]), EPSILON, 1, BLOCK, regions=PrivateRegions(quantile=0.0), subdivide=2)
    assert [name for name, _ in drawn] == [b"coarse", b"fine"] * 2
    size = min(noise.size for _, noise in drawn)
    rows = np.stack([noise.ravel()[:size] / noise.std() * 20 for _, noise in drawn])
    share_nothing(rows, ["coarse 1", "fine 1", "coarse 2", "fine 2"])


def test_files_of_one_command_and_of_two(tmp_path):
    """Two files with one content, released together, and once more."""
    for name in ("a.png", "b.png"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(encode_image(GREY, ".png"))
    shown, names = [], []
    for out in ("one", "two"):
        jobs = find_jobs([str(tmp_path / "in")], tmp_path / out)
        for job, statement in release_all(jobs, plain_cells(EPSILON, 1, BLOCK)):
            assert statement.kind == "private"
            shown.append(read_pixels(job.target))
            names.append(f"{out}/{job.target.name}")
    assert len(shown) == 4
    check(shown, names)


def a_video(path):
    """A video of nothing but grey."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=6)
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "yuv420p"
        for _ in range(FRAMES):
            for packet in stream.encode(av.VideoFrame.from_ndarray(GREY, format="rgb24")):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    return path


def luma(path) -> list[np.ndarray]:
    """The decoded frames' brightness: their colours are stored at half the resolution and mixed."""
    return [f.pixels.astype(float).mean(2, keepdims=True) for f in read_frames(probe(path))]


def test_frames_of_a_video_and_videos_of_two_releases(tmp_path):
    source = a_video(tmp_path / "a.mp4")
    shown, names = [], []
    for out in ("one.mp4", "two.mp4"):
        statement = release_file(probe(source), tmp_path / out, plain_cells(EPSILON, 1, BLOCK))
        assert statement.kind == "private"
        shown += luma(tmp_path / out)
        names += [f"{out} {k}" for k in range(FRAMES)]
    assert len(shown) == 2 * FRAMES
    check(shown, names, 10)  # encoding predicts a frame from others


def test_channels_of_a_videos_frames(tmp_path):
    """Of the frames as they are handed to the encoder."""
    from dpose.privacy.noise import AesNoise, Key
    from dpose.release.pixelization import PixelizationPlan, released_frames

    plan = PixelizationPlan.of(plain_cells(EPSILON, 1, BLOCK), Shape.of(SIDE, SIDE, 3, 255, FRAMES))
    shown = list(released_frames([GREY] * FRAMES, plan, AesNoise(Key.fresh()), 2))
    check(shown, range(FRAMES))


CLIP = {"k": 3 * (SIDE // BLOCK) ** 2, "pool": 1}


@pytest.mark.parametrize("operator", ["block", "low-pass", "random"])
def test_channels_and_groups_of_a_clip_by_projection(operator):
    setting = plain_projection(1, "1e-5", 1, operator, **CLIP)
    clip = np.stack([GREY] * 3)
    one, other = (release_array(clip, setting) for _ in range(2))
    assert one.statement.kind == "private"
    check([*one.picture, *other.picture], [*range(3), *(f"again {k}" for k in range(3))])


def test_groups_of_a_video_by_projection_and_videos_of_two_releases(tmp_path):
    source = a_video(tmp_path / "a.mp4")
    shown, names = [], []
    for out in ("one.mp4", "two.mp4"):
        release_file(probe(source), tmp_path / out, plain_projection(1, "1e-5", 1, **CLIP))
        shown += luma(tmp_path / out)
        names += [f"{out} {k}" for k in range(FRAMES)]
    check(shown, names, 10)
