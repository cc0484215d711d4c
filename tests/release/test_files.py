"""Files, folders and videos: what is written, what is left out, and that nothing half-written stays."""

import inspect
import json
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import cv2
import numpy as np
import pytest
from PIL import Image as Pillow

from dpose.engines import local
from dpose.errors import DposeError
from dpose.media.images import encode_image, read_pixels
from dpose.media.tags import embed_text
from dpose.media.video import probe, read_frames
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.sections import About
from dpose.release import batch, items, plans
from dpose.release.api import release_video
from dpose.release.archive import restore_file, unpack
from dpose.release.embed import read_sidecar
from dpose.release.explain import explain_release
from dpose.release.grid import Shape
from dpose.release.items import Work
from dpose.release.jobs import Job, find_jobs, record_names
from dpose.release.pixelization import PixelizationPlan, released_frames
from dpose.release.plans import plan_of
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.verify import released_files, verify_release
from plain_configs import plain_cells, plain_projection
from public_doors import release_all, release_file
from refusals import refused

RNG = np.random.default_rng(0)
COLOUR = cv2.GaussianBlur(RNG.integers(0, 256, (40, 56, 3)).astype(np.uint8), (0, 0), 3)
SETTING = plain_cells(2, 4, 8)
EXIF = b"\xff\xe1\x00\x20Exif\0\0II*\0\x08\0\0\0secret-camera-99"


def write(path, picture=COLOUR):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_image(picture, path.suffix))
    return path


def release(paths, out, setting=SETTING, **more):
    names = {"keep_names", "suffix"} & set(more)
    known = {"keep_names": True} | {name: more.pop(name) for name in names}
    jobs = find_jobs([str(p) for p in paths], out, **known)
    record_names(jobs, out)
    return [statement for _, statement in release_all(jobs, setting, **more)]


