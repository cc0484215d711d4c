import itertools
import shutil
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest

from dpose.media.video import VideoReader
from dpose.media.video_writer import video_file
from refusals import refused
from videos import info_for

RATE, BASE = Fraction(25), Fraction(1, 12800)


@pytest.fixture(scope="module")
def videos(request):
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "videos"
    if not folder.exists():
        pytest.skip(f"real data absent: {folder}")
    return folder


def frame(level, size=(48, 64)):
    image = np.full((*size, 3), level, np.uint8)
    image[: size[0] // 2, : size[1] // 2] = (200, 60, 20)
    return image


def write(path, times, size=(48, 64), length=None):
    with video_file(path, info_for(RATE, BASE, size, length)) as writer:
        for k, time in enumerate(times):
            writer.add(frame(10 * k % 200, size), round(time / BASE))
    return path


def read(path):
    reader = VideoReader(path)
    return reader, list(reader)


def facts(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return stream.average_rate, stream.frames, stream.duration * stream.time_base


class TestRoundTrip:
    def test_pictures_come_back_nearly_and_times_exactly(self, tmp_path):
        times = [k / RATE for k in range(12)]
        reader, found = read(write(tmp_path / "a.mp4", times))
        assert [t for _, t in found] == times
        assert (reader.read, reader.damage.packets, reader.missing) == (12, 0, 0)
        for k, (image, _) in enumerate(found):
            assert (image.shape, image.dtype) == ((48, 64, 3), np.uint8)
            assert np.abs(image.astype(int) - frame(10 * k % 200)).mean() < 6

    def test_uneven_times_and_the_whole_length_are_kept(self, tmp_path):
        times = [Fraction(k * k, 100) for k in range(8)]
        path = write(tmp_path / "a.mp4", times, length=Fraction(7, 10))
        assert [t for _, t in read(path)[1]] == times
        assert facts(path)[2] == Fraction(7, 10)

    def test_without_a_length_the_last_frame_lasts_as_the_rate_says(self, tmp_path):
        assert facts(write(tmp_path / "a.mp4", [Fraction(0), Fraction(1, 25)]))[2] == Fraction(2, 25)

    def test_odd_sides_grow_by_one(self, tmp_path):
        _, found = read(write(tmp_path / "a.mp4", [Fraction(0), Fraction(1, 25)], size=(33, 47)))
        assert found[0][0].shape == (34, 48, 3)

    @pytest.mark.parametrize("name", ["demo.mp4", "test.avi", "demo_skeleton.mp4"])
    def test_real_clips_keep_rate_number_and_length(self, videos, tmp_path, name):
        reader, copy, times = VideoReader(videos / name), tmp_path / "copy.mp4", []
        info = reader.info
        small = replace(info, height=-(-info.height // 8), width=-(-info.width // 8))
        with video_file(copy, small) as writer:
            for image, time in reader:
                times.append(time)
                writer.add(np.ascontiguousarray(image[::8, ::8]), round(time / info.time_base))
        assert facts(copy) == facts(videos / name)
        assert [t for _, t in read(copy)[1]] == times
        assert reader.whole
        assert reader.missing == reader.damage.packets == 0


class TestBadFiles:
    def test_a_clip_cut_short_gives_what_it_has_and_says_how_much(self, videos, tmp_path):
        short = tmp_path / "short.avi"
        whole = (videos / "test.avi").read_bytes()
        short.write_bytes(whole[: len(whole) // 2])
        reader, found = read(short)
        assert 20 < len(found) < 164
        assert reader.missing == 164 - len(found)
        assert not reader.whole
        assert all(b > a for (_, a), (_, b) in itertools.pairwise(found))

    def test_a_clip_without_its_index_is_refused(self, tmp_path):
        path = write(tmp_path / "a.mp4", [k / RATE for k in range(30)])
        path.write_bytes(path.read_bytes()[:-600])
        with refused("video-undecodable", where="a.mp4"):
            VideoReader(path)

    def test_damage_in_the_middle_is_passed_over(self, tmp_path):
        path = write(tmp_path / "a.mkv", [k / RATE for k in range(60)])
        data = bytearray(path.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 60] = bytes(np.random.default_rng(0).integers(0, 256, 60, np.uint8))
        path.write_bytes(data)
        _, found = read(path)
        assert 0 < len(found) <= 60
        assert all(b > a for (_, a), (_, b) in itertools.pairwise(found))

    def test_no_video_at_all(self, tmp_path):
        (tmp_path / "a.mp4").write_bytes(b"nothing")
        for path, words in ((tmp_path / "a.mp4", "video-undecodable"), (tmp_path / "b.mp4", "file-missing")):
            with refused(words):
                VideoReader(path)

    def test_a_name_is_never_an_address(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        shutil.copyfile(write(tmp_path / "a.mp4", [Fraction(0), Fraction(1, 25)]), "tcp:a.mp4")
        assert len(read("tcp:a.mp4")[1]) == 2


class TestWriting:
    def test_nothing_is_left_of_a_video_that_was_not_finished(self, tmp_path):
        def interrupted():
            with video_file(tmp_path / "a.mp4", info_for(RATE, BASE)) as writer:
                writer.add(frame(1), 0)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with refused("video-without-frames"):
            write(tmp_path / "a.mp4", [])
        assert not list(tmp_path.iterdir())

    def test_an_old_video_stays_until_the_new_one_is_whole(self, tmp_path):
        path = tmp_path / "a.mp4"
        path.write_bytes(b"old")

        def write_two_sizes():
            with video_file(path, info_for(RATE, BASE)) as writer:
                writer.add(frame(1), 0)
                writer.add(frame(1, (20, 20)), 1)

        with pytest.raises(ValueError, match="a frame of"):
            write_two_sizes()
        assert path.read_bytes() == b"old"

    def test_times_must_grow(self, tmp_path):
        with pytest.raises(ValueError, match="not later"):
            write(tmp_path / "a.mp4", [Fraction(1), Fraction(1)])

    def test_other_suffixes_are_refused(self, tmp_path):
        with refused("video-suffix-unknown"):
            write(tmp_path / "a.wmv", [Fraction(0)])
