"""Gaussian noise on tensors: exactly rounded on sums of whole numbers, in floating point on others.

noisy = add_gaussian(sums, stddev, noise.stream(Purpose.NOISE, step), grid_step=2.0**-23)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from dpose.privacy.noise import Stream
from dpose.privacy.rounded_gaussian import rounded_gaussian

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]


class DrawnAhead:
    """The noise that `add_gaussian` would draw from `stream`, drawn in a thread while its sums are still computed.

    **Guarantee.** As in `add_gaussian`: the same numbers from the same stream, handed out once, for sums of the shapes
    and with the standard deviation and the grid that they were drawn for. A stream is that of one step, and is fixed
    before the step's sums are known; so noise of a later step is never drawn here.
    """

    def __init__(
        self, like: Mapping[str, Tensor], stddev: float, stream: Stream, grid_step: float | None = None
    ) -> None:
        shapes = {name: tuple(value.shape) for name, value in like.items()}
        self._drawn_for: object = (shapes, stddev, grid_step)
        thread = ThreadPoolExecutor(1, thread_name_prefix="dpose-noise")
        self._drawn = thread.submit(lambda: list(_draws(shapes, stddev, stream, grid_step)))
        thread.shutdown(wait=False)

    def take(self, shapes: Mapping[str, Shape], stddev: float, grid_step: float | None) -> Iterator[Tensor]:
        """The noise, tensor by tensor in the order of their names.

        Raises:
            ValueError: it was drawn for others, or taken before.
        """
        if self._drawn_for != (dict(shapes), stddev, grid_step):
            raise ValueError("noise is for the sums alone that it was drawn for, and for one time")
        self._drawn_for = None
        return iter(self._drawn.result())


def add_gaussian(
    sums: Mapping[str, Tensor],
    stddev: float,
    stream: Stream | DrawnAhead,
    grid_step: float | None = None,
) -> dict[str, Tensor]:
    """Add independent Gaussian noise to every coordinate of some tensors.

    **Guarantee.** Neighbours: whatever `sums` was computed for. Sensitivity: if neighbouring data move all
    tensors together by at most D in L2 norm, this is one Gaussian mechanism with noise multiplier `stddev` /
    D; the division by D is the caller's. Noise: N(0, stddev^2) on each coordinate, tensors in the order of
    their names. Post-processing: rounding.

    With `grid_step` all of it is exact: sums are whole multiples of the step, and get noise that is rounded to whole
    multiples, with exactly the probabilities of a rounded Gaussian (docs/proofs/exact-noise.md). As the sum lies on the
    grid, this is the Gaussian mechanism's result, rounded to it.

    Without, noise is drawn and added in float64 and the result is rounded once. Float32 noise takes few values, and
    its sum with a float32 number leaves holes among the possible results; where they lie depends on the
    private sum and shows it. In float64 the holes are 2^29 times finer, and the rounding to float32 covers
    them except for results that happen to lie closer to zero than about 2^-29 of the sum itself. That is a
    strong defence and no proof: the guarantee is proved for real numbers, and the statement says so
    (`FLOATING_POINT_CAVEAT`).

    Args:
        sums: Floating-point tensors by name, any device.
        stddev: Standard deviation of the noise, in the units of the sums, > 0.
        stream: A stream that nothing else draws from, or what was drawn ahead from one.
        grid_step: A power of two of which all sums are whole multiples, at most 2^53 of them.

    Returns:
        New tensors, each with the shape, type and device of its original.

    Raises:
        ValueError: `stddev` is not positive and finite, a tensor is not floating-point, or is off the grid, or noise
            was drawn ahead for others.
    """
    if not (math.isfinite(stddev) and stddev > 0):
        raise ValueError(f"noise needs a positive, finite standard deviation, not {stddev}")
    import torch

    shapes = {name: tuple(value.shape) for name, value in sums.items()}
    if isinstance(stream, DrawnAhead):
        drawn = stream.take(shapes, stddev, grid_step)
    else:
        drawn = _draws(shapes, stddev, stream, grid_step)
    noisy = {}
    for name in sorted(sums):
        value = sums[name]
        if not value.is_floating_point():
            raise ValueError(f"{name} is {value.dtype}; noise goes on floating-point tensors")
        # on the CPU, because some accelerators have no float64
        exact = value.detach().to(device="cpu", dtype=torch.float64)
        if grid_step is not None:
            noise = _added_whole(exact / grid_step, drawn).mul_(grid_step)
        else:
            noise = next(drawn).add_(exact)
        noisy[name] = noise.to(device=value.device, dtype=value.dtype)
    return noisy


def _draws(
    shapes: Mapping[str, Shape], stddev: float, stream: Stream, grid_step: float | None
) -> Iterator[Tensor]:
    """Noise of these shapes, in the order of their names: whole numbers of steps where there is a grid."""
    import torch

    for _, shape in sorted(shapes.items()):
        if grid_step is None:
            yield stream.gaussian(shape, stddev)
        else:
            drawn = rounded_gaussian(stddev / grid_step, math.prod(shape), stream)
            yield torch.from_numpy(drawn).view(shape)


def _added_whole(whole: Tensor, drawn: Iterator[Tensor]) -> Tensor:
    import torch

    numbers = whole.long()
    if not torch.equal(numbers.double(), whole):
        raise ValueError("a sum is off the grid that its noise lies on")
    return numbers.add_(next(drawn)).double()
