"""What must hold around private data, checked in the code path and not left to the caller.

Each guard refuses; none repairs. What a guard finds is shown to the holder of the private data, before anything is
released; it stands in no artefact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from dpose.account import Charge
from dpose.account.charges import worst_case
from dpose.errors import DposeError
from dpose.media.fingerprint import BITS, distances
from dpose.privacy.merged import first_entries
from dpose.privacy.protected import Protected, contents_and_files
from dpose.privacy.shares import ALONE, Readers, read_shared
from dpose.units import KnownPictures, UnitDataset

T = TypeVar("T")

LearntFrom: TypeAlias = Callable[[str], tuple[UnitDataset, ...]]

NEAR = 16
"""Pictures whose fingerprints differ in at most this many of 128 bits are taken for copies: saved again, resized or
recoloured ones differ in fewer, pictures of different scenes in more."""


def check_model(model: torch.nn.Module) -> None:
    """Refuse a model that mixes units, or that stores what it sees.

    Raises:
        DposeError: it normalises over batches, has dropout, keeps running statistics or a spectral norm's vectors;
            names the layer.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            raise DposeError(
                "batchnorm-mixes-units",
                "batch normalisation mixes units and stores what it saw",
                name,
                "fold it into its convolution, or build the model with norm='group'",
            )
        within = isinstance(module, torch.nn.RNNBase | torch.nn.MultiheadAttention) and module.dropout
        if within or (isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0):
            # one generator for a micro-batch: what a unit draws would depend on its place among others. Not left to
            # torch, which need not see what a kernel of cuDNN draws within
            raise DposeError(
                "dropout-mixes-units",
                "dropout draws by a unit's place in a micro-batch, so that one unit would change others",
                name,
                "build the model with a dropout of 0",
            )
        hooks = module._forward_pre_hooks.values()
        keeps = getattr(module, "track_running_stats", False) or isinstance(module, _SpectralNorm)
        if keeps or any(isinstance(hook, SpectralNorm) for hook in hooks):
            raise DposeError(
                "model-stores-state",
                f"{type(module).__name__} stores what it saw",
                name,
                "train a model whose forward pass stores nothing",
            )


@dataclass(frozen=True)
class Overlap:
    """A unit that is protected.

    Attributes:
        unit: Its name.
        how: By what it is known.
        private: The private unit that it shares that with.
    """

    unit: str
    how: str
    private: str

    def __str__(self) -> str:
        return f"{self.unit} {self.how} private unit {self.private}"


def _same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


@contextmanager
def only_gradients(model: torch.nn.Module, *, bits: bool = False) -> Iterator[None]:
    """While private data flow, the model stays as it is: no buffer and no parameter is written, no `.grad` appears.

    What a step returns is then the only way out, and that is a clipped and noised sum.

    Args:
        model: What is trained.
        bits: Compare values, too, which finds what is written past torch, through `.data` or NumPy. On a processor they
            always are; on a GPU it would have to wait for them.
    """
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {name: (tensor, tensor._version) for name, tensor in state.items()}
    copies = {name: tensor.detach().clone() for name, tensor in state.items() if bits or tensor.device.type == "cpu"}
    stored = {name: p.grad for name, p in model.named_parameters()}
    yield
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in after.items():
        same = name in before and before[name][0] is tensor and before[name][1] == tensor._version
        if not same or (name in copies and not _same_values(copies[name], tensor.detach())):
            raise DposeError(
                "model-wrote-state",
                "was written while private data flowed",
                name,
                "train a model whose forward pass stores nothing",
            )
    for name, parameter in model.named_parameters():
        if parameter.grad is not stored[name]:
            raise DposeError(
                "gradient-not-clipped",
                "got a gradient of private data that was not clipped per unit",
                name,
                "let the loss return a tensor and call no backward",
            )


