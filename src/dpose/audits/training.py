"""Audits from data to report: a canary run of a plan, its controls, and what its adversaries found."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console

from dpose.account import note_weights
from dpose.audits.canary_run import BLACK_BOX, PIXEL, WHITE_BOX, ToyTask, ToyUnits, canary_run
from dpose.audits.faults import FAULTS, check_fault, planted, undetected_words
from dpose.audits.findings import Adversary, AuditFindings, AuditReport, claim_of, weigh
from dpose.audits.noise_family import Family
from dpose.audits.report import write_audit_report
from dpose.errors import DposeError
from dpose.files import check_free
from dpose.pose.data import DataSpec
from dpose.pose.model import PoseModel
from dpose.pose.task import PoseTask
from dpose.privacy.canaries import FEWEST
from dpose.privacy.entries import read_ledger
from dpose.privacy.ledger import Ledger
from dpose.privacy.noise import AesNoise, Key, Purpose
from dpose.privacy.protected import protect
from dpose.privacy.ranges import as_given, lower, upper
from dpose.privacy.sections import AuditResult
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.build import build_model, check_settings, open_units
from dpose.runs.config import RunConfig
from dpose.runs.data import conditions, only_source, published_count
from dpose.runs.places import learnt_from, places_of, shown_settings
from dpose.runs.pose import canary_views
from dpose.tensors import weights_file
from dpose.training.canaries import PARAMETER, CanaryUnits, GradientCanaries, InputCanaries, blank_like, toss_coins
from dpose.training.first_weights import FirstWeights
from dpose.training.folder import reseal
from dpose.training.optim import OptimizerConfig
from dpose.training.options import RunOptions
from dpose.training.plan import BoundPlan, TrainingPlan
from dpose.training.statement import StatementFacts
from dpose.units import View

CONTROLS = {"no noise at all": "noise-missing", "each unit counted twice": "double-counting"}
"""Controls of every audit and the fault that each has; they must be flagged, or the audit is blind."""


@dataclass(frozen=True)
class TrainingAudit:
    """How to audit a training run.

    Attributes:
        canaries: How many; each is in on the toss of a coin.
        kind: "gradient" (white box) or "input" (black box).
        alpha: Probability that a true claim is refuted.
        plant: A fault of `dpose.audits.faults.FAULTS` to plant; no private data are read then.
        controls: Whether to train the two controls too.
    """

    canaries: int = 500
    kind: Literal["gradient", "input"] = "gradient"
    alpha: float = 0.05
    plant: str | None = None
    controls: bool = True

    def __post_init__(self) -> None:
        if self.canaries < FEWEST:
            raise DposeError(
                "canaries-too-few", f"{self.canaries} canaries show nothing", "--canaries", f"use at least {FEWEST}"
            )
        if self.kind not in ("gradient", "input"):
            raise DposeError(
                "canary-kind-unknown", f"no canaries of kind {self.kind!r}", "--kind", "choose gradient or input"
            )
        if not 0 < self.alpha < 1:
            raise DposeError(
                "level-out-of-range", f"the level must lie between 0 and 1, not {as_given(self.alpha)}", "--alpha"
            )
        if self.plant is not None:
            check_fault(self.plant, FAULTS)


def audit_training(config: RunConfig, audit: TrainingAudit, out: Path, console: Console) -> AuditReport:
    """Train the plan of `config` with canaries in the data, attack the run and write what was found into `out`.

    **Guarantee.** The canary run is a run like any other: (epsilon, delta) for the units in `config.data`, with a
    ledger and a statement in `out`, and its epsilon adds to what these units have spent before. The report is
    post-processing of it: canaries are not real people, and scores use noisy updates or final weights alone. Controls
    and runs with a planted fault protect no data and therefore read none: every unit is blank in them, and no model is
    kept.

    Args:
        config: The run to audit.
        audit: How.
        out: The folder to make: the run folder, with audit.html, audit.json, audit.md and audit.png.
        console: Where progress goes.
    """
    plan = config.plan
    if not plan.kind.private:
        raise DposeError(
            "claim-missing", f"{plan.method} claims nothing that could be refuted", "--method", "choose dp-sgd"
        )
    check_settings(config)
    check_free(out)
    key = Key.from_seed(config.seed) if config.seed is not None else Key.fresh()
    rng = AesNoise(key).stream(Purpose.INIT, 0, b"audit").generator()
    model, start, caveats = build_model(config)
    task = PoseTask(model.config.skeleton, model.codec)
    data = only_source(config, "an audit")
    # as the audited run reads them: canaries go among merged units
    real = protect(open_units(config, model.config), plan.relation, console=console).data
    console.print(
        f"{data}: {published_count(config, len(real)):,} units and {audit.canaries:,} canaries", highlight=False
    )
    canaries, outsiders = _canaries(audit, plan, model, rng)
    with console.status("the claimed curve"):
        bound = plan.bind(len(real) + audit.canaries, config.data.limit)
        assert bound.event is not None
        assert bound.epsilon is not None
        assert plan.delta is not None
        family = Family(bound.event, plan.delta, plan.relation)

    def found(adversaries: Sequence[Adversary], included: np.typing.NDArray[np.bool_]) -> AuditFindings:
        with console.status("what the adversaries found"):
            return weigh(adversaries, included, family, float(bound.epsilon or 0.0), audit.alpha)

    if audit.plant is None:
        _, adversaries = canary_run(
            task,
            model,
            CanaryUnits(real, canaries, name=f"{secrets.token_hex(16)} "),
            plan,
            out,
            outsiders=outsiders,
            optimizer=config.optimizer,
            options=_options(config, audit, start, caveats, console),
        )
        _without_canaries(out, model)
    else:
        blank = CanaryUnits(real, canaries, blank=blank_view(model))
        adversaries = _faulty(audit.plant, task, model, blank, config, outsiders, console)
    findings = found(adversaries, canaries.included)
    if audit.plant is None:
        _noted(out, findings, audit)
    controls = {}
    for name, fault in CONTROLS.items() if audit.controls else ():
        console.print(f"control: {name}", highlight=False)
        units, scored = _control(fault, audit, canaries, len(real), config, outsiders, rng, console)
        controls[name] = found(scored, units.canaries.included)
    report = _report(audit, bound, canaries, config.seed, findings, controls, family)
    write_audit_report(report, out)
    return report


def _report(
    audit: TrainingAudit,
    bound: BoundPlan,
    canaries: GradientCanaries | InputCanaries,
    seed: int | None,
    findings: AuditFindings,
    controls: Mapping[str, AuditFindings],
    family: Family,
) -> AuditReport:
    return AuditReport(
        title=f"Audit of {bound.plan.method} at epsilon {upper(bound.epsilon or 0)}",
        claim=claim_of(bound),
        threat_model=WHITE_BOX if audit.kind == "gradient" else BLACK_BOX,
        canaries={
            "kind": f"{audit.kind} canaries",
            "count": audit.canaries,
            "included": int(canaries.included.sum()),
            "coins": "independent, fair, tossed before training",
        },
        seed=seed,
        alpha=audit.alpha,
        planted=FAULTS[audit.plant].summary if audit.plant else "",
        unseen=undetected_words(audit.plant),
        findings=findings,
        controls=controls,
        family=family,
        notes=_notes(audit, seed is not None),
    )


def _options(
    config: RunConfig, audit: TrainingAudit, start: FirstWeights, caveats: Sequence[str], console: Console
) -> RunOptions:
    """What a canary run states besides its plan."""
    data = DataSpec.parse(only_source(config, "an audit")).for_purpose("train")
    return RunOptions(
        seed=config.seed,
        start=start,
        facts=StatementFacts(
            public=[f"{audit.canaries:,} {audit.kind} canaries, which are not real people"],
            conditional_on=conditions(config),
            caveats=[*caveats, *_caveats(audit)],
            about=config.about,
        ),
        settings={**shown_settings(config), "audit": {"canaries": audit.canaries, "kind": audit.kind}},
        places=places_of(config),
        data_name=data.shown,
        what="audit",
        console=console,
        learnt_from=learnt_from,
    )


def blank_view(model: torch.nn.Module) -> View:
    """A view as the model's data have them, without content: the shapes of a rendered person."""
    _, (view, *_) = canary_views(model, np.random.default_rng(0), 1)
    return blank_like(view)


