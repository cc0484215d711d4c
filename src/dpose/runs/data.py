"""Which data a configuration means, what they are called, and what a guarantee takes as given because of them.

No model is needed for any of it: `dpose verify` reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from dpose.data_spec import Spec
from dpose.errors import DposeError
from dpose.pose.data.spec import DataSpec
from dpose.privacy.sections import UNSTATED
from dpose.privacy.selection import Selection
from dpose.runs.config import RunConfig, TaskFacts
from dpose.training.first_weights import LICENCE
from dpose.units import Unit

if TYPE_CHECKING:
    from dpose.pose.data.pictures import Regions
    from dpose.pose.data.units import PoseUnits
    from dpose.pose.model import PoseConfig

IMAGENET = "imagenet"
"""What `--init` calls the weights of a backbone that has learnt from ImageNet."""
NOBODY_IN_IMAGENET = (
    "the photographs of ImageNet, which the backbone's first weights learnt from, show none of the units"
)


def any_spec(text: str) -> Spec | None:
    """The spec of poses or of videos that `text` writes; None if no data have its name."""
    name = text.partition(":")[0].partition(",")[0]
    if name in ("", "none"):
        return None
    if name in DataSpec.datasets:
        return DataSpec.parse(text)
    from dpose.action.data.spec import ActionSpec

    return ActionSpec.parse(text) if name in ActionSpec.datasets else None


def in_a_folder(text: str | None) -> bool:
    """Whether a data spec, as it was written, names a folder on this machine."""
    found = any_spec(text or "")
    return found is not None and found.dataset.in_a_folder


def sources(config: RunConfig) -> tuple[DataSpec, ...]:
    """The data that a run trains on, with their splits."""
    return tuple(DataSpec.parse(spec).for_purpose("train") for spec in config.data.sources)


def only_source(config: RunConfig, who: str) -> str:
    """The data that a run trains on, where `who` takes one alone."""
    first, *others = config.data.sources
    if others:
        raise DposeError(
            "data-given-several", f"{who} takes one --data", " ".join(config.data.sources), "give the data one by one"
        )
    return first


def watched(config: RunConfig) -> DataSpec | None:
    """The data that a run scores while it trains: as configured, or the public split of what it trains on."""
    spec = _to_watch(config)
    if spec is not None and _protected(config, spec):
        raise DposeError(
            "watched-data-protected",
            "these are the units the run protects; their score would be outside any guarantee",
            f"data.validation_data={config.data.validation_data}",
            "watch public or held-out data",
        )
    return spec


def _to_watch(config: RunConfig) -> DataSpec | None:
    if config.data.validation_data == "none":
        return None
    if config.data.validation_data:
        return DataSpec.parse(config.data.validation_data).for_purpose("evaluate")
    return public_split(config)


def public_split(config: RunConfig) -> DataSpec | None:
    """The public split of what a run trains on, the first that is not itself protected; None if there is none."""
    splits = (replace(one, split="public") for one in sources(config) if "public" in one.dataset.splits)
    return next((spec for spec in splits if not _protected(config, spec)), None)


def _protected(config: RunConfig, spec: DataSpec) -> bool:
    return config.plan.kind.reads_private_data and any(spec.same_units(own) for own in sources(config))


def public_spec(config: RunConfig) -> DataSpec | None:
    """The extra public data of a run, if any; of a method that solves, by default the data's public split."""
    if config.data.public is None:
        return public_split(config) if config.plan.kind.solves else None
    spec = DataSpec.parse(config.data.public)
    if any(spec.for_purpose("train").same_units(own) for own in sources(config)):
        what, fix = "the public data are the private ones", "name data of other people, or leave it out"
        raise DposeError("public-data-private", what, f"--public {config.data.public}", fix)
    return spec


def shows_nobody(config: RunConfig) -> bool:
    """True if the data that a run trains on are public by their names."""
    specs = [any_spec(name) for name in config.data.sources]
    return all(spec is not None and spec.for_purpose("train").public for spec in specs)


def public_licence(config: RunConfig) -> str:
    """Under which the public data of a run may be used: as configured, or dpose's own if it rendered all of them."""
    if config.data.public_licence:
        return config.data.public_licence
    names = (config.data.public,) if config.data.public else config.data.sources
    rendered = all(spec is not None and spec.dataset.rendered for spec in map(any_spec, names))
    return f"{LICENCE}, rendered by dpose" if rendered else UNSTATED


def conditions(config: RunConfig) -> list[str]:
    """What a guarantee takes as given because of data, recipe and ImageNet's weights; others bring their own."""
    public = DataSpec.parse(config.data.public).for_purpose("train") if config.data.public else None
    trained = sources(config)
    used = [*trained, _to_watch(config), public]  # in a run folder roots are shortened: two may look alike
    own = {spec.condition for spec in used if spec and spec.condition}
    if recipe := config.whole_recipe:
        own |= {recipe.chosen_on[spec.name] for spec in trained if spec.name in recipe.chosen_on}
    if config.plan.unit == Unit.SUBJECT and not all(spec.dataset.rendered for spec in trained):
        own.add(ONE_NAME)
    if config.model.init == IMAGENET:
        own.add(NOBODY_IN_IMAGENET)
    return sorted(own)


ONE_NAME = "every subject has one name in the data, and is on no picture that bears another's"
"""What a guarantee for each subject takes as given, where the data are not rendered."""

POSE = TaskFacts(
    "pose",
    Unit.IMAGE.value,
    recipes=True,
    precisions=("float32", "bf16"),
    conditions=conditions,
    entry="dpose.runs.pose:ENTRY",
)
"""The task of poses, as its configurations know it."""


def selection(config: RunConfig) -> Selection | None:
    """Which of the units a run uses, as its relation needs them chosen; None for all."""
    if config.data.limit is None:
        return None
    return Selection(config.data.limit, config.plan.relation, config.plan.nominal_units)


def published_count(config: RunConfig, count: int) -> int:
    """The number of units that may be published: `count`, or under add-or-remove the constant that stands for it."""
    nominal = config.plan.nominal_units if config.plan.kind.private else None
    return count if nominal is None else min(nominal, config.data.limit or nominal)


def counted(config: RunConfig, count: Callable[[], int]) -> tuple[int, str]:
    """How many units a run has, canaries among them, and how that is known; without data as many as the config says."""
    try:
        units, how = (published_count(config, count()), "counted" if config.plan.nominal_units is None else "nominal")
    except DposeError as error:
        if config.data.units is None:
            raise
        units = published_count(config, config.data.units)
        how = f"as configured; the data are not at hand ({error.what})"
    if config.canaries is None or config.plan.nominal_units is not None:  # whose number canaries do not change
        return units, how
    return units + config.canaries.count, f"{how}, with {config.canaries.count:,} canaries"


def scored_units(spec: DataSpec | str, model: PoseConfig, limit: int | None) -> PoseUnits:
    """Units as a model is scored on them: cropped as it sees people, and not augmented."""
    from dpose.pose.data import Augment, open_data

    return open_data(
        spec,
        purpose="evaluate",
        input_size=model.input_size,
        augment=Augment.none(),
        limit=limit,
        regions=regions_for(model),
    )


def regions_for(model: PoseConfig) -> Regions | None:
    """Return the finder of regions to crop for a model; None if the model takes the boxes as they are.

    BlazePose was trained on upright people alone: its detector estimates how people are turned.
    """
    if model.codec != "blazepose":
        return None
    from dpose.pose.blaze_people import shipped_detector

    return shipped_detector()
