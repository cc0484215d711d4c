"""Which check of `dpose verify` a refusal comes from, by a name that stays when its words are mended.

The only place of the goldens that reads sentences.
"""

from __future__ import annotations

import re

CHECKS = {
    "epsilon adds up": r"does not add up",
    "a statement is there": r"no readable privacy statement|carries no privacy statement",
    "a statement can be read": r"is not JSON|is not a privacy statement|is no privacy statement",
    "the statement is the sealed one": r"is not what was sealed",
    "files are the sealed ones": r"is not the one that was sealed|was not there when this was sealed",
    "sealed files are there": r"was sealed and is missing",
    "a seal binds the statement": r"nothing binds the statement to its run|has no seal",
    "the named seal is there": r"the seal that its statement names is missing",
    "the seal is the named one": r"another seal than its statement|seal that its statement does not name",
    "the seal ends the ledger": r"the seal that it names does not end",
    "a ledger is there": r"the ledger is missing|the ledger is empty",
    "the ledger's chain holds": r"does not match its own hash|does not follow the line before",
    "the ledger's lines can be read": r"is not a ledger entry|wrong type or out of range",
    "the ledger is whole": r"the end was cut off|the ledger was cut off",
    "the ledger is the one of this machine": r"is not the line that was written on this machine",
    "the statement covers the ledger": r"the ledger goes on after the statement",
    "the statement follows from the plan": r"is not what follows from plan",
    "the statement says what follows": r"does not say:|has no line:",
    "the configuration holds the plan": r"does not hold the run's plan",
    "the plan is the stated one": r"holds another plan|belongs to another plan",
    "the run is the same": r"belongs to another run than",
    "reservations are the plan's": r"reserves steps of another event",
    "steps were reserved": r"never reserved",
    "the card follows": r"is not the card that follows",
    "queries are listed": r"queries of private data; the statement|score of private data that the statement",
    "noised scores are recorded": r"noised score that",
    "canaries are the committed ones": r"canaries are not",
    "the choice is the configured one": r"tuning is not what",
    "first weights are the sealed ones": r"first weights are not those|what model and first weights",
    "the log is the plan's": r"is not the log of this plan",
    "the content is the statement's": r"was changed since its privacy statement",
    "the file shows what is stated": r"has \w+ .*, but its statement is about",
    "the statement follows from its record": r"its statement says .* follows from the rest of it",
    "noise has the release's sensitivity": r"made for a smaller sensitivity",
    "the statement says all of its words": r"leave out:|hold what does not follow",
    "the picture is one of cells": r"is no picture of cells",
    "the picture follows from its archive": r"does not follow from its archive|another picture than its archive",
    "the mask is the stated one": r"its mask is not the one",
    "the noise is there": r"the noise is refuted",
    "sound is stated": r"has sound, and its statement|has no sound, and its statement",
    "the archive is whole": r"the archive is damaged",
    "the signature holds": r"does not hold: it was altered or forged",
    "the signature is by the given key": r"is by another key",
    "the signed file is unchanged": r"was changed after it was signed",
    "a signature is there": r"there is no such file",
}


def check_of(line: str) -> str:
    """The name of the check that a refusal's line comes from.

    Raises:
        LookupError: of none, or of several.
    """
    found = [name for name, words in CHECKS.items() if re.search(words, line)]
    if len(found) != 1:
        raise LookupError(f"{found or 'no check'}: {line}")
    return found[0]
