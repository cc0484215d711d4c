"""A corpus of files: each released once and counted, whenever a worker or the command dies."""

import pickle
import stat
from dataclasses import replace
from fractions import Fraction

import cv2
import numpy as np
import pytest

import clips
from dpose.account import Budget, charges, set_budget
from dpose.cli import main
from dpose.engines.local import LocalEngine
from dpose.engines.ray import ITEM_BYTES
from dpose.errors import DposeError, IncompleteError
from dpose.media.images import encode_image
from dpose.privacy.events import Laplace
from dpose.privacy.keys import keys_kept, state_folder
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.noise import AesNoise, Key, Origin
from dpose.release import batch as room
from dpose.release import items, manifest
from dpose.release.archive import unpack
from dpose.release.batch import release_corpus
from dpose.release.items import Work
from dpose.release.jobs import find_jobs
from dpose.release.manifest import MANIFEST, verify_manifest
from dpose.release.mechanism import NoiseStage
from dpose.release.originals import picture_original
from dpose.release.regions import PrivateRegions
from dying import Dying
from plain_configs import plain_cells, plain_projection
from refusals import refused

PLAIN = Work(plain_cells(2, 4, 8))


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    for k in range(5):
        seen = cv2.GaussianBlur(rng.integers(0, 256, (24, 32, 3)).astype(np.uint8), (0, 0), 3)
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{k}.png").write_bytes(encode_image(seen, ".png"))
    return tmp_path / "in"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


class Seen(Dying):
    """Dies as `Dying` does, and keeps the archives that each attempt had written before it died."""

    def __init__(self, deaths=(), workers=2):
        super().__init__(deaths, workers)
        self.archives = []

    def submit(self, work, shared, item):
        task = super().submit(work, shared, item)
        target = getattr(item, "job", None) and item.job.target.with_suffix(".npz")
        if target and target.exists():
            self.archives.append((item.job.source.name, target.read_bytes()))
        return task


def release(folder, out, work=PLAIN, at=None, said=None):
    jobs = find_jobs([str(folder)], out)
    found = release_corpus(jobs, work, at or LocalEngine(), out, (said if said is not None else []).append)
    return [(job, statement) for job, statement in found if statement is not None]


def sums(archive):
    released, _ = unpack(archive, "archive")
    return {name: values.tolist() for name, values in released.sums.items()}


def killed(monkeypatch, folder, out, after, work=PLAIN, at=None):
    """The command dies at once after so many files: nothing is settled, the locks go."""
    at = at or Seen()

    def die(self, *_):
        self._held.close()
        for name in (self.corpus.name, self.corpus.key.key_id, self.session):  # a process that is killed leaves these
            (state_folder() / "releases" / f"{name}.lock").touch()

    with monkeypatch.context() as patch:
        patch.setattr(room._Batch, "__exit__", die)
        run = release_corpus(find_jobs([str(folder)], out), work, at, out)
        for _ in range(after):
            next(run)
        run.close()
    return at


def states():
    return sorted(entry.state.value for entry in charges())


def test_each_is_released_once_listed_and_counted(pictures, out):
    made = release(pictures, out)
    assert len(made) == 5
    assert states() == ["committed"] * 5
    assert {statement.odometer["releases"] for _, statement in made} == {"1"}
    assert "5 files, all as they were released, each claims epsilon 2" in verify_manifest(out)
    assert main(["verify", str(out)]) == 0
    said = []
    assert release(pictures, out, said=said) == []
    assert all("released already" in line for line in said)
    assert len(said) == 5
    assert len(charges()) == 5


def test_the_drivers_key_is_its_owners_alone_and_goes_when_all_are_complete(pictures, out, monkeypatch):
    killed(monkeypatch, pictures, out, 2)
    (name,) = keys_kept()
    file = state_folder() / "keys" / f"{name}.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    release(pictures, out)
    assert keys_kept() == []


def test_a_killed_workers_release_is_the_same_release(pictures, out):
    at = Seen(deaths={6, 7, 9})  # after they have written what may have been seen
    made = release(pictures, out, at=at)
    assert len(made) == 5
    assert states() == ["committed"] * 5
    assert len(at.archives) == 8
    for name in {name for name, _ in at.archives}:
        assert len({str(sums(archive)) for other, archive in at.archives if other == name}) == 1
    verify_manifest(out)


