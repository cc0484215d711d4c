import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dpose.errors import DposeError
from dpose_scene.looks import LOOKS
from dpose_scene.motion import ACTIONS
from dpose_scene.render import clip, render_person
from dpose_scene.skeleton import BONE, JOINT
from dpose_scene.splits import scene_seed
from dpose_scene.stage import build_stage, identity_of, posed
from refusals import refused

SMALL = (64, 48)
R_SHOULDER, L_SHOULDER, R_HIP, L_HIP, NECK, TOP = 12, 13, 2, 3, 8, 9
DIGEST = """
import hashlib
from dpose_scene.render import render_person as render
scenes = [render(look, seed, (96, 72), frame=2) for look in ("studio", "ward") for seed in range(20)]
print(hashlib.sha256(b"".join(s.image.tobytes() + s.keypoints.tobytes() for s in scenes)).hexdigest())
"""


def equal(a, b):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("image", "keypoints", "visible", "head_box", "mask", "identity", "action", "frame")
    )


@pytest.fixture(scope="module", params=LOOKS)
def some(request):
    """A look and 120 of its pictures."""
    return request.param, [render_person(request.param, scene_seed(request.param, "val", i)) for i in range(120)]


def test_the_same_arguments_give_the_same_picture_whatever_was_drawn_before():
    first = render_person("ward", 17, SMALL, frame=3)
    np.random.default_rng(0).random(5)
    render_person("studio", 18, SMALL)
    assert equal(first, render_person("ward", 17, SMALL, frame=3))


@pytest.mark.slow
def test_another_process_draws_the_same_pictures_with_kernels_compiled_for_another_processor(tmp_path):
    scenes = [render_person(look, seed, (96, 72), frame=2) for look in ("studio", "ward") for seed in range(20)]
    here = hashlib.sha256(b"".join(s.image.tobytes() + s.keypoints.tobytes() for s in scenes)).hexdigest()
    path = [p for p in sys.path if p]
    there = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{DIGEST}"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)},
    )
    assert there.stdout.strip() == here


@pytest.mark.parametrize(
    "change", [{"look": "studio"}, {"seed": 18}, {"identity": 5}, {"action": "jump"}, {"frame": 9}]
)
def test_every_argument_matters(change):
    base = {"look": "ward", "seed": 17, "size": SMALL, "action": "walk", "identity": 4}
    assert not np.array_equal(render_person(**base).image, render_person(**{**base, **change}).image)


@pytest.mark.parametrize("size", [(33, 21), (97, 131), (256, 192), (16, 16)])
def test_any_size_and_labels_scale_with_it(size):
    scene, twice = render_person("studio", 40, size), render_person("studio", 40, (2 * size[0], 2 * size[1]))
    assert scene.image.shape == (*size, 3)
    assert scene.image.dtype == np.uint8
    assert scene.mask.shape == size
    assert scene.keypoints.shape == (16, 2)
    # edges of pixels, not their centres, scale: (x + 1/2) doubles, up to the shift's own rounding
    assert np.abs((twice.keypoints + 0.5) - 2 * (scene.keypoints + 0.5)).max() < 0.2


def test_types(some):
    for scene in some[1][:3]:
        assert scene.keypoints.dtype == np.float32
        assert scene.head_box.dtype == np.float32
        assert scene.visible.dtype == scene.mask.dtype == np.bool_
        assert scene.action in ACTIONS


def test_visible_joints_lie_on_the_visible_person(some):
    _, scenes = some
    hit = total = 0
    for scene in scenes:
        for k in np.flatnonzero(scene.visible):
            if k == TOP:  # the crown is on the outline itself
                continue
            x, y = np.round(scene.keypoints[k]).astype(int)
            total += 1
            hit += scene.mask[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].any()
    assert total > 1000
    assert hit / total > 0.995


def test_hidden_joints_are_outside_or_behind_things(some):
    look, scenes = some
    hidden = 0
    for scene in scenes:
        height, width = scene.mask.shape
        for k in np.flatnonzero(~scene.visible):
            x, y = scene.keypoints[k]
            if -0.5 <= x < width - 0.5 and -0.5 <= y < height - 0.5:
                hidden += 1
                # at least one of the four samples of its pixel shows a thing: the person cannot fill it
                assert not scene.mask[round(float(y)), round(float(x))] or _edge(scene.mask, x, y)
    if look == "ward":
        assert hidden > 30


