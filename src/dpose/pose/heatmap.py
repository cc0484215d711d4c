"""Heat maps: a joint's position as the peak of a map of its own; and the codecs of them.

The labels are those of Xiao et al. 2018 ("Simple baselines for human pose estimation and tracking"), a Gaussian at
the joint, with its centre where the joint is and not in the middle of the nearest cell (Zhang et al. 2020,
"Distribution-aware coordinate representation for human pose estimation", section 3.2), and positions are decoded as
there.

With r pixels to a cell, cell c covers the pixels from c * r - 1/2 to (c + 1) * r - 1/2: its middle is pixel
c * r + (r - 1) / 2. Weights of other libraries were trained with other positions (`Places`). Nothing here has control
flow that depends on data, or mixes views.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.pose.outputs import CodecSettings, Outputs, numbers_like

FILTERS = 256
"""Largest number of channels of a transposed convolution; Xiao et al. 2018, section 2."""

FLOOR = 1e-3
"""Least value of a map before its logarithm: values below are noise, whose logarithm would outweigh the peak's."""


Places = Literal["middle", "first", "corners"]
"""Which pixel of the crop cell c of N pixels in n cells stands for, on each axis.

"middle": its middle pixel, c * r + (r - 1) / 2 with r = N / n. "first": c * r, as in the code of Xiao et al. 2018 and
what was made after it, mmpose's `MSRAHeatmap` among it. "corners": c * (N - 1) / (n - 1): the first and the last
cell are the first and the last pixel: Huang et al. 2020, "The devil is in the details: delving into unbiased data
processing for human pose estimation" (UDP); ViTPose learnt so.
"""
Growth = Literal["shuffled", "transposed", "interpolated"]
"""How a head enlarges maps: "shuffled" by its 1x1 convolution, which gives a cell's map for each of its parts;
"transposed" by transposed convolutions before it, each of which doubles the map; "interpolated" by interpolation before
a 3x3 convolution.
"""


