"""Time spans of a film: how they are read, and which frames and sounds they keep."""

from fractions import Fraction

import av
import numpy as np
import pytest

from clips import write
from dpose.media.spans import Span, cut, paired, spans_of
from dpose.media.video import frame_times, probe, read_frames
from dpose.media.video_writer import open_writer, settle
from refusals import refused


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("12.5", Fraction(25, 2)),
        ("1:02", 62),
        ("01:02.5", Fraction(125, 2)),
        ("00:01:02,500", Fraction(125, 2)),
        ("1:02:03.25", 3723 + Fraction(1, 4)),
        ("90", 90),
        ("90:00", 5400),
        (12.5, Fraction(25, 2)),
        (3, 3),
        (Fraction(1, 3), Fraction(1, 3)),
        (" 2 ", 2),
        ("2.", 2),
    ],
)
def test_times(text, seconds):
    assert spans_of([(text, None)]) == (Span(seconds, None),)


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", -1, "1,5,", "1:60", "1:75:00", "1:2:3:4", "nan", "inf", "1e3", ".5", ":30", "1:", float("nan")],
)
def test_what_is_no_time(text):
    with refused("span-malformed"):
        spans_of([(text, None)])
    with refused("span-malformed"):
        spans_of([(0, text)]) if text != "" else spans_of([("", 1)])


def test_a_span_that_ends_before_it_begins_is_refused():
    for first, last in ((2, 1), (1, 1), ("1:00", "59")):
        with refused("span-reversed"):
            spans_of([(first, last)])


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ([(1, 2), (3, 4)], [(1, 2), (3, 4)]),
        ([(3, 4), (1, 2)], [(1, 2), (3, 4)]),
        ([(1, 3), (2, 4)], [(1, 4)]),
        ([(1, 2), (2, 4)], [(1, 4)]),
        ([(1, 9), (2, 4), (9, 10)], [(1, 10)]),
        ([(2, None), (1, 3)], [(1, None)]),
        ([(2, None), (5, 6)], [(2, None)]),
        ([(1, 2), (1, 2)], [(1, 2)]),
        ([], []),
    ],
)
def test_spans_that_overlap_or_touch_are_one(given, merged):
    assert spans_of(given) == tuple(Span(*pair) for pair in merged)


def test_pairs():
    assert paired(["1"], ["2"]) == spans_of([(1, 2)])
    assert paired(["1"], []) == spans_of([(1, None)])
    assert paired([], ["2"]) == spans_of([(0, 2)])
    assert paired(["1", "5"], ["2", "end"]) == spans_of([(1, 2), (5, None)])
    for starts, ends in ((["1", "3"], ["2"]), (["1"], ["2", "4"]), (["1", "2"], [])):
        with refused("span-unpaired"):
            paired(starts, ends)


def test_words():
    (span,) = spans_of([("1:02.5", None)])
    assert span.words() == "62.5 s to the end"
    assert spans_of([span.stated()]) == (span,)
    for time in ("0.1", "3600", "0.000000001", "12.345678901"[:12]):
        (span,) = spans_of([(time, "9999999")])
        assert spans_of([span.stated()]) == (span,)


