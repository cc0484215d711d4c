"""Audits of single mechanisms by name: outputs on two neighbouring inputs, compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpose.audits.findings import code_version
from dpose.audits.hockey_stick import MechanismFindings, audit_mechanism, exact_epsilon
from dpose.audits.mechanisms import build
from dpose.errors import DposeError

FEW = 20_000
"""Outputs of each input, where nothing else is asked for."""
SAMPLES = {"poisson-gaussian": 160_000}
"""Mechanisms that need more: twice the sampling rate moves each output's chance by a few percent and no more."""


@dataclass(frozen=True)
class MechanismAudit:
    """An audit of one mechanism by name.

    Attributes:
        mechanism: Its name.
        samples: Outputs drawn of each input.
        planted: The fault, in words; "" for none.
        findings: What the samples show.
        exact: Epsilon by adding up all outputs, where that can be done.
        seed: None for keys from the operating system.
    """

    mechanism: str
    samples: int
    planted: str
    findings: MechanismFindings
    exact: float | None
    seed: int | None

    @property
    def flagged(self) -> bool:
        """Whether the claim is refuted, by samples or by the sum."""
        exceeded = self.exact is not None and self.exact > self.findings.epsilon * (1 + 1e-6)
        return self.findings.flagged or exceeded

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "schema": 1,
            "mechanism": self.mechanism,
            "samples": self.samples,
            "planted_fault": self.planted,
            "seed": self.seed,
            "exact_epsilon": None if self.exact is None else repr(self.exact),
            **self.findings.to_dict(),
            "flagged": self.flagged,
            "code": code_version(),
        }


def audit_named_mechanism(
    name: str,
    epsilon: float,
    delta: float,
    *,
    samples: int | None = None,
    plant: str | None = None,
    seed: int | None = None,
    alpha: float = 0.05,
) -> MechanismAudit:
    """Audit a mechanism of `dpose.audits.mechanisms.MECHANISMS`.

    Args:
        name: Which.
        epsilon: As claimed.
        delta: As claimed.
        samples: Outputs of each input; half choose the events. By default what shows the mechanism's faults.
        plant: A fault to plant.
        seed: Makes the audit reproducible.
        alpha: Probability that a true claim is refuted.

    Raises:
        DposeError: an unknown name or fault, or a number out of range.
    """
    if samples is None:
        samples = SAMPLES.get(name, FEW)
    if samples < 100:
        raise DposeError(f"{samples} samples show nothing", "--samples", "use at least 100")
    mechanism = build(name, epsilon, delta, plant, seed)
    findings = audit_mechanism(
        mechanism.first,
        mechanism.second,
        epsilon=epsilon,
        delta=delta,
        samples=samples,
        curve=mechanism.curve,
        scores=mechanism.scores,
        alpha=alpha,
    )
    exact = exact_epsilon(*mechanism.exact, delta) if mechanism.exact else None
    return MechanismAudit(name, samples, mechanism.fault, findings, exact, seed)
