"""What a head gives and where joints are: every codec by name, dpose's own and those that were registered.

A codec alone knows what a head's outputs mean. All else passes them on to it: task, metric, prediction, export.

register_codec("mine", lambda config: MyCodec(config.input_size))
PoseModel(PoseConfig(codec="mine"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn

from dpose.errors import DposeError
from dpose.pose.blaze_codec import BlazePoseCodec
from dpose.pose.heatmap import HeatmapCodec
from dpose.pose.outputs import CodecSettings, Outputs
from dpose.pose.regression import RegressionCodec
from dpose.pose.rtmpose import RtmposeCodec
from dpose.pose.simcc import SimccCodec

if TYPE_CHECKING:
    from dpose.pose.backbones import Backbone


class Codec(Protocol):
    """How a head's outputs and joints' places in the crop belong together.

    Places are pixels of the crop, x then y; whole numbers are pixel centres. One codec belongs to one `PoseConfig`.
    """

    @property
    def export_names(self) -> tuple[str, ...]:
        """A name for each of the outputs, in a file that the model is exported to."""

    @property
    def sigma(self) -> float:
        """`PoseConfig.sigma`, or what stands for its 0."""

    @property
    def joint_layers(self) -> Mapping[str, int] | None:
        """The layers of the head whose rows belong to joints, one joint's after another's, and how many a joint has.

        All others are shared by the joints. Empty where the head is made for its joints and no others; None where one
        head serves every skeleton that the codec can be made for.
        """

    @property
    def fresh(self) -> float:
        """How far from 0 the weights of a fresh joint lie, in shares of torch's own start of such a layer."""

    @property
    def untaught(self) -> tuple[str, ...]:
        """The layers of the head that the loss does not reach: no strategy trains them, or they would drift."""

    @property
    def bin_layers(self) -> tuple[str, ...]:
        """The linear layers of the head from a joint's map to the logits of an axis' bins; none where there are none.

        Dividing all of them by a number divides the logits; resampling them makes a head for another size of pictures.
        """

    def head(self, channels: int, joints: int, map_size: tuple[int, int]) -> nn.Module:
        """The fresh head.

        Args:
            channels: Of the map.
            joints: Of the skeleton, J.
            map_size: (h, w) of the map.

        Returns:
            From what the backbone gives, a map (N, channels, h, w), to the outputs.
        """

    def loss(self, outputs: Outputs, keypoints: Tensor, visible: Tensor) -> Tensor:
        """The loss of each view, from that view alone; safe under `vmap(grad(...))`.

        Args:
            outputs: Of V views.
            keypoints: (V, J, 2) pixels. Of joints that are not visible they are never read, and may be NaN.
            visible: (V, J); a joint counts where this is > 0.

        Returns:
            (V,), >= 0. The sum over joints divided by J, the skeleton's number and not that of the joints seen: no
            view's gradient is scaled up because few of its joints are visible.
        """

    def decode(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Places (N, J, 2) in pixels and scores (N, J) in [0, 1], in the outputs' dtype."""

    def mirror(self, outputs: Outputs, mirrored: Outputs, partner: Tensor) -> Outputs:
        """The average of what a head gives of crops and of the same crops mirrored, as of the crops.

        Args:
            outputs: Of N crops.
            mirrored: Of the mirrored crops.
            partner: (J,), for each joint the one that it becomes in a mirror.
        """

    def chance(self) -> float:
        """What scores are near where the model knows nothing, in (0, 1)."""

    def explain(self) -> str:
        """How `decode` finds a joint, as formulas with the outputs' names, for readers of an exported file.

        Two codecs of one text read outputs alike.
        """


@dataclass(frozen=True)
class CodecEntry:
    """How a codec is made.

    Attributes:
        make: From a configuration, whose `sigma` may be 0.
        maps: Whether its head takes any backbone's map of features. If not, it is for those backbones that name it.
    """

    make: Callable[[CodecSettings], Codec]
    maps: bool = True


CODECS: dict[str, CodecEntry] = {
    "simcc": CodecEntry(SimccCodec.of),
    "heatmap": CodecEntry(HeatmapCodec.of),
    "heatmap-deconv": CodecEntry(partial(HeatmapCodec.of, growth="transposed")),
    "regression": CodecEntry(RegressionCodec.of),
    "blazepose": CodecEntry(BlazePoseCodec.of, maps=False),
    "rtmpose": CodecEntry(RtmposeCodec.of, maps=False),
    # of weights from elsewhere, which have learnt other places for a cell
    "vitpose": CodecEntry(partial(HeatmapCodec.of, growth="interpolated", places="corners"), maps=False),
    "vitpose-classic": CodecEntry(
        partial(HeatmapCodec.of, growth="transposed", places="corners"), maps=False
    ),
    "heatmap-msra": CodecEntry(partial(HeatmapCodec.of, places="first"), maps=False),
    "heatmap-udp": CodecEntry(partial(HeatmapCodec.of, places="corners"), maps=False),
}
"""By name; the first is that of configurations that name none and of backbones that have no codec of their own."""

DEFAULT = "simcc"


def register_codec(name: str, make: Callable[[CodecSettings], Codec], *, maps: bool = True) -> None:
    """Make a codec known by its name: see `CodecEntry`.

    Raises:
        DposeError: the name is taken.
    """
    if name in CODECS:
        raise DposeError("codec-exists", "there is a codec of this name already", name, "choose another name")
    CODECS[name] = CodecEntry(make, maps)


def codecs_for(backbone: Backbone) -> tuple[str, ...]:
    """The names of the codecs that a backbone can have, its own first."""
    maps = tuple(name for name, entry in CODECS.items() if entry.maps)
    return tuple(dict.fromkeys((*backbone.codecs, *(maps if backbone.maps or not backbone.codecs else ()))))


def codec_of(config: CodecSettings) -> Codec:
    """The codec of a configuration.

    Raises:
        DposeError: nobody has registered it, or it cannot be with the configuration's other values.
    """
    if config.codec not in CODECS:
        raise DposeError(
            "codec-unknown",
            "there is no such codec",
            f"codec {config.codec}",
            f"choose from {', '.join(CODECS)}",
        )
    return CODECS[config.codec].make(config)
