"""Videos: which clips a unit gives, and every dataset's own layout, on small files made here."""

import json
import os
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from rich.console import Console

from clips import write
from dpose.action.data import ActionSpec, Video, VideoSet, VideoUnits, open_videos
from dpose.action.data.sources import Held, StillFile, VideoFile
from dpose.action.data.spec import HUMAN
from dpose.action.model import ActionConfig
from dpose.files import file_digest
from dpose.media import video_identity
from dpose.media.identity import pixel_hash
from dpose.media.images import write_image
from dpose.media.video import probe, read_frames
from dpose.media.video_identity import video_hashes
from dpose.privacy.marks import marks_of
from dpose.privacy.protected import protect
from dpose.release.originals import array_original, video_original
from dpose.training.guards import check_disjoint
from dpose.units import CanonicalUnits, KnownPictures, UnitDataset
from refusals import refused

CONFIG = ActionConfig(("a", "b"), frames=4, input_size=(16, 16))


def write_video(path: Path, frames: int = 12, level: int = 0) -> None:
    """Frame t is grey of level + 10 t."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(12))
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        stream.bit_rate = 4_000_000
        for t in range(frames):
            picture = np.full((16, 32, 3), level + 10 * t, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))


def counted(count=10, action=1):
    """Frame t is all t."""
    frames = np.arange(count, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 16, 16, 3), np.uint8)
    return Video("v", Held(lambda: frames), action, (1, -1))


def units(video, **options):
    return VideoUnits(VideoSet((video,), ("a", "b"), ("x", "y")), CONFIG, **options)


def times(view):
    return view.image[:, 0, 0, 0].tolist()


def test_units_speak_both_protocols():
    data = units(counted())
    assert isinstance(data, UnitDataset)
    assert isinstance(data, CanonicalUnits)
    assert isinstance(data, KnownPictures)


def test_canonical_clips_are_spread_over_the_video():
    assert [times(v) for v in units(counted()).canonical(0)] == [[3, 4, 5, 6]]
    three = units(counted(), views=3).canonical(0)
    assert [times(v) for v in three] == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]


def test_a_unit_gives_as_many_clips_as_asked_for_at_random_places():
    data = units(counted(), views=3, augment=True)
    loads = [data.load(0, np.random.default_rng(seed)) for seed in range(20)]
    assert all(len(views) == 3 for views in loads)
    starts = {times(view)[0] for views in loads for view in views}
    assert starts == set(range(7))
    assert all(times(v) == list(range(times(v)[0], times(v)[0] + 4)) for views in loads for v in views)
    again = data.load(0, np.random.default_rng(3))
    np.testing.assert_array_equal(again[2].image, loads[3][2].image)


def test_a_short_video_takes_a_smaller_stride_and_then_repeats_its_end():
    far = ActionConfig(("a", "b"), frames=4, stride=4, input_size=(16, 16))
    for count, expected in ((13, [0, 4, 8, 12]), (7, [0, 2, 4, 6]), (3, [0, 1, 2, 2]), (1, [0, 0, 0, 0])):
        data = VideoUnits(VideoSet((counted(count),), ("a", "b")), far)
        assert times(data.canonical(0)[0]) == expected


def test_targets_are_the_labels_asked_for():
    assert int(units(counted()).canonical(0)[0].target["action"]) == 1
    assert units(counted(), labels="attributes").canonical(0)[0].target["attributes"].tolist() == [1, -1]
    with refused("labels-missing", where="action"):
        units(counted(action=-1))
    with refused("views-out-of-range", where="8 clips"):
        units(counted(), views=9)


def test_equal_content_has_equal_hashes():
    other = counted(11)
    assert units(counted()).content_hashes(0) == units(counted()).content_hashes(0)
    assert units(counted()).content_hashes(0) != units(other).content_hashes(0)


def remuxed(path, out):
    """The same packets in another container."""
    with av.open(str(path)) as source, av.open(str(out), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    return out


def marks_of_video(path):
    return set(protect(units(Video("v", VideoFile(path), 0))).identity.marks.tolist())


def test_a_video_is_known_by_its_file_its_frames_together_and_each_of_them(tmp_path):
    path = write(tmp_path / "a.mp4", frames=9)
    other = remuxed(path, tmp_path / "b.mkv")
    assert file_digest(path) != file_digest(other)
    one, two = marks_of_video(path), marks_of_video(other)
    assert len(one & two) >= 9
    (mine,) = set(marks_of([file_digest(path)]).tolist())
    assert (mine in one, mine in two) == (True, False)
    # as a release of it is known, and of a frame of it
    assert one == set(video_original(probe(path)).marks.tolist())
    frames = [frame.pixels for frame in read_frames(probe(path))]
    assert set(array_original(frames, clip=True).marks.tolist()) < one
    assert set(marks_of([pixel_hash(frames[4])]).tolist()) < one
    assert not one & marks_of_video(write(tmp_path / "c.mp4", frames=9, size=(64, 48)))
    # the same frames in two containers are one unit
    videos = VideoSet((Video("v", VideoFile(path), 0), Video("w", VideoFile(other), 0)), ("a",))
    assert len(protect(VideoUnits(videos, ActionConfig(("a",)))).data) == 1


def test_the_same_holds_of_videos_in_memory_and_of_still_pictures(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (3, 16, 16, 3), np.uint8)
    held = units(Video("v", Held(lambda: frames), 0))
    assert held.content_hashes(0) == (pixel_hash(frames),)
    assert set(held.file_hashes(0)) == {pixel_hash(frames), *map(pixel_hash, frames)}
    write_image(tmp_path / "a.png", frames[1])
    still = StillFile(tmp_path / "a.png")
    assert still.hashes() == (file_digest(tmp_path / "a.png"), pixel_hash(frames[1]))
    assert still.digest() == pixel_hash(frames[1])


def test_frames_are_digested_once_for_each_content_and_kept_for_their_owner_alone(tmp_path, monkeypatch, own_cache):
    path = write(tmp_path / "a.mp4", frames=9)
    first = video_hashes(probe(path))
    (remaining,) = (own_cache / "dpose" / "clips").iterdir()
    assert (remaining.stat().st_mode & 0o777, remaining.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    copy = shutil.copy(path, tmp_path / "b.mp4")
    with monkeypatch.context() as patch:
        patch.setattr(video_identity, "read_frames", None)
        assert video_hashes(probe(path)) == video_hashes(probe(copy)) == first
    for damage in (
        "",
        first[0],
        remaining.read_text()[:-9],
        "x" * 64,
        remaining.read_text().replace(first[0], first[1]),
    ):
        remaining.write_text(damage)
        assert video_hashes(probe(path)) == first
    stamp = path.stat()
    write(path, frames=10)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert video_hashes(probe(path))[1] != first[1]  # names and times decide nothing


def test_a_video_that_changes_while_it_is_read_is_refused_and_not_kept(tmp_path, monkeypatch, own_cache):
    path = write(tmp_path / "a.mp4", frames=9)

    def reading(info, damage):
        yield from read_frames(info, damage=damage)
        path.write_bytes(path.read_bytes() + b"x")

    monkeypatch.setattr(video_identity, "read_frames", reading)
    with refused("file-changed"):
        video_hashes(probe(path))
    assert not list((own_cache / "dpose" / "clips").iterdir())


def test_a_video_that_is_not_whole_is_known_by_the_frames_that_can_be_decoded(tmp_path):
    path = write(tmp_path / "a.avi", frames=60, codec="mpeg4", size=(192, 128))
    frames = [pixel_hash(frame.pixels) for frame in read_frames(probe(path))]
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    copy = Path(shutil.copy(path, tmp_path / "b.avi"))
    copy.write_bytes(copy.read_bytes().replace(b"Lavf", b"Lavg"))  # the name of the program that wrote it
    assert file_digest(path) != file_digest(copy)
    known = VideoFile(path).hashes()
    assert known[0] == file_digest(path)
    assert frames[0] in known
    assert known[1:] == VideoFile(copy).hashes()[1:]
    path.unlink()
    with refused("file-missing"):
        VideoFile(path).digest()


def clips(*indices, split="train"):
    videos = open_videos(f"synthetic-clips:ward:{split}", purpose="train")
    return tuple(videos.videos[i] for i in indices), videos.actions


def check(public, private, actions):
    config = ActionConfig(actions)
    sets = [VideoUnits(VideoSet(tuple(videos), actions), config) for videos in (public, private)]
    check_disjoint(sets[0], protect(sets[1]), 2, Console(quiet=True))


def encoded(path, frames, size, bit_rate=600_000):
    """The same recording in a file of its own."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(12))
        stream.height, stream.width, stream.pix_fmt, stream.bit_rate = *size, "yuv420p", bit_rate
        for frame in frames:
            resized = cv2.resize(frame, (size[1], size[0]), interpolation=cv2.INTER_AREA)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(resized, format="rgb24")))
        container.mux(stream.encode(None))
    return VideoFile(path)


