"""Attacks read raw pictures: all of them are on the account before anything is computed, or there is no attack."""

import cv2
import numpy as np
import pytest
from rich.console import Console

from dpose.account import ATTACK, Budget, State, charges, set_budget, spending
from dpose.cli import main
from dpose.files import file_digest
from dpose.media.identity import pixel_hash
from dpose.media.images import read_image
from dpose.privacy.marks import marks_of
from dpose.privacy.neighbours import Neighbours, Relation
from dpose_lab.attacks.adversary import AttackerEffort
from dpose_lab.attacks.context import AttackConfig, counted_context, open_context
from dpose_lab.attacks.identities import FRAME, open_identities
from dpose_lab.attacks.linkage import Linkage
from dpose_lab.attacks.reid import Reidentification
from refusals import refused

PEOPLE, EACH = 13, 3


@pytest.fixture
def staff(tmp_path):
    """A folder of people with three pictures each, two of whom are to be attacked."""
    rng = np.random.default_rng(0)
    for who in range(PEOPLE):
        (tmp_path / "staff" / f"p{who:02d}").mkdir(parents=True)
        for k in range(EACH):
            picture = np.full((40, 30, 3), (15 * who, 200 - 10 * who, 90), np.uint8) + rng.integers(
                0, 20, (40, 30, 3), np.uint8
            )
            cv2.imwrite(str(tmp_path / "staff" / f"p{who:02d}" / f"{k}.png"), picture)
    return tmp_path / "staff"


def attack(staff, out, *more):
    asked = ["--identities", "2", "--set", "learn_pictures=2", "--release", "pixelate", "--block", "8"]
    return main(["attack", "reid", "--data", f"folder:{staff}", *asked, "--out", str(out), *more])


def files_of(staff):
    return sorted(staff.rglob("*.png"))


def test_all_that_it_may_look_at_is_reserved_before_it_computes_and_committed_when_it_is_written(
    staff, tmp_path, monkeypatch
):
    seen, learn = [], Reidentification.learn

    def learning(self, context):
        seen.extend(charges())
        assert not (tmp_path / "out").exists()
        return learn(self, context)

    monkeypatch.setattr(Reidentification, "learn", learning)
    assert attack(staff, tmp_path / "out") == 0
    (before,), (entry,) = seen, charges()
    assert (before.what, before.events, before.state) == (ATTACK, (), State.RESERVED)
    assert (entry.id, entry.state, entry.folder) == (before.id, State.COMMITTED, str(tmp_path / "out"))
    # three pictures of two people, and two of each who teaches the attacker: known by their files and by their pixels
    read = [p for p in files_of(staff) if p.parent.name < "p02" or p.stem < "2"]
    assert len(read) == 2 * EACH + 2 * (PEOPLE - 2)
    assert before.stored.marks == 2 * len(read)
    for path in files_of(staff):
        for digest in (file_digest(path), pixel_hash(read_image(path))):
            assert bool(charges(of=marks_of([digest]))) == (path in read)
    found = spending(Neighbours("image", Relation.REPLACE), 1e-5, of=marks_of([file_digest(read[0])]))
    assert found.epsilon == np.inf
    assert "something that nothing bounds" in (tmp_path / "out" / "results.json").read_text()


def test_what_it_had_reserved_counts_if_it_dies(staff, tmp_path, monkeypatch):
    def dying(self, context):
        raise MemoryError

    monkeypatch.setattr(Reidentification, "learn", dying)
    assert attack(staff, tmp_path / "out") != 0
    assert [entry.state for entry in charges()] == [State.FAILED]
    assert not (tmp_path / "out").exists()