def test_a_killed_command_goes_on_where_it_was(pictures, out, monkeypatch):
    at = killed(monkeypatch, pictures, out, 2)
    before = {name: sums(archive) for name, archive in at.archives}
    assert set(states()) == {"reserved"}
    with refused("manifest-incomplete"):
        verify_manifest(out)
    (out / MANIFEST).open("a").write('{"type": "fi')  # a torn line
    at = Seen()
    made = release(pictures, out, at=at)
    assert states() == ["committed"] * 5
    assert {statement.odometer["releases"] for _, statement in made} == {"1"}
    assert sorted(path.name for path in out.glob("*.png")) == [f"{k:06d}.png" for k in range(1, 6)]
    after = {name: sums(archive) for name, archive in at.archives}
    assert before
    assert all(after[name] == seen for name, seen in before.items())
    verify_manifest(out)


@pytest.mark.parametrize("whole", [True, False], ids=["same release", "another release"])
def test_what_a_killed_worker_had_begun_to_write_does_not_stay(pictures, out, whole):
    class Leaving(Dying):
        def submit(self, work, shared, item):
            task = super().submit(work, shared, item)
            if task in self.deaths:
                target = item.job.target
                target.with_name(f".{target.name}.abcdefgh").write_bytes(b"half")
                target.with_name(".other.png.abcdefgh").touch()
            return task

    config = plain_cells(2, 4, 8, subdivide=2, regions=PrivateRegions())
    release(pictures, out, PLAIN if whole else Work(config), at=Leaving(deaths={6, 8}))
    assert [path.name for path in out.glob(".*")] == [".other.png.abcdefgh"]


def test_what_a_killed_command_had_begun_to_write_does_not_stay(pictures, out, monkeypatch):
    killed(monkeypatch, pictures, out, 2)
    for number in range(1, 6):
        (out / f".{number:06d}.png.abcdefgh").touch()
    release(pictures, out)
    assert list(out.glob(".*")) == []


def test_other_code_is_another_release(pictures, out, monkeypatch):
    killed(monkeypatch, pictures, out, 1)
    begun = len(charges())
    monkeypatch.setattr(manifest, "worker_code", lambda: "another")
    made = release(pictures, out)
    assert len(made) == 5
    assert len(charges()) == begun + 5
    assert {statement.odometer["releases"] for _, statement in made} == {"2"}


def test_where_sums_may_differ_another_attempt_is_another_release(pictures, out):
    config = plain_cells(2, 4, 8, subdivide=2, regions=PrivateRegions())
    made = release(pictures, out, Work(config), at=Seen(deaths={6}))
    assert states() == ["committed"] * 5 + ["failed"]
    assert sorted(statement.odometer["releases"] for _, statement in made) == ["1", "1", "1", "1", "2"]
    assert main(["verify", str(out)]) == 0


def test_an_item_that_fails_costs_no_other_and_is_named(pictures, out, capsys):
    (pictures / "broken.png").write_bytes(b"no picture")
    with refused("picture-unreadable", where=("broken.png", "1 of 6"), error=IncompleteError):
        release(pictures, out)
    assert states() == ["committed"] * 5
    assert "5 files, all as they were released, each claims epsilon 2, 1 that failed" in verify_manifest(out)
    arguments = ["pixelize", str(pictures), "--epsilon", "2", "--engine", "local", "--out", str(out / "b")]
    assert main([*arguments, "--again"]) == 1
    assert "broken.png" in capsys.readouterr().err


def test_a_file_that_was_changed_after_it_was_reserved_is_refused(pictures, out):
    class Changing(Dying):
        def submit(self, work, shared, item):
            if work is room.release_item and item.job.source.name == "3.png":
                item.job.source.write_bytes((pictures / "0.png").read_bytes())
            return super().submit(work, shared, item)

    with refused("file-changed", where="3.png", error=IncompleteError):
        release(pictures, out, at=Changing())
    assert states() == ["committed"] * 4 + ["failed"]


