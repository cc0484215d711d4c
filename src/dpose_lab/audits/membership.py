"""Membership inference from data to report: shadow runs, attacked runs, controls, and what it all cost."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dpose.account import conclude
from dpose.audits.canary_run import check_auditable
from dpose.audits.findings import AuditFindings, AuditReport, claim_of, weigh
from dpose.audits.noise_family import Family
from dpose.audits.report import write_audit_report
from dpose.errors import DposeError
from dpose.files import check_free
from dpose.pose.data import DataSpec
from dpose.privacy.accounting import epsilon
from dpose.privacy.neighbours import Relation
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.protected import protect
from dpose.privacy.ranges import as_given, upper
from dpose.privacy.sections import Query
from dpose.privacy.statement import Kind
from dpose.runs.build import build_model, first_weights, open_units
from dpose.runs.config import RunConfig
from dpose.runs.data import only_source
from dpose.runs.evaluate import record_query
from dpose.runs.scored import reserve_labels
from dpose.training.canaries import Coins, toss_coins
from dpose.training.folder import read_statement
from dpose.training.plan import BoundPlan
from dpose_lab.audits.lira import ScoredUnits, adversaries
from dpose_lab.audits.shadow_runs import ShadowJob, run_jobs

NO_MARKS = "synthetic:ward:train"
"""Training data of the controls: rendered people."""
CONTROL_UNITS, CONTROL_EPOCHS, CONTROL_BATCH = 24, 20, 12
"""Plan of the controls: few units and many epochs, so that a model memorises them in seconds."""
CONTROLS = {"trained without any guarantee": None, "no noise at all": "noise-missing"}
"""Controls that leak on purpose: ordinary training, and the claimed method without its noise."""


@dataclass(frozen=True)
class MembershipAudit:
    """Settings of a membership audit.

    Attributes:
        shadows: Number of runs that the adversary learns from.
        targets: Number of runs that are attacked.
        alpha: Probability that a true claim is refuted.
        controls: True to train and attack the two controls too.
        workers: Number of processes; None for one per core, or a single one with a GPU.
    """

    shadows: int = 16
    targets: int = 4
    alpha: float = 0.05
    controls: bool = True
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.shadows < 4:
            raise DposeError("shadows-too-few", f"{self.shadows} shadows show nothing", "--shadows", "use at least 4")
        if self.targets < 1:
            raise DposeError("targets-too-few", "there must be a run to attack", "--targets", "use at least 1")
        if not 0 < self.alpha < 1:
            raise DposeError(
                "level-out-of-range", f"the level must lie between 0 and 1, not {as_given(self.alpha)}", "--alpha"
            )
        if self.workers is not None and self.workers < 1:
            raise DposeError("workers-too-few", "there must be a process to work", "--workers", "use at least 1")


def audit_membership(config: RunConfig, audit: MembershipAudit, out: Path, console: Console) -> AuditReport:
    """Train shadow and target runs on random halves of the units, guess who was in, and write a report.

    **Guarantee.** Every run is a run like any other: (epsilon, delta) for the units in `config.data`, with a ledger and
    a statement in its own folder under `out`; together they cost what the report names. The scores are *not* covered:
    they are computed from the private pictures without noise. What the report shows of them, rates and curves over all
    units, is an un-noised function of private data too; each run's statement lists it as a query outside epsilon, and
    the report belongs where the pictures are. Controls train on rendered people.

    Args:
        config: The run to attack.
        audit: Settings of the audit.
        out: The folder to make: the runs, and audit.html, audit.json, audit.md and audit.png.
        console: Console of the progress bar.
    """
    plan = config.plan
    if not plan.kind.private:
        raise DposeError(
            "claim-missing", f"{plan.method} claims nothing that could be refuted", "--method", "choose dp-sgd"
        )
    check_auditable(plan, "is not attacked by these shadows")
    if plan.relation is not Relation.ZERO_OUT:
        raise DposeError(
            "relation-unsupported", "shadow runs zero units out; another relation is not tested", "plan.relation"
        )
    check_free(out)
    model, _, _ = build_model(config)
    own = protect(open_units(config, model.config), plan.relation, console=console)
    units, n = own.data, len(own.data)
    bound = plan.bind(n)
    spec = DataSpec.parse(only_source(config, "an audit")).for_purpose("train")
    reading = ""
    if not spec.public:
        reading = reserve_labels(out, units, name=spec.shown, unit=own.neighbours.unit.value, console=console)
    assert bound.event is not None
    assert plan.delta is not None
    runs = audit.shadows + audit.targets
    cost = epsilon_together(bound, runs)
    console.print(
        f"{only_source(config, 'an audit')}: {n:,} units, {audit.shadows} shadow runs and {audit.targets} to attack. "
        f"Each costs epsilon {upper(bound.epsilon or 0)}, all together {upper(cost)} at delta {as_given(plan.delta)}.",
        highlight=False,
    )
    key = Key.fresh() if config.seed is None else Key.from_seed(config.seed)
    rng = AesNoise(key).stream(Purpose.INIT, 0, b"membership").generator()
    family = Family(bound.event, plan.delta, plan.relation)
    caveat = (
        f"this is one of {runs} runs of a membership audit on the same units, each of which left out a random half of "
        f"them; together they cost epsilon {upper(cost)} at delta {as_given(plan.delta)}, beside what else the units "
        "have spent"
    )
    targets, shadows = _attacked_runs(config, n, audit, out / "runs", rng, console, "shadow runs", caveats=(caveat,))
    _record(out / "runs", config, n)

    def attack(attacked: ScoredUnits, learnt: ScoredUnits) -> AuditFindings:
        with console.status("what the adversaries found"):
            included = attacked.included.ravel()
            return weigh(adversaries(attacked, learnt), included, family, float(bound.epsilon or 0.0), audit.alpha)

    findings = attack(targets, shadows)
    controls = {}
    for name, fault in CONTROLS.items() if audit.controls else ():
        with tempfile.TemporaryDirectory(prefix="dpose-audit-") as folder:
            place = Path(folder)
            control = _control(config, fault)
            scored = _attacked_runs(
                control,
                CONTROL_UNITS,
                audit,
                place / "runs",
                rng,
                console,
                f"control: {name}",
                fault=fault,
                state=folder,
            )
            controls[name] = attack(*scored)
    report = AuditReport(
        title=f"Membership inference against {plan.method} at epsilon {upper(bound.epsilon or 0)}",
        claim={**claim_of(bound), "epsilon_together": cost, "runs": runs},
        threat_model=(
            f"black box with shadow models: sees the final weights of {audit.targets} runs, knows every picture and "
            f"label and all settings, and has trained {audit.shadows} more runs on halves of the same units that it "
            "knows; guesses for each unit and each attacked run whether the unit was in"
        ),
        canaries={
            "kind": "pairs of a unit and an attacked run",
            "count": int(targets.included.size),
            "included": int(targets.included.sum()),
            "coins": "independent, fair, one for each unit in each run, tossed before training",
            "units": n,
            "attacked runs": audit.targets,
            "shadow runs": audit.shadows,
            "spent": f"epsilon {upper(bound.epsilon or 0)} by each run, {upper(cost)} by all {runs}, "
            f"at delta {as_given(plan.delta)}",
        },
        seed=config.seed,
        alpha=audit.alpha,
        planted="",
        findings=findings,
        controls=controls,
        family=family,
        notes=_notes(config.seed is not None),
    )
    write_audit_report(report, out)
    if reading:
        conclude({reading: ()})
    return report


def epsilon_together(bound: BoundPlan, runs: int) -> float:
    """Epsilon of `runs` runs of the same plan on the same units, at the plan's delta."""
    assert bound.event is not None
    assert bound.plan.delta is not None
    whole = replace(bound.event, steps=runs * bound.event.steps)
    return epsilon([whole], bound.plan.delta, bound.plan.relation, bound.plan.accountant)


