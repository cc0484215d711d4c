"""Figures 4 and 8: size of a released picture on disk."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpose.media.images import encode_image
from dpose.release.archive import pack_archive
from dpose.release.embed import PNG_LEVEL, stamped_picture
from dpose.release.partition import RegionSums
from dpose.release.plans import release_statement
from dpose.release.regions import mirrored
from dpose.release.released import Shown
from dpose.report.plots import sheet
from dpose.report.results import Figure, Table
from dpose_lab import plots as drawing
from dpose_lab.papers.experiment import Cell, Findings, Outcome, Request, Values
from dpose_lab.papers.pixelization.data import (
    PETS,
    PORTRAIT,
    VENICE,
    Data,
    ShownOutcomes,
    averaged,
    cell_of,
    printed_of,
    with_count,
)
from dpose_lab.papers.pixelization.measure import Point, release_photo
from dpose_lab.photos.photo import Photo

POWERS = (1, 2, 4, 8, 16, 32, 64, 128)
FORMATS = {
    "paper_png": ("paper mode: PNG", "paper", "-"),
    "paper_npz": ("paper mode: NPZ as the paper writes it", "paper", "--"),
    "dpose_png": ("dpose: PNG with statement", "dpose", "-"),
    "dpose_npz": ("dpose: archive with statement", "dpose", "--"),
}


@dataclass(frozen=True)
class Storage:
    """Bytes per picture by block, or by parts of a block.

    Attributes:
        data: Photos.
        axis: "b" or "n".
        seed: Seed of the noise.
    """

    data: Data
    axis: str
    seed: int

    @property
    def settings(self) -> Values:
        """Settings that the results depend on."""
        return {**self.data.to_dict(), "seed": self.seed, "grid": [f"{self.axis}{value}" for value in POWERS]}

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells, one per value and set of photos."""
        return [
            cell_of(number, f"{self.axis}{value}", {self.axis: value}, len(photos))
            for number, photos in enumerate(self.data.sets)
            for value in POWERS
        ]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Measure the mean number of bytes in each format."""
        photos = self.data.sets[cell.settings["data"] - 1]
        value = cell.settings[self.axis]
        point = Point("paper", b=value) if self.axis == "b" else Point("paper", b=128, n=value, m=32)
        own = "dpose" if point.n == 1 else "private"
        sizes = []
        for index in range(len(photos)):
            photo = photos.load(index)
            sizes.append({**_paper(point, photo, self.seed), **_dpose(replace(point, mechanism=own), photo, self.seed)})
            progress()
        return averaged(sizes)

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present tables and figures."""
        shown = ShownOutcomes(outcomes)
        name = "figure4" if self.axis == "b" else "figure8"
        tables, drawings = zip(
            *(_show(self, shown, number, name) for number in range(len(self.data.sets))), strict=True
        )
        regions = "the paper's archive keeps the mask's averages as float32, dpose's one bit a block"
        notes = (
            *self.data.notes(),
            "bytes a picture, on average; the paper's formats carry no statement, dpose's do",
            f"PNGs are compressed at zlib's level {PNG_LEVEL}",
            *([regions] if self.axis == "n" else []),
            *printed_of(name).notes(),
        )
        return Findings(tables, drawings, notes)


def figure_4(request: Request) -> Storage:
    """Open the experiment of bytes by block."""
    return Storage(Data.open(request, [PETS, VENICE], 5), "b", request.noise_seed)


def figure_8(request: Request) -> Storage:
    """Open the experiment of bytes by parts of a block of 128 pixels."""
    return Storage(Data.open(request, [PORTRAIT], 20, masks=True), "n", request.noise_seed)


def _paper(point: Point, photo: Photo, seed: int) -> dict[str, float | None]:
    release, _ = release_photo(point, photo, seed)
    return {
        "paper_png": float(len(encode_image(release.picture()[:, :, 0], ".png", compression=PNG_LEVEL))),
        "paper_npz": float(len(paper_archive(release, photo))),
    }


def _dpose(point: Point, photo: Photo, seed: int) -> dict[str, float | None]:
    release, plan = release_photo(point, photo, seed)
    statement = release_statement(plan, seeded=True)
    return {
        "dpose_png": float(len(stamped_picture(release, ".png", statement))),
        "dpose_npz": float(len(pack_archive(release, statement))),
    }


def paper_archive(release: Shown, photo: Photo) -> bytes:
    """An NPZ file with the items of seed 002's Table III, or with regions of its Table IV."""
    cells, out = release.cells, io.BytesIO()
    values = release.values[:, 0]
    items = {"b": np.array(cells.block), "M": np.array(cells.height), "N": np.array(cells.width)}
    if isinstance(cells, RegionSums):
        assert photo.mask is not None
        padded = mirrored(photo.mask[:, :, None].astype(np.float32), cells.block)[:, :, 0]
        grid = padded.reshape(cells.coarse.rows, cells.block, cells.coarse.columns, cells.block)
        items |= {
            "simple": values[: cells.simple],
            "complex": values[cells.simple :],
            "mask": 1 - grid.mean(axis=(1, 3), dtype=np.float32),
            "s_b": np.array(cells.fine.block),
        }
    else:
        items["means"] = values.reshape(cells.rows, cells.columns)
    np.savez_compressed(out, allow_pickle=False, **items)
    return out.getvalue()


def _show(storage: Storage, shown: ShownOutcomes, number: int, name: str) -> tuple[Table, Figure]:
    photos, axis = storage.data.sets[number], storage.axis
    keys = [f"{number + 1}-{axis}{value}" for value in POWERS]
    rows = []
    for value, key in zip(POWERS, keys, strict=True):
        values = shown.values(key)
        status = shown.by_key[key].status
        sizes = [f"{values[form]:,.0f}" if values else status for form in FORMATS]
        ratios = [
            f"{values[f'{who}_png'] / values[f'{who}_npz']:.2f}" if values else status for who in ("paper", "dpose")
        ]
        rows.append((str(value), *sizes, *ratios))
    head = (axis, *(title for title, _, _ in FORMATS.values()), "PNG / NPZ, paper mode", "PNG / archive, dpose")
    title = f"{photos.title}, {with_count(len(photos), 'picture')}"
    figure, axes = sheet(1, 1, title, 5.6, 3.6)
    for form, (label, mechanism, style) in FORMATS.items():
        curve = shown.curve([(float(v), key) for v, key in zip(POWERS, keys, strict=True)], form)
        drawing.line(axes[0, 0], [(x, y / 1024) for x, y in curve], label, drawing.COLOURS[mechanism], style)
    across = "block b, pixels" if axis == "b" else "parts n along a side of a complex block (b = 128)"
    drawing.finish(axes[0, 0], across, "KiB a picture", ticks=POWERS, log_x=True, log_y=True, legend=True)
    file = f"{name}-{number + 1}" if len(storage.data.sets) > 1 else name
    caption = f"{title}: storage by {'block' if axis == 'b' else 'parts of a block'}"
    return Table(f"{photos.title}: bytes a picture", head, tuple(rows)), drawing.rendered(file, figure, caption)
