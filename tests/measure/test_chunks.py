"""Chunks by the clock: each by itself, and silent where it fails."""

import copy
import itertools
import threading
from fractions import Fraction

import numpy as np
import pytest

from counted import LYING, SITTING, STANDING, Reader, film, frame, person
from dpose.measure.chunks import chunk_rows, is_own
from dpose.measure.config import CountConfig
from dpose.media.areas import lies_inside, masked
from dpose.media.timed import sampled
from dpose.pose.blaze_people import BlazePeople
from dpose.pose.postures import posture_of
from dpose.pose.skeletons import COCO
from refusals import refused


def config_of(queries="occupancy", **given):
    return CountConfig.of(queries=queries, **{"window": "1min", "epsilon": "1", "rate": "1", "chunk": "2s", **given})


def rows_of(frames, config, reader=None):
    return dict(chunk_rows(frames, config, reader or Reader()))


def test_frames_go_to_chunks_by_the_clock():
    """Not by their number: a gap leaves its chunks out, and shifts none."""
    frames = [frame(t, n) for t, n in [(0, 1), (1, 2), (7, 3), (8, 4)]]
    found = rows_of(frames, config_of())
    assert {chunk: list(rows["occupancy"]) for chunk, rows in found.items()} == {0: [1, 2], 3: [3], 4: [4]}


def test_the_rate_is_public():
    """One frame a tick, the first: more frames, or crowds in them, change nothing of that."""
    frames = film([1, 9, 9, 9, 2, 9, 9, 9], rate=4)
    assert [(f.time, int(f.pixels[0, 0, 0])) for f in sampled(frames, Fraction(1))] == [(0, 1), (1, 2)]
    late = [frame(Fraction(1, 10) + k, k) for k in range(3)]
    assert len(list(sampled(late, Fraction(2)))) == 3


def test_a_chunk_is_a_function_of_what_it_sees():
    """Every film of frames that others do not see gives the same row: also with a finder that is moody."""
    config = config_of("occupancy,falls", fall_within="1s", fall_stays="1s")
    for own in itertools.product((0, 2), repeat=2):
        found = set()
        for before, after in itertools.product((0, 1, 3), repeat=2):
            # chunk 2 has seconds 4 and 5, and sees 2 and 3 besides
            counts = [before, before, 1, 1, *own, after, after]
            rows = rows_of(film(counts), config, Reader(moody=True))[2]
            found.add(tuple(map(tuple, rows.values())))
        assert len(found) == 1


class Recent:
    """A posture model that remembers: lying, where it has been asked before."""

    def __init__(self):
        self.asked = []

    def __call__(self, pose, skeleton):
        self.asked.append(pose)
        return "lying" if len(self.asked) > 1 else "standing"


def test_what_a_posture_model_remembers_stays_in_its_chunk():
    rows = dict(chunk_rows(film([1] * 8), config_of("lying"), Reader(), Recent()))
    assert {chunk: list(row["lying"]) for chunk, row in rows.items()} == {chunk: [0, 1] for chunk in range(4)}


def test_whose_finder_and_posture_it_is():
    """Of its own dpose knows that they keep nothing; what a copy cannot be made of is refused."""
    shipped = BlazePeople.load()
    assert copy.deepcopy(shipped)._model is shipped._model
    assert not is_own(shipped, posture_of)
    assert is_own(shipped, Recent())
    assert is_own(Reader(), posture_of)
    with refused("finder-not-copied"):
        is_own(Locked(), posture_of)


class Locked(Reader):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


def test_a_finder_is_never_used_itself():
    reader = Reader()
    rows_of(film([1] * 9), config_of(), reader)
    assert reader.calls == 0


