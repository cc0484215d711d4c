"""What must hold around private data, checked in the code path and not left to the caller.

Each guard refuses; none repairs. What a guard finds is told to whoever holds the private data, before anything is
released; it stands in no artefact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from dpose.errors import DposeError
from dpose.media.fingerprint import BITS, distances
from dpose.privacy.merged import first_entries
from dpose.privacy.odometer import marks_of
from dpose.privacy.protected import Protected
from dpose.privacy.shares import ALONE, Readers, read_shared
from dpose.units import KnownPictures, UnitDataset

T = TypeVar("T")

NEAR = 16
"""Pictures whose fingerprints differ in at most this many of 128 bits are taken for copies: saved again, resized or
recoloured ones differ in fewer, pictures of different scenes in more."""


def check_model(model: torch.nn.Module) -> None:
    """Refuse a model that mixes units, or that stores what it sees.

    Raises:
        DposeError: it normalises over batches, keeps running statistics or a spectral norm's vectors; names the layer.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            raise DposeError(
                "batch normalisation mixes units and stores what it saw",
                name,
                "fold it into its convolution, or build the model with norm='group'",
            )
        hooks = module._forward_pre_hooks.values()
        keeps = getattr(module, "track_running_stats", False) or isinstance(module, _SpectralNorm)
        if keeps or any(isinstance(hook, SpectralNorm) for hook in hooks):
            raise DposeError(
                f"{type(module).__name__} stores what it saw",
                name,
                "train a model whose forward pass stores nothing",
            )


@contextmanager
def only_gradients(model: torch.nn.Module) -> Iterator[None]:
    """While private data flow, the model stays as it is: no buffer and no parameter is written, no `.grad` appears.

    What a step returns is then the only way out, and that is a clipped and noised sum.

    Raises:
        DposeError: the model wrote something, or gradients were made on another way than per unit.
    """
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {name: (tensor, tensor._version) for name, tensor in state.items()}
    stored = {name: p.grad for name, p in model.named_parameters()}
    yield
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in after.items():
        if name not in before or before[name][0] is not tensor or before[name][1] != tensor._version:
            raise DposeError(
                "was written while private data flowed",
                name,
                "train a model whose forward pass stores nothing",
            )
    for name, parameter in model.named_parameters():
        if parameter.grad is not stored[name]:
            raise DposeError(
                "got a gradient of private data that was not clipped per unit",
                name,
                "let the loss return a tensor and call no backward",
            )


def check_disjoint(
    public: UnitDataset, protected: Protected, threads: int, console: Console, readers: Readers = ALONE
) -> None:
    """Refuse public units that share a picture with the private ones, byte for byte or nearly, or a person.

    Exact copies are found by `content_hashes`. Near ones by `fingerprints` and people by `subjects`, where both
    datasets tell them (`dpose.units.KnownPictures`).

    Args:
        public: What is to be taken for public. Every process reads all of it.
        protected: What is protected. Each process reads its own of them.
        threads: Threads that read.
        console: Where progress goes.
        readers: The processes that compare them together.

    Raises:
        DposeError: a public unit is among the private ones; names both.
    """
    private = protected.data
    numbers = first_entries(private)

    def each_private(of: Callable[[int], Any]) -> Iterator[Any]:
        yield from _shown(read_shared(of, numbers, readers, threads), len(private), console)

    def each_public(of: Callable[[int], T]) -> Iterator[T]:
        return _each(of, len(public), threads, console)

    def refuse(what: str, of_private: Iterator[Sequence[str]], of_public: Iterator[Sequence[str]]) -> None:
        owner = {name: index for index, names in enumerate(of_private) for name in names}
        for index, names in enumerate(of_public):
            for name in names:
                if name in owner:
                    raise _overlap(public.unit_id(index), private.unit_id(owner[name]), what)

    refuse("is a picture of", each_private(private.content_hashes), each_public(public.content_hashes))
    if not (isinstance(public, KnownPictures) and isinstance(private, KnownPictures)):
        return
    refuse("shows the person of", each_private(private.subjects), each_public(public.subjects))
    known = private  # for the types: it tells fingerprints

    def printed(index: int) -> list[str]:
        return [row.tobytes().hex() for row in known.fingerprints(index)]

    rows, owners = _prints(each_private(printed))
    for index, prints in enumerate(each_public(public.fingerprints)):
        close = (distances(prints, rows) <= NEAR).any(axis=0)
        if close.any():
            raise _overlap(
                public.unit_id(index), private.unit_id(int(owners[close][0])), "looks like a picture of"
            )


def check_not_watched(watched: UnitDataset, protected: Protected, threads: int, console: Console) -> None:
    """Refuse to score data while training that hold a protected picture: such a score has no noise.

    Args:
        watched: What is to be scored.
        protected: What is protected.
        threads: Threads that read.
        console: Where progress goes.

    Raises:
        DposeError: they hold one; names the watched unit.
    """
    for index, hashes in enumerate(_each(watched.content_hashes, len(watched), threads, console)):
        if np.isin(marks_of(hashes), protected.identity.marks).any():
            raise DposeError(
                f"{watched.unit_id(index)} is among the protected units; its score would be outside any guarantee",
                "--watch",
                "watch public or held-out data",
            )


def _prints(told: Iterator[Sequence[str]]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All fingerprints, one a row, and the unit that each is of."""
    each = [[bytes.fromhex(row) for row in rows] for rows in told]
    owners = np.repeat(np.arange(len(each)), [len(rows) for rows in each])
    found = np.frombuffer(b"".join(row for rows in each for row in rows), np.uint8)
    return found.reshape(-1, BITS // 8), owners


def _each(of: Callable[[int], T], count: int, threads: int, console: Console) -> Iterator[T]:
    with ThreadPoolExecutor(max(1, threads)) as pool:
        yield from _shown(pool.map(of, range(count)), count, console)


def _shown(values: Iterable[T], count: int, console: Console) -> Iterator[T]:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("comparing with the private data", total=count)
        for value in values:
            yield value
            bar.advance(task)


def _overlap(public: str, private: str, what: str) -> DposeError:
    return DposeError(
        f"public unit {public} {what} private unit {private}",
        "--public",
        "leave it out: what is public may be in no private unit",
    )
