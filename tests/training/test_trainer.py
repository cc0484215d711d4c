"""Whole runs of the second task: they learn, they claim what they spent, and they leak nothing else."""

import io
import json
import os
import shutil
import signal
import stat

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from dots import LinearMotion, train
from dpose.account import charges
from dpose.errors import DposeError
from dpose.files import write_atomic
from dpose.privacy.ledger import read_ledger, spent
from dpose.privacy.noise import AesNoise
from dpose.privacy.protected import DATA
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.runs.verify import verify_run
from dpose.training.distributed import ProcessGroup
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.validation import metric_of_views
from quick import quick  # noqa: F401
from refusals import refused

FAST = OptimizerConfig("adam", lr=0.3, schedule="constant", warmup=0.0)


@pytest.fixture
def quiet(tmp_path):
    with (tmp_path / "printed.txt").open("w") as file:
        yield Console(file=file, width=100)


def private_plan(**changes):
    # RDP answers at once; what PLD says is tested where the accountants are
    settings = {"epsilon": 8.0, "delta": 1e-4, "steps": 40, "expected_batch_size": 60, "accountant": "rdp"}
    return TrainingPlan(**{**settings, **changes})


def run(dots, out, console, plan=None, n=240, **options):
    model = dots.task.build_model()
    options = {"optimizer": FAST, "state_dir": out.parent / "state", **options}
    plan = plan or private_plan()
    return train(dots.task, model, private=dots.data(n), plan=plan, out=out, console=console, **options)


def accuracy(dots, model):
    return metric_of_views(dots.task, model, dots.data(100, seed=9)).accuracy


def test_a_private_run_learns_and_adds_up(dots, tmp_path, quiet):
    before = accuracy(dots, dots.task.build_model())
    done = run(dots, tmp_path / "run", quiet)
    assert accuracy(dots, done.model) > 0.9 > before + 0.2
    assert done.statement.kind is Kind.PRIVATE
    assert 7.9 < done.statement.epsilon <= 8.0
    found = verify_run(tmp_path / "run", tmp_path / "state")
    assert found.spent == pytest.approx(done.statement.epsilon, rel=1e-9)
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "model.safetensors",
        "config.json",
        "privacy.json",
        "README.md",
        "ledger.jsonl",
        "log.jsonl",
        "checkpoints",
        ".lock",
        ".ledger.jsonl.lock",
    }


def test_a_large_delta_is_warned_of(dots, tmp_path):
    for delta in (1e-3, 1e-4):
        said = Console(file=io.StringIO(), width=100)
        run(dots, tmp_path / f"run-{delta}", said, private_plan(delta=delta, steps=1))
        assert ("Warning: delta 0.001 is above 1/(10 n)" in said.file.getvalue()) == (delta == 1e-3)


def test_what_is_said_before_a_run_is_wrapped(dots, tmp_path):
    said = Console(file=io.StringIO(), width=60)
    run(dots, tmp_path / "run", said, private_plan(delta=5e-3, steps=1), n=40)
    told = said.file.getvalue()
    assert "Warning: delta 0.005" in told
    assert "The batch size 60 is larger than the 40 units" in told
    assert max(map(len, told.splitlines())) <= 60


def test_a_run_without_guarantee_claims_none(dots, tmp_path, quiet):
    plan = TrainingPlan(method="non-private", epochs=10, expected_batch_size=60, ema_decay=0.5)
    done = run(dots, tmp_path / "run", quiet, plan)
    assert accuracy(dots, done.model) > 0.9
    assert done.statement.kind is Kind.NONE
    assert done.statement.epsilon is None
    kinds = [entry.type.value for entry in read_ledger(tmp_path / "run" / "ledger.jsonl")]
    assert kinds == ["open", "seal"]  # nothing was reserved; what the artefact is stands there
    losses = [json.loads(line).get("loss") for line in (tmp_path / "run" / "log.jsonl").open()]
    losses = [loss for loss in losses if loss is not None]
    assert losses[-1] < losses[0]


def test_nothing_un_noised_is_logged_or_saved_or_printed(dots, tmp_path, quiet):
    run(dots, tmp_path / "run", quiet)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").open()]
    assert [line["type"] for line in lines].count("step") == 40
    for line in lines:
        if line["type"] == "step":
            assert set(line) == {"type", "step", "lr", "noisy_gradient_norm", "update"}
        else:
            assert line["type"] == "start"
    everything = "".join(
        p.read_text(errors="replace")
        for p in (tmp_path / "run").rglob("*")
        if p.is_file() and p.suffix != ".safetensors"
    )
    quiet.file.flush()
    everything += (tmp_path / "printed.txt").read_text()
    for word in ("loss", "clipped_share", "batch_sizes", "recording-"):
        assert word not in everything.replace("privacy loss", "").replace("private_loss", "")
    for view in dots.data(240).views[:5]:
        for hashed in dots.data(240).content_hashes(0):
            assert hashed not in everything
        assert view[0].image.tobytes() not in (tmp_path / "run" / "model.safetensors").read_bytes()