def test_a_worker_whose_plan_is_another_releases_nothing(pictures, out, monkeypatch):
    honest = items.bind

    def elsewhere(config, shape, source=None):
        released = source.origin is Origin.KEPT  # where it is released, not where it was digested
        return honest(plain_cells(2, 4, 12) if released else config, shape, source)

    monkeypatch.setattr(items, "bind", elsewhere)
    with refused("release-differs-here", error=IncompleteError):
        release(pictures, out)
    assert list(out.glob("*.p*")) == []
    assert states() == ["failed"] * 5


def test_what_a_budget_refuses_others_may_have(pictures, out):
    hashes = picture_original(pictures / "2.png")[0].hashes
    set_budget(Budget(1.0, 1e-5, "one", marks_of(hashes), Neighbours.of_pixels(16)))
    with refused("budget-exceeded", where="2.png", error=IncompleteError):
        release(pictures, out)
    assert states() == ["committed"] * 4
    assert "failed" not in (out / MANIFEST).read_text()


def test_another_attempt_that_a_budget_refuses_is_in_no_list(pictures, out):
    """What is released in the place of a file whose worker died is another release, which the account may refuse."""
    work = Work(plain_cells(2, 4, 8, subdivide=2, regions=PrivateRegions()))
    hashes = [name for path in pictures.iterdir() for name in picture_original(path)[0].hashes]
    set_budget(Budget(3.0, 1e-5, "all", marks_of(hashes), Neighbours.of_pixels(4)))
    with refused("budget-exceeded", error=IncompleteError):
        release(pictures, out, work, Seen(deaths={6}))
    assert states() == ["committed"] * 4 + ["failed"]
    assert '"failed"' not in (out / MANIFEST).read_text()


def test_one_picture_twice_is_released_once(pictures, out):
    (pictures / "twin.png").write_bytes((pictures / "1.png").read_bytes())
    said = []
    assert len(release(pictures, out, said=said)) == 5
    assert len(said) == 1
    assert len(charges()) == 5


def test_a_second_release_is_refused_without_again(pictures, out):
    release(pictures, out)
    other = replace(PLAIN, config=plain_cells(3, 4, 8))
    with refused("released-before", error=IncompleteError):
        release(pictures, out / "b", other)
    assert "failed" not in (out / "b" / MANIFEST).read_text()
    made = release(pictures, out / "b", replace(other, again=True))
    assert {statement.odometer["releases"] for _, statement in made} == {"2"}


def test_videos_are_released_and_obscured(tmp_path, out):
    (tmp_path / "in").mkdir()
    for k in range(2):
        clips.write(tmp_path / "in" / f"{k}.mp4", size=(48 + 16 * k, 32))
    config = plain_projection(8, "1e-5", None, "block", colour=None)
    made = release(tmp_path / "in", out, Work(config), at=Seen(deaths={2}))
    assert sorted(statement.odometer["releases"] for _, statement in made) == ["1", "2"]
    made = release(tmp_path / "in", out / "b", Work(None, "blur", again=True))
    assert [statement.kind.value for _, statement in made] == ["none", "none"]


def test_a_key_travels_with_little_however_long_a_video_is(tmp_path, out, monkeypatch):
    """Ray keeps a large argument in a store that may be written to disk, and a video has a digest a frame."""
    clips.write(tmp_path / "a.mp4", size=(48, 32))
    given, honest, digested = [], room.release_item, room.digest_item
    frames = tuple(f"{k:064x}" for k in range(20_000))

    def long(work, job):
        found = digested(work, job)
        hashes = (*found.job.original.hashes, *frames)
        original = replace(found.job.original, hashes=hashes)
        return replace(
            found, job=replace(found.job, original=original), charge=replace(found.charge, marks=original.marks)
        )

    monkeypatch.setattr(room, "digest_item", long)
    monkeypatch.setattr(room, "release_item", lambda work, item: given.append(item) or honest(work, item))
    config = plain_projection(8, "1e-5", None, "block", colour=None)
    release(tmp_path / "a.mp4", out, Work(config), at=Seen(deaths={1}))
    assert len(given) == 2
    for item in given:
        assert len(pickle.dumps(item)) < ITEM_BYTES
        assert item.secret in pickle.dumps(item)
    first, second = charges()
    assert first.stored.sets == second.stored.sets, "another attempt is one at all its frames, too"
    found = {entry.id for entry in charges(of=marks_of(frames[-1:]))}
    assert found == {first.id, second.id}


