import numpy as np
import pytest

from dpose.media.drawing import draw_skeleton, picture_grid

BLANK = np.full((100, 120, 3), 128, np.uint8)
POINTS = np.array([[20.0, 50.0], [100.0, 50.0], [60.0, 20.0]])
RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 255, 0)


def drawn(scores=(1, 1, 1), points=POINTS, edges=((0, 1),), **options):
    return draw_skeleton(BLANK, points, scores, edges, [RED, BLUE, GREEN], **options)


def test_the_picture_given_is_not_changed():
    image = drawn()
    assert (BLANK == 128).all()
    assert image.shape == BLANK.shape
    assert image.dtype == np.uint8


def test_each_half_of_an_edge_has_its_joints_colour():
    image = drawn(thickness=3)
    assert tuple(image[50, 35]) == RED
    assert tuple(image[50, 85]) == BLUE
    assert tuple(image[50, 20]) == RED
    assert tuple(image[20, 60]) == GREEN


def test_hidden_joints_and_their_edges_are_not_drawn():
    image = drawn(scores=(1, 0, 1))
    assert (image[50, 40:] == 128).all()
    assert tuple(image[50, 20]) == RED
    assert np.array_equal(drawn(scores=np.array([True, False, True])), image)


def test_the_threshold_decides():
    assert (drawn(scores=(0.2, 0.2, 0.2)) == BLANK).all()
    assert (drawn(scores=(0.2, 0.2, 0.2), threshold=0.1) != BLANK).any()


@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf, 1e9, -1e9])
def test_wild_joints_are_skipped(wild):
    points = POINTS.copy()
    points[1, 0] = wild
    assert np.array_equal(drawn(points=points), drawn(scores=(1, 0, 1)))


def test_lines_grow_with_the_picture():
    large = draw_skeleton(np.full((1000, 1200, 3), 128, np.uint8), POINTS * 10, (1, 1, 1), ((0, 1),))
    small = draw_skeleton(BLANK, POINTS, (1, 1, 1), ((0, 1),))
    assert (large[:, 350] != 128).any(axis=1).sum() > 2 * (small[:, 35] != 128).any(axis=1).sum()


def test_joints_land_between_pixels():
    left, right = drawn(), drawn(points=POINTS + np.array([0.5, 0.0]))
    assert not np.array_equal(left, right)


def test_numbers_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="do not match"):
        draw_skeleton(BLANK, POINTS, (1, 1), ())
    with pytest.raises(ValueError, match="do not match"):
        draw_skeleton(BLANK, POINTS, (1, 1, 1), (), [RED])


def test_grid_places_pictures_in_rows_on_white():
    pictures = [np.full((10, 20, 3), v, np.uint8) for v in (10, 20, 30)]
    sheet = picture_grid(pictures, columns=2, pad=3)
    assert sheet.shape == (3 + 2 * 13, 3 + 2 * 23, 3)
    assert (sheet[3:13, 3:23] == 10).all()
    assert (sheet[3:13, 26:46] == 20).all()
    assert (sheet[16:26, 3:23] == 30).all()
    assert (sheet[16:26, 26:46] == 255).all()


def test_grid_centres_smaller_pictures_and_narrows_to_what_there_is():
    sheet = picture_grid([np.zeros((10, 10, 3), np.uint8), np.zeros((4, 6, 3), np.uint8)], columns=5, pad=0)
    assert sheet.shape == (10, 20, 3)
    assert (sheet[3:7, 12:18] == 0).all()
    assert (sheet[:3, 10:] == 255).all()


def test_labels_are_written_above_and_stay_in_their_cell():
    plain = [np.full((20, 40, 3), 90, np.uint8)] * 2
    sheet = picture_grid(plain, columns=2, pad=4, labels=["a label far too long for forty pixels", ""])
    assert (sheet[4:22, 4:44] < 255).any()
    assert (sheet[4:22, 44:] == 255).all()
    assert (sheet[22:42, 4:44] == 90).all()


def test_a_grid_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        picture_grid([], 3)
    with pytest.raises(ValueError, match="labels"):
        picture_grid([BLANK], 1, labels=["a", "b"])
