"""Seed 004's algorithm as printed: a dense Gaussian projection, two noises, an SVD. Its claim does not hold.

    plan = DensePlan.of(config, shape)
    for picture in plan.run(frames, source):
        ...

X (T x d) is projected to P = X R, R with entries N(0, 1/k); noise of sigma_1 goes on P, noise of sigma_2 on P^T P; the
singular vectors V of the latter are to restore the picture. The statement is of kind `paper`.

**Line 10** reads X~ = P~ (R V^t)^+ V^t: (T x k)(k x d)(k x k), which cannot be multiplied. Read here as
X~ = (P~ V) (R V)^+: the noisy rows in the basis V, times the pseudoinverse of R in the same basis. For an orthogonal V
that is P~ R^+ whatever V is (docs/proofs/video.md): the covariance, its noise and the share 1 - b of the budget change
nothing unless V is cut to fewer columns. Without the last factor, P~ (R V^t)^+, V merely scrambles the coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dpose.privacy.gaussian import gaussian_epsilon
from dpose.privacy.neighbours import ONE_FRAME, Neighbours
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.privacy.ranges import as_given, lower, upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.release.config import PAPER_K, SPLIT, Projection
from dpose.release.grid import Shape
from dpose.release.operators import Sensitivity
from dpose.release.projections import PEAK, rounded_up
from dpose.release.record import config_record, shape_record
from dpose.units import Unit

ROWS_AT_ONCE = 4096
"""Rows of R in work at a time."""
FRAMES_AT_ONCE = 256
"""Frames for which R is made once more."""

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class GaussianProjection:
    """A dense random projection of a frame's d values to k, generated in pieces and never stored as a whole.

    Attributes:
        shape: The clip's sizes.
        k: Number of values after projection.
        key: Two 64-bit words that determine R.
    """

    shape: Shape
    k: int
    key: tuple[int, int]

    def rows(self) -> Iterator[tuple[slice, Matrix]]:
        """Yield R, (d, k), in pieces: a slice of rows, and the rows."""
        scale = np.float32(1 / math.sqrt(self.k))
        for number_, start in enumerate(range(0, self.shape.values, ROWS_AT_ONCE)):
            stop = min(start + ROWS_AT_ONCE, self.shape.values)
            philox = np.random.Philox(key=np.array(self.key, np.uint64), counter=np.array([0, 0, 0, number_]))
            part = np.random.Generator(philox).standard_normal((stop - start, self.k), dtype=np.float32)
            part *= scale
            yield slice(start, stop), part

    @cached_property
    def gram(self) -> Matrix:
        """R^T R, (k, k)."""
        total = np.zeros((self.k, self.k), np.float32)
        for _, part in self.rows():
            total += part.T @ part
        return total

    @cached_property
    def gain(self) -> float:
        """The largest singular value of R, near 1 + sqrt(d / k)."""
        import scipy.linalg  # imported here: slow, and not needed by most releases

        top = scipy.linalg.eigvalsh(self.gram, subset_by_index=[self.k - 1, self.k - 1])
        return math.sqrt(max(0.0, float(top[0])))

    @cached_property
    def column_norm(self) -> float:
        """The largest norm of a row of R: the change of P per gray level of one value of a frame."""
        return max(float(np.linalg.norm(part, axis=1).max()) for _, part in self.rows())

    def apply(self, flat: NDArray[np.uint8]) -> Matrix:
        """Compute X R.

        Args:
            flat: (T, d), gray levels.

        Returns:
            float32, (T, k).
        """
        total = np.zeros((len(flat), self.k), np.float32)
        for where, part in self.rows():
            total += flat[:, where].astype(np.float32) @ part
        return total

    def adjoint(self, values: Matrix) -> Matrix:
        """Compute Y R^T.

        Args:
            values: (T, k).

        Returns:
            float32, (T, d).
        """
        total = np.empty((len(values), self.shape.values), np.float32)
        for where, part in self.rows():
            total[:, where] = values @ part.T
        return total

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """The most that all frames' projections together change between neighbours, from above, in L2 norm.

        **Guarantee.** Neighbours: as for `BlockMeans.sensitivity`, R being known. R mixes channels, so m pixels are
        s = C m values of at most 255 each. They move P by at most 255 min(gain sqrt(s), c s): R lengthens a change by
        its largest singular value at most, and c is the largest norm of a row.
        """
        scope, shape = neighbours.scope, self.shape
        most = shape.pixels * (shape.frames if scope == "clip" else 1)
        values = shape.channels * min(neighbours.count, most)
        change = min(self.gain**2 * values, (self.column_norm * values) ** 2)
        if scope not in ("clip", "frame", ONE_FRAME):
            raise ValueError(f"no neighbours of a clip: {neighbours}")
        return Sensitivity(None, rounded_up(PEAK**2 * change * (shape.frames if scope == "frame" else 1)))


def sigma_1(k: int, epsilon: float, delta: float) -> float:
    """Theorem 3: the noise on P, with theta = 255 / sqrt(k) and sigma_p = 1 / sqrt(k)."""
    theta, spread = PEAK / math.sqrt(k), 1 / math.sqrt(k)
    tail = math.log(2 / delta)
    length = math.sqrt(k + 2 * math.sqrt(k * tail) + 2 * tail)
    return theta * spread * length * math.sqrt(2 * (math.log(1 / (2 * delta)) + epsilon)) / epsilon


def sigma_2(k: int, epsilon: float, delta: float) -> float:
    """Theorem 4, as printed: theta sqrt(sqrt(2 log(1.25) / delta) / epsilon); log(1.25 / delta) may have been meant."""
    return PEAK / math.sqrt(k) * math.sqrt(math.sqrt(2 * math.log(1.25) / delta) / epsilon)


@dataclass(frozen=True)
class DensePlan:
    """Algorithm 1 of seed 004 bound to a clip's shape. Guarantees nothing.

    Attributes:
        config: The release's configuration.
        shape: The clip's sizes.
        k: Number of values of a projected frame.
        split: b, the share of the budget for P.
        columns: Number of columns of V in use; None for k, all of them, as in the paper.
    """

    config: Projection
    shape: Shape
    k: int
    split: float = SPLIT
    columns: int | None = None

    @classmethod
    def of(cls, config: Projection, shape: Shape) -> DensePlan:
        """Make the plan for clips of this shape."""
        config.check_shape(shape)
        return cls(config, shape, config.k or PAPER_K, config.split)

    @property
    def sigmas(self) -> tuple[float, float]:
        """The noise on P and on P^T P."""
        epsilon, delta = float(self.config.epsilon), self.config.delta
        rest = 1 - self.split
        return (
            sigma_1(self.k, epsilon * self.split, delta * self.split),
            sigma_2(self.k, epsilon * rest, delta * rest),
        )

    def projection(self, source: NoiseSource) -> GaussianProjection:
        """Draw a fresh R for the clip."""
        words = source.stream(Purpose.RELEASE, 0, b"paper projection").uint64(2)
        return GaussianProjection(self.shape, self.k, (int(words[0]), int(words[1])))

    def run(
        self, frames: Iterable[NDArray[np.uint8]], source: NoiseSource, workers: int = 1
    ) -> Iterator[NDArray[np.uint8]]:
        """Algorithm 1 on one clip; nothing is guaranteed. Holds P, k numbers a frame.

        Args:
            frames: uint8, (H, W, C), in order.
            source: Source of the generators' seeds.
            workers: Not used: the algorithm needs all frames at once.

        Yields:
            uint8, (H, W, C), as many as there were.
        """
        rng = source.stream(Purpose.RELEASE, 0, b"paper noise").generator()
        matrix = self.projection(source)
        walk = iter(frames)
        parts = []
        while batch := [frame.reshape(-1) for frame in islice(walk, FRAMES_AT_ONCE)]:
            parts.append(matrix.apply(np.stack(batch)))
        weights = self.weights(np.concatenate(parts), matrix.gram, rng)
        size = (self.shape.height, self.shape.width, self.shape.channels)
        for start in range(0, len(weights), FRAMES_AT_ONCE):
            some = weights[start : start + FRAMES_AT_ONCE]
            shown = np.empty((len(some), self.shape.values), np.uint8)
            for where, rows in matrix.rows():
                shown[:, where] = np.clip(np.rint(some @ rows.T), 0, PEAK)
            for picture in shown:
                yield picture.reshape(size)

    def weights(self, projected: Matrix, gram: Matrix, rng: np.random.Generator) -> Matrix:
        """Run lines 6 to 10 up to the last product: the factor that, multiplied by R^T, gives the reconstruction.

        Args:
            projected: P, (T, k).
            gram: R^T R.
            rng: Generator of both noises.

        Returns:
            (T, k).
        """
        first, second = self.sigmas
        kind = projected.dtype
        noisy = projected + rng.standard_normal(projected.shape, dtype=np.float32) * np.float32(first)
        covariance = projected.T @ projected
        covariance += rng.standard_normal(covariance.shape, dtype=np.float32) * np.float32(second)
        import scipy.linalg

        _, _, transposed = scipy.linalg.svd(covariance, overwrite_a=True, check_finite=False)
        basis = transposed[: self.columns].T
        # (R V)^+ = (V^T R^T R V)^-1 V^T R^T
        inner = basis.T @ gram @ basis
        solved = scipy.linalg.solve(inner, basis.T, assume_a="pos", check_finite=False)
        return np.asarray((noisy @ basis) @ solved, kind)

    def statement(self) -> PrivacyStatement:
        """Summarise the claim, and why it does not hold."""
        shape, config = self.shape, self.config
        first, second = self.sigmas
        return PrivacyStatement(
            kind=Kind.PAPER,
            unit=Unit.PIXEL,
            neighbours=config.neighbours.resolved(shape),
            caveats=tuple(self.faults()),
            release={
                "mechanism": "Video-DPRP as in Nken et al., Algorithm 1",
                "config": config_record(config, shape),
                "shape": shape_record(shape),
                "k": str(self.k),
                "b": as_given(self.split),
                "sigma_1": lower(first, 6),
                "sigma_2": lower(second, 6),
                "line 10": "read as (P~ V) (R V)^+",
            },
        )

    def explained(self) -> list[str]:
        """Describe the plan, and why its claim does not hold."""
        return [
            f"clip of {self.shape.frames:,} frames, {self.shape.width} x {self.shape.height}",
            f"Video-DPRP as published, k = {self.k:,}: takes minutes, and guarantees nothing",
            *self.faults(),
        ]

    def faults(self) -> list[str]:
        """Describe what does not hold, with this clip's numbers."""
        config, d, k = self.config, self.shape.values, self.k
        first, _ = self.sigmas
        claim, delta = float(config.epsilon), config.delta
        frame = PEAK * math.sqrt(d)
        pixels = 16 * self.shape.channels
        small = PEAK * math.sqrt(min(pixels, d))
        share = math.sqrt(max(0.0, 1 - k / d))
        of_frame = upper(gaussian_epsilon(frame / first, delta))
        of_pixels = upper(gaussian_epsilon(small / first, delta))
        return [
            f"Nken et al., 'Video-DPRP: A Differentially Private Approach for Visual Privacy-Preserving Video Human "
            f"Activity Recognition', claims epsilon {as_given(claim)} and delta {as_given(delta)} for any one frame",
            f"its sensitivity, 255 / sqrt(k) = {PEAK / math.sqrt(k):.3g}, is not that of a frame: a black and a white "
            f"one differ by 255 sqrt(d) = {frame:,.0f}, and the projection keeps lengths, on average. With the noise "
            f"on P, sigma_1 = {lower(first, 3)}, the true epsilon of a frame is about {of_frame}, that of 16 pixels "
            f"about {of_pixels}",
            "its noise on P^T P is made for a linear query; that matrix is quadratic in the pixels",
            "its Theorem 3 bounds lengths for an R that is not known beforehand; where R is known or used again, the "
            f"longest neighbour is about {1 + math.sqrt(d / k):.3g} times as long",
            "line 10 cannot be multiplied as printed; wherever V is applied and undone, V cancels, so that the "
            f"covariance and {1 - self.split:.0%} of the budget do nothing",
            f"the projection keeps a random {k:,} of {d:,} dimensions: without any noise the relative error of the "
            f"picture is {share:.3f}, and as nothing is subtracted before and nothing scaled after, it is nearly black",
            "the noise is in floating point, from a generator that is not cryptographic",
        ]
