"""What a run saves at a step boundary: a closed list, in files that hold numbers and never code.

A checkpoint holds the weights, their average, the optimizer's state (fed by noisy gradients only), the public subspace,
what the method keeps (of the same gradients), the step, a digest of the updates so far and the ledger's head. No
partial sum, no sample, no key.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dpose.errors import DposeError
from dpose.files import file_digest, file_json, folder_beside, fsync_folder, write_atomic
from dpose.training.subspace import Subspace

KEEP = 2
STATE, SUBSPACE = "state.safetensors", "subspace.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """The state after `step` steps.

    Attributes:
        step: Steps done.
        weights: Trainable parameters by name.
        average: Their moving average by name.
        average_updates: How many steps the average has seen.
        optimizer: As `torch.optim.Optimizer.state_dict()`.
        schedule: As the schedule's `state_dict()`.
        ledger_head: Hash of the ledger's last line; empty without a ledger.
        plan_sha256: Digest of the plan.
        chain: Digest of all updates so far; empty where draws do not depend on it.
        subspace: What updates are projected onto; None without.
        fitted: The step the subspace was fitted at.
        method: What the method keeps from step to step, by name.
    """

    step: int
    weights: dict[str, Tensor]
    average: dict[str, Tensor]
    average_updates: int
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    ledger_head: str
    plan_sha256: str
    chain: bytes = b""
    subspace: Subspace | None = None
    fitted: int = 0
    method: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(run: Path, checkpoint: Checkpoint) -> Path:
    """Write `run/checkpoints/step-N`, beside first and then renamed; older ones than the last two are removed."""
    tensors = {f"weights/{n}": t for n, t in checkpoint.weights.items()}
    tensors |= {f"average/{n}": t for n, t in checkpoint.average.items()}
    tensors |= {f"method/{n}": t for n, t in checkpoint.method.items()}
    scalars: dict[str, dict[str, Any]] = {}
    for index, state in checkpoint.optimizer["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{index}/{name}"] = value
            else:
                scalars.setdefault(str(index), {})[name] = value
    described = {
        "schema": 1,
        "step": checkpoint.step,
        "average_updates": checkpoint.average_updates,
        "optimizer_scalars": scalars,
        "param_groups": checkpoint.optimizer["param_groups"],
        "schedule": {k: v for k, v in checkpoint.schedule.items() if k != "lr_lambdas"},
        "ledger_head": checkpoint.ledger_head,
        "plan_sha256": checkpoint.plan_sha256,
        "chain": checkpoint.chain.hex(),
    }
    target = run / "checkpoints" / f"step-{checkpoint.step}"
    before = checkpoints(run)
    if target in before:
        shutil.rmtree(target)  # of a run that went on from further back
        before.remove(target)
    with folder_beside(target) as folder:
        digests = {STATE: _write_tensors(folder / STATE, tensors)}
        subspace = checkpoint.subspace
        if subspace is not None:
            numbers = {k: v for k, v in vars(subspace).items() if k != "basis"}
            described["subspace"] = {**numbers, "fitted": checkpoint.fitted}
            digests[SUBSPACE] = _same_subspace(before, described["subspace"], folder) or _write_tensors(
                folder / SUBSPACE, subspace.basis
            )
        write_atomic(folder / "state.json", json.dumps({**described, "sha256": digests}, indent=1))
    old = before[: 1 - KEEP]
    for one in old:
        shutil.rmtree(one, ignore_errors=True)
    if old:  # one that a power cut brought back would stand in the folder of a run that was sealed without it
        fsync_folder(target.parent)
    return target


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> str:
    """Write and return the file's hash. Not in one piece of memory: a subspace may take a gigabyte."""
    save_file({n: t.detach().cpu().contiguous() for n, t in tensors.items()}, path)
    return file_digest(path)


def _same_subspace(before: list[Path], numbers: dict[str, Any], folder: Path) -> str | None:
    """Link the last checkpoint's subspace into `folder`, if it is the same one; its hash."""
    for last in before[-1:]:
        try:
            described = file_json(last / "state.json")
            if described.get("subspace") == numbers:
                os.link(last / SUBSPACE, folder / SUBSPACE)
                return str(described["sha256"][SUBSPACE])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # another file system, perhaps: it is written again
    return None


def checkpoints(run: Path) -> list[Path]:
    """The run's checkpoints, oldest first."""
    found = (run / "checkpoints").glob("step-*")
    return sorted((p for p in found if p.name[5:].isdigit()), key=lambda p: int(p.name[5:]))


def is_whole(run: Path) -> bool:
    """True if the model in a run folder is that of its plan's last step; False for one that was stopped before."""
    try:
        steps = int(file_json(run / "config.json")["run"]["bound"]["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    found = checkpoints(run)
    return bool(found) and int(found[-1].name[5:]) >= steps and (run / "model.safetensors").exists()


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint back."""
    try:
        described = file_json(folder / "state.json")
        for name, digest in described["sha256"].items():
            if file_digest(folder / name) != digest:
                raise ValueError(f"{name} is not as it was written")
        tensors = load_file(folder / STATE)
        parts: dict[str, dict[str, Tensor]] = {"weights": {}, "average": {}, "method": {}}
        state: dict[int, dict[str, Any]] = {
            int(i): dict(values) for i, values in described["optimizer_scalars"].items()
        }
        for name, tensor in tensors.items():
            part, rest = name.split("/", 1)
            if part == "optimizer":
                index, key = rest.split("/", 1)
                state.setdefault(int(index), {})[key] = tensor
            else:
                parts[part][rest] = tensor
        subspace, fitted = None, 0
        if "subspace" in described:
            numbers = dict(described["subspace"])
            fitted = numbers.pop("fitted")
            subspace = Subspace(load_file(folder / SUBSPACE), **numbers)
        return Checkpoint(
            step=described["step"],
            weights=parts["weights"],
            average=parts["average"],
            average_updates=described["average_updates"],
            optimizer={"state": state, "param_groups": described["param_groups"]},
            schedule={**described["schedule"], "lr_lambdas": [None]},
            ledger_head=described["ledger_head"],
            plan_sha256=described["plan_sha256"],
            chain=bytes.fromhex(described["chain"]),
            subspace=subspace,
            fitted=fitted,
            method=parts["method"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise DposeError(
            "checkpoint-broken", f"broken checkpoint ({error})", str(folder), "use an earlier one"
        ) from error


def last_checkpoint(run: Path, console: Console) -> Checkpoint | None:
    """The newest checkpoint that can be read; says which ones cannot. None if there is none."""
    problem: DposeError | None = None
    for folder in reversed(checkpoints(run)):
        try:
            return load_checkpoint(folder)
        except DposeError as error:
            problem = error
            console.print(f"Passed over: {error}", highlight=False, soft_wrap=True)
    if problem:
        raise problem
    return None


def apply_checkpoint(
    checkpoint: Checkpoint,
    params: dict[str, Tensor],
    average: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> None:
    """Copy the saved state into a run's live objects."""
    if {n: t.shape for n, t in checkpoint.weights.items()} != {n: t.shape for n, t in params.items()}:
        raise DposeError("checkpoint-of-other-model", "the checkpoint's weights do not fit this model")
    with torch.no_grad():
        for name, value in checkpoint.weights.items():
            params[name].copy_(value)
        for name, value in checkpoint.average.items():
            average[name].copy_(value)
    optimizer.load_state_dict(checkpoint.optimizer)
    schedule.load_state_dict(checkpoint.schedule)
