"""What an audit found, on disk: a page, a text, a picture and the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from dpose.audits.drawing import picture
from dpose.audits.findings import AuditFindings, AuditReport
from dpose.audits.page import write_audit
from dpose.audits.record import AttackedRun, AuditRecord, Blind, Rates, Share
from dpose.audits.tradeoff import TradeOff, approximate
from dpose.audits.trials import OperatingPoint, Trials
from dpose.audits.undetected_faults import UNSEEN
from dpose.files import write_atomic
from dpose.report.numbers import at_most

GRID = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 161)])
"""False-positive rates at which a claimed curve is drawn."""


def write_audit_report(report: AuditReport, folder: Path) -> None:
    """Write audit.html, audit.json, audit.md and audit.png into `folder`.

    Raises:
        DposeError: the disk is full or may not be written to.
    """
    write_atomic(folder / "audit.json", json.dumps(report.to_dict(), indent=1) + "\n")
    write_atomic(folder / "audit.md", report.markdown())
    write_atomic(folder / "audit.png", picture(report))
    write_audit(audit_record(report, folder.name), folder)


def audit_record(report: AuditReport, name: str) -> AuditRecord:
    """The audit as its page shows it."""
    claim = report.claim
    event = claim.get("event") or {}
    delta = report.family.delta
    return AuditRecord(
        name=name,
        title=report.title,
        epsilon=float(claim["epsilon"]),
        delta=delta,
        confidence=1 - report.alpha,
        claim={
            "epsilon": at_most(claim["epsilon"], 6),
            "delta": at_most(float(claim["delta"])),
            "method": str(claim["method"]),
            "neighbours": str(claim["relation"]),
            "accountant": str(claim["accountant"]),
            "unit": str(claim["unit"]),
            "units": f"{claim['n']:,}",
            **{key: str(event[key]) for key in ("q", "sigma", "steps") if key in event},
        },
        threat_model=report.threat_model,
        canaries={key: _text(value) for key, value in report.canaries.items()},
        origin={
            "Seed": "none: keys from the operating system" if report.seed is None else str(report.seed),
            "dpose": f"{report.code['dpose']}, source {report.code['source']}",
            "torch": report.code["torch"],
        },
        run=_attacked("this run", report.planted or "as it was trained", report.findings, delta),
        controls=tuple(
            _attacked(f"control: {control}", f"{control}, on purpose", found, delta)
            for control, found in report.controls.items()
        ),
        allowed=_drawn(report.family.claimed),
        pair=_drawn(approximate(float(claim["epsilon"]), delta)),
        planted=report.planted,
        unseen=report.unseen,
        blind=[Blind(fault, u.summary, u.why, u.check) for fault, u in UNSEEN.items()],
        notes=report.notes,
    )


def _attacked(name: str, what: str, found: AuditFindings, delta: float) -> AttackedRun:
    return AttackedRun(
        name=name,
        what=f"{what}; the adversary {found.adversary}",
        flagged=found.flagged,
        refuted_by=found.refuted,
        bounds=found.bounds,
        rates=tuple(_rates(point, delta) for point in found.points),
        curve=tuple(zip(found.curve[0].tolist(), found.curve[1].tolist(), strict=True)),
    )


def _rates(point: OperatingPoint, delta: float) -> Rates:
    return Rates(point.target, _share(point.true), _share(point.false), point.epsilon(delta))


def _share(trials: Trials) -> Share:
    low, high = trials.interval(0.05)
    return Share(trials.rate, low, high, trials.total)


def _drawn(curve: TradeOff) -> tuple[tuple[float, float], ...]:
    return tuple(zip(GRID.tolist(), curve.power(GRID).tolist(), strict=True))


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
