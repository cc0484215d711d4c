"""BlazePose's codec: coordinates of 39 points, refined by heat maps and mixed into the joints of a skeleton.

A skeleton's joints are points of BlazePose, or weighted sums of them where it has no such point: the pelvis is the
middle of the hips, the top of the head lies beyond the ears (`dpose.pose.skeletons.joint_map`). So one head serves
every skeleton whose joints can all be derived, and training for another one starts with all that the head knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.pose.blazepose import POINTS, SIDE, STRIDE, BlazePoseHead, refined
from dpose.pose.outputs import CodecSettings, Outputs
from dpose.pose.skeletons import BLAZEPOSE, SKELETONS, JointMap, joint_map

HEAT_SIGMA = 1.6
"""Standard deviation, in cells, of the Gaussian in a heat map, as in the published networks' outputs on photographs."""
HEAT_SHARE = 0.0005
"""Weight of a nat of a heat map's cross-entropy relative to a distance of one picture side."""
BEND = 0.02
"""Distance, as a share of the picture's side, below which the loss is quadratic (Huber)."""


@dataclass(frozen=True)
class BlazePoseCodec:
    """Codec of BlazePose's outputs (`dpose.pose.outputs.Codec`).

    The loss of a joint is Huber's of its distance, in shares of the picture's side, plus the cross-entropy of its heat
    map if the joint is a point of its own and lies in the picture.

    Attributes:
        skeleton: A name in `dpose.pose.skeletons.SKELETONS`.
        joint_layers: None: the outputs are the same for every skeleton.
        untaught: Layers for depth, visibility and presence of a person, which are not labelled.
    """

    skeleton: str = "blazepose"
    export_names: tuple[str, ...] = ("coordinates", "heat_maps", "presence")
    sigma: float = HEAT_SIGMA * STRIDE
    joint_layers: Mapping[str, int] | None = None
    fresh: float = 1.0
    bin_layers: tuple[str, ...] = ()
    untaught: tuple[str, ...] = ("facts", "presence")
    _map: JointMap = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        way = joint_map(BLAZEPOSE, self.skeleton, predicted=True)
        if way.missing:
            names = [SKELETONS[self.skeleton].joints[joint] for joint in way.missing]
            raise DposeError(
                "skeleton-unsupported",
                f"BlazePose has no point for {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}",
                f"skeleton {self.skeleton}",
                "train another backbone for these joints",
            )
        object.__setattr__(self, "_map", way)

    @classmethod
    def of(cls, config: CodecSettings) -> BlazePoseCodec:
        """Create the codec of a configuration."""
        return cls(config.skeleton)

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> nn.Module:
        """See `Codec`; `channels` are the trunk's two numbers."""
        return BlazePoseHead(channels)  # type: ignore[arg-type]

    def points(self, outputs: Outputs) -> Tensor:
        """Return (N, 39, 2) pixels: the coordinates, refined by the heat maps."""
        coordinates, heat, _ = outputs
        return refined(coordinates[..., :2], heat)

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """See `Codec`; a joint's score is the probability that its point can be seen, or the least of its points."""
        return self._mixed(self.points(outputs)), self._scores(torch.sigmoid(outputs[0][..., 3]))

    def loss(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """See `Codec`."""
        coordinates, heat, _ = outputs
        seen = visible > 0
        wanted = torch.where(seen[..., None], keypoints.to(coordinates), torch.zeros_like(coordinates[..., :1, :2]))
        apart = (self._mixed(coordinates[..., :2]) - wanted) / SIDE
        far = F.huber_loss(apart, torch.zeros_like(apart), reduction="none", delta=BEND).sum(-1) / BEND
        sources, targets = zip(*self._map.shared, strict=True)
        surprise, inside = heat_loss(_picked(heat, sources, -3), _picked(wanted, targets, -2))
        of_maps = dict(zip(targets, (surprise * inside).unbind(-1), strict=True))
        nothing = torch.zeros_like(far[..., 0])
        maps = torch.stack([of_maps.get(joint, nothing) for joint in range(far.shape[-1])], -1)
        return ((far + HEAT_SHARE * maps) * seen).sum(-1) / seen.shape[-1]

    def mirror(self, outputs: Outputs, mirrored: Outputs, partner: Tensor) -> Outputs:
        """See `Codec`; the partners are those of the 39 points, whatever skeleton they are mixed into."""
        order = torch.tensor([*BLAZEPOSE.flip_order, *range(len(BLAZEPOSE), POINTS)], device=partner.device)
        coordinates, heat, presence = mirrored
        turned = coordinates[:, order].clone()
        turned[..., 0] = SIDE - 1 - turned[..., 0]
        back = heat[:, order].flip(-1)
        return (outputs[0] + turned) / 2, (outputs[1] + back) / 2, (outputs[2] + presence) / 2

    def chance(self) -> float:
        """See `Codec`."""
        return 0.5

    def explain(self) -> str:
        """See `Codec`."""
        return (
            "point p: coordinates[p, 0:2], moved to the mean of the cells of heat_maps[p] within 3 cells of it, "
            f"weighted by their sigmoids, times {STRIDE}, where one of these reaches 0.5; "
            f"score sigmoid(coordinates[p, 3]); {self.skeleton}: weighted sums of points"
        )

    def _mixed(self, points: Tensor) -> Tensor:
        """Joints (..., J, 2) as weighted sums of points (..., 39, 2)."""
        each = points.unbind(-2)
        made = {target: each[source] for source, target in self._map.shared}
        for target, parents in self._map.derived:
            made[target] = torch.stack([weight * each[source] for source, weight in parents]).sum(0)
        return torch.stack([made[joint] for joint in range(len(made))], -2)

    def _scores(self, points: Tensor) -> Tensor:
        """Convert scores of points (N, 39) to scores of joints (N, J)."""
        parents: dict[int, tuple[int, ...]] = {t: (s,) for s, t in self._map.shared}
        parents.update((t, tuple(s for s, _ in sources)) for t, sources in self._map.derived)
        return torch.stack([points[..., list(parents[t])].amin(-1) for t in range(len(parents))], -1)


def _picked(values: Tensor, places: Sequence[int], dim: int) -> Tensor:
    """As by an index, which a CUDA graph would have to copy from the host."""
    each = values.unbind(dim)
    return torch.stack([each[place] for place in places], dim)


def heat_loss(heat: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of heat maps and a Gaussian about each position, above its least value, and a mask.

    Args:
        heat: (..., J, h, w) logits, `STRIDE` pixels a cell.
        places: (..., J, 2) pixels of the crop, finite.

    Returns:
        (..., J) nats, the sum over cells, >= 0; and (..., J) bool, false if the position is outside the map.
    """
    rows, columns = heat.shape[-2:]
    cell = places / STRIDE
    inside = (cell > -1).all(-1) & (cell[..., 0] < columns) & (cell[..., 1] < rows)
    x, y = (torch.arange(n, dtype=heat.dtype, device=heat.device) for n in (columns, rows))
    near = cell.clamp(-2.0, float(max(rows, columns)) + 1)
    distance = (y - near[..., 1, None]).square()[..., :, None] + (x - near[..., 0, None]).square()[..., None, :]
    wanted = torch.exp(-distance / (2 * HEAT_SIGMA**2))
    surprise = F.binary_cross_entropy_with_logits(heat, wanted, reduction="none")
    least = torch.special.entr(wanted) + torch.special.entr(1 - wanted)
    return (surprise - least).sum((-2, -1)), inside