def test_the_logged_norm_is_of_the_noisy_gradient(dots, tmp_path, quiet, monkeypatch):
    import dpose.training.step as step

    real = step.add_gaussian
    monkeypatch.setattr(step, "add_gaussian", lambda *a: {k: v + 1e4 for k, v in real(*a).items()})
    run(dots, tmp_path / "run", quiet, private_plan(steps=2))
    norms = [json.loads(line).get("noisy_gradient_norm", 1e9) for line in (tmp_path / "run" / "log.jsonl").open()]
    assert min(norms) > 100


def test_fresh_keys_give_different_weights_and_the_key_is_nowhere(dots, tmp_path, quiet, monkeypatch):
    secrets = []
    real = AesNoise.__init__

    def spy(self, key):
        secrets.append(key.secret)
        real(self, key)

    monkeypatch.setattr(AesNoise, "__init__", spy)
    first, second = run(dots, tmp_path / "a", quiet), run(dots, tmp_path / "b", quiet)
    assert not torch.equal(first.model.classify.weight, second.model.classify.weight)
    for folder in (tmp_path / "a", tmp_path / "b", tmp_path / "state"):
        for path in folder.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                for secret in secrets:
                    assert secret not in content
                    assert secret.hex().encode() not in content


def test_a_seed_reproduces_and_takes_the_guarantee_away(dots, tmp_path, quiet):
    first, second = (run(dots, tmp_path / name, quiet, seed=7) for name in "ab")
    assert torch.equal(first.model.classify.weight, second.model.classify.weight)
    assert first.statement.kind is Kind.SEEDED
    assert "no guarantee" in first.statement.paragraph().lower() or "nothing" in first.statement.paragraph().lower()


def test_another_plan_or_other_data_draws_otherwise_under_the_same_seed(dots, tmp_path, quiet, monkeypatch):
    import dpose.training.step as step

    samples = []
    real = step.poisson_batch
    monkeypatch.setattr(step, "poisson_batch", lambda *a: samples.append(real(*a)) or samples[-1])
    run(dots, tmp_path / "a", quiet, private_plan(steps=1), seed=7)
    run(dots, tmp_path / "b", quiet, private_plan(steps=1, clip_norm=0.5), seed=7)
    run(dots, tmp_path / "c", quiet, private_plan(steps=1), seed=7)
    assert samples[0].tolist() == samples[2].tolist() != samples[1].tolist()


def test_steps_are_reserved_before_they_sample(dots, tmp_path, quiet, monkeypatch):
    """The ledger on disk covers every sampled step at the moment it samples."""
    import dpose.training.step as step

    real, taken = step.poisson_batch, []

    def watched(*arguments):
        taken.append(1)
        reserved = sum(e.steps for e in read_ledger(tmp_path / "run" / "ledger.jsonl") if e.type == "reserve")
        assert reserved >= len(taken)
        return real(*arguments)

    monkeypatch.setattr(step, "poisson_batch", watched)
    run(dots, tmp_path / "run", quiet)
    assert len(taken) == 40
    assert sum(e.steps for e in spent(read_ledger(tmp_path / "run" / "ledger.jsonl"))) == 40


def test_a_crash_leaves_its_reservation_spent_and_no_model(dots, tmp_path, quiet, monkeypatch):
    import dpose.training.step as step

    real, taken = step.poisson_batch, []

    def failing(*arguments):
        taken.append(1)
        if len(taken) == 4:
            raise DposeError("picture-undecodable", "unreadable", "picture.jpg")
        return real(*arguments)

    monkeypatch.setattr(step, "poisson_batch", failing)
    with refused("picture-undecodable", where="picture.jpg"):
        run(dots, tmp_path / "run", quiet)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert sum(e.steps for e in spent(read_ledger(tmp_path / "run" / "ledger.jsonl"))) == 4


def test_ctrl_c_finishes_the_step_and_keeps_the_whole_claim(dots, tmp_path, quiet, monkeypatch):
    import dpose.training.step as step

    real, taken = step.poisson_batch, []

    def interrupting(*arguments):
        taken.append(1)
        if len(taken) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(step, "poisson_batch", interrupting)
    handler = signal.getsignal(signal.SIGINT)
    done = run(dots, tmp_path / "run", quiet)
    assert signal.getsignal(signal.SIGINT) is handler
    assert (done.interrupted, done.steps) == (True, 5)
    # whatever made somebody stop, the first steps are post-processing of all: the plan's epsilon stands
    assert done.statement.epsilon > 7.9
    assert any("stopped after 5 of 40" in c for c in done.statement.caveats)
    assert verify_run(tmp_path / "run", tmp_path / "state").spent < done.statement.epsilon
    assert (tmp_path / "run" / "checkpoints" / "step-5").exists()


