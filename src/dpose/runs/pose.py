"""Runs of the pose task: its data, its models and their scores, for `dpose.runs.tasks`.

A recipe's first stage: the first weights learn from public data, in a run of their own beside the private one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console, Group, RenderableType
from rich.text import Text

from dpose.errors import DposeError, naming
from dpose.files import check_free
from dpose.pose.codec import codec_of
from dpose.pose.data import Augment, DataSpec, PoseUnits, open_data
from dpose.pose.folder import load_model
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import SKELETONS, check_in_common, joint_map
from dpose.pose.task import PoseTask
from dpose.privacy.protected import protect
from dpose.runs.build import (
    build_model,
    check_settings,
    corrected,
    described_model,
    first_weights,
    open_public,
    open_units,
    precision,
    resolved,
)
from dpose.runs.config import RECIPES, RunConfig, filled_in, recipe_for
from dpose.runs.data import (
    POSE,
    conditions,
    counted,
    public_split,
    published_count,
    regions_for,
    scored_units,
    sources,
    watched,
)
from dpose.runs.places import check_begun, run_config
from dpose.runs.reporting import WATCHED
from dpose.runs.tasks import PreparedRun, ScoredData, TaskEntry
from dpose.runs.train import train_run
from dpose.training.arithmetic import slow_in_bfloat16
from dpose.training.distributed import ProcessGroup, process_group
from dpose.training.guards import check_disjoint
from dpose.training.run import Run
from dpose.training.statement import StatementFacts
from dpose.training.trained_on import TrainedOn, check_unseen
from dpose.training.validation import Validation, metric_of_views
from dpose.units import Result, UnitDataset, View


def public_stage(config: RunConfig, out: Path, console: Console, command: str) -> RunConfig | Run:
    """Teach the first weights on public data if the recipe has that stage and there are such data.

    The data are those of `--public`, or else the public split of the dataset that is trained on. No private picture is
    read but to refuse public ones that are among them. A stage that was stopped is gone on with; one that is whole is
    used as it is.

    Args:
        config: Of the private run.
        out: Its folder; the stage's stands beside it, with "-public" behind its name.
        console: Where progress goes.
        command: What the user typed, for the report.

    Returns:
        The private run's configuration with its first weights; or the stage's run, if it was stopped.
    """
    spec = stage_data(config)
    if spec is None:
        return config
    check_settings(config)
    check_free(out, may_be_empty=True)
    place = process_group()
    place.highest(0)  # all processes look before one makes a folder
    folder = out.with_name(f"{out.name}-public")
    stage = _stage(config, spec)
    if place.first:
        console.print(
            f"First, public data: the weights learn from {spec.shown}, without privacy, into {folder}.",
            highlight=False,
            soft_wrap=True,
        )
    _check_disjoint(config, spec, console if place.first else Console(quiet=True), place)
    begun = folder.exists()
    if begun:
        check_begun(folder, stage)
    if not (folder / "model.safetensors").exists():
        run = train_run(stage, folder, console, resume=begun, command=command, data_is_public=True)
        if run.interrupted:
            return run
    recipe = RECIPES[config.recipe or ""]
    # a recipe's temperature is for logits of bins, where there are any
    temperature = recipe.temperature if codec_of(described_model(config)).bin_layers else None
    first = {"init": str(folder), "temperature": config.model.temperature or temperature}
    return config.model_copy(
        update={
            "model": config.model.model_copy(update=first),
            # a score on pictures that it has learnt by heart would tell nothing
            "data": config.data.model_copy(update={"validation_data": config.data.validation_data or "none"}),
        }
    )


def _stage(config: RunConfig, spec: DataSpec) -> RunConfig:
    assert config.recipe is not None
    given = {
        "data": {"private": str(spec), "public_licence": config.data.public_licence},
        "model": {
            "preset": config.model.preset,
            "input_size": config.model.input_size,
            "stride": config.model.stride,
            "codec": config.model.codec,
        },
        "seed": config.seed,
    }
    return resolved(RunConfig.from_dict(filled_in(given, RECIPES[config.recipe].public), "recipe"))


def stage_data(config: RunConfig) -> DataSpec | None:
    """What the stage would learn from; None without a stage."""
    if config.recipe is None or config.model.init or not config.plan.kind.private:
        return None
    if config.model.strategy == "scratch" or not recipe_for(config.recipe, config.model.preset).public:
        return None
    own = public_split(config)
    return DataSpec.parse(config.data.public).for_purpose("train") if config.data.public else own


def _check_disjoint(config: RunConfig, spec: DataSpec, console: Console, place: ProcessGroup) -> None:
    learnt = TrainedOn(spec.set_names.notes, how="as its public stage would")
    for one in sources(config):  # now, and not when the stage has taken its hours
        check_unseen(learnt, one.set_names, f"--public {spec}", config.plan.unit or "image")
    named = config.model_copy(update={"data": config.data.model_copy(update={"public": str(spec)})})
    model = described_model(config)
    public = open_public(named, model)
    assert public is not None
    private = protect(open_units(config, model), config.plan.relation, console=console, readers=place)
    check_disjoint(public, private, 2, console, place)


NO_MARKS = "synthetic:studio:train"
"""Rendered people."""


def prepare(config: RunConfig, console: Console) -> PreparedRun:
    """Data and model of a pose run."""
    check_settings(config)
    with console.status("the first weights"):
        model, start, caveats = build_model(config)
    if config.plan.kind.public_views and regions_for(model.config) is not None:
        raise DposeError(
            "detector-without-public-view",
            "crops people where a detector finds them in the sharp picture, which no public view of "
            f"{config.plan.method} may depend on",
            f"preset {model.config.preset}",
            "use dp-sgd, pdp-sgd or another backbone",
        )
    config = resolved(config)
    slow = _slow_in_bf16(next(model.parameters()).device) if config.precision == "bf16" else None
    if slow:
        console.print(f"Warning: {slow}", highlight=False)
    data = open_units(config, model.config)
    private = config.plan.kind.reads_private_data
    if private and isinstance(data, PoseUnits):
        _refuse_shared(data, console)
    public = open_public(config, model.config)
    if config.plan.kind.solves and public is not None:
        with console.status("the directions of the correction"):
            model = corrected(config, model, published_count(config, len(data)), public)
    return PreparedRun(
        config=config,
        task=PoseTask(model.config.skeleton, model.codec, precision=precision(config)),
        model=model,
        units=data,
        data_name=" and ".join(one.shown for one in sources(config)),
        title=" and ".join(config.data.sources),
        start=start,
        report=() if private else tuple(data.report),
        public=public,
        validation_data=_watch(config, model.config),
        facts=StatementFacts(conditional_on=conditions(config), caveats=caveats),
    )


def scored(
    folder: Path, model: torch.nn.Module, data: str, *, limit: int | None, detections: str | None, console: Console
) -> ScoredData:
    """Data to score a pose model on: PCKh, or OKS AP where labels are in COCO's format."""
    from dpose.runs.evaluate import pictures_of, score_boxes

    assert isinstance(model, PoseModel)
    spec = DataSpec.parse(data).for_purpose("evaluate")
    coco = spec.dataset.oks
    if detections is not None and not coco:
        raise DposeError("detections-unsupported", "takes no detections: its people have boxes of their own", spec.name)
    # a detector also finds people who are not labelled
    units = (
        scored_units(spec, model.config, limit)
        if detections is None
        else pictures_of(spec, model.config.input_size, limit)
    )
    task = PoseTask(model.config.skeleton, model.codec, labels=units.skeleton.name)

    def score(scored: torch.nn.Module) -> tuple[Result, int]:
        assert isinstance(scored, PoseModel)
        if coco:
            return score_boxes(scored, spec, detections=detections, limit=limit, console=console)
        task = PoseTask(scored.config.skeleton, scored.codec, labels=units.skeleton.name)
        return metric_of_views(task, scored, units, console=console), len(units)

    return _scored_data(folder, spec, units, score, task)


