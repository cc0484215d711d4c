"""The prior by which cells are chosen, measured: how much power public pictures have in waves of each length.

    python tools/measure_spectrum.py --lspet ../shared/data/lspet

prints the numbers that stand in `dpose.release.choosing`. Photographs: the public split of LSPET, and those that
scikit-image carries, but for astronaut, coffee, chelsea and rocket, on which releases are evaluated. Rendered:
`studio`, people who are nobody. Films: `studio` too; their camera stands still. What anybody releases has no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from scipy.optimize import least_squares

from dpose.media.images import read_image
from dpose.pose.data import open_data
from dpose_scene.films import film_labels
from dpose_scene.render import clip, render_person

PHOTOGRAPHS = ("brick", "camera", "clock_motion", "coins", "grass", "gravel", "motorcycle_left", "motorcycle_right")
"""Of scikit-image's files: photographs of things as cameras see them; scans, cells and drawings are left out."""
RENDERED, FILMS = 100, 12
SIZE = (256, 256)
BINS = np.geomspace(1 / 128, 0.45, 17)
"""Waves a pixel; longer ones do not fit into LSPET's pictures, shorter ones are the grid's own."""
LAGS = (1, 2, 4, 8)


def pictures(lspet: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every public picture with the name of its collection, (H, W, 3)."""
    import skimage

    for picture in open_data(f"lspet:{lspet}:public").pictures:
        yield "lspet", picture.read()[0]
    folder = Path(skimage.__file__).parent / "data"
    for name in PHOTOGRAPHS:
        yield "skimage", read_image(folder / f"{name}.png")
    for seed in range(RENDERED):
        yield "studio", render_person("studio", 4 * seed, SIZE).image


def planes(pixels: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Y, and where there are colours Co and Cg."""
    red, green, blue = np.broadcast_to(pixels, (*pixels.shape[:2], 3)).astype(np.float64).transpose(2, 0, 1)
    found = {"LUMA": (red + 2 * green + blue) / 4}
    if np.any(red != blue) or np.any(red != green):
        found |= {"ORANGE": red - blue, "GREEN": (2 * green - red - blue) / 2}
    return found


def waves(plane: NDArray[np.float64]) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """A windowed plane's waves, scaled so that their squares are power for each square wave a pixel; their lengths."""
    window = np.outer(np.hanning(plane.shape[0] + 2)[1:-1], np.hanning(plane.shape[1] + 2)[1:-1])
    centred = plane - (plane * window).sum() / window.sum()
    lengths = np.hypot(np.fft.fftfreq(plane.shape[0])[:, None], np.fft.fftfreq(plane.shape[1])[None, :])
    return np.fft.fft2(centred * window) / np.sqrt((window**2).sum()), lengths


def binned(values: NDArray[np.float64], lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means by `BINS`; NaN where a small picture has no such wave."""
    place = np.digitize(lengths.reshape(-1), BINS)
    count = np.bincount(place, minlength=len(BINS) + 1)[1:-1]
    total = np.bincount(place, values.reshape(-1), minlength=len(BINS) + 1)[1:-1]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def power_laws(found: dict[str, dict[str, list[NDArray[np.float64]]]]) -> Iterator[str]:
    """A and alpha of each plane: least squares on the logarithm of the power, each collection with the same weight."""
    middle = np.sqrt(BINS[1:] * BINS[:-1])
    for plane, collections in found.items():
        means = [np.nanmean(np.log(np.maximum(rows, 1e-3)), axis=0) for rows in collections.values()]
        slope, offset = np.polyfit(np.log(middle), np.mean(means, axis=0), 1)
        yield f"{plane}: Spectrum = (({np.exp(offset):.3g}, {-slope:.3g}),)"


def movement() -> tuple[float, float]:
    """The share of films' power that stands still, and how far the rest moves in a frame."""
    alike = []
    for index in track(range(FILMS), "films"):
        labels = film_labels("studio", "train", index)
        scenes = clip("studio", labels.seed, labels.action, 24, (128, 128))
        all_waves = [waves(planes(scene.image)["LUMA"]) for scene in scenes]
        lengths = all_waves[0][1]
        power = binned(np.mean([np.abs(w) ** 2 for w, _ in all_waves], axis=0), lengths)
        rows = []
        for lag in LAGS:
            both = [(a * b.conj()).real for (a, _), (b, _) in zip(all_waves, all_waves[lag:], strict=False)]
            rows.append(binned(np.mean(both, axis=0), lengths) / power)
        alike.append(rows)
    seen = np.nanmean(alike, axis=0)
    middle = np.sqrt(BINS[1:] * BINS[:-1])

    def off(guess: NDArray[np.float64]) -> NDArray[np.float64]:
        still, speed = guess
        model = still + (1 - still) * np.exp(-2 * np.pi * speed * middle[None, :] * np.array(LAGS)[:, None])
        return np.nan_to_num(model - seen).reshape(-1)

    still, speed = least_squares(off, [0.8, 1.0], bounds=([0, 0.01], [1, 20])).x
    return float(still), float(speed)


def main(lspet: Annotated[Path, typer.Option(help="The folder that holds images/ and joints.mat.")]) -> None:
    """Print the numbers of `dpose.release.choosing`."""
    console = Console()
    found: dict[str, dict[str, list[NDArray[np.float64]]]] = {}
    counts: dict[str, int] = {}
    for collection, pixels in track(pictures(lspet), "pictures", total=None):
        counts[collection] = counts.get(collection, 0) + 1
        for name, plane in planes(pixels).items():
            values, lengths = waves(plane)
            found.setdefault(name, {}).setdefault(collection, []).append(binned(np.abs(values) ** 2, lengths))
    console.print(f"pictures: {counts}", highlight=False)
    for line in power_laws(found):
        console.print(line, highlight=False)
    console.print("STILL, SPEED = {:.3g}, {:.3g}".format(*movement()), highlight=False)


if __name__ == "__main__":
    typer.run(main)
