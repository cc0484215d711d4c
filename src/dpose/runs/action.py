"""Runs of the action task: from a configuration to a run folder, and its score."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from rich.console import Console, Group, RenderableType
from rich.text import Text

from dpose.action.data import ActionSpec, VideoUnits, open_videos
from dpose.action.folder import load_action_model
from dpose.action.metrics import Top1Result
from dpose.action.model import (
    ActionConfig,
    ActionModel,
    ActionPreset,
    ActionStrategy,
    apply_action_strategy,
    fresh_model,
    load_pretrained,
)
from dpose.action.task import ActionTask
from dpose.errors import DposeError
from dpose.files import check_free
from dpose.runs.build import only_source, selection, told_count
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import record_score
from dpose.runs.explain import explain_plan
from dpose.runs.places import places_of, run_config, shown_settings
from dpose.runs.reporting import make_report, show_report
from dpose.runs.scored import reserve_score
from dpose.runs.warnings import few_units
from dpose.training.distributed import process_group
from dpose.training.first_weights import FirstWeights
from dpose.training.folder import read_statement
from dpose.training.score import metric_of_views
from dpose.training.trainer import Run, train
from dpose.training.validation import Validation

UNIT = "video"
NOBODY_IN_KINETICS = (
    "the videos of Kinetics-400, which torchvision's first weights learnt from without a guarantee, are none of the "
    "units"
)


def train_action(
    config: RunConfig,
    out: Path,
    console: Console,
    views_at_once: int | None = None,
    resume: bool = False,
    command: str = "",
) -> Run:
    """Train an action model as `config` says and write the run folder `out`.

    A unit is a video; its views are `config.data.views` clips, so that more than one is MultiClip-DP: the mean of their
    gradients is clipped once, and noised once.

    Args:
        config: The run.
        out: Must not exist, unless `resume`.
        console: Where progress goes.
        views_at_once: The micro-batch in clips; fitted to memory when None.
        resume: Go on from the last checkpoint in `out`.
        command: What the user typed, for the report.

    Raises:
        DposeError: data, model or plan are not possible; or there is nothing to resume.
    """
    place = process_group()
    console = console if place.first else Console(quiet=True)
    if not resume:
        check_free(out, may_be_empty=True)
    place.highest(0)  # nobody makes the folder before everybody has looked
    spec = ActionSpec.parse(_source(config)).for_purpose("train")
    units = open_action_units(config)
    model, start = build_action_model(config, units.videos.actions)
    private, count = config.plan.kind.reads_private_data, told_count(config, len(units))
    show_report([f"{spec.shown}: {count:,} units"] if private else units.report, console)
    warning = few_units(count) if private else None
    if warning:
        console.print(f"Warning: {warning}", highlight=False)
    run = train(
        ActionTask(units.videos.actions),
        model,
        private=units,
        plan=config.plan,
        out=out,
        resume=resume,
        public=_public(config, model.config),
        optimizer=config.optimizer,
        seed=config.seed,
        watch=_watch(config, spec, model.config),
        settings=shown_settings(config, command),
        places=places_of(config, command),
        start=start,
        views_at_once=views_at_once,
        console=console,
        data_name=spec.shown,
    )
    if place.first:
        make_report(out, console=console)
    return run


def explain_action_run(config: RunConfig) -> RenderableType:
    """What a run would do, protect and cost.

    Raises:
        DposeError: the plan is not possible, or the data cannot be read and the config gives no number of units.
    """
    size = config.model.input_size or ActionConfig(("",), _preset(config)).input_size
    try:
        count = told_count(config, len(open_action_units(config)))
        how = "counted" if config.plan.nominal_units is None else "nominal"
    except DposeError as error:
        if config.data.units is None:
            raise
        count, how = config.data.units, f"as configured; the data are not at hand ({error.what})"
    views = config.data.views or 1
    lines = Text(
        f"{_source(config)}: {count:,} videos ({how}), {views} of each one's clips in a gradient."
        f" Starts from {config.model.init or 'nothing'}; public data: {config.data.public or 'none'}.\n"
    )
    return Group(lines, explain_plan(config.plan, count, size))


def _source(config: RunConfig) -> str:
    return only_source(config, "an action run")


def open_action_units(config: RunConfig) -> VideoUnits:
    """The units that a run trains on.

    Raises:
        DposeError: another unit than a video is asked for, or the videos cannot be read.
    """
    if (config.plan.unit or UNIT) != UNIT:
        raise DposeError(
            f"action data has no unit {config.plan.unit!r}", "--unit", f"leave it out, or say {UNIT}"
        )
    videos = open_videos(_source(config), purpose="train", limit=selection(config))
    if not videos.actions:
        raise DposeError("has no actions to learn", _source(config))
    return VideoUnits(
        videos,
        _model_config(config, videos.actions),
        views=config.data.views or 1,
        augment=config.augment != "none",
    )


def build_action_model(config: RunConfig, actions: tuple[str, ...]) -> tuple[ActionModel, FirstWeights]:
    """The model to train, and where its first weights are from.

    Raises:
        DposeError: `init` is neither a model folder for these actions nor a file of MViT's weights.
    """
    choice = config.model
    strategy = choice.strategy or ("full" if choice.init else "scratch")
    if (choice.init is None) != (strategy == "scratch"):
        raise DposeError(
            f"strategy {strategy} {'starts from trained weights' if choice.init is None else 'takes no --init'}",
            fix="give --init FOLDER or FILE.safetensors, or --strategy scratch",
        )
    model, start = fresh_model(_model_config(config, actions), config.seed), FirstWeights.drawn()
    if choice.init:
        path = Path(choice.init)
        if path.is_dir():
            model = load_action_model(path)
            if model.config.classes != actions:
                raise DposeError("knows other actions than the data have", str(path))
            start = FirstWeights.of(path)
        else:
            load_pretrained(model, path)
            start = FirstWeights.of(path, NOBODY_IN_KINETICS)
    apply_action_strategy(model, cast(ActionStrategy, strategy))  # which refuses those that are for poses
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), start


def evaluate_action(folder: Path, data: str, *, limit: int | None = None, console: Console) -> Top1Result:
    """Top-1 of the model in `folder` on the middle clip of every video, written to `evaluations/`.

    Raises:
        DposeError: no model, no data, data of other actions, the data are the ones the run protects, or a budget
            stands for some of them.
    """
    spec = ActionSpec.parse(data).for_purpose("evaluate")
    model = load_action_model(folder)
    statement = read_statement(folder)
    videos = open_videos(spec, purpose="evaluate", limit=limit)
    if videos.actions != model.config.classes:
        raise DposeError("has other actions than the model knows", data)
    show_report(videos.notes, console)
    units = VideoUnits(videos, model.config)
    reserve_score(
        folder,
        statement,
        units,
        name=spec.shown,
        public=spec.public,
        same=any(spec.same_units(own) for own in _trained_on(folder)),
        unit=UNIT,
        console=console,
    )
    placed = model.to("cuda" if torch.cuda.is_available() else "cpu")
    result = cast(
        Top1Result,
        metric_of_views(ActionTask(videos.actions), placed, units, views_at_once=16, console=console),
    )
    record_score(folder, "action", spec.shown, spec.public, len(units), result, {}, statement, console)
    if (folder / "report.html").exists():
        make_report(folder, console=console)
    return result


def _trained_on(folder: Path) -> tuple[ActionSpec, ...]:
    """The videos a run was trained on, where its config says."""
    try:
        return tuple(ActionSpec.parse(s).for_purpose("train") for s in run_config(folder).data.sources)
    except DposeError:
        return ()


def _preset(config: RunConfig) -> ActionPreset:
    if config.model.preset not in ("nano", "mvit-b"):
        raise DposeError(
            f"{config.model.preset} is a pose model's", "--preset", "choose nano or mvit-b for actions"
        )
    return config.model.preset


def _model_config(config: RunConfig, actions: tuple[str, ...]) -> ActionConfig:
    return ActionConfig(actions, _preset(config), input_size=config.model.input_size or (0, 0))


def _public(config: RunConfig, model: ActionConfig) -> VideoUnits | None:
    if config.data.public is None:
        return None
    spec = ActionSpec.parse(config.data.public).for_purpose("train")
    if spec.same_units(ActionSpec.parse(_source(config)).for_purpose("train")):
        raise DposeError("the public data are the private ones", f"--public {config.data.public}")
    return VideoUnits(open_videos(spec, purpose="train"), model, views=config.data.views or 1, augment=True)


def _watch(config: RunConfig, own: ActionSpec, model: ActionConfig) -> Validation | None:
    """As configured; by default the held-out films of people who are nobody."""
    if config.data.watch == "none" or (config.data.watch is None and not own.public):
        return None
    spec = ActionSpec.parse(config.data.watch or f"{own.name}:{own.root}").for_purpose("evaluate")
    if spec.same_units(own) and config.plan.kind.reads_private_data:
        raise DposeError(
            "these are the units the run protects; their score would be outside any guarantee",
            f"--watch {config.data.watch}",
            "watch public or held-out data",
        )
    units = VideoUnits(open_videos(spec, purpose="evaluate", limit=200), model)
    return Validation(units, f"{spec.shown}, {len(units):,} units", spec.public)