@pytest.mark.parametrize("size", [(64, 64), (96, 128)], ids=["saved again", "resized"])
def test_a_clip_saved_again_is_no_public_one(tmp_path, size):
    (first, second, third), actions = clips(0, 1, 2)
    copy = replace(first, name="public.mp4", subject="", source=encoded(tmp_path / "v.mp4", first.source.frames, size))
    assert copy.source.digest() != first.source.digest()
    with refused("public-unit-private", where="public.mp4 looks like a picture"):
        check([third, copy], [second, first], actions)


def test_clips_of_others_are_public():
    (private, actions), (public, _) = clips(*range(12)), clips(*range(8), split="val")
    check(public, private, actions)
    black = Video("black", Held(lambda: np.zeros((9, 16, 16, 3), np.uint8)), 0)
    white = Video("white", Held(lambda: np.full((9, 16, 16, 3), 1, np.uint8)), 0)
    check([black], [white], actions)


def test_a_person_of_a_private_clip_is_in_no_public_one():
    (first, second), actions = clips(0, 1)
    with refused("public-unit-private", where="shows the person"):
        check([replace(first, subject="eve")], [replace(second, subject="eve")], actions)


def test_labels_are_part_of_what_a_video_is():
    one, other = protect(units(counted())), protect(units(counted(action=0)))
    assert one.neighbours.unit == other.neighbours.unit == "video"
    assert one.identity.digest != other.identity.digest
    assert one.identity.digest == protect(units(counted())).identity.digest


