"""Projection during a run: which public units the subspace is fitted on, when, and what it is worth (PDP-SGD).

The units are drawn by a stream of their own, at the step's weights. Neither depends on which private units were
sampled, so the subspace is a function of public data and of what has been released already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpose.errors import DposeError
from dpose.privacy.noise import NoiseSource, Purpose
from dpose.training.gradients import Params
from dpose.training.methods import SubspaceConfig
from dpose.training.step import Engine
from dpose.training.subspace import Subspace, fit_subspace, project_onto, random_subspace


@dataclass
class Projection:
    """The subspace of a run and its age.

    Attributes:
        config: What to project onto.
        noise: Where the draws come from.
        context: A digest of plan and data; part of every stream's derivation.
        engine: Over the public units; None for the kinds that use none.
        subspace: The present one; None before the first step, and always for the kind "identity".
        fitted: The step it was fitted at.
    """

    config: SubspaceConfig
    noise: NoiseSource
    context: bytes
    engine: Engine | None
    subspace: Subspace | None = None
    fitted: int = 0

    def __post_init__(self) -> None:
        units = len(self.engine.loader.dataset) if self.engine else 0
        if self.config.kind == "public" and units < self.config.units:
            raise DposeError(
                f"the subspace is to be fitted on {self.config.units} public units, there are {units}",
                "--public",
                "give more public data, or lower subspace.units",
            )

    def apply(self, gradient: Params, params: Params, step: int) -> tuple[Params, Mapping[str, float]]:
        """The noised `gradient` of step `step`, projected, and the diagnostics of that.

        **Guarantee.** Post-processing of `gradient`: the subspace is made from public units and from `params`, which
        the releases before this step determine.
        """
        if self.config.kind == "identity":
            return gradient, {}
        if self.subspace is None or step - self.fitted >= self.config.refresh:
            self.subspace = (
                None  # the old directions go before the new ones come: each set may take a gigabyte
            )
            self.subspace, self.fitted = self._fit(params, step), step
        projected, survives = project_onto(gradient, self.subspace)
        found = {
            "subspace_directions": float(self.subspace.directions),
            "subspace_rank": float(self.subspace.rank),
            "surviving_norm": survives,
            "subspace_age": float(step - self.fitted),
        }
        if self.subspace.energy is not None:
            found["subspace_energy"] = self.subspace.energy
            found["public_gradients_not_finite"] = float(self.subspace.dropped)
        return projected, found

    def _fit(self, params: Params, step: int) -> Subspace:
        engine, config = self.engine, self.config
        rng = self.noise.stream(Purpose.SUBSPACE, step, self.context).generator()
        if engine is None:
            return random_subspace(params, config.rank, rng)
        drawn = rng.choice(len(engine.loader.dataset), config.units, replace=False)
        device = next(iter(params.values())).device
        batches = engine.loader.micro_batches(sorted(int(i) for i in drawn), step, engine.views_at_once)
        return fit_subspace(
            engine.task, engine.model, params, (batch.to(device) for batch in batches), config.rank
        )
