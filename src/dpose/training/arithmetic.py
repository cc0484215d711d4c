"""What the processor, or the GPU, makes of the same numbers: whether twice the same, and whether float32 is float32.

A step is taken again under its old key only where it gives the same bits again, and a unit's gradient must not know
which others were sampled (docs/proofs/resume.md, docs/proofs/dp-sgd.md). Both are facts about kernels that dpose did
not write. So the modes in which they hold are asked for (`dpose.interpreter`, `exact_arithmetic`), what is in force is
written down (`arithmetic_in_force`), and it is looked at (`products_repeat`, `dpose.training.dry_run`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SETTINGS = (
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "MKL_DYNAMIC",
    "OMP_NUM_THREADS",
    "OMP_DYNAMIC",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
)
"""Variables of the environment by which kernels are chosen."""

PRECISIONS = ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")
"""Where torch may compute float32 products in a shorter type, under `torch.backends`."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_MALLOC_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")

KEPT_BLOCK = 32 * 2**20
"""Blocks up to this size, in bytes, are kept; larger ones go back to the kernel as before, so that a
gigabyte of gradients leaves no holes."""
KEPT_FREE = 1024 * 2**20
"""Free memory at the end of the heap, in bytes, above which it goes back after all."""

_LINE = 64
_CBWR_ALL = -1
MKL_OFF = 1
"""MKL's branch where its reproducible mode is off."""


@contextlib.contextmanager
def exact_arithmetic(device: torch.device) -> Iterator[None]:
    """Float32 products in float32, and on a GPU deterministic kernels, for as long as the block lasts.

    torch computes float32 convolutions on a GPU in TF32, with ten bits of mantissa, unless it is told otherwise. A norm
    is then one of other numbers than it says, and what a unit adds varies with how sums are split. Where a kernel adds
    up in the order in which its threads come (`index_add_` on a GPU), a unit's gradient would depend on what else runs;
    where cuDNN chose kernels by trials of speed, on the trials. New memory is not filled, as torch has it beside
    deterministic kernels: nothing is read that was not written. What was set before is set again afterwards.
    """
    before, allowed = torch.get_float32_matmul_precision(), _cudnn_allows_tf32()
    kept, tries = _precisions(), torch.backends.cudnn.benchmark
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        # by both names that torch has for them: the older ones refuse to be read where only the newer are set
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = False
        memory.fill_uninitialized_memory = False
        for name in kept:
            _backend(name).fp32_precision = "ieee"
        if device.type == "cuda" and not deterministic:
            torch.use_deterministic_algorithms(True, warn_only=True)
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = allowed, tries
        memory.fill_uninitialized_memory = fills
        for name, precision in kept.items():
            _backend(name).fp32_precision = precision
        if device.type == "cuda" and not deterministic:
            torch.use_deterministic_algorithms(False)


def arithmetic_in_force(device: torch.device) -> dict[str, str]:
    """What is in force, by name, for `dpose.training.reproducibility`."""
    found = {name: os.environ.get(name, "") for name in SETTINGS}
    found["the processor's name"] = _processor()
    found["MKL's branch"] = str(mkl_branch())
    found["float32 products"] = ", ".join(f"{name} {precision}" for name, precision in _precisions().items())
    found["oneDNN"] = str(torch.backends.mkldnn.enabled)
    if device.type == "cuda":
        found["deterministic kernels"] = str(torch.are_deterministic_algorithms_enabled())
        found["cuDNN"] = f"{_backend('cudnn').version()}, benchmark {torch.backends.cudnn.benchmark}"
        found["CUDA"] = str(torch.version.cuda or torch.version.hip)
        found["the driver"] = _driver()
        found["Triton"] = _version("triton")
    return found


