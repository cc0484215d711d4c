"""A release's record: its configuration as JSON, and the public sizes that it was bound to.

    record = plan_record(plan)                 # stands in the statement
    plan = recorded_plan(record, where)        # the same plan again, from the record alone

Everything else that a statement says follows from these two, and is computed again by `dpose verify`
(`dpose.release.recompute`). A record has one form: what is read and written again is the same JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.media.images import BACKGROUND
from dpose.privacy.json_fields import list_of, object_with, text_of, texts_of
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.ranges import exact_text, parse_decimal, parse_exact
from dpose.release.cells import Mask
from dpose.release.choosing import is_chosen
from dpose.release.config import CELLS, CHOOSABLE, Regions, ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.objects import SoundPlan
from dpose.release.operators import OPERATORS
from dpose.release.pixelization import PixelizationPlan
from dpose.release.regions import PaperRegions, PrivateRegions, PublicRegions
from dpose.release.restoration import Restoration
from dpose.release.sealing import mask_digest
from dpose.units import Unit

MOST = 10**9
"""No recorded number is larger: of frames, sides and cells."""
_SHAPE = {"frames", "height", "width", "channels", "peak"}
_COMMON = {"operator", "epsilon", "delta", "neighbours", "colour", "chroma", "restoration"}
_CELLS = {"block", "subdivide", "regions", "chosen"}
_GRID = {"grid", "clip_norm", "clip_segment"}


@dataclass(frozen=True)
class RecordedRegions(PublicRegions):
    """A public mask of which only the digest is known."""

    digest: str = ""

    @property
    def sha256(self) -> str:
        """As it was recorded."""
        return self.digest

    def blocks(self, height: int, width: int, block: int) -> Mask:
        """No block: the noise does not depend on the mask."""
        return np.zeros((-(-height // block), -(-width // block)), np.bool_)


def plan_record(plan: SoundPlan) -> dict[str, Any]:
    """The record of what a plan releases, ready for JSON."""
    config, shape, shown = plan.config, plan.shape, shown_by(plan)
    if isinstance(plan, LinearPlan):
        config = replace(config, restoration=shown)
    found: dict[str, Any] = {"config": config_record(config, shape), "shape": shape_record(shape)}
    if isinstance(plan, LinearPlan):
        found["step"] = exact_text(plan.grid)
        if plan.choice:
            found["choice"] = plan.choice
    elif plan.mask is not None:
        found["blocks_sha256"] = mask_digest(plan.mask)
    if shape.still:
        found["background"] = BACKGROUND
    return found | {"restoration": shown.to_dict()}


def shown_by(plan: SoundPlan) -> Restoration:
    """How a plan's values are restored: some operators are painted whatever was asked for."""
    return plan.restoration if isinstance(plan, LinearPlan) else plan.config.restoration


def shape_record(shape: Shape) -> dict[str, int | None]:
    """Public sizes, ready for JSON; a picture has no number of frames."""
    return {
        "frames": None if shape.still else shape.frames,
        "height": shape.height,
        "width": shape.width,
        "channels": shape.channels,
        "peak": shape.peak,
    }


def config_record(config: ReleaseConfig, shape: Shape) -> dict[str, Any]:
    """A configuration that was bound to a shape, ready for JSON: what its operator takes, nothing left to be chosen."""
    found: dict[str, Any] = {
        "operator": config.operator,
        "epsilon": exact_text(config.epsilon),
        "delta": repr(float(config.delta)),
        "neighbours": config.neighbours.resolved(shape).to_dict(),
        "colour": config.colour,
        "chroma": config.chroma,
        "restoration": config.restoration.to_dict(),
    }
    if config.operator == CELLS:
        found |= {
            "block": config.block,
            "subdivide": config.subdivide,
            "regions": _regions_record(config.regions),
            "chosen": list(config.chosen),
        }
    else:
        norm = config.clip_norm
        found |= {
            "grid": None if config.grid is None else list(config.grid),
            "clip_norm": None if norm is None else repr(float(norm)),
            "clip_segment": config.clip_segment,
        }
    return found if config.paper is None else found | {"paper": config.paper}


def _regions_record(regions: Regions | None) -> dict[str, str | None] | None:
    if regions is None:
        return None
    if isinstance(regions, PublicRegions):
        return {"kind": "public", "mask_sha256": regions.sha256}
    if isinstance(regions, PaperRegions):
        return {"kind": "paper"}
    by_segmenter, by_threshold = regions.segmenter is not None, regions.threshold is not None
    return {
        "kind": "private",
        "share": exact_text(regions.share),
        "segmenter": (regions.name or "given") if by_segmenter else None,
        "threshold": repr(float(regions.threshold or 0)) if by_threshold and not by_segmenter else None,
        "quantile": None if by_segmenter or by_threshold else repr(float(regions.quantile)),
    }