def scored_whole(folder: Path, model: torch.nn.Module, data: str, *, limit: int | None, console: Console) -> ScoredData:
    """Data to score a pose model on in whole pictures: PCKh, or OKS AP where labels are in COCO's format."""
    from dpose.runs.evaluate import pictures_of, score_whole_pictures

    assert isinstance(model, PoseModel)
    spec = DataSpec.parse(data).for_purpose("evaluate")
    units = pictures_of(spec, model.config.input_size, limit)

    def score(scored: torch.nn.Module) -> tuple[Result, int]:
        assert isinstance(scored, PoseModel)
        return score_whole_pictures(scored, spec, units, limit=limit, console=console)

    return _scored_data(folder, spec, units, score)


def _scored_data(
    folder: Path,
    spec: DataSpec,
    units: PoseUnits,
    score: Callable[[torch.nn.Module], tuple[Result, int]],
    task: PoseTask | None = None,
) -> ScoredData:
    return ScoredData(
        units=units,
        name=spec.shown,
        unit="image",
        public=spec.public,
        same=any(spec.same_units(own) for own in _trained_on(folder)),
        names=spec.set_names,
        score=score,
        report=() if spec.dataset.oks else tuple(units.report),
        task=task,
    )


def learns(config: RunConfig) -> tuple[UnitDataset, ...]:
    """The units of a run, and the public ones that its method reads."""
    model = described_model(config)
    public = open_public(config, model) if config.plan.fits_public else None
    return (open_units(config, model), *([public] if public else []))


