"""People keep their numbers: walking, crossing, missed for some frames, and gone."""

import numpy as np
import pytest

from dpose.pose.crops import Box
from dpose.pose.people import FoundPerson
from dpose.pose.predict import Pose
from dpose.pose.skeletons import BLAZEPOSE, COCO, MPII
from dpose.pose.tracks import SIGMA, Tracker, sigmas_of

BODY = np.random.default_rng(0).uniform(0, 1, (17, 2)) * [40, 120]


def person(x, y=50.0, scale=1.0, scores=0.9, noise=0.0, seed=0):
    points = BODY * scale + [x, y] + noise * np.random.default_rng(seed).normal(size=(17, 2))
    box = Box(np.array([x, y, x + 40, y + 120]), 0.9)
    return FoundPerson(Pose(points, np.full(17, scores)), 0.9, box, box)


def numbers(frames):
    tracker = Tracker(COCO)
    return [tracker(people) for people in frames]


def test_two_who_walk_keep_their_numbers_in_whatever_order_they_come():
    frames = []
    for k in range(20):
        people = [person(10 + 6 * k, seed=k, noise=2), person(300 - 6 * k, seed=99 + k, noise=2)]
        frames.append(people if k % 2 == 0 else people[::-1])
    result = numbers(frames)
    assert result == [[1, 2] if k % 2 == 0 else [2, 1] for k in range(20)]


def test_who_walks_past_another_is_not_exchanged():
    # they meet at x = 155 between frames and stand in one place for a moment
    frames = [
        [person(10 + 10 * k, noise=1.5, seed=k), person(300 - 10 * k, 52, noise=1.5, seed=k + 50)] for k in range(30)
    ]
    assert all(result == [1, 2] for result in numbers(frames))


@pytest.mark.parametrize(("missed", "number"), [(1, 1), (5, 1), (6, 2)])
def test_a_person_keeps_a_number_through_five_missed_frames(missed, number):
    walk = [[person(10 + 8 * k)] for k in range(6)]
    again = [[person(10 + 8 * (6 + missed))]]
    assert numbers(walk + [[]] * missed + again)[-1] == [number]


def test_one_who_stands_is_found_again_beside_one_who_went_on():
    frames = [[person(10), person(200 + 5 * k)] for k in range(5)]
    frames += [[person(200 + 5 * k)] for k in range(5, 9)]
    frames += [[person(250), person(10)]]
    assert numbers(frames)[-1] == [2, 1]


def test_a_newcomer_elsewhere_is_new_and_numbers_are_not_used_again():
    frames = [[person(10)], [person(500)], *([[]] * 6), [person(10)]]
    result = numbers(frames)
    assert (result[0], result[1], result[-1]) == ([1], [2], [3])


def test_the_best_assignment_of_all_is_taken_not_the_best_of_each():
    # the one in the middle is likest to both of before; only one pairing leaves nobody over
    first = [person(0), person(30)]
    second = [person(16), person(48)]
    assert numbers([first, second]) == [[1, 2], [1, 2]]


def test_joints_of_no_score_and_those_that_are_nowhere_say_nothing():
    one, two = person(10), person(12)
    scores = two.pose.scores.copy()
    points = two.pose.keypoints.copy()
    points[:6], scores[:6] = 5000, 0.0
    points[6] = np.nan
    two = FoundPerson(Pose(points, scores), 0.9, two.region, two.following)
    assert numbers([[one], [two], [one]]) == [[1], [1], [1]]
    nothing = FoundPerson(Pose(np.full((17, 2), np.nan), np.zeros(17)), 0.9, one.region, one.region)
    assert numbers([[nothing], [nothing]]) == [[1], [2]]


def test_falloffs_where_nobody_measured_them():
    assert sigmas_of(COCO).tolist() == list(COCO.sigmas)
    result = dict(zip(BLAZEPOSE.joints, sigmas_of(BLAZEPOSE), strict=True))
    assert result["nose"] == 0.026
    assert result["l_heel"] == SIGMA
    assert len(sigmas_of(MPII)) == 16


def posed(points):
    box = Box(np.array([0.0, 0, 1, 1]), 0.9)
    return FoundPerson(Pose(np.asarray(points, np.float64), np.full(17, 0.9)), 0.9, box, box)


def test_one_who_turns_about_is_told_by_the_box_and_one_who_bends_by_the_joints():
    # all joints change places: the box is the same
    assert numbers([[posed(BODY)], [posed(BODY[::-1])]]) == [[1], [1]]
    # a wrist flung out makes the box four times as wide, and all other joints are where they were
    flung = BODY.copy()
    flung[9] += [400, -300]
    assert numbers([[posed(BODY)], [posed(flung)]]) == [[1], [1]]


def test_a_gap_is_crossed_at_the_speed_of_before():
    # after a gap of five frames the speed is that of one frame, and not six times it
    walk = [[person(9.0 * k)] for k in range(6)]
    again, last = [person(9.0 * 11)], [person(9.0 * 17)]
    assert numbers([*walk, *([[]] * 5), again, *([[]] * 5), last])[-1] == [1]
