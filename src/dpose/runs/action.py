"""Runs of the action task: its data, its models and their scores, for `dpose.runs.tasks`."""

from __future__ import annotations

from pathlib import Path
from typing import cast, get_args

import torch
from rich.console import Console, Group, RenderableType
from rich.text import Text

from dpose.action.data import ActionSpec, VideoUnits, open_videos
from dpose.action.model import (
    ActionConfig,
    ActionModel,
    ActionPreset,
    ActionStrategy,
    apply_action_strategy,
    fresh_model,
    load_action_model,
    load_pretrained,
)
from dpose.action.task import ActionTask
from dpose.errors import DposeError
from dpose.runs.config import RunConfig
from dpose.runs.data import counted, only_source, selection
from dpose.runs.explain import explain_plan
from dpose.runs.places import run_config
from dpose.runs.tasks import PreparedRun, ScoredData, TaskEntry, on_device
from dpose.training.first_weights import FirstWeights
from dpose.training.trained_on import TrainedOn
from dpose.training.validation import Validation, metric_of_views
from dpose.units import Result, Unit, UnitDataset

UNIT = Unit.VIDEO.value
NOBODY_IN_KINETICS = (
    "the videos of Kinetics-400, which torchvision's first weights learnt from without a guarantee, are none of the "
    "units"
)


def _prepare(config: RunConfig, console: Console) -> PreparedRun:
    """Data and model of an action run.

    A unit is a video; its views are `config.data.views` clips, so that more than one is MultiClip-DP: the mean of their
    gradients is clipped once, and noised once.
    """
    spec = ActionSpec.parse(_source(config)).for_purpose("train")
    units = open_action_units(config)
    model, start = build_action_model(config, units.videos.actions)
    return PreparedRun(
        config=config,
        task=ActionTask(units.videos.actions),
        model=model,
        units=units,
        data_name=spec.shown,
        title=spec.shown,
        start=start,
        report=() if config.plan.kind.reads_private_data else tuple(units.report),
        public=_public(config, model.config),
        validation_data=_watch(config, spec, model.config),
    )


def _scored(
    folder: Path, model: torch.nn.Module, data: str, *, limit: int | None, detections: str | None, console: Console
) -> ScoredData:
    """Videos to score an action model on: top-1 of the middle clip of every video."""
    assert isinstance(model, ActionModel)
    if detections is not None:
        raise DposeError("detections-unsupported", "takes no detections: they are for poses", data)
    spec = ActionSpec.parse(data).for_purpose("evaluate")
    videos = open_videos(spec, purpose="evaluate", limit=limit)
    if videos.actions != model.config.classes:
        raise DposeError("actions-differ", "has other actions than the model knows", data)
    units = VideoUnits(videos, model.config)

    def score(scored: torch.nn.Module) -> tuple[Result, int]:
        task = ActionTask(videos.actions)
        return metric_of_views(task, scored, units, microbatch_size=16, console=console), len(units)

    return ScoredData(
        units=units,
        name=spec.shown,
        unit=UNIT,
        public=spec.public,
        same=any(spec.same_units(own) for own in _trained_on(folder)),
        names=spec.set_names,
        score=score,
        report=tuple(videos.notes),
        task=ActionTask(videos.actions),
    )


def _explain(config: RunConfig) -> RenderableType:
    """What a run would do, protect and cost."""
    check_action_start(config)
    missing = ", which is not there yet" if config.model.init and not Path(config.model.init).exists() else ""
    size = config.model.input_size or ActionConfig(("",), _preset(config)).input_size
    count, how = counted(config, lambda: len(open_action_units(config)))
    views = config.data.views or 1
    lines = Text(
        f"{_source(config)}: {count:,} videos ({how}), {views} of each one's clips in a gradient."
        f" Starts from {config.model.init or 'nothing'}{missing}; public data: {config.data.public or 'none'}.\n"
    )
    return Group(lines, explain_plan(config.plan, count, size))


def _source(config: RunConfig) -> str:
    return only_source(config, "an action run")


def open_action_units(config: RunConfig) -> VideoUnits:
    """The units that a run trains on.

    Raises:
        DposeError: the unit is not a video, or the videos cannot be read.
    """
    if (config.plan.unit or UNIT) != UNIT:
        what = f"action data has no unit {config.plan.unit!r}"
        raise DposeError("unit-unsupported", what, "plan.unit", f"leave it out, or say {UNIT}")
    videos = open_videos(_source(config), purpose="train", limit=selection(config))
    if not videos.actions:
        raise DposeError("actions-missing", "has no actions to learn", _source(config))
    return VideoUnits(
        videos, _model_config(config, videos.actions), views=config.data.views or 1, augment=config.augment != "none"
    )


