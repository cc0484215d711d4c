"""A run's statement is bound to its files: whatever is exchanged or rewritten afterwards, `verify_run` names."""

import json
import shutil

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from dots import train
from dpose.privacy.ledger import read_ledger
from dpose.privacy.sections import Query
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.evaluate import record_query
from dpose.runs.group_scores import GroupScore, _record
from dpose.runs.verify import verify_run
from dpose.training.folder import reseal
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from refusals import refused

FAST = OptimizerConfig("adam", lr=0.3, schedule="constant", warmup=0.0)
PLAN = {"epsilon": 8.0, "delta": 1e-4, "steps": 4, "expected_batch_size": 20, "accountant": "rdp"}


@pytest.fixture(scope="module")
def trained(dots, tmp_path_factory):
    """Runs of each kind, in one folder with their state."""
    base = tmp_path_factory.mktemp("sealed")

    def run(name, plan, **options):
        model = dots.task.build_model()
        console = Console(quiet=True)
        folder = base / name
        return train(
            dots.task,
            model,
            private=dots.data(60),
            plan=plan,
            out=folder,
            console=console,
            optimizer=FAST,
            state_dir=base / "state",
            **options,
        )

    run("private", TrainingPlan(**PLAN))
    run("seeded", TrainingPlan(**PLAN), seed=3)
    run("other", TrainingPlan(**PLAN))
    run("none", TrainingPlan(method="non-private", epochs=2, expected_batch_size=20))
    return base


@pytest.fixture
def runs(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    return tmp_path / "runs"


def verified(runs, name="private"):
    return verify_run(runs / name, runs / "state").lines


def rewritten(path, **changes):
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes}))


def test_every_kind_of_run_is_sealed(runs):
    for name in ("private", "seeded", "none"):
        assert any(line.startswith("the seal holds") for line in verified(runs, name))
        assert PrivacyStatement.from_json((runs / name / "privacy.json").read_text()).seal
        # nothing of private data and no path: names of files of the folder, and what the statement says
        assert set(read_ledger(runs / name / "ledger.jsonl")[-1].event) == {"statement", "digests", "first_weights"}


@pytest.mark.parametrize("other", ["other", "none", "seeded"])
def test_other_weights_are_refused(runs, other):
    shutil.copy(runs / other / "model.safetensors", runs / "private" / "model.safetensors")
    with refused("seal-file-altered", where="model.safetensors"):
        verified(runs)


NEIGHBOURS = {"relation": "zero-out", "m": 1, "scope": "unit"}
WORDS = {
    "kind": ("seeded", {"kind": "private"}),
    "unit": ("private", {"unit": "subject"}),
    "scope": ("private", {"neighbours": {**NEIGHBOURS, "scope": "beyond-public-view"}}),
    "relation": ("private", {"neighbours": {**NEIGHBOURS, "relation": "add-or-remove"}}),
    "caveats": ("private", {"caveats": []}),
    "public facts": ("private", {"public": ["nothing"]}),
    "conditions": ("private", {"conditional_on": ["the weather"]}),
    "software": ("private", {"software": {}}),
    "a lower n": ("private", {"n": 59}),
    "a higher epsilon": ("private", {"epsilon": "9.0"}),
    "plan": ("private", {"plan_sha256": "00" * 32}),
    "nothing claimed": ("none", {"caveats": ["trained with love"]}),
}


@pytest.mark.parametrize("what", WORDS)
def test_rewritten_words_are_refused(runs, what):
    name, changes = WORDS[what]
    rewritten(runs / name / "privacy.json", **changes)
    with refused(("ledger-of-other-plan", "seal-value-differs")):
        verified(runs, name)


@pytest.mark.parametrize("file", ["README.md", "config.json", "log.jsonl"])
def test_changed_files_are_refused(runs, file):
    path = runs / "private" / file
    path.write_text(path.read_text().replace("8", "1"))
    with refused("seal-file-altered", where=file):
        verified(runs)


