"""`dpose audit`: attack the guarantee. Exit code 1 where a claim is refuted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from dpose.cli.options import option, unfolded
from dpose.cli.run_options import (
    DATA,
    GUARANTEE,
    METHOD,
    MODEL,
    BatchSize,
    ClipNorm,
    Epochs,
    LearningRate,
    Limit,
    placed,
)
from dpose.privacy.rounding import as_given, between, lower, upper

if TYPE_CHECKING:
    from dpose.audits.findings import AuditReport
    from dpose.audits.mechanism_audit import MechanismAudit
    from dpose.audits.trials import Trials

app = typer.Typer(
    help="Attack the guarantee: a lower bound on epsilon beside the claim.", no_args_is_help=True
)

Epsilon = Annotated[float, option("The claim: epsilon of the whole run or release.", GUARANTEE)]
Delta = Annotated[float, option("The claim: delta.", GUARANTEE)]
Alpha = Annotated[float, option("Probability that a true claim is flagged.")]
Seed = Annotated[int | None, option("Makes the audit reproducible.", min=0)]
Out = Annotated[Path, option("The folder to make; must not exist.")]


@app.callback()
def audit() -> None:
    """Attack the guarantee. Exit code 0: not refuted. 1: FLAGGED, the claim is refuted. 2: a mistake."""


@dataclass(frozen=True)
class AuditedRun:
    """The runs that are audited; placed in a configuration by their names."""

    private: Annotated[
        str, option("The data: NAME[:ROOT][:SPLIT]. Every run adds to what they have spent.", DATA, "--data")
    ]
    epsilon: Epsilon
    delta: Delta
    method: Annotated[str, option("The method to audit.", METHOD)] = "dp-sgd"
    preset: Annotated[str, option("nano (CPU), 5m, 11m or 21m.", MODEL)] = "nano"
    init: Annotated[str | None, option("A model folder to start from.", MODEL)] = None
    limit: Limit = 500
    epochs: Epochs = 4
    expected_batch_size: BatchSize = 125
    clip_norm: ClipNorm = 1.0
    lr: LearningRate = 1e-3
    seed: Seed = None


@dataclass(frozen=True)
class CanaryRun(AuditedRun):
    """One run, of units and canaries."""

    relation: Annotated[str, option("zero-out or replace.", GUARANTEE)] = "zero-out"


@dataclass(frozen=True)
class HalfRuns(AuditedRun):
    """Many runs, each on a random half of the units."""

    limit: Limit = 200
    epochs: Epochs = 8
    expected_batch_size: BatchSize = 50


@app.command(
    epilog="Example: dpose audit training --data synthetic:ward --epsilon 4 --delta 1e-5 --out runs/audit"
)
@unfolded
def training(
    run: CanaryRun,
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
    report = audit_training(RunConfig.from_options(placed(run)), how, out, console)
    _show(report, console)
    _leave(report.findings.flagged, out, console)


@app.command(
    epilog="Example: dpose audit membership --data synthetic:ward --epsilon 8 --delta 1e-5 --out runs/lira"
)
@unfolded
def membership(
    run: HalfRuns,
    *,
    out: Out,
    shadows: Annotated[int, option("Runs that the adversary learns from.")] = 16,
    targets: Annotated[int, option("Runs that are attacked.")] = 4,
    alpha: Alpha = 0.05,
    controls: Annotated[bool, option("Train and attack the two controls too.")] = True,
    workers: Annotated[
        int | None, option("Processes; by default as many as cores, or one with a GPU.")
    ] = None,
) -> None:
    """Train on random halves of the units, many times, and guess who was in which run."""
    from dpose.audits.membership import MembershipAudit, audit_membership
    from dpose.runs.config import RunConfig

    console = Console()
    config = RunConfig.from_options(placed(run, watch="none"))
    how = MembershipAudit(shadows, targets, alpha, controls, workers)
    report = audit_membership(config, how, out, console)
    _show(report, console)
    console.print(f"Spent: {report.canaries['spent']}", highlight=False)
    _leave(report.findings.flagged, out, console)


@app.command(epilog="Example: dpose audit mechanism gaussian --epsilon 1 --delta 1e-5")
def mechanism(
    name: Annotated[
        str,
        typer.Argument(
            help="gaussian, poisson-gaussian (through the engine), laplace or randomized-response."
        ),
    ],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Outputs of each input; half choose events, half test them. Default: 20,000, and 160,000 where faults "
            "show less."
        ),
    ] = None,
    plant: Annotated[str | None, typer.Option(help="Plant a fault, to see it flagged.")] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file to write.")] = None,
    alpha: Alpha = 0.05,
    seed: Seed = None,
) -> None:
    """Run a mechanism on two neighbouring inputs and compare what comes out."""
    from dpose.audits.mechanism_audit import audit_named_mechanism

    console = Console()
    with console.status("drawing outputs of both inputs"):
        report = audit_named_mechanism(
            name, epsilon, delta, samples=samples, plant=plant, seed=seed, alpha=alpha
        )
    _show_mechanism(report, out, console)


@app.command(epilog="Example: dpose audit release release-video --epsilon 4 --delta 1e-5 --plant half-noise")
def release(
    name: Annotated[str, typer.Argument(help="pixelize or release-video.")],
    epsilon: Annotated[str, option("The claim: epsilon of each file.", GUARANTEE)],
    delta: Annotated[
        str, option("The claim: delta. 0 is pixelize's Laplace noise; release-video needs more.", GUARANTEE)
    ] = "0",
    samples: Annotated[
        int | None,
        typer.Option(
            help="Outputs of each input, 64 of a file; half choose events, half test them. Default: 2,560."
        ),
    ] = None,
    plant: Annotated[
        str | None, typer.Option(help="Plant a fault, half-noise or noise-missing, to see it flagged.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file to write.")] = None,
    alpha: Alpha = 0.05,
) -> None:
    """Run a releasing command on many neighbouring files and compare what the released ones show."""
    from dpose.audits.mechanism_audit import audit_release_command
    from dpose.cli import main

    console = Console()
    with console.status("releasing files"):
        report = audit_release_command(name, main, epsilon, delta, samples=samples, plant=plant, alpha=alpha)
    _show_mechanism(report, out, console)


@app.command(epilog="Example: dpose audit claim runs/model --opening opening.json --out runs/audit-of-model")
def claim(
    folder: Annotated[Path, typer.Argument(help="The released model: its run folder, with its ledger.")],
    opening: Annotated[
        Path | None,
        typer.Option(help="What opens the commitment in its statement; whoever trained it has it."),
    ] = None,
    commitment: Annotated[
        str | None,
        typer.Option(help="The commitment as you were given it before training: must be this one."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to make for the report; must not exist.")
    ] = None,
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
    _show(report, console)
    _leave(report.findings.flagged, out, console)


@app.command(epilog="Example: dpose audit opening runs/model --out opening.json")
def opening(
    folder: Annotated[Path, typer.Argument(help="A run folder that dpose train --canaries made here.")],
    *,
    out: Annotated[Path, typer.Option(help="The file to write; must not exist.")],
) -> None:
    """Write what opens a model's commitment to its canaries, to hand it to whoever audits the model."""
    from dpose.audits.claim import hand_over
    from dpose.files import write_atomic

    handed = hand_over(folder, out)
    write_atomic(out, handed.to_json(), 0o600)
    Console().print(
        f"{out} opens the commitment {handed.commitment}.\nWhoever has it can audit the model: dpose audit claim "
        f"{folder} --opening {out}",
        highlight=False,
        soft_wrap=True,
    )


