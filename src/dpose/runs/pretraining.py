"""A recipe's first stage: the first weights learn from public data, in a run of their own beside the private one."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from dpose.files import check_free
from dpose.pose.codec import codec_of
from dpose.pose.data import DataSpec
from dpose.privacy.protected import protect
from dpose.runs.build import check_settings, described_model, open_public, open_units, resolved
from dpose.runs.config import RunConfig
from dpose.runs.data import public_split, sources
from dpose.runs.places import check_begun
from dpose.runs.recipes import RECIPES, filled_in
from dpose.runs.train import train_run
from dpose.training.distributed import ProcessGroup, process_group
from dpose.training.guards import check_disjoint
from dpose.training.run import Run
from dpose.training.trained_on import TrainedOn, check_unseen


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

    Raises:
        DposeError: `out` is there already, a public picture is a private one, or the stage's folder is another run's.
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
    if config.model.strategy == "scratch":
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
