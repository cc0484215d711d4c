"""From a configuration to a run folder with its report: what the command line calls."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from dpose.errors import DposeError
from dpose.files import check_free
from dpose.pose.data import Augment, ConcatUnits, DataSpec, open_data
from dpose.pose.model import PoseConfig
from dpose.pose.task import PoseTask
from dpose.runs.build import (
    build_model,
    conditions,
    first_weights,
    open_public,
    open_units,
    precision,
    settled,
    shown_spec,
    told_count,
    watched,
)
from dpose.runs.config import RunConfig
from dpose.runs.explain import explain_plan
from dpose.runs.places import places_of, shown_settings
from dpose.runs.reporting import WATCHED, make_report, show_report
from dpose.runs.warnings import few_units, slow_in_bf16
from dpose.training.distributed import process_group
from dpose.training.trainer import Run, train
from dpose.training.validation import Validation


def train_pose(
    config: RunConfig,
    out: Path,
    console: Console,
    views_at_once: int | None = None,
    resume: bool = False,
    command: str = "",
) -> Run:
    """Train a pose model as `config` says and write the run folder `out`.

    Args:
        config: The run.
        out: Must not exist, unless `resume`.
        console: Where progress goes.
        views_at_once: The micro-batch in views; fitted to memory when None.
        resume: Go on from the last checkpoint in `out`, which `config` began.
        command: What the user typed, for the report.

    Raises:
        DposeError: data, model or plan are not possible; or there is nothing to resume.
    """
    place = process_group()
    if not place.first:
        console = Console(quiet=True)
    if not resume:
        check_free(out, may_be_empty=True)
    place.highest(0)  # nobody makes the folder before everybody has looked
    with console.status("the first weights"):
        model, start, caveats = build_model(config)
    config = settled(config)
    slow = slow_in_bf16(next(model.parameters()).device) if config.precision == "bf16" else None
    if slow:
        console.print(f"Warning: {slow}", highlight=False)
    data = open_units(config, model.config.input_size)
    named = " and ".join(config.data.sources)
    if config.plan.kind.reads_private_data:
        if isinstance(data, ConcatUnits):
            _refuse_shared(data, console)
        # what a dataset says of itself counts labels and people: of private data the number of units is enough
        count = told_count(config, len(data))
        show_report([f"{named}: {count:,} units"], console)
        warning = few_units(count)
        if warning:
            console.print(f"Warning: {warning}", highlight=False)
    else:
        show_report(data.report, console)
    run = train(
        PoseTask(model.config.skeleton, model.config.split_ratio, precision=precision(config)),
        model,
        private=data,
        plan=config.plan,
        out=out,
        resume=resume,
        public=open_public(config, model.config.input_size),
        optimizer=config.optimizer,
        seed=config.seed,
        watch=_watch(config, model.config),
        settings=shown_settings(config, command),
        places=places_of(config, command),
        start=start,
        conditional_on=conditions(config),
        caveats=caveats,
        views_at_once=views_at_once,
        console=console,
        data_name=" and ".join(
            shown_spec(DataSpec.parse(name).for_purpose("train")) for name in config.data.sources
        ),
    )
    if place.first:
        make_report(out, console=console)
    return run


def explain_run(config: RunConfig) -> RenderableType:
    """What a run would do, protect and cost. Where the data are not at hand, for as many units as the config says.

    Raises:
        DposeError: the plan is not possible; or the data cannot be read and the config gives no number of units.
    """
    size = config.model.input_size or PoseConfig(preset=config.model.preset).input_size
    try:
        count = told_count(config, len(open_units(config, size)))
        how = "counted" if config.plan.nominal_units is None else "nominal"
    except DposeError as error:
        if config.data.units is None:
            raise
        count, how = config.data.units, f"as configured; the data are not at hand ({error.what})"
    first = first_weights(config) if config.model.init is None or Path(config.model.init).exists() else None
    start = first or config.model.init or "nothing"
    lines = Text(
        f"{' and '.join(config.data.sources)}: {count:,} units of kind {config.plan.unit or 'image'} ({how}). "
        f"Starts from {start}; public data: {config.data.public or 'none'}.\n"
    )
    return Group(lines, explain_plan(config.plan, count, size))


def _refuse_shared(data: ConcatUnits, console: Console) -> None:
    """Refuse a picture that is in two of the private data: as two units it would get half the protection of one."""
    with console.status("looking for pictures that are in two of the data"):
        shared = data.shared_picture()
    if shared:
        raise DposeError(
            f"{shared[0]} and {shared[1]} are one picture",
            "--data",
            "leave it out of one: protection is stated for a unit, and this would be two",
        )


def _watch(config: RunConfig, model: PoseConfig) -> Validation | None:
    spec = watched(config)
    if spec is None:
        return None
    size = model.input_size
    units = open_data(spec, purpose="evaluate", input_size=size, augment=Augment.none(), limit=WATCHED)
    task = PoseTask(model.skeleton, model.split_ratio, labels=units.skeleton.name)
    return Validation(units, f"{shown_spec(spec)}, {len(units):,} units", spec.public, task)
