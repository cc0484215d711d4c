"""What a release's statement must say, computed again from the little that it records, and compared field by field.

A statement records sizes, block, regions (or operator and grid), neighbours and budget. All else follows:
sensitivities, noise, cost, what is public, what is taken as given, what larger things cost. So a statement is checked
by making it again. Numbers are compared exactly; those that floating point computed, within one part in a million.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpose.errors import DposeError
from dpose.privacy.events import Laplace
from dpose.privacy.neighbours import BOX, ONE_FRAME, Neighbours
from dpose.privacy.ranges import exact_text
from dpose.privacy.statement import SLACK, Kind, PrivacyStatement
from dpose.release.cells import Mask
from dpose.release.choosing import is_chosen
from dpose.release.colour import Colour
from dpose.release.colour_planes import make_planes
from dpose.release.config import CELLS, CHOOSABLE, Regions, ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.linear import LinearPlan, together_of
from dpose.release.operators import OPERATORS
from dpose.release.pixelization import PixelizationPlan
from dpose.release.planes import CHANNELS
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.restoration import METHODS, Restoration
from dpose.release.statements import CHOSEN, PROJECTION, release_statement

RULES = (
    r"the segmenter .+, run on stage one's released picture",
    r"Sobel magnitude of stage one's released blocks above \S+ gray levels",
    r"Sobel energy of stage one's released blocks above their \S+ quantile",
)
"""How the choice of private regions is told: a function of what was released, whichever it is."""
MISSING = "its statement does not say how it was released"


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


def expected(statement: PrivacyStatement, where: str) -> PrivacyStatement:
    """The statement that dpose makes for a release of the recorded sizes and settings, for the claimed budget.

    Args:
        statement: Of kind private or seeded.
        where: The file, for errors.

    Raises:
        DposeError: the record is incomplete, or no release has it.
    """
    plan = recorded_plan(statement, where)
    made = release_statement(plan, seeded=statement.kind is Kind.SEEDED)
    return made if isinstance(plan, LinearPlan) else _with_record(made, statement)


def recorded_plan(statement: PrivacyStatement, where: str) -> PixelizationPlan | LinearPlan:
    """The plan that a statement's record and budget belong to.

    Raises:
        DposeError: as `expected`.
    """
    try:
        mechanism = statement.release["mechanism"]
        if mechanism not in (CELLS, PROJECTION):
            raise ValueError("another mechanism")
        shape = _shape(statement, where)
        return _cells(statement, shape, where) if mechanism == CELLS else _operator(statement, shape, where)
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise DposeError("record-incomplete", MISSING, where) from error
    except DposeError as error:
        if error.code.startswith("record-"):
            raise
        raise DposeError("record-incomplete", f"{MISSING}: {error.line()}", where) from error


def _shape(statement: PrivacyStatement, where: str) -> Shape:
    """The recorded sizes; the neighbours must be those of a picture or of a clip, whichever it is."""
    record, neighbours = statement.release, statement.neighbours
    linear = record["mechanism"] == PROJECTION
    width, height = whole_numbers(r"(\d{1,6})x(\d{1,6})", record["size"])
    (channels,) = whole_numbers(r"([13])", record["channels"])
    # a projection's clips have 8 bits, which their records do not say
    levels = "255" if linear and "frames" in record else record["levels"]
    (peak,) = whole_numbers(r"(255|65535)", levels)
    frames = whole_numbers(r"(\d{1,9})", record["frames"])[0] if "frames" in record else None
    if min(width, height, 1 if frames is None else frames) < 1:
        raise ValueError("out of range")
    if neighbours is None or neighbours.scope not in (
        "picture",
        "clip",
        "frame",
        BOX,
        *((ONE_FRAME,) * linear),
    ):
        what = "a released clip" if linear else "a release"
        raise DposeError("record-neighbours-differ", f"its statement has no neighbours of {what}", where)
    if (neighbours.scope == "picture") != (frames is None):
        raise DposeError(
            "record-neighbours-mixed", "its statement mixes a picture's neighbours with a clip's", where
        )
    return Shape.of(height, width, channels, peak, frames)


def _budget(statement: PrivacyStatement) -> tuple[Fraction, float, Neighbours]:
    """Epsilon, delta and neighbours, as `ReleaseConfig` has them."""
    assert statement.neighbours is not None
    assert statement.epsilon is not None
    assert statement.delta is not None
    return Fraction(statement.epsilon), statement.delta, statement.neighbours


def _cells(statement: PrivacyStatement, shape: Shape, where: str) -> PixelizationPlan:
    record = statement.release
    block, n = (whole_numbers(r"(\d{1,6})", record[name])[0] for name in ("block", "subdivide"))
    if min(block, n) < 1:
        raise ValueError("out of range")
    if "complex" in record and not any(re.fullmatch(rule, record["complex"]) for rule in RULES):
        raise DposeError(
            "record-regions-rule-unknown",
            f"its statement has an unknown rule for regions {record['complex']!r}",
            where,
        )
    colour = _colour(record, shape)
    config = ReleaseConfig(
        *_budget(statement),
        CELLS,
        block=block,
        subdivide=n,
        regions=_regions(record, where),
        colour=colour.name,
        chroma=_factor(record, colour),
    )
    if "chosen" in record:
        _check_choice(config, shape, record["chosen"], where)
        config = replace(config, chosen=CHOOSABLE)
    config = replace(config, restoration=Restoration.recorded(record))
    return PixelizationPlan.of(config, shape, colour)


def _check_choice(config: ReleaseConfig, shape: Shape, text: str, where: str) -> None:
    """Refuse cells that were said to be chosen, and are not those that are."""
    found = re.fullmatch(rf"(block|chroma|block and chroma) for restoration (\w+), {re.escape(CHOSEN)}", text)
    if found is None or found[2] not in METHODS:
        raise ValueError("chosen in another way")
    # of a picture that was restored once more, the restoration that its cells were chosen for is another one
    asked = replace(config, chosen=tuple(found[1].split(" and ")), restoration=Restoration(found[2]))
    if not is_chosen(asked, shape):
        cells = ", ".join(f"{name} {getattr(config, name)}" for name in asked.chosen)
        raise DposeError(
            "record-block-not-chosen",
            f"its statement says that {cells} was chosen by a public prior, which chooses another",
            where,
        )


def _colour(record: Mapping[str, str], shape: Shape) -> Colour:
    """The recorded combinations; their numbers are taken from the record, so that other ones can be verified too."""
    if "colour" not in record:
        return Colour.of("rgb", shape.channels, gaussian=False)
    if shape.channels != CHANNELS["rgb"]:
        raise ValueError("colours of a grey picture")
    return Colour.recorded(record["colour"], record["combinations"])


def _factor(record: Mapping[str, str], colour: Colour) -> int | None:
    return whole_numbers(r"cells (\d) times as wide", record["chroma"])[0] if colour.chroma else None


def _operator(statement: PrivacyStatement, shape: Shape, where: str) -> LinearPlan:
    record = statement.release
    columns, rows, groups = whole_numbers(r"(\d{1,6})x(\d{1,6})x(\d{1,9})", record["grid"])
    name, choice = record["operator"], record.get("choice", "")
    if name not in OPERATORS:
        raise DposeError(
            "record-operator-unknown",
            f"its statement names an operator that is not known here: {name!r}",
            where,
        )
    norm = float(record["clip norm"]) if "clip norm" in record else None
    together = whole_numbers(r"(\d{1,9})", record["clipped together"])[0] if norm is not None else 1
    if together != 1 and together != together_of(shape.frames, groups):
        raise ValueError("another number of groups is clipped together")
    colour = _colour(record, shape)
    factor = _factor(record, colour)
    if colour.times and not OPERATORS[name].colours:
        raise ValueError("colours of values that are taken alike")
    config = ReleaseConfig(
        *_budget(statement),
        name,
        colour=colour.name,
        chroma=factor,
        clip_norm=norm,
        clip_segment=together != 1,
        restoration=Restoration.recorded(record),
    )
    grid = (rows, columns, groups)
    return LinearPlan.around(make_planes(name, shape, grid, colour, factor or 1, choice), config, choice)


def _with_record(made: PrivacyStatement, statement: PrivacyStatement) -> PrivacyStatement:
    """What no size and budget tells is taken from the record: rules that were checked, the mask's digest."""
    record, told = statement.release, dict(made.release)
    if "complex" in told:
        told["complex"] = record.get("complex", "")
    if "chosen" in told:
        told["chosen"] = record.get("chosen", "")
    if "blocks_sha256" in told:
        told["blocks_sha256"] = record.get("blocks_sha256", "")
    return replace(made, release=told)


