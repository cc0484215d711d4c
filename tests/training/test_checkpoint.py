"""Checkpoints: what goes in comes out, and a broken one is refused in one line."""

import pytest
import torch

from dpose.training import checkpoint
from dpose.training.checkpoint import Checkpoint, apply_checkpoint, checkpoints, load_checkpoint, save_checkpoint
from dpose.training.optim import OptimizerConfig
from refusals import refused


def trained(steps=3):
    torch.manual_seed(0)
    params = {"a": torch.nn.Parameter(torch.randn(3, 2)), "b": torch.nn.Parameter(torch.randn(2))}
    optimizer, schedule = OptimizerConfig("adamw").build(params.values(), 10)
    for _ in range(steps):
        for p in params.values():
            p.grad = torch.randn_like(p)
        optimizer.step()
        schedule.step()
    return params, optimizer, schedule


def checkpoint_of(params, optimizer, schedule, step=3):
    weights = {n: p.detach() for n, p in params.items()}
    average = {n: p.detach() * 2 for n, p in params.items()}
    return Checkpoint(step, weights, average, 3, optimizer.state_dict(), schedule.state_dict(), "ab" * 32, "cd" * 32)


def test_round_trip_continues_exactly(tmp_path):
    params, optimizer, schedule = trained()
    folder = save_checkpoint(tmp_path, checkpoint_of(params, optimizer, schedule))
    loaded = load_checkpoint(folder)
    assert (loaded.step, loaded.ledger_head, loaded.plan_sha256) == (3, "ab" * 32, "cd" * 32)

    fresh, optimizer2, schedule2 = trained(0)
    average = {n: torch.zeros_like(p) for n, p in fresh.items()}
    apply_checkpoint(loaded, {n: p.data for n, p in fresh.items()}, average, optimizer2, schedule2)
    torch.testing.assert_close(average["a"], params["a"].detach() * 2, rtol=0, atol=0)
    for which in ((params, optimizer, schedule), (fresh, optimizer2, schedule2)):
        for p in which[0].values():
            p.grad = torch.ones_like(p)
        which[1].step()
        which[2].step()
    for name in params:
        assert torch.equal(params[name], fresh[name])
    assert schedule.get_last_lr() == schedule2.get_last_lr()


def test_only_the_last_two_are_kept_in_numeric_order(tmp_path):
    state = trained()
    for step in (8, 9, 10, 100):
        save_checkpoint(tmp_path, checkpoint_of(*state, step=step))
    assert [p.name for p in checkpoints(tmp_path)] == ["step-10", "step-100"]


def test_what_is_removed_stays_removed_after_a_power_cut(tmp_path, monkeypatch):
    """Otherwise it is there again in the folder of a run that was sealed without it."""
    state, synced = trained(), []
    for step in (8, 9):
        save_checkpoint(tmp_path, checkpoint_of(*state, step=step))
    monkeypatch.setattr(
        checkpoint, "fsync_folder", lambda folder: synced.append(sorted(p.name for p in folder.iterdir()))
    )
    save_checkpoint(tmp_path, checkpoint_of(*state, step=10))
    assert synced == [["step-10", "step-9"]]


@pytest.mark.parametrize("damage", ["truncated", "missing", "not json"])
def test_a_broken_checkpoint_is_refused(tmp_path, damage):
    folder = save_checkpoint(tmp_path, checkpoint_of(*trained()))
    if damage == "truncated":
        path = folder / "state.safetensors"
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "missing":
        (folder / "state.safetensors").unlink()
    else:
        (folder / "state.json").write_text("{")
    with refused("checkpoint-broken"):
        load_checkpoint(folder)


def test_another_models_checkpoint_is_refused(tmp_path):
    params, optimizer, schedule = trained()
    loaded = load_checkpoint(save_checkpoint(tmp_path, checkpoint_of(params, optimizer, schedule)))
    with refused("checkpoint-of-other-model"):
        apply_checkpoint(loaded, {"a": torch.zeros(1)}, {}, optimizer, schedule)


def test_the_list_of_what_is_saved_is_closed(tmp_path):
    """No sample, no partial sum, no key: only these names may stand in a checkpoint."""
    import json

    folder = save_checkpoint(tmp_path, checkpoint_of(*trained()))
    assert sorted(p.name for p in folder.iterdir()) == ["state.json", "state.safetensors"]
    assert set(json.loads((folder / "state.json").read_text())) == {
        "schema",
        "step",
        "average_updates",
        "optimizer_scalars",
        "param_groups",
        "schedule",
        "ledger_head",
        "plan_sha256",
        "chain",
        "sha256",
    }
    from safetensors import safe_open

    with safe_open(folder / "state.safetensors", "pt") as file:
        assert {name.split("/")[0] for name in file.keys()} == {"weights", "average", "optimizer"}  # noqa: SIM118