def _trained_on(folder: Path) -> tuple[DataSpec, ...]:
    """The data a run was trained on, where its config says."""
    try:
        return sources(run_config(folder))
    except DposeError:
        return ()


def explain(config: RunConfig) -> RenderableType:
    """What a run would do, protect and cost. Where the data are not at hand, for as many units as the config says."""
    from dpose.runs.explain import explain_plan

    model = described_model(config)
    count, how = counted(config, lambda: len(open_units(config, model)))
    first = first_weights(config) if config.model.init is None or Path(config.model.init).exists() else None
    start = first or config.model.init or "nothing"
    lines = Text(
        f"{' and '.join(config.data.sources)}: {count:,} units of kind {config.plan.unit or 'image'} ({how}). "
        f"Starts from {start}; public data: {config.data.public or 'none'}.\n"
    )
    parts = [lines, explain_plan(config.plan, count, model.input_size)]
    stage = stage_data(config)
    if stage:
        parts += [Text(f"First its weights learn from {stage.shown}, taken to be public, without privacy.")]
    return Group(*parts)


def _refuse_shared(data: PoseUnits, console: Console) -> None:
    """Refuse a picture that is in two of the private data: as two units it would get half the protection of one."""
    with console.status("looking for pictures that are in two of the data"):
        shared = data.shared_picture(readers=process_group())
    if shared:
        raise DposeError(
            "picture-in-two-units",
            f"{shared[0]} and {shared[1]} are one picture",
            "--data",
            "leave it out of one: protection is stated for a unit, and this would be two",
        )


def _watch(config: RunConfig, model: PoseConfig) -> Validation | None:
    spec = watched(config)
    if spec is None:
        return None
    units = scored_units(spec, model, WATCHED)
    own, labels = SKELETONS[model.skeleton], units.skeleton
    with naming(f"data.validation_data={spec.shown}"):
        check_in_common(own, labels, joint_map(own, labels, predicted=True))
    task = PoseTask(model.skeleton, codec_of(model), labels=units.skeleton.name)
    return Validation(units, f"{spec.shown}, {len(units):,} units", spec.public, task)


def canary_views(model: torch.nn.Module, rng: np.random.Generator, count: int) -> tuple[PoseTask, list[View]]:
    """Rendered people with joints drawn at random: the task and at most `count` views."""
    assert isinstance(model, PoseModel)
    config = model.config
    task = PoseTask(config.skeleton, model.codec)
    if not count:
        return task, []
    size = config.input_size
    nobody = open_data(
        NO_MARKS, purpose="train", input_size=size, augment=Augment.none(), limit=count, regions=regions_for(config)
    )
    people = nobody.with_skeleton(SKELETONS[config.skeleton], disjoint=True)
    from dpose.training.canaries import wrong_labels

    views = [wrong_labels(people.load(i, rng)[0], "keypoints", min(size), rng) for i in range(len(people))]
    return task, views


ENTRY = TaskEntry(
    **vars(POSE),
    prepare=prepare,
    scored=scored,
    load=load_model,
    explain=explain,
    stage=public_stage,
    pictures=True,
    canary_views=canary_views,
    learns=learns,
    whole_pictures=scored_whole,
)


def _slow_in_bf16(device: torch.device) -> str | None:
    """A warning about a processor that has no instructions for bfloat16; None if it has, or is unknown."""
    if not slow_in_bfloat16(device):
        return None
    return "this processor has neither AMX nor AVX512-BF16: bf16 is slower on it than float32"
