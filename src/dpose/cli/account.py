"""`dpose account`: what private data have been spent for, and the budgets that they must keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dpose.cli.options import option, plain_console
from dpose.errors import DposeError

Data = Annotated[str, typer.Argument(help="NAME[:ROOT][:SPLIT], as a run would read them.")]
Delta = Annotated[float | None, option("The delta of the epsilons shown. Default: the runs' own, or 1e-5.")]
Unit = Annotated[
    str | None,
    option(
        "What the budget protects: crop, image, video or subject, or pixels:M of a picture. What protects a "
        "weaker unit is refused. Default: image; of videos video."
    ),
]
Owner = Annotated[
    str,
    option(
        "A name that must be given again to change or lift the budget. It is kept as a hash, and is no "
        "authentication: roles of a PostgreSQL are (docs/guide/account.md)."
    ),
]
Account = Annotated[
    str | None,
    option(
        "The account: postgresql+psycopg://USER@HOST/NAME or sqlite:///FILE. Default: DPOSE_ACCOUNT, or a file "
        "in your state folder. Its key is in DPOSE_ACCOUNT_KEY or beside your own account, never in a database.",
        "--account",
        metavar="URL",
    ),
]
Limit = Annotated[int | None, option("Only so many units of the data, chosen by name.", min=1)]


@dataclass(frozen=True)
class BudgetChange:
    """A budget to set or to lift before the account is shown."""

    budget: Annotated[float | None, option("As account budget set DATA --epsilon, at --delta or 1e-5.")] = None
    no_budget: Annotated[bool, option("As account budget lift DATA.", "--no-budget")] = False
    unit: Unit = None
    owner: Owner = ""

    def make(self, data: str | None, delta: float | None, limit: int | None, account: str | None) -> None:
        """Set or lift the budget of `data`, where either was asked for."""
        from dpose.account.words import DELTA

        wanted = self.budget is not None or self.no_budget
        if wanted and (data is None or (self.budget is not None and self.no_budget)):
            raise DposeError(
                "budget-incomplete", "a budget needs its data, and is set or lifted", fix="see dpose account --help"
            )
        if data is not None and self.budget is not None:
            budget_set(data, self.budget, delta or DELTA, self.unit, self.owner, limit, account)
        elif data is not None and self.no_budget:
            budget_lift(data, self.owner, limit, account)
        elif self.unit is not None or self.owner:
            raise DposeError(
                "option-needs-budget", "are for a budget", "--unit and --owner", "see dpose account budget set --help"
            )


def show_account(
    data: Annotated[
        str | None, typer.Argument(help="NAME[:ROOT][:SPLIT]; all that the account knows by default.")
    ] = None,
    picture: Annotated[Path | None, option("One photo or clip instead: which runs and releases have read it.")] = None,
    neighbours: Annotated[
        list[str] | None,
        option(
            "Tell epsilon for these: pixels:M of a picture; crop, image, video or subject, left blank; one of "
            "these with :replace, exchanged for any other. May be given again. Default: those of the runs and releases."
        ),
    ] = None,
    html: Annotated[
        Path | None, option("Write a page instead, by default account.html: what each dataset gave, what is left.")
    ] = None,
    delta: Delta = None,
    limit: Limit = None,
    account: Account = None,
    change: BudgetChange = BudgetChange(),
) -> None:
    """What read the pictures, and what it took of them: one epsilon for each kind of neighbours.

    The figure is of the picture that has given most; pictures that nothing read together compose in parallel. What
    has no bound for the chosen neighbours counts as infinite, and the words say which and why.
    """
    from dpose.privacy.neighbours import ACCOUNT_FORMS, Neighbours
    from dpose.privacy.ranges import check_delta

    console = plain_console()
    units = [Neighbours.parse(word, ACCOUNT_FORMS, "--neighbours") for word in neighbours or ()]
    if delta is not None:
        check_delta(delta)
    if picture is not None and (data is not None or limit is not None):
        raise DposeError("picture-not-alone", "is asked about by itself", "--picture", "leave DATA and --limit out")
    if limit is not None and data is None:
        raise DposeError("limit-without-data", "needs the data that it is a part of", "--limit", "name them first")
    change.make(data, delta, limit, account)
    if html is not None:
        from dpose.runs.account_page import write_account_page

        with console.status("drawing the page"):
            path = write_account_page(html, data, picture, delta, console, units, limit, account)
        console.print(f"Written: {path}", soft_wrap=True)
        return
    from dpose.runs.account import account_of, account_of_picture

    if picture is not None:
        console.print(account_of_picture(picture, delta, console, units, account))
    else:
        console.print(account_of(data, delta, console, units, limit, account))


def budget_set(
    data: Data,
    epsilon: Annotated[float, option("The most that all runs and releases together may take.")],
    delta: Annotated[float, option("At which it is counted.")],
    unit: Unit = None,
    owner: Owner = "",
    limit: Limit = None,
    account: Account = None,
) -> None:
    """Set the budget of data, in place of an earlier one. Whatever would pass it is refused before it starts.

    It is kept by a filter: it holds for runs and releases that are chosen after seeing the results of earlier ones.
    """
    from dpose.privacy.neighbours import ACCOUNT_FORMS, Neighbours
    from dpose.runs.account import set_budget_of

    console = plain_console()
    units = Neighbours.parse(unit, ACCOUNT_FORMS, "--unit") if unit else None
    said = set_budget_of(data, epsilon, delta, console, units, owner=owner, limit=limit, where=account)
    console.print(said, soft_wrap=True)


def budget_lift(data: Data, owner: Owner = "", limit: Limit = None, account: Account = None) -> None:
    """Lift the budget of data. What was spent stays in the account."""
    from dpose.runs.account import lift_budget_of

    console = plain_console()
    console.print(lift_budget_of(data, console, owner=owner, limit=limit, where=account), soft_wrap=True)


def accept(yes: Annotated[bool, option("Go on with what is there.", "--yes")] = False, account: Account = None) -> None:
    """Take an account that was set back to an older copy as it is.

    What was recorded since that copy is gone: less stands as spent than was, and budgets let in as much more. The
    account says so from then on. Bring back the newest copy instead where there is one.
    """
    from dpose.account import accept_account

    plain_console().print(accept_account(account, yes=yes), soft_wrap=True)
