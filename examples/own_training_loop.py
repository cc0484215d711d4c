"""Differentially private training in a loop of your own: which way does a dot move?

    python examples/own_training_loop.py

A unit is one clip. The noise key comes from the operating system; sums are taken on an integer grid.
"""

import torch
import torch.nn.functional as F
from torch.func import functional_call

import dpose

UNITS, BATCH, STEPS, SIDE, DELTA, CLIP = 2_000, 200, 60, 8, 1e-4, 1.0
WAYS = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


def moving_dots(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Clips (count, 4 frames, SIDE, SIDE) of one dot, and the way that each moves."""
    ways = torch.randint(len(WAYS), (count,))
    places = torch.randint(SIDE, (count, 1, 2)) + torch.arange(4)[:, None] * WAYS[ways][:, None]
    flat = (places % SIDE) @ torch.tensor([SIDE, 1])
    return F.one_hot(flat, SIDE * SIDE).view(count, 4, SIDE, SIDE).float(), ways


class Motion(torch.nn.Module):
    """Successive frames, multiplied at each shift by one pixel, then a linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = torch.nn.Linear(len(WAYS), len(WAYS))

    def forward(self, clips: torch.Tensor) -> torch.Tensor:  # noqa: D102
        shifted = [torch.roll(clips[:, :-1], way.tolist(), (2, 3)) * clips[:, 1:] for way in WAYS]
        return self.classify(torch.stack([s.sum((1, 2, 3)) for s in shifted], 1))


def main() -> None:  # noqa: D103
    clips, ways = moving_dots(UNITS)
    model = Motion()
    params = {name: p.detach() for name, p in model.named_parameters()}  # the same memory as the model's

    def loss(params: dict[str, torch.Tensor], clip: torch.Tensor, way: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, params, (clip[None],)), way[None])

    event, epsilon = dpose.calibrate(
        epsilon=2.0, delta=DELTA, units=UNITS, expected_batch_size=BATCH, steps=STEPS, clip=CLIP
    )
    for _ in range(event.steps):
        sample = torch.from_numpy(dpose.poisson_batch(UNITS, event.q))
        sums = dpose.clipped_sum(loss, params, (clips[sample], ways[sample]), clip=CLIP)
        for name, noisy in dpose.add_noise(sums, event).items():
            params[name] -= noisy / BATCH  # a constant, not the size of the sample
    clips, ways = moving_dots(500)
    right = (model(clips).argmax(1) == ways).float().mean()
    print(f"{right:.0%} of new clips right, for epsilon {epsilon:.4f} at delta {DELTA:g}")


if __name__ == "__main__":
    main()