def test_a_budget_refuses_it_before_anything_is_computed_or_written(staff, tmp_path, monkeypatch, capsys):
    taught = files_of(staff)[-3]  # of somebody who is not attacked
    set_budget(Budget(8.0, 1e-5, "staff", marks_of([file_digest(taught)])))
    with monkeypatch.context() as patch:
        patch.setattr(Reidentification, "learn", None)
        assert attack(staff, tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "[budget-charge-unbounded]" in line
    assert "lift the budget first" in line
    assert "--public" in line
    assert charges() == []
    assert not (tmp_path / "out").exists()
    assert attack(staff, tmp_path / "out", "--public") == 0
    assert charges() == []
    assert "declared public" in (tmp_path / "out" / "results.json").read_text()


@pytest.mark.parametrize(("look", "count"), [("studio", 0), ("ward", 1)])
def test_rendered_people_who_stand_for_private_ones_are_counted_like_them(look, count, tmp_path):
    small = ["--identities", "2", "--learn-from", "12", "--set", "learn_pictures=2", "--set", "size=64x64"]
    rest = ["--release", "pixelate", "--block", "8", "--attacker", "plain", "--out", str(tmp_path / "out")]
    assert main(["attack", "reid", "--data", f"synthetic:{look}", *small, *rest]) == 0
    assert [entry.stored.marks for entry in charges()] == [6] * count


def test_what_is_attacked_is_what_was_counted_whatever_becomes_of_the_files(staff, tmp_path, capsys):
    config = AttackConfig(f"folder:{staff}", identities=2, effort=AttackerEffort(5, 2))
    with open_context(config, [Reidentification()], tmp_path / "out", Console(quiet=True)) as context:
        first = files_of(staff)[0]
        before, content = read_image(first), first.read_bytes()
        cv2.imwrite(str(first), 255 - before)
        album = context.pictures(0, 1, "")
        np.testing.assert_array_equal(album.pictures[0], before)
        assert album.hashes[0][1] == pixel_hash(before)
        with pytest.raises(KeyError):  # the twelfth person teaches no attacker, and is on no account
            context.identities.load([(12, 0)], lambda: None)
        # a worker opens the files again
        first.write_bytes(content)
        counted_context(config, [Reidentification()], context.charged)
        cv2.imwrite(str(first), 255 - before)
        with refused("pictures-changed"):
            counted_context(config, [Reidentification()], context.charged)


def test_of_rendered_people_the_attackers_own_alone_are_made_later():
    people = open_identities("synthetic:ward", (64, 64)).chosen(2, 1)
    held, marks = people.read([(people.people[0], 0)], lambda: None)
    assert len(marks) == 1
    assert len(held.load([(held.public[0], 0)], lambda: None)) == 1
    with pytest.raises(KeyError):
        held.load([(held.public[0], 0), (people.people[1], 0)], lambda: None)


def test_mistakes_cost_nothing(staff, tmp_path, capsys):
    (tmp_path / "there").mkdir()
    for asked in (
        ["reid", "--data", f"folder:{staff}", "--identities", "2", "--out", str(tmp_path / "there")],
        ["reid", "--data", f"folder:{staff}", "--identities", "12"],
        ["attributes", "--data", f"folder:{staff}", "--identities", "2"],
        ["linkage", "--data", f"folder:{staff}", "--identities", "2", "--frames", "2"],
    ):
        assert main(["attack", *asked, *([] if "--out" in asked else ["--out", str(tmp_path / "out")])]) == 2
    assert charges() == []


def test_people_who_teach_nothing_are_not_read(staff, tmp_path):
    people = open_identities(f"folder:{staff}", (64, 64)).chosen(2, 3)
    config = AttackConfig(f"folder:{staff}", attackers=("plain",))
    assert Reidentification(embedder="face.onnx").reads(config, people) == people.first((0, 1), 0, 3)
    assert len(Reidentification().reads(config, people)) == 6 + 11 * 3
    clips = open_identities("synthetic:ward", (64, 64)).chosen(2, 2)
    places = Linkage(frames=2).reads(config, clips)
    who = clips.people[0]
    assert places[:4] == [(who, 0), (who, FRAME), (who, 1), (who, FRAME + 1)]
    assert len(places) == 8
