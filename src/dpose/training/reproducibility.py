"""What the bits of a step depend on besides its plan, its data and its key.

A step is taken again under its old key only where its result is the same to the last bit. Where anything here has
changed, gradients may differ in their rounding, and the same noise on two of them would show the difference.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpose.errors import DposeError
from dpose.extensions import source_files
from dpose.files import file_bytes
from dpose.training.arithmetic import MKL_OFF, arithmetic_in_force, bits_of, mkl_branch, moved, products_repeat
from dpose.training.distributed import ProcessGroup
from dpose.training.gradients import Params

MICRO_BATCH = "the micro-batch"
HOW = "how micro-batches are computed"
CALL_BY_CALL = "call by call"
KEPT = "views of pictures"
NO_REPEAT = (
    "This machine does not give the same bits twice: if the run is stopped, the steps after its last checkpoint "
    "will be taken under a new key and counted twice."
)
"""Said before such a run begins."""
MKL_MISSING = (
    " MKL is not in its reproducible mode: set MKL_CBWR=AUTO before Python starts, or run "
    "`from dpose.interpreter import settle_environment; settle_environment()` before torch computes."
)
_NO_SETTINGS = ("command", "microbatch_size")
"""What `config.json` says under "run" that decides nothing, or is a surrounding of its own."""
_LONG, _DEEP = 64, 3
"""What holds more values than this, or lies deeper in an object, is data and no setting: data have their own digest."""


def no_repeat(device: torch.device, differing: Sequence[str]) -> str:
    """The message before a run whose steps cannot be taken again: `NO_REPEAT`, and why."""
    if differing:
        more = f" and of {len(differing) - 1} more" if len(differing) > 1 else ""
        return f"{NO_REPEAT} Elsewhere in memory, other bits: the gradient of {differing[0]}{more}."
    if device.type == "cpu":
        return NO_REPEAT + (MKL_MISSING if mkl_branch() == MKL_OFF else "")
    return f"{NO_REPEAT} torch was not told to refuse kernels that are not deterministic."


def environment(device: torch.device, microbatch_size: int, processes: int, *parts: object) -> dict[str, str]:
    """Code, versions, device and sizes, by name.

    `parts` are the objects whose code counts besides dpose's own: task, model, data, the method's update.
    """
    return {
        "dpose's code": _code(tuple(path for _, path in source_files())),
        "the code of task, model, data and method": _code(tuple(sorted({f for part in parts if (f := _file(part))}))),
        "Python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "the processor": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "the device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "the number of threads": str(torch.get_num_threads()),
        "the number of processes": str(processes),
        MICRO_BATCH: str(microbatch_size),
        **arithmetic_in_force(device),
    }


def settings_in_force(config: Mapping[str, Any], parts: Sequence[object]) -> dict[str, str]:
    """Digests of all settings, by name: of what `config.json` says, and of the objects that were made by them.

    Args:
        config: As in `config.json`.
        parts: Task, data and public data, of which settings are the public attributes that are plain values.
    """
    run = {name: value for name, value in config["run"].items() if name not in _NO_SETTINGS}
    described = {
        "the optimizer and its schedule": run.pop("optimizer"),
        "the model's settings": [config["task"], config["model"]],
        "the run's settings": run,
        "what task and data are set to": [_plain(part) for part in parts],
    }
    return {
        name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
        for name, value in described.items()
    }


def code_digest(*parts: object) -> bytes:
    """A digest of what computes a step: dpose's code, that of `parts`, and the versions of what they stand on."""
    cpu = torch.device("cpu")
    found = environment(cpu, 0, 0, *parts)
    names = ("dpose's code", "the code of task, model, data and method", "Python", "torch", "numpy")
    return hashlib.sha256("\n".join(found[name] for name in names).encode()).digest()


def check_alike(around: dict[str, str], ranks: ProcessGroup) -> None:
    """Refuse processes that compute differently.

    Which process takes a unit depends on which others were sampled: a unit's gradient must be the same in all of them.

    Raises:
        DposeError: another process has other code, versions or another processor than the first one.
    """
    own = hashlib.sha256(repr(sorted(around.items())).encode()).digest()
    if ranks.highest(int(ranks.bytes_from_first(own) != own)):
        raise DposeError(
            "processes-compute-differently",
            "the processes of this run do not compute alike: code, versions, processor or settings differ",
            fix="start all of them on machines of one kind, from one environment",
        )


def repeatable(device: torch.device) -> bool:
    """Whether the same step gives the same bits again.

    A CPU does where products do not depend on where in memory their numbers lie, which is looked at; a GPU where torch
    was told to refuse whatever is not deterministic.
    """
    if device.type == "cpu":
        return products_repeat()
    return torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()


def digest_of(tensors: Params) -> bytes:
    """A digest of some tensors' names, shapes and bits."""
    total, here = hashlib.sha256(), moved(tensors, torch.device("cpu"))
    for name in sorted(here):
        value: Tensor = here[name].detach()
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        total.update(bits_of(value).numpy().tobytes())
    return total.digest()


def _plain(value: object, deeper: int = _DEEP) -> Any:
    """What `value` is set to, ready for JSON: of an object its type and its public attributes."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    inside: Any = {}
    if isinstance(value, np.ndarray) and value.nbytes <= 2**20:
        return [kind, hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, Mapping):
        inside = value
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        inside = dict(enumerate(value)) if len(value) <= _LONG else {}
    elif is_dataclass(value):
        inside = {one.name: getattr(value, one.name) for one in fields(value)}
    else:
        inside = getattr(value, "__dict__", {})
    if len(inside) > _LONG or not deeper:
        return kind
    shown = {str(name): one for name, one in inside.items() if not str(name).startswith("_")}
    return [kind, {name: _plain(one, deeper - 1) for name, one in shown.items()}]


def _file(part: object) -> Path | None:
    try:
        return Path(inspect.getfile(part if inspect.isroutine(part) else type(part)))
    except (TypeError, OSError):  # typed at a prompt
        return None


@functools.cache  # as it was when the process began: what lies on the disk may change under it
def _code(files: tuple[Path, ...]) -> str:
    total = hashlib.sha256()
    for file in files:
        content = file_bytes(file)
        total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()[:16]
