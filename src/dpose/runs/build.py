"""The model and the units of a configuration: which first weights, how they are changed, how data are opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args

import numpy as np
import torch

from dpose.errors import DposeError, naming
from dpose.pose.backbones import check_strategy, shipped_for, timm_name
from dpose.pose.data import Augment, PoseUnits, SubjectUnits, UnitKind, open_data, open_several
from dpose.pose.elsewhere import is_elsewhere
from dpose.pose.folder import find_model, load_model
from dpose.pose.heads import adapt_head, change_codec, divisible, fit_directions, resize, temper, with_correction
from dpose.pose.hub import PREFIX
from dpose.pose.model import PoseConfig, PoseModel, Strategy, apply_strategy, fold_batchnorm
from dpose.pose.norms import Norm
from dpose.pose.skeletons import SKELETONS
from dpose.pose.weights_file import SUFFIXES, imagenet_file
from dpose.runs.config import RunConfig
from dpose.runs.data import IMAGENET, NOBODY_IN_IMAGENET, public_spec, regions_for, selection, sources, watched
from dpose.training.closed_form import directions_for
from dpose.training.first_weights import FirstWeights
from dpose.training.trained_on import TrainedOn, check_unseen, said_by_user, trained_on
from dpose.units import Precision

AT_ONCE = 16
"""Public people whose features are computed together."""
FROM_IMAGENET = TrainedOn(("imagenet",), known=True)


def _skeleton(config: RunConfig) -> str:
    """Name of the skeleton that the first data are labelled with; the labels of others are brought to it."""
    return sources(config)[0].for_purpose("train").skeleton.name


def first_weights(config: RunConfig) -> Path | None:
    """The model folder that a run starts from: as configured, else what comes with dpose; None if there is none.

    One on the Hub is fetched. Of another library's it may be a file, too.
    """
    choice = config.model
    if choice.init == IMAGENET or backbone_file(config):
        return None
    if choice.init:
        found = find_model(choice.init)
        if found.is_file() and not is_elsewhere(found):
            raise DposeError(
                "weights-of-no-kind",
                "is no file of weights",
                choice.init,
                f"give a model folder, or a file whose name ends in {' or '.join(SUFFIXES)}",
            )
        return found
    return None if choice.strategy == "scratch" else shipped_for(choice.preset)


def backbone_file(config: RunConfig) -> Path | None:
    """The file of a backbone's weights that a run starts from; None if `init` is something else.

    Raises:
        DposeError: there is no such file.
    """
    if not named_as_file(config.model.init) or (path := Path(config.model.init or "")).is_dir():
        return None
    if not path.exists():
        raise DposeError("weights-file-missing", "no such file", str(path), "give a file of weights or a model folder")
    return None if is_elsewhere(path) else path


def named_as_file(init: str | None) -> bool:
    """Whether first weights are named as a file is."""
    return Path(init or "").suffix in SUFFIXES and not str(init).startswith(PREFIX)


def _called(config: RunConfig) -> str:
    """The name on the Hub of the weights that a run starts from; "" where they lie here."""
    init = config.model.init or ""
    return init if init.startswith(PREFIX) else ""


def described_model(config: RunConfig, norm: Norm = "batch") -> PoseConfig:
    """The model that a run makes where no model folder describes one."""
    choice = config.model
    return PoseConfig(
        preset=choice.preset,
        input_size=choice.input_size or (0, 0),
        norm=norm,
        skeleton=_skeleton(config),
        stride=choice.stride or 0,
        codec=choice.codec or "",
    )


def check_settings(config: RunConfig) -> None:
    """Refuse data that settings alone show to be wrong, before a model is made or any are opened.

    Raises:
        DposeError: data that are scored or public are the private ones; a method lacks the public data that it is
            fitted on; pose data have no such unit; a temperature is for a codec without logits; or the first weights
            have learnt from such data.
    """
    if config.model.codec and config.model.temperature not in (None, 1.0):
        divisible(described_model(config), config.model.temperature)
    watched(config)
    config.plan.check_public(public_spec(config))
    _unit(config)
    check_seen(config)


def check_start(config: RunConfig) -> tuple[Path | None, Strategy]:
    """The model folder that a run starts from, and its strategy, which go together.

    Raises:
        DposeError: they do not, or the first weights are not there.
    """
    choice, first = config.model, first_weights(config)
    pretrained = backbone_file(config) or choice.init == IMAGENET
    usual: Strategy = "head" if config.plan.kind.solves else "finetune"
    strategy: Strategy = choice.strategy or (usual if first or pretrained else "scratch")
    if config.plan.kind.solves and (strategy != "head" or first is None):
        raise DposeError(
            "strategy-unsupported",
            f"{config.plan.method} changes a linear correction of a trained model alone",
            f"strategy {strategy}" if first else f"model.init={choice.init}, which is no pose model",
            "give --init with a pose model, and leave --strategy out",
        )
    if choice.directions is not None and not config.plan.kind.solves:
        raise DposeError(
            "directions-unsupported",
            f"{config.plan.method} makes no linear correction",
            f"model.directions={choice.directions}",
            "leave it out, or choose dp-head or adassp-head",
        )
    started = bool(first or pretrained)
    check_strategy(strategy, choice.temperature, started=started, model=first is not None)
    return first, strategy


def build_model(config: RunConfig) -> tuple[PoseModel, FirstWeights, list[str]]:
    """The model to train, where its first weights are from, and what else the reader of its statement must know."""
    choice, private = config.model, config.plan.kind.reads_private_data
    first, strategy = check_start(config)
    pretrained = backbone_file(config) or choice.init == IMAGENET
    caveats = []
    if first is None:
        _seed(config)
        described = described_model(config, "group" if private and not pretrained else "batch")
        model = PoseModel(described, pretrained=pretrained)
        start = _start(config)
    else:
        model = load_model(first)
        own = model.config.input_size, model.config.stride
        wanted = choice.input_size or own[0], choice.stride or own[1]
        if wanted != own:
            how = "the head was resampled" if model.codec.bin_layers else "the model was taken"
            caveats.append(f"{how} from {_size(own[0])} pixels, stride {own[1]}, to {_size(wanted[0])}, {wanted[1]}")
            model = resize(model, *wanted)
        start = FirstWeights.of(first, said=choice.init_data, called=_called(config))
        before = model.config.codec
        if choice.codec not in (None, before):
            if config.plan.kind.solves:
                raise DposeError(
                    "codec-of-one-step-method",
                    f"{config.plan.method} corrects the joints that {first.name} finds, and a fresh head finds none",
                    f"model.codec={choice.codec}",
                    "leave it out",
                )
            if choice.temperature not in (None, 1.0):
                raise DposeError(
                    "temperature-of-fresh-head",
                    f"is for the first weights' logits, and a fresh head of {choice.codec} has none of them",
                    f"model.temperature={choice.temperature:g}",
                    "leave it or model.codec out",
                )
            _seed(config)
            model = change_codec(model, choice.codec)
            caveats.append(f"the head is fresh: {choice.codec} in the place of {before}")
        if choice.temperature not in (None, 1.0):
            caveats.append(f"the logits of the first weights were divided by {choice.temperature:g}")
            model = temper(model, choice.temperature)
    if private and model.config.norm == "batch":
        model = fold_batchnorm(model)
    skeleton = _skeleton(config)
    if model.config.skeleton != skeleton:
        caveats.append(f"the head was adapted from {model.config.skeleton}'s joints to {skeleton}'s")
        model = adapt_head(model, skeleton)
    apply_strategy(model, strategy)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # channels last: up to twice the speed of a plain step on a CPU, and never slower (benchmarks/private_step.py)
    return model.to(device).to(memory_format=torch.channels_last), start, caveats


def _seed(config: RunConfig) -> None:
    """What fresh weights are drawn from."""
    if config.seed is None:
        torch.seed()
    else:
        torch.manual_seed(config.seed)


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _start(config: RunConfig) -> FirstWeights:
    """Where the weights of a model that no folder holds are from."""
    file, said = backbone_file(config), config.model.init_data
    if file:
        return FirstWeights.of(file, said=said)
    if config.model.init != IMAGENET:
        return FirstWeights.drawn()
    shipped = imagenet_file(timm_name(config.model.preset))
    if shipped:
        return FirstWeights.of(shipped, NOBODY_IN_IMAGENET, learnt=FROM_IMAGENET, said=said)
    learnt = FROM_IMAGENET if said is None else FROM_IMAGENET + said_by_user(said)
    return FirstWeights(name="ImageNet", given=NOBODY_IN_IMAGENET, learnt=learnt)


def check_seen(config: RunConfig) -> None:
    """Refuse first weights that have learnt from the sets that a run protects, before any data are opened.

    Raises:
        DposeError: they have, as far as names tell; or there are none.
    """
    choice = config.model
    if not config.plan.kind.private:
        return
    place = backbone_file(config) or first_weights(config)
    if place is not None:
        learnt = trained_on(place, choice.init_data, _called(config))
    elif choice.init == IMAGENET:
        learnt = FROM_IMAGENET + said_by_user(choice.init_data or "imagenet")
    else:
        if choice.init_data is not None:
            raise DposeError(
                "init-data-without-init",
                "there are no first weights to say that of",
                f"model.init_data={choice.init_data}",
                "give --init",
            )
        return
    for spec in sources(config):
        check_unseen(learnt, spec.set_names, choice.init or str(place), config.plan.unit or "image")


def augment(config: RunConfig) -> Augment:
    """The augmentation: as configured, else none for one step, mild for private methods and strong for the others."""
    usual = "private" if config.plan.kind.reads_private_data else "public"
    name = config.augment or ("none" if config.plan.kind.solves else usual)
    return {"none": Augment.none, "private": Augment.private, "public": Augment.public}[name]()


def resolved(config: RunConfig) -> RunConfig:
    """`config` as it stands in the run folder: with this machine's precision and the public data that are read."""
    public = public_spec(config) if config.plan.kind.solves else None
    data = config.data.model_copy(update={"public": str(public)}) if public else config.data
    return config.model_copy(update={"precision": precision(config), "data": data})


