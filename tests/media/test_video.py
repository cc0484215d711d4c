"""Frames, time stamps and sound survive the way through; videos that end early do not pass."""

import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

import dpose
from clips import write
from dpose.errors import DposeError
from dpose.media.video import VideoReader, frame_times, probe, read_frames
from dpose.media.video_writer import open_writer, settle
from refusals import refused

STAMPS = [0, 3, 4, 9, 10, 11, 20]  # uneven on purpose


def make_video(path, frames=12, size=(64, 48), rate=12, sound=False, stamps=None, codec="libx264", grey=False):
    """A clip of moving grey levels, with a tone if asked for."""
    with av.open(str(path), "w") as out:
        video = out.add_stream(codec, rate=rate)
        video.width, video.height = size
        video.pix_fmt = "gray" if grey else "yuv420p"
        tone = out.add_stream("aac", rate=44_100) if sound else None
        if stamps:
            video.codec_context.time_base = video.time_base = Fraction(1, rate)
            video.codec_context.max_b_frames = 0
        for number in range(frames):
            pixels = np.full((size[1], size[0], 3), 40 + 10 * (number % 15), np.uint8)
            pixels[:, : number + 1] = 255
            picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if stamps:
                picture.pts, picture.time_base = stamps[number], Fraction(1, rate)
            for packet in video.encode(picture):
                out.mux(packet)
        for packet in video.encode(None):
            out.mux(packet)
        if tone is not None:
            wave = (np.sin(np.arange(44_100 * frames // rate) / 20) * 8000).astype(np.int16)
            for start in range(0, len(wave) - 1023, 1024):
                samples = av.AudioFrame.from_ndarray(wave[None, start : start + 1024], format="s16", layout="mono")
                samples.rate, samples.pts = 44_100, start
                for packet in tone.encode(samples):
                    out.mux(packet)
            for packet in tone.encode(None):
                out.mux(packet)
    return path


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt"),
    [("a.mkv", "ffv1", "bgra"), ("a.mov", "qtrle", "argb"), ("a.webm", "libvpx-vp9", "yuva420p")],
)
def test_a_video_with_transparency_is_refused(tmp_path, name, codec, pix_fmt):
    """In WebM alpha is a track of its own: the decoder gives opaque frames, with what it hides."""
    with refused("video-transparent", where=name):
        probe(write(tmp_path / name, codec=codec, pix_fmt=pix_fmt))


def copy(source, target, **more):
    info = probe(source)
    with open_writer(target, info, **more) as (writer, temporary):
        for frame in read_frames(info, writer.add_sound if writer.keeps_sound else None):
            writer.add(frame.pixels, frame.pts, frame.duration)
    settle(temporary, target)
    return info, probe(target)


def times(info):
    return [frame.pts * info.time_base for frame in read_frames(info)]


def packets(path, kind):
    with av.open(str(path)) as container:
        stream = next(iter(getattr(container.streams, kind)))
        return [bytes(p) for p in container.demux(stream) if p.size]


def test_rate_stamps_duration_and_size_stay(tmp_path):
    before, after = copy(make_video(tmp_path / "a.mp4"), tmp_path / "b.mp4")
    assert (after.width, after.height, after.frames) == (64, 48, 12)
    assert after.rate == before.rate == 12
    assert times(after) == times(before)
    with av.open(str(tmp_path / "a.mp4")) as a, av.open(str(tmp_path / "b.mp4")) as b:
        assert a.duration == b.duration


def test_uneven_stamps_stay(tmp_path):
    source = make_video(tmp_path / "a.mkv", frames=len(STAMPS), stamps=STAMPS, rate=10)
    for name in ("b.mp4", "b.mkv", "b.mov"):
        before, after = copy(source, tmp_path / name)
        assert times(after) == times(before)
        assert [round(float(t) * 10) for t in times(after)] == STAMPS


def test_a_video_whose_first_frame_comes_late_is_whole(tmp_path):
    """Matroska counts its duration from zero: seconds before the first frame were taken to be missing ones."""
    source = make_video(tmp_path / "a.mkv", frames=60, stamps=[40 + number for number in range(60)], rate=12)
    before, after = copy(source, tmp_path / "b.mkv")
    assert before.frames == after.frames == 60
    assert before.start > 3
    assert times(before)[0] == times(after)[0] == 0
    reader = VideoReader(source)
    assert len(list(reader)) == 60
    assert reader.whole
    data = source.read_bytes()
    source.write_bytes(data[: len(data) * 6 // 10])
    with pytest.raises(DposeError):
        copy(source, tmp_path / "c.mkv")
    assert not (tmp_path / "c.mkv").exists()


def moving(path, codec="libx264"):
    """45 frames with a key frame each tenth."""
    picture = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8).repeat(16, 0).repeat(16, 1)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        stream.codec_context.gop_size, stream.codec_context.max_b_frames = 10, 0
        stream.options = {"x264-params": "keyint=10:scenecut=0"} if codec == "libx264" else {}
        for number in range(45):
            for packet in stream.encode(av.VideoFrame.from_ndarray(np.roll(picture, number, 1), format="rgb24")):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    return path


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video"])
@pytest.mark.parametrize("suffix", [".ts", ".mkv"])
def test_a_video_that_begins_before_its_first_key_frame_says_what_helps(tmp_path, codec, suffix):
    cut = tmp_path / f"cut{suffix}"
    with av.open(str(moving(tmp_path / "whole.ts", codec))) as whole, av.open(str(cut), "w") as out:
        stream = out.add_stream_from_template(whole.streams.video[0])
        packets = [packet for packet in whole.demux(video=0) if packet.size]
        for packet in packets[13:]:
            packet.stream = stream
            out.mux(packet)
    with refused("video-length-differs", where=("25 of 32", "(7 of them)", "ffmpeg -i IN")):
        list(read_frames(probe(cut)))


def test_less_than_a_second_that_is_missing_is_told(tmp_path):
    whole = moving(tmp_path / "whole.mkv", "mpeg4")
    assert probe(whole).notes == ()
    cut = tmp_path / "cut.mkv"
    with av.open(str(whole)) as container:
        at = [packet.pos for packet in container.demux(video=0) if packet.size]
    cut.write_bytes(whole.read_bytes()[: at[40]])
    info = probe(cut)
    assert len(list(read_frames(info))) == info.frames == 40
    assert info.notes == ("not whole: 40 frames could be read, and 0.5 seconds are missing at the end",)


def test_packets_of_sound_are_no_frames(tmp_path):
    assert probe(make_video(tmp_path / "a.mkv", frames=24, sound=True)).frames == 24


def test_a_video_ends_with_its_last_frame_and_not_where_that_begins(tmp_path):
    source = make_video(tmp_path / "a.mkv", frames=4, rate=Fraction(1, 2))
    before, after = copy(source, tmp_path / "b.mkv")
    assert before.frames == after.frames == 4
    assert before.whole_length == 8


def test_frames_without_a_time_stamp_count(tmp_path):
    """H.264 in an MPEG program stream stamps a packet now and then."""
    info = probe(make_video(tmp_path / "a.mpg", frames=60, codec="libx264", rate=25))
    with av.open(str(info.path)) as container:
        stamps = [packet.pts for packet in container.demux(container.streams.video[0]) if packet.size]
    assert 0 < stamps.count(None) < len(stamps) == 60
    shown = times(info)
    assert info.frames == len(shown) == 60
    assert shown == sorted(set(shown)) == frame_times(info)


def test_pictures_are_nearly_the_same(tmp_path):
    before, after = copy(make_video(tmp_path / "a.mp4"), tmp_path / "b.mp4", quality=4)
    for one, other in zip(read_frames(before), read_frames(after), strict=True):
        assert np.abs(one.pixels.astype(int) - other.pixels).mean() < 3


@pytest.mark.parametrize("size", [(33, 21), (64, 21), (1, 1)])
def test_odd_sizes(tmp_path, size):
    source = tmp_path / "a.mp4"
    with av.open(str(source), "w") as out:
        stream = out.add_stream("libx264", rate=5)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv444p"
        for _ in range(3):
            picture = av.VideoFrame.from_ndarray(np.full((size[1], size[0], 3), 90, np.uint8), format="rgb24")
            for packet in stream.encode(picture):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    _, after = copy(source, tmp_path / "b.mp4")
    # so that every player shows it
    assert (after.width, after.height, after.frames) == (size[0] + size[0] % 2, size[1] + size[1] % 2, 3)


@pytest.mark.parametrize(
    ("matrix", "shape", "corner"),
    [
        ((0, 1, -1, 0), (64, 32), (2, -3)),  # a phone held upright: a quarter turn clockwise
        ((-1, 0, 0, -1), (32, 64), (-3, -3)),
        ((0, -1, 1, 0), (64, 32), (-3, 2)),
    ],
)
def test_a_turned_video_is_released_as_it_is_shown(tmp_path, matrix, shape, corner):
    source = tmp_path / "a.mp4"
    with av.open(str(source), "w") as out:
        stream = out.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
        pixels = np.zeros((32, 64, 3), np.uint8)
        pixels[:16, :16] = 255
        for packet in [*stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")), *stream.encode(None)]:
            out.mux(packet)
    data = bytearray(source.read_bytes())
    a, b, c, d = (value << 16 for value in matrix)
    struct.pack_into(">9i", data, data.index(b"tkhd") + 44, a, b, 0, c, d, 0, 0, 0, 1 << 30)
    source.write_bytes(data)
    _, after = copy(source, tmp_path / "b.mp4")
    assert after.display.upright
    shown = next(iter(read_frames(after))).pixels
    assert shown.shape[:2] == shape
    assert shown[corner].mean() > 200
    assert shown.mean() < 80


def test_grey_stays_grey_in_its_channels(tmp_path):
    source = make_video(tmp_path / "a.mkv", codec="ffv1", grey=True)
    info = probe(source)
    assert info.channels == 1
    assert next(iter(read_frames(info))).pixels.shape == (48, 64, 1)
    copy(source, tmp_path / "b.mp4")


def test_sound_is_dropped_unless_it_is_kept(tmp_path):
    source = make_video(tmp_path / "a.mp4", frames=24, sound=True)
    assert probe(source).sound
    _, without = copy(source, tmp_path / "b.mp4")
    assert not without.sound
    _, kept = copy(source, tmp_path / "c.mp4", keep_sound=True)
    assert kept.sound
    assert packets(tmp_path / "c.mp4", "audio") == packets(source, "audio")


def test_metadata_is_dropped(tmp_path):
    source = tmp_path / "a.mp4"
    make_video(tmp_path / "plain.mp4")
    with av.open(str(tmp_path / "plain.mp4")) as given, av.open(str(source), "w") as out:
        out.metadata["title"] = "ward seven"
        out.metadata["comment"] = "patient"
        stream = out.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(given.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    assert b"ward seven" in source.read_bytes()
    copy(source, tmp_path / "b.mp4")
    assert b"ward seven" not in (tmp_path / "b.mp4").read_bytes()
    assert b"patient" not in (tmp_path / "b.mp4").read_bytes()


def trimmed(source, target, start, faststart=False):
    """The video without its first seconds, as phones cut: nothing is encoded anew, an edit list hides them."""
    options = {"movflags": "faststart"} if faststart else {}
    with av.open(str(source)) as given, av.open(str(target), "w", options=options) as out:
        streams = {stream.index: out.add_stream_from_template(stream) for stream in given.streams}
        for packet in given.demux():
            if packet.dts is not None:
                ticks = int(start / packet.time_base)
                packet.pts, packet.dts = packet.pts - ticks, packet.dts - ticks
                packet.stream = streams[packet.stream.index]
                out.mux(packet)
    return target


class TestTrimmed:
    def test_only_what_is_shown_is_released(self, tmp_path):
        source = make_video(tmp_path / "a.mp4", frames=24)
        cut = trimmed(source, tmp_path / "b.mp4", Fraction(1, 2))
        with av.open(str(cut)) as container:
            assert container.streams.video[0].frames == 24  # the hidden ones are in the file and declared
        before, after = copy(cut, tmp_path / "c.mp4", quality=4)
        assert (before.frames, after.frames) == (18, 18)
        whole = [frame.pixels for frame in read_frames(probe(source))][6:]
        for one, other in zip(whole, read_frames(before), strict=True):
            assert np.array_equal(one, other.pixels)
        assert len(times(after)) == 18

    def test_an_end_that_is_cut_away(self, tmp_path):
        source = trimmed(make_video(tmp_path / "a.mp4", frames=24), tmp_path / "b.mp4", Fraction(1, 2))
        data = bytearray(source.read_bytes())
        (length,) = struct.unpack_from(">I", data, data.index(b"elst") + 12)
        (second,) = struct.unpack_from(">I", data, data.index(b"mvhd") + 16)  # in the movie's ticks
        assert length == 3 * second // 2
        struct.pack_into(">I", data, data.index(b"elst") + 12, second)
        source.write_bytes(data)
        before, after = copy(source, tmp_path / "c.mp4")
        assert before.frames == after.frames
        assert before.frames in (12, 13)

    def test_a_reader_misses_no_frame_that_is_not_shown(self, tmp_path):
        cut = trimmed(make_video(tmp_path / "a.mp4", frames=24), tmp_path / "b.mp4", Fraction(1, 2))
        video = VideoReader(cut)
        assert len(list(video)) == 18
        assert video.missing == 0

    def test_sound_that_was_cut_away_does_not_travel(self, tmp_path):
        source = make_video(tmp_path / "a.mp4", frames=24, sound=True)
        cut = trimmed(source, tmp_path / "b.mp4", Fraction(1, 2))
        copy(cut, tmp_path / "c.mp4", keep_sound=True)
        all_of_it, heard = packets(source, "audio"), packets(tmp_path / "c.mp4", "audio")
        assert heard == all_of_it[-len(heard) :]
        assert len(heard) <= len(all_of_it) - 20  # half a second is 21.5 packets

    def test_one_that_ends_early_is_still_refused(self, tmp_path):
        source = make_video(tmp_path / "a.mp4", frames=60)
        cut = trimmed(source, tmp_path / "b.mp4", Fraction(1, 2), faststart=True)
        assert probe(cut).frames == 54
        data = cut.read_bytes()
        cut.write_bytes(data[: len(data) * 8 // 10])
        with refused(("video-cut-short", "video-length-differs", "video-undecodable")):
            copy(cut, tmp_path / "c.mp4")
        assert not (tmp_path / "c.mp4").exists()


class TestRefusals:
    @pytest.mark.parametrize("name", ["a.avi", "a.mkv"])
    def test_a_video_that_ends_early(self, tmp_path, name):
        source = make_video(tmp_path / name, frames=60, codec="mpeg4" if name == "a.avi" else "libx264")
        data = source.read_bytes()
        source.write_bytes(data[: len(data) * 6 // 10])
        with refused(("video-cut-short", "video-length-differs", "video-undecodable")):
            copy(source, tmp_path / "b.mp4")
        assert [p.name for p in tmp_path.iterdir()] == [name]

    def test_an_mp4_that_ends_early(self, tmp_path):
        source = tmp_path / "a.mp4"
        make_video(tmp_path / "slow.mp4", frames=60)
        # the index in front, as for the web: then a cut file opens and only its frames are missing
        front = {"movflags": "faststart"}
        with av.open(str(tmp_path / "slow.mp4")) as given, av.open(str(source), "w", options=front) as out:
            stream = out.add_stream_from_template(given.streams.video[0])
            for packet in given.demux(given.streams.video[0]):
                if packet.dts is not None:
                    packet.stream = stream
                    out.mux(packet)
        data = source.read_bytes()
        source.write_bytes(data[: len(data) * 8 // 10])
        with refused(("video-cut-short", "video-length-differs", "video-undecodable"), where="a.mp4"):
            copy(source, tmp_path / "b.mp4")
        assert not (tmp_path / "b.mp4").exists()

    def test_what_is_no_video(self, tmp_path):
        (tmp_path / "text.mp4").write_text("no video")
        (tmp_path / "empty.mp4").write_bytes(b"")
        for name in ("text.mp4", "empty.mp4", "absent.mp4"):
            with refused("file-missing" if name == "absent.mp4" else "video-undecodable", where=name):
                probe(tmp_path / name)

    @pytest.mark.parametrize("name", ["a.mp4", "a.avi", "a.ts", "a.mpg", "a.h264", "a.hevc", "a.mkv"])
    def test_a_file_that_begins_as_nothing_known_is_told_what_is_read(self, tmp_path, name):
        (tmp_path / name).write_text("hello w")
        with refused("video-undecodable", where=f"{name}: is no video of a kind that is read; give MP4, QuickTime,"):
            probe(tmp_path / name)
        (tmp_path / name).write_bytes(b"\0\0\0\x18ftypmp42" + bytes(60))
        with refused("video-undecodable", where="the video cannot be decoded: "):
            probe(tmp_path / name)

    def test_sound_alone(self, tmp_path):
        make_video(tmp_path / "a.mp4", sound=True, frames=24)
        with av.open(str(tmp_path / "a.mp4")) as given, av.open(str(tmp_path / "tone.mp4"), "w") as out:
            stream = out.add_stream_from_template(given.streams.audio[0])
            for packet in given.demux(given.streams.audio[0]):
                if packet.dts is not None:
                    packet.stream = stream
                    out.mux(packet)
        with refused("video-missing-in-file"):
            probe(tmp_path / "tone.mp4")

    def test_formats_that_are_not_written(self, tmp_path):
        info = probe(make_video(tmp_path / "a.mp4"))
        with refused("video-suffix-unknown"), open_writer(tmp_path / "b.gif", info):
            pass

    def test_a_failure_leaves_nothing(self, tmp_path):
        info = probe(make_video(tmp_path / "a.mp4"))

        def fail(target: Path):
            with open_writer(target, info):
                raise RuntimeError("in the middle")

        with pytest.raises(RuntimeError):
            fail(tmp_path / "b.mp4")
        assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]

    def test_a_folder_that_may_not_be_written(self, tmp_path):
        info = probe(make_video(tmp_path / "a.mp4"))
        (tmp_path / "file").write_text("")
        with refused("file-access-failed", where="file"), open_writer(tmp_path / "file" / "b.mp4", info):
            pass


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [
        (".mp4", "mpeg4"),
        (".mov", "mpeg4"),
        (".mkv", "mpeg4"),
        (".webm", "libvpx-vp9"),
        (".avi", "mpeg4"),
        (".mpg", "mpeg1video"),
        (".ts", "mpeg2video"),
    ],
)
def test_every_kind_of_container_that_holds_its_video_is_read_under_any_name(tmp_path, suffix, codec):
    path = make_video(tmp_path / f"a{suffix}", codec=codec, rate=25)
    assert len(list(read_frames(probe(path)))) == 12
    assert len(list(read_frames(probe(path.rename(tmp_path / "renamed.mov"))))) == 12


NAMES_OTHERS = {
    "list of files": "ffconcat version 1.0\nfile 'secret.avi'\n",
    "playlist": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsecret.ts\n#EXT-X-ENDLIST\n",
    "stream": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 33\n",
    "manifest": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period/></MPD>',
    "subtitles": "1\n00:00:00,000 --> 00:00:01,000\nhello\n\n2\n00:00:01,000 --> 00:00:02,000\nyou\n",
    "index": "# VobSub index file, v7 (do not modify this line!)\n",
    "metadata": ";FFMETADATA1\ntitle=x\n",
}


@pytest.mark.parametrize("what", NAMES_OTHERS)
@pytest.mark.parametrize("name", ["list.mp4", "list.ts", "list%d.avi"])
def test_a_file_that_names_others_is_no_video(tmp_path, what, name):
    make_video(tmp_path / "secret.avi", codec="mpeg4")
    make_video(tmp_path / "secret.ts", codec="mpeg2video", rate=25)
    make_video(tmp_path / "list1.avi", codec="mpeg4")
    (tmp_path / name).write_text(NAMES_OTHERS[what])
    for read in (probe, VideoReader):
        with refused(("video-kind-unknown", "video-undecodable")) as told:
            read(tmp_path / name)
        assert "\n" not in told.value.line()


@pytest.mark.parametrize("kind", ["image2pipe", "yuv4mpegpipe", "wav", "nut"])
def test_other_kinds_of_containers_are_refused(tmp_path, kind):
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w", format=kind) as out:
        if kind == "wav":
            stream = out.add_stream("pcm_s16le", rate=8000)
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
            frame.rate = 8000
        else:
            codec = {"image2pipe": "png", "yuv4mpegpipe": "wrapped_avframe"}.get(kind, "mpeg4")
            stream = out.add_stream(codec, rate=25)
            stream.width, stream.height = 64, 48
            stream.pix_fmt = "rgb24" if codec == "png" else "yuv420p"
            frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with av.open(str(path)) as container:
        assert container.streams
    with refused("video-kind-unknown"):
        probe(path)


def boxed(kind, *parts):
    content = b"".join(parts)
    return struct.pack(">I", 8 + len(content)) + kind + content


def elsewhere(data, name):
    """An MP4 file whose pictures are taken away and said to be in the file `name` beside it, by a QuickTime alias."""
    found, at = b"", 0
    while at < len(data):
        size, kind = struct.unpack(">I", data[at : at + 4])[0], data[at + 4 : at + 8]
        content = data[at + 8 : at + size]
        if kind in (b"moov", b"trak", b"mdia", b"minf", b"dinf"):
            content = elsewhere(content, name)
        elif kind == b"mdat":
            content = bytes(len(content))
        elif kind == b"dref":
            path = b"/" + name.encode()
            path += bytes(len(path) % 2)
            alias = bytes(130) + struct.pack(">HH", 1, 1) + bytes(16)
            alias += struct.pack(">HH", 2, len(path)) + path + struct.pack(">HH", 65535, 0)
            content = struct.pack(">II", 0, 1) + boxed(b"alis", bytes(4), alias)
        found += boxed(kind, content)
        at += size
    return found


def test_tracks_that_are_said_to_be_in_another_file_are_not_opened(tmp_path):
    held = make_video(tmp_path / "held.mp4", codec="mpeg4")
    path = tmp_path / "a.mov"
    path.write_bytes(elsewhere(held.read_bytes(), "held.mp4"))
    with av.open(str(path), options={"enable_drefs": "1"}) as container:
        assert len(list(container.decode(video=0))) == 12
    with refused("video-without-frames", where="a.mov"):
        probe(path)


def test_a_title_in_another_encoding_is_no_reason_to_refuse_a_video(tmp_path):
    path = tmp_path / "a.avi"
    with av.open(str(path), "w") as out:
        out.metadata["title"] = "Xnigsberg"
        stream = out.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        out.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")))
        out.mux(stream.encode(None))
    path.write_bytes(path.read_bytes().replace(b"Xnigsberg", "Königsberg".encode("latin-1")[:9]))
    assert probe(path).frames == 1


@pytest.mark.parametrize(("version", "told"), [("18.0.1", True), ("19.0.0", False), ("20.1.0", False)])
def test_other_encodings_are_asked_for_of_a_pyav_that_does_not_take_them_by_itself(
    tmp_path, monkeypatch, version, told
):
    asked = []

    def opened(*given, **more):
        asked.append(more)
        raise FileNotFoundError

    (tmp_path / "a.mp4").write_bytes(b"any")
    monkeypatch.setattr(av, "__version__", version)
    monkeypatch.setattr(av, "open", opened)
    with refused("file-missing"):
        probe(tmp_path / "a.mp4")
    assert [more.get("metadata_errors") for more in asked] == ["replace" if told else None]


def test_a_first_frame_that_cannot_be_decoded_is_passed_over_only_where_that_is_asked_for(tmp_path):
    path = tmp_path / "a.avi"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("png", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
        for level in range(40):
            picture = np.full((48, 64, 3), level, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    raw = path.read_bytes()
    assert probe(path).frames == 40
    path.write_bytes(raw.replace(b"\x89PNG", b"\x89GNP", 1))
    with refused("video-undecodable", where="a.avi"):
        probe(path)
    assert probe(path, lenient=True).width == 64


def test_every_video_is_opened_in_one_place():
    source = Path(dpose.__file__).parent
    found = {
        path.relative_to(source).as_posix(): [line.strip() for line in path.read_text().splitlines() if word in line]
        for path in source.rglob("*.py")
        for word in ("av.open(", "VideoCapture(")
        if word in path.read_text()
    }
    assert found.keys() == {"media/container.py", "media/live.py", "media/video_writer.py"}
    assert len(found["media/container.py"]) == 1
    # cameras and devices by a closed list of protocols, a file that grows by the one list of containers
    assert all(
        "options=CAMERA" in line or 'format="v4l2"' in line or "**SELF_CONTAINED" in line
        for line in found["media/live.py"]
    )
    assert all('"w"' in line for line in found["media/video_writer.py"])
