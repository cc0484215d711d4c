"""What a report shows of a run, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dpose.privacy.statement import PrivacyStatement

Points = tuple[tuple[int, float], ...]
"""Numbers by step, in the order of the steps."""


@dataclass(frozen=True)
class Score:
    """A metric's result.

    Attributes:
        metric: As in "PCKh"; may be empty.
        threshold: The one that the columns show; None for metrics that have none.
        columns: By name, in the metric's order; None if there was nothing to score.
        main: The column that stands for the whole.
        unit: Of the columns: "%", or "" for shares of one.
        joints: By threshold ("0.5"), then by joint.
        people: How many were scored; None if unknown.
        joints_seen: How many visible joints there were; None if unknown.
        whole_pictures: Whether people were looked for in whole pictures, and no boxes were used.
    """

    metric: str
    threshold: float | None
    columns: Mapping[str, float | None]
    main: str
    unit: str
    joints: Mapping[str, Mapping[str, float | None]]
    people: int | None = None
    joints_seen: int | None = None
    whole_pictures: bool = False

    @property
    def title(self) -> str:
        """As in "PCKh@0.5", or "PCKh@0.5 without boxes"."""
        title = f"{self.metric}@{self.threshold:g}" if self.threshold is not None else self.metric
        return f"{title} without boxes" if self.whole_pictures else title

    @property
    def main_name(self) -> str:
        """What the main column is called by itself, as in "mean PCKh@0.5"."""
        if self.main.lower() in self.title.lower():
            return self.title
        return f"{self.main[:1].lower()}{self.main[1:]} {self.title}".strip()

    @property
    def main_percent(self) -> float | None:
        """The main column in percent; None if there was nothing to score."""
        value = self.columns[self.main]
        return value if value is None or self.unit == "%" else 100 * value


@dataclass(frozen=True)
class Moment:
    """A score while training: after how many steps, at what epsilon spent (None without guarantee)."""

    step: int
    epsilon: float | None
    score: Score


@dataclass(frozen=True)
class Watched:
    """The scores of one dataset while training, by step.

    Attributes:
        name: Of the data.
        public: True if the data are public.
        moments: At least one.
    """

    name: str
    public: bool
    moments: tuple[Moment, ...]


@dataclass(frozen=True)
class Evaluation:
    """A score of the finished model.

    Attributes:
        data: Their name.
        units: How many there were; None if unknown.
        at: The day; None if unknown.
        public: True if the data are public.
        trained_on: Whether the model was trained on them; never so for a run with a guarantee.
        score: Of this run.
        beside: Other models' scores on the same data, by name.
        interval: In percent, for the noise of a noised score; None for others.
        privacy: What a noised score costs those data; None for a score without noise.
        seen: That the weights have seen the set, in a sentence; "" where nothing says so.
    """

    data: str
    units: int | None
    at: datetime | None
    public: bool
    trained_on: bool
    score: Score
    beside: tuple[tuple[str, Score], ...] = ()
    interval: tuple[float, float] | None = None
    privacy: PrivacyStatement | None = None
    seen: str = ""


@dataclass(frozen=True)
class MethodFacts:
    """What a report says of a method.

    Attributes:
        sentence: What it does, in one sentence.
        private: True if it protects the units.
        public_views: True if it takes a view of each unit for public.
        protects: What it protects, a line each.
        leaves_open: What it does not protect, a line each.
    """

    sentence: str
    private: bool
    public_views: bool
    protects: Sequence[str]
    leaves_open: Sequence[str]


@dataclass(frozen=True)
class RunRecord:
    """All that a report shows of a run folder.

    Attributes:
        name: Of the folder.
        task: As in "pose".
        model: The model's own configuration.
        settings: The run's.
        statement: None if there is none: the run is not finished, or is not of dpose.
        units: How many the plan was made for; None if unknown.
        planned_steps: None if unknown.
        steps: The last step in the log; 0 without one.
        series: By key of the step lines.
        watched: Scores while training, a dataset each.
        diagnostics: By name.
        evaluations: Of the finished model.
        refused: Data whose scores stand in the folder and are not shown, because the run protects them.
        sources: The data that were trained on, one by one, without the folders that they are in; empty if unknown.
        data_are_public: True if there are such data and all of them are declared public.
        facts: What the run's method protects; None if the method is unknown.
        joint_order: The scored joints from head to foot.
    """

    name: str
    task: str
    model: Mapping[str, Any]
    settings: Mapping[str, Any]
    statement: PrivacyStatement | None
    units: int | None = None
    planned_steps: int | None = None
    steps: int = 0
    series: Mapping[str, Points] = field(default_factory=dict)
    watched: tuple[Watched, ...] = ()
    diagnostics: Mapping[str, Points] = field(default_factory=dict)
    evaluations: tuple[Evaluation, ...] = ()
    refused: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    data_are_public: bool = False
    facts: MethodFacts | None = None
    joint_order: tuple[str, ...] = ()

    @property
    def plan(self) -> Mapping[str, Any]:
        """The plan's settings; empty where unknown."""
        return mapping(self.settings.get("plan"))

    @property
    def method(self) -> str:
        """As on the command line; empty where unknown."""
        return text(self.plan.get("method"))

    @property
    def data(self) -> str:
        """The data that were trained on, without the folder that they are in; empty if they are unknown."""
        return " and ".join(self.sources)


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` where it is a JSON object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """`value` where it is text, otherwise nothing."""
    return value if isinstance(value, str) else ""