def _show_mechanism(report: MechanismAudit, out: Path | None, console: Console) -> None:
    from dpose.files import write_atomic

    found = report.findings
    table = Table(
        title=f"{report.mechanism}: epsilon {as_given(found.epsilon)}, delta {as_given(found.delta)} claimed; "
        f"{report.samples:,} outputs of each input"
    )
    for column in ("tested by", "event", "on the likelier input", "on the other"):
        table.add_column(column)
    for by, tested in (("(epsilon, delta)", found.pair), ("trade-off curve", found.curve)):
        if tested:
            rates = (f"{t.rate:.2%} of {t.total:,}" for t in (tested.likelier, tested.rarer))
            table.add_row(by, str(tested.event), *rates)
    console.print(table)
    if report.planted:
        console.print(f"Planted fault: {report.planted}", highlight=False)
    estimate, bound = found.hockey_stick
    lines = [
        f"epsilon is at least {lower(found.epsilon_bound, 3)} at delta {as_given(found.delta)} "
        f"(confidence {lower(1 - found.alpha)})",
        f"delta at epsilon {as_given(found.epsilon)}: estimate {max(estimate, 0.0):.3g}, "
        f"at least {lower(max(bound, 0.0), 3)}",
    ]
    if report.exact is not None:
        lines.append(f"epsilon by adding up all outputs: {lower(report.exact, 6)}")
    for line in lines:
        console.print(line, highlight=False)
    if out:
        write_atomic(out, json.dumps(report.to_dict(), indent=1) + "\n")
    reasons = found.refuted_by or ("adding up",)
    console.print(
        f"[bold red]FLAGGED[/]: refuted by {', '.join(reasons)}"
        if report.flagged
        else "[bold]not refuted[/]",
        highlight=False,
    )
    _leave(report.flagged)


def _show(report: AuditReport, console: Console) -> None:
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
    table.add_row(
        "verdict", *("[bold red]FLAGGED[/]" if run.flagged else "not refuted" for run in runs.values())
    )
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
            f"epsilon {upper(report.claim['epsilon'])} is [bold]not refuted[/]; that is no proof",
            highlight=False,
        )
        if report.blind:
            from dpose.audits.findings import BLIND

            console.print(f"[yellow]{BLIND}[/]", highlight=False)


def _share(trials: Trials) -> str:
    low, high = trials.interval(0.05)
    return f"{trials.rate:.1%} ({between(low, high, places=1, times=100)} %)"


def _leave(flagged: bool, out: Path | None = None, console: Console | None = None) -> None:
    if out and console:
        where = f"\nThe report is {out}/audit.html; beside it audit.md, audit.json and audit.png"
        console.print(where, highlight=False, soft_wrap=True)
    if flagged:
        raise typer.Exit(1)
