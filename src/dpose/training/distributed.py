"""Several processes that take one run's steps together: who is who, and what they tell each other.

Every process reads its share of the units and tells the others what they are (`dpose.privacy.shares`), draws the same
Poisson sample, and computes the clipped gradients of its share of it. The sums meet in the first process, which adds
the noise, once, and hands the update to the others. The first one alone writes files.

    torchrun --nproc-per-node 2 -m dpose train ...

What goes over the wire between the sum and the noise is private and not encrypted: the network between the processes
must be trusted as the machines are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from dpose.errors import DposeError

T = TypeVar("T")


@dataclass(frozen=True)
class ProcessGroup:
    """This process among the processes of a run.

    Attributes:
        index: 0 for the one that writes.
        count: How many there are.
    """

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and adds noise."""
        return self.index == 0

    def sum_to_first(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The sums over all processes in the first one; zeros in the others, which must not keep a share of them."""
        if self.count == 1:
            return dict(tensors)
        flat = _flat(tensors)
        _together(lambda: dist.reduce(flat, 0))
        if not self.first:
            flat.zero_()
        return _like(flat, tensors)

    def from_first(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The first process's values, in every process."""
        if self.count == 1:
            return dict(tensors)
        flat = _flat(tensors)
        _together(lambda: dist.broadcast(flat, 0))
        return _like(flat, tensors)

    def bytes_from_first(self, content: bytes) -> bytes:
        """The first process's `content`, of the same length in every process."""
        if self.count == 1:
            return content
        words = torch.tensor(list(content), dtype=torch.uint8, device=_device())
        _together(lambda: dist.broadcast(words, 0))
        return bytes(words.tolist())

    def gather(self, content: bytes) -> list[bytes]:
        """Every process's `content`, of any length, in their order, in every process."""
        if self.count == 1:
            return [content]
        length = torch.tensor([len(content)], device=_device())
        lengths = [torch.zeros_like(length) for _ in range(self.count)]
        _together(lambda: dist.all_gather(lengths, length))
        each = [int(one) for one in lengths]
        own = torch.zeros(max(*each, 1), dtype=torch.uint8, device=_device())
        own[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(own)
        found = [torch.zeros_like(own) for _ in range(self.count)]
        _together(lambda: dist.all_gather(found, own))
        return [bytes(part[:size].cpu().numpy()) for part, size in zip(found, each, strict=True)]

    def agree(self, digests: Mapping[str, bytes]) -> None:
        """Hold all processes to the same digests, each of 32 bytes, by what they are of; waits for all of them.

        A sample is drawn from numbers of units, and every process computes a part of it. If the same number stood for
        another unit in another process, one unit could enter a sum twice.
        """
        if self.count == 1:
            return
        own = torch.tensor([list(value) for value in digests.values()], dtype=torch.uint8, device=_device())
        found = [torch.zeros_like(own) for _ in range(self.count)]
        _together(lambda: dist.all_gather(found, own))
        differ = [name for i, name in enumerate(digests) if any(bool((f[i] != found[0][i]).any()) for f in found)]
        if differ:
            raise DposeError(
                "processes-differ",
                f"the processes of this run differ in {' and '.join(differ)}",
                f"process {self.index} of {self.count}",
                "start all of them with the same command, code and files; nothing was charged or written",
            )

    def highest(self, value: int) -> int:
        """The highest of the processes' values, in every process."""
        if self.count == 1:
            return value
        word = torch.tensor([value], device=_device())
        _together(lambda: dist.all_reduce(word, dist.ReduceOp.MAX))
        return int(word)


ALONE = ProcessGroup()
"""A run in one process."""


def process_group() -> ProcessGroup:
    """This process's place, as `torchrun` gave it; alone where it gave none. Joins the others at the first call."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "RANK" not in os.environ:
        return ALONE
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        _together(lambda: dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo"))
    return ProcessGroup(dist.get_rank(), dist.get_world_size())


def _together(what: Callable[[], T]) -> T:
    try:
        return what()
    except (RuntimeError, ValueError) as error:
        raise DposeError(
            "process-lost",
            "another process of this run ended or cannot be reached",
            fix="what was saved is whole: go on with --resume",
        ) from error


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _flat(tensors: Mapping[str, Tensor]) -> Tensor:
    # by name: what is sent must not depend on the order in which a process came to hold its tensors
    return torch.cat([tensors[name].detach().reshape(-1) for name in sorted(tensors)])


def _like(flat: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts = dict(zip(sorted(tensors), torch.split(flat, [tensors[n].numel() for n in sorted(tensors)]), strict=True))
    return {name: parts[name].view(t.shape) for name, t in tensors.items()}
