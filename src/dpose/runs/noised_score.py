"""Scores of held-out private data with noise: what one costs, and what may be known of it.

    evaluate_noised(Path("runs/a"), "lspet:/data/lspet:validation", NoisedEvaluation(Fraction("0.1")), console=console)

A score without noise tells of the people in the data and has no epsilon. With noise it is a release of its own: the
mean over units of the unit's score, or pooled PCKh of at most J joints a unit (`dpose.privacy.noised_ratio`). It is
reserved on the account of the data before it is computed, and its file carries its statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from rich.console import Console

from dpose.account import committing
from dpose.errors import DposeError
from dpose.files import is_shipped
from dpose.privacy.accounting import Accountant
from dpose.privacy.events import ExactEvent
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key, NoiseSource
from dpose.privacy.noised_ratio import (
    CONFIDENCE,
    GRID,
    NoisedQuery,
    NoisedRatio,
    ScoreQuery,
    gaussian_event,
    laplace_event,
    noised_sums,
    ratio_of,
)
from dpose.privacy.protected import Protected
from dpose.privacy.ranges import check_delta, exact_text
from dpose.privacy.rounding import as_given, between, upper
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.runs.evaluate import record_score
from dpose.runs.reporting import make_report
from dpose.runs.scored import reserve_noised_score
from dpose.runs.tasks import DEFAULT_TASK, ScoredData, on_device, task_entry, task_of
from dpose.runs.unit_scores import counts_of, unit_joints, unit_scores
from dpose.training.folder import read_statement
from dpose.training.trained_on import seen_line, trained_on
from dpose.units import Result, Task

INTERVAL = f"the {CONFIDENCE:.0%} interval is for the noise; it does not cover which people were scored"


@dataclass(frozen=True)
class NoisedEvaluation:
    """What a noised score may cost, and of what it is taken.

    Attributes:
        epsilon: Of this one release; taken exactly.
        delta: None for Laplace noise and pure differential privacy; above 0 for Gaussian noise.
        relation: The neighbouring relation.
        joints: J, for pooled PCKh of at most J joints a unit; None for the mean over units.

    Raises:
        DposeError: a value is out of range.
    """

    epsilon: Fraction
    delta: float | None = None
    relation: Relation = Relation.ZERO_OUT
    joints: int | None = None

    def __post_init__(self) -> None:
        if self.delta is not None:
            check_delta(self.delta)
        _ = self.event

    @property
    def query(self) -> ScoreQuery:
        """What is asked of the units."""
        return ScoreQuery(self.relation, self.joints)

    @property
    def event(self) -> ExactEvent:
        """The release, as the accountant sees it."""
        return self.event_of(self.query)

    def event_of(self, query: NoisedQuery) -> ExactEvent:
        """The release of another query at this price."""
        if self.delta is None:
            return laplace_event(query, self.epsilon)
        return gaussian_event(query, float(self.epsilon), self.delta)


@dataclass(frozen=True)
class NoisedResult:
    """A noised score as a metric's result (`dpose.units.Result`): one number, no counts, no columns for joints.

    Attributes:
        metric: As in "PCKh, mean over images, noised".
        main: The column that stands for all; the only one.
        threshold: The metric's; None where it has none.
        ratio: The score, in [0, 1].
        price: What it cost, in words.
    """

    metric: str
    main: str
    threshold: float | None
    ratio: NoisedRatio
    price: str

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON, in percent; "interval" is for the noise alone."""
        shown = {} if self.threshold is None else {"threshold": self.threshold}
        interval = {"confidence": CONFIDENCE, "low": 100 * self.ratio.low, "high": 100 * self.ratio.high}
        return {
            "metric": self.metric,
            **shown,
            "main": self.main,
            "unit": "%",
            "columns": {self.main: 100 * self.ratio.value},
            "interval": {**interval, "of": "the noise; which people were scored is not in it"},
        }

    def __rich__(self) -> str:
        at = "" if self.threshold is None else f" at {self.threshold:g}"
        ends = between(self.ratio.low, self.ratio.high, places=2, times=100)
        return (
            f"{self.metric}{at}: {100 * self.ratio.value:.2f} % ({CONFIDENCE:.0%} interval for the noise {ends} %; it "
            f"does not cover which people were scored)\n{self.price}"
        )