@pytest.mark.parametrize("broken", [0, 3, 4])
def test_a_chunk_that_fails_counts_as_empty_and_says_nothing(broken, capfd):
    counts = [1] * 6
    counts[broken] = 255
    found = rows_of(film(counts), config_of())
    assert [chunk for chunk, rows in found.items() if rows is None] == [broken // 2]
    assert sum(sum(rows["occupancy"]) for rows in found.values() if rows) == 4
    assert capfd.readouterr() == ("", "")


def test_a_query_that_fails_counts_as_empty(monkeypatch):
    from dpose.measure.queries import QUERIES, CountQuery

    def broken(seen, rules):
        raise ValueError("a secret")

    monkeypatch.setitem(QUERIES, "occupancy", CountQuery("", broken, 10, "", each_frame=True))
    assert rows_of(film([1, 1]), config_of()) == {0: None}


def test_a_chunk_that_is_late_counts_as_empty(monkeypatch):
    """Its own processing counts, not that of others; and the next chunk has all of its time."""
    # of the late chunk's frames the second is not looked at
    spent = iter(np.cumsum([0.0, 0.1] * 2 + [0.0, 9.0] + [0.0, 0.1] * 2))
    monkeypatch.setattr("dpose.measure.chunks.clock.perf_counter", lambda: float(next(spent)))
    found = rows_of(film([1] * 6)[:6], config_of(deadline="1s"))
    assert found[0] is not None
    assert found[1] is None
    assert found[2] is not None


def test_frames_that_are_too_large_fail_their_chunk(monkeypatch):
    monkeypatch.setattr("dpose.measure.chunks.MAX_FRAME_PIXELS", 100)
    assert rows_of(film([1, 1]), config_of()) == {0: None}


def test_a_mask_is_applied_before_the_model():
    shown = []

    class Looking(Reader):
        def __call__(self, image, boxes=None, before=None):
            shown.append(image.copy())
            return []

    config = config_of(masks="0,0 0.5,0 0.5,1 0,1")
    given = frame(0, 1)
    given.pixels[:] = 200
    rows_of([given], config, Looking())
    assert not shown[0][:, :32].any()
    assert (shown[0][:, 34:] == 200).all()
    assert (given.pixels == 200).all()
    assert masked(given.pixels, ()) is given.pixels


def test_postures():
    for posture, word in ((STANDING, "standing"), (SITTING, "sitting"), (LYING, "lying")):
        assert posture_of(person(30, 30, posture).pose, COCO) == word
    unseen = person(30, 30)
    unseen.pose.scores[:] = 0
    assert posture_of(unseen.pose, COCO) == ""


def test_seconds_by_posture_and_floor():
    frames = [frame(0, 1, STANDING), frame(1, 1, LYING), frame(2, 2, SITTING), frame(3, 1, LYING)]
    config = config_of("standing,sitting,lying,floor", floor="0,0 1,0 1,1 0,1")
    found = rows_of(frames, config)
    assert found[0] == {"standing": [1, 0], "sitting": [0, 0], "lying": [0, 1], "floor": [0, 1]}
    assert found[1] == {"standing": [0, 0], "sitting": [2, 0], "lying": [0, 1], "floor": [0, 1]}
    off = config_of("lying,floor", floor="0,0 1,0 1,0.1")
    assert rows_of(frames, off)[1] == {"lying": [0, 1], "floor": [0, 0]}
    assert not lies_inside(np.array([20.0, 24.0]), off.floor, (64, 48))


def fall(stood, lay, seconds=12):
    """A film of somebody who stands, then lies."""
    return [frame(t, 1, LYING if stood <= t < stood + lay else STANDING) for t in range(seconds)]


@pytest.mark.parametrize(
    ("film", "count"),
    [
        (fall(4, 8), {3: 1}),  # on the floor at 4, confirmed at 7: chunk 3 has 6 and 7
        (fall(4, 2), {}),  # got up
        (fall(0, 12), {}),  # never stood
        ([f for f in fall(6, 6) if not 2 <= f.time < 6], {}),  # stood, but long before
    ],
)
def test_falls(film, count):
    config = config_of("falls", fall_within="2s", fall_stays="3s")
    found = {chunk: rows["falls"] for chunk, rows in rows_of(film, config).items()}
    assert {chunk: n for chunk, (n,) in found.items() if n} == count


def test_entries():
    """Across the line from its left to its right, which from top to bottom is leftwards; and not beside it."""
    config = config_of("entries", chunk="10s", line="0.5,1 0.5,0")
    there = [frame(k, 1, x=4 * k) for k in range(6)]
    back = [frame(k, 1, x=20 - 4 * k) for k in range(6)]
    assert rows_of(there, config)[0] == {"entries": [1]}
    assert rows_of(back, config)[0] == {"entries": [0]}
    assert rows_of(back, config_of("entries", chunk="10s", line="0.5,0 0.5,1"))[0] == {"entries": [1]}
    assert rows_of(there, config_of("entries", chunk="10s", line="0.5,0.2 0.5,0"))[0] == {"entries": [0]}


def test_speed():
    """Body heights a second, one number for each person of a chunk."""
    config = config_of("speed", chunk="10s")
    slow = rows_of([frame(k, 1, x=0) for k in range(6)], config)[0]["speed"]
    fast = rows_of([frame(k, 1, x=8 * k) for k in range(6)], config)[0]["speed"]
    assert list(slow) == [1, 0, 0, 0, 0, 0]
    assert list(fast) == [0, 1, 0, 0, 0, 0]


def test_a_face_alone_has_no_speed():
    """Body heights a second, of somebody whose height cannot be seen: none."""

    class Faces(Reader):
        def __call__(self, image, boxes=None, before=None):
            people = super().__call__(image, boxes, before)
            for one in people:
                one.pose.scores[[k for k, name in enumerate(COCO.joints) if "shoulder" not in name]] = 0
            return people

    config = config_of("occupancy,speed", chunk="10s")
    found = rows_of([frame(k, 1, x=8 * k) for k in range(6)], config, Faces())[0]
    assert found == {"occupancy": [1] * 6, "speed": [0] * 6}