def clip(path, frames=9, rate=6, size=(48, 32), sound=False):
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=rate)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        tone = out.add_stream("aac", rate=44_100) if sound else None
        for number in range(frames):
            pixels = np.full((size[1], size[0], 3), 20 * number % 256, np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
        if tone is not None:
            for start in range(0, 44_100 * frames // rate, 1024):
                wave = (np.sin(np.arange(start, start + 1024) / 9) * 9000).astype(np.int16)[None]
                samples = av.AudioFrame.from_ndarray(wave, format="s16", layout="mono")
                samples.rate, samples.pts = 44_100, start
                for packet in tone.encode(samples):
                    out.mux(packet)
            for packet in tone.encode(None):
                out.mux(packet)
    return path


class TestPictures:
    def test_a_picture_an_archive_and_back(self, tmp_path):
        source = write(tmp_path / "in" / "a.png")
        (statement,) = release([source], tmp_path / "out")
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.npz", "a.png"]
        restore_file(tmp_path / "out" / "a.npz", tmp_path / "b.png")
        assert (tmp_path / "b.png").read_bytes() == (tmp_path / "out" / "a.png").read_bytes()
        carried, _ = verify_release(tmp_path / "b.png")
        assert carried.events == statement.events

    def test_grey_and_deep_pictures_keep_their_kind(self, tmp_path):
        write(tmp_path / "in" / "grey.png", COLOUR[:, :, 0])
        write(tmp_path / "in" / "deep.png", COLOUR.astype(np.uint16) * 257)
        release([tmp_path / "in"], tmp_path / "out")
        assert read_pixels(tmp_path / "out" / "grey.png").shape == (40, 56)
        assert read_pixels(tmp_path / "out" / "deep.png").dtype == np.uint16
        for name in ("grey", "deep"):
            for suffix in (".png", ".npz"):
                verify_release(tmp_path / "out" / f"{name}{suffix}")

    def test_what_transparency_hides_is_not_released(self, tmp_path):
        """A face that was cut out still lies under its transparent pixels in the file."""
        cut = np.dstack([COLOUR, np.full((40, 56), 255, np.uint8)])
        cut[8:24, 16:40] = (220, 30, 30, 0)
        Pillow.fromarray(cut).save(tmp_path / "cut.png")
        (statement,) = release([tmp_path / "cut.png"], tmp_path / "out", plain_cells(999_999, 4, 8))
        shown = read_pixels(tmp_path / "out" / "cut.png")
        assert (shown[8:24, 16:40] >= 250).all()
        assert (shown[24:, 40:] < 250).any()
        assert statement.release["background"] == "white"
        assert "transparent parts of the original are laid on white" in statement.paragraph()
        Pillow.fromarray(cut[..., 3]).save(tmp_path / "mask.png", transparency=0)
        with refused("mask-transparent"):
            PublicRegions.from_file(tmp_path / "mask.png")

    def test_a_statement_says_what_no_noise_hides(self, tmp_path):
        write(tmp_path / "a.png")
        (statement,) = release([tmp_path / "a.png"], tmp_path / "out")
        for words in ("the size, 56 x 40", "header says besides: format, bits, orientation", "all settings"):
            assert any(words in line for line in statement.public)

    @pytest.mark.parametrize("suffix", [".bmp", ".png"])
    def test_one_pixel_does_not_decide_how_many_channels_are_released(self, tmp_path, suffix):
        """An encoder writes the colours that occur into the palette: grey alone, or grey and one red pixel."""
        for name, corner in (("one", (90, 90, 90)), ("other", (200, 10, 10))):
            picture = Pillow.new("RGB", (56, 40), (90, 90, 90))
            picture.putpixel((3, 3), corner)
            picture.quantize(4).save(tmp_path / f"{name}{suffix}")
            release([tmp_path / f"{name}{suffix}"], tmp_path / f"{name}-out.npz")
        shapes = {
            unpack((tmp_path / f"{name}-out.npz").read_bytes(), name)[0].picture().shape for name in ("one", "other")
        }
        assert shapes == {(40, 56, 3)}

    @pytest.mark.parametrize(
        ("data", "lossy"),
        [
            (encode_image(COLOUR, ".jpg"), True),
            (cv2.imencode(".webp", COLOUR, (cv2.IMWRITE_WEBP_QUALITY, 80))[1].tobytes(), True),
            (cv2.imencode(".webp", COLOUR, (cv2.IMWRITE_WEBP_QUALITY, 101))[1].tobytes(), False),
            (encode_image(COLOUR, ".png"), False),
        ],
        ids=["jpeg", "webp", "lossless webp", "png"],
    )
    @pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
    def test_lossy_compression_is_told_by_content_not_by_name(self, tmp_path, data, lossy, name):
        (tmp_path / name).write_bytes(data)
        (statement,) = release([tmp_path / name], tmp_path / "out.png")
        assert any("decoded picture" in line for line in statement.caveats) is lossy

    def test_a_picture_whose_writing_fails_leaves_no_archive(self, tmp_path, monkeypatch):
        source, real = write(tmp_path / "in" / "a.png"), items.write_atomic

        def full(path, data):
            if path.suffix == ".png":
                raise DposeError("disk-full", "no space left on the disk", str(path))
            real(path, data)

        monkeypatch.setattr(items, "write_atomic", full)
        with refused("disk-full"):
            release([source], tmp_path / "out")
        assert not list((tmp_path / "out").iterdir())

    def test_metadata_does_not_travel(self, tmp_path):
        data = encode_image(COLOUR, ".jpg")
        (tmp_path / "a.jpg").write_bytes(data[:2] + EXIF + data[2:])
        (tmp_path / "b.png").write_bytes(embed_text(encode_image(COLOUR, ".png"), "Author", "secret-camera-99"))
        release([tmp_path / "a.jpg", tmp_path / "b.png"], tmp_path / "out")
        release([tmp_path / "a.jpg"], tmp_path / "jpeg", suffix=".jpg")
        written = [p for folder in ("out", "jpeg") for p in (tmp_path / folder).iterdir()]
        assert len(written) == 6
        for path in written:
            content = path.read_bytes()
            assert b"secret" not in content
            assert b"Exif" not in content
            verify_release(path)

    def test_folders_keep_their_order_and_names_may_go(self, tmp_path):
        for name in ("one/a.png", "one/deep/b.jpg", "one/.hidden/c.png"):
            write(tmp_path / name)
        (tmp_path / "one" / "notes.txt").write_text("ignored")
        release([tmp_path / "one"], tmp_path / "out")
        names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()}
        assert names == {"a.png", "a.npz", "deep/b.png", "deep/b.npz"}
        release([str(tmp_path / "one" / "*.png"), tmp_path / "one" / "deep"], tmp_path / "flat", keep_names=False)
        assert sorted(p.name for p in (tmp_path / "flat").glob("*.png")) == ["000001.png", "000002.png"]

    def test_what_is_released_is_no_original(self, tmp_path):
        originals = {str(write(tmp_path / "in" / name)) for name in ("a/1.png", "b/1.png", "3.png")}
        write(tmp_path / "in" / "out" / "a" / "1.png")
        for paths in ([tmp_path / "in"], [f"{tmp_path}/in/**/*.png"], [f"{tmp_path}/in/*"]):
            jobs = find_jobs([str(p) for p in paths], tmp_path / "in" / "out")
            assert {str(job.source) for job in jobs} == originals
        with refused("out-among-originals"):
            find_jobs([str(tmp_path / "in")], tmp_path / "in")

    def test_a_folder_is_released_into_again_whatever_its_folders_are_called(self, tmp_path):
        write(tmp_path / "in" / "a" / "1.png")
        release([tmp_path / "in"], tmp_path / "out")
        assert len(find_jobs([str(tmp_path / "in")], tmp_path / "out", keep_names=True)) == 1

    def test_one_file_by_name(self, tmp_path):
        source = write(tmp_path / "a.png")
        for name in ("x.png", "x.jpg", "x.npz"):
            release([source], tmp_path / name)
            verify_release(tmp_path / name)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "x.jpg", "x.npz", "x.png"]

    def test_workers_change_nothing(self, tmp_path):
        for number in range(5):
            write(tmp_path / "in" / f"{number}.png", np.roll(COLOUR, number, 0))
        release([tmp_path / "in"], tmp_path / "one", seed=3)
        release([tmp_path / "in"], tmp_path / "four", seed=3, workers=4)
        for path in (tmp_path / "one").iterdir():
            assert path.read_bytes() == (tmp_path / "four" / path.name).read_bytes()

    def test_files_of_one_seed_have_other_noise(self, tmp_path):
        write(tmp_path / "in" / "a.png")
        write(tmp_path / "in" / "b.png")
        release([tmp_path / "in"], tmp_path / "out", seed=3)
        one, other = (read_pixels(tmp_path / "out" / f"{name}.png") for name in "ab")
        assert not np.array_equal(one, other)

    @pytest.mark.parametrize(
        ("files", "paths", "out", "word"),
        [
            (["a.png", "a.jpg"], ["."], "out", ("output-names-collide", "--keep-names")),
            (["a.png"], ["a.png"], "a.png", ("original-overwritten",)),
            (["a.png"], ["."], ".", ("out-among-originals",)),
            (["a.png"], ["*.png"], ".", ("out-among-originals",)),
            (["a.png", "b.png"], ["a.png", "b.png"], "x.png", ("out-not-folder",)),
            (["a.png"], ["absent.png"], "out", ("file-missing", "absent.png")),
            (["a.png"], ["*.jpg"], "out", ("file-missing",)),
            (["a.png"], ["a.png"], "x.mp4", ("out-of-other-kind",)),
            (["notes.txt"], ["notes.txt"], "out", ("file-kind-unknown",)),
            (["notes.txt"], ["."], "out", ("inputs-missing",)),
        ],
    )
    def test_what_cannot_be_done(self, tmp_path, monkeypatch, files, paths, out, word):
        from pathlib import Path

        monkeypatch.chdir(tmp_path)
        for name in files:
            Path(name).write_text("x") if name.endswith("txt") else write(Path(name))
        with refused(*word):
            release(paths, Path(out))
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(files)

    def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_charged(self, tmp_path):
        write(tmp_path / "in" / "deep" / "a.png")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "deep").write_text("a file, where a folder of released pictures would be")
        with refused("output-exists", where="deep"):
            find_jobs([str(tmp_path / "in")], tmp_path / "out", keep_names=True)

    def test_a_broken_picture_names_itself(self, tmp_path):
        (tmp_path / "a.png").write_bytes(encode_image(COLOUR, ".png")[:-90])
        with refused("picture-cut-short", where="a.png"):
            release([tmp_path / "a.png"], tmp_path / "out")
        small = write(tmp_path / "b.png", COLOUR[:4])
        with refused("block-larger-than-picture", where="b.png"):
            release([small], tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_files_are_found_in_the_order_of_their_paths_and_kept_as_names(tmp_path):
    """As sorting all paths gives it, hidden ones and what a link leads to left out; no path for each in memory."""
    for name in ("b/a.png", "b.png", "b/c/d.jpg", "b-a.png", "a.png", ".b/a.png", "b/.c.png", "c.txt", "Z/a.PNG"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "in" / "b")
    (tmp_path / "in" / "d.png").symlink_to(tmp_path / "in" / "a.png")
    jobs = find_jobs([str(tmp_path / "in"), str(tmp_path / "in" / "b" / "a.png")], tmp_path / "out")
    told = [job.source.relative_to(tmp_path / "in") for job in jobs]
    assert told == sorted(map(Path, ("Z/a.PNG", "a.png", "b-a.png", "b.png", "b/a.png", "b/c/d.jpg", "d.png")))
    assert [job.target.name for job in jobs[2:4]] == ["000003.png", "000004.png"]
    assert (jobs[-1].place, jobs[-1].archive.name) == (6, "000007.npz")
    kept = find_jobs([str(tmp_path / "in")], tmp_path / "out", keep_names=True)
    assert [str(job.target.relative_to(tmp_path / "out")) for job in kept][2:4] == ["b/a.png", "b/c/d.png"]
    (tmp_path / "many").mkdir()
    for number in range(500):
        (tmp_path / "many" / f"{number}.png").write_bytes(b"")
    find_jobs([str(tmp_path / "many")], tmp_path / "out")  # whatever is imported
    tracemalloc.start()
    try:
        many = find_jobs([str(tmp_path / "many")], tmp_path / "out")
        together, count = tracemalloc.get_traced_memory()[0], len(many)
        del many  # what they held is what is gone: other threads and caches hold something too
        assert together - tracemalloc.get_traced_memory()[0] < 250 * count
    finally:
        tracemalloc.stop()


def test_an_operator_of_clips_is_refused_for_picture_files_before_anything_is_read(tmp_path):
    job = Job(tmp_path / "there-is-none.png", tmp_path / "out.png")
    with refused("operator-not-for-pictures"):
        batch.release_one(Work(plain_projection(8, "1e-5", 4, "block")), job)


def test_sound_is_dropped_unless_asked_for():
    """Nothing protects it. `release_video` hands its keywords to `Work`, and has no default of its own."""
    assert inspect.signature(Work).parameters["keep_sound"].default is False
    assert "keep_sound" not in inspect.signature(release_video).parameters


class TestWhatIsPassedOn:
    """What was asked for reaches the mechanism, file by file."""

    @pytest.mark.parametrize(
        "setting",
        [
            plain_cells("1/3", "pixels:4/frame", 5),
            plain_cells(2, 4, 8, "1e-6"),
            plain_cells(2, 4, 8, subdivide=2, regions=PrivateRegions()),
            plain_cells(2, 4, 8, paper=1),
        ],
        ids=["frames", "gaussian", "regions", "paper"],
    )
    def test_to_a_picture(self, tmp_path, monkeypatch, setting):
        asked, real = [], plans.bind

        def spy(config, *given):
            asked.append(config)
            return real(config, *given)

        monkeypatch.setattr(items, "bind", spy)
        (statement,) = release([write(tmp_path / "a.png")], tmp_path / "out.png", setting)
        assert asked == [setting]
        # a picture is no clip
        assert (statement.neighbours.m, statement.neighbours.scope) == (4, "picture")

    def test_to_videos(self, tmp_path, monkeypatch):
        asked = []

        def spy(work, item, **more):
            asked.append((item.job, work.seed_of(item.job), work, more))
            return items.Written(object(), ())

        def told():
            """Called after each frame."""

        monkeypatch.setattr(batch, "release_item", spy)
        said = {n: About(curator=n) for n in "ab"}
        jobs = [Job(tmp_path / f"{n}.mp4", tmp_path / "out" / f"{n}.mp4", caveats=(n,), about=said[n]) for n in "ab"]
        work = Work(SETTING, seed=5, keep_sound=True, public=True, again=True)
        more = {"workers": 3, "progress": told}
        assert len(list(batch.release_all(jobs, work, **more))) == 2
        # one seed for two clips would give both the same noise
        placed = [replace(job, place=place) for place, job in enumerate(jobs)]
        assert asked == [(placed[0], 5, work, more), (placed[1], 6, work, more)]

    def test_to_a_videos_mechanism_and_file(self, tmp_path, monkeypatch):
        source, seen, real = clip(tmp_path / "a.mp4", sound=True), [], items.encode_video

        def spy(*given, **more):
            seen.append(more)
            return real(*given, **more)

        def told():
            """Called after each frame."""

        monkeypatch.setattr(items, "encode_video", spy)
        work = Work(SETTING, keep_sound=True, public=True)
        job = Job(source, tmp_path / "b.mp4", caveats=("a word",), about=About(curator="a"))
        statement = batch.release_one(work, job, progress=told)
        assert (seen[0]["keep_sound"], seen[0]["progress"]) == (True, told)
        assert "a word" in statement.caveats
        assert statement.deployment.curator == "a"

    @pytest.mark.parametrize("workers", [0, 1, 4])
    def test_what_is_not_waited_for_is_not_released(self, tmp_path, monkeypatch, workers):
        """Whoever stops after the first picture has told nobody of the others."""
        started, submitted, made = [], [], []

        class Lazy:
            def __init__(self, threads):
                made.append(threads)

            def submit(self, call):
                submitted.append(call)
                return type("Task", (), {"result": staticmethod(call)})()

            def shutdown(self, cancel_futures):
                assert cancel_futures

        def spy(work, item, **more):
            started.append((item.job.source.name, work.seed_of(item.job)))
            return items.Written(object(), ())

        monkeypatch.setattr(local, "ThreadPoolExecutor", Lazy)
        monkeypatch.setattr(batch, "release_item", spy)
        jobs = [Job(tmp_path / f"{n}.png", tmp_path / "out" / f"{n}.png") for n in "abc"]
        coming = release_all(jobs, SETTING, seed=5, workers=workers)
        next(coming)
        coming.close()
        assert started == [("a.png", 5)]
        assert (made, len(submitted)) == (([4], 3) if workers == 4 else ([], 0))


class TestVideos:
    def test_a_clip_keeps_its_time_and_drops_its_sound(self, tmp_path):
        source = clip(tmp_path / "a.mp4", sound=True)
        (statement,) = release([source], tmp_path / "out")
        target = tmp_path / "out" / "a.mp4"
        before, after = probe(source), probe(target)
        assert (after.frames, after.rate, after.sound) == (before.frames, before.rate, False)
        stamps = [[f.pts * info.time_base for f in read_frames(info)] for info in (before, after)]
        assert stamps[0] == stamps[1]
        carried, seal = read_sidecar(target)
        assert carried == statement
        assert json.loads(seal)["type"] == "seal"
        assert statement.release["shape"]["frames"] == 9
        assert "clip" in statement.paragraph()
        assert not any("sound" in line for line in statement.conditional_on)
        assert released_files(tmp_path / "out").released == [target]
        verify_release(target)

    def test_sound_that_is_kept_is_named(self, tmp_path):
        source = clip(tmp_path / "a.mp4", sound=True)
        statement = release_file(probe(source), tmp_path / "b.mp4", SETTING, keep_sound=True)
        assert probe(tmp_path / "b.mp4").sound
        assert "the sound was copied unchanged and is not protected at all" in statement.paragraph()

    def test_pixels_of_every_frame_divide_the_budget(self, tmp_path):
        source = clip(tmp_path / "a.mp4")
        statement = release_file(probe(source), tmp_path / "b.mp4", plain_cells(2, "pixels:4/frame", 8))
        assert statement.events[0].scale == Fraction(255 * 3 * 4 * 9, 2)
        verify_release(tmp_path / "b.mp4")

    def test_sound_goes_frames_are_told_and_a_seed_repeats(self, tmp_path):
        source, told, shown = clip(tmp_path / "a.mp4", frames=3, sound=True), [], []
        for number, seed in enumerate((4, 4, 5)):
            out = tmp_path / f"{number}.mp4"
            statement = release_file(probe(source), out, SETTING, seed=seed, progress=lambda: told.append(1))
            assert statement.kind == "seeded"
            assert not probe(out).sound
            shown.append(np.stack([frame.pixels for frame in read_frames(probe(out))]))
        assert len(told) == 3 * 3
        assert np.array_equal(shown[0], shown[1])
        assert not np.array_equal(shown[0], shown[2])

    @pytest.mark.parametrize("fresh", [False, True])
    def test_every_frame_has_the_next_key_of_one_stream(self, fresh):
        key = Key.fresh() if fresh else Key.from_seed(1)
        given = []

        class Spy:
            frames, config = 4, SETTING

            def release(self, pixels, noise, number):
                given.append((number, int(pixels[0, 0, 0]), noise.key_id, noise.seeded))
                return SimpleNamespace(picture=lambda: np.full((2, 2, 1), number, np.uint8))

        frames = (np.full((2, 2, 1), 9 + n, np.uint8) for n in range(4))
        shown = list(released_frames(frames, Spy(), AesNoise(key), 1))
        keys = AesNoise(key).stream(Purpose.RELEASE, 0, b"frames")
        assert sorted(given) == [(n, 9 + n, Key(keys.bytes(32)).key_id, not fresh) for n in range(4)]
        assert [int(picture[0, 0, 0]) for picture in shown] == list(range(4))

    @pytest.mark.parametrize("setting", [SETTING, plain_cells(2, "pixels:4/frame", 8)])
    def test_what_it_would_cost_is_what_it_costs(self, tmp_path, setting):
        source = clip(tmp_path / "a.mp4")
        plan, rate = plan_of(source, setting)
        assert rate == probe(source).rate
        assert plan == PixelizationPlan.of(setting, Shape.of(32, 48, 3, 255, 9))

    def test_workers_and_order_change_nothing(self):
        setting = plain_cells(2, 4, 8, subdivide=2, regions=PrivateRegions())
        plan = PixelizationPlan.of(setting, Shape.of(32, 48, 3, 255, 7))
        shown = []
        for workers in (1, 4):
            frames = (np.full((32, 48, 3), n, np.uint8) for n in range(7))
            shown.append(list(released_frames(frames, plan, AesNoise(Key.from_seed(1)), workers)))
        for first, second in zip(*shown, strict=True):
            assert np.array_equal(first, second)
        assert not np.array_equal(shown[0][0], shown[0][1])

    def test_few_frames_are_held_at_a_time(self):
        plan = PixelizationPlan.of(SETTING, Shape.of(32, 48, 1, 255, 200))
        made, used = [0], [0]

        def frames():
            for _ in range(200):
                made[0] += 1
                assert made[0] - used[0] <= 4
                yield np.zeros((32, 48, 1), np.uint8)

        for _ in released_frames(frames(), plan, AesNoise(Key.from_seed(1)), 2):
            used[0] += 1
        assert used[0] == 200

    def test_more_frames_than_were_paid_for_are_refused(self):
        plan = PixelizationPlan.of(SETTING, Shape.of(32, 48, 1, 255, 2))
        frames = (np.zeros((32, 48, 1), np.uint8) for _ in range(3))
        with refused("video-length-differs"):
            list(released_frames(frames, plan, AesNoise(Key.from_seed(1)), 1))

    def test_a_stream_that_ends_early_leaves_nothing(self, tmp_path):
        source = clip(tmp_path / "a.avi", frames=60)
        data = source.read_bytes()
        source.write_bytes(data[: len(data) * 6 // 10])
        with refused("video-undecodable", where="a.avi"):
            release([source], tmp_path / "out")
        assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["a.avi"]

    @pytest.mark.parametrize("damage", ["file", "statement", "sidecar"])
    def test_a_changed_clip_is_refused(self, tmp_path, damage):
        release([clip(tmp_path / "a.mp4")], tmp_path / "out")
        target = tmp_path / "out" / "a.mp4"
        sidecar = tmp_path / "out" / "a.mp4.privacy.json"
        if damage == "file":
            target.write_bytes(target.read_bytes() + b"\0")
        elif damage == "statement":
            sidecar.write_text(sidecar.read_text().replace('"epsilon": "2"', '"epsilon": "1"'))
        else:
            sidecar.unlink()
        with refused(("file-of-other-statement", "statement-missing"), where="a.mp4"):
            verify_release(target)


class TestExplain:
    def test_noise_in_gray_levels_and_epsilon_for_things(self):
        plan = PixelizationPlan.of(plain_cells(2, 16, 16), Shape.of(1080, 1920, 1, 255))
        text = "\n".join(explain_release(plan))
        assert "8,160 cells" in text
        assert "scale 2040" in text
        assert "11.2 gray levels" in text  # sqrt(2) * 2040 / 256 = 11.27: noise is rounded down
        assert "face of 100 x 100: 1,250" in text
        assert "whole picture: 259,200" in text

    def test_a_minute_of_a_clip(self):
        plan = PixelizationPlan.of(plain_cells(2, 16, 16), Shape.of(1080, 1920, 1, 255, 3000))
        text = "\n".join(explain_release(plan, Fraction(25)))
        assert "a face seen for a minute: 1,875,000" in text
        short = PixelizationPlan.of(plain_cells(2, 16, 16), Shape.of(1080, 1920, 1, 255, 50))
        assert "all 2.0 seconds" in "\n".join(explain_release(short, Fraction(25)))

    def test_both_stages_and_both_cells_are_told(self):
        private = plain_cells(2, 16, 32, subdivide=4, regions=PrivateRegions())
        text = "\n".join(explain_release(PixelizationPlan.of(private, Shape.of(200, 300, 3, 255))))
        assert "stage one, all blocks of 32 x 32" in text
        assert "stage two, complex parts of 8 x 8" in text
        assert "nothing but noise is left" in text
