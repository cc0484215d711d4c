"""Compiles every kernel as its callers launch it, for a GPU that need not be there; prints the atomic additions.

Run in a process of its own, in which kernels are not interpreted.
"""

import json
import re

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction


class Hopper:
    """As much of a driver as compiling asks for."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


atomics = {}
run = JITFunction.run


def compiled(self, *given, grid, warmup, **named):
    """In place of a launch."""
    code = run(self, *given, grid=grid, warmup=True, **named).asm["ptx"]
    atomics.setdefault(self.fn.__name__, set()).update(re.findall(r"\b(?:atom|red)\.[\w.:]+", code))


triton.runtime.driver.set_active(Hopper())
JITFunction.run = compiled

from dpose.training.kernels.gpu import KERNELS  # noqa: E402

for kind in (torch.float32, torch.float64, torch.bfloat16):
    x, slopes = torch.zeros(3, 2, 16, 8, 9, dtype=kind), torch.zeros(3, 2, 32, 8, 9, dtype=kind)
    for channels in (1, 16):  # 1 is compiled as a constant
        outputs = slopes[:, :, : 2 * channels]
        KERNELS.depthwise(x[:, :, :channels], outputs, (3, 3), (1, 1), (1, 1), (1, 1))
    KERNELS.depthwise(x, torch.zeros(3, 2, 16, 4, 4, dtype=kind), (5, 3), (2, 2), (2, 1), (1, 1))
    places = torch.zeros(3, 70, 40, dtype=kind)
    KERNELS.norm_slopes(places, places, places[..., 0], places[..., 0])
    if kind == torch.bfloat16:
        continue
    rows, factors = torch.zeros(3, 5000, dtype=kind), torch.zeros(3, dtype=kind)
    KERNELS.square_norms(rows)
    KERNELS.square_norms(rows[:1, :1])
    totals, squares = torch.zeros(5000, dtype=torch.int64), torch.zeros(3, dtype=torch.float64)
    KERNELS.truncate_sum(rows, factors, totals, squares)
    KERNELS.take_back(rows, factors, totals, torch.zeros(3, dtype=torch.bool))
print(json.dumps({name: sorted(found) for name, found in atomics.items()}))
