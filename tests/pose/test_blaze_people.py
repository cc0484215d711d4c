"""People found by BlazePose: where they are, however turned, each once, and nobody where nobody is."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from skimage.data import astronaut

from dpose.media.identity import pixel_hash
from dpose.pose.blaze_people import (
    BlazePeople,
    PersonRegions,
    SearchSettings,
    _merged,
    _tiles,
    region_of,
    shipped_detector,
)
from dpose.pose.crops import Box, crop_transform, transform_points
from dpose.pose.data import Augment, open_data, pictures
from dpose.pose.data.pictures import remembered_region
from dpose.pose.data.units import PoseUnits
from dpose.pose.folder import find_model, load_model
from dpose.pose.heads import adapt_head
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import BLAZEPOSE, SKELETONS
from dpose.runs.data import regions_for
from refusals import refused

FEW = SearchSettings(tiles=(0.6,))
"""One size of tiles: quick."""


@pytest.fixture(scope="module")
def model():
    return load_model(find_model("blazepose:lite"))


@pytest.fixture(scope="module")
def rendered():
    """Pictures of one rendered person each, with labels in MPII's joints, who are seen well."""
    units = open_data("synthetic:studio:val", input_size=(256, 256), augment=Augment.none(), limit=12)
    return [(image, people[0]) for image, people in (picture.read() for picture in units.pictures)]


def distances(person, skeleton, labelled):
    """Of the limbs' joints, in head lengths."""
    names = ("r_hip", "l_hip", "r_knee", "l_knee", "r_shoulder", "l_shoulder", "r_elbow", "l_elbow")
    mpii = SKELETONS["mpii"].joints
    places = person.pose.keypoints[[skeleton.joints.index(name) for name in names]]
    wanted = labelled.keypoints[[mpii.index(name) for name in names]]
    return np.linalg.norm(places - wanted, axis=1) / labelled.head_length


def test_rendered_people_are_found_where_they_are(model, rendered):
    finder = BlazePeople(model, FEW)
    apart = [distances(finder.one(image), BLAZEPOSE, labelled) for image, labelled in rendered]
    assert np.mean(np.array(apart) < 0.5) > 0.6


def test_in_a_box_a_person_is_found_however_turned(model, rendered):
    finder = BlazePeople(model, FEW)
    right = []
    for image, labelled in rendered[:6]:
        # by a quarter: what was at (x, y) is at (height - 1 - y, x)
        turned = np.ascontiguousarray(np.rot90(image, -1))
        height = image.shape[0]
        points = np.column_stack([height - 1 - labelled.keypoints[:, 1], labelled.keypoints[:, 0]])
        x0, y0, x1, y1 = labelled.box
        box = Box(np.array([height - 1 - y1, x0, height - 1 - y0, x1], np.float64), 1.0)
        (person,) = finder(turned, [box])
        right.append(
            distances(person, BLAZEPOSE, type(labelled)(points, labelled.visible, box.corners, labelled.head_length))
        )
    assert np.mean(np.array(right) < 0.5) > 0.5


def test_a_video_does_not_depend_on_those_before_it(model, rendered):
    """Which tile of a frame is searched follows from its number in its own video."""
    finder, searched = BlazePeople(model, FEW), []
    finder._new = lambda image, tiles, _: searched.append(tiles) or []
    image = np.tile(rendered[0][0], (2, 2, 1))
    for count in (2, 4, 3):
        for number in range(count):
            finder(image, None, [] if number else None)
    first, second, third = searched[:2], searched[2:6], searched[6:]
    assert np.array_equal(first[1], second[1])
    assert all(np.array_equal(a, b) for a, b in zip(third, second, strict=False))


def test_two_people_beside_one_another_are_two(model):
    """The astronaut twice in one picture: two people, each once, surest first."""
    picture = np.ascontiguousarray(np.hstack([astronaut(), np.full((512, 60, 3), 90, np.uint8), astronaut()]))
    easy = SearchSettings(tiles=FEW.tiles, present=0.3)  # the last bits of a processor decide nothing
    people = BlazePeople(load_model(find_model("blazepose:full")), easy)(picture)
    assert len(people) == 2
    noses = sorted(person.pose.keypoints[0, 0] for person in people)
    assert noses == pytest.approx([210, 782], abs=25)
    assert [p.score for p in people] == sorted((p.score for p in people), reverse=True)
    assert all(0 <= person.score <= 1 for person in people)


def test_nobody_is_found_where_nobody_is(model):
    rng = np.random.default_rng(0)
    finder = BlazePeople(model, FEW)
    for picture in (np.zeros((64, 96, 3), np.uint8), rng.integers(0, 256, (120, 90, 3)).astype(np.uint8)):
        assert finder(picture) == []
        assert finder(picture, None, []) == []


