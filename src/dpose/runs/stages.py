"""Stages of a recipe: a run on public data before the private one, and a private one behind it on the same budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from dpose.account import budgets, charge_all, charges, names_of_run
from dpose.errors import DposeError
from dpose.files import check_free
from dpose.pose.codec import codec_of
from dpose.pose.data import DataSpec
from dpose.privacy.entries import read_ledger
from dpose.privacy.keys import keys_kept
from dpose.privacy.protected import Protected, protect
from dpose.privacy.ranges import upper
from dpose.runs.build import check_settings, described_model, open_public, open_units, resolved
from dpose.runs.config import RECIPES, Recipe, RunConfig, filled_in
from dpose.runs.data import public_spec, public_split, published_count, sources
from dpose.runs.expect import where_head_is_enough
from dpose.runs.places import check_begun
from dpose.runs.train import train_run
from dpose.training.charging import run_charge
from dpose.training.checkpoint import is_whole
from dpose.training.distributed import ProcessGroup, process_group
from dpose.training.folder import run_id_of
from dpose.training.guards import check_disjoint
from dpose.training.options import RunOptions
from dpose.training.plan import shared_budget
from dpose.training.run import Run
from dpose.training.trained_on import TrainedOn, check_unseen


def take_stages(
    config: RunConfig, out: Path, console: Console, command: str, microbatch_size: int | None = None
) -> RunConfig | Run:
    """Take all stages but the last: the last run's configuration, or a run that was stopped.

    A stage that was stopped is gone on with; one that is whole is used as it is.

    Args:
        config: The whole recipe's, with the budget of all its private stages.
        out: Folder of the last run; the stages' stand beside it, with "-public" and "-first" behind its name.
        console: Where progress goes.
        command: What the user typed, for the reports.
        microbatch_size: Of all stages, in views; fitted to memory when None.
    """
    taught = public_stage(config, out, console, command, microbatch_size)
    if isinstance(taught, Run):
        return taught
    check_free(out, may_be_empty=True, may_be_locked=True)
    return private_stage(taught, out, console, command, microbatch_size)


DP_SGD_ALONE = "No public data: the recipe is DP-SGD alone; --public names some"


def lacks_public(config: RunConfig) -> bool:
    """True if a recipe's method is fitted on public data and there are none."""
    recipe = _recipe_of(config)
    needed = recipe is not None and config.plan.fits_public and config.data.public is None
    return needed and public_split(config) is None


def settled(config: RunConfig) -> RunConfig:
    """With the public data that a recipe's method is fitted on, by default the data's public split; else by DP-SGD."""
    if _recipe_of(config) is None or config.data.public is not None or not config.plan.fits_public:
        return config
    if lacks_public(config):
        return config.model_copy(update={"plan": replace(config.plan, method="dp-sgd")})
    return config.model_copy(update={"data": config.data.model_copy(update={"public": str(public_split(config))})})


def in_steps(config: RunConfig, count: int) -> RunConfig:
    """With batches in which passes over `count` units have the recipe's steps, unless batches or steps were given."""
    recipe, plan = config.whole_recipe, config.plan
    if recipe is None or recipe.steps is None or plan.epsilon is None or plan.steps is not None:
        return config
    if plan.expected_batch_size != recipe.private["plan"]["expected_batch_size"]:
        return config
    n, sigma = plan.one_step_noise(count)
    size = math.ceil(plan.epochs * n / recipe.steps.steps(n / sigma))
    return config.model_copy(update={"plan": replace(plan, expected_batch_size=size)})