@functools.cache
def products_repeat() -> bool:
    """Whether products and sums on this processor have the same bits wherever in memory their numbers lie.

    On random numbers at every alignment that a float32 can have, in shapes that make kernels begin, go on and end. MKL
    off its reproducible mode fails this on AMD processors for a matrix times a vector.
    """
    numbers = torch.Generator().manual_seed(0)
    for rows, inner, columns in ((1, 7, 3), (4, 20, 20), (48, 320, 96), (770, 17, 33)):
        for dtype in (torch.float32, torch.float64):
            a, b = (torch.randn(shape, generator=numbers, dtype=dtype) for shape in ((rows, inner), (inner, columns)))
            first = _products(a, b)
            for by in range(1, _LINE // a.element_size()):
                if any(map(_differ, _products(shifted(a, by), shifted(b, by)), first)):
                    return False
    return True


def shifted(tensor: Tensor, by: int = 1) -> Tensor:
    """The same numbers with the same strides, `by` elements behind the start of a block, which begins at a whole line.

    With other strides another kernel might be taken, which rounds otherwise wherever its numbers begin.
    """
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    place = torch.empty(length + by, dtype=tensor.dtype, device=tensor.device)[by:]
    place.copy_(tensor.as_strided((length,), (1,)))
    return place.as_strided(tensor.shape, tensor.stride())


def moved(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The same tensors on `device`; to or from a GPU in one copy for each type, not one for each tensor."""
    found = dict(tensors)
    for dtype in {t.dtype for t in found.values() if t.device != device}:
        names = [name for name, t in found.items() if t.dtype == dtype]
        flat = torch.cat([found[name].detach().reshape(-1) for name in names]).to(device)
        parts = torch.split(flat, [found[name].numel() for name in names])
        found.update({name: part.view(found[name].shape) for name, part in zip(names, parts, strict=True)})
    return found


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same bits, whatever they mean."""
    return a.dtype == b.dtype and torch.equal(bits_of(a), bits_of(b))


def bits_of(tensor: Tensor) -> Tensor:
    """The same bits as whole numbers, in the tensor's shape and, for a view as bytes may refuse them, its strides."""
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(whole[tensor.element_size()])


def _products(a: Tensor, b: Tensor) -> list[Tensor]:
    rows, columns = a[:, 0].contiguous(), b[:, 0].contiguous()
    at = int(a.storage_offset())
    rows, columns = (shifted(v, at) if at else v for v in (rows, columns))
    return [
        torch.mv(a, columns),
        torch.mv(a.t(), rows),
        a @ b,
        b.t() @ a.t(),
        torch.bmm(a.expand(3, *a.shape), b.expand(3, *b.shape)),
        a.sum(0),
        a.sum(1),
        torch.linalg.vector_norm(a, dim=1),
    ]


def _differ(a: Tensor, b: Tensor) -> bool:
    return not same_bits(a, b)


def _cudnn_allows_tf32() -> bool:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # set by its newer names alone
        return False


def _precisions() -> dict[str, str]:
    """What each of `PRECISIONS` is set to, of those that this torch has."""
    parts = {name: _backend(name) for name in PRECISIONS}
    return {name: part.fp32_precision for name, part in parts.items() if hasattr(part, "fp32_precision")}


def _backend(name: str) -> Any:
    part: Any = torch.backends
    for step in name.split("."):
        part = getattr(part, step, None)
    return part


@functools.cache
def _processor() -> str:
    """As the kernel names it; dispatch goes by more than the sets of instructions that torch tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    wanted = ("vendor_id", "cpu family", "model", "model name", "CPU implementer", "CPU part")
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    return ", ".join(found[key] for key in wanted if key in found)


def _driver() -> str:
    """The version that the driver of NVIDIA's or AMD's GPUs tells; empty where there is neither."""
    for place in ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version"):
        with contextlib.suppress(OSError):
            return Path(place).read_text().split("\n")[0]
    return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def mkl_branch() -> int | None:
    """What MKL says of its reproducible mode (mkl_cbwr_get): 1 is off; None if torch was built without MKL."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        return int(ctypes.CDLL(str(library)).mkl_serv_cbwr_get(_CBWR_ALL))
    except (OSError, AttributeError):
        return None


def slow_in_bfloat16(device: torch.device) -> bool:
    """Whether the device is a processor that is known to compute slower in bfloat16 than in float32."""
    known = getattr(torch.cpu, "get_capabilities", None)  # since torch 2.10 or so
    if device.type != "cpu" or known is None:
        return False
    found = known()
    return not any(found.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))


@functools.cache
def keep_freed_memory() -> bool:
    """Ask the C library to keep what a step frees for the next one, once for the process; whether it does.

    glibc takes each large block fresh from the kernel and gives it back when it is freed. The kernel then clears every
    page of it again when it is first written, step after step: ten to fifteen thousand page faults for a private step
    of 32 pictures, more than a plain one has, because per-unit gradients are large (docs/performance.md).

    False, and nothing is changed, where the C library is not glibc, or where the environment has settings of its own
    for it (any of MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_MAX_, GLIBC_TUNABLES).
    """
    if sys.platform != "linux" or any(name in os.environ for name in _MALLOC_SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BLOCK)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_FREE))
