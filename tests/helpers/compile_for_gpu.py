"""Compiles every kernel of a GPU, for one that need not be there, and prints the atomic additions among its code.

Run in a process of its own, in which kernels are not interpreted.
"""

import json
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dpose.training.kernels import gpu

HOPPER = GPUTarget("cuda", 90, 32)


def ints(count):
    return tuple(["i32"] * count)


def code_of(kernel, types, constants):
    """The assembly of a kernel; what has no type is a whole number."""
    signature = {n: "constexpr" if n in constants else types.get(n, "i32") for n in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    return triton.compile(ASTSource(kernel, signature, places), target=HOPPER).asm["ptx"]


def kernels(kind, long):
    numbers, found = f"*{kind}", "*fp64" if long else "*fp32"
    summed = {"KIND": tl.float64 if long else tl.float32}
    three = {"x": numbers, "gradient": numbers, "parts": found}
    yield (
        gpu._depthwise,
        {**three, "sizes": ints(8), "steps": ints(6)},
        {"TAPS": (5, 5, 32), "BLOCK": 16, **summed},
    )
    of_places = {"mean": numbers, "rstd": numbers, "sizes": ints(2)}
    yield gpu._normalised, {**three, **of_places}, {"CUT": (64, 128), **summed}
    if kind == "bf16":
        return
    yield gpu._add_parts, {"parts": numbers, "found": numbers}, {"BLOCK": 1024}
    yield gpu._squares, {"rows": numbers, "parts": "*fp64"}, {"RUN": 32, "BLOCK": 1024}
    for take_back in (False, True):
        others = {"within": "*i8" if take_back else numbers, "squares": "*i64" if take_back else "*fp64"}
        types = {"rows": numbers, "factors": numbers, "totals": "*i64", "sizes": ints(2), **others}
        yield gpu._truncated, types, {"CUT": (32, 1024), "TAKE_BACK": take_back}


atomics = {}
for kind in ("fp32", "fp64", "bf16"):
    for kernel, types, constants in kernels(kind, kind == "fp64"):
        code = code_of(kernel, types, constants)
        atomics.setdefault(kernel.__name__, set()).update(re.findall(r"\b(?:atom|red)\.[\w.:]+", code))
print(json.dumps({name: sorted(found) for name, found in atomics.items()}))
