"""`dpose audit membership`, `mechanism` and `release`: audits of many runs and of mechanisms by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dpose.cli.audit import AUDITED, Alpha, Out, leave, show_audit
from dpose.cli.options import RUN, Settings, option
from dpose.privacy.ranges import as_given, lower

if TYPE_CHECKING:
    from dpose_lab.audits.mechanism_audit import MechanismAudit

Epsilon = Annotated[float, option("The claim: epsilon of the whole run or release.")]
Delta = Annotated[float, option("The claim: delta.")]
Seed = Annotated[int | None, option("Makes the audit reproducible.", min=0)]

HALF_RUNS = Settings(
    (RUN,),
    AUDITED,
    {"data.limit": 200, "data.validation_data": "none", "plan.epochs": 8.0, "plan.expected_batch_size": 50},
)
"""Options of audits by many runs, each on a random half of the units."""


def membership(
    settings: Annotated[dict[str, Any], HALF_RUNS],
    *,
    out: Out,
    shadows: Annotated[int, option("Runs that the adversary learns from.")] = 16,
    targets: Annotated[int, option("Runs that are attacked.")] = 4,
    alpha: Alpha = 0.05,
    controls: Annotated[bool, option("Train and attack the two controls too.")] = True,
    workers: Annotated[int | None, option("Processes; by default as many as cores, or one with a GPU.")] = None,
) -> None:
    """Train on random halves of the units, many times, and guess who was in which run."""
    from dpose.runs.config import RunConfig
    from dpose_lab.audits.membership import MembershipAudit, audit_membership

    console = Console()
    config = RunConfig.from_options(settings)
    how = MembershipAudit(shadows, targets, alpha, controls, workers)
    report = audit_membership(config, how, out, console)
    show_audit(report, console)
    console.print(f"Spent: {report.canaries['spent']}", highlight=False)
    leave(report.findings.flagged, out, console)


def mechanism(
    name: Annotated[
        str, typer.Argument(help="gaussian, poisson-gaussian (through the engine), laplace or randomized-response.")
    ],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    samples: Annotated[
        int | None,
        option(
            "Outputs of each input; half choose events, half test them. Default: 20,000, and 160,000 where faults "
            "show less."
        ),
    ] = None,
    plant: Annotated[str | None, option("Plant a fault, to see it flagged.")] = None,
    out: Annotated[Path | None, option("A JSON file to write.")] = None,
    alpha: Alpha = 0.05,
    seed: Seed = None,
) -> None:
    """Run a mechanism on two neighbouring inputs and compare what comes out."""
    from dpose_lab.audits.mechanism_audit import audit_named_mechanism

    console = Console()
    with console.status("drawing outputs of both inputs"):
        report = audit_named_mechanism(name, epsilon, delta, samples=samples, plant=plant, seed=seed, alpha=alpha)
    _show_mechanism(report, out, console)


def release(
    name: Annotated[str, typer.Argument(help="pixelize or release-video.")],
    epsilon: Annotated[str, option("The claim: epsilon of each file.")],
    delta: Annotated[str, option("The claim: delta. 0 is pixelize's Laplace noise; release-video needs more.")] = "0",
    samples: Annotated[
        int | None, option("Outputs of each input, 64 of a file; half choose events, half test them. Default: 2,560.")
    ] = None,
    plant: Annotated[str | None, option("Plant a fault, half-noise or noise-missing, to see it flagged.")] = None,
    out: Annotated[Path | None, option("A JSON file to write.")] = None,
    alpha: Alpha = 0.05,
) -> None:
    """Run a releasing command on many neighbouring files and compare what the released ones show."""
    from dpose.cli import main
    from dpose_lab.audits.mechanism_audit import audit_release_command

    console = Console()
    with console.status("releasing files"):
        report = audit_release_command(name, main, epsilon, delta, samples=samples, plant=plant, alpha=alpha)
    _show_mechanism(report, out, console)


def _show_mechanism(report: MechanismAudit, out: Path | None, console: Console) -> None:
    from dpose.files import write_atomic

    findings = report.findings
    table = Table(
        title=f"{report.mechanism}: epsilon {as_given(findings.epsilon)}, delta {as_given(findings.delta)} claimed; "
        f"{report.samples:,} outputs of each input"
    )
    for column in ("tested by", "event", "on the likelier input", "on the other"):
        table.add_column(column)
    for by, tested in (("(epsilon, delta)", findings.pair), ("trade-off curve", findings.curve)):
        if tested:
            rates = (f"{t.rate:.2%} of {t.total:,}" for t in (tested.likelier, tested.rarer))
            table.add_row(by, str(tested.event), *rates)
    console.print(table)
    if report.planted:
        console.print(f"Planted fault: {report.planted}", highlight=False)
    estimate, bound = findings.hockey_stick
    lines = [
        f"epsilon is at least {lower(findings.epsilon_bound, 3)} at delta {as_given(findings.delta)} "
        f"(confidence {lower(1 - findings.alpha)})",
        f"delta at epsilon {as_given(findings.epsilon)}: estimate {max(estimate, 0.0):.3g}, "
        f"at least {lower(max(bound, 0.0), 3)}",
    ]
    if report.exact is not None:
        lines.append(f"epsilon by adding up all outputs: {lower(report.exact, 6)}")
    for line in lines:
        console.print(line, highlight=False)
    if out:
        write_atomic(out, json.dumps(report.to_dict(), indent=1) + "\n")
    reasons = findings.refuted_by or ("adding up",)
    console.print(
        f"[bold red]FLAGGED[/]: refuted by {', '.join(reasons)}" if report.flagged else "[bold]not refuted[/]",
        highlight=False,
    )
    leave(report.flagged)