def overlap(
    units: UnitDataset, private: UnitDataset, threads: int, console: Console, readers: Readers = ALONE
) -> Overlap | None:
    """The first of some units that is protected: a picture of a private unit, byte for byte or nearly, or a person.

    Whatever is read without noise beside a run goes through here: what is taken to be public, watched, scored, chosen
    by, or learnt from before. Exact copies are found by contents and files; near ones by `fingerprints` and people by
    `subjects`, where both datasets tell them (`dpose.units.KnownPictures`).

    Args:
        units: What is asked about. Every process reads all of it.
        private: What is protected. Each process reads its own of them.
        threads: Threads that read.
        console: Where progress goes.
        readers: The processes that compare them together.
    """
    numbers = first_entries(private)

    def each_private(of: Callable[[int], Any]) -> Iterator[Any]:
        yield from _shown(read_shared(of, numbers, readers, threads), len(private), console)

    def shared(of: Callable[[UnitDataset], Callable[[int], Sequence[str]]], how: str) -> Overlap | None:
        owner = {name: index for index, names in enumerate(each_private(of(private))) for name in names}
        for index, names in enumerate(_each(of(units), len(units), threads, console)):
            for name in names:
                if name in owner:
                    return Overlap(units.unit_id(index), how, private.unit_id(owner[name]))
        return None

    found = shared(lambda data: partial(contents_and_files, data), "is a picture of")
    if found or not (isinstance(units, KnownPictures) and isinstance(private, KnownPictures)):
        return found
    found = shared(lambda data: cast(KnownPictures, data).subjects, "shows the person of")
    if found:
        return found
    known = private  # for the types: it tells fingerprints

    def printed(index: int) -> list[str]:
        return [row.tobytes().hex() for row in known.fingerprints(index)]

    rows, owners = _prints(each_private(printed))
    for index, prints in enumerate(_each(units.fingerprints, len(units), threads, console)):
        close = (distances(prints, rows) <= NEAR).any(axis=0)
        if close.any():
            owner = private.unit_id(int(owners[close][0]))
            return Overlap(units.unit_id(index), "looks like a picture of", owner)
    return None


def check_disjoint(
    public: UnitDataset, protected: Protected, threads: int, console: Console, readers: Readers = ALONE
) -> None:
    """Refuse public units of which one is protected (`overlap`).

    Raises:
        DposeError: one is; names both.
    """
    if found := overlap(public, protected.data, threads, console, readers):
        raise DposeError(
            "public-unit-private",
            f"public unit {found}",
            "--public",
            "leave it out: what is public may be in no private unit",
        )


def check_not_watched(
    watched: UnitDataset, protected: Protected, threads: int, console: Console, readers: Readers = ALONE
) -> None:
    """Refuse to score data while training of which a unit is protected (`overlap`): such a score has no noise.

    Raises:
        DposeError: one is; names both.
    """
    if found := overlap(watched, protected.data, threads, console, readers):
        raise DposeError(
            "watched-unit-private",
            f"watched unit {found}; its score would be outside any guarantee",
            "data.validation_data",
            "watch public or held-out data, which share no picture and no person with the units",
        )


def learnt_again(
    units: UnitDataset, threads: int, console: Console, learnt_from: LearntFrom, readers: Readers = ALONE
) -> Callable[[Sequence[Charge]], list[Charge]]:
    """The runs that learnt from copies or people of `units` (`overlap`), as they count for these.

    One that took them to be public comes without events, as nothing bounds what it tells of those.

    `learnt_from` opens what a run learnt from by its name, its units first.
    """

    def found(runs: Sequence[Charge]) -> list[Charge]:
        known, hit = {run.id: run for run in runs}, []
        # of several processes the first one's account says what is asked, and all must have the data at hand
        for name in json.loads(readers.gather(json.dumps(list(known)).encode())[0]):
            data = learnt_from(name)
            if set(readers.gather(bytes([len(data)]))) != {bytes([len(data)])}:
                continue
            shared = [overlap(one, units, threads, console, readers) is not None for one in data]
            if any(shared) and name in known:
                hit.append(worst_case(known[name]) if any(shared[1:]) else known[name])
        return hit

    return found


def _prints(notes: Iterator[Sequence[str]]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All fingerprints, one a row, and the unit that each is of."""
    each = [[bytes.fromhex(row) for row in rows] for rows in notes]
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