def evaluate_noised(
    folder: Path,
    data: str,
    asked: NoisedEvaluation,
    *,
    limit: int | None = None,
    out: Path | None = None,
    console: Console,
    noise: NoiseSource | None = None,
) -> NoisedResult:
    """The score of the model in `folder` on held-out private `data`, with noise; recorded with its statement.

    Each call is a release of its own: the same settings again add up to the sum of both.

    Args:
        folder: A run or model folder.
        data: A data spec; the split defaults to validation.
        asked: What it may cost.
        limit: Use only so many units, a fixed choice by name.
        out: A file to write the score with its statement to as well; needed of weights that come with dpose, beside
            which nothing is written.
        console: Where progress goes.
        noise: Where the noise comes from; fresh and secret where None. Nothing is guaranteed with one that is seeded.

    Raises:
        DposeError: no model, no data, nobody in them needs protection, the run protects them, the task's scores are not
            by unit, or a budget leaves too little.
    """
    entry = task_entry(task_of(folder) or DEFAULT_TASK)
    model = on_device(entry.load(folder))
    statement = read_statement(folder)
    scored = entry.scored(folder, model, data, limit=limit, detections=None, console=console)
    task = _by_unit(scored)
    check_kept(folder, out)
    # what can fail for reasons of its own does so before anything is spent
    named = task.metric().compute()
    if asked.joints is not None:
        counts_of(named)
    event, source = asked.event, noise or AesNoise(Key.fresh())
    protected, reserved = reserve_noised_score(
        folder,
        statement,
        scored.units,
        asked.query,
        event,
        delta=asked.delta or 0.0,
        seeded=source.seeded,
        name=scored.name,
        same=scored.same,
        console=console,
    )
    with committing(reserved):
        hidden = asked.relation is Relation.ADD_REMOVE
        quiet = None if hidden else console
        units = None if hidden else len(protected.data)
        if asked.joints is None:
            values: NDArray[Any] = unit_scores(task, model, protected.data, console=quiet)
        else:
            values = unit_joints(task, model, protected.data, asked.joints, console=quiet)
        sums = noised_sums(asked.query, values, event, source)
        divided = units if asked.joints is None else None
        ratio = ratio_of(asked.query, sums, event, divided)
        result = _result(named, asked, ratio, protected.neighbours)
        privacy = score_statement(asked, event, protected, units, result.metric, seeded=source.seeded)
        seen = seen_line(trained_on(folder), scored.names.declared)
        if seen:
            console.print(seen, highlight=False, soft_wrap=True)
        record_score(
            folder,
            scored.name,
            False,
            units,
            result,
            {},
            statement,
            console,
            privacy=privacy,
            seen=seen,
            out=out,
        )
    if (folder / "report.html").exists():
        make_report(folder, console=console)
    return result


def check_kept(folder: Path, out: Path | None) -> None:
    """Refuse a score with noise that would be written nowhere: its statement has to be somewhere.

    Args:
        folder: The model's.
        out: A file that the score is written to.

    Raises:
        DposeError: the weights come with dpose, and there is no such file.
    """
    if is_shipped(folder) and out is None:
        raise DposeError(
            "score-beside-shipped-model",
            "a score with noise has a statement, and nothing is written beside weights that come with dpose",
            str(folder),
            "give --out FILE, or a copy of that folder",
        )


def _by_unit(scored: ScoredData) -> Task:
    if scored.public:
        raise DposeError(
            "noise-unneeded",
            "nobody in these data needs protection, and a score of them costs nothing",
            scored.name,
            "leave --epsilon out",
        )
    if scored.task is None:
        raise DposeError(
            "unit-scores-missing",
            "this task has no score for a unit by itself",
            "--epsilon",
            "score public data",
        )
    return scored.task


