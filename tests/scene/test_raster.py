import numpy as np
import pytest

from dpose_scene.camera import Camera, axes_looking, frame_person
from dpose_scene.draws import Draws
from dpose_scene.mesh import add_boxes, empty_mesh
from dpose_scene.raster import SAMPLES, fill_quads, project_vertices

SIZE = (128, 96)


def camera(seed=0):
    draws = Draws(9, seed)
    axes = axes_looking(draws.uniform(-1, 1), draws.uniform(0, 1), draws.uniform(-0.3, 0.3))
    points = np.array([[-0.5, 0, -0.3], [0.5, 1.8, 0.3], [0.2, 0.9, 0.1]])
    return frame_person(points, axes, 3.5, SIZE, 0.8, (0.03, -0.02)), points


def draw(box_rows, view):
    mesh = empty_mesh(24 * len(box_rows), 6 * len(box_rows))
    add_boxes(mesh, np.array(box_rows, float), 0)
    screen = np.empty_like(mesh.points)
    project_vertices(mesh, view.array(), screen)
    depth = np.zeros((SAMPLES * SIZE[0], SAMPLES * SIZE[1]), np.float32)
    ids = np.full(depth.shape, -1, np.int32)
    fill_quads(mesh, screen, depth, ids)
    return depth, ids


@pytest.mark.parametrize("seed", range(6))
def test_things_are_painted_where_keypoints_say(seed):
    view, points = camera(seed)
    spot = points[2]
    half = 15.0 / view.focal  # four or five pixels
    _, ids = draw([(*spot, half, half, half, 0.4, 0.2, 0)], view)
    rows, columns = np.nonzero(ids >= 0)
    # the centre of sample s lies at (s + 1/2) / SAMPLES - 1/2 pixels: pixel centres are whole numbers
    painted = (np.array([columns.mean(), rows.mean()]) + 0.5) / SAMPLES - 0.5
    assert np.abs(painted - view.project(spot[None])[0][0]).max() < 0.15


def test_nearer_things_hide_farther_ones():
    view, points = camera()
    near = points[2] - 0.5 * view.axes[2]
    far = [(*points[2], 0.3, 0.3, 0.02, 0, 0, 1)]
    both = [*far, (*near, 0.05, 0.05, 0.05, 0, 0, 2)]
    for boxes in (both, both[::-1]):
        _, ids = draw(boxes, view)
        x, y = view.project(near[None])[0][0]
        quad = ids[round((y + 0.5) * SAMPLES), round((x + 0.5) * SAMPLES)] // 2
        assert boxes[quad // 6][8] == 2


def test_depth_is_one_over_distance():
    view, points = camera()
    depth, _ = draw([(*points[2], 0.02, 0.02, 0.02, 0, 0, 0)], view)
    assert 1 / depth.max() == pytest.approx(view.project(points[2:])[1][0], abs=0.05)


def test_things_behind_the_camera_leave_no_trace():
    view, _ = camera()
    _, ids = draw([(*(view.position - view.axes[2]), 0.3, 0.3, 0.3, 0, 0, 0)], view)
    assert (ids == -1).all()


def test_axes_are_a_right_handed_frame():
    for seed in range(5):
        axes = camera(seed)[0].axes
        assert np.allclose(axes @ axes.T, np.eye(3))
        assert np.allclose(np.cross(axes[0], axes[1]), axes[2])


def test_framing_puts_the_points_where_asked():
    points = np.array([[-0.2, 0.0, 0.0], [0.2, 1.7, 0.1], [0.0, 0.8, 0.2]])
    view = frame_person(points, axes_looking(0, 0.1, 0), 4.0, SIZE, 0.75, (0.0, 0.0))
    pixels, depth = view.project(points)
    assert np.ptp(pixels[:, 1]) == pytest.approx(0.75 * SIZE[0], rel=1e-6)
    middle = 0.5 * (pixels.min(axis=0) + pixels.max(axis=0))
    assert np.allclose(middle, ((SIZE[1] - 1) / 2, (SIZE[0] - 1) / 2))
    assert (depth > 0).all()


def test_wide_people_fit_the_width():
    points = np.array([[-1.0, 1.0, 0.0], [1.0, 1.2, 0.0]])
    view = frame_person(points, axes_looking(0, 0, 0), 4.0, SIZE, 0.85, (0.0, 0.0))
    pixels, _ = view.project(points)
    assert pixels[:, 0].min() >= 0
    assert pixels[:, 0].max() <= SIZE[1] - 1


def test_a_camera_sees_left_of_a_facing_person_on_the_right():
    view = Camera(np.array([0.0, 1.0, 4.0]), axes_looking(0, 0, 0), 100.0, np.array([48.0, 64.0]))
    pixels, _ = view.project(np.array([[0.3, 1.0, 0.0], [0.0, 1.5, 0.0]]))
    assert pixels[0, 0] > 48
    assert pixels[1, 1] < 64