def test_a_video_under_two_names_is_one_unit():
    twice = VideoSet((counted(), replace(counted(), name="again")), ("a", "b"))
    assert len(protect(VideoUnits(twice, CONFIG)).data) == 1


def test_a_video_file_gives_the_frames_asked_for(tmp_path):
    write_video(tmp_path / "v.mp4")
    source = VideoFile(tmp_path / "v.mp4")
    assert source.count() == 12
    result = source.read([2, 7], (8, 8))
    assert result.shape == (2, 8, 8, 3)
    assert np.abs(result.astype(int).mean((1, 2, 3)) - [20, 70]).max() < 6


def ucf(root):
    for action in ("Archery", "Biking"):
        for group in (1, 2):
            write_video(root / "UCF-101" / action / f"v_{action}_g0{group}_c01.avi")
    lists = root / "ucfTrainTestlist"
    lists.mkdir()
    (lists / "classInd.txt").write_text("1 Archery\n2 Biking\n")
    (lists / "trainlist01.txt").write_text(
        "Archery/v_Archery_g02_c01.avi 1\nBiking/v_Biking_g02_c01.avi 2\nBiking/v_Biking_g02_c09.avi 2\n"
    )
    (lists / "testlist01.txt").write_text("Archery/v_Archery_g01_c01.avi\nBiking/v_Biking_g01_c01.avi\n")


def test_ucf101(tmp_path):
    ucf(tmp_path)
    train = open_videos(f"ucf101:{tmp_path}", purpose="train")
    assert [(v.name, v.action) for v in train.videos] == [
        ("Archery/v_Archery_g02_c01.avi", 0),
        ("Biking/v_Biking_g02_c01.avi", 1),
    ]
    assert "1 are listed and not there" in train.notes[0]
    test = open_videos(f"ucf101:{tmp_path}", purpose="evaluate")
    assert {v.subject for v in test.videos} == {"Archery-g01", "Biking-g01"}
    clips = VideoUnits(test, CONFIG).canonical(0)
    assert clips[0].image.shape == (4, 16, 16, 3)


def hmdb(root):
    (root / "lists").mkdir(parents=True)
    for action, uses in (("clap", (1, 2, 0)), ("jump", (1, 1, 2))):
        lines = ""
        for i, use in enumerate(uses):
            write_video(root / action / f"{action}_{i}.avi", frames=6)
            lines += f"{action}_{i}.avi {use} \n"
        (root / "lists" / f"{action}_test_split1.txt").write_text(lines)


