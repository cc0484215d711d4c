"""The gradient that a step hands to the optimizer: a method's parts, put together.

    dp-sgd      noised(private)
    pdp-sgd     projected(noised(private))
    fdp-sgd               noised(private)  + w * plain(public views)
    fpdp-sgd    projected(noised(private)) + w * plain(public views)
    public-only                                  plain(public views)
    non-private plain(data)

Each part draws its batch from a stream of its own. The parts meet here, after the noise (seed 003, equations 8 to 11).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose.training.distributed import ProcessGroup
from dpose.training.gradients import Params
from dpose.training.guards import only_gradients
from dpose.training.projection import Projection
from dpose.training.step import Engine, global_norm, plain_batches, plain_gradient, private_gradient


@dataclass(frozen=True)
class StepDiagnostics:
    """What a step may tell besides its gradient: settings, and post-processing of noised sums and public data.

    Attributes:
        shown: For every step's line in the log.
        diagnostics: Of the projection; empty without one.
    """

    shown: dict[str, float]
    diagnostics: dict[str, float]


class Updates:
    """The gradients of a run, step by step.

    Args:
        private: Clips and noises; None for a method that does not.
        plain: Over public views, or over data that nobody needs protected; None for a method without.
        weight: Of the plain gradient beside a noised one.
        projection: Of the noised gradient; None for a method without.
        first: The step to begin with.
        ranks: Which process of the run this is.
    """

    def __init__(
        self,
        private: Engine | None,
        plain: Engine | None,
        weight: float,
        projection: Projection | None,
        first: int,
        ranks: ProcessGroup,
    ) -> None:
        self.ranks = ranks
        self.private, self.plain, self.weight, self.projection = private, plain, weight, projection
        self._batches: Iterator[NDArray[np.int64]] | None = plain_batches(plain, first) if plain else None

    def gradient(self, params: Params, step: int, chain: bytes = b"") -> tuple[Params, StepDiagnostics]:
        """The gradient of step `step` at `params`, and what may be told of it.

        Args:
            params: The weights.
            step: Its number.
            chain: A digest of all that was released before.

        Returns:
            The gradient, the same in every process; and what the first process found.
        """
        shown: dict[str, float] = {}
        diagnostics: dict[str, float] = {}
        total: Params = {}
        if self.private:
            with only_gradients(self.private.model):
                total = private_gradient(self.private, params, step, chain)
            shown["noisy_gradient_norm"] = global_norm(total)
            if self.projection and self.ranks.first:
                total, found = self.projection.apply(total, params, step)
                diagnostics.update(found)
        if self.plain and self._batches:
            gradient, loss = plain_gradient(self.plain, params, next(self._batches), step)
            shown["public_loss" if self.private else "loss"] = loss
            if self.private:
                shown["public_gradient_norm"] = global_norm(gradient)
                total = {name: value + self.weight * gradient[name] for name, value in total.items()}
            else:
                total = gradient
        return self.ranks.from_first(total), StepDiagnostics(shown, diagnostics)
