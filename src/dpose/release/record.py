"""A release's record: its configuration as JSON, and the public sizes that it was bound to.

    record = plan_record(plan)                 # stands in the statement
    plan = recorded_plan(record, where)        # the same plan again, from the record alone

Everything else that a statement says follows from these two, and is computed again by `dpose verify`
(`dpose.release.recompute`). A record has one form: what is read and written again is the same JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictBool, StrictInt

from dpose.errors import DposeError
from dpose.media.images import BACKGROUND
from dpose.privacy.fields import Decimal, Exact, StatementPart, Text, optional, statement_part
from dpose.privacy.neighbours import StatedNeighbours
from dpose.privacy.ranges import exact_text
from dpose.release.config import CELLS, CHOOSABLE, Pixelization, Projection, ReleaseConfig
from dpose.release.embed import mask_digest
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan
from dpose.release.objects import SoundPlan
from dpose.release.operators import OPERATORS
from dpose.release.partition import Mask
from dpose.release.pixelization import PixelizationPlan, is_chosen
from dpose.release.regions import PaperRegions, PrivateRegions, PublicRegions, Regions
from dpose.release.restoration import Restoration
from dpose.units import Unit

MOST = 10**9
"""No recorded number is larger: of frames, sides and cells."""
Whole = Annotated[StrictInt, Field(ge=1, le=MOST)]


@statement_part
class ShapeRecord(StatementPart):
    """Public sizes, as `Shape` has them; a picture has no number of frames."""

    frames: Whole | None
    height: Whole
    width: Whole
    channels: Whole
    peak: Whole


@statement_part
class PublicRegionsRecord(StatementPart):
    """A public mask: its digest."""

    kind: Literal["public"]
    mask_sha256: Annotated[Text, Field(pattern="^[0-9a-f]{64}$")]


@statement_part
class PrivateRegionsRecord(StatementPart):
    """Regions that a first release shows, by one of three rules."""

    kind: Literal["private"]
    share: Exact
    segmenter: Text | None
    threshold: Decimal | None
    quantile: Decimal | None


@statement_part
class PaperRegionsRecord(StatementPart):
    """The published algorithm's regions, which guarantee nothing."""

    kind: Literal["paper"]


@statement_part
class ConfigRecord(StatementPart):
    """What every configuration has."""

    operator: Text
    epsilon: Exact
    delta: Decimal
    neighbours: StatedNeighbours
    colour: Text | None
    chroma: Whole | None
    restoration: dict[str, Any]


@statement_part
class CellsRecord(ConfigRecord):
    """The configuration of pixelization."""

    block: Whole | None
    subdivide: Whole
    regions: (
        Annotated[PublicRegionsRecord | PrivateRegionsRecord | PaperRegionsRecord, Field(discriminator="kind")] | None
    )
    chosen: tuple[Text, ...]
    paper: Whole | None = optional(default=None)


@statement_part
class GridRecord(ConfigRecord):
    """The configuration of any other operator."""

    grid: tuple[Whole, Whole, Whole] | None
    clip_norm: Decimal | None
    clip_segment: StrictBool
    paper: Whole | None = optional(default=None)


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
    """The restoration of a plan's values. Some operators are painted whatever the configuration says."""
    return plan.restoration if isinstance(plan, LinearPlan) else plan.config.restoration


def shape_record(shape: Shape) -> dict[str, Any]:
    """Public sizes, ready for JSON."""
    frames = None if shape.still else shape.frames
    return ShapeRecord(frames, shape.height, shape.width, shape.channels, shape.peak).to_dict()


def config_record(config: ReleaseConfig, shape: Shape) -> dict[str, Any]:
    """A configuration that was bound to a shape, ready for JSON: what its operator takes, nothing left to be chosen."""
    common = (
        CELLS if isinstance(config, Pixelization) else config.operator,
        config.epsilon,
        config.delta,
        config.neighbours.resolved(shape).stated(),
        config.colour,
        config.chroma,
        config.restoration.to_dict(),
    )
    if isinstance(config, Pixelization):
        regions = _regions_record(config.regions)
        record: ConfigRecord = CellsRecord(
            *common, config.block, config.subdivide, regions, config.chosen, config.paper
        )
    else:
        paper = 1 if config.paper else None
        record = GridRecord(*common, config.grid, config.clip_norm, config.clip_segment, paper)
    return record.to_dict()


