"""The mechanism: y = A x + noise, then a restoration. What the plans of all operators have in common.

    plan = bind(Pixelization.of("0.5", "pixels:16"), Shape.of(1080, 1920))        # dpose.release.plans
    released = plan.release(picture, source)
    picture = released.picture()

A plan is a config bound to a shape: the operator, the noise and the cost, before anything private is looked at.
There are two. `PixelizationPlan` sums cells of each frame, and may choose finer ones from what it released first.
`LinearPlan` takes any `GridOperator`, and groups of frames. Both draw exact noise on whole numbers by a `NoiseStage`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant
from dpose.privacy.discrete import discrete_gaussian, discrete_laplace
from dpose.privacy.events import ExactEvent, Laplace
from dpose.privacy.noise import NoiseSource, Origin, Purpose, Stream
from dpose.privacy.ranges import as_given
from dpose.release.config import ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.partition import Cells, RegionSums
from dpose.release.planes import Observed, Plane
from dpose.release.restoration import PAINTED, Restoration

if TYPE_CHECKING:
    import torch
import threading

from dpose.privacy.noise import AesNoise

TYPES = {255: np.uint8, 65535: np.uint16}


@dataclass(frozen=True)
class NoiseStage:
    """Noise for one set of sums.

    Attributes:
        event: The noise's parameter and the sensitivity that it was calibrated to.
        name: Tells the stage's stream from the others'.
    """

    event: ExactEvent
    name: bytes

    def stream(self, source: NoiseSource, frame: int, sums: NDArray[np.int64]) -> Stream:
        """The bits of this stage's noise for one picture or frame.

        **Guarantee.** Of a key that may be taken up again (`Origin.KEPT`) they depend on the sums, too: the same sums
        get the same noise and are the same release; others get noise that is independent of it, so that no two
        releases can be subtracted from each other (docs/proofs/odometer.md, "A release that is taken up again").
        """
        bound = b""
        if getattr(source, "origin", None) is Origin.KEPT:
            bound = hashlib.sha256(np.ascontiguousarray(sums, "<i8").tobytes()).digest()
        return source.stream(Purpose.RELEASE, frame, self.name + bound)

    def noised(self, sums: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        """Integer sums plus exact integer noise, one draw for each."""
        if isinstance(self.event, Laplace):
            noise = discrete_laplace(self.event.scale, sums.size, stream)
        else:
            noise = discrete_gaussian(self.event.variance, sums.size, stream)
        noisy: NDArray[np.int64] = sums + noise.reshape(sums.shape)
        return noisy

    @property
    def variance(self) -> float:
        """Variance of the noise; for discrete Laplace noise 2 t^2, which is a little more than it has."""
        if isinstance(self.event, Laplace):
            return 2 * float(self.event.scale) ** 2
        return float(self.event.variance)


@dataclass(frozen=True)
class Released:
    """One released picture as whole gray levels: a published algorithm's.

    Attributes:
        cells: The partition.
        values: The cells' gray levels, uint8 or uint16, (cells, C).
        variance: Variance of the noise on each cell's sum.
        restoration: How the picture is made of them.
    """

    cells: Cells
    values: NDArray[Any]
    variance: float = 0.0
    restoration: Restoration = PAINTED

    def picture(self, device: torch.device | None = None) -> Any:
        """The picture, (H, W, C): an array, or a tensor where a device is named."""
        if device is None:
            return self._shown
        import torch

        # few operators know 16 bits without a sign; the values fit into more
        wide = torch.from_numpy(self._shown.astype(np.int64)).to(device)
        return wide.to(torch.uint8 if self.values.dtype == np.uint8 else torch.uint16)

    @cached_property
    def _shown(self) -> NDArray[Any]:
        if self.restoration == PAINTED:
            return self.cells.adjoint(self.values)
        return self.restoration.apply(self.observed())

    def observed(self) -> Observed:
        """The same as planes of means and their noise."""
        cells = self.cells
        fine = cells.fine if isinstance(cells, RegionSums) else cells
        noise = np.repeat(self.variance**0.5 / cells.areas[:, None], cells.channels, axis=1)
        levels, spread = (
            cells.adjoint(values.astype(np.float32))[:: fine.block, :: fine.block] for values in (self.values, noise)
        )
        planes = tuple(Plane(levels[..., k], spread[..., k], fine.block) for k in range(cells.channels))
        return Observed(planes, "rgb" if len(planes) == 3 else "grey", cells.height, cells.width, cells.peak)


class Plan(ABC):
    """A config bound to a picture's or clip's shape: what is released, what noise it gets and what it costs."""

    if TYPE_CHECKING:
        # fields or properties of the classes below; a property here would be the default of a field there

        @property
        def config(self) -> ReleaseConfig:
            """The configuration."""

        @property
        def shape(self) -> Shape:
            """The picture's or clip's sizes."""

    @property
    @abstractmethod
    def events(self) -> tuple[ExactEvent, ...]:
        """The events that the accountant composes."""

    @property
    @abstractmethod
    def accountant(self) -> Accountant:
        """How epsilon is computed from the events."""

    @abstractmethod
    def run(
        self, frames: Iterable[NDArray[np.uint8]], source: NoiseSource, workers: int = 1
    ) -> Iterator[NDArray[np.uint8]]:
        """Release a clip, frame by frame; memory does not depend on its length.

        **Guarantee.** As the plan's own maker says, if each clip is released once.

        Args:
            frames: uint8, (H, W, C), in order.
            source: Where the noise comes from.
            workers: Frames in work at a time, where they can be.

        Yields:
            uint8, (H, W, C), as many as there were.
        """

    @property
    def frames(self) -> int | None:
        """Number of frames; None for a picture."""
        return None if self.shape.still else self.shape.frames


def too_small(config: ReleaseConfig, what: str) -> DposeError:
    """The error that the noise for a budget is larger than `what`, 64-bit numbers, can hold."""
    return DposeError(
        "epsilon-too-small",
        f"epsilon {as_given(config.epsilon)} asks for more noise than 64-bit {what} can hold",
        fix="choose a larger epsilon",
    )


GIVEN = "the noise's key was given by the caller: anyone who made it, or used it before, can take the noise away"

_spent: set[str] = set()
_lock = threading.Lock()


def claim_noise_key(source: NoiseSource) -> tuple[bool, tuple[str, ...]]:
    """Take a source for one artefact: one key, one artefact.

    A guarantee needs noise that is secret and that is used once. Only a key that this process had from the operating
    system is known to be both, and only until it is used: what another process did with the same bytes cannot be seen
    from here.

    **Guarantee.** A key from the operating system serves one release in the life of this process; a second one with the
    same key, also in another source or with other settings, is refused. Across processes: a key that is unpickled is
    one that a caller gave, and a source whose key crossed a fork is refused. What is not seen: the same secret bytes
    put into two processes through the interpreter's memory.

    Args:
        source: Where the noise of the release will come from.

    Returns:
        True if nothing may be guaranteed, and what the statement must say besides.

    Raises:
        RuntimeError: the key was used before, or in another process.
    """
    if not isinstance(source, AesNoise):
        return True, (GIVEN,)
    if source.origin is Origin.SEED:
        return True, ()
    if source.origin is not Origin.FRESH:
        return True, (GIVEN,)
    if source.forked:
        raise RuntimeError("a source of noise cannot be used on both sides of a fork; noise would repeat")
    with _lock:
        if source.key_id in _spent:
            raise RuntimeError("a key was used for a release twice; noise would repeat")
        _spent.add(source.key_id)
    return False, ()