@pytest.mark.parametrize("shape", [(1, 1), (20, 20), (3, 400), (400, 2)])
def test_pictures_of_any_size_are_looked_at(model, shape):
    picture = np.full((*shape, 3), 128, np.uint8)
    finder = BlazePeople(model, FEW)
    assert isinstance(finder(picture), list)
    person = finder.one(picture)
    assert np.isfinite(person.pose.keypoints).all()
    (boxed,) = finder(picture, [Box(np.array([-0.5, -0.5, shape[1] - 0.5, shape[0] - 0.5]), 0.7)])
    assert boxed.region.score == 0.7


def test_a_person_is_followed_from_frame_to_frame_without_the_pyramid(model, monkeypatch):
    finder = BlazePeople(load_model(find_model("blazepose:full")), FEW)
    picture = astronaut()
    before = finder(picture)
    assert len(before) == 1
    looked = []
    detect = PersonRegions.detect
    monkeypatch.setattr(
        PersonRegions,
        "detect",
        lambda self, image, tiles, *more: looked.append(len(tiles)) or detect(self, image, tiles, *more),
    )
    for step in range(1, 4):
        moved = np.roll(picture, (0, 6 * step), (0, 1))
        (person,) = finder(moved, None, before)
        assert person.pose.keypoints[0, 0] - before[0].pose.keypoints[0, 0] == pytest.approx(6, abs=4)
        before = [person]
    assert looked == [1, 1, 1]  # whole, or one tile
    # who is gone is not followed
    assert finder(np.full_like(picture, 90), None, before) == []


def test_a_model_of_other_joints_finds_people_too(model, rendered):
    finder = BlazePeople(adapt_head(model, "mpii"), FEW)
    assert finder.skeleton.name == "mpii"
    image, _ = rendered[0]
    assert finder.one(image).pose.keypoints.shape == (16, 2)


def test_a_model_that_does_not_say_where_people_are_is_refused():
    with refused("codec-finds-no-people"):
        BlazePeople(PoseModel(PoseConfig(preset="nano")))


def test_regions_bring_a_person_upright():
    region = region_of(np.array([100.0, 80.0]), np.array([140.0, 80.0]), 0.9)  # the head is on the right
    assert region.corners.tolist() == [50, 30, 150, 130]
    matrix = crop_transform(region.corners, (256, 256), 1.0, region.turn)
    centre, top = transform_points(matrix, [[100, 80], [140, 80]])
    assert centre == pytest.approx([127.5, 127.5])
    assert top == pytest.approx([127.5, 127.5 - 40 * 2.56])


def test_regions_that_agree_are_one_and_count_together():
    box = Box(np.array([0.0, 0, 100, 100]), 0.5, 179.0)
    near = Box(np.array([4.0, 0, 104, 100]), 0.5, -179.0)
    far = Box(np.array([90.0, 0, 190, 100]), 0.9, 0.0)
    larger = Box(np.array([-60.0, -60, 160, 160]), 0.2, 0.0)
    merged = _merged([box, near, far, larger])
    assert [round(m.score, 3) for m in merged] == [1.0, 0.9, 0.2]
    assert merged[0].corners.tolist() == [2, 0, 102, 100]
    assert abs(merged[0].turn) == pytest.approx(180, abs=1e-6)


@pytest.mark.parametrize("size", [(480, 640), (300, 120), (64, 64)])
def test_tiles_cover_the_picture(size):
    tiles = list(_tiles(size, SearchSettings()))
    height, width = size
    for share, group in itertools.groupby(tiles, key=lambda t: round(t[2] - t[0], 6)):
        group = np.array(list(group))
        assert group[:, :2].min() == -0.5
        assert group[:, 2].max() == pytest.approx(width - 0.5)
        assert group[:, 3].max() == pytest.approx(height - 0.5)
        for axis in (0, 1):
            starts = np.unique(group[:, axis].round(6))
            assert np.diff(starts).max(initial=0) <= SearchSettings().step * share + 1e-6