def corrected(config: RunConfig, model: PoseModel, units: int, public: PoseUnits) -> PoseModel:
    """A model with a linear correction of its joints, in directions of public people; to be solved."""
    event = config.plan.bind(units, units).event
    assert event is not None
    # a second moment stands in the rows of the correction's own gradient, the constant direction among them
    twice = config.plan.kind.solves > 1
    most, known = 2 * model.config.joints - twice, None if twice else len(public)
    directions = config.model.directions or directions_for(units, float(event.sigma), most, known)
    if directions > most:
        raise DposeError(
            "directions-out-of-range", f"{config.plan.method} has at most {most}", f"model.directions={directions}"
        )
    made = with_correction(model, directions)
    rng = np.random.default_rng(0)  # of canonical views, without augmentation

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        for first in range(0, len(public), AT_ONCE):
            units_now = range(first, min(first + AT_ONCE, len(public)))
            views = [view for unit in units_now for view in public.load(unit, rng)]
            crops = torch.from_numpy(np.stack([view.image for view in views])).permute(0, 3, 1, 2)
            keypoints, visible = (
                torch.from_numpy(np.stack([view.target[name] for view in views])).to(made.mean.device)
                for name in ("keypoints", "visible")
            )
            yield crops.to(made.mean.device), keypoints, visible

    fit_directions(made.eval(), batches())
    apply_strategy(made, "head")
    return made.train().to(memory_format=torch.channels_last)


