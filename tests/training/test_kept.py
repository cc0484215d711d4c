"""Views made on a device, of pictures that are kept there, are those of a processor under the same draws.

The device of these tests is "cpu", by the operations that a GPU has.
"""

import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch

import dpose
from dpose.pose.data.augment import Augment
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.data.units import PoseUnits, SubjectUnits
from dpose.pose.model import PoseConfig, apply_strategy, fold_batchnorm
from dpose.pose.skeletons import COCO, MPII
from dpose.pose.task import PoseTask
from dpose.privacy.merged import merge_units
from dpose.privacy.noise import AesNoise, Key
from dpose.training import trainer
from dpose.training.kept import keep_pictures, room_on, warped
from dpose.training.loader import Copies, Loader
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from replays import called_again

SIZE, CPU = (64, 48), torch.device("cpu")


def person(seed, joints, corner, side):
    rng = np.random.default_rng(seed)
    box = np.array([*corner, corner[0] + side, corner[1] + 1.3 * side], np.float32)
    keypoints = rng.uniform(box[:2], box[2:], (joints, 2)).astype(np.float32)
    return Person(keypoints, rng.random(joints) < 0.8, box, 0.2 * side, side**2)


def picture(seed, people=1, shape=(150, 110), side=60.0, skeleton=MPII, subject=""):
    def read():
        rng = np.random.default_rng(seed)
        noise = cv2.GaussianBlur(rng.integers(0, 256, (*shape, 3), np.uint8), (0, 0), 2)
        found = [
            person(100 * seed + k, len(skeleton), rng.uniform(-5, (shape[1] - side, shape[0] - side)), side)
            for k in range(people)
        ]
        return noise, tuple(found)

    return Picture(f"im{seed}", people, read, subject)


def units(*pictures, augment="private", **options):
    return PoseUnits(pictures, input_size=SIZE, augment=getattr(Augment, augment)(), **options)


def loaders(data, kept_of=None, limit=1 << 30, label=b"x"):
    kept = keep_pictures(kept_of or data, CPU, limit)
    given = (PoseTask(), data, AesNoise(Key.from_seed(1)), 2, label)
    return Loader(*given), Loader(*given, kept)


def batches(loader, indices, step=3, size=8):
    return list(loader.micro_batches(indices, step, size, padded=True))


def agree(data, kept_of=None, indices=None):
    """Whether batches are equal but for one grey level in a thousand values; colours multiply that."""
    indices = range(len(data)) if indices is None else indices
    for one, other in zip(*(batches(loader, indices) for loader in loaders(data, kept_of)), strict=True):
        assert torch.equal(one.weights, other.weights)
        assert one.targets.keys() == other.targets.keys()
        for name, value in one.targets.items():
            assert value.dtype == other.targets[name].dtype
            assert torch.equal(value.nan_to_num(-1), other.targets[name].nan_to_num(-1)), name
        apart = (one.inputs.int() - other.inputs.int()).abs()
        assert apart.max() <= 2
        assert (apart > 0).float().mean() < 1e-3


FOUR = [picture(seed, people) for seed, people in enumerate((1, 3, 2, 1))]


@pytest.mark.parametrize("augment", ["none", "private", "public"])
def test_views_are_a_processors_and_labels_to_the_last_bit(augment):
    agree(units(*FOUR, augment=augment))


def test_without_colours_no_value_is_further_than_one_grey_level():
    plain = replace(Augment.public(), colour=0.0)
    data = units(*FOUR).with_augment(plain)
    for one, other in zip(*(batches(loader, range(4)) for loader in loaders(data)), strict=True):
        assert (one.inputs.int() - other.inputs.int()).abs().max() <= 1


@pytest.mark.parametrize("side", [20.0, 200.0, 700.0])
def test_large_pictures_are_made_smaller_first_as_a_processor_does(side):
    agree(units(*(picture(seed, 2, (900, 800), side) for seed in range(3)), augment="public"))


def test_combinations_of_units_have_the_views_of_their_entries():
    data = units(*FOUR)
    agree(Copies(data, 2), kept_of=data)
    merged = merge_units(data, [[0, 2], [1], [3]])
    agree(merged)
    agree(Copies(merged, 2), kept_of=merged)
    named = [picture(seed, subject=f"p{seed % 2}") for seed in range(5)]
    agree(SubjectUnits(units(*named)))


def test_units_of_more_views_than_there_is_room_for_show_the_same_ones():
    agree(units(picture(1, 11), picture(2, 1)))
    many = units(*(picture(seed, subject="one") for seed in range(10)))
    agree(SubjectUnits(many))
    agree(Copies(units(picture(1, 3)), 5), kept_of=units(picture(1, 3)))


