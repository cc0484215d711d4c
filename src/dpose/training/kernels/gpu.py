"""The kernels of a GPU, in Triton: everything is read once, where the numbers lie.

Each unit is summed by programs of its own, whose sums of parts are added in the parts' order. How a unit is cut into
parts follows from the shapes of one unit alone, and blocks have fixed sizes that no trial of speed chooses: so a unit's
result has the same bits whatever the other units are, wherever in the batch it stands, and in every process. The only
atomic additions are of whole numbers, which have one sum in whatever order.

With TRITON_INTERPRET=1 in the environment before Triton is imported the same code runs on a processor, slowly: tests
compare it with the other kinds.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dpose.training.kernels import MOST, TOO_LARGE, Ints, Kernels
from dpose.training.kernels.reference import Reference

_BLOCK = 1024
_RUN = 32
"""Blocks of one part of a row's squared norm."""
_DEEP = 32
"""Units that one program of a truncated sum adds."""
_TAPS_AND_CHANNELS = 512
"""Numbers that a program of a depthwise gradient holds, at least."""
_LARGEST, _BEYOND = tl.constexpr(MOST), tl.constexpr(TOO_LARGE)


@triton.jit
def _depthwise(x, gradient, parts, sizes, steps, TAPS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr):
    """parts[u, part, tap, o] = sum over views and the part's places of gradient[..., o] * x[..., o // multiplier].

    x (U, V, height, width, C), gradient (U, V, rows, columns, O), both channels last.
    """
    WIDE: tl.constexpr = TAPS[1]  # a part of a tuple is a constant by this alone
    COUNT: tl.constexpr = TAPS[2]
    views, height, width, rows, columns, channels, outputs, rows_at_once = sizes
    stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x = steps
    unit, part = tl.program_id(0).to(tl.int64), tl.program_id(2)
    taps = tl.arange(0, COUNT)
    out = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # a division would hide that neighbours are read, and then they are read one by one
    there, read = out < outputs, out if TAPS[3] == 1 else out // TAPS[3]
    total = tl.zeros([COUNT, BLOCK], dtype=KIND)
    first = part * rows_at_once
    for view in range(views):
        picture = x + (unit * views + view) * height * width * channels
        slopes = gradient + (unit * views + view) * rows * columns * outputs
        for i in range(first, tl.minimum(first + rows_at_once, rows)):
            at = i * stride_y - padding_y + taps // WIDE * dilation_y
            for j in range(columns):
                place = j * stride_x - padding_x + taps % WIDE * dilation_x
                inside = (taps < TAPS[0] * WIDE) & (at >= 0) & (at < height) & (place >= 0) & (place < width)
                slope = tl.load(slopes + (i * columns + j) * outputs + out, mask=there, other=0.0)
                value = tl.load(
                    picture + ((at * width + place) * channels)[:, None] + read[None, :],
                    mask=inside[:, None] & there[None, :],
                    other=0.0,
                )
                total += value.to(KIND) * slope.to(KIND)[None, :]
    to = parts + (unit * tl.num_programs(2) + part) * TAPS[0] * WIDE * outputs
    held = (taps < TAPS[0] * WIDE)[:, None] & there[None, :]
    tl.store(to + taps[:, None] * outputs + out[None, :], total, mask=held)


@triton.jit
def _normalised(x, gradient, mean, rstd, parts, sizes, CUT: tl.constexpr, KIND: tl.constexpr):
    """parts[u, part, 0 and 1, p]: sums over the part's places of gradient * (x - mean) * rstd, and of gradient."""
    DEEP: tl.constexpr = CUT[0]
    BLOCK: tl.constexpr = CUT[1]
    places, width = sizes
    unit, part = tl.program_id(0).to(tl.int64), tl.program_id(2)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    slopes, shifts = tl.zeros([BLOCK], dtype=KIND), tl.zeros([BLOCK], dtype=KIND)
    for t in range(part * DEEP, tl.minimum(part * DEEP + DEEP, places)):
        place = unit * places + t
        given = tl.load(gradient + place * width + at, mask=there, other=0.0).to(KIND)
        value = tl.load(x + place * width + at, mask=there, other=0.0).to(KIND)
        slopes += given * ((value - tl.load(mean + place).to(KIND)) * tl.load(rstd + place).to(KIND))
        shifts += given
    to = parts + (unit * tl.num_programs(2) + part) * 2 * width + at
    tl.store(to, slopes, mask=there)
    tl.store(to + width, shifts, mask=there)


@triton.jit
def _add_parts(parts, found, count, width, BLOCK: tl.constexpr):
    """found[u, p] = the sum of parts[u, :, p], in their order."""
    unit = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    total = tl.load(parts + unit * count * width + at, mask=there, other=0.0)
    for part in range(1, count):
        total += tl.load(parts + (unit * count + part) * width + at, mask=there, other=0.0)
    tl.store(found + unit * width + at, total, mask=there)


# what is known of an address would choose in which order a block is added up
@triton.jit(do_not_specialize_on_alignment=["rows", "parts"])
def _squares(rows, parts, width, RUN: tl.constexpr, BLOCK: tl.constexpr):
    """parts[u, part] = the sum of squares of the part's numbers, in float64."""
    unit, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total = tl.zeros([BLOCK], dtype=tl.float64)
    for block in range(RUN):
        at = (part * RUN + block) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(rows + unit * width + at, mask=at < width, other=0.0).to(tl.float64)
        total += value * value
    tl.store(parts + unit * tl.num_programs(1) + part, tl.sum(total, 0))