def test_average_is_what_is_released(dots, tmp_path, quiet):
    plain = run(dots, tmp_path / "a", quiet, seed=1)
    averaged = run(dots, tmp_path / "b", quiet, private_plan(ema_decay=0.9), seed=1)
    assert not torch.equal(plain.model.classify.weight, averaged.model.classify.weight)
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "b" / "checkpoints" / "step-40" / "state.safetensors")
    assert torch.equal(saved["average/classify.weight"], averaged.model.classify.weight)
    assert not torch.equal(saved["weights/classify.weight"], averaged.model.classify.weight)


def test_batch_normalisation_is_refused_where_data_is_private(dots, tmp_path, quiet):
    model = dots.task.build_model()
    model.norm = torch.nn.BatchNorm1d(4)
    with refused("batchnorm-mixes-units", where="norm"):
        train(dots.task, model, private=dots.data(60), plan=private_plan(), out=tmp_path / "run", console=quiet)
    assert not (tmp_path / "run").exists()


def test_nothing_trainable_is_refused(dots, tmp_path, quiet):
    model = dots.task.build_model().requires_grad_(False)
    with refused("trainable-parameters-missing"):
        train(dots.task, model, private=dots.data(9), plan=private_plan(), out=tmp_path / "run", console=quiet)


def test_an_existing_folder_is_refused_and_left_alone(dots, tmp_path, quiet):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep")
    with refused("output-exists"):
        run(dots, tmp_path / "run", quiet)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_folder_whose_run_was_removed_takes_another_one(dots, tmp_path, quiet):
    """The account still names it there; only a run that is to go on is asked for its ledger."""
    run(dots, tmp_path / "run", quiet, private_plan(steps=2))
    shutil.rmtree(tmp_path / "run")
    run(dots, tmp_path / "run", quiet, private_plan(steps=2))
    first, second = charges(tmp_path / "state")
    assert first.id != second.id
    assert first.folder == second.folder
    verify_run(tmp_path / "run", tmp_path / "state")


def test_processes_are_held_to_one_run_before_anything_is_charged_or_written(dots, tmp_path, quiet, monkeypatch):
    told = []

    class Differing(ProcessGroup):
        def agree(self, digests):
            told.append(dict(digests))
            if "the plan" in digests:
                raise DposeError("processes-differ", "they differ")

    monkeypatch.setattr("dpose.training.trainer.process_group", Differing)
    for plan in (private_plan(steps=2), private_plan(steps=2, clip_norm=2.0)):
        for seed in (None, 3):
            with pytest.raises(DposeError):
                run(dots, tmp_path / "run", quiet, plan, seed=seed)
    assert not (tmp_path / "run").exists()
    assert charges(tmp_path / "state") == []
    held = [digests for digests in told if "the plan" in digests]
    assert len(held) == 4
    assert all(len(digest) == 32 for digests in held for digest in digests.values())
    same = {name: [digests[name] == held[0][name] for digests in held] for name in held[0]}
    assert same == {
        DATA: [True, True, True, True],
        "the plan": [True, True, False, False],
        "the settings": [True, False, True, False],
        "the code": [True, True, True, True],
    }


def test_unreadable_data_is_found_before_anything_is_written(dots, tmp_path, quiet):
    class Broken(dots.data):
        def content_hashes(self, index):
            if index == 3:
                raise DposeError("picture-cut-short", "truncated", "im3.jpg", "restore it")
            return super().content_hashes(index)

    with refused("picture-cut-short", where="im3.jpg"):
        train(
            dots.task,
            dots.task.build_model(),
            private=Broken(60),
            plan=private_plan(),
            out=tmp_path / "run",
            console=quiet,
        )
    assert not (tmp_path / "run").exists()


def test_divergence_is_one_line(dots, tmp_path, quiet):
    plan = TrainingPlan(method="non-private", steps=5, expected_batch_size=60)
    model = dots.task.build_model()
    torch.nn.init.constant_(model.classify.weight, float("inf"))
    with refused("training-diverged", where="step 1"):
        train(dots.task, model, private=dots.data(9), plan=plan, out=tmp_path / "run", console=quiet)


