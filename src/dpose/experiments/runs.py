"""From a configuration to a run, and from a run to its score: what the command line calls."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, get_args

import torch
from rich.console import Console

from dpose.errors import DposeError
from dpose.experiments.config import RunConfig
from dpose.experiments.scoring import score_boxes
from dpose.experiments.warnings import few_units
from dpose.files import write_atomic
from dpose.pose.ap import APResult
from dpose.pose.data import SOURCES, Augment, DataSpec, PoseUnits, UnitKind, open_data
from dpose.pose.folder import load_model
from dpose.pose.heads import adapt_head
from dpose.pose.metrics import PCKhResult
from dpose.pose.model import PoseConfig, PoseModel, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.privacy.ledger import Ledger
from dpose.privacy.statement import PrivacyStatement, Query
from dpose.training.folder import model_card
from dpose.training.plan import METHODS
from dpose.training.score import score
from dpose.training.trainer import Run, train


def train_pose(
    config: RunConfig, out: Path, console: Console, views_at_once: int | None = None, resume: bool = False
) -> Run:
    """Train a pose model as `config` says and write the run folder `out`.

    Args:
        config: The run.
        out: Must not exist, unless `resume`.
        console: Where progress goes.
        views_at_once: The micro-batch in views; fitted to memory when None.
        resume: Go on from the last checkpoint in `out`, which `config` began.

    Raises:
        DposeError: data, model or plan are not possible; or there is nothing to resume.
    """
    if out.exists() and not resume:
        raise DposeError("already exists", str(out), "choose another --out, or remove it first")
    model, facts, caveats = build_model(config)
    data = open_data(
        config.data.private,
        purpose="train",
        input_size=model.config.input_size,
        augment=_augment(config),
        unit=_unit(config.plan.unit),
        limit=config.data.limit,
    )
    if METHODS[config.plan.method].private:
        # what a dataset says of itself counts labels and people: of private data the number of units is enough
        console.print(f"{config.data.private}: {len(data):,} units", highlight=False)
        warning = few_units(len(data))
        if warning:
            console.print(f"Warning: {warning}", highlight=False)
    else:
        show_report(data, console)
    return train(
        PoseTask(model.config.skeleton, model.config.split_ratio),
        model,
        private=data,
        plan=config.plan,
        out=out,
        resume=resume,
        optimizer=config.optimizer,
        seed=config.seed,
        settings=config.to_dict(),
        public_facts=facts,
        conditional_on=_conditions(config),
        caveats=caveats,
        views_at_once=views_at_once,
        console=console,
    )


def resume_pose(folder: Path, console: Console) -> Run:
    """Go on with the run in `folder` from its last checkpoint, with the settings it began with.

    Raises:
        DposeError: there is no run to go on with.
    """
    return train_pose(run_config(folder), folder, console, resume=True)


def run_config(folder: Path) -> RunConfig:
    """The configuration of the run in `folder`.

    Raises:
        DposeError: it has none.
    """
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DposeError("holds no run", str(folder), "give a folder that `dpose train` made") from error
    known = {key: value for key, value in values.items() if key in RunConfig.model_fields}
    return RunConfig.from_dict(known, str(path))


def _unit(name: str) -> UnitKind:
    if name not in get_args(UnitKind):
        raise DposeError(
            f"pose data has no unit {name!r}", fix=f"choose one of {', '.join(get_args(UnitKind))}"
        )
    return cast(UnitKind, name)


def build_model(config: RunConfig) -> tuple[PoseModel, list[str], list[str]]:
    """The model to train, what is public about its first weights, and the caveats that come with them.

    Raises:
        DposeError: `init` is no model folder, or does not go with the other settings.
    """
    choice, private = config.model, METHODS[config.plan.method].private
    strategy = choice.strategy or ("finetune" if choice.init else "scratch")
    facts, caveats = [], []
    if choice.init is None:
        if strategy != "scratch":
            raise DposeError(
                f"strategy {strategy} starts from trained weights",
                fix="give --init FOLDER, or --strategy scratch",
            )
        if config.seed is None:
            torch.seed()
        else:
            torch.manual_seed(config.seed)
        model = PoseModel(
            PoseConfig(
                preset=choice.preset,
                input_size=choice.input_size or (0, 0),
                norm="group" if private else "batch",
                skeleton=SOURCES[DataSpec.parse(config.data.private).name].skeleton.name,
            )
        )
    else:
        if strategy == "scratch":
            raise DposeError(
                "strategy scratch takes no --init", fix="use finetune or full, or leave --init out"
            )
        model = load_model(Path(choice.init))
        if choice.input_size and tuple(choice.input_size) != model.config.input_size:
            raise DposeError(f"the model takes {model.config.input_size} pixels", choice.init)
        if private and model.config.norm == "batch":
            model = fold_batchnorm(model)
        facts.append(f"the first weights, from {Path(choice.init).name}")
        caveats += _inherited(Path(choice.init))
    skeleton = SOURCES[DataSpec.parse(config.data.private).name].skeleton.name
    if model.config.skeleton != skeleton:
        caveats.append(f"the head was adapted from {model.config.skeleton}'s joints to {skeleton}'s")
        model = adapt_head(model, skeleton)
    apply_strategy(model, strategy)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # channels last: up to twice the speed of a plain step on a CPU, and never slower (benchmarks/private_step.py)
    return model.to(device).to(memory_format=torch.channels_last), facts, caveats


def _conditions(config: RunConfig) -> list[str]:
    """What a guarantee takes as given: because of the data, and because of what the first weights learnt from."""
    own = DataSpec.parse(config.data.private).for_purpose("train").condition
    earlier = _statement(Path(config.model.init)) if config.model.init else None
    return sorted({*([own] if own else []), *(earlier.conditional_on if earlier else ())})


def _inherited(init: Path) -> list[str]:
    """What the statement of the first weights means for a run that starts from them."""
    try:
        earlier = PrivacyStatement.from_json((init / "privacy.json").read_text())
    except (OSError, DposeError):
        return ["the first weights carry no statement; whoever is in them is not covered here"]
    if earlier.kind == "private":
        return [
            f"the first weights were trained privately (epsilon {earlier.epsilon:.4g}); for a unit that was in their "
            "data too, the two epsilons add up"
        ]
    return ["the first weights were trained without a guarantee, on data taken to be public"]


def _augment(config: RunConfig) -> Augment:
    name = config.augment or ("private" if METHODS[config.plan.method].private else "public")
    return {"none": Augment.none, "private": Augment.private, "public": Augment.public}[name]()


def show_report(data: PoseUnits, console: Console) -> None:
    """Print what a dataset says of itself."""
    for line in data.report:
        console.print(line, highlight=False)


def evaluate_run(
    folder: Path, data: str, *, limit: int | None = None, detections: str | None = None, console: Console
) -> PCKhResult | APResult:
    """The score of the model in `folder` on `data`, written to `evaluations/` and recorded in the statement.

    PCKh, or OKS AP on COCO and Human-Art.

    A score on private data is a release without noise. On data the model was trained on it would undo the guarantee
    and is refused; on held-out private data it is listed in the statement, outside the guarantee.

    Args:
        folder: A run or model folder.
        data: A data spec; the split defaults to validation.
        limit: Use only so many units, a fixed choice by name.
        detections: For AP, a detector's boxes, relative to the data's folder; the labels' own where None.
        console: Where progress goes.

    Raises:
        DposeError: no model, no data, or the data are the ones the run protects.
    """
    spec = DataSpec.parse(data).for_purpose("evaluate")
    model = load_model(folder)
    statement = _statement(folder)
    protected = _trained_on(folder)
    if statement and statement.kind != "none" and protected and spec.same_units(protected):
        raise DposeError(
            "these are the units the run protects; their score without noise is outside any guarantee",
            data,
            "evaluate on a held-out split",
        )
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    if SOURCES[spec.name].coco is not None:
        found, count = score_boxes(model, spec, detections=detections, limit=limit, console=console)
        _record(folder, spec, count, found, statement)
        return found
    if detections is not None:
        raise DposeError("takes no detections: its people have boxes of their own", spec.name)
    units = open_data(
        data, purpose="evaluate", input_size=model.config.input_size, augment=Augment.none(), limit=limit
    )
    show_report(units, console)
    task = PoseTask(model.config.skeleton, model.config.split_ratio, labels=units.skeleton.name)
    result = cast(PCKhResult, score(task, model, units, console=console))
    _record(folder, spec, len(units), result, statement)
    return result


def _record(
    folder: Path,
    spec: DataSpec,
    units: int,
    result: PCKhResult | APResult,
    statement: PrivacyStatement | None,
) -> None:
    # a root is a path on this machine and says nothing to the reader of a statement
    name = str(replace(spec, root=Path(spec.root).name))
    if statement and statement.kind != "none" and not spec.public:
        query = Query(result.to_dict()["metric"], f"{name}, {units:,} units")
        # the ledger first: a query that did not reach the statement shows up in `dpose verify`
        with Ledger.append_to(folder / "ledger.jsonl") as ledger:
            ledger.query(query.to_dict())
            updated = statement.with_query(query, ledger.head)
        config = json.loads((folder / "config.json").read_text())
        write_atomic(folder / "privacy.json", updated.to_json())
        write_atomic(folder / "README.md", model_card("pose", updated, config))
    content = {
        "data": name,
        "units": units,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "result": result.to_dict(),
    }
    file = re.sub(r"[^\w.-]+", "_", f"{name}-{units}")
    write_atomic(folder / "evaluations" / f"{file}.json", json.dumps(content, indent=2) + "\n")


def _statement(folder: Path) -> PrivacyStatement | None:
    path = folder / "privacy.json"
    return PrivacyStatement.from_json(path.read_text()) if path.exists() else None


def _trained_on(folder: Path) -> DataSpec | None:
    """The spec of the data a run was trained on, where its config says."""
    try:
        values: Any = json.loads((folder / "config.json").read_text())
        return DataSpec.parse(values["run"]["data"]["private"]).for_purpose("train")
    except (OSError, ValueError, KeyError, TypeError, DposeError):
        return None
