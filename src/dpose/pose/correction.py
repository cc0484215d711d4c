"""A linear correction of the joints that a frozen model finds, solved from one sum over people.

    codec = CorrectedCodec(base, joints, directions, side)     # outputs (*the base's, moves)
    fit_directions(model, crops, targets)                      # centre, whitened directions, scale: of public people
    weight = model.head.solve(gradient, stddev, units)         # of one noised mean gradient

A person's features are the 2J coordinates of the joints that the base finds, x, in shares of the picture's longer side.
They enter through k whitened directions of public people: z = [V^T (x - mean), 1] / c. Joint j is moved by W_j z shares
of the side. At W = 0 the gradient of the loss is -r z^T / J, where r is what the base is wrong by, cut off at `FAR`:
the statistic X^T R of a regression. So one clipped and noised sum of it holds all that the solution needs
(docs/proofs/dp-head.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from dpose.pose.outputs import Codec, Outputs

FAR = 0.06
"""Distance, as a share of the picture's side, at which a joint's residual is cut off: beyond it labels are wrong or
sides exchanged more often than a linear map could help."""


class CorrectedHead(nn.Module):
    """Another codec's head, and a linear correction of its joints.

    Attributes:
        facts: Of public people: the scale c, the variance of one coordinate of a person's statistic; then of each joint
            the share of people in whom it is labelled.
    """

    mean: Tensor
    basis: Tensor
    facts: Tensor

    def __init__(self, base: nn.Module, codec: CorrectedCodec) -> None:
        super().__init__()
        self.base, self._codec = base, codec
        features = 2 * codec.joints
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("basis", torch.zeros(features, codec.directions))
        self.register_buffer("facts", torch.cat([torch.tensor([1.0, 0.0]), torch.ones(codec.joints)]))
        self.moves = nn.Linear(codec.directions + 1, features, bias=False)
        nn.init.zeros_(self.moves.weight)

    def forward(self, maps: Tensor | tuple[Tensor, ...]) -> Outputs:
        """Convert the backbone's result to the base's outputs and moves (N, J, 2), shares of the side."""
        outputs = cast(Outputs, self.base(maps))
        return (*outputs, self.moves(self.directed(outputs)).unflatten(1, (-1, 2)))

    def directed(self, outputs: Outputs) -> Tensor:
        """Return z (N, k + 1) of the base's outputs: features in the directions, and 1, over c."""
        z = (self._codec.features(outputs).to(self.mean) - self.mean) @ self.basis
        return torch.cat([z, torch.ones_like(z[:, :1])], -1) / self.facts[0]

    def moment(self, outputs: Outputs) -> Tensor:
        """Return a loss (N,) of a model's outputs, whose gradient holds z z^T in its first k + 1 rows.

        In shares of the mean of its norm on public people, (k + 1) / c^2; k + 1 is at most 2J.
        """
        z = self.directed(outputs[:-1])
        moved = outputs[-1].flatten(1)[:, : z.shape[1]]
        return (moved * z).sum(-1) * (self.facts[0] ** 2 / z.shape[1])

    def solve(self, gradient: Tensor, stddev: float, units: int, moment: Tensor | None = None) -> Tensor:
        """Return the weights that a noised mean gradient at weights of 0 tells.

        Whitened features have, on public people, a second moment of 1 / c^2, so each direction is a regression by
        itself; with a private moment its eigenvectors are such directions. Each is shrunk by the share of its square
        that noise and sampling do not explain (James and Stein 1961, positive part, over a direction's 2J coordinates).

        Args:
            gradient: (2J, k + 1), the mean of -r z^T / J over people, noised.
            stddev: Standard deviation of the noise on each coordinate.
            units: Number of people, public.
            moment: (2J, k + 1), the mean of the gradients of `moment`, noised alike; None for that of public people.
        """
        joints = self._codec.joints
        scale, spread = self.facts[:2].double()
        statistic = -gradient.double()
        size = statistic.shape[1]
        values = torch.ones(size).to(statistic) / scale**2
        turn = torch.diag(torch.ones_like(values))
        if moment is not None:
            square = moment[:size].double() * (size / scale**2)
            values, turn = torch.linalg.eigh((square + square.T) / 2)
            # the largest eigenvalue that its noise alone would have: no direction counts for less (Wang 2018)
            values = values + (stddev * math.sqrt(2 * size) * size / scale**2 - values[0]).clamp_min(0)
        turned = statistic @ turn
        explained = 2 * joints * (stddev**2 + spread / units)
        kept = (1 - explained / turned.square().sum(0).clamp_min(1e-30)).clamp_min(0)
        rates = self.facts[2:].double().repeat_interleave(2)[:, None]
        solution: Tensor = (turned * (kept / values)) @ turn.T * joints / rates
        return solution.to(gradient)