def test_joined_sources_keep_their_own_joints_and_boxes():
    other = units(picture(7, 2, skeleton=COCO), picture(8, skeleton=COCO), skeleton=COCO, padding=1.1)
    agree(PoseUnits.joined([units(*FOUR), other], ["a", "b"]), indices=[5, 0, 4, 1])


def test_a_view_reaches_no_further_than_what_is_kept():
    """Where it did, the picture's edge would be black in the wrong place: a white picture shows every such pixel."""

    def white():
        return np.full((300, 300, 3), 255, np.uint8), (person(1, 16, (120, 110), 60),)

    data = units(Picture("white", 1, white)).with_augment(replace(Augment.public(), colour=0.0))
    _, kept = loaders(Copies(data, 8), kept_of=data)
    (batch,) = batches(kept, [0], size=8)
    assert int(batch.inputs.min()) == 255
    assert kept.kept.pixels.numel() < 300 * 300 * 3


def test_every_unit_of_a_sample_comes_once_kept_or_not():
    data = units(*(picture(seed) for seed in range(6)))
    size = keep_pictures(data.subset(range(3)), CPU, 1 << 30).pixels.numel()
    _, loader = loaders(data, limit=size)
    assert loader.kept.units == {0, 1, 2}
    found = batches(loader, [5, 0, 2, 4])
    assert sum(int(batch.weights.sum()) for batch in found) == 4
    heads = sorted(float(h) for batch in found for h in batch.targets["head_length"][batch.weights > 0])
    alone = [loader.unit(index, 3)[0].target["head_length"] for index in (5, 0, 2, 4)]
    assert heads == sorted(map(float, alone))


@pytest.mark.parametrize("kind", ["pictures", "copies", "people", "merged"])
def test_a_units_views_are_the_same_whether_it_is_kept_or_not(kind):
    """How many are kept follows from the sizes of private pictures: no unit may decide how another's views are made."""
    data = units(*(picture(seed, 1 + seed % 3, subject=f"p{seed % 4}") for seed in range(8)), augment="public")
    data = {
        "pictures": lambda: data,
        "copies": lambda: Copies(data, 2),
        "people": lambda: SubjectUnits(units(*(picture(s, subject=f"p{s % 4}") for s in range(8)), augment="public")),
        "merged": lambda: merge_units(data, [[0, 2], [1], [3, 4, 5, 6], [7]]),
    }[kind]()
    whole = keep_pictures(data, CPU, 1 << 30)

    def alone(limit):
        _, loader = loaders(data, limit=limit)
        return len(loader.kept.units), [batches(loader, [index]) for index in range(len(data))]

    count, there = alone(1 << 30)
    assert count == len(data)
    for limit in (0, whole.pixels.numel() // 2):
        some, found = alone(limit)
        assert some < count
        for (one,), (other,) in zip(there, found, strict=True):
            assert torch.equal(one.inputs, other.inputs)
            assert torch.equal(one.weights, other.weights)
            for name, value in one.targets.items():
                assert torch.equal(value.nan_to_num(-1), other.targets[name].nan_to_num(-1)), name


def test_what_is_kept_follows_the_order_of_the_units_up_to_the_limit():
    """Whatever they show: the first that has no room ends it, though a smaller one would still fit."""
    data = units(picture(0), picture(1, side=90.0), picture(2, side=20.0))
    sizes = [keep_pictures(data.subset([k]), CPU, 1 << 30).pixels.numel() for k in range(3)]
    assert sizes[2] < sizes[0] < sizes[1]
    kept = keep_pictures(data, CPU, sizes[0] + sizes[2])
    assert kept.units == {0}
    assert keep_pictures(data, CPU, sum(sizes)).units == {0, 1, 2}
    assert keep_pictures(data, CPU, 10).units == set()
    assert keep_pictures(data, CPU, sum(sizes), own=[2, 0]).units == {0, 2}


def test_pictures_are_copied_block_by_block(monkeypatch):
    data = units(*FOUR)
    whole = keep_pictures(data, CPU, 1 << 30)
    monkeypatch.setattr("dpose.training.kept._AT_ONCE", 3)
    blocks = keep_pictures(data, CPU, 1 << 30)
    assert torch.equal(blocks.pixels, whole.pixels)
    assert torch.equal(blocks.places, whole.places)
    assert len(whole.pixels) == sum(3 * int(height * width) for _, height, width in whole.places)


def test_others_are_decoded_while_kept_ones_are_computed(monkeypatch):
    """But not before the first that are kept were planned."""
    data = units(*(picture(seed) for seed in range(6)))
    _, loader = loaders(data, limit=keep_pictures(data.subset(range(3)), CPU, 1 << 30).pixels.numel())
    begun, real = [], loader._pool.submit
    monkeypatch.setattr(
        loader._pool, "submit", lambda job: begun.append(job.args[1] if hasattr(job, "args") else "kept") or real(job)
    )
    coming = loader.micro_batches(range(6), 3, 1, padded=True)
    next(coming)
    assert begun == ["kept", "kept", 3, 4, 5]
    assert len(list(coming)) == 5


def test_a_units_views_do_not_depend_on_what_else_is_sampled():
    _, loader = loaders(units(*(picture(seed) for seed in range(5))))
    (alone,), (among,) = batches(loader, [3]), batches(loader, [0, 1, 3, 4])
    assert torch.equal(alone.inputs[0], among.inputs[2])
    assert torch.equal(alone.targets["keypoints"][0], among.targets["keypoints"][2])
    (later,) = batches(loader, [3], step=4)
    assert not torch.equal(alone.inputs[0], later.inputs[0])


def test_padded_places_hold_nothing_and_an_empty_sample_makes_no_batch():
    _, loader = loaders(units(*FOUR))
    assert batches(loader, []) == []
    first, *_ = batches(loader, [0, 3], size=4)
    assert first.weights.tolist() == [[1], [1], [0], [0]]
    assert not first.inputs[2:].any()


def test_pictures_without_people_and_data_of_another_kind_are_not_kept():
    data = units(picture(0), picture(1, people=0), picture(2))
    assert keep_pictures(data, CPU, 1 << 30).units == {0, 2}
    assert keep_pictures(Ordinary(data), CPU, 1 << 30) is None


class Ordinary:
    """Units that say nothing of patches."""

    unit = "image"

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def load(self, index, rng):
        return self.data.load(index, rng)

    def unit_id(self, index):
        return self.data.unit_id(index)

    def content_hashes(self, index):
        return self.data.content_hashes(index)


def test_pictures_are_let_go_with_the_loader():
    _, loader = loaders(units(*FOUR))
    loader.close()
    assert loader.kept is None


def test_processors_keep_none():
    assert room_on(CPU) == 0


def test_a_warp_is_exact_where_it_is_the_identity():
    pixels = torch.arange(4 * 5 * 3, dtype=torch.uint8)
    views = warped(pixels, torch.tensor([[0, 4, 5]]), torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]), None, (6, 5))
    assert torch.equal(views[0, :, :4], pixels.view(4, 5, 3).movedim(-1, 0))
    assert not views[0, :, 4:].any()