def _edge(mask, x, y):
    i, j = round(float(y)), round(float(x))
    return not mask[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].all()


def test_joints_outside_the_picture_are_never_visible(some):
    for scene in some[1]:
        height, width = scene.mask.shape
        x, y = scene.keypoints.T
        outside = (x < -0.5) | (y < -0.5) | (x >= width - 0.5) | (y >= height - 0.5)
        assert not (scene.visible & outside).any()


def test_palms_hang_on_wrists_and_a_footing_is_of_feet_on_the_floor():
    """Posed without a picture: the middle of the hand, and of the soles; nobody who lies has a footing."""
    for action, stands in (("stand", True), ("lie", False)):
        scene = render_person("ward", 8, (128, 96), action=action)
        stage = build_stage("ward", 8, (128, 96), None, action)
        joints, _ = posed(stage.body, stage.motion, stage.support, 0)
        points, visible = scene.of_ward
        hand = [(joints[JOINT[f"{side}_wrist"]] + joints[JOINT[f"{side}_fingers"]]) / 2 for side in "rl"]
        soles = np.mean([joints[JOINT[f"{side}_{part}"]] for side in "rl" for part in ("toe", "heel")], axis=0)
        pixels, _ = stage.camera.project(np.array([*hand, soles]))
        np.testing.assert_allclose(points, pixels, atol=1e-3)
        assert visible[2] == stands


def test_most_joints_are_visible_and_inside(some):
    _, scenes = some
    assert np.mean([s.visible for s in scenes]) > 0.85


def test_the_person_fills_the_frame(some):
    _, scenes = some
    extent = [np.ptp(s.keypoints, axis=0) / (s.image.shape[1], s.image.shape[0]) for s in scenes]
    assert 0.6 < np.median([e.max() for e in extent]) < 0.92
    assert min(e.max() for e in extent) > 0.35


def test_left_and_right_are_the_persons_own():
    seen = {"front": 0, "back": 0}
    for seed in range(100):
        stage = build_stage("studio", seed, SMALL, None, "stand")
        turn = abs((np.degrees(stage.motion.heading) + 180) % 360 - 180)
        scene = render_person("studio", seed, SMALL, action="stand")
        across = scene.keypoints[[L_SHOULDER, L_HIP], 0] - scene.keypoints[[R_SHOULDER, R_HIP], 0]
        if turn < 40:
            seen["front"] += 1
            assert (across > 0).all()  # facing us, the right side is on the picture's left
        elif turn > 140:
            seen["back"] += 1
            assert (across < 0).all()
    assert min(seen.values()) >= 3


def test_the_head_box_holds_the_head(some):
    for scene in some[1]:
        x0, y0, x1, y1 = scene.head_box
        neck, top = scene.keypoints[[NECK, TOP]]
        assert x0 < x1
        assert y0 < y1
        assert x0 - 0.1 <= top[0] <= x1 + 0.1
        assert y0 - 0.1 <= top[1] <= y1 + 0.1
        # the neck joint is at the skull's base: in the box, or a tenth of its diagonal away at most
        slack = 0.1 * np.hypot(x1 - x0, y1 - y0)
        assert x0 - slack <= neck[0] <= x1 + slack
        assert y0 - slack <= neck[1] <= y1 + slack


def test_the_head_box_is_as_large_as_the_head():
    for look in LOOKS:
        for seed in range(40):
            stage = build_stage(look, seed, SMALL, None, None)
            joints, _ = posed(stage.body, stage.motion, stage.support, 0)
            _, depth = stage.camera.project(joints[[JOINT["upper_neck"]]])
            height = stage.body.bones[BONE["head"]] * stage.camera.focal / depth[0]
            x0, y0, x1, y1 = render_person(look, seed, SMALL).head_box
            assert 0.85 < np.hypot(x1 - x0, y1 - y0) / height < 1.75


def test_heads_of_upright_people_are_on_top():
    for seed in range(12):
        scene = render_person("studio", seed, SMALL, action="walk")
        assert scene.keypoints[TOP, 1] < scene.keypoints[NECK, 1] < scene.keypoints[6, 1]