def _result(named: Result, asked: NoisedEvaluation, ratio: NoisedRatio, near: Neighbours) -> NoisedResult:
    words = named.to_dict()
    kind = f"mean over {near.unit}s" if asked.joints is None else f"pooled, {asked.joints} joints a unit"
    return NoisedResult(
        metric=f"{words['metric']}, {kind}, noised",
        main=words["main"],
        threshold=words.get("threshold"),
        ratio=ratio,
        price=price_of(asked, near),
    )


def price_of(asked: NoisedEvaluation, near: Neighbours) -> str:
    """What a noised score costs, in words."""
    dearer = asked.joints is not None and not near.replaces
    return (
        f"It costs epsilon {upper(asked.epsilon)} at delta {as_given(asked.delta or 0)} for {near} "
        f"({near.relation.words}), which stands in the account of these data"
        + (f", there as the larger price of one {near.unit} exchanged for another" if dearer else "")
        + ". Every further run of the command is another release, and adds as much."
    )


def score_statement(
    asked: NoisedEvaluation,
    event: ExactEvent,
    protected: Protected,
    units: int | None,
    metric: str,
    *,
    seeded: bool,
    query: tuple[str, Fraction] | None = None,
) -> PrivacyStatement:
    """What a noised score guarantees to the units that it was taken of; `verify` recomputes its epsilon.

    Args:
        asked: What it may cost.
        event: Its noise.
        protected: The units.
        units: How many, where that is public.
        metric: Its name.
        seeded: Whether the noise came from a seed.
        query: In words, with its sensitivity in L1 norm; that of `asked` where None.
    """
    near = protected.neighbours
    unit = near.unit.value
    what, moved = query or _query_words(asked.query, unit)
    public = [
        "the model, the metric and its threshold",
        "the grid, the scale of the noise and the interval's rule",
    ]
    if units is not None:
        public.append(f"the number of {unit}s, and which of them are copies of one another")
    gaussian = asked.delta is not None
    return PrivacyStatement(
        kind=Kind.SEEDED if seeded else Kind.PRIVATE,
        unit=unit,
        neighbours=near,
        epsilon=float(asked.epsilon) if gaussian else asked.epsilon,
        delta=asked.delta if gaussian else 0.0,
        accountant=Accountant.GAUSSIAN if gaussian else Accountant.PURE,
        n=units,
        public=tuple(public),
        events=(event,),
        caveats=(
            "this is the price of this one score; what else was released of the same data adds up in their account",
            *(() if query else (INTERVAL,)),
            "noise is exact on whole numbers; that a unit's score does not depend on other units rests on a model that "
            "computes each unit alone and gives the same numbers every time",
        ),
        release={
            "score": metric,
            "query": what,
            "sensitivity": f"{exact_text(moved)} in L1 norm, {near.relation.value}",
            **({} if query else {"grid": f"1/{GRID}"}),
            "noise": f"{event.type}, exact",
        },
    )


def _query_words(query: ScoreQuery, unit: str) -> tuple[str, Fraction]:
    """What a score's query asks, and its sensitivity in L1 norm."""
    if query.joints is not None:
        what = (
            f"sum of joints found and sum of joints missed, each noised, of at most {query.joints} joints a {unit} in "
            "a fixed order of its own; released is found / (found + missed)"
        )
    elif query.counts_units:
        what = (
            f"sum over {unit}s of a score in [0, 1] (0 where nothing can be scored) and the number of {unit}s, noised "
            "with half of epsilon each; released is their ratio"
        )
    else:
        what = (
            f"sum over {unit}s of a score in [0, 1] (0 where nothing can be scored), noised; released is the sum "
            f"divided by the public number of {unit}s"
        )
    return what, Fraction(query.l1, GRID)
