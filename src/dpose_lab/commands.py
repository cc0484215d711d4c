"""The commands that dpose_lab adds to `dpose`: the entry point of the group `dpose.commands`."""

from __future__ import annotations

from dpose.cli.app import CommandEntry, GroupEntry
from dpose_lab.attacks.registry import ATTACKS

HEADING = "Research (dpose_lab)"
OWN: dict[str, CommandEntry | GroupEntry] = {
    "reproduce": CommandEntry(
        "dpose_lab.cli.reproduce:reproduce",
        "002/figure1 --data synthetic:ward:test --limit 50 --out runs/002-figure1",
        heading=HEADING,
    ),
    "attack": GroupEntry(
        "Attack what is released: who is it, what was it, what do they look like. A failed attack proves nothing. It "
        "reads raw pictures and tells of them without noise: the account counts it as what nothing bounds, and a "
        "budget refuses it, unless they are public (--public, synthetic:studio).",
        heading=HEADING,
    ),
    "audit membership": CommandEntry(
        "dpose_lab.cli.audit:membership",
        "--data synthetic:ward --epsilon 8 --delta 1e-5 --out runs/lira",
        heading=HEADING,
    ),
    "audit mechanism": CommandEntry(
        "dpose_lab.cli.audit:mechanism", "gaussian --epsilon 1 --delta 1e-5", heading=HEADING
    ),
    "audit release": CommandEntry(
        "dpose_lab.cli.audit:release", "release-video --epsilon 4 --delta 1e-5 --plant half-noise", heading=HEADING
    ),
}
"""The commands by the words that call them, without the attacks."""


def commands() -> dict[str, CommandEntry | GroupEntry]:
    """Return the commands by the words that call them, with the attacks that are registered now."""
    attacks = {
        f"attack {name}": CommandEntry(
            place, f"--data synthetic:ward --out runs/{name}", maker="dpose_lab.cli.attack:command_of"
        )
        for name, place in ATTACKS.items()
    }
    return OWN | attacks


COMMANDS = commands
