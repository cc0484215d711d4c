"""Pictures that stay on a device: read once, and views made of them there.

    kept = keep_pictures(data, device, limit=4 * 2**30)       # None where views are no warps of pictures
    batch = kept.batch(groups, room)                          # a micro-batch, on the device

A GPU waits for views that processors decode, warp and copy. So what any view may reach of each picture is cut out once
and kept, and a micro-batch's views are sampled from there, under the same draws as `Loader.unit` has, within one grey
level of what a processor makes of them.

**What is kept** follows the units' order and the sizes of their pictures: unit after unit until the limit is reached,
however often they are sampled. So it must decide nothing but time: the views of units that are not kept are made there
too, by the same operations (`brought`). A step that meets some takes longer, and so time tells of a sample, as it does
over more units (docs/threat-model.md). Kept pictures lie on the device in plain until the run ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch import Tensor

from dpose.units import (
    CombinedUnits,
    Draw,
    PatchedUnits,
    Patches,
    UnitBatch,
    UnitDataset,
    UnmadeView,
    Warps,
    some_of,
    view_bucket,
)

SHARE, MOST = 0.2, 16 * 2**30
"""Of a device's memory, and bytes at most, that pictures are kept in: the same in every run on one machine, which a run
that is taken up again must be."""
_AT_ONCE = 256
Patch = tuple[int, NDArray[np.uint8]]
"""A person's number, and one of the patches of that person, (h, w, 3)."""


def room_on(device: torch.device) -> int:
    """Bytes that pictures are kept in on `device`; 0 where processors compute steps."""
    if device.type != "cuda":
        return 0
    return min(MOST, int(SHARE * torch.cuda.get_device_properties(device).total_memory))


@dataclass(frozen=True)
class KeptPictures:
    """Patches side by side in one tensor, and the units whose patches are all there.

    Attributes:
        patches: Makes looks and warps.
        units: Which of them are kept.
        pixels: All patches, (bytes,) uint8.
        places: (P, 3) int64 on the device, where in `pixels` each patch begins, its height and its width.
        first: Of each person, the first of its patches; -1 where none is kept.
    """

    patches: Patches
    units: frozenset[int]
    pixels: Tensor
    places: Tensor
    first: NDArray[np.int64]

    def looks(self, data: UnitDataset, index: int, draw: Draw) -> list[UnmadeView]:
        """The views that a unit of `data`, the units that were kept or combinations of them, has at one load."""
        return [look for _, look in some_of(_looks(data, self.patches, index, draw), draw)]

    def brought(self, data: UnitDataset, index: int, draw: Draw) -> tuple[list[UnmadeView], list[Patch]]:
        """`looks` of a unit that is not kept, and the patches that they need."""
        found = some_of(_looks(data, self.patches, index, draw), draw)
        read = {entry: self.patches.of(entry) for entry in dict.fromkeys(entry for entry, _ in found)}
        return [look for _, look in found], [
            (p, part) for one in read.values() for p, cut in one.items() for part in cut
        ]

    def holding(self, parts: Sequence[Patch]) -> KeptPictures:
        """These patches on the same device, in place of those that are kept, for a micro-batch."""
        return _kept(self.patches, set(), parts, self.pixels.device)

    def plan(self, groups: Sequence[Sequence[UnmadeView]]) -> Warps:
        """How all views of some units are made: on the host, in any thread."""
        return self.patches.warps([look for looks in groups for look in looks])

    def batch(self, groups: Sequence[Sequence[UnmadeView]], warps: Warps, room: int) -> UnitBatch:
        """The micro-batch of these units, on the device, with empty units behind them up to `room`."""
        bucket = view_bucket(max(map(len, groups)))
        counts = [len(looks) for looks in groups]
        starts = [0, *itertools.accumulate(counts)]
        # as `pad_views`: places without a view of their own hold the unit's first
        filled = [start + (v < count) * v for start, count in zip(starts, counts, strict=False) for v in range(bucket)]
        weights = torch.zeros(room, bucket)
        for u, count in enumerate(counts):
            weights[u, :count] = 1
        device = self.pixels.device
        # no question to the device, and no wait for it
        picks = _sent(torch.tensor(filled), device)

        def placed(values: Tensor) -> Tensor:
            whole = values.new_zeros((room * bucket, *values.shape[1:]))
            torch.index_select(values, 0, picks, out=whole[: len(filled)])
            return whole.view(room, bucket, *values.shape[1:])

        which = torch.from_numpy(self.first[warps.patches[:, 0]] + warps.patches[:, 1])
        colours = None if warps.colours is None else _sent(torch.from_numpy(warps.colours), device)
        views = warped(
            self.pixels,
            self.places[_sent(which, device)],
            _sent(torch.from_numpy(warps.matrices).float(), device),
            colours,
            self.patches.view_size,
        )
        targets = {name: placed(_sent(torch.from_numpy(v), device)) for name, v in warps.targets.items()}
        return UnitBatch(placed(views), targets, _sent(weights, device))


def _looks(data: UnitDataset, patches: Patches, index: int, draw: Draw) -> list[tuple[int, UnmadeView]]:
    """The views of a unit, each with the entry of the innermost data that it is of."""
    if isinstance(data, CombinedUnits):
        return [look for i in data.entries(index, draw) for look in _looks(data.dataset, patches, i, draw)]
    return [(index, look) for look in patches.looks(index, draw)]