def public_stage(
    config: RunConfig, out: Path, console: Console, command: str, microbatch_size: int | None = None
) -> RunConfig | Run:
    """Teach the first weights on public data if the recipe has that stage and there are such data.

    The data are those of `--public`, or else the public split of the dataset that is trained on. No private picture is
    read but to refuse public ones that are among them. Arguments and result are as of `take_stages`.
    """
    spec = stage_data(config)
    if spec is None:
        return config
    check_settings(config)
    check_free(out, may_be_empty=True)
    place = process_group()
    place.highest(0)  # all processes look before one makes a folder
    folder = out.with_name(f"{out.name}-public")
    _say(f"First, public data: the weights learn from {spec.shown}, without privacy, into {folder}.", console, place)
    _check_disjoint(config, spec, console if place.first else Console(quiet=True), place)
    public = _of_public_data(config, spec)
    stopped = _taken(public, folder, console, command, microbatch_size, data_is_public=True)
    if stopped:
        return stopped
    recipe = RECIPES[config.recipe or ""]
    # a recipe's temperature is for logits of bins, where there are any
    temperature = recipe.temperature if codec_of(described_model(config)).bin_layers else None
    first = {"init": str(folder), "temperature": config.model.temperature or temperature}
    # a score on pictures that it has learnt by heart would tell nothing
    data = config.data.model_copy(update={"validation_data": config.data.validation_data or "none"})
    return config.model_copy(update={"model": config.model.model_copy(update=first), "data": data})


def private_stage(
    config: RunConfig, out: Path, console: Console, command: str, microbatch_size: int | None = None
) -> RunConfig | Run:
    """Train as the recipe says on a part of the budget, if there is a private run behind that on the same units.

    **Guarantee.** Both runs' events are fixed before the first step, for units as they are protected (copies of one
    count once), and cost at most the budget together (one composition, docs/proofs/dp-head.md). The last run's
    statement counts them all: where the account does not know the first run, the last is refused. Arguments and
    result are as of `take_stages`.
    """
    recipe, place = config.whole_recipe, process_group()
    if recipe is None or not recipe.behind:
        return config
    if lacks_public(config):
        _say(f"{DP_SGD_ALONE}.", console, place)
    config = settled(config)
    check_settings(config)
    heard = console if place.first else Console(quiet=True)
    own = protect(open_units(config, described_model(config)), config.plan.relation, console=heard, readers=place)
    count = published_count(config, own.identity.units)
    config = in_steps(config, count)
    last = run_behind(config, out)
    if last is None:
        return config
    check_settings(last.model_copy(update={"model": config.model}))
    place.highest(0)  # all processes look before one makes a folder
    first, folder = run_before(config, last, count), Path(last.model.init or "")
    _say(f"{two_runs(config, first, last, count)} The first run goes into {folder}.", console, place)
    if place.highest(int(bool(budgets()) and not folder.exists())):
        _check_budgets(own, {folder: first, out: last})
    stopped = _taken(first, folder, console, command, microbatch_size)
    if stopped is None:
        _check_charged(folder)
    return stopped or last


def run_behind(config: RunConfig, out: Path) -> RunConfig | None:
    """The last run of a recipe with two private ones; None where `config` says all there is.

    Epsilon is what is shared: with a noise multiplier in its place, another method or no public data there is one run.
    """
    recipe = _recipe_of(config)
    if recipe is None or not recipe.behind or config.plan.epsilon is None:
        return None
    plan = config.plan.to_dict()
    same = ("delta", "noise", "relation", "accountant", "nominal_units", "unit")
    given = {
        **{name: value for name, value in config.to_dict().items() if name in ("task", "data", "seed", "about")},
        "model": {"init": str(out.with_name(f"{out.name}-first")), "preset": config.model.preset},
        "plan": {"epsilon": recipe.share * config.plan.epsilon, **{name: plan[name] for name in same}},
    }
    last = RunConfig.from_dict(filled_in(given, recipe.behind), "recipe")
    return last if public_spec(last) else None


def _recipe_of(config: RunConfig) -> Recipe | None:
    """The recipe of a run that has its method; None for another method, which the user has named, or no recipe."""
    recipe = config.whole_recipe
    return recipe if recipe and config.plan.method == recipe.private["plan"]["method"] else None