def recorded_plan(record: Mapping[str, Any], where: str) -> SoundPlan:
    """The plan that a record is of.

    Args:
        record: As it stands in a statement, which nobody has checked.
        where: The file, for errors.

    Raises:
        DposeError: the record is incomplete, or no release has it.
    """
    try:
        shape = _shape(record["shape"])
        config = _config(record["config"], shape, where)
        if config.operator == CELLS:
            return PixelizationPlan.of(config, shape)
        return LinearPlan.of(config, shape, text_of(record.get("choice", ""), "choice"))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise _incomplete("", where) from error
    except DposeError as error:
        if error.code.startswith("record-"):
            raise
        raise _incomplete(f": {error.line()}", where) from error


def _incomplete(why: str, where: str) -> DposeError:
    return DposeError("record-incomplete", f"its statement does not say how it was released{why}", where)


def _shape(values: Any) -> Shape:
    values = object_with(values, _SHAPE, "shape")
    frames = None if values["frames"] is None else _whole(values["frames"], "frames")
    height, width, channels, peak = (_whole(values[n], n) for n in ("height", "width", "channels", "peak"))
    if channels not in (1, 3) or peak not in (255, 65535):
        raise ValueError("out of range")
    return Shape.of(height, width, channels, peak, frames)


def _config(values: Any, shape: Shape, where: str) -> ReleaseConfig:
    operator = values["operator"]
    if operator != CELLS and operator not in OPERATORS:
        raise DposeError(
            "record-operator-unknown",
            f"its statement names an operator that is not known here: {operator!r}",
            where,
        )
    own = _CELLS if operator == CELLS else _GRID
    values = object_with(values, _COMMON | own, "config")
    config = ReleaseConfig(
        parse_exact(values["epsilon"], "epsilon"),
        parse_decimal(values["delta"], "delta"),
        _neighbours(values["neighbours"]),
        operator=operator,
        colour=text_of(values["colour"], "colour"),
        chroma=_optional(values["chroma"], "chroma"),
        restoration=Restoration.read(values["restoration"], where),
        **(_of_cells(values, where) if operator == CELLS else _of_grid(values)),
    )
    if not config.settled:
        raise ValueError("something is left to be chosen")
    if config.chosen != tuple(name for name in CHOOSABLE if name in config.chosen):
        raise ValueError("chosen in another way")
    if config.chosen and not is_chosen(config, shape):
        cells = ", ".join(f"{name} {getattr(config, name)}" for name in config.chosen)
        raise DposeError(
            "record-block-not-chosen",
            f"its statement says that {cells} was chosen by a public prior, which chooses another",
            where,
        )
    return config


def _neighbours(values: Any) -> Neighbours:
    found = Neighbours.read(values, Unit.PIXEL)
    if found is None:
        raise ValueError("no neighbours")
    return found


def _of_cells(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {
        "block": _whole(values["block"], "block"),
        "subdivide": _whole(values["subdivide"], "subdivide"),
        "regions": _regions(values["regions"], where),
        "chosen": texts_of(values["chosen"], "chosen"),
    }


def _of_grid(values: Mapping[str, Any]) -> dict[str, Any]:
    rows, columns, groups = (_whole(one, "grid") for one in list_of(values["grid"], "grid"))
    norm = values["clip_norm"]
    if type(values["clip_segment"]) is not bool:
        raise ValueError("neither true nor false")
    return {
        "grid": (rows, columns, groups),
        "clip_norm": None if norm is None else parse_decimal(norm, "clip_norm"),
        "clip_segment": values["clip_segment"],
    }


def _regions(values: Any, where: str) -> Regions | None:
    if values is None:
        return None
    kind = values["kind"]
    if kind == "public":
        values = object_with(values, {"kind", "mask_sha256"}, "regions")
        digest = text_of(values["mask_sha256"], "mask_sha256")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ValueError("no digest")
        return RecordedRegions(np.zeros((1, 1), np.bool_), digest)
    if kind != "private":
        raise DposeError("record-regions-unknown", f"its statement has unknown regions {kind!r}", where)
    values = object_with(values, {"kind", "share", "segmenter", "threshold", "quantile"}, "regions")
    share = parse_exact(values["share"], "share")
    if values["segmenter"] is not None:
        name = text_of(values["segmenter"], "segmenter")
        return PrivateRegions(segmenter=_segmenter_elsewhere, share=share, name=name)
    if values["threshold"] is not None:
        return PrivateRegions(threshold=parse_decimal(values["threshold"], "threshold"), share=share)
    return PrivateRegions(quantile=parse_decimal(values["quantile"], "quantile"), share=share)


def _segmenter_elsewhere(picture: NDArray[Any]) -> NDArray[Any]:
    """Stands for a segmenter of which only the name is known: no plan's noise or cost depends on it."""
    raise ValueError("the segmenter is not here")


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or not 1 <= value <= MOST:
        raise DposeError("field-not-whole", f"must be a whole number of at least 1, not {value!r}", where)
    return value


def _optional(value: Any, where: str) -> int | None:
    return None if value is None else _whole(value, where)
