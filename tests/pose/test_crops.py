import cv2
import numpy as np
import pytest

from dpose.pose.crops import crop_transform, invert, transform_points, warp, whole_frame, zoom_of

SIZE = (256, 192)
RNG = np.random.default_rng(0)


def smooth(height, width):
    return cv2.GaussianBlur(RNG.integers(0, 256, (height, width, 3), np.uint8), (0, 0), 6)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("rotation", [0.0, 33.0, -80.0])
def test_round_trip(rotation, flip):
    matrix = crop_transform((12, 5, 90, 301), SIZE, rotation=rotation, scale=0.7, flip=flip)
    points = RNG.uniform(-50, 400, (40, 2))
    assert np.allclose(transform_points(invert(matrix), transform_points(matrix, points)), points, atol=1e-9)
    assert np.allclose(transform_points(matrix, transform_points(invert(matrix), points)), points, atol=1e-9)


@pytest.mark.parametrize("size", [(256, 192), (64, 48), (97, 131)])
def test_the_whole_frame_is_the_picture_itself_exactly(size):
    matrix = crop_transform(whole_frame(size), size, padding=1.0)
    assert np.array_equal(matrix, [[1, 0, 0], [0, 1, 0]])
    image = RNG.integers(0, 256, (*size, 3), np.uint8)
    assert np.array_equal(warp(image, matrix, size), image)


def test_mirroring_the_whole_frame_mirrors_the_pixels_exactly():
    image = RNG.integers(0, 256, (*SIZE, 3), np.uint8)
    matrix = crop_transform(whole_frame(SIZE), SIZE, padding=1.0, flip=True)
    assert np.array_equal(warp(image, matrix, SIZE), image[:, ::-1])
    assert transform_points(matrix, (0, 7)).tolist() == [191, 7]


def test_the_box_is_centred_and_padded_and_keeps_its_aspect():
    wide = crop_transform((100, 200, 300, 240), SIZE, padding=1.25)
    assert transform_points(wide, (200, 220)).tolist() == pytest.approx([95.5, 127.5])
    # 200 px wide times 1.25 fill 192 px: the width decides
    assert zoom_of(wide) == pytest.approx(192 / 250)
    tall = crop_transform((100, 0, 110, 400), SIZE, padding=1.0)
    assert zoom_of(tall) == pytest.approx(256 / 400)
    for matrix in (wide, tall):
        assert matrix[0, 0] == pytest.approx(matrix[1, 1])


def test_scale_above_one_makes_the_person_smaller():
    box = (0, 0, 100, 200)
    assert zoom_of(crop_transform(box, SIZE, scale=2.0)) == pytest.approx(zoom_of(crop_transform(box, SIZE)) / 2)


def test_a_positive_turn_is_counter_clockwise_as_seen():
    matrix = crop_transform(whole_frame((101, 101)), (101, 101), padding=1.0, rotation=90)
    right_of_centre, above_centre = (60.0, 50.0), (50.0, 40.0)
    assert transform_points(matrix, right_of_centre) == pytest.approx(above_centre)


def test_pixels_and_points_agree_under_every_change():
    """A bright spot in the picture must be found where its point is said to go."""
    image = np.zeros((200, 160, 3), np.uint8)
    cv2.circle(image, (70, 120), 4, (255, 255, 255), cv2.FILLED, cv2.LINE_AA)
    for rotation, scale, flip in ((0, 1, False), (25, 0.8, False), (-60, 1.3, True), (0, 0.6, True)):
        matrix = crop_transform((20, 60, 130, 180), SIZE, rotation=rotation, scale=scale, flip=flip)
        crop = warp(image, matrix, SIZE)[..., 0].astype(float)
        ys, xs = np.mgrid[: SIZE[0], : SIZE[1]]
        result = (xs * crop).sum() / crop.sum(), (ys * crop).sum() / crop.sum()
        assert result == pytest.approx(tuple(transform_points(matrix, (70, 120))), abs=0.15)


def test_points_and_pixels_agree_when_a_large_picture_is_reduced():
    image = np.zeros((1003, 1501, 3), np.uint8)
    cv2.circle(image, (700, 420), 30, (255, 255, 255), cv2.FILLED, cv2.LINE_AA)
    matrix = crop_transform(whole_frame((1003, 1501)), SIZE, padding=1.0)
    assert zoom_of(matrix) < 0.25
    crop = warp(image, matrix, SIZE)[..., 0].astype(float)
    ys, xs = np.mgrid[: SIZE[0], : SIZE[1]]
    result = (xs * crop).sum() / crop.sum(), (ys * crop).sum() / crop.sum()
    assert result == pytest.approx(tuple(transform_points(matrix, (700, 420))), abs=0.05)


def test_reduction_averages_instead_of_skipping():
    stripes = np.zeros((1024, 768, 3), np.uint8)
    stripes[:, ::4] = 252
    crop = warp(stripes, crop_transform(whole_frame((1024, 768)), SIZE, padding=1.0), SIZE)
    assert crop[5:-5, 5:-5].min() >= 60
    assert crop[5:-5, 5:-5].max() <= 66


def test_there_and_back_restores_a_smooth_picture():
    image = smooth(*SIZE)
    matrix = crop_transform((40, 60, 150, 200), SIZE, rotation=20, padding=1.0)
    back = warp(warp(image, matrix, SIZE), invert(matrix), SIZE)
    inside = (slice(115, 145), slice(80, 110))
    assert np.abs(back[inside].astype(int) - image[inside]).max() <= 4


def test_outside_the_picture_is_black():
    crop = warp(np.full((50, 50, 3), 200, np.uint8), crop_transform((0, 0, 49, 49), SIZE, padding=3), SIZE)
    assert (crop[0] == 0).all()
    assert (crop[128, 96] == 200).all()


@pytest.mark.parametrize("box", [(0, 0, 0, 5), (5, 0, 4, 5), (0, 0, np.nan, 5), (0, 0, np.inf, 5)])
def test_boxes_that_hold_nothing_are_refused(box):
    with pytest.raises(ValueError, match="holds nothing"):
        crop_transform(box, SIZE)


def test_scale_must_be_positive():
    with pytest.raises(ValueError, match="holds nothing"):
        crop_transform((0, 0, 5, 5), SIZE, scale=0)