def test_units_are_cropped_where_their_person_is_found_and_upright(rendered):
    regions = shipped_detector()
    how = {"input_size": (256, 256), "augment": Augment.none(), "limit": 12}
    plain, result = (
        open_data("synthetic:studio:val", **how),
        open_data("synthetic:studio:val", regions=regions, **how),
    )
    rng = np.random.default_rng(0)
    for index in range(len(result)):
        (view,), (other,) = result.load(index, rng), plain.load(index, rng)
        image, people = result.pictures[index].read()
        region = regions(image, people[0].box, 1.0)
        matrix = crop_transform(region.corners, (256, 256), 1.0, region.turn)
        there = view.target["labelled"] > 0
        wanted = transform_points(matrix, people[0].keypoints)
        assert np.allclose(view.target["keypoints"][there], wanted[there], atol=1e-2)
        back = transform_points(view.target["inverse"], view.target["keypoints"])
        assert np.allclose(back[there], people[0].keypoints[there], atol=1e-2)
        assert result.content_hashes(index) == plain.content_hashes(index)
        # what is learnt from a unit depends on how it is cropped
        assert result.label_digest(index) != plain.label_digest(index)
        assert view.target["head_length"] != other.target["head_length"]


def test_a_unit_whose_person_is_not_found_keeps_its_upright_box_and_is_never_dropped(monkeypatch):
    monkeypatch.setattr(PersonRegions, "detect", lambda self, image, tiles, turns=(): [])
    regions = shipped_detector()
    monkeypatch.setattr(regions, "digest", "finds nobody")
    how = {"input_size": (256, 256), "augment": Augment.none(), "limit": 4}
    plain, result = (
        open_data("synthetic:studio:val", **how),
        open_data("synthetic:studio:val", regions=regions, **how),
    )
    assert len(result) == len(plain) == 4
    for index in range(4):
        (view,), (other,) = (units.load(index, np.random.default_rng(0)) for units in (result, plain))
        assert np.array_equal(view.image, other.image)
    assert result.report == plain.report


class Counting:
    """Finds nobody, and notes for whom it was asked."""

    digest = "a finder that counts"

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, tuple[float, ...], float]] = []

    def __call__(self, image, corners, padding):
        self.asked.append((image.tobytes(), tuple(corners.tolist()), padding))
        return Box(np.asarray(corners, np.float64), 1.0)


def test_a_person_is_looked_for_once_where_data_are_read_anew_and_no_other_counts_as_the_same():
    finder, how = Counting(), {"input_size": (256, 256), "augment": Augment.none(), "limit": 3}

    def read() -> PoseUnits:
        units = open_data("synthetic:studio:val", regions=finder, **how)
        for index in range(len(units)):
            units.load(index, np.random.default_rng(0))
        return units

    units = read()
    assert len(finder.asked) == 3
    read()
    assert len(finder.asked) == 3
    image, (person,) = units.pictures[0].read()
    other = image.copy()
    other[0, 0, 0] ^= 1
    moved = replace(person, box=person.box + np.float32(1))
    for look in ((other, person, 1.0), (image, moved, 1.0), (image, person, 1.25)):
        before = len(finder.asked)
        pixels = pixel_hash(look[0])
        regions = [remembered_region(finder, look[0], pixels, *look[1:]) for _ in range(2)]
        assert len(finder.asked) == before + 1
        assert finder.asked[-1] == (look[0].tobytes(), tuple(look[1].box.tolist()), look[2])
        assert np.array_equal(regions[0].corners, regions[1].corners)


def test_a_process_remembers_so_many_regions_and_finds_the_rest_again(monkeypatch):
    monkeypatch.setattr(pictures, "_found", {})
    monkeypatch.setattr(pictures, "MOST_REGIONS", 1)
    finder = Counting()
    for _ in range(2):
        units = open_data("synthetic:studio:val", input_size=(256, 256), regions=finder, limit=3)
        for index in range(3):
            units.canonical(index)
    assert len(finder.asked) == 3 + 2


def test_a_region_depends_on_its_own_picture_and_box_alone(rendered):
    """Whatever was looked at before, and however many at once."""
    regions = shipped_detector()
    alone = [regions(image, labelled.box, 1.0) for image, labelled in rendered[:3]]
    for image, labelled in reversed(rendered):
        regions(image, labelled.box, 1.0)
    for region, (image, labelled) in zip(alone, rendered, strict=False):
        again = regions(image, labelled.box, 1.0)
        assert np.array_equal(region.corners, again.corners)
        assert region.turn == again.turn


def test_only_blazepose_is_cropped_by_its_detector(model):
    assert regions_for(model.config) is shipped_detector()
    assert regions_for(PoseConfig(preset="nano")) is None
    assert len(shipped_detector().digest.split()[0]) == 64


def test_threads_find_the_same(rendered):
    from concurrent.futures import ThreadPoolExecutor

    regions = shipped_detector()
    one = [regions(image, labelled.box, 1.0) for image, labelled in rendered]
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(lambda pair: regions(pair[0], pair[1].box, 1.0), rendered))
    assert all(np.array_equal(a.corners, b.corners) for a, b in zip(one, many, strict=True))
    assert torch.is_grad_enabled()