def run_before(config: RunConfig, last: RunConfig, count: int) -> RunConfig:
    """The first of two private runs on `count` units: with what `last` leaves of the budget."""
    return config.model_copy(update={"plan": shared_budget(config.plan, last.plan, count)})


def two_runs(config: RunConfig, first: RunConfig, last: RunConfig, count: int) -> str:
    """What two private runs are and cost, in a sentence."""
    one, other = first.plan.bind(count, count), last.plan.bind(count, count)
    return (
        f"Two private runs on one budget of epsilon {upper(config.plan.epsilon or 0)}: {first.plan.method} in "
        f"{one.steps:,} steps of {first.plan.expected_batch_size:,} units, alone epsilon {upper(one.epsilon or 0)}; "
        f"then {last.plan.method}, alone {upper(other.epsilon or 0)}.{where_head_is_enough(config.plan, count)}"
    )


def stage_data(config: RunConfig) -> DataSpec | None:
    """What the public stage would learn from; None without one."""
    recipe, model = config.whole_recipe, config.model
    if recipe is None or not recipe.public or not config.plan.kind.private or model.init or model.strategy == "scratch":
        return None
    own = public_split(config)
    return DataSpec.parse(config.data.public).for_purpose("train") if config.data.public else own


def _check_charged(folder: Path) -> None:
    """Refuse to go on from a first run that the account does not know: the last would be stated as if it were alone."""
    named = names_of_run(read_ledger(folder / "ledger.jsonl")[0].run_id)
    if not any(entry.id in named for entry in charges()):
        raise DposeError(
            "first-run-not-charged",
            "the account of this machine does not know this run, and what both take could not be added up",
            str(folder),
            "go on with the account that it was charged to, or begin both in another folder",
        )


def _check_budgets(own: Protected, runs: Mapping[Path, RunConfig]) -> None:
    """Refuse runs that the account would not let in one after the other, before the first takes anything."""
    entries = []
    for folder, run in runs.items():
        options = RunOptions(data_name=" and ".join(spec.shown for spec in sources(run)))
        seeded = run.seed is not None
        entries.append(run_charge(folder, run.plan.bind_to(own), own, options, opened=None, seeded=seeded, known=None))
    try:
        charge_all(entries, dry_run=True)
    except DposeError as error:
        if error.code != "budget-exceeded":
            raise
        said = f"two runs, one after the other, would not both be let in: {error.what}"
        fix = "choose a smaller --epsilon, or one run: --method dp-head, without --recipe"
        raise DposeError(error.code, said, error.where, fix) from error


def _taken(
    stage: RunConfig,
    folder: Path,
    console: Console,
    command: str,
    microbatch_size: int | None,
    *,
    data_is_public: bool = False,
) -> Run | None:
    """Train a stage to its end, from where it was stopped; the run if it was stopped again."""
    begun = folder.exists()
    if begun:
        check_begun(folder, stage)
        # a run that was killed before it forgot its key is ended by going on
        kept = process_group().highest(int(run_id_of(folder) in keys_kept()))
        if is_whole(folder) and not kept:
            return None
    run = train_run(stage, folder, console, microbatch_size, begun, command, data_is_public=data_is_public)
    return run if run.interrupted else None


def _say(text: str, console: Console, place: ProcessGroup) -> None:
    if place.first:
        console.print(text, highlight=False, soft_wrap=True)


def _of_public_data(config: RunConfig, spec: DataSpec) -> RunConfig:
    assert config.recipe is not None
    given = {
        "data": {"private": str(spec), "public_licence": config.data.public_licence},
        "model": {name: getattr(config.model, name) for name in ("preset", "input_size", "stride", "codec")},
        "seed": config.seed,
    }
    return resolved(RunConfig.from_dict(filled_in(given, RECIPES[config.recipe].public), "recipe"))


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
