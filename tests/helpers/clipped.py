"""The clipped sum of a task's loss over a batch, in the shape that it has: as a step takes it."""

from dpose.training import gradients
from dpose.units import is_mixed


def clipped_sum(task, model, params, batch, clip, **more):
    return gradients.clipped_sum(
        gradients.unit_loss(task, model), params, batch.parts, clip, microbatch_size=None, mixed=is_mixed(task), **more
    )