def _canaries(
    audit: TrainingAudit, plan: TrainingPlan, model: PoseModel, rng: np.random.Generator
) -> tuple[GradientCanaries | InputCanaries, list[View]]:
    included = toss_coins(audit.canaries, rng)
    if audit.kind == "gradient":
        return GradientCanaries(included, blank_view(model), plan.clip, plan.relation), []
    # as many again are never trained on: half set thresholds, half count false positives
    _, views = canary_views(model, rng, 2 * audit.canaries)
    if len(views) < audit.canaries:
        raise DposeError(
            "canaries-too-many",
            f"there are {len(views):,} pictures for input canaries",
            "--canaries",
            f"use at most {len(views):,}",
        )
    return InputCanaries(included, views[: audit.canaries]), views[audit.canaries :]


def _control(
    fault: str,
    audit: TrainingAudit,
    canaries: GradientCanaries | InputCanaries,
    real: int,
    config: RunConfig,
    outsiders: Sequence[View],
    rng: np.random.Generator,
    console: Console,
) -> tuple[CanaryUnits, list[Adversary]]:
    """Train on units without content, with a fault and fresh coins: the units, and what the adversaries scored."""
    coins = toss_coins(audit.canaries, rng)
    if isinstance(canaries, GradientCanaries):
        # they push coordinates that no model's output depends on, so any model will do, and the smallest is fast
        task = ToyTask()
        units = CanaryUnits(ToyUnits(real), replace(canaries, included=coins, blank=PIXEL))
        usual = config.model_copy(update={"optimizer": OptimizerConfig()})
        return units, _faulty(fault, task, task.build_model(), units, usual, outsiders, console)
    model, _, _ = build_model(config)
    units = CanaryUnits(ToyUnits(real), replace(canaries, included=coins), blank_view(model))
    its_task = PoseTask(model.config.skeleton, model.codec)
    return units, _faulty(fault, its_task, model, units, config, outsiders, console)


