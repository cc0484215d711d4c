"""The optional parts of a statement, which NIST SP 800-226 asks a deployment for.

None of them changes what is guaranteed. What follows from the recorded events (`attackers`, `groups`) is computed and
checked with the statement; the rest is stated by a person, and is "not stated" otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import repeat

from dpose.errors import DposeError
from dpose.privacy.events import SampledGaussian
from dpose.privacy.fields import Decimal, DecimalText, Positive, StatementPart, Text, statement_part
from dpose.privacy.group_privacy import group_epsilons
from dpose.privacy.neighbours import Relation
from dpose.privacy.ranges import parse_decimal

UNSTATED = "not stated"
EVERYBODY = "everybody"
"""The group of all units, in results by group."""
SIGNATURE = "privacy.json.sig"
"""The file beside a statement that holds its signature, where somebody signed it (`dpose.privacy.signing`)."""


@statement_part
class About(StatementPart):
    """Who releases something, to whom, what for and why so: what the user says of it.

    Attributes:
        curator: Who sees the data as they are.
        access: Who may have what is released.
        intended_use: What it is for.
        contact: Whom to ask.
        why_epsilon: Why this epsilon.
        why_delta: Why this delta.
        why_unit: Why this unit.
        settings: How all other settings were chosen, and whether private data had a part in that.
    """

    curator: Text = "unknown"
    access: Text = UNSTATED
    intended_use: Text = UNSTATED
    contact: Text = UNSTATED
    why_epsilon: Text = UNSTATED
    why_delta: Text = UNSTATED
    why_unit: Text = UNSTATED
    settings: Text = UNSTATED


NOT_SAID = About()


@statement_part
class Deployment(About):
    """The same, of what.

    Attributes:
        released: What leaves the building: the final weights, every iterate, a picture, a clip.
        date: Of the release, YYYY-MM-DD; empty if it is not told.
        model: The deployment model: central, where a curator sees the data as they are and adds the noise.
    """

    released: Text = UNSTATED
    date: Text = ""
    model: Text = "central"

    @classmethod
    def of(cls, about: About, released: str, date: str = "") -> Deployment:
        """What was said, of what is released."""
        return cls(**asdict(about), released=released, date=date)


@statement_part
class PublicInput(StatementPart):
    """Something public that the artefact was made from.

    Attributes:
        what: What it is.
        sha256: Digest of its file, or of its units.
        licence: Under which it may be used; an SPDX identifier where there is one.
    """

    what: Text
    sha256: Text
    licence: Text = UNSTATED


@statement_part
class AuditResult(StatementPart):
    """A lower bound on epsilon that an audit reached.

    Attributes:
        what: Which audit, of what.
        epsilon: That holds at least; a decimal string, rounded down.
        confidence: Of the bound; a decimal string in (0, 1).
    """

    what: Text
    epsilon: DecimalText
    confidence: DecimalText

    def __post_init__(self) -> None:
        if not 0 < parse_decimal(self.confidence, "audits.confidence") < 1:
            raise DposeError("confidence-out-of-range", "must lie between 0 and 1", "audits.confidence")


@statement_part
class PlantedCanaries(StatementPart):
    """Canaries that were put among the units before training, and the commitment to which of them are in.

    Attributes:
        kind: "gradient" or "input".
        count: Their number, in or not; they count among the units.
        commitment: `dpose.privacy.canaries.Opening.commitment`.
    """

    kind: Text
    count: Text
    commitment: Text

    def __post_init__(self) -> None:
        if not re.fullmatch("[1-9][0-9]*", self.count):
            raise DposeError(
                "count-not-whole", f"must be a whole number, not {self.count!r}", "canaries.count"
            )
        if not re.fullmatch("[0-9a-f]{64}", self.commitment):
            raise DposeError("commitment-malformed", "must be 64 hexadecimal digits", "canaries.commitment")


@statement_part
class GroupResult(StatementPart):
    """How well the artefact does for one group of people, where that was measured: on public data, or by a query.

    Attributes:
        group: Whom it is about ("aid: wheelchair").
        units: How many there were.
        metric: Of which score.
        before: Without private training; empty if it was not measured.
        after: With it.
    """

    group: Text
    units: Text
    metric: Text
    before: Text
    after: Text


@statement_part
class GroupEpsilon(StatementPart):
    """What several units of one person cost together, at the statement's delta; of a release, several times its pixels.

    Attributes:
        units: How many, or how many times as much.
        epsilon: Of them all; None of units above 100, or where there is no bound.
    """

    units: Positive
    epsilon: Decimal | None


def largest_loss(results: Sequence[GroupResult]) -> tuple[str, float, float] | None:
    """The group that loses most by private training, its loss and everybody's, in points; None if unknown."""
    try:
        losses = {r.group: float(r.before) - float(r.after) for r in results if r.before}
    except ValueError:  # texts that somebody else wrote
        return None
    mean = losses.pop(EVERYBODY, None)
    if mean is None or not losses:
        return None
    worst = max(losses, key=lambda group: losses[group])
    return worst, losses[worst], mean


def group_section(
    events: Sequence[SampledGaussian], delta: float, relation: Relation, claimed: float
) -> tuple[GroupEpsilon, ...]:
    """The epsilon of 1 to 10 units of one person: that of one as claimed."""
    more = enumerate(group_epsilons(events, delta, relation), 2)
    return (GroupEpsilon(1, claimed), *(GroupEpsilon(k, spent) for k, spent in more))


def check_groups(ours: Sequence[GroupEpsilon], true: Sequence[GroupEpsilon], slack: float) -> None:
    """Refuse groups that are not those of `true`, or cost less.

    Raises:
        DposeError: they do.
    """
    if len(ours) != len(true) or not all(map(_enough, ours, true, repeat(slack))):
        raise DposeError(
            "groups-understated", "says less than the recorded events cost", "groups", "do not rely on it"
        )


def _enough(ours: GroupEpsilon, true: GroupEpsilon, slack: float) -> bool:
    if ours.units != true.units or ours.epsilon is None:
        return ours.units == true.units
    return true.epsilon is not None and ours.epsilon >= true.epsilon * (1 - slack)