def test_changed_and_added_checkpoints_are_refused(runs):
    (state,) = (runs / "private" / "checkpoints").glob("step-4/state.safetensors")
    tensors = load_file(state)
    save_file({**tensors, "weights/classify.bias": torch.ones(4)}, state)
    with refused("seal-file-altered", where="checkpoints/step-4/state.safetensors"):
        verified(runs)
    shutil.rmtree(runs / "private" / "checkpoints")
    assert any("not checked: checkpoints/step-0" in line for line in verified(runs))  # removed, not changed
    shutil.copytree(runs / "other" / "checkpoints" / "step-4", runs / "private" / "checkpoints" / "step-9")
    with refused("seal-item-added"):
        verified(runs)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "README.md", "ledger.jsonl"])
def test_missing_files_are_refused(runs, file):
    (runs / "private" / file).unlink()
    with refused(("ledger-missing", "sealed-file-missing"), where="missing"):
        verified(runs)


def test_a_seal_that_the_statement_does_not_name_is_noticed(runs):
    path = runs / "private" / "privacy.json"
    values = json.loads(path.read_text())
    head = values.pop("seal")
    path.write_text(json.dumps({**values, "ledger_head": head}))
    with refused("statement-without-seal"):
        verified(runs)
    lines = (runs / "private" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (runs / "private" / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    path.write_text(json.dumps(values))
    with refused("ledger-cut"):  # the head that is kept apart
        verified(runs)
    shutil.rmtree(runs / "state")
    with refused("statement-without-seal"):
        verified(runs)
    with refused("statement-without-seal", where="nothing binds the statement"):
        reseal(runs / "private", lambda _, s: s, state_dir=runs / "state")  # it is not made to look checked


def test_a_plan_that_the_config_does_not_hold_is_refused(runs):
    """A folder whose parts were all sealed again by hand, with another plan in its config."""
    folder = runs / "private"
    config = json.loads((folder / "config.json").read_text())
    config["run"]["plan"]["clip_norm"] = 99.0
    content = json.dumps(config).encode()
    reseal(folder, lambda _, s: s, {"config.json": content}, runs / "state")
    with refused("plan-differs"):
        verified(runs)


def test_a_query_is_followed_by_a_new_seal(runs, monkeypatch):
    monkeypatch.setattr("dpose.privacy.ledger.state_folder", lambda _: runs / "state")
    for name in ("private", "none"):
        folder = runs / name
        before = PrivacyStatement.from_json((folder / "privacy.json").read_text())
        record_query(folder, Query("mean PCKh@0.5", "ward:test, 9 units"))
        after = PrivacyStatement.from_json((folder / "privacy.json").read_text())
        assert after.seal != before.seal
        assert after.queries
        assert "ward:test, 9 units" in (folder / "README.md").read_text()
        verified(runs, name)


def test_results_by_group_are_in_statement_and_card_and_sealed(runs, monkeypatch):
    monkeypatch.setattr("dpose.privacy.ledger.state_folder", lambda _: runs / "state")
    folder, said = (runs / "private", [GroupScore("everybody", 40, 70.0, 61.25), GroupScore("age: child", 31, None, 5)])
    _record(folder, "synthetic:studio:test", said, Console(quiet=True))
    after = PrivacyStatement.from_json((folder / "privacy.json").read_text())
    assert [(r.group, r.units, r.before, r.after) for r in after.results] == [
        ("everybody", "40", "70.0", "61.2"),
        ("age: child", "31", "", "5.0"),
    ]
    assert "age: child (31 units)" in (folder / "README.md").read_text()
    verified(runs)


def test_what_was_altered_is_not_sealed_anew(runs):
    shutil.copy(runs / "other" / "model.safetensors", runs / "private" / "model.safetensors")
    with refused("seal-file-altered", where="model.safetensors"):
        reseal(runs / "private", lambda _, s: s, state_dir=runs / "state")