def _learns(config: RunConfig) -> tuple[UnitDataset, ...]:
    """The units of a run, and the public ones that its method reads."""
    units = open_action_units(config)
    public = _public(config, units.config) if config.plan.fits_public else None
    return (units, *([public] if public else []))


def check_action_start(config: RunConfig) -> ActionStrategy:
    """The strategy of a run, which goes with its first weights.

    Raises:
        DposeError: it does not, or a setting is for poses.
    """
    choice = config.model
    if choice.temperature is not None:
        raise DposeError(
            "temperature-of-poses", "is for poses", f"model.temperature={choice.temperature:g}", "leave it out"
        )
    if choice.codec is not None:
        raise DposeError("codec-of-poses", "is for poses", f"model.codec={choice.codec}", "leave it out")
    strategy = choice.strategy or ("full" if choice.init else "scratch")
    if (choice.init is None) != (strategy == "scratch"):
        raise DposeError(
            "init-strategy-conflict",
            f"strategy {strategy} {'starts from trained weights' if choice.init is None else 'takes no --init'}",
            fix="give --init FOLDER or FILE.safetensors, or --strategy scratch",
        )
    return cast(ActionStrategy, strategy)


def build_action_model(config: RunConfig, actions: tuple[str, ...]) -> tuple[ActionModel, FirstWeights]:
    """The model to train, and where its first weights are from."""
    choice, strategy = config.model, check_action_start(config)
    model, start = fresh_model(_model_config(config, actions), config.seed), FirstWeights.drawn()
    if choice.init:
        path = Path(choice.init)
        if path.is_dir():
            model = load_action_model(path)
            if model.config.classes != actions:
                raise DposeError("actions-differ", "knows other actions than the data have", str(path))
            start = FirstWeights.of(path, said=choice.init_data)
        else:
            load_pretrained(model, path)
            learnt = TrainedOn(("kinetics",), known=True)
            start = FirstWeights.of(path, NOBODY_IN_KINETICS, learnt=learnt, said=choice.init_data)
    apply_action_strategy(model, strategy)  # which refuses those that are for poses
    return cast(ActionModel, on_device(model)), start


def _trained_on(folder: Path) -> tuple[ActionSpec, ...]:
    """The videos a run was trained on, where its config says."""
    try:
        return tuple(ActionSpec.parse(s).for_purpose("train") for s in run_config(folder).data.sources)
    except DposeError:
        return ()


def _preset(config: RunConfig) -> ActionPreset:
    known = get_args(ActionPreset)
    if config.model.preset not in known:
        what = "there is no such preset of the action model (perhaps it is a pose model's)"
        raise DposeError("preset-unknown", what, f"--preset {config.model.preset}", f"choose {' or '.join(known)}")
    return cast(ActionPreset, config.model.preset)


def _model_config(config: RunConfig, actions: tuple[str, ...]) -> ActionConfig:
    return ActionConfig(actions, _preset(config), input_size=config.model.input_size or (0, 0))


def _public(config: RunConfig, model: ActionConfig) -> VideoUnits | None:
    if config.data.public is None:
        return None
    spec = ActionSpec.parse(config.data.public).for_purpose("train")
    if spec.same_units(ActionSpec.parse(_source(config)).for_purpose("train")):
        what, fix = "the public data are the private ones", "name data of other people, or leave it out"
        raise DposeError("public-data-private", what, f"--public {config.data.public}", fix)
    return VideoUnits(open_videos(spec, purpose="train"), model, views=config.data.views or 1, augment=True)


def _watch(config: RunConfig, own: ActionSpec, model: ActionConfig) -> Validation | None:
    """The configured validation data; by default held-out films of rendered people."""
    if config.data.validation_data == "none" or (config.data.validation_data is None and not own.public):
        return None
    spec = ActionSpec.parse(config.data.validation_data or f"{own.name}:{own.root}").for_purpose("evaluate")
    if spec.same_units(own) and config.plan.kind.reads_private_data:
        raise DposeError(
            "watched-data-protected",
            "these are the units the run protects; their score would be outside any guarantee",
            f"data.validation_data={config.data.validation_data}",
            "watch public or held-out data",
        )
    units = VideoUnits(open_videos(spec, purpose="evaluate", limit=200), model)
    return Validation(units, f"{spec.shown}, {len(units):,} units", spec.public)


def _conditions(config: RunConfig) -> tuple[str, ...]:
    return (NOBODY_IN_KINETICS,) if Path(config.model.init or "").suffix == ".safetensors" else ()


ENTRY = TaskEntry(
    name=ActionTask.name,
    unit=UNIT,
    prepare=_prepare,
    scored=_scored,
    load=load_action_model,
    explain=_explain,
    conditions=_conditions,
    learns=_learns,
)
