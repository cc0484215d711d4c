"""Audits of single mechanisms and of releasing commands by name: outputs on two neighbouring inputs, compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpose.audits.findings import code_version
from dpose.errors import DposeError
from dpose.release.config import exact
from dpose_lab.audits.hockey_stick import MechanismFindings, audit_mechanism, exact_epsilon
from dpose_lab.audits.mechanisms import Mechanism, build
from dpose_lab.audits.release_files import Command, file_mechanism

FEW = 20_000
"""Number of outputs of each input by default."""
OF_FILES = 2_560
"""Number of outputs of a releasing command: 40 files of each input."""
SAMPLES = {"poisson-gaussian": 160_000}
"""More outputs for some mechanisms: twice the sampling rate moves each output's chance by a few percent and no more."""


@dataclass(frozen=True)
class MechanismAudit:
    """An audit of one mechanism by name.

    Attributes:
        mechanism: Name of the mechanism.
        samples: Number of outputs drawn of each input.
        planted: The fault, in words; "" for none.
        findings: Findings from the samples.
        exact: Epsilon by adding up all outputs; None if that is not possible.
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
        """True if the claim is refuted, by samples or by the sum."""
        exceeded = self.exact is not None and self.exact > self.findings.epsilon * (1 + 1e-6)
        return self.findings.flagged or exceeded

    def to_dict(self) -> dict[str, Any]:
        """The audit as JSON."""
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
    """Audit a mechanism of `dpose_lab.audits.mechanisms.MECHANISMS`.

    Args:
        name: Name of the mechanism.
        epsilon: Claimed epsilon.
        delta: Claimed delta.
        samples: Number of outputs of each input; half choose the events. By default enough to show the faults.
        plant: A fault to plant.
        seed: Makes the audit reproducible.
        alpha: Probability that a true claim is refuted.
    """
    samples = _enough(SAMPLES.get(name, FEW) if samples is None else samples, alpha, delta)
    return _audited(build(name, epsilon, delta, plant, seed), epsilon, delta, samples, alpha, seed)


def audit_release_command(
    name: str,
    run: Command,
    epsilon: str,
    delta: str = "0",
    *,
    samples: int | None = None,
    plant: str | None = None,
    alpha: float = 0.05,
) -> MechanismAudit:
    """Audit a command of `dpose_lab.audits.release_files.COMMANDS`, on files.

    Args:
        name: Name of the command.
        run: Runs one command line of dpose.
        epsilon: Claimed epsilon of each file: a decimal or rational number.
        delta: Claimed delta of each file.
        samples: Outputs of each input, 64 of a file; half choose the events.
        plant: A fault to plant.
        alpha: Probability that a true claim is refuted.
    """
    samples = _enough(OF_FILES if samples is None else samples, alpha, float(exact(delta, "delta")))
    with file_mechanism(name, run, epsilon, delta, plant) as mechanism:
        return _audited(mechanism, float(exact(epsilon, "epsilon")), float(delta), samples, alpha, None)


def _enough(samples: int, alpha: float, delta: float) -> int:
    if not 0 < alpha < 1:
        raise DposeError("level-out-of-range", f"the level must lie between 0 and 1, not {alpha}", "--alpha")
    if not 0 <= delta < 1:
        raise DposeError("delta-out-of-range", f"must lie between 0 and 1, not {delta}", "--delta", "give 0 for none")
    if samples < 100:
        raise DposeError("samples-too-few", f"{samples} samples show nothing", "--samples", "use at least 100")
    return samples


def _audited(
    mechanism: Mechanism, epsilon: float, delta: float, samples: int, alpha: float, seed: int | None
) -> MechanismAudit:
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
    summed = exact_epsilon(*mechanism.exact, delta) if mechanism.exact else None
    return MechanismAudit(mechanism.name, samples, mechanism.fault, findings, summed, seed)
