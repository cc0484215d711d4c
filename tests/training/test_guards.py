"""What must not happen around private data is refused in the path, whatever the caller does."""

from collections import OrderedDict
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from rich.console import Console

from dpose.media.fingerprint import fingerprint
from dpose.privacy.neighbours import Relation
from dpose.privacy.protected import protect
from dpose.training.canaries import CanaryUnits, GradientCanaries
from dpose.training.clip import Clip
from dpose.training.guards import check_disjoint, check_model, check_not_watched, only_gradients
from dpose.units import View
from dpose_lab.audits.shadow_run import PresentUnits
from dpose_scene.render import render_person
from dpose_scene.splits import scene_seed
from refusals import refused

QUIET = Console(quiet=True)


class Pictures:
    unit = "image"

    def __init__(self, images, people=None, prefix="u"):
        self.images, self.people, self.prefix = images, people or [""] * len(images), prefix

    def __len__(self):
        return len(self.images)

    def unit_id(self, index):
        return f"{self.prefix}{index}"

    def content_hashes(self, index):
        return (str(hash(self.images[index].tobytes())),)

    def load(self, index, rng):
        raise AssertionError("a guard reads no views")

    def label_digest(self, index):
        return "no labels"

    def fingerprints(self, index):
        return fingerprint(self.images[index])[None]

    def subjects(self, index):
        return (self.people[index],) if self.people[index] else ()


class Plain:
    """The same without fingerprints and people."""

    unit = "image"

    def __init__(self, inner):
        self.unit_id, self.content_hashes, self.load = inner.unit_id, inner.content_hashes, inner.load
        self.label_digest = inner.label_digest
        self.count = len(inner)

    def __len__(self):
        return self.count


@pytest.fixture(scope="module")
def images():
    return [render_person("ward", scene_seed("ward", "train", i)).image for i in range(30)]


def check(public, private):
    check_disjoint(public, protect(private), 2, Console(quiet=True))


def others(count=20):
    return [render_person("ward", scene_seed("ward", "public", i)).image for i in range(count)]


def test_pictures_of_others_pass(images):
    check(Pictures(others()), Pictures(images))
    check(Plain(Pictures(others())), Plain(Pictures(images)))


@pytest.mark.parametrize("wrap", [Pictures, lambda p: Plain(Pictures(p))])
def test_the_same_picture_is_refused_and_both_are_named(images, wrap):
    with refused("public-unit-private", where=("u5", "picture", "u7")):
        check(wrap([*others(5), images[7]]), wrap(images))


@pytest.mark.parametrize(
    "changed",
    [
        lambda p: cv2.imdecode(cv2.imencode(".jpg", p, (cv2.IMWRITE_JPEG_QUALITY, 70))[1], 1),
        lambda p: cv2.resize(p, (144, 192), interpolation=cv2.INTER_CUBIC),
        lambda p: cv2.convertScaleAbs(p, alpha=0.9, beta=15),
    ],
    ids=["saved again", "resized", "recoloured"],
)
def test_a_near_copy_is_refused(images, changed):
    with refused("public-unit-private", where=("u3 looks like a picture", "u11")):
        check(Pictures([*others(3), changed(images[11])]), Pictures(images))


def test_a_person_in_both_is_refused(images):
    public = Pictures(others(3), ["ann", "bob", "eve"])
    private = Pictures(images[:3], ["dan", "", "eve"])
    with refused("public-unit-private", where=("u2 shows the person", "u2")):
        check(public, private)


@pytest.mark.parametrize("told", [check_disjoint, check_not_watched])
def test_public_and_watched_units_are_known_by_the_same(images, told):
    """What was watched was compared by equal pictures alone."""
    saved_again = cv2.convertScaleAbs(images[11], alpha=0.9, beta=15)
    shows = {"is a picture of": [images[7]], "looks like a picture of": [saved_again], "shows the person of": others(1)}
    for how, found in shows.items():
        private = protect(Pictures(images, ["ann", *[""] * 29]))
        with refused(("public-unit-private", "watched-unit-private"), where=how):
            told(Pictures([*others(3)[1:], *found], ["", "", "ann" * ("person" in how)]), private, 2, QUIET)
    told(Pictures(others(3)), protect(Pictures(images)), 2, QUIET)


def test_units_are_known_by_their_files_too(images):
    """Two decoders may read one file otherwise."""
    public, private = Pictures(others(3)), Pictures(images)
    public.file_hashes = lambda index: ("file",) if index == 2 else ()
    private.file_hashes = lambda index: ("file",) if index == 5 else ()
    with refused("public-unit-private", where=("u2", "picture", "u5")):
        check(public, private)


