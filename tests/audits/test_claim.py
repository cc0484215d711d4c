"""A released model is audited by what was committed to before it was trained, and by nothing else."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import dpose_scene.data as synthetic_module
from clipped import clipped_sum
from dpose.audits.claim import EVERY_COIN, audit_claim, hand_over
from dpose.audits.faults import planted
from dpose.cli import main
from dpose.privacy.canaries import Opening
from dpose.privacy.entries import GENESIS, EntryType, read_ledger
from dpose.privacy.keys import state_folder
from dpose.runs.tasks import task_entry
from dpose.runs.verify import verify_run
from dpose.training.canaries import CanaryTask
from dpose.training.clip import Clip
from dpose.training.gradients import per_unit_gradients, trainable_params
from refusals import command_refused, refused
from small_nano import small_nano  # noqa: F401

COUNT = 60
TRAIN = ["train", "--data", "synthetic:ward", "--limit", "12", "--epochs", "3"]
TRAIN += [
    "--batch-size",
    "32",
    "--epsilon",
    "1",
    "--delta",
    "1e-3",
    "--set",
    "plan.accountant=rdp",
    "--set",
    "data.validation_data=none",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A true model, one whose noise was missing, one with pictures for canaries, and one without any."""
    place = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_module, "SPLITS", {"train": 60, "val": 8, "test": 8, "public": 4})
        # every unit in every step: what is found of the faulty one does not hang on the sample
        many = ["--set", f"canaries.count={COUNT}", "--batch-size", str(12 + COUNT)]
        assert main([*TRAIN, *many, "--out", str(place / "true")]) == 0
        with planted("noise-missing"):
            assert main([*TRAIN, *many, "--out", str(place / "faulty")]) == 0
        asked = ["--set", "canaries.count=20", "--set", "canaries.kind=input"]
        assert main([*TRAIN, *asked, "--out", str(place / "pictures")]) == 0
        for name in ("true", "faulty", "pictures"):
            (place / f"{name}.json").write_text(hand_over(place / name, place / "free").to_json())
        (place / "state").write_text(str(state_folder().parent))
        yield place


def altered(models, tmp_path, name="true"):
    copy = tmp_path / name
    shutil.copytree(models / name, copy)
    return copy


def test_a_true_claim_stands_and_the_control_says_what_could_be_shown(models, tmp_path, capsys):
    asked = ["audit", "claim", str(models / "true"), "--opening", str(models / "true.json")]
    # keys and coins are the operating system's: a level at which the test stands
    assert main([*asked, "--alpha", "1e-4", "--out", str(tmp_path / "report")]) == 0
    assert "not refuted" in capsys.readouterr().out
    assert {"audit.html", "audit.json", "audit.md"} <= {p.name for p in (tmp_path / "report").iterdir()}
    told = json.loads((tmp_path / "report" / "audit.json").read_text())
    assert told["canaries"]["count"] == COUNT
    # as many are guessed in as out: of coins as uneven as once in 70 draws, who knows them all is right too seldom
    uneven = abs(told["canaries"]["included"] - COUNT / 2) > 9
    assert told["controls"][EVERY_COIN]["flagged"] is not uneven
    assert not any("claim" in path.name for path in (models / "true").iterdir())


def test_a_model_without_its_noise_is_refuted(models, capsys):
    asked = ["audit", "claim", str(models / "faulty"), "--opening", str(models / "faulty.json")]
    assert main(asked) == 1
    assert "FLAGGED" in capsys.readouterr().out


def test_canaries_are_said_in_statement_and_ledger_and_their_coins_nowhere(models):
    lines = verify_run(models / "true").lines
    opening = Opening.read(models / "true.json")
    assert any(opening.commitment in line for line in lines)
    statement = verify_run(models / "true").statement
    assert statement.n == 12 + COUNT
    assert "60 gradient canaries were planted" in statement.paragraph()
    coins = "".join("01"[coin] for coin in opening.coins)
    for file in (models / "true").rglob("*.*"):
        if file.is_file():
            content = file.read_bytes()
            assert coins.encode() not in content
            assert opening.salt.hex().encode() not in content
    entries = read_ledger(models / "true" / "ledger.jsonl")
    kinds = [entry.type for entry in entries]
    assert kinds.index(EntryType.CANARIES) < kinds.index(EntryType.RESERVE)


def test_input_canaries_are_rendered_again(models, capsys):
    report = audit_claim(models / "pictures", models / "pictures.json", alpha=1e-4)
    assert not report.findings.flagged
    assert len(report.findings.points) > 0
    values = json.loads((models / "pictures.json").read_text())
    assert len(values["before"]) == 2 * len(values["coins"])


def test_without_coins_that_were_committed_to_nobody_can_audit(models, tmp_path, capsys):
    command_refused(capsys, ["audit", "claim", str(models / "true")], "--opening", "a model cannot be audited")
    assert main([*TRAIN, "--epochs", "1", "--out", str(tmp_path / "none")]) == 0
    opening = ["--opening", str(models / "true.json")]
    command_refused(capsys, ["audit", "claim", str(tmp_path / "none"), *opening], "a model cannot be audited")
    command_refused(capsys, ["audit", "opening", str(tmp_path / "none"), "--out", "x"], "a model cannot be audited")


