"""Runs of the pose task: its data, its models and their scores, for `dpose.runs.tasks`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console, Group, RenderableType
from rich.text import Text

from dpose.errors import DposeError, naming
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
    check_start,
    corrected,
    described_model,
    named_as_file,
    open_public,
    open_units,
    precision,
    resolved,
)
from dpose.runs.config import RunConfig
from dpose.runs.data import (
    IMAGENET,
    POSE,
    conditions,
    counted,
    public_spec,
    published_count,
    regions_for,
    scored_units,
    sources,
    watched,
)
from dpose.runs.places import run_config
from dpose.runs.reporting import WATCHED
from dpose.runs.stages import (
    DP_SGD_ALONE,
    in_steps,
    lacks_public,
    run_before,
    run_behind,
    settled,
    stage_data,
    take_stages,
    two_runs,
)
from dpose.runs.tasks import PreparedRun, ScoredData, TaskEntry
from dpose.training.arithmetic import slow_in_bfloat16
from dpose.training.distributed import process_group
from dpose.training.statement import StatementFacts
from dpose.training.validation import Validation, metric_of_views
from dpose.units import Result, UnitDataset, View

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
    public, own = open_public(config, model.config), None
    if config.plan.kind.solves and public is not None:
        own = protect(data, config.plan.relation, console=console, readers=process_group())
        with console.status("the directions of the correction"):
            # of units as they are protected: how often one of them was copied may shape nothing
            model = corrected(config, model, published_count(config, own.identity.units), public)
    return PreparedRun(
        config=config,
        task=PoseTask(model.config.skeleton, model.codec, precision=precision(config)),
        model=model,
        units=data,
        own=own,
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
    from dpose.pose.boxes import read_detections
    from dpose.runs.evaluate import detections_file, pictures_of, score_boxes

    assert isinstance(model, PoseModel)
    spec = DataSpec.parse(data).for_purpose("evaluate")
    coco = spec.dataset.oks
    if detections is not None and not coco:
        raise DposeError("detections-unsupported", "takes no detections: its people have boxes of their own", spec.name)
    if detections is not None:
        read_detections(detections_file(spec, detections))  # a mistake in the file costs no score
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

    alone = f" {DP_SGD_ALONE}." if lacks_public(config) else ""
    config, model = settled(config), described_model(config)
    check_settings(config)
    count, how = counted(config, lambda: len(open_units(config, model)))
    config = in_steps(config, count)
    init = config.model.init
    there = init is None or init == IMAGENET or Path(init).exists() or named_as_file(init)
    first = check_start(config)[0] if there else None
    start = first or init or "nothing"
    stage, last = stage_data(config), run_behind(config, Path("run"))
    lines = Text(
        f"{' and '.join(config.data.sources)}: {count:,} units of kind {config.plan.unit or 'image'} ({how}). "
        f"Starts from {start}; public data: {public_spec(last or config) or 'none'}.{alone}\n"
    )
    one = run_before(config, last, count) if last else config
    if last:
        lines.append(f"\n{two_runs(config, one, last, count)} Of the first by itself:\n")
    parts = [lines, explain_plan(one.plan, count, model.input_size)]
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
    stage=take_stages,
    pictures=True,
    canary_views=canary_views,
    learns=learns,
    whole_pictures=scored_whole,
)


def _slow_in_bf16(device: torch.device) -> str | None:
    """A warning about a processor that has no instructions for bfloat16; None if it has, or is unknown."""
    slow = "this processor has neither AMX nor AVX512-BF16: bf16 is slower on it than float32"
    return slow if slow_in_bfloat16(device) else None