def _regions(record: Mapping[str, str], where: str) -> Regions | None:
    kind = record["regions"]
    if kind == "none":
        return None
    if kind == "public":
        return RecordedRegions(np.zeros((1, 1), np.bool_), record["mask_sha256"])
    if kind == "private":
        share = re.fullmatch(r"(\d{1,9}/\d{1,9}) of the budget", record["stage one"])
        if share is None:
            raise ValueError("no share")
        return PrivateRegions(share=Fraction(share[1]))
    raise DposeError("record-regions-unknown", f"its statement has unknown regions {kind!r}", where)


def compare(statement: PrivacyStatement, wanted: PrivacyStatement, where: str) -> None:
    """Refuse a statement whose numbers or record differ from the recomputed ones. For its words see `compare_words`.

    Args:
        statement: As it stands in the artefact.
        wanted: The recomputed one.
        where: The file, for errors.

    Raises:
        DposeError: something differs; names it.
    """
    found, told = dict(statement.release), dict(wanted.release)
    for name in sorted({*found, *told}):
        if found.get(name) != told.get(name):
            raise _differs(name, found.get(name, "nothing"), told.get(name, "nothing"), where)
    if len(statement.events) != len(wanted.events):
        raise DposeError(
            "record-events-differ",
            f"its statement has {len(statement.events)} events, not {len(wanted.events)}",
            where,
        )
    for event, other in zip(statement.events, wanted.events, strict=True):
        _compare_event(event, other, where)
    ours, theirs = statement.to_dict(), wanted.to_dict()
    for name in (
        "unit",
        "neighbours",
        "epsilon",
        "delta",
        "accountant",
        "n",
        "queries",
        "plan_sha256",
        "ledger_head",
    ):
        if ours[name] != theirs[name]:
            raise _differs(name, ours[name], theirs[name], where)


