"""A run folder, read: only what may be shown leaves this module.

A log may hold lines that a newer dpose, a torn write or somebody else put there. So the keys that are taken from it
are listed here, and a run with a guarantee has fewer of them: nothing un-noised of its private data is among them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dpose.data_spec import Purpose, Spec
from dpose.errors import DposeError
from dpose.extensions import registered
from dpose.files import file_json, file_text, open_regular
from dpose.pose.metrics import GROUPS, SCORED
from dpose.pose.skeletons import MPII
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.report.run import Evaluation, MethodFacts, Moment, RunRecord, Score, Watched, mapping, text
from dpose.runs.data import any_spec
from dpose.training.methods import METHODS, Method

NOISED_KEYS = ("noisy_gradient_norm", "lr")
"""What a step's line of a private run may show: post-processing of noised sums, and settings."""
VIEW_KEYS = ("public_loss", "public_gradient_norm")
"""Besides, where gradients of public views are used: functions of those, which such a method does not protect."""
PLAIN_KEYS = ("loss", "lr")
"""What may be shown where nothing is guaranteed."""

ORDER = tuple(dict.fromkeys((GROUPS["Head"][0], 8, *(j for group in GROUPS.values() for j in reversed(group)))))
"""The scored joints of MPII from head to foot. The upper neck (8) is in no group."""
LARGEST = 1e100
"""No number beyond this is shown: nothing that dpose logs comes near, and sums of them would overflow."""
HARMLESS = frozenset({"noisy", "noised", "public", "subspace", "surviving"})
"""A private run's diagnostic is shown if its name has such a word: it is then of public units, or of what the noise has
already been added to."""


def read_run(folder: Path) -> RunRecord:
    """What may be shown of the run in `folder`. Log, evaluations and statement may be missing.

    The loss and scores of the training data are taken up only where the statement claims nothing and the method
    protects nothing: a run without a statement may be a private one that broke off.
    """
    try:
        config = mapping(file_json(folder / "config.json"))
    except (OSError, ValueError) as error:
        raise DposeError("run-missing", "holds no run", str(folder), "give a folder that `dpose train` made") from error
    run = RunRecord(
        name=folder.resolve().name,
        task=text(config.get("task")),
        model=mapping(config.get("model")),
        settings=mapping(config.get("run")),
        statement=_statement(folder / "privacy.json"),
    )
    method = METHODS[run.method] if registered(run.method, METHODS) else None
    sources = _sources(run.settings)
    log = _Log(method, run.statement, trained_on=sources)
    for line in _lines(folder / "log.jsonl"):
        log.add(line)
    evaluations = [e for path in sorted((folder / "evaluations").glob("*.json")) if (e := _evaluation(path, log))]
    return replace(
        run,
        units=run.statement.n if run.statement and run.statement.n is not None else log.units,
        planned_steps=log.planned,
        steps=max((step for points in log.series.values() for step in points), default=0),
        series={key: tuple(sorted(points.items())) for key, points in log.series.items() if points},
        watched=log.watched(),
        diagnostics={name: tuple(sorted(points.items())) for name, points in log.diagnostics.items() if points},
        evaluations=tuple(evaluations),
        refused=tuple(sorted(log.refused)),
        sources=tuple(map(str, sources)),
        data_are_public=bool(sources) and all(spec.public for spec in sources),
        facts=_facts(method) if method else None,
        joint_order=tuple(MPII.joints[joint] for joint in ORDER),
    )


def _facts(method: Method) -> MethodFacts:
    summary = method.summary
    # the name of a method keeps its small letter
    first = summary if summary.split(",")[0] in METHODS else summary[:1].upper() + summary[1:]
    return MethodFacts(f"{first}.", method.private, method.public_views, method.protects, method.leaves_open)


def _sources(settings: Mapping[str, Any]) -> tuple[Spec, ...]:
    """The data that a run was trained on, without the folders that they are in; empty if they are unknown."""
    named = mapping(settings.get("data")).get("private")
    specs = [spec_of(text(name), "train") for name in (named if isinstance(named, list) else [named])]
    return tuple(spec for spec in specs if spec is not None)


def spec_of(name: str, purpose: Purpose) -> Spec | None:
    """The data spec that `name` writes, as evaluations and statements name data; None if it writes none.

    Only the last part of a folder's path is kept: the rest says nothing to the reader of a statement.
    """
    try:
        spec = any_spec(name)
        return replace(spec.for_purpose(purpose), root=Path(spec.root).name) if spec else None
    except DposeError:
        return None


