"""Releases are counted: once for each, whatever becomes of it, and by what the picture shows."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

import dpose
from clips import write as write_clip
from dpose.account import Budget, State, charges, composed, set_budget
from dpose.cli import main
from dpose.files import file_digest
from dpose.media.identity import clip_hashes, picture_hashes, pixel_hash
from dpose.media.images import decode_pixels, encode_image, read_image, read_pixels
from dpose.media.video import probe
from dpose.privacy.accounting import added_up
from dpose.privacy.events import Gaussian, Laplace
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.statement import PrivacyStatement
from dpose.release import batch, counting, items, originals
from dpose.release.counting import charged_events, release_charge, reserved_release, together
from dpose.release.embed import read_sidecar
from dpose.release.grid import Shape
from dpose.release.jobs import Job
from dpose.release.partition import BlockSums
from dpose.release.plans import bind
from dpose.release.verify import verify_release
from plain_configs import plain_cells, plain_projection
from refusals import refused
from tiers import rest_slow

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (48, 64, 3)).astype(np.uint8)
ASKED = ["--epsilon", "1", "--neighbours", "pixels:16", "--block", "16"]


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def put(name, picture=COLOUR):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_image(picture, path.suffix))
    return path


def bytes_of(folder):
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def refusal(capsys):
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def states():
    return [entry.state for entry in charges()]


class TestIdentity:
    @pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
    @pytest.mark.parametrize(
        "picture",
        [COLOUR, COLOUR[..., 0], (COLOUR.astype(np.uint16) << 8) + 77, COLOUR[..., 0].astype(np.uint16) * 256],
        ids=["colour", "grey", "deep", "deep grey"],
    )
    def test_training_and_release_know_a_file_by_the_same_name(self, tmp_path, picture, suffix):
        """Training decodes to 8-bit colour; releases keep grey and 16 bits."""
        import cv2

        path = tmp_path / f"a{suffix}"
        if suffix != ".png" and picture.dtype == np.uint16:
            pytest.skip("8 bits")
        shown = picture if picture.ndim == 2 else picture[..., ::-1]
        path.write_bytes(cv2.imencode(suffix, shown)[1].tobytes())
        data = path.read_bytes()
        first, *_, last = picture_hashes(data, read_pixels(path))
        assert (first, last) == (file_digest(path), pixel_hash(read_image(path)))

    def test_a_copy_and_a_link_and_another_format_are_one(self, tmp_path):
        one, other = encode_image(COLOUR, ".png"), encode_image(COLOUR, ".png", compression=9)
        assert one != other
        hashes = [set(picture_hashes(data, decode_pixels(data, "x"))) for data in (one, other)]
        assert hashes[0] & hashes[1]

    def test_a_clip_is_linked_to_its_frames_but_not_to_black(self):
        frames = [COLOUR, np.zeros_like(COLOUR), COLOUR[::-1]]
        whole, *each = clip_hashes(frames, (3, 48, 64))
        assert whole == pixel_hash(np.stack(frames))
        assert each == [pixel_hash(COLOUR), pixel_hash(COLOUR[::-1])]

    def test_a_frame_is_linked_though_its_first_row_has_one_colour(self):
        """Black bars stand above and below many films."""
        barred = COLOUR.copy()
        barred[:8] = 0
        assert clip_hashes([barred], (1, 48, 64))[1:] == (pixel_hash(barred),)

    def test_too_many_frames_are_declared_unlinked(self, monkeypatch):
        monkeypatch.setattr("dpose.media.identity.LINKED_FRAMES", 2)
        assert len(clip_hashes([COLOUR] * 3, (3, 48, 64))) == 1
        monkeypatch.setattr(originals, "LINKED_FRAMES", 2)
        clip = np.stack([COLOUR, COLOUR[::-1], COLOUR[:, ::-1]])
        made = dpose.pixelize(clip, 1, 16)
        assert counting.UNLINKED in made.statement.caveats


class TestCosts:
    """What a release is charged, for any number of pixels, against a search over what neighbours can do."""

    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize("subdivide", rest_slow([1, 2], 1))
    def test_no_neighbour_costs_more_than_the_points_say(self, delta, subdivide):
        regions = None if subdivide == 1 else "private"

        config = plain_cells(2, 3, 8, delta, subdivide, regions)
        plan = bind(config, Shape.of(20, 28, 3))
        events = charged_events(plan, seeded=False)
        area = 20 * 28
        cells = {b"coarse": BlockSums(20, 28, 8, 3), b"fine": BlockSums(20, 28, 8 // subdivide, 3)}
        for m in (1, 2, 3, 5, 16, 64, 65, 300, area):
            # the worst m pixels: fill the first cells, all from black to white
            spent = Fraction(0)
            for stage in plan.stages:
                side = 8 if stage.name == b"coarse" else 8 // subdivide
                order = sorted(((x // side, y // side), x, y) for x in range(20) for y in range(28))
                sizes = {cell: sum(1 for c, *_ in order if c == cell) for cell, *_ in order}
                chosen = sorted(order, key=lambda p: (-sizes[p[0]], p[0]))[:m]
                white = np.zeros((20, 28, 3), np.uint8)
                for _, x, y in chosen:
                    white[x, y] = 255
                moved = [int(v) for v in cells[stage.name].apply(white).reshape(-1)]
                if delta:
                    spent += Fraction(sum(v * v for v in moved)) / (2 * stage.event.variance)
                else:
                    spent += Fraction(sum(moved)) / stage.event.scale
            found = [loss.for_neighbours(Neighbours.of_pixels(m), area) for loss in events]
            cost = sum(loss.rho() if delta else loss.pure() for loss in found)
            assert cost >= spent
            if m in (1, 2, 3, 16, 64, area):  # a point: exactly that
                assert cost == spent
        assert all((loss.pixels, isinstance(loss, Gaussian)) == (3, bool(delta)) for loss in events)
        assert delta or sum(loss.pure() for loss in events) == 2

    @pytest.mark.parametrize("operator", ["block", "low-pass", "random"])
    @pytest.mark.parametrize("neighbours", ["pixels:4", "pixels:4/frame", "frame", "clip"])
    def test_clips_by_projection(self, operator, neighbours):
        config = plain_projection(8, "1e-5", neighbours, operator)
        plan = bind(config, Shape(6, 24, 32, 3), AesNoise(Key.fresh()))
        (loss,) = charged_events(plan, seeded=False)
        assert loss.pixels == {"pixels:4": 4, "pixels:4/frame": 24, "frame": 768, "clip": 4608}[neighbours]
        costs = [loss.for_neighbours(Neighbours.of_pixels(m), 4608).rho() for m in (1, 4, 16, 256, 4096)] + [
            loss.for_neighbours(Neighbours("image"), 4608).rho()
        ]
        assert costs == sorted(costs)
        # the noise's own event: for what the claim is about, no less
        own = plan.event.sensitivity_squared / (2 * plan.event.variance)
        assert loss.rho() >= own

    def test_a_charge_is_no_less_than_its_claim_though_both_are_rounded(self):
        """Keys whose bound for pixels anywhere was rounded a hair below the one for pixels of every frame."""
        config = plain_projection(8, "1e-5", "pixels:4/frame", "random")
        for number in (82, 92, 171, 298, 398, 761, 815, 983):
            plan = bind(config, Shape(6, 24, 32, 3), AesNoise(Key(number.to_bytes(32, "big"))))
            (loss,) = charged_events(plan, seeded=False)
            assert loss.sensitivity_squared >= plan.event.sensitivity_squared
            bounds = [bound for _, bound in loss.points]
            assert bounds == sorted(bounds)

    def test_pixels_of_every_frame(self):
        plan = bind(plain_cells(2, "pixels:4/frame", 8), Shape.of(16, 16, 1, frames=5))
        (loss,) = charged_events(plan, seeded=False)
        assert (loss.pure(), loss.pixels) == (2, 20)
        assert loss.for_neighbours(Neighbours.of_pixels(4), 16 * 16 * 5).pure() == pytest.approx(2 / 5)

    def test_nothing_bounds_seeds_and_papers(self):
        config = plain_cells(2, 4, 8)
        assert charged_events(bind(config, Shape.of(16, 16)), seeded=True) == ()
        assert charged_events(bind(replace(config, paper=1), Shape.of(16, 16)), seeded=False) == ()

    def test_a_cost_is_never_rounded_down(self):
        plan = bind(plain_cells("1/3", 7, 8), Shape.of(16, 16))
        (loss,) = charged_events(plan, seeded=False)
        assert loss.pure() == Fraction(1, 3)
        assert Fraction(loss.renyi(math.inf, replaces=True)) >= Fraction(1, 3)
        assert Fraction(added_up([loss.pure()] * 3)) >= 1

    def test_pure_releases_add_up_and_zcdp_does_better(self):
        def entry(**more):
            plan = bind(plain_cells(1, 16, 8, **more), Shape.of(48, 64))
            return release_charge(originals.Original("x", ("a",), 48 * 64), plan, "s", seeded=False)

        assert together([entry()] * 7, 16) == (7.0, 0.0)
        assert together([entry()] * 7, 32) == (14.0, 0.0)
        both, delta = together([entry(delta="1e-6")] * 100, 16)
        assert delta == 1e-6
        assert 1 < both < 20
        assert together([entry(), replace(entry(), events=())], 16)[0] == math.inf


class TestPython:
    def test_a_second_release_is_refused_and_says_what_both_cost(self):
        made = dpose.pixelize(COLOUR, 1, 16)
        assert made.statement.odometer == {"releases": "1", "epsilon": "1.0", "delta": "0.0", "pixels": "16"}
        with refused("released-before", where=("epsilon 3", "for 16")):
            dpose.pixelize(COLOUR, 2, 16)
        assert states() == [State.COMMITTED]
        again = dpose.pixelize(COLOUR, 2, 16, again=True)
        assert again.statement.odometer["epsilon"] == "3.0"
        assert any("2 releases" in line and "epsilon 3 together" in line for line in again.statement.caveats)
        text = again.statement.to_json()
        assert PrivacyStatement.from_json(text) == again.statement
        again.save("b.png")
        verify_release(Path("b.png"))

    def test_a_hundred_releases_add_up(self):
        for _ in range(10):
            made = dpose.pixelize(COLOUR, "1/2", 16, again=True)
        assert made.statement.odometer["releases"] == "10"
        assert made.statement.odometer["epsilon"] == "5.0"

    def test_public_pictures_are_not_counted(self):
        for _ in range(2):
            made = dpose.pixelize(COLOUR, 1, 16, public=True)
        assert charges() == []
        assert counting.PUBLIC in made.statement.caveats
        assert made.statement.odometer == {}

    def test_pure_releases_of_the_account_have_an_epsilon_without_a_delta(self, capsys):
        for _ in range(2):
            dpose.pixelize(COLOUR, 1, 16, again=True)
        assert composed(charges(), 0.0) == 2.0
        assert main(["account"]) == 0
        assert "epsilon 2 at delta" in " ".join(capsys.readouterr().out.split())

    def test_grey_and_tensors_are_the_same_picture(self):
        import torch

        grey = COLOUR[..., 0]
        dpose.pixelize(grey, 1, 16)
        for same in (torch.from_numpy(grey.copy()), np.stack([grey] * 3, -1), grey.astype(np.uint16) * 256 + 3):
            with refused("released-before"):
                dpose.pixelize(same, 1, 16)

    def test_seeds_are_bounded_by_nothing(self):
        dpose.pixelize(COLOUR, 1, 16, seed=3)
        (entry,) = charges()
        assert entry.events == ()
        made = dpose.pixelize(COLOUR, 1, 16, again=True)
        assert made.statement.odometer["epsilon"] == "inf"
        assert any("nothing bounds" in line for line in made.statement.caveats)

    def test_frames_and_clips_meet(self):
        clip = np.stack([COLOUR, COLOUR[::-1]])
        dpose.pixelize(COLOUR, 1, 16)
        with refused("released-before", where="both together cost epsilon 2"):
            dpose.pixelize(clip, 1, 16)
        dpose.pixelize(clip, 1, 16, again=True)
        with refused("released-before", where="both together cost epsilon 2"):
            dpose.pixelize(COLOUR[::-1], 1, 16)
        assert len(charges(of=marks_of([pixel_hash(COLOUR)]))) == 2

    def test_what_fails_is_still_counted(self, monkeypatch):
        def broken(*given):
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr("dpose.release.api.noised", broken)
            with pytest.raises(MemoryError):
                dpose.pixelize(COLOUR, 1, 16)
        assert states() == [State.FAILED]
        made = dpose.pixelize(COLOUR, 1, 16)  # what was cut short needs no word, and counts
        assert made.statement.odometer["releases"] == "2"
        assert made.statement.odometer["epsilon"] == "2.0"

    def test_what_cannot_be_done_is_not_counted(self):
        for wrong in ({"block": 99}, {"epsilon": 0}, {"neighbours": 10**6}):
            with refused(("block-larger-than-picture", "epsilon-out-of-range", "m-above-pixels")):
                dpose.pixelize(COLOUR, **({"epsilon": 1, "neighbours": 16} | wrong))
        assert charges() == []

    def test_a_budget_refuses_before_anything_is_computed(self, monkeypatch):
        marks = marks_of([pixel_hash(COLOUR)])
        set_budget(Budget(1.5, 1e-5, "x", marks, Neighbours.of_pixels(16)))
        dpose.pixelize(COLOUR, 1, 16)
        monkeypatch.setattr("dpose.release.api.noised", None)
        with refused("budget-exceeded"):
            dpose.pixelize(COLOUR, 1, 16, again=True)
        with refused("budget-charge-unbounded"):
            dpose.pixelize(COLOUR, 1, 16, again=True, seed=1)
        assert states() == [State.COMMITTED]

    def test_a_video_twice(self, tmp_path):
        source = write_clip(tmp_path / "a.mp4")
        made = dpose.release_video(source, tmp_path / "b.mp4", 8, "1e-5")
        before = bytes_of(tmp_path)
        assert dpose.release_video(source, tmp_path / "b.mp4", 8, "1e-5") == made
        assert bytes_of(tmp_path) == before
        assert len(charges()) == 1
        with refused("released-before"):
            dpose.release_video(source, tmp_path / "c.mp4", 8, "1e-5")
        with refused("output-exists"):
            dpose.release_video(source, tmp_path / "b.mp4", 4, "1e-5", again=True)
        assert bytes_of(tmp_path) == before
        other = dpose.release_video(source, tmp_path / "c.mp4", 8, "1e-5", again=True)
        assert float(other.odometer["epsilon"]) > 8
        verify_release(tmp_path / "c.mp4")


class TestCommand:
    def test_the_same_again_releases_nothing(self, capsys):
        for number in range(3):
            put(f"photos/{number}.png", np.roll(COLOUR, number, 0))
        asked = ["pixelize", "photos", *ASKED, "--out", "out"]
        assert main(asked) == 0
        before = bytes_of("out")
        assert len(before) == 6
        for more in ([], ["--again"]):
            capsys.readouterr()
            assert main([*asked, *more]) == 0
            assert capsys.readouterr().out.count("nothing spent") == 3
            assert bytes_of("out") == before
            assert states() == [State.COMMITTED] * 3
        assert main(["pixelize", "photos", *ASKED, "--out", "other"]) == 2
        line = refusal(capsys)
        assert "both together cost epsilon 2 for 16 pixels; 3 of 3 files" in line
        assert "--again" in line
        assert not Path("other").exists()
        assert main(["pixelize", "photos", *ASKED, "--out", "other", "--again"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        costs = told.index("release 2 of this picture: this release costs epsilon 1, both together cost epsilon 2")
        assert costs < told.index("This protects")
        assert main(["statement", "show", "other/000001.png"]) == 0
        assert "2 releases of this original are known" in " ".join(capsys.readouterr().out.split())

    def test_another_setting_is_another_release(self, capsys):
        put("a.png")
        assert main(["pixelize", "a.png", *ASKED, "--out", "out"]) == 0
        for more in (["--block", "8"], ["--delta", "1e-5"], ["--jpeg"], ["--seed", "1"]):
            assert main(["pixelize", "a.png", *ASKED, *more, "--out", "out"]) == 2
            assert "[released-before]" in refusal(capsys)
        assert len(charges()) == 1

    def test_other_files_are_never_overwritten(self, capsys):
        put("a.png")
        Path("b.png").write_bytes(b"mine")
        assert main(["pixelize", "a.png", *ASKED, "--out", "b.png"]) == 2
        assert "[output-exists]" in refusal(capsys)
        assert Path("b.png").read_bytes() == b"mine"
        assert charges() == []
        assert main(["pixelize", "a.png", *ASKED, "--out", "c.png"]) == 0
        Path("c.png").write_bytes(Path("c.png").read_bytes() + b"x")  # no longer what was released
        for more in ([], ["--again"]):
            assert main(["pixelize", "a.png", *ASKED, "--out", "c.png", *more]) == 2
            assert "[output-exists]" in refusal(capsys)

    def test_one_file_under_many_names_is_one(self, capsys):
        put("in/a.png")
        Path("in/link.png").symlink_to(Path("in/a.png").resolve())
        Path("in/copy.png").write_bytes(Path("in/a.png").read_bytes())
        Path("in/saved.png").write_bytes(encode_image(COLOUR, ".png", compression=9))
        assert main(["pixelize", "in", "in/a.png", *ASKED, "--out", "out"]) == 0
        assert capsys.readouterr().out.count("one file, which is released once") == 3
        assert sorted(p.name for p in Path("out").iterdir()) == ["000001.npz", "000001.png"]
        assert len(charges()) == 1

    def test_a_batch_that_stopped_half_way_goes_on(self, capsys, monkeypatch):
        for number in range(4):
            put(f"in/{number}.png", np.roll(COLOUR, number, 0))
        real, done = items._write, []

        def full(job, *rest):
            if len(done) == 2:
                raise KeyboardInterrupt
            done.append(job)
            real(job, *rest)

        asked = ["pixelize", "in", *ASKED, "--out", "out"]
        with monkeypatch.context() as patch:
            patch.setattr(items, "_write", full)
            assert main(asked) == 130
        assert states().count(State.COMMITTED) == 2
        before = bytes_of("out")
        capsys.readouterr()
        assert main(asked) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert told.count("nothing spent") == 2
        cut = states().count(State.FAILED)
        assert cut == 1, "what was not begun costs nothing"
        assert told.count("was cut short; what was seen of it is unknown, so that it counts") == cut
        assert {path: content for path, content in bytes_of("out").items() if path in before} == before
        assert states().count(State.COMMITTED) == 4

    @pytest.mark.parametrize("keep", [[], ["--keep-names"]])
    def test_a_process_that_dies_between_leaves_its_release_counted(self, capsys, keep):
        put("a.png")
        code = (
            "import os, sys\nfrom dpose.release import batch\n"
            "def dead(*given, **more): os._exit(9)\n"
            "batch.conclude = dead\n"
            "from dpose.cli import main\nmain(sys.argv[1:])\n"
        )
        asked = ["pixelize", "a.png", *ASKED, "--out", "out", *keep]
        done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True, cwd=os.getcwd())
        assert done.returncode == 9, done.stderr
        assert states() == [State.RESERVED]
        assert main(asked) == 0  # the same command: a new release, and it says so
        told = " ".join(capsys.readouterr().out.split())
        assert "was cut short" in told
        assert "both together cost epsilon 2" in told
        assert states() == [State.RESERVED, State.COMMITTED]
        assert main(asked) == 0
        assert "nothing spent" in capsys.readouterr().out
        assert main(["pixelize", "a.png", *ASKED, "--out", "other"]) == 2

    def test_what_another_process_is_releasing_is_not_taken_for_dead(self, capsys):
        put("a.png")
        asked = ["pixelize", "a.png", *ASKED, "--out", "out"]
        original, _, _ = originals.picture_original(Path("a.png"))
        job = Job(Path("a.png"), Path("out/000001.png"), Path("out/000001.npz"))
        config = plain_cells("1", "pixels:16", 16)
        settings = items.Work(config).settings(job, None)
        charge = release_charge(original, bind(config, Shape.of(48, 64, 3)), settings, seeded=False)
        with reserved_release(charge):
            assert main(asked) == 2
            assert "is being released by another process" in refusal(capsys)

    def test_of_two_that_race_one_is_told(self, monkeypatch):
        """Both have looked before either reserves."""
        real = counting.charge_all
        inside = []

        def late(entries, **more):
            inside.append(entries)
            if len(inside) == 1:
                dpose.pixelize(COLOUR, 1, 16)
            return real(entries, **more)

        monkeypatch.setattr(counting, "charge_all", late)
        with refused("charge-made-meanwhile"):
            dpose.pixelize(COLOUR, 1, 16)
        assert states() == [State.COMMITTED]

    def test_a_changed_file_is_not_released_under_another_name(self):
        path = put("a.png")
        original, _, _ = originals.picture_original(path)
        put("a.png", COLOUR[::-1])
        job = Job(path, Path("b.png"), original=original)
        with refused("file-changed"):
            batch.release_one(items.Work(plain_cells(1, 16)), job)
        assert charges() == []

    def test_an_account_that_cannot_be_reached_releases_nothing(self, capsys, monkeypatch):
        put("a.png")
        Path("file").write_text("no folder")
        monkeypatch.setenv("DPOSE_ACCOUNT", f"sqlite:///{Path('file').resolve()}/account.sqlite")
        assert main(["pixelize", "a.png", *ASKED, "--out", "out"]) == 2
        refusal(capsys)
        assert not Path("out").exists()

    def test_a_place_that_cannot_be_written_costs_nothing(self, capsys):
        put("a.png")
        Path("file").write_text("no folder")
        for out in ("file", "file/below", "/proc/none"):
            assert main(["pixelize", "a.png", *ASKED, "--out", out]) == 2
            refusal(capsys)
        assert charges() == []

    def test_what_was_released_into_a_folder_below_is_no_original(self, capsys):
        put("in/a.png")
        for _ in range(2):
            assert main(["pixelize", "in", *ASKED, "--out", "in/out"]) == 0
        assert len(charges()) == 1
        assert len(list(Path("in/out").glob("*.png"))) == 1

    def test_obscured_videos_are_counted_as_unbounded(self, capsys, tmp_path):
        write_clip(tmp_path / "a.mp4")
        assert main(["obfuscate", "a.mp4", "--method", "blur", "--out", "b.mp4"]) == 0
        (entry,) = charges()
        assert (entry.events, entry.within, entry.area) == ((), "video", 9 * 48 * 32)
        assert main(["obfuscate", "a.mp4", "--method", "blur", "--out", "c.mp4", "--public"]) == 0
        assert len(charges()) == 1

    def test_a_video_and_its_copy(self, capsys, tmp_path):
        (tmp_path / "in").mkdir()
        write_clip(tmp_path / "in" / "a.mp4")
        (tmp_path / "in" / "b.mp4").write_bytes((tmp_path / "in" / "a.mp4").read_bytes())
        video = ["release-video", "in", "--epsilon", "8", "--delta", "1e-5", "--out", "out"]
        assert main(video) == 0
        assert "one file, which is released once" in capsys.readouterr().out
        assert sorted(p.name for p in Path("out").iterdir()) == ["000001.mp4", "000001.mp4.privacy.json"]
        before = bytes_of("out")
        assert main(video) == 0
        assert bytes_of("out") == before


def test_videos_of_one_command_that_share_frames_are_second_releases(capsys, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for name, frames in (("a", 9), ("b", 7)):
        write_clip(tmp_path / "in" / f"{name}.mp4", frames=frames)
    real = items.video_original

    def seen(info):  # encoders change pixels from clip to clip: as a lossless one would have it
        return replace(found := real(info), hashes=(*found.hashes, "a frame of both"))

    monkeypatch.setattr(items, "video_original", seen)
    video = ["release-video", "in", "--epsilon", "8", "--delta", "1e-5", "--out", "out"]
    assert main(video) == 2
    assert "in/b.mp4: has frames in common with in/a.mp4, another file of this command" in refusal(capsys)
    assert charges() == []
    assert main([*video, "--again"]) == 0
    assert [len(charges(of=entry)) for entry in [marks_of(["a frame of both"])]] == [2]


def test_a_clip_that_shares_a_frame_with_a_finished_one_is_another_release(capsys, tmp_path, monkeypatch):
    for name, frames in (("a", 9), ("b", 7)):
        write_clip(tmp_path / f"{name}.mp4", frames=frames)
    real = items.video_original
    monkeypatch.setattr(
        items, "video_original", lambda info: replace(found := real(info), hashes=(*found.hashes, "a frame of both"))
    )
    video = ["release-video", "--epsilon", "8", "--delta", "1e-5", "--out", "out"]
    assert main([*video, "a.mp4"]) == 0
    capsys.readouterr()
    assert main([*video, "b.mp4"]) == 2
    assert "[released-before]" in refusal(capsys)
    assert main([*video, "b.mp4", "--again"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "release 2 of this video" in told
    assert "released already" not in told
    statement, _ = read_sidecar(Path("out/000002.mp4"))
    assert statement.odometer["releases"] == "2"
    for name in "ab":  # each whole one is known again
        assert main([*video, f"{name}.mp4", "--again"]) == 0
        assert "nothing spent" in capsys.readouterr().out
    assert states() == [State.COMMITTED] * 2


class TestVerify:
    def release(self, *more):
        put("a.png")
        assert main(["pixelize", "a.png", *ASKED, "--out", "out", *more]) == 0

    def test_a_file_that_the_account_knows(self, monkeypatch):
        self.release()
        for name in ("out/000001.png", "out/000001.npz"):
            assert "counted" not in verify_release(Path(name))[1]
        monkeypatch.setenv("XDG_STATE_HOME", str(Path("elsewhere").resolve()))
        assert "as there is no account here" in verify_release(Path("out/000001.png"))[1]
        put("b.png", COLOUR[::-1])
        assert main(["pixelize", "b.png", *ASKED, "--out", "b-out"]) == 0
        assert "does not know this file" in verify_release(Path("out/000001.png"))[1]

    @pytest.mark.parametrize("change", ["cost", "unbounded", "count"])
    def test_statement_and_account_disagree(self, monkeypatch, change):
        self.release()
        real = charges()

        def altered():
            (entry,) = real
            if change == "cost":
                return [replace(entry, events=(replace(entry.events[0], sensitivity=Fraction(1)),))]
            if change == "unbounded":
                return [replace(entry, events=())]
            earlier = replace(entry, outputs=(), stored=replace(entry.stored, seq=0))
            return [earlier, entry]

        monkeypatch.setattr("dpose.release.recompute.charges", altered)
        with refused(("account-cost-differs", "account-count-differs")):
            verify_release(Path("out/000001.png"))

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"releases": "0"}, "release-count-unreadable"),
            ({"releases": "x"}, "release-count-unreadable"),
            ({"epsilon": "nan"}, "release-count-unreadable"),
            ({"epsilon": "0.5"}, "releases-cost-too-little"),
            ({"releases": "3"}, "earlier-releases-left-out"),
        ],
    )
    def test_a_count_that_cannot_be(self, changes, code):
        made = dpose.pixelize(COLOUR, 1, 16)
        wrong = replace(made, statement=replace(made.statement, odometer=made.statement.odometer | changes))
        wrong.save("a.png")
        with refused(code):
            verify_release(Path("a.png"))


def test_a_count_that_was_taken_out_is_missed():
    made = dpose.pixelize(COLOUR, 1, 16)
    replace(made, statement=replace(made.statement, odometer={})).save("a.png")
    with refused("release-count-missing", where="a.png"):
        verify_release(Path("a.png"))


def test_sixteen_bit_pictures_that_look_alike_are_two():
    """They are known by all their bits, and linked by the high ones."""
    one, other = COLOUR.astype(np.uint16), COLOUR.astype(np.uint16) // 2  # both shown as black
    files = [encode_image(picture, ".png") for picture in (one, other)]
    (first, second) = (picture_hashes(file, decode_pixels(file, "a.png")) for file in files)
    assert first[2] == second[2]
    assert not set(first[:2]) & set(second[:2])
    for name, file in zip("ab", files, strict=True):
        Path(f"{name}.png").write_bytes(file)
    assert main(["pixelize", "a.png", "b.png", "--epsilon", "1", "--out", "out", "--again"]) == 0
    assert sorted(path.name for path in Path("out").glob("*.png")) == ["000001.png", "000002.png"]


def told_outputs(capsys):
    """Every path that was named as written, and all that was told."""
    told = capsys.readouterr().out
    lines = [line.partition(" -> ")[2] for line in told.splitlines() if " -> " in line]
    return [Path(name) for line in lines for name in line.split(", ")], told


def deep_and_its_twin():
    grey = COLOUR[..., 0]
    return put("two/a.png", grey.astype(np.uint16) * 257), put("two/b.png", grey)


def test_a_deep_picture_and_its_twin_are_released_both_and_counted_together(capsys):
    deep_and_its_twin()
    assert main(["pixelize", "two", *ASKED, "--out", "out"]) == 2
    assert "two/b.png: shows in 8 bits the same as two/a.png, another file of this command" in refusal(capsys)
    assert charges() == []
    for _ in range(2):
        assert main(["pixelize", "two", *ASKED, "--out", "out", "--again"]) == 0
    outputs, _ = told_outputs(capsys)
    assert len(outputs) == 4
    assert all(path.exists() for path in outputs)
    assert states() == [State.COMMITTED] * 2
    assert together(charges(), 16) == (2, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_a_twins_finished_release_is_not_the_other_ones(capsys, first):
    files = deep_and_its_twin()
    assert main(["pixelize", str(files[first]), *ASKED, "--out", "out"]) == 0
    capsys.readouterr()
    assert main(["pixelize", str(files[1 - first]), *ASKED, "--out", "out"]) == 2
    assert "[released-before]" in refusal(capsys)
    assert main(["pixelize", str(files[1 - first]), *ASKED, "--out", "out", "--again"]) == 0
    assert all(path.exists() for path in told_outputs(capsys)[0])
    assert len(charges()) == 2


def test_a_deep_array_that_was_cut_short_does_not_let_its_twin_in_unasked(monkeypatch):
    deep = COLOUR.astype(np.uint16) * 257
    with monkeypatch.context() as patch:
        patch.setattr("dpose.release.api.noised", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dpose.pixelize(deep, 1, 16)
    with refused("released-before"):
        dpose.pixelize(COLOUR, 1, 16)
    dpose.pixelize(deep, 1, 16)


def test_what_another_process_released_meanwhile_is_told_by_its_own_name(capsys, monkeypatch):
    put("a.png")
    asked = ["pixelize", "a.png", *ASKED, "--out", "out"]
    assert main(asked) == 0
    capsys.readouterr()
    monkeypatch.setattr(batch, "skip_finished", lambda jobs, *_, **__: batch.PendingJobs(list(jobs)))
    assert main(asked) == 0
    outputs, told = told_outputs(capsys)
    assert outputs == []
    assert "a.png is released already, into out/000001.png: nothing to do" in told
    jobs = [Job(Path("b.png"), Path(f"out/00000{k}.png"), Path(f"out/00000{k}.npz"), f"00000{k}") for k in (2, 3)]
    put("b.png", COLOUR[::-1])
    for job, standing in zip(jobs, (False, True), strict=True):
        ((there, _),) = batch.release_all([job], items.Work(plain_cells(1, 16, 16)))
        assert there.standing is standing
        assert there.outputs == jobs[0].outputs


def test_all_that_were_released_before_are_named(capsys):
    for number in range(3):
        put(f"in/{number}.png", np.roll(COLOUR, number, 0))
    assert main(["pixelize", "in", *ASKED, "--out", "out"]) == 0
    put("in/3.png", COLOUR[::-1])
    capsys.readouterr()
    assert main(["pixelize", "in", *ASKED, "--out", "other", "--epsilon", "2"]) == 2
    line = refusal(capsys)
    assert "3 of 4 files are such (in/1.png, in/2.png, too), and none was released" in line
    assert line.startswith("dpose: in/0.png: was released before")


def write_jpegs(path, files):
    """A motion-JPEG video of picture files, byte for byte."""
    with av.open(str(path), "w") as out:
        with av.open(str(files[0])) as one:
            stream = out.add_stream_from_template(one.streams.video[0])
        for number, file in enumerate(files):
            packet = av.Packet(file.read_bytes())
            packet.stream, packet.time_base = stream, Fraction(1, 5)
            packet.pts = packet.dts = number
            packet.duration, packet.is_keyframe = 1, True
            out.mux(packet)
    return path


@pytest.mark.parametrize("suffix", [".mkv", ".avi", ".mov"])
@pytest.mark.parametrize("saved_anew", [False, True])
def test_a_jpeg_is_the_frame_of_motion_jpeg_that_it_is(suffix, saved_anew):
    smooth = [cv2.GaussianBlur(np.roll(COLOUR, 9 * k, 0), (0, 0), 2) for k in range(3)]
    files = [put(f"{k}.jpg", picture) for k, picture in enumerate(smooth)]
    clip = write_jpegs(Path(f"clip{suffix}"), files)
    still = put("still.png", read_pixels(files[1])) if saved_anew else files[1]
    known = originals.video_original(probe(clip))
    assert known.own == known.hashes[:2]
    set_budget(Budget(1.5, 1e-5, "clip", known.marks, Neighbours.of_pixels(16)))
    work = items.Work(plain_cells(1, 16, 16), again=True)
    batch.release_one(work, Job(clip, Path("clip.mp4")))
    with refused("budget-exceeded"):
        batch.release_one(work, Job(still, Path("still-out.png")))
    with refused("released-before"):
        batch.release_one(replace(work, again=False), Job(still, Path("still-out.png")))


def test_frames_of_one_colour_link_no_motion_jpeg():
    file = put("black.jpg", np.zeros((48, 64, 3), np.uint8))
    assert len(originals.video_original(probe(write_jpegs(Path("black.mkv"), [file, file]))).hashes) == 2


def test_a_drawn_operator_is_released_as_it_was_reserved():
    write_clip("in.mp4", size=(48, 32), frames=6)
    for number in (1, 2):
        statement = dpose.release_video("in.mp4", f"{number}.mp4", 8, "1e-5", 16, "random", again=True)
        assert statement.odometer["releases"] == str(number)
        verify_release(Path(f"{number}.mp4"))
    first, second = charges()
    assert (first.state, second.state) == (State.COMMITTED, State.COMMITTED)
    assert first.events != second.events


def test_old_statements_without_a_count_still_verify():
    made = dpose.pixelize(COLOUR, 1, 16, public=True)
    content = json.loads(made.statement.to_json())
    assert "odometer" not in content
    made.save("a.png")
    verify_release(Path("a.png"))


def test_neighbours_of_a_loss_are_those_of_the_claim():
    plan = bind(plain_cells(1, 16, 16), Shape.of(48, 64, 3))
    (loss,) = charged_events(plan, seeded=False)
    assert isinstance(loss, Laplace)
    assert plan.config.neighbours.resolved(plan.shape) == Neighbours.of_pixels(loss.pixels, "picture")