def inside(keypoints: Tensor, visible: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return positions that are safe to compute with, and the joints to learn from: visible ones inside the picture.

    Args:
        keypoints: (..., J, 2) pixels. Those of joints that are not visible are not read: they may be NaN.
        visible: (..., J); a joint counts where this is > 0.
        size: (H, W) of the picture, pixels.

    Returns:
        Positions (..., J, 2), those that do not count replaced by the picture's first pixel, and weights (..., J) of 0
        or 1, in the dtype of `keypoints`.
    """
    height, width = size
    x, y = keypoints[..., 0], keypoints[..., 1]
    counts = (visible > 0) & (x >= -0.5) & (x <= width - 0.5) & (y >= -0.5) & (y <= height - 0.5)
    places = torch.where(counts[..., None], keypoints, torch.zeros_like(keypoints))
    return places, counts.to(keypoints.dtype)


def gaussians(cells: Tensor, shape: tuple[int, int], sigma: float) -> Tensor:
    """Maps (..., h, w) of a Gaussian of `sigma` cells and height 1 around each of `cells` (..., 2), column then row."""
    axes = []
    for centre, count in ((cells[..., 0], shape[1]), (cells[..., 1], shape[0])):
        axis = torch.arange(count, dtype=cells.dtype, device=cells.device)
        axes.append(torch.exp(-0.5 * ((axis - centre[..., None]) / sigma).square()))
    columns, rows = axes
    return rows[..., :, None] * columns[..., None, :]


def peaks(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Find the position and value of each map's maximum, between the cells.

    The largest cell, moved to the top of the parabola through the logarithms of it and its eight neighbours (Zhang et
    al. 2020, equation 9; without their smoothing of the map), by half a cell an axis at most: exact for a Gaussian.
    At the border the nine cells are those whose middle is one cell further in. If there is no top, or the map has
    fewer than three cells on an axis, the largest cell itself.

    Args:
        maps: (N, J, h, w).

    Returns:
        Cells (N, J, 2), column then row, and values (N, J).
    """
    height, width = maps.shape[-2:]
    value, index = maps.flatten(2).max(dim=-1)
    best = torch.stack([index % width, index // width], dim=-1)
    if min(height, width) < 3:
        return best.to(maps.dtype), value
    middle = torch.minimum(best.clamp(min=1), best.new_tensor([width - 2, height - 2]))
    around = torch.arange(-1, 2, device=maps.device)
    steps = (around[:, None] * width + around).flatten()
    nine = (middle[..., 1] * width + middle[..., 0])[..., None] + steps
    a, b, c, d, e, f, g, h, i = maps.flatten(2).gather(-1, nine).clamp(min=FLOOR).log().unbind(-1)
    x, y = (f - d) / 2, (h - b) / 2
    xx, yy, xy = f - 2 * e + d, h - 2 * e + b, (i - g - c + a) / 4
    determinant = xx * yy - xy.square()
    top = (xx < 0) & (determinant > 0)
    safe = torch.where(top, determinant, torch.ones_like(determinant))
    shift = torch.stack([xy * y - yy * x, xy * x - xx * y], dim=-1) / safe[..., None]
    moved = (middle + shift - best).clamp(-0.5, 0.5)
    return best + torch.where(top[..., None], moved, torch.zeros_like(moved)), value


class HeatmapHead(nn.Module):
    """Maps features to one map a joint: transposed convolutions if any, then one 1x1 convolution.

    The convolution gives `upsample` x `upsample` cells of a joint's map for each cell of the features.
    """

    def __init__(self, channels: int, joints: int, deconvolutions: int, upsample: int, fresh: float):
        super().__init__()
        self.upsample = upsample
        layers: list[nn.Module] = []
        filters = min(channels, FILTERS)
        for _ in range(deconvolutions):
            layers += [nn.ConvTranspose2d(channels, filters, 4, stride=2, padding=1), nn.ReLU()]
            channels = filters
        self.deconvolutions = nn.Sequential(*layers)
        self.joints = nn.Conv2d(channels, joints * upsample**2, 1)
        _quiet(self.joints, fresh)

    def forward(self, features: Tensor) -> tuple[Tensor]:
        """(N, C, h, w) to maps (N, J, h', w')."""
        maps: Tensor = self.joints(self.deconvolutions(features))
        return (F.pixel_shuffle(maps, self.upsample) if self.upsample > 1 else maps,)


class InterpolatedHead(nn.Module):
    """A map of features, its negative numbers cut off, interpolated, to one map a joint by one 3x3 convolution.

    The simple decoder of Xu et al. 2022, "ViTPose: simple vision transformer baselines for human pose estimation",
    section 3.1.
    """

    def __init__(self, channels: int, joints: int, upsample: int, fresh: float):
        super().__init__()
        self.upsample = upsample
        self.joints = nn.Conv2d(channels, joints, 3, padding=1)
        _quiet(self.joints, fresh)

    def forward(self, features: Tensor) -> tuple[Tensor]:
        """(N, C, h, w) to maps (N, J, h', w')."""
        larger = F.interpolate(
            F.relu(features), scale_factor=float(self.upsample), mode="bilinear", align_corners=False
        )
        return (self.joints(larger),)


def _quiet(layer: nn.Module, fresh: float) -> None:
    """Scale initial weights towards 0, since most of a joint's map is 0."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(fresh)


@dataclass(frozen=True)
class HeatmapCodec:
    """Codec by heat maps (`dpose.pose.outputs.Codec`): the output is maps (N, J, h, w).

    Attributes:
        input_size: (H, W) in pixels.
        ratio: Pixels per cell of a joint's map, r.
        sigma: Standard deviation of the labels' Gaussian, cells.
        upsample: Cells of a joint's map per cell of the features, on an axis.
        growth: How the head enlarges maps; transposed convolutions as in Xiao et al. 2018, without BatchNorm.
        places: Which pixel a cell stands for.
    """

    input_size: tuple[int, int]
    ratio: float
    sigma: float
    upsample: int
    growth: Growth = "shuffled"
    places: Places = "middle"

    export_names: ClassVar[tuple[str, ...]] = ("maps",)
    bin_layers: ClassVar[tuple[str, ...]] = ()
    untaught: ClassVar[tuple[str, ...]] = ()
    fresh: ClassVar[float] = 0.02
    """Initial maps are near 0, as labels are in most places: Xiao et al. 2018 start from 0.001."""

    @classmethod
    def of(cls, config: CodecSettings, *, growth: Growth = "shuffled", places: Places = "middle") -> HeatmapCodec:
        """Create the codec of a configuration; the default sigma is 1 / 32 of the rows (Xiao et al. 2018), or 1."""
        upsample = config.upsample
        if growth == "transposed" and upsample & (upsample - 1):
            raise DposeError(
                "upsample-invalid",
                "must be a power of two: each transposed convolution doubles",
                f"upsample {upsample}",
            )
        ratio = config.stride / upsample
        sigma = config.sigma or max(1.0, config.input_size[0] / ratio / 32)
        return cls(config.input_size, ratio, sigma, upsample, growth, places)

    @property
    def joint_layers(self) -> dict[str, int]:
        """See `Codec`: the last convolution."""
        return {"joints": self.upsample**2 if self.growth == "shuffled" else 1}

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> nn.Module:
        """Create a head for any size of the map."""
        if self.growth == "interpolated":
            return InterpolatedHead(channels, joints, self.upsample, self.fresh)
        doubled = self.growth == "transposed"
        doublings, rest = (self.upsample.bit_length() - 1, 1) if doubled else (0, self.upsample)
        return HeatmapHead(channels, joints, doublings, rest, self.fresh)

    def loss(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """Squared error of Xiao et al. 2018, summed over the cells of a joint's map.

        Divided by pi sigma^2, which is the sum for a map of zeros: the initial loss is near 1, whatever the size of the
        map. A joint outside the picture has weight 0.
        """
        (maps,) = outputs
        places, weight = inside(keypoints.to(maps.dtype), visible, self.input_size)
        ratio, edge = self._grid(places)
        cells = (places + edge) / ratio - edge
        wanted = gaussians(cells, (maps.shape[-2], maps.shape[-1]), self.sigma)
        joints = (maps - wanted).square().sum(dim=(-2, -1)) / (math.pi * self.sigma**2)
        return (joints * weight).sum(dim=-1) / weight.shape[-1]

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Return `peaks` in pixels: exact, up to rounding, for the labels of a sigma of at least one cell.

        The score is the largest cell's value, clamped to [0, 1]: in labels of sigma 1 it is 0.78 where the joint is at
        the corner of four cells, and 1 where it is in a cell's middle.
        """
        (maps,) = outputs
        cells, values = peaks(maps)
        ratio, edge = self._grid(cells)
        return (cells + edge) * ratio - edge, values.clamp(0.0, 1.0)

    def _grid(self, like: Tensor) -> tuple[Tensor | float, float]:
        """Ratio, of the type of `like`, and edge of x and y, where pixel = (cell + edge) * ratio - edge."""
        if self.places != "corners":
            return self.ratio, 0.5 if self.places == "middle" else 0.0
        sides = [(n - 1) / max(1.0, n / self.ratio - 1) for n in self.input_size[::-1]]
        return numbers_like(like, sides), 0.0

    def mirror(self, outputs: Outputs, mirrored: Outputs, partner: Tensor) -> Outputs:
        """Average the maps with the reflected maps of the mirrored crops.

        With "first", a reflected cell lies 1 - 1 / r cells before its position, since a mirror takes pixel x to W - 1 -
        x and cell c to w - 1 - c: the map is moved back by that, linearly between cells.
        """
        (maps,), (turned,) = outputs, mirrored
        back = turned[:, partner].flip(-1)
        if self.places == "first":
            behind = torch.cat([back[..., :1], back[..., :-1]], dim=-1)
            back = back / self.ratio + behind * (1 - 1 / self.ratio)
        return ((maps + back) / 2,)

    def chance(self) -> float:
        """Return the mean of a label over the map: the best guess for joints that may be anywhere."""
        height, width = self.input_size
        return min(1.0, 2 * math.pi * (self.sigma * self.ratio) ** 2 / (height * width))

    def explain(self) -> str:
        """The formula for the largest cell, without the refinement of `peaks` within it."""
        if self.places == "corners":
            (height, width), ratio = self.input_size, self.ratio
            across = f"{width - 1} / {width / ratio - 1:g} * column"
            down = f"{height - 1} / {height / ratio - 1:g} * row"
        else:
            middle = f" + {(self.ratio - 1) / 2:g}" if self.places == "middle" else ""
            across, down = f"{self.ratio:g} * column{middle}", f"{self.ratio:g} * row{middle}"
        return (
            f"column, row = argmax(maps[joint]), moved by up to half a cell to the top of the parabola through the "
            f"logarithms of the nine cells around it; x = {across}, y = {down}"
        )
