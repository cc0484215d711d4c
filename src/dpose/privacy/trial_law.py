"""The law of the number of trials, and numbers drawn from it exactly.

    law = TrialLaw.parse("geometric:10")                # K, the number of trials: ten in expectation
    law.draw(noise.stream(Purpose.TUNING))              # exactly so distributed, and a secret

What a choice among so many trials costs is in `dpose.privacy.tuning`; docs/proofs/tuning.md, "The law, drawn".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from dpose.errors import DposeError
from dpose.privacy.discrete import exp_bounds
from dpose.privacy.noise import Stream
from dpose.privacy.ranges import as_given

NAMED_SHAPES = {"logarithmic": Fraction(0), "geometric": Fraction(1)}
"""The truncated negative binomial laws that have names of their own, by their shape eta."""
POISSON = "poisson"
NEGATIVE_BINOMIAL = "negative-binomial"
MOST_TRIALS = 10_000
"""No law with a larger mean."""
LAWS = "geometric:MEAN, logarithmic:MEAN, negative-binomial:ETA:MEAN with ETA from 0 to 1, or poisson:MEAN"

_GRID = 1 << 48
_ABOVE = 2.0**-28
"""Gamma is rounded up by this share: the bound takes a smaller one (dp-accounting: to 1e-9) and holds for ours."""


@dataclass(frozen=True)
class TrialLaw:
    """The law of K, the number of trials.

    Truncated negative binomial with shape eta and gamma in (0, 1], for k = 1, 2, ...:

        P(K = k) = (1 - gamma)^k / (gamma^-eta - 1) * product over l < k of (l + eta) / (l + 1)

    or (1 - gamma)^k / (k log(1 / gamma)) where eta is 0 (Papernot and Steinke 2022, Definition 1); or Poisson, which
    may draw no trial at all.

    >>> TrialLaw.parse("geometric:10")
    TrialLaw(mean=Fraction(10, 1), shape=Fraction(1, 1))
    >>> str(TrialLaw.parse("negative-binomial:0.5:10")), TrialLaw.parse("poisson:10").shape is None
    ('negative-binomial:0.5:10', True)

    Attributes:
        mean: The expected number of trials, 1 to `MOST_TRIALS`; under the truncated laws the true one lies at most
            1e-8 below.
        shape: eta, from 0 to 1; None for Poisson.

    Raises:
        DposeError: a value is out of range.
    """

    mean: Fraction
    shape: Fraction | None

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= MOST_TRIALS:
            raise DposeError(
                "trials-out-of-range",
                f"the expected number of trials must lie between 1 and {MOST_TRIALS:,}, not {as_given(self.mean)}",
                "--trials",
            )
        if self.shape is not None and not 0 <= self.shape <= 1:
            raise DposeError(
                "eta-out-of-range", f"eta must lie between 0 and 1, not {as_given(self.shape)}", "--trials"
            )

    @classmethod
    def parse(cls, text: str) -> TrialLaw:
        """The law that `text` names; see `LAWS`.

        Raises:
            DposeError: it names none.
        """
        name, *numbers = text.split(":")
        try:
            values = [Fraction(number) for number in numbers]
            if name == NEGATIVE_BINOMIAL:
                shape, mean = values
                return cls(mean, shape)
            (mean,) = values
            return cls(mean, None if name == POISSON else NAMED_SHAPES[name])
        except (ValueError, KeyError, ZeroDivisionError) as error:
            raise DposeError(
                "trial-law-malformed", "is no law of the number of trials", f"--trials {text}", f"give {LAWS}"
            ) from error

    def __str__(self) -> str:
        mean = as_given(self.mean)
        if self.shape is None:
            return f"{POISSON}:{mean}"
        named = {shape: name for name, shape in NAMED_SHAPES.items()}.get(self.shape)
        return f"{named}:{mean}" if named else f"{NEGATIVE_BINOMIAL}:{as_given(self.shape)}:{mean}"

    @cached_property
    def gamma(self) -> Fraction:
        """The parameter of a truncated law, a fraction whose law has at most the mean that was asked for.

        Raises:
            ValueError: the law is Poisson.
        """
        if self.shape is None:
            raise ValueError("the Poisson law has no gamma")
        if self.shape == 1:
            return 1 / self.mean
        low, high = math.log(1e-9), 0.0  # of log gamma; the mean falls in it
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if _mean_at(middle, float(self.shape)) > self.mean else (low, middle)
        return min(Fraction(1), Fraction(math.ceil(math.exp(high) * (1 + _ABOVE) * _GRID), _GRID))

    def draw(self, stream: Stream) -> int:
        """K. Every probability is met exactly: nothing is rounded, and no floating point decides.

        Args:
            stream: A stream that nothing else draws from.
        """
        if self.shape is None:
            return _poisson(self.mean, stream)
        while True:
            # geometric with the same gamma, kept with probability c_k / c_1: what eta makes of it falls in k
            count = 1
            while _toss(1 - self.gamma, stream):
                count += 1
            if all(_toss((step + self.shape) / (step + 1), stream) for step in range(1, count)):
                return count

    def to_dict(self) -> dict[str, str]:
        """Ready for JSON, with the parameters that the theorems speak of."""
        found = {"law": str(self)}
        if self.shape is not None:
            found |= {"eta": str(self.shape), "gamma": str(self.gamma)}
        return found

    @classmethod
    def from_dict(cls, values: Any, where: str) -> TrialLaw:
        """The law that `to_dict` wrote.

        Raises:
            DposeError: it is none, or its parameters are not those of its name.
        """
        try:
            law = cls.parse(values["law"])
            gamma = Fraction(values["gamma"]) if law.shape is not None else None
            stated = {key: value for key, value in values.items() if key != "gamma"}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DposeError("trial-law-malformed", "is no law of the number of trials", where) from error
        ours = {key: value for key, value in law.to_dict().items() if key != "gamma"}
        # a last bit of gamma may differ between builds; a smaller gamma has a longer tail and costs more
        if stated != ours or (gamma is not None and abs(gamma / law.gamma - 1) > Fraction(1, 10**9)):
            raise DposeError(
                "trial-law-parameters-wrong", f"its parameters are not those of {law}", where, "do not rely on it"
            )
        return law


StatedLaw = Annotated[
    TrialLaw,
    PlainValidator(lambda value: value if isinstance(value, TrialLaw) else TrialLaw.from_dict(value, "tuning.law")),
    PlainSerializer(TrialLaw.to_dict, return_type=dict[str, str]),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}, "required": ["law"]}),
]
"""The law of the number of trials as a statement's field."""