def test_canaries_and_other_wrappings_hide_no_copy_and_nobody(images):
    """With canaries among the private units, copies that were saved again passed."""
    canaries = GradientCanaries(np.ones(3, bool), None, Clip(1.0), Relation.ZERO_OUT)
    near = Pictures([cv2.convertScaleAbs(images[11], alpha=0.9, beta=15)])
    for wrap in (lambda units: CanaryUnits(units, canaries), lambda units: PresentUnits(units, np.ones(30, bool))):
        wrapped = wrap(Pictures(images, ["ann", *[""] * 29]))
        with refused("public-unit-private", where=("looks like a picture", "u11")):
            check_disjoint(near, SimpleNamespace(data=wrapped), 2, QUIET)
        with refused("public-unit-private", where=("shows the person", "u0")):
            check_disjoint(Pictures(others(1), ["ann"]), SimpleNamespace(data=wrapped), 2, QUIET)
    blank = CanaryUnits(Pictures(images), canaries, blank=View(images[0], {}))
    check_disjoint(near, SimpleNamespace(data=blank), 2, QUIET)


def test_public_units_without_content_hash_are_refused(images):
    public = Pictures(others(3))
    public.content_hashes = lambda index: ()
    with refused("unit-without-hash", where="u0"):
        check(public, Pictures(images))


@pytest.mark.slow
def test_the_rendered_splits_pass_whole():
    from dpose.pose.data import open_data

    ward = open_data("synthetic:ward:train", purpose="train", input_size=(128, 96), limit=1500)
    public = open_data("synthetic:ward:public", purpose="train", input_size=(128, 96))
    check(public, ward)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(2))


class TestOnlyGradients:
    def test_a_model_that_stays_as_it_is_passes(self):
        net = Net()
        net.layer.weight.grad = torch.ones(2, 2)  # of an earlier step
        with only_gradients(net):
            torch.func.functional_call(net.layer, {"weight": torch.ones(2, 2)}, (torch.ones(1, 2),))

    @pytest.mark.parametrize(
        ("write", "named"),
        [
            (lambda n: n.seen.add_(1), ("model-wrote-state", "seen")),
            (lambda n: setattr(n, "seen", torch.ones(2)), ("model-wrote-state", "seen")),
            (lambda n: n.seen.data.add_(1), ("model-wrote-state", "seen")),  # past torch's count of writes
            (lambda n: n.seen.numpy().fill(7), ("model-wrote-state", "seen")),
            (lambda n: n.register_buffer("fresh", torch.ones(2)), ("model-wrote-state", "fresh")),
            (lambda n: n.layer(torch.ones(1, 2)).sum().backward(), ("gradient-not-clipped", "layer.weight")),
        ],
    )
    def test_whatever_is_written_is_refused(self, write, named):
        net = Net()
        with refused(*named), only_gradients(net):
            write(net)


def test_batch_normalisation_anywhere_is_refused():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.BatchNorm1d(2)))
    with refused("batchnorm-mixes-units", where="1.0"):
        check_model(net)
    check_model(torch.nn.Sequential(torch.nn.GroupNorm(1, 2), torch.nn.InstanceNorm1d(2)))


@pytest.mark.parametrize(
    "layer",
    [
        lambda p: torch.nn.Dropout2d(p),
        lambda p: torch.nn.LSTM(2, 2, num_layers=2, dropout=p),
        lambda p: torch.nn.MultiheadAttention(2, 1, dropout=p),
    ],
    ids=["layer", "recurrent", "attention"],
)
def test_dropout_is_refused_and_named(layer):
    with refused("dropout-mixes-units", where="1.0"):
        check_model(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(layer(0.1))))
    check_model(torch.nn.Sequential(torch.nn.Dropout(0.0), layer(0.0)))


@pytest.mark.parametrize(
    "keeps",
    [
        lambda: torch.nn.InstanceNorm2d(2, track_running_stats=True),
        lambda: torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(2, 2)),
        lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(2, 2)),
    ],
    ids=["instance norm", "spectral norm", "old spectral norm"],
)
def test_what_keeps_what_it_saw_is_refused_by_name(keeps):
    with refused("model-stores-state"):
        check_model(torch.nn.Sequential(OrderedDict(inner=keeps())))


def test_fingerprints_of_noise_differ(images):
    prints = np.stack([fingerprint(i) for i in images])
    assert len({p.tobytes() for p in prints}) == len(images)