@triton.jit
def _truncated(rows, factors, within, totals, squares, sizes, CUT: tl.constexpr, TAKE_BACK: tl.constexpr):
    """totals[p] += the units' truncated numbers, squares[block, u] = their squares in this block.

    With `TAKE_BACK` numbers of units that are not `within` are taken from the totals, and no others are read.
    """
    DEEP: tl.constexpr = CUT[0]
    BLOCK: tl.constexpr = CUT[1]
    units, width = sizes
    block, chunk = tl.program_id(0), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    total, changed = tl.zeros([BLOCK], dtype=tl.int64), 0
    for place in range(DEEP):
        unit = (chunk * DEEP + place).to(tl.int64)
        wanted = unit < units
        if TAKE_BACK:
            wanted = tl.load(within + unit, mask=wanted, other=1) == 0
        if wanted:
            factor = tl.load(factors + unit)
            value = tl.load(rows + unit * width + at, mask=there, other=0.0) * factor
            # nan fails every comparison; a number above the bound makes the square larger than any bound
            value = tl.where(tl.abs(value) <= _LARGEST, value, _BEYOND)
            value = tl.where(factor == 0.0, 0.0, value)
            steps = value.to(tl.int32).to(tl.int64)
            changed += 1
            if TAKE_BACK:
                total -= steps
            else:
                total += steps
                # whole numbers whose sum stays below 2^63: the same in whatever order
                tl.store(squares + block * units + unit, tl.sum(steps * steps, 0).to(tl.float64))
    if changed > 0:
        tl.atomic_add(totals + at, total, mask=there, sem="relaxed")


class Device(Reference):
    """`Kernels` for a GPU that Triton compiles for."""

    PLACES = 64
    """Places whose sum is one part: fewer numbers one after the other, so less is rounded away."""

    def depthwise(self, x: Tensor, gradient: Tensor, size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
        """As in `Kernels`; fastest where tensors are in channels last."""
        pictures, slopes = (t.movedim(2, -1).contiguous() for t in (x, gradient))
        units, views, height, width, channels = pictures.shape
        rows, columns, outputs = slopes.shape[2:]
        high, wide = size
        taps = triton.next_power_of_2(high * wide)
        block = max(16, triton.next_power_of_2(_TAPS_AND_CHANNELS // taps))
        rows_at_once = max(1, self.PLACES // columns)
        parts = _parts(x, units, -(-rows // rows_at_once), high * wide * outputs)
        sizes = (views, height, width, rows, columns, channels, outputs, rows_at_once)
        _depthwise[(units, -(-outputs // block), parts.shape[1])](
            pictures,
            slopes,
            parts,
            sizes,
            (*stride, *padding, *dilation),
            TAPS=(high, wide, taps, outputs // channels),
            BLOCK=block,
            KIND=_kind(parts),
        )
        return _added(parts).view(units, high * wide, outputs).mT.reshape(units, outputs, 1, high, wide)

    def norm_slopes(self, x: Tensor, gradient: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
        """As in `Kernels`."""
        units, places, width = x.shape
        parts = _parts(x, units, -(-places // self.PLACES), 2 * width)
        block = min(_BLOCK, triton.next_power_of_2(width))
        _normalised[(units, -(-width // block), parts.shape[1])](
            *(t.contiguous() for t in (x, gradient, mean, rstd)),
            parts,
            (places, width),
            CUT=(self.PLACES, block),
            KIND=_kind(parts),
        )
        slopes, shifts = _added(parts).view(units, 2, width).unbind(1)
        return slopes, shifts

    def square_norms(self, rows: Tensor) -> Tensor:
        """As in `Kernels`, added up in float64."""
        units, width = rows.shape
        parts = rows.new_empty((units, -(-width // (_RUN * _BLOCK)), 1), dtype=torch.float64)
        _squares[(units, parts.shape[1])](rows.contiguous(), parts, width, RUN=_RUN, BLOCK=_BLOCK)
        return _added(parts)[:, 0].to(rows.dtype)

    def truncate_sum(self, rows: Tensor, factors: Tensor, totals: Tensor, squares: Tensor) -> None:
        """As in `Kernels`."""
        blocks = -(-rows.shape[1] // _BLOCK)
        of_blocks = squares.new_empty((blocks, len(rows)))
        _launch(rows, factors, factors, totals, of_blocks, take_back=False)
        squares += of_blocks.sum(0)

    def take_back(self, rows: Tensor, factors: Tensor, totals: Tensor, within: Tensor) -> None:
        """As in `Kernels`, without a question to the host."""
        _launch(rows, factors, within.to(torch.int8), totals, totals, take_back=True)


def _launch(rows: Tensor, factors: Tensor, within: Tensor, totals: Tensor, squares: Tensor, *, take_back: bool) -> None:
    units, width = rows.shape
    _truncated[(-(-width // _BLOCK), -(-units // _DEEP))](
        rows.contiguous(),
        factors.contiguous(),
        within,
        totals,
        squares,
        (units, width),
        CUT=(_DEEP, _BLOCK),
        TAKE_BACK=take_back,
    )


def _parts(like: Tensor, units: int, parts: int, width: int) -> Tensor:
    """Room for sums of parts, (units, parts, width), in float32 unless `like` is longer."""
    return like.new_empty((units, parts, width), dtype=torch.promote_types(like.dtype, torch.float32))


def _kind(parts: Tensor) -> tl.dtype:
    return tl.float64 if parts.dtype == torch.float64 else tl.float32


def _added(parts: Tensor) -> Tensor:
    """The sums of each unit's parts, (units, width)."""
    units, count, width = parts.shape
    found = parts.new_empty((units, width))
    _add_parts[(units, -(-width // _BLOCK))](parts, found, count, width, BLOCK=_BLOCK)
    return found


KERNELS: Kernels = Device()