def _entries(data: UnitDataset, index: int) -> list[int]:
    """All entries of the innermost data that a unit may show."""
    if isinstance(data, CombinedUnits):
        return [i for entry in data.entries(index) for i in _entries(data.dataset, entry)]
    return [index]


def keep_pictures(
    data: UnitDataset,
    device: torch.device,
    limit: int,
    own: Sequence[int] | None = None,
    *,
    threads: int = 2,
    console: Console | None = None,
) -> KeptPictures | None:
    """Read the pictures of `data` and keep them on `device`, unit after unit, in at most `limit` bytes.

    Args:
        data: The units, or a combination of units (`dpose.units.CombinedUnits`).
        device: Where they stay.
        limit: In bytes. The first unit that would pass it ends the reading.
        own: The units that this process takes; all for None.
        threads: Threads that read.
        console: Where progress goes; nowhere for None.

    Returns:
        None where views are no warps of pictures.
    """
    inner = data
    while isinstance(inner, CombinedUnits):
        inner = inner.dataset
    if not isinstance(inner, PatchedUnits):
        return None
    patches = inner.patches()
    wanted = range(len(data)) if own is None else own
    entries = {unit: _entries(data, unit) for unit in wanted}
    size, read, units = 0, set[int](), set[int]()
    found: list[Patch] = []
    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="dpose-keep") as pool:
        blocks = [wanted[at : at + _AT_ONCE] for at in range(0, len(wanted), _AT_ONCE)]
        for block in track(blocks, "keeping pictures ready", console=console, disable=console is None, transient=True):
            new = list(dict.fromkeys(i for unit in block for i in entries[unit] if i not in read))
            got = dict(zip(new, pool.map(patches.of, new), strict=True))
            for unit in block:
                more = {i: got.pop(i) for i in entries[unit] if i in got}
                parts = [(p, part) for one in more.values() for p, cut in one.items() for part in cut]
                size += sum(part.nbytes for _, part in parts)
                if size > limit:
                    return _kept(patches, units, found, device)
                read.update(more)
                found += parts
                if parts:  # a picture without people has no views
                    units.add(unit)
    return _kept(patches, units, found, device)


def _kept(patches: Patches, units: set[int], found: Sequence[Patch], device: torch.device) -> KeptPictures:
    first = np.full(max((person for person, _ in found), default=-1) + 1, -1)
    first[[person for person, _ in found][::-1]] = range(len(found))[::-1]
    shapes = np.array([part.shape[:2] for _, part in found], np.int64).reshape(-1, 2)
    begins = np.cumsum([0, *(part.nbytes for _, part in found)])[:-1]
    pixels = torch.empty(sum(part.nbytes for _, part in found), dtype=torch.uint8, device=device)
    for at in range(0, len(found), _AT_ONCE):  # they may be gigabytes: not twice on the host
        block = np.concatenate([part.ravel() for _, part in found[at : at + _AT_ONCE]])
        pixels[begins[at] : begins[at] + len(block)] = torch.from_numpy(block)
    places = torch.from_numpy(np.column_stack([begins, shapes])).to(device)
    return KeptPictures(patches, frozenset(units), pixels, places, first)


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def warped(pixels: Tensor, places: Tensor, matrices: Tensor, colours: Tensor | None, size: tuple[int, int]) -> Tensor:
    """Views of patches, (V, 3, *size) uint8: bilinear, black outside, rounded, and then recoloured.

    Args:
        pixels: uint8, patches one behind the other, each (h, w, 3).
        places: (V, 3) int64, where each view's patch begins, its height and its width.
        matrices: (V, 2, 3) float32, from the view to the patch.
        colours: (V, 3, 4) float32, or None.
        size: (H, W) of a view.
    """
    rows, columns = (torch.arange(n, device=pixels.device, dtype=torch.float32) for n in size)
    m = matrices[:, :, :, None, None]
    x, y = (m[:, k, 0] * columns + m[:, k, 1] * rows[:, None] + m[:, k, 2] for k in (0, 1))
    left, top = x.floor(), y.floor()
    right_share, lower_share = (x - left)[:, None], (y - top)[:, None]
    begin, height, width = (places[:, k, None, None] for k in range(3))
    channels = torch.arange(3, device=pixels.device)[:, None, None]

    def at(row: Tensor, column: Tensor) -> Tensor:
        i, j = row.long(), column.long()
        inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
        place = begin + 3 * (i.clamp(0).minimum(height - 1) * width + j.clamp(0).minimum(width - 1))
        return pixels[place[:, None] + channels].float() * inside[:, None]

    upper = torch.lerp(at(top, left), at(top, left + 1), right_share)
    lower = torch.lerp(at(top + 1, left), at(top + 1, left + 1), right_share)
    views = torch.lerp(upper, lower, lower_share).round_()
    if colours is not None:
        r, g, b = views.unbind(1)
        # in 1024ths, as OpenCV recolours bytes; every number here is whole and below 2^24
        c = (1024 * colours[..., :3]).round()[..., None, None]
        shift = (1024 * (colours[..., 3] + 0.5)).round()[..., None, None]
        shown = [c[:, k, 0] * r + c[:, k, 1] * g + c[:, k, 2] * b + shift[:, k] for k in range(3)]
        views = (torch.stack(shown, 1) / 1024).floor_().clamp_(0, 255)
    return views.to(torch.uint8)
