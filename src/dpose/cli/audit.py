"""`dpose audit`: attack the guarantee. Exit code 1 where a claim is refuted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dpose.cli.options import RUN, TRAIN, Settings, option
from dpose.privacy.ranges import between, lower, upper

if TYPE_CHECKING:
    from dpose.audits.findings import AuditReport
    from dpose.audits.trials import Trials

Alpha = Annotated[float, option("Probability that a true claim is flagged.")]
Out = Annotated[Path, option("The folder to make; must not exist.")]


AUDITED = {
    path: TRAIN.named[path]
    for path in (
        "data.private",
        "data.limit",
        "model.preset",
        "model.init",
        "plan.method",
        "plan.epsilon",
        "plan.delta",
        "plan.epochs",
        "plan.expected_batch_size",
    )
}
"""Settings of the runs that are audited, which have options."""
CANARY_RUN = Settings((RUN,), AUDITED, {"data.limit": 500, "plan.epochs": 4.0, "plan.expected_batch_size": 125})


def training(
    settings: Annotated[dict[str, Any], CANARY_RUN],
    *,
    out: Out,
    canaries: Annotated[int, option("How many; each is in on the toss of a coin.")] = 500,
    kind: Annotated[
        str, option("gradient (white box, strong) or input (black box: pictures with wrong labels, weak).")
    ] = "gradient",
    plant: Annotated[str | None, option("Plant a fault, to see it flagged; reads no private data.")] = None,
    alpha: Alpha = 0.05,
    controls: Annotated[bool, option("Train the two faulty controls too.")] = True,
) -> None:
    """Train a plan with canaries in its data, find them again, and bound epsilon from below."""
    from dpose.audits.training import TrainingAudit, audit_training
    from dpose.runs.config import RunConfig

    console = Console()
    how = TrainingAudit(canaries, kind, alpha, plant, controls)  # type: ignore[arg-type]
    report = audit_training(RunConfig.from_options(settings), how, out, console)
    show_audit(report, console)
    leave(report.findings.flagged, out, console)


def claim(
    folder: Annotated[Path, typer.Argument(help="The released model: its run folder, with its ledger.")],
    opening: Annotated[
        Path | None, option("What opens the commitment in its statement, from those who trained it.")
    ] = None,
    commitment: Annotated[
        str | None, option("The commitment as you were given it before training: must be this one.")
    ] = None,
    out: Annotated[Path | None, option("The folder to make for the report; must not exist.")] = None,
    alpha: Alpha = 0.05,
) -> None:
    """Test the claim of a released model by the canaries that were planted before it was trained."""
    from dpose.audits.claim import audit_claim
    from dpose.audits.report import write_audit_report
    from dpose.files import check_free, make_folder

    console = Console()
    if out:
        check_free(out)
    with console.status("scoring the canaries"):
        report = audit_claim(folder, opening, alpha=alpha, commitment=commitment)
    if out:
        make_folder(out)
        write_audit_report(report, out)
    show_audit(report, console)
    leave(report.findings.flagged, out, console)


def opening(
    folder: Annotated[Path, typer.Argument(help="A run folder that dpose train --canaries made here.")],
    *,
    out: Annotated[Path, option("The file to write; must not exist.")],
) -> None:
    """Write what opens a model's commitment to its canaries, for the auditor of the model."""
    from dpose.audits.claim import hand_over
    from dpose.files import write_atomic

    handed = hand_over(folder, out)
    write_atomic(out, handed.to_json(), 0o600)
    Console().print(
        f"{out} opens the commitment {handed.commitment}.\nIts holder can audit the model: dpose audit claim "
        f"{folder} --opening {out}",
        highlight=False,
        soft_wrap=True,
    )


def show_audit(report: AuditReport, console: Console) -> None:
    """Print what an audit found, as a table and a verdict."""
    runs = {"this run": report.findings, **{f"control: {k}": v for k, v in report.controls.items()}}
    table = Table(title=f"{report.title}: epsilon is at least (confidence {lower(1 - report.alpha)})")
    table.add_column("test")
    for name in runs:
        table.add_column(name, justify="right")
    for test in report.findings.bounds:
        values = [run.bounds[test] for run in runs.values()]
        table.add_row(test, *("-" if value is None else lower(value, places=2) for value in values))
    table.add_section()
    for k, point in enumerate(report.findings.points[:2]):
        rates = [run.points[k].true for run in runs.values()]
        cells = [_share(rate) for rate in rates]
        table.add_row(f"true positives at {point.target:.1%} false ones", *cells)
    table.add_section()
    table.add_row("verdict", *("[bold red]FLAGGED[/]" if run.flagged else "not refuted" for run in runs.values()))
    console.print(table)
    if report.planted:
        console.print(f"Planted fault: {report.planted}", highlight=False)
    if report.unseen:
        console.print(report.unseen, highlight=False, markup=False)
    if report.findings.flagged:
        console.print(
            f"[bold red]FLAGGED[/]: epsilon {upper(report.claim['epsilon'])} is refuted by "
            f"{', '.join(report.findings.refuted)}",
            highlight=False,
        )
    else:
        console.print(
            f"epsilon {upper(report.claim['epsilon'])} is [bold]not refuted[/]; that is no proof", highlight=False
        )
        if report.blind:
            from dpose.audits.findings import BLIND

            console.print(f"[yellow]{BLIND}[/]", highlight=False)


def _share(trials: Trials) -> str:
    low, high = trials.interval(0.05)
    return f"{trials.rate:.1%} ({between(low, high, places=1, times=100)} %)"


def leave(flagged: bool, out: Path | None = None, console: Console | None = None) -> None:
    """Say where the report is, and end with exit code 1 where the claim is refuted."""
    if out and console:
        where = f"\nThe report is {out}/audit.html; beside it audit.md, audit.json and audit.png"
        console.print(where, highlight=False, soft_wrap=True)
    if flagged:
        raise typer.Exit(1)