def test_weights_that_layers_share_are_trained_and_saved(dots, tmp_path, quiet):
    class Twice(LinearMotion):
        def __init__(self):
            super().__init__()
            self.again = torch.nn.Linear(4, 4)
            self.again.weight = self.classify.weight

        def forward(self, inputs):
            return self.again(super().forward(inputs))

    train(dots.task, Twice(), private=dots.data(60), plan=private_plan(), out=tmp_path / "run", console=quiet)
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert torch.equal(saved["classify.weight"], saved["again.weight"])
    verify_run(tmp_path / "run")


def test_weights_that_are_not_finite_end_a_private_run(dots, tmp_path, quiet):
    """Clipped gradients stay finite whatever the weights are."""
    fast = OptimizerConfig("sgd", lr=3e38, schedule="constant", warmup=0.0)
    model = dots.task.build_model()
    torch.nn.init.constant_(model.classify.weight, 3.4e38)  # noise takes some of them over the largest number
    given = {"plan": private_plan(), "out": tmp_path / "run", "optimizer": fast, "console": quiet}
    with refused("training-diverged", where="step 1"):
        train(dots.task, model, private=dots.data(60), **given)


def test_no_space_left(dots, tmp_path, quiet, monkeypatch):
    real = os.write

    def full(descriptor, data):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with refused("disk-full"):
        run(dots, tmp_path / "run", quiet)
    monkeypatch.undo()
    assert not (tmp_path / "run" / "privacy.json").exists()


def test_atomic_writing_leaves_the_old_file_when_the_disk_is_full(tmp_path, monkeypatch):
    path = tmp_path / "privacy.json"
    write_atomic(path, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused("disk-full", where="privacy.json"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["privacy.json"]


def test_the_statement_on_disk_is_the_runs(dots, tmp_path, quiet):
    done = run(dots, tmp_path / "run", quiet)
    assert PrivacyStatement.from_json((tmp_path / "run" / "privacy.json").read_text()) == done.statement
    assert done.statement.paragraph() in (tmp_path / "run" / "README.md").read_text()


class TestResume:
    PLAN = TrainingPlan(method="non-private", steps=40, expected_batch_size=50, ema_decay=0.9)

    def stopped(self, dots, out, quiet, monkeypatch, after=17):
        import dpose.training.step as step

        real, taken = step.plain_gradient, []

        def interrupting(*arguments):
            taken.append(1)
            if len(taken) == after:
                os.kill(os.getpid(), signal.SIGINT)
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(step, "plain_gradient", interrupting)
            done = run(dots, out, quiet, self.PLAN, seed=5)
        assert (done.interrupted, done.steps) == (True, after)

    def test_a_resumed_run_ends_where_an_unbroken_one_does(self, dots, tmp_path, quiet, monkeypatch):
        whole = run(dots, tmp_path / "whole", quiet, self.PLAN, seed=5)
        self.stopped(dots, tmp_path / "run", quiet, monkeypatch)
        done = run(dots, tmp_path / "run", quiet, self.PLAN, seed=5, resume=True)
        assert (done.interrupted, done.steps) == (False, 40)
        assert torch.equal(done.model.classify.weight, whole.model.classify.weight)
        lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").open()]
        assert [line["step"] for line in lines if line["type"] == "step"] == list(range(1, 41))
        assert [line["step"] for line in lines if line["type"] == "resume"] == [17]
        assert done.statement.caveats == ()

    def test_another_plan_is_refused(self, dots, tmp_path, quiet, monkeypatch):
        self.stopped(dots, tmp_path / "run", quiet, monkeypatch)
        other = TrainingPlan(method="non-private", steps=41, expected_batch_size=50, ema_decay=0.9)
        with refused("checkpoint-of-other-plan"):
            run(dots, tmp_path / "run", quiet, other, seed=5, resume=True)

    def test_there_must_be_something_to_resume(self, dots, tmp_path, quiet):
        with refused("run-missing"):
            run(dots, tmp_path / "run", quiet, self.PLAN, resume=True)

    @pytest.mark.parametrize("plan", [PLAN, None], ids=["non-private", "private"])
    def test_a_finished_run_is_not_resumed(self, dots, tmp_path, quiet, plan):
        run(dots, tmp_path / "run", quiet, plan)
        before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
        with refused("run-finished", where="finished"):
            run(dots, tmp_path / "run", quiet, plan, resume=True)
        assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_what_is_returned_holds_neither_key_nor_data(dots, tmp_path, quiet):
    """A run may be pickled, printed and kept for long: it has what may be shown and nothing else."""
    done = run(dots, tmp_path / "run", quiet, private_plan(steps=2))
    assert set(vars(done)) == {"folder", "model", "statement", "steps", "ended"}
    assert (done.folder, done.steps, done.interrupted) == (tmp_path / "run", 2, False)
    assert not done.model.training