def precision(config: RunConfig) -> Precision:
    """What the model computes in: as configured, else bfloat16 for `non-private` on a GPU."""
    return config.precision or (
        "float32" if config.plan.kind.reads_private_data or not torch.cuda.is_available() else "bf16"
    )


def open_units(config: RunConfig, model: PoseConfig) -> PoseUnits | SubjectUnits:
    """The units that a run trains on, augmented as configured, with labels in the first data's joints.

    Args:
        config: The run's.
        model: What they are cropped for.

    Raises:
        DposeError: pose data has no such unit, or cannot be read.
    """
    unit = _unit(config)
    people, limit = unit == "subject", selection(config)
    data = open_several(
        config.data.sources,
        purpose="train",
        input_size=model.input_size,
        regions=regions_for(model),
        augment=augment(config),
        unit="image" if people else cast("UnitKind", unit),
        limit=None if people else limit,
    )
    if not people:
        return data
    subjects = SubjectUnits(data)
    return subjects.limit(limit) if limit else subjects


def _unit(config: RunConfig) -> str:
    kinds = (*get_args(UnitKind), "subject")
    unit = config.plan.unit or "image"
    if unit not in kinds:
        raise DposeError("unit-unsupported", f"pose data has no unit {unit!r}", fix=f"choose one of {', '.join(kinds)}")
    return unit


def open_public(config: RunConfig, model: PoseConfig) -> PoseUnits | None:
    """The public units of a run; None without public data.

    Raises:
        DposeError: they cannot be read, or are the private ones by name.
    """
    spec = public_spec(config)
    if spec is None:
        return None
    found = open_data(
        spec, purpose="train", input_size=model.input_size, augment=augment(config), regions=regions_for(model)
    )
    with naming(f"--public {config.data.public}"):
        return found.with_skeleton(SKELETONS[_skeleton(config)])
