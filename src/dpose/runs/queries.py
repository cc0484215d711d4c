"""What is computed from private data besides training: recorded in the ledger, the statement and the card."""

from __future__ import annotations

import json
from pathlib import Path

from dpose.files import write_atomic
from dpose.privacy.ledger import Ledger
from dpose.privacy.statement import PrivacyStatement, Query
from dpose.training.folder import model_card, reseal


def record_query(folder: Path, statement: PrivacyStatement, query: Query, task: str = "pose") -> None:
    """Add `query` to the run in `folder`.

    Args:
        folder: A private run's.
        statement: As it stands in the folder.
        query: What was computed, of which data.
        task: Of the model.

    Raises:
        DposeError: the folder cannot be written.
    """
    config = json.loads((folder / "config.json").read_text())

    # the ledger first: a query that did not reach the statement shows up in `dpose verify`
    def asked(ledger: Ledger, before: PrivacyStatement) -> PrivacyStatement:
        ledger.query(query.to_dict())
        return before.with_query(query)

    def card(updated: PrivacyStatement) -> dict[str, bytes]:
        return {"README.md": model_card(task, updated, config).encode()}

    if (folder / "ledger.jsonl").exists():
        reseal(folder, asked, card)
        return
    updated = statement.with_query(query)
    write_atomic(folder / "privacy.json", updated.to_json())
    write_atomic(folder / "README.md", card(updated)["README.md"])
