"""Measures of re-identification: ranks, CMC and mean average precision, also of guessing."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, log

import numpy as np
from numpy.typing import NDArray

from dpose.audits.trials import Trials

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SearchResult:
    """Result of a search of the gallery, query by query.

    Attributes:
        rank: (Q,) place of the first picture of the right person, from 1.
        precision: (Q,) average precision of the whole ranking.
    """

    rank: Ints
    precision: Floats

    def cmc(self, most: int) -> Floats:
        """Cumulative match characteristic: the share of queries answered within the first 1, 2, ... `most` places."""
        return np.asarray([(self.rank <= k).mean() for k in range(1, most + 1)], np.float64)


def search(similarity: Floats, gallery: Ints, queries: Ints, seed: int = 0) -> SearchResult:
    """Rank the gallery by similarity to every query.

    Equal similarities are put in a random order: a constant embedding is no better than guessing.

    Args:
        similarity: (Q, G), higher is nearer.
        gallery: (G,) people in the gallery.
        queries: (Q,) people to search; each is in the gallery.
        seed: Seed of the order of equal similarities.

    Raises:
        ValueError: a query's person is not in the gallery.
    """
    order = np.random.default_rng(seed).permutation(len(gallery))
    places = order[np.argsort(-similarity[:, order], axis=1, kind="stable")]
    right = gallery[places] == queries[:, None]
    if not right.any(1).all():
        raise ValueError("a query is of somebody who is not in the gallery")
    precision = np.cumsum(right, axis=1) / np.arange(1, len(gallery) + 1)
    return SearchResult(right.argmax(1) + 1, (precision * right).sum(1) / right.sum(1))


def chance_within(k: int, size: int, right: int) -> float:
    """The probability that a random ranking has one of `right` pictures among the first k of `size`."""
    return 1.0 - comb(size - right, min(k, size)) / comb(size, min(k, size))


def chance_precision(size: int, right: int) -> float:
    """The expected average precision of a random ranking of `size` pictures, `right` of them of the right person."""
    places = np.arange(1, size + 1)
    others = (right - 1) / (size - 1) if size > 1 else 0.0
    return float(np.mean((1 + (places - 1) * others) / places))


def epsilon_named(right: int, queries: int, people: int, alpha: float) -> float:
    """A lower bound on epsilon between some two people's pictures, wrong with probability at most `alpha`.

    A rule that names one of N people is right on pictures i = 1..N, one each, with mean probability a. Where each of
    its probabilities is at most e^eps times that on any other picture, a <= e^eps (1 - a) / (N - 1). The bound on a is
    Clopper and Pearson's, which also holds for trials of unequal odds (Hoeffding 1956); the noise of one query is
    independent of that of all others, and of what the rule was learnt from.

    Args:
        right: Queries whose person was named first.
        queries: All queries, as many of each person.
        people: N, those who can be named.
        alpha: Level.
    """
    share = Trials(right, queries).at_least(alpha)
    return max(0.0, log(share * (people - 1) / (1 - share))) if share > 0 else 0.0