class _Log:
    """Collects a log's lines; of what stands there twice, the last counts."""

    def __init__(self, method: Method | None, statement: PrivacyStatement | None, trained_on: Sequence[Spec]) -> None:
        claims_nothing = statement is not None and statement.kind is Kind.NONE
        plain = claims_nothing and method is not None and not method.private
        keys = PLAIN_KEYS if plain else (*VIEW_KEYS, *NOISED_KEYS) if method and method.public_views else NOISED_KEYS
        self.trained_on = trained_on
        self.unprotected = plain and method is not None and not method.reads_private_data
        self.series: dict[str, dict[int, float]] = {key: {} for key in keys}
        self.diagnostics: dict[str, dict[int, float]] = {}
        self.scores: dict[str, tuple[bool, dict[int, Moment]]] = {}
        self.units: int | None = None
        self.planned: int | None = None
        self.refused: set[str] = set()

    def add(self, line: Mapping[str, Any]) -> None:
        kind, step = line.get("type"), _count(line.get("step"))
        if kind == "start":
            self.units, self.planned = _count(line.get("n")), _count(line.get("steps"))
        elif step is None:
            return
        elif kind == "resume":
            if line.get("replay") is not True:  # a replay leaves the lines that are there
                self._forget_after(step)
        elif kind == "step":
            for key, points in self.series.items():
                _note(points, step, line.get(key))
        elif kind == "diagnostics":
            for name, value in line.items():
                if name not in ("type", "step") and self._may_show(name):
                    _note(self.diagnostics.setdefault(name, {}), step, value)
        elif kind == "score":
            self._score(step, line)

    def watched(self) -> tuple[Watched, ...]:
        return tuple(
            Watched(name, public, tuple(moments[step] for step in sorted(moments)))
            for name, (public, moments) in self.scores.items()
            if moments
        )

    def is_trained_on(self, name: str) -> bool:
        return spec_of(name, "evaluate") in self.trained_on

    def _may_show(self, name: str) -> bool:
        words = set(name.lower().replace("-", "_").split("_"))
        return self.unprotected or bool(words & HARMLESS)

    def _forget_after(self, step: int) -> None:
        # the steps after a checkpoint that a run went on from led nowhere
        kept: list[dict[int, Any]] = [*self.series.values(), *self.diagnostics.values()]
        for points in [*kept, *(moments for _, moments in self.scores.values())]:
            for later in [k for k in points if k > step]:
                del points[later]

    def _score(self, step: int, line: Mapping[str, Any]) -> None:
        name, score = text(line.get("data")), score_of(line.get("result"))
        if score is None:
            return
        spec = name.rpartition(", ")[0] or name  # a watched dataset is named with its number of units
        if self.is_trained_on(spec) and not self.unprotected:
            self.refused.add(spec)
            return
        _, moments = self.scores.get(name, (False, {}))
        moments[step] = Moment(step, _number(line.get("epsilon")), score)
        self.scores[name] = (line.get("public") is True, moments)


def _evaluation(path: Path, log: _Log) -> Evaluation | None:
    """The evaluation in a file; None if it holds none, or one that may not be shown, which `log` then notes."""
    try:
        values = mapping(json.loads(file_text(path, errors="replace")))
    except (OSError, ValueError, RecursionError):
        return None
    score, name = score_of(values.get("result")), text(values.get("data"))
    if score is None:
        return None
    trained_on = log.is_trained_on(name)
    if trained_on and not log.unprotected:
        log.refused.add(name)
        return None
    spec, others = spec_of(name, "evaluate"), values.get("beside")
    declared = spec.public if spec else values.get("public") is True
    beside = [mapping(other) for other in others] if isinstance(others, list) else []
    named = [(text(other.get("name")), score_of(other.get("result"))) for other in beside]
    return Evaluation(
        data=name,
        units=_count(values.get("units")),
        at=_moment(values.get("at")),
        public=declared,
        trained_on=trained_on,
        score=score,
        beside=tuple((other, result) for other, result in named if result is not None),
        interval=_interval(mapping(values.get("result")).get("interval")),
        privacy=_price(values.get("privacy"), path),
        seen=text(values.get("seen")),
    )


def _interval(value: Any) -> tuple[float, float] | None:
    low, high = (_number(mapping(value).get(name)) for name in ("low", "high"))
    return None if low is None or high is None else (low, high)


def _price(value: Any, path: Path) -> PrivacyStatement | None:
    """A noised score's statement; None if there is none that adds up, so that nothing is claimed for the score."""
    if not isinstance(value, dict):
        return None
    try:
        statement = PrivacyStatement.from_json(json.dumps(value), str(path))
        statement.verify()
    except DposeError:
        return None
    return statement if statement.kind is Kind.PRIVATE else None


def score_of(result: Any) -> Score | None:
    """A metric's `to_dict` (`dpose.units.Result`), or any flat one, whose numbers then are the columns."""
    values = mapping(result)
    columns = values.get("columns")
    found = columns if isinstance(columns, dict) else {k: v for k, v in values.items() if _number(v) is not None}
    if not found:
        return None
    # as results were written before they named both
    main = "Mean" if "Mean" in found else next(iter(found))
    unit = "%" if found is columns and "predictions" not in values else ""
    visible = mapping(values.get("visible"))
    counts = [n for joint in SCORED if (n := _count(visible.get(MPII.joints[joint]))) is not None]
    return Score(
        metric=text(values.get("metric")),
        threshold=_number(values.get("threshold")),
        columns={name: _number(v) for name, v in found.items()},
        main=named if (named := text(values.get("main"))) in found else main,
        unit=text(values.get("unit", unit)),
        joints={
            threshold: {joint: _number(v) for joint, v in mapping(row).items()}
            for threshold, row in mapping(values.get("joints")).items()
        },
        people=_count(values.get("people")),
        joints_seen=sum(counts) if counts else None,
        whole_pictures=values.get("whole_pictures") is True,
    )


def _statement(path: Path) -> PrivacyStatement | None:
    try:
        content = file_text(path, errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DposeError("file-unreadable", error.strerror or "cannot be read", str(path)) from error
    return PrivacyStatement.from_json(content, str(path))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file of one JSON object a line; what is none is passed over."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with io.TextIOWrapper(file, encoding="utf-8", errors="replace") as lines:
        for raw in lines:
            try:
                value = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


def _note(points: dict[int, float], step: int, value: Any) -> None:
    number = _number(value)
    if number is not None:
        points[step] = number


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) <= LARGEST else None


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text(value))
    except ValueError:
        return None