def compare_words(
    statement: PrivacyStatement,
    wanted: PrivacyStatement,
    where: str,
    *,
    caveats: tuple[str, ...] = (),
    given: tuple[str, ...] = (),
    rough: bool = False,
) -> None:
    """Refuse a statement that leaves out, adds or rewrites what it must say.

    Args:
        statement: As it stands in the artefact.
        wanted: The recomputed one.
        where: The file, for errors.
        caveats: What it must say besides; more caveats than that are the maker's own.
        given: What it must take as given besides.
        rough: Numbers in words may differ: they come from cosines, whose last digits differ between machines.

    Raises:
        DposeError: it does; names the sentence.
    """

    def same(lines: tuple[str, ...]) -> list[str]:
        return [re.sub(r"\d[\d.,e+-]*", "#", line) if rough else line for line in lines]

    for name, found, needed, more in (
        ("public", statement.public, wanted.public, False),
        ("conditional_on", statement.conditional_on, (*wanted.conditional_on, *given), False),
        ("caveats", statement.caveats, (*wanted.caveats, *caveats), True),
    ):
        here, there = same(found), same(needed)
        for line, plain in zip(needed, there, strict=True):
            if plain not in here:
                raise DposeError(
                    "record-sentence-left-out", f"its {name} leave out: {line}", where, "do not rely on it"
                )
        for line, plain in zip(found, here, strict=True):
            if plain not in there and not more:
                raise DposeError(
                    "record-sentence-unfounded",
                    f"its {name} hold what does not follow: {line}",
                    where,
                    "do not rely on it",
                )


def whole_numbers(pattern: str, text: str) -> tuple[int, ...]:
    """The numbers in a recorded text.

    Raises:
        ValueError: it is not of the pattern.
    """
    found = re.fullmatch(pattern, text)
    if found is None:
        raise ValueError(f"{text!r} is not of the form {pattern}")
    return tuple(int(number) for number in found.groups())


def _compare_event(event: Any, wanted: Any, where: str) -> None:
    if type(event) is not type(wanted):
        raise _differs("event", getattr(event, "type", "?"), wanted.type, where)
    if event.steps != wanted.steps:
        raise _differs("steps", event.steps, wanted.steps, where)
    exact = isinstance(wanted, Laplace)
    bound = "sensitivity" if exact else "sensitivity_squared"
    noise = "scale" if exact else "variance"
    ours, theirs = getattr(event, bound), getattr(wanted, bound)
    if not _near(ours, theirs):
        if ours < theirs:
            raise DposeError(
                "record-sensitivity-smaller",
                f"its noise was made for a smaller sensitivity ({bound} {_short(ours)}) than such a release has "
                f"({_short(theirs)})",
                where,
                "do not rely on it",
            )
        raise _differs(bound, _short(ours), _short(theirs), where)
    ours, theirs = getattr(event, noise), getattr(wanted, noise)
    if ours != theirs if exact else not _near(ours, theirs):
        raise _differs(noise, _short(ours), _short(theirs), where)


def _near(found: Fraction, wanted: Fraction) -> bool:
    # whole numbers are exact; only a bound from cosines is none
    if wanted.denominator == 1 and wanted < 10**15 and found.denominator == 1:
        return found == wanted
    return abs(found - wanted) <= wanted * Fraction(SLACK)


def _short(value: Fraction) -> str:
    text = exact_text(value)
    return text if len(text) <= 24 else f"{float(value):.9g}"


def _differs(name: str, found: Any, wanted: Any, where: str) -> DposeError:
    return DposeError(
        "record-value-differs",
        f"its statement says {name} {found}, but {wanted} follows from the rest of it",
        where,
        "do not rely on it",
    )