@dataclass(frozen=True)
class CorrectedCodec:
    """Codec of a model whose joints are corrected (`dpose.pose.outputs.Codec`): the base's outputs, then moves.

    Attributes:
        base: The codec of the outputs that are corrected.
        joints: Number of joints J.
        directions: Number of directions k.
        side: Longer side of the picture, pixels.
    """

    base: Codec
    joints: int
    directions: int
    side: int

    joint_layers: Mapping[str, int] | None = None
    bin_layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "joint_layers", {})

    @property
    def export_names(self) -> tuple[str, ...]:
        """See `Codec`."""
        return (*self.base.export_names, "moves")

    @property
    def sigma(self) -> float:
        """See `Codec`."""
        return self.base.sigma

    @property
    def fresh(self) -> float:
        """See `Codec`."""
        return self.base.fresh

    @property
    def untaught(self) -> tuple[str, ...]:
        """See `Codec`."""
        return tuple(f"base.{layer}" for layer in self.base.untaught)

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> CorrectedHead:
        """See `Codec`."""
        return CorrectedHead(self.base.head(channels, joints, map_size), self)

    def features(self, outputs: Outputs) -> Tensor:
        """Return the features (N, 2J) of the base's outputs, without a gradient to them."""
        places, _ = self.base.decode(tuple(output.detach() for output in outputs))
        return (places / self.side - 0.5).flatten(1)

    def residuals(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """Return (N, J, 2), what remains to be moved in shares of the side, 0 for joints that are not visible."""
        places, _ = self.decode(outputs)
        wanted = torch.where((visible > 0)[..., None], keypoints.to(places), places.detach())
        return (wanted - places) / self.side

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """See `Codec`."""
        places, scores = self.base.decode(outputs[:-1])
        return places + self.side * outputs[-1], scores

    def loss(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """See `Codec`: the base's own loss, and Huber's of each joint's residual after the correction.

        The correction's gradient is that of Huber's alone and does not reach the base.
        """
        fixed = (*(output.detach() for output in outputs[:-1]), outputs[-1])
        left = self.residuals(fixed, keypoints, visible).square().sum(-1)
        # the square root only where its gradient is finite: below FAR the loss is the square itself
        far = left.clamp_min(FAR**2).sqrt()
        moved = torch.where(left > FAR**2, FAR * (far - FAR / 2), left / 2).sum(-1) / self.joints
        return self.base.loss(outputs[:-1], keypoints, visible) + moved

    def mirror(self, outputs: Outputs, mirrored: Outputs, partner: Tensor) -> Outputs:
        """See `Codec`."""
        turned = mirrored[-1][:, partner]
        turned = torch.stack([-turned[..., 0], turned[..., 1]], -1)
        return (*self.base.mirror(outputs[:-1], mirrored[:-1], partner), (outputs[-1] + turned) / 2)

    def chance(self) -> float:
        """See `Codec`."""
        return self.base.chance()

    def explain(self) -> str:
        """See `Codec`."""
        return f"{self.base.explain()}; then joint j is moved by {self.side} * moves[j, 0:2]"