def _faulty(
    fault: str,
    task: Any,
    model: torch.nn.Module,
    units: CanaryUnits,
    config: RunConfig,
    outsiders: Sequence[View],
    console: Console,
) -> list[Adversary]:
    """A run with a fault, in a folder that does not outlive it."""
    with tempfile.TemporaryDirectory(prefix="dpose-audit-") as folder, planted(fault):
        _, adversaries = canary_run(
            task,
            model,
            units,
            config.plan,
            Path(folder) / "run",
            outsiders=outsiders,
            optimizer=config.optimizer,
            options=RunOptions(seed=config.seed, state_dir=Path(folder), console=console),
        )
    return adversaries


def _without_canaries(out: Path, model: torch.nn.Module) -> None:
    """Write the weights again without the canaries' parameter, so that the folder holds a model like any other."""
    file = weights_file(model, without=(PARAMETER,))
    # what starts from these weights starts from the audit's
    note_weights(read_ledger(out / "ledger.jsonl")[0].run_id, hashlib.sha256(file).hexdigest())
    reseal(out, lambda _, statement: statement, {"model.safetensors": file})


def _noted(out: Path, findings: AuditFindings, audit: TrainingAudit) -> None:
    """Say in the statement of the audited run what the audit reached."""
    what = f"{audit.canaries:,} {audit.kind} canaries in this run"
    reached = AuditResult(what, lower(findings.bound), lower(1 - audit.alpha))

    def with_audit(_: Ledger, statement: PrivacyStatement) -> PrivacyStatement:
        return replace(statement, audits=(*statement.audits, reached))

    reseal(out, with_audit)


def _caveats(audit: TrainingAudit) -> list[str]:
    return [
        f"this is an audit: {audit.canaries:,} {audit.kind} canaries, which are not real people, were trained on "
        "with the units, and count among them",
        "the audit is one more release of the same units: its epsilon adds to what their other runs have spent",
    ]


def _notes(audit: TrainingAudit, seeded: bool) -> list[str]:
    notes = [
        "An audit shows a lower bound. A claim that is not refuted is not proved by that.",
        "The first two tests assume nothing but the guarantee. The third also assumes that different canaries fare "
        "independently, as they do under the claimed mechanism: it refutes that the claimed mechanism ran.",
        "The bounds by a trade-off curve are the epsilon of the same sampling and steps with the least noise that is "
        "refuted.",
        "All bounds of a run hold together, at the stated confidence.",
        "Controls are faulty on purpose and must be flagged. They read no private data.",
    ]
    if audit.kind == "input":
        notes.append(
            "Black-box attacks on noisy training are weak: expect bounds near zero even for faulty runs, and take "
            "gradient canaries to look for faults."
        )
        notes.append("The scores of input canaries depend on each other; their intervals describe and prove nothing.")
    if audit.plant:
        notes.append("A fault was planted. No private data were read: every real unit was blank.")
    if seeded:
        notes.append("The run is seeded: it can be repeated, and guarantees nothing.")
    return notes