SHAPES = {
    "mp4": {},
    "odd": {"size": (49, 33), "pix_fmt": "yuv444p"},
    "uneven": {"stamps": [0, 1, 2, 5, 6, 7, 8, 20, 21, 22, 30, 31, 32, 33, 34, 40, 41, 42, 50, 60]},
    "mkv": {"suffix": ".mkv"},
    "ts": {"suffix": ".ts"},
    "avi": {"suffix": ".avi", "codec": "mpeg4"},
}
PAIRS = [[(1, 2)], [(0, 1)], [("0.5", None)], [(0.25, 0.75), (1.5, 2)], [(0, None)], [(1.26, 1.43)]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pairs", PAIRS)
def test_frames_are_those_of_the_whole_film(tmp_path, shape, pairs):
    more = dict(SHAPES[shape])
    info = probe(write(tmp_path / f"a{more.pop('suffix', '.mp4')}", frames=20, rate=8, **more))
    spans, whole, times = spans_of(pairs), list(read_frames(info)), frame_times(info)
    assert len(whole) == len(times) == 20
    each = [[n for n, time in enumerate(times) if s.start <= time and (s.end is None or time < s.end)] for s in spans]
    kept = [number for numbers in each for number in numbers]
    if not all(each):
        with refused("span-without-frames"):
            cut(info, spans)
        return
    part = cut(info, spans)
    frames = list(read_frames(part))
    assert part.frames == len(frames) == len(kept)
    for frame, number in zip(frames, kept, strict=True):
        assert np.array_equal(frame.pixels, whole[number].pixels)
        assert frame.duration == whole[number].duration
    stamps = [frame.pts for frame in frames]
    assert stamps[0] == 0
    assert [stamp * part.time_base for stamp in stamps] == frame_times(part)
    gaps = dict(zip(kept, np.diff(stamps), strict=False))
    ticks = [frame.pts for frame in whole]
    for number, gap in gaps.items():  # each frame is shown for as long as before, at the end of a span, too
        assert gap == ticks[number + 1] - ticks[number] > 0
    assert cut(info, ()) is info


def test_which_frames_follows_from_time_stamps_and_from_no_pixel(tmp_path):
    info = probe(write(tmp_path / "a.mp4", frames=20, rate=8))
    other = tmp_path / "b.mp4"
    with open_writer(other, info) as (writer, temporary):
        for frame in read_frames(info):
            writer.add(255 - frame.pixels, frame.pts, frame.duration)
    settle(temporary, other)
    spans = spans_of([(0.3, 0.9), (1.1, 1.9)])
    assert [cut(probe(path), spans).frames for path in (info.path, other)] == [12, 12]


def test_what_is_beyond_the_end(tmp_path):
    info = probe(write(tmp_path / "a.mp4", frames=20, rate=8))
    part = cut(info, spans_of([(2, 99)]))
    assert part.frames == 4
    assert any("the film ends at 2.5 s" in note for note in part.notes)
    assert not any("ends" in note for note in cut(info, spans_of([(2, 2.5)])).notes)
    with refused("span-without-frames", ("2.5 s", info.path)):
        cut(info, spans_of([(0, 1), ("2.5", 9)]))


def test_empty_chunks_of_an_avi_are_frames_of_the_span_too(tmp_path):
    from field.test_field_frames import avi

    info = probe(avi(tmp_path / "a.avi", (2, 4)))
    whole = [frame.pixels for frame in read_frames(info)]
    part = cut(info, spans_of([("0.3", "0.7")]))
    frames = [frame.pixels for frame in read_frames(part)]
    assert len(frames) == 4
    assert np.array_equal(frames, whole[3:7])


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_sound_of_the_spans_alone_is_kept_and_in_time(tmp_path, suffix):
    info = probe(write(tmp_path / "a.mp4", frames=20, rate=8, sound=True))
    part = cut(info, spans_of([(0.25, 0.5), (0.75, 1)]))
    out = tmp_path / f"b{suffix}"
    with open_writer(out, part, keep_sound=True) as (writer, temporary):
        for frame in read_frames(part, writer.add_sound if writer.keeps_sound else None):
            writer.add(frame.pixels, frame.pts, frame.duration)
    settle(temporary, out)
    with av.open(str(out)) as container:
        packets = [p for p in container.demux(container.streams.audio[0]) if p.size]
        starts = [float(p.pts * p.time_base) for p in packets]
    assert len(list(read_frames(probe(out)))) == 4
    assert 12 <= len(starts) <= 22  # half a second of a second that has 44
    assert -0.03 <= starts[0] <= 0.03
    assert starts[-1] <= 0.5
    assert (np.diff(starts) > 0.9 * 1024 / 44_100).all()