def trained(out, monkeypatch, room):
    torch.manual_seed(0)
    task = PoseTask(codec=None)
    model = fold_batchnorm(task.build_model(PoseConfig(preset="nano", input_size=(64, 48))))
    apply_strategy(model, "light")
    monkeypatch.setattr(trainer, "room_on", lambda device: room)
    monkeypatch.setattr(trainer, "recorder", lambda device: called_again if room else None)
    plan = TrainingPlan("dp-sgd", epsilon=8.0, delta=1e-3, steps=2, expected_batch_size=8, clip_norm=1.0)
    data = units(*(picture(seed) for seed in range(12)))
    options = RunOptions(seed=1, state_dir=out.parent / "state", microbatch_size=8)
    kept = []
    monkeypatch.setattr(
        trainer, "keep_pictures", lambda *given, **more: kept.append(keep_pictures(*given, **more)) or kept[-1]
    )
    run = dpose.train(task, model, private=data, plan=plan, out=out, options=options)
    weights = {name: p.detach() for name, p in run.model.named_parameters() if p.requires_grad}
    return weights, kept, json.loads((out / "config.json").read_text())


def test_a_run_with_kept_pictures_says_so_in_what_its_key_is_bound_to(tmp_path, monkeypatch):
    """Its pictures are other bits, so that its sums may be: a key must not go on from one way to the other."""
    told = []
    monkeypatch.setattr(trainer, "check_alike", lambda around, ranks: told.append(around))
    plain, none, _ = trained(tmp_path / "plain", monkeypatch, 0)
    there, (kept,), _ = trained(tmp_path / "kept", monkeypatch, 1 << 30)
    assert not none
    assert len(kept.units) == 12
    some, (few,), _ = trained(tmp_path / "some", monkeypatch, 100_000)
    assert 0 < len(few.units) < 12
    assert "views of pictures" not in told[0]
    assert told[1]["views of pictures"] == told[2]["views of pictures"] == "made on the device"
    for name, value in there.items():
        assert torch.equal(value, some[name]), name
    for name, value in plain.items():
        assert torch.allclose(value, there[name], atol=1e-5), name