def below(count: int, stream: Stream) -> int:
    """A whole number from 0 to `count` - 1, each exactly as likely.

    Raises:
        ValueError: `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"there is nothing to choose among {count}")
    bits = (count - 1).bit_length()
    while True:
        drawn = int.from_bytes(stream.bytes((bits + 7) // 8), "big") >> (-bits % 8)
        if drawn < count:
            return drawn


def _mean_at(log_gamma: float, shape: float) -> float:
    """The mean of a truncated negative binomial law."""
    if log_gamma == 0:
        return 1.0
    whole = math.expm1(log_gamma) * math.exp(-log_gamma)
    return whole / log_gamma if shape == 0 else shape * whole / math.expm1(shape * log_gamma)


def _toss(probability: Fraction, stream: Stream) -> bool:
    return below(probability.denominator, stream) < probability.numerator


def _poisson(mean: Fraction, stream: Stream) -> int:
    """A Poisson number: where a uniform one falls among the sums of the law, both known to as many bits as it takes."""
    spare, drawn, bits = 32, 0, 0
    while True:
        drawn, bits = drawn << 64 | int.from_bytes(stream.bytes(8), "big"), bits + 64
        low, high = exp_bounds(mean, bits + spare)
        count, term, total = 0, Fraction(1), Fraction(1)
        while drawn << spare >= high * total:  # at or above the whole sum to here, however its digits go on
            count += 1
            term *= mean / count
            total += term
        if (drawn + 1) << spare <= low * total:
            return count