def _regions_record(regions: Regions | None) -> PublicRegionsRecord | PrivateRegionsRecord | PaperRegionsRecord | None:
    if regions is None:
        return None
    if isinstance(regions, PublicRegions):
        return PublicRegionsRecord("public", regions.sha256)
    if isinstance(regions, PaperRegions):
        return PaperRegionsRecord("paper")
    by_segmenter, by_threshold = regions.segmenter is not None, regions.threshold is not None
    return PrivateRegionsRecord(
        "private",
        regions.share,
        (regions.name or "given") if by_segmenter else None,
        float(regions.threshold or 0) if by_threshold and not by_segmenter else None,
        None if by_segmenter or by_threshold else float(regions.quantile),
    )


def recorded_plan(record: Mapping[str, Any], where: str) -> SoundPlan:
    """The plan that a record is of.

    Args:
        record: As it stands in a statement, unchecked.
        where: The file, for errors.
    """
    try:
        shape = _shape(record["shape"])
        config = _config(record["config"], shape, where)
        if isinstance(config, Pixelization):
            return PixelizationPlan.of(config, shape)
        choice = record.get("choice", "")
        if not isinstance(choice, str):
            raise TypeError("a choice is named by a digest")
        return LinearPlan.of(config, shape, choice)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise _incomplete("", where) from error
    except DposeError as error:
        if error.code.startswith("record-"):
            raise
        raise _incomplete(f": {error.line()}", where) from error


def _incomplete(why: str, where: str) -> DposeError:
    return DposeError("record-incomplete", f"its statement does not say how it was released{why}", where)


def _shape(values: Any) -> Shape:
    found = ShapeRecord.read(values, "shape")
    if found.channels not in (1, 3) or found.peak not in (255, 65535):
        raise ValueError("out of range")
    return Shape.of(found.height, found.width, found.channels, found.peak, found.frames)


def _config(values: Any, shape: Shape, where: str) -> ReleaseConfig:
    operator = values["operator"]
    if operator != CELLS and operator not in OPERATORS:
        raise DposeError(
            "record-operator-unknown", f"its statement names an operator that is not known here: {operator!r}", where
        )
    regions = values.get("regions")
    if isinstance(regions, dict) and regions["kind"] not in ("public", "private"):
        raise DposeError("record-regions-unknown", f"its statement has unknown regions {regions['kind']!r}", where)
    record = (CellsRecord if operator == CELLS else GridRecord).read(values, "config")
    if record.paper is not None:
        raise ValueError("a published algorithm has no plan of its own")
    common: dict[str, Any] = {
        "epsilon": record.epsilon,
        "delta": record.delta,
        "neighbours": record.neighbours.of(Unit.PIXEL),
        "colour": record.colour,
        "chroma": record.chroma,
        "restoration": Restoration.read(record.restoration, where),
    }
    config: ReleaseConfig
    if isinstance(record, GridRecord):
        if record.grid is None:
            raise ValueError("no grid")
        config = Projection(
            operator=operator, grid=record.grid, clip_norm=record.clip_norm, clip_segment=record.clip_segment, **common
        )
    else:
        config = Pixelization(
            block=record.block,
            subdivide=record.subdivide,
            regions=_regions(record.regions),
            chosen=record.chosen,
            **common,
        )
    if not config.resolved:
        raise ValueError("something is left to be chosen")
    if isinstance(config, Projection):
        return config
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


def _regions(record: Any) -> Regions | None:
    if record is None:
        return None
    if isinstance(record, PublicRegionsRecord):
        return RecordedRegions(np.zeros((1, 1), np.bool_), record.mask_sha256)
    if record.segmenter is not None:
        return PrivateRegions(segmenter=_segmenter_elsewhere, share=record.share, name=record.segmenter)
    if record.threshold is not None:
        return PrivateRegions(threshold=record.threshold, share=record.share)
    if record.quantile is None:
        raise ValueError("no rule")
    return PrivateRegions(quantile=record.quantile, share=record.share)


def _segmenter_elsewhere(picture: NDArray[Any]) -> NDArray[Any]:
    """Stands for a segmenter of which only the name is known: no plan's noise or cost depends on it."""
    raise ValueError("the segmenter is not here")