def test_hmdb51(tmp_path):
    hmdb(tmp_path)
    train = open_videos(f"hmdb51:{tmp_path}", purpose="train")
    assert train.actions == ("clap", "jump")
    assert [v.name for v in train.videos] == ["clap/clap_0.avi", "jump/jump_0.avi", "jump/jump_1.avi"]
    test = open_videos(f"hmdb51:{tmp_path}:test", purpose="train")
    assert [(v.name, v.action) for v in test.videos] == [("clap/clap_1.avi", 0), ("jump/jump_2.avi", 1)]


def test_pahmdb_trains_without_its_own_videos(tmp_path):
    hmdb(tmp_path)
    (tmp_path / "PrivacyAttributes").mkdir()
    entry = {
        "skin_color": [[0, 5, 1]],
        "gender": [[0, 5, [1, 2]]],
        "face": [[0, 1, 1], [2, 5, 2]],
        "nudity": [[0, 5, 1]],
        "relationship": [[4, 5, 1]],
        "review": True,
    }
    (tmp_path / "PrivacyAttributes" / "clap.json").write_text(json.dumps({"clap_1.avi": entry}))
    train = open_videos(f"pahmdb:{tmp_path}", purpose="train")
    test = open_videos(f"pahmdb:{tmp_path}", purpose="evaluate")
    assert {v.name for v in train.videos} == {f"{a}/{a}_{i}.avi" for a in ("clap", "jump") for i in range(3)} - {
        "clap/clap_1.avi"
    }
    assert [(v.name, v.action, v.attributes) for v in test.videos] == [("clap/clap_1.avi", 0, (1, 1, 1, 0, 0, -1))]
    assert test.attributes == HUMAN


def test_vispr(tmp_path):
    for name, labels in (("one", ["a17_color", "a4_gender", "a64_rel_personal"]), ("two", ["a0_safe"])):
        write_image(tmp_path / "images" / "train2017" / f"{name}.jpg", np.zeros((20, 30, 3), np.uint8))
        notes = tmp_path / "annotations" / "train2017"
        notes.mkdir(parents=True, exist_ok=True)
        (notes / f"{name}.json").write_text(json.dumps({"labels": labels}))
    (notes / "gone.json").write_text(json.dumps({"labels": []}))
    result = open_videos(f"vispr:{tmp_path}", purpose="train")
    assert [v.attributes for v in result.videos] == [(1, 1, 0, 0, 0, 1), (0,) * 6]
    assert "1 labels without a picture" in result.notes[0]
    one = ActionConfig(HUMAN, frames=1, input_size=(16, 16))
    view = VideoUnits(result, one, labels="attributes").canonical(0)[0]
    assert view.image.shape == (1, 16, 16, 3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("kinetics:x", ("data-unknown", "videos")),
        ("ucf101", ("data-root-missing",)),
        ("ucf101:nowhere", ("folder-missing",)),
        ("synthetic-clips:castle", ("data-root-unknown", "look")),
        ("ucf101:.", ("file-unreadable",)),
        ("hmdb51:.", ("split-list-missing",)),
        ("pahmdb:.", ("annotations-missing",)),
        ("vispr:.", ("pictures-missing",)),
    ],
)
def test_what_is_not_there_is_told_in_one_line(spec, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(*message) as error:
        open_videos(spec, purpose="train")
    assert "\n" not in error.value.line()


def test_specs():
    spec = ActionSpec.parse("ucf101:/data/x:y:test")
    assert (spec.root, spec.split, spec.shown) == ("/data/x:y", "test", "ucf101:x:y:test")
    assert str(ActionSpec.parse("synthetic-clips").for_purpose("evaluate")) == "synthetic-clips:studio:val"
    assert ActionSpec.parse("synthetic-clips:test").split == "test"
    assert ActionSpec.parse("synthetic-clips").public
    assert not ActionSpec.parse("synthetic-clips:ward").public


def test_embedded_clips():
    train = open_videos("synthetic-clips:ward", purpose="train", limit=12)
    assert len(train) == 12
    assert len(train.attributes) == len(train.videos[0].attributes) == 8
    whole = open_videos("synthetic-clips:ward", purpose="train")
    shares = np.mean([v.attributes for v in whole.videos], axis=0)
    assert ((shares > 0.03) & (shares < 0.7)).all()
    config = ActionConfig(train.actions)
    assert VideoUnits(train, config).canonical(0)[0].image.shape == (16, 64, 64, 3)
