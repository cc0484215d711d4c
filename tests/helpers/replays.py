"""What stands in for a CUDA graph on a processor: recorded once, replayed without the Python that was recorded."""

import inspect

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from dpose.training.kernels.reference import Reference


def called_again(run):
    """The plainest stand-in: nothing is recorded, but buffers are those of a replay."""
    run()  # as before a capture
    return run


class Unasking(Reference):
    """Kernels of torch's own operations that ask the host nothing, as those of a GPU."""

    def take_back(self, rows, factors, totals, within):
        added, squares = torch.zeros_like(totals), torch.zeros(len(rows), dtype=torch.float64)
        self.truncate_sum(rows, factors.masked_fill(within, 0.0), added, squares)
        totals.sub_(added)


def recorded(run):
    """The operations of one call, on the tensors of that call: as a graph it knows addresses and no values.

    A question to the host ends it with a RuntimeError, and so does a copy from it, as they end a capture.
    """
    run()
    known = inspect.getclosurevars(run).nonlocals
    owner = known["self"]
    held = [*owner._model.parameters(), *owner._model.buffers()]
    buffers = [*owner._params.values(), *owner._tensors.values(), owner._totals, *tree_leaves(known["place"].parts)]
    buffers += [t for t in held if not any(t is b for b in buffers)]
    graph = make_fx(lambda *_: run() or torch.zeros(()), tracing_mode="real")(*buffers)
    if any("lift_fresh" in str(node.target) for node in graph.graph.nodes):
        raise RuntimeError("numbers are copied from the host")
    return lambda: graph(*buffers) and None