def test_a_worker_that_has_another_folder_releases_nothing(pictures, out, capsys):
    class Elsewhere(Dying):
        def submit(self, work, shared, item):
            return super().submit(work, replace(shared, sign=shared.sign.parent / "elsewhere"), item)

    with refused("worker-folder-not-shared", where="5 of 5 files", error=IncompleteError):
        release(pictures, out, at=Elsewhere())
    assert charges() == []
    assert [path.name for path in out.iterdir()] == [MANIFEST], "and no sign stays"


def test_noise_of_a_key_that_is_taken_up_again_is_bound_to_the_sums():
    stage = NoiseStage(Laplace(Fraction(100), Fraction(1)), b"coarse")
    one, other = np.arange(50), np.arange(50) + np.eye(1, 50, 7, dtype=int)[0]

    def noise(key, values):
        return (stage.noised(values, stage.stream(AesNoise(key), 0, values)) - values).tolist()

    kept = Key.kept(bytes(range(32)))
    assert noise(kept, one) == noise(kept, one)
    assert noise(kept, one) != noise(kept, other)
    seeded = Key.from_seed(3)
    assert noise(seeded, one) == noise(seeded, other)  # as published figures have it


@pytest.mark.parametrize("change", ["gone", "other", "line", "outside"])
def test_a_list_that_does_not_hold_is_refused(pictures, out, change):
    release(pictures, out)
    file, text = out / "000002.png", (out / MANIFEST).read_text()
    if change == "gone":
        file.unlink()
    elif change == "other":
        file.write_bytes((out / "000003.png").read_bytes())
    elif change == "line":
        (out / MANIFEST).write_text(text.replace('"epsilon": "2"', '"epsilon": "1"', 1))
    else:
        lines = text.splitlines(keepends=True)[:-1]
        lines.append('{"type": "file", "file": "x", "sha256": {"../in/0.png": "0"}, "epsilon": "2"}\n')
        (out / MANIFEST).write_text("".join(lines))
    with pytest.raises(DposeError):
        verify_manifest(out)


def test_secrets_stay_out_of_sight(pictures, out, monkeypatch):
    given = []
    honest = room.release_item
    monkeypatch.setattr(room, "release_item", lambda work, item: given.append(item) or honest(work, item))
    release(pictures, out)
    assert len({item.secret for item in given}) == 5
    for item in given:
        assert item.secret.hex() not in repr(item)
        for file in [*out.rglob("*"), *state_folder().rglob("*")]:
            if file.is_file():
                content = file.read_bytes()
                assert item.secret not in content
                assert item.secret.hex().encode() not in content


def test_a_public_corpus_is_not_counted(pictures, out):
    made = release(pictures, out, replace(PLAIN, public=True))
    assert len(made) == 5
    assert charges() == []


def test_commands_for_videos_take_an_engine(tmp_path, out, capsys):
    clips.write(tmp_path / "a.mp4")
    common = ["--engine", "local", "--restore", "none"]
    video = ["release-video", str(tmp_path / "a.mp4"), "--epsilon", "8", "--delta", "1e-5", *common]
    assert main([*video, "--out", str(out)]) == 0
    blurred = ["obfuscate", str(tmp_path / "a.mp4"), "--method", "blur", "--engine", "local", "--again"]
    assert main([*blurred, "--out", str(out / "b")]) == 0
    assert {path.name for path in (out / "b").iterdir()} == {"000001.mp4", "000001.mp4.privacy.json", MANIFEST}
    capsys.readouterr()
    assert main([*video, "--out", str(tmp_path / "b.mp4")]) == 2
    assert "[out-not-folder]" in capsys.readouterr().err
    assert main([*video, "--out", str(out), "--engine", "ray://127.0.0.1:1"]) == 2
    assert "[cluster-unreachable]" in capsys.readouterr().err