def test_the_looks_differ():
    studio, ward = ([render_person(look, s, SMALL) for s in range(40)] for look in LOOKS)
    brightness = [np.mean([s.image.mean() for s in scenes]) for scenes in (studio, ward)]
    assert brightness[0] > brightness[1] + 25
    colour = [np.mean([np.ptp(s.image.astype(int), axis=2).mean() for s in scenes]) for scenes in (studio, ward)]
    assert colour[0] > 1.3 * colour[1]
    lying = [sum(s.action in ("lie", "lie_side", "sit_bed", "turn") for s in scenes) for scenes in (studio, ward)]
    assert lying[1] > lying[0]
    gowns = [sum("gown" in s.attributes["top"] for s in scenes) for scenes in (studio, ward)]
    assert gowns[0] == 0
    assert gowns[1] > 8


def test_bedding_hides_legs_in_the_ward():
    scenes = [render_person("ward", s, SMALL, action="lie") for s in range(30)]
    legs = np.array([s.visible[[0, 1, 4, 5]].mean() for s in scenes])
    heads = np.array([s.visible[[8, 9]].mean() for s in scenes])
    assert (legs < 0.5).sum() >= 5
    assert (legs == 1).sum() >= 5
    assert heads.mean() > 0.9


@pytest.mark.parametrize("action", ACTIONS)
def test_clips_are_smooth_and_keep_the_person_and_the_room(action):
    scenes = clip("ward", 23, action, 14, SMALL)
    points = np.array([s.keypoints for s in scenes])
    steps = np.linalg.norm(np.diff(points, axis=0), axis=-1) / SMALL[0]
    assert steps.max() < 0.3  # a thrower's hand is the fastest thing here
    assert steps.max() > 0.001  # and every person moves
    jerk = np.linalg.norm(np.diff(points, 2, axis=0), axis=-1) / SMALL[0]
    assert jerk.max() < 0.22
    assert len({s.identity for s in scenes}) == 1
    assert {s.action for s in scenes} == {action}
    assert [s.frame for s in scenes] == list(range(14))
    # away from the person, nothing but the sensor's noise and moving shadows changes
    empty = ~np.any([s.mask for s in scenes], axis=0)
    spread = np.std([s.image[empty].mean(axis=1) for s in scenes], axis=0)
    assert np.median(spread) < 12


def test_a_clip_is_its_frames():
    frames = clip("studio", 31, "wave", 4, SMALL, identity=9)
    for k, scene in enumerate(frames):
        assert equal(scene, render_person("studio", 31, SMALL, identity=9, action="wave", frame=k))


def test_sitting_down_ends_lower_and_standing_up_higher():
    down, up = (clip("studio", 12, a, 20, SMALL) for a in ("sit_down", "stand_up"))
    assert down[-1].keypoints[TOP, 1] > down[0].keypoints[TOP, 1] + 5
    assert up[-1].keypoints[TOP, 1] < up[0].keypoints[TOP, 1] - 5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"look": "street"}, "street"),
        ({"action": "fly"}, "fly"),
        ({"seed": -1}, "-1"),
        ({"size": (8, 8)}, "(8, 8)"),
        ({"size": (5000, 96)}, "5000"),
        ({"size": (96,)}, "(96,)"),
        ({"identity": -3}, "-3"),
        ({"frame": -2}, "-2"),
    ],
)
def test_mistakes_are_told(arguments, named):
    with pytest.raises(DposeError) as error:
        render_person(**{"look": "studio", "seed": 0, "size": SMALL, **arguments})
    assert named in str(error.value)
    assert error.value.fix


def test_a_clip_needs_frames():
    with refused("frames-not-positive", where="frames"):
        clip("studio", 0, "walk", 0, SMALL)


def test_threads_draw_the_same_pictures():
    seeds = range(24)
    alone = [render_person("ward", s, SMALL) for s in seeds]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda s: render_person("ward", s, SMALL), seeds))
    assert all(equal(a, b) for a, b in zip(alone, together, strict=True))


def test_who_a_picture_shows_is_known_without_drawing_it():
    for look in LOOKS:
        for i in range(6):
            seed = scene_seed(look, "train", i)
            assert identity_of(look, seed) == render_person(look, seed, (32, 24)).identity
