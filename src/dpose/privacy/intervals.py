"""Intervals and mean errors of exact discrete noise, from its probabilities.

half = half_width(event, 0.05)       # a number without noise lies within so much of the noised one, with 95 %
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpose.privacy.events import ExactEvent, Laplace

CONFIDENCE = 0.95
"""Of intervals of counts, as far as the noise goes."""


@lru_cache(maxsize=256)
def half_width(event: ExactEvent, alpha: float) -> int:
    """The least whole number that the noise exceeds in size with a probability of at most `alpha`.

    Discrete Laplace noise of scale t exceeds a with probability 2 q^(a+1) / (1 + q), q = e^(-1/t). Discrete Gaussian
    noise: by its probabilities, or where its deviation is large by Gaussian tails and one more.
    """
    if isinstance(event, Laplace):
        rate = 1 / float(event.scale)
        tail = math.log(alpha * (1 + math.exp(-rate)) / 2)
        return max(0, math.ceil(-tail / rate - 1))
    sigma = math.sqrt(event.variance)
    if sigma > 1000:
        from scipy.stats import norm

        return math.ceil(float(norm.isf(alpha / 2)) * sigma) + 1
    chances = np.exp(-(np.arange(math.ceil(12 * sigma) + 2) ** 2) / (2 * float(event.variance)))
    beyond = 2 * (np.cumsum(chances[::-1])[::-1] - chances) / (2 * chances.sum() - 1)
    return int(np.argmax(beyond <= alpha))


def mean_error(event: ExactEvent) -> float:
    """The mean size of the noise: of discrete Laplace noise 2 q / (1 - q^2), of Gaussian noise about 0.8 sigma."""
    if isinstance(event, Laplace):
        q = math.exp(-1 / float(event.scale))
        return 2 * q / (1 - q**2)
    return math.sqrt(2 * float(event.variance) / math.pi)