def test_another_opening_is_refused(models, tmp_path, capsys):
    claim = ["audit", "claim", str(models / "true"), "--opening"]
    command_refused(capsys, [*claim, str(models / "faulty.json")], "[opening-does-not-fit]")
    values = json.loads((models / "true.json").read_text())
    values["coins"] = values["coins"].translate(str.maketrans("01", "10"))
    (tmp_path / "turned.json").write_text(json.dumps(values))
    command_refused(capsys, [*claim, str(tmp_path / "turned.json")], "[opening-does-not-fit]")
    command_refused(capsys, [*claim, str(tmp_path / "nowhere.json")], "[file-missing]")
    command_refused(capsys, [*claim, str(models / "true" / "config.json")], "[opening-invalid]")
    known = ["--commitment", "00" * 32]
    command_refused(capsys, [*claim, str(models / "true.json"), *known], "[commitment-differs]")
    same = ["--alpha", "1e-4", "--commitment", Opening.read(models / "true.json").commitment]
    assert main([*claim, str(models / "true.json"), *same]) == 0


def rehashed(path, change):
    """A ledger with other lines and a whole chain; `change` edits the entries."""
    lines, prev = [], GENESIS
    for seq, entry in enumerate(change(read_ledger(path))):
        new = replace(entry, seq=seq, prev=prev).sealed()
        lines.append(new.line())
        prev = new.sha256
    path.write_bytes(b"".join(lines))
    return prev


def test_a_changed_folder_is_refused(models, tmp_path, capsys):
    copy = altered(models, tmp_path)
    statement = json.loads((copy / "privacy.json").read_text())
    statement["canaries"]["commitment"] = "ab" * 32
    (copy / "privacy.json").write_text(json.dumps(statement))
    command_refused(capsys, ["verify", str(copy)], "canaries")
    claim = ["audit", "claim", str(copy), "--opening", str(models / "true.json")]
    command_refused(capsys, claim, "canaries")


@pytest.mark.parametrize("late", [False, True], ids=["another", "after the first step"])
def test_a_commitment_that_was_made_afterwards_is_noticed(models, tmp_path, late):
    copy = altered(models, tmp_path)
    other = Opening.drawn("gradient", COUNT, {}, [0.0] * COUNT).committed.to_dict()

    def change(entries):
        if not late:
            for entry in entries:
                yield replace(entry, event=other) if entry.type is EntryType.CANARIES else entry
            return
        *first, seal = entries
        planted_ = next(entry for entry in first if entry.type is EntryType.CANARIES)
        yield from (entry for entry in first if entry is not planted_)
        yield planted_
        yield seal

    head = rehashed(copy / "ledger.jsonl", change)
    entries = read_ledger(copy / "ledger.jsonl")
    statement = json.loads((copy / "privacy.json").read_text())
    statement.update(seal=head, ledger_head=entries[-2].sha256)
    (copy / "privacy.json").write_text(json.dumps(statement))
    # of another machine, which has not seen the true head
    with refused("canaries-committed-late" if late else "statement-canaries-differ"):
        verify_run(copy, tmp_path / "state")


def test_a_run_that_goes_on_needs_the_canaries_that_it_began_with(models, tmp_path, monkeypatch):
    from dpose.runs.canaries import _begun

    monkeypatch.setenv("XDG_STATE_HOME", (models / "state").read_text())
    run = read_ledger(models / "true" / "ledger.jsonl")[0].run_id
    assert _begun(models / "true") == Opening.read(models / "true.json")
    assert _begun(tmp_path) is None
    file = state_folder() / "canaries" / f"{run}.json"
    content = file.read_bytes()
    file.unlink()
    try:
        with refused("opening-missing"):
            _begun(models / "true")
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "canaries.count=5"], "canaries.count"),
        (["--set", "canaries.count=40", "--set", "seed=1"], "a seeded run claims nothing"),
        (["--set", "canaries.count=40", "--method", "non-private"], "show nothing of non-private"),
        (
            ["--set", "canaries.count=40", "--set", "plan.relation=add-or-remove", "--set", "plan.nominal_units=12"],
            "use zero-out",
        ),
        (["--set", "canaries.kind=input"], "canaries.count"),
        (["--set", "canaries.count=40000"], "plant at most"),
        (["--set", "canaries.count=500", "--set", "canaries.kind=input"], "plant at most"),
    ],
)
def test_canaries_that_show_nothing_are_refused(options, words, capsys, tmp_path):
    command_refused(capsys, [*TRAIN, *options, "--out", str(tmp_path / "run")], words)


def test_a_canary_adds_the_clipping_norm_at_its_own_weight_and_nothing_where_it_is_out(dots):
    from dpose.training.canaries import CanaryUnits, GradientCanaries

    task = CanaryTask(dots.task, "classify.weight")
    real = dots.data(3)
    blank = real.load(0, None)[0]
    included = np.array([True, False, True])
    canaries = GradientCanaries(included, blank, Clip(0.5), coordinates=[7, 2, 11])
    units = CanaryUnits(real, canaries, name="run ")
    model = dots.task.build_model()
    params = trainable_params(model)
    batch = task.collate([units.load(i, np.random.default_rng(0)) for i in range(3, 6)])
    summed = clipped_sum(task, model, params, batch, Clip(0.5))
    expected = np.zeros(16)
    expected[[7, 11]] = 0.5
    assert summed["classify.weight"].flatten().numpy() == pytest.approx(expected, abs=1e-4)
    assert not summed["classify.bias"].any()
    # a real unit's gradient is its own
    own = [units.load(i, np.random.default_rng(0)) for i in range(3)]
    plain = [real.load(i, np.random.default_rng(0)) for i in range(3)]
    with_canaries = per_unit_gradients(task, model, params, task.collate(own))
    without = per_unit_gradients(dots.task, model, params, task.collate(plain))
    for name in params:
        assert with_canaries[name].numpy() == pytest.approx(without[name].numpy(), abs=1e-6)
    assert units.content_hashes(3) != CanaryUnits(real, canaries, name="other ").content_hashes(3)


def test_tasks_without_pictures_have_no_input_canaries():
    assert task_entry("action").canary_views is None
    assert task_entry("pose").canary_views is not None