def _attacked_runs(
    config: RunConfig,
    n: int,
    audit: MembershipAudit,
    folder: Path,
    rng: np.random.Generator,
    console: Console,
    doing: str,
    **options: Any,
) -> tuple[ScoredUnits, ScoredUnits]:
    """Train and score targets and shadows."""
    names = [f"shadow-{k:03d}" for k in range(audit.shadows)] + [f"target-{k:03d}" for k in range(audit.targets)]
    coins: list[Coins] = [toss_coins(n, rng) for _ in names]
    seeds: Sequence[int | None] = [None] * len(names)
    if config.seed is not None:
        seeds = rng.integers(2**31, size=len(names)).tolist()
    jobs = [
        ShadowJob({**config.to_dict(), "seed": seed}, tuple(included.tolist()), str(folder / name), **options)
        for name, included, seed in zip(names, coins, seeds, strict=True)
    ]
    scores, included = run_jobs(jobs, audit.workers, console, doing), np.stack(coins)
    k = audit.shadows
    return ScoredUnits(scores[k:], included[k:]), ScoredUnits(scores[:k], included[:k])


def _control(config: RunConfig, fault: str | None) -> RunConfig:
    """Train on few rendered people: without privacy, or by the claimed method with a fault."""
    plan = replace(
        config.plan,
        epsilon=None,
        noise_multiplier=1.0,
        epochs=CONTROL_EPOCHS,
        steps=None,
        expected_batch_size=CONTROL_BATCH,
        unit="image",
        ema_decay=0.0,
    )
    if fault is None:
        plan = replace(plan, method="non-private")
    values = config.to_dict()
    return RunConfig.from_dict(
        {
            **values,
            "data": {"private": NO_MARKS, "limit": CONTROL_UNITS},
            "model": {**values["model"], "strategy": "full" if first_weights(config) else "scratch"},
            "plan": plan.to_dict(),
            "augment": "none",
        },
        "control",
    )


def _record(folder: Path, config: RunConfig, n: int) -> None:
    """List in each run's statement the query that was computed from the private units."""
    spec = DataSpec.parse(only_source(config, "an audit")).for_purpose("train")
    if spec.public:
        return
    data = f"{spec.shown}, {n:,} units"
    for run in sorted(folder.iterdir()):
        statement = read_statement(run)
        if statement and statement.kind is not Kind.NONE:
            query = Query(
                "losses of the units themselves", data, "membership inference, reported as rates over all units"
            )
            record_query(run, query)


def _notes(seeded: bool) -> list[str]:
    notes = [
        "An audit shows a lower bound. A claim that is not refuted is not proved by that.",
        "The bounds in one run assume nothing but the guarantee: each pair of a unit and an attacked run has a coin of "
        "its own, and the shadows know none of those coins.",
        "Rates, their intervals and the epsilon that they imply pool units and runs, which depend on each other "
        "through the weights: they describe, and prove nothing.",
        "Scores are computed from the private pictures without noise, and so are the rates and curves shown here: "
        "epsilon does not cover this report. Keep it where the pictures are.",
        "Black-box attacks on noisy training are weak: expect bounds near zero even for faulty runs, and use `dpose "
        "audit training` to look for faults.",
        "The controls' few units cannot show a large epsilon in one run. What matters is that their rates stand far "
        "above guessing: an attack that cannot tell who was in them is blind.",
    ]
    if seeded:
        notes.append("The runs are seeded: they can be repeated, and guarantee nothing.")
    return notes
