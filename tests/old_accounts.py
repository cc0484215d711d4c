"""Accounts as they were written before the database: a JSON file for each charge and each budget."""

import base64
import json
from pathlib import Path

TEXTS = ("id", "what", "data", "folder", "at", "unit", "views", "start")


def packed(marks):
    return base64.b64encode(marks.astype("<u8").tobytes()).decode()


def write_old_charge(state: Path, entry, marks, opened, *, without=()) -> Path:
    """`without`: fields that the oldest of these files do not have."""
    content = {
        "schema": 1,
        **{name: getattr(entry, name) for name in (*TEXTS, "delta")},
        "relation": entry.relation.value,
        "events": [event.to_dict() for event in entry.events],
        "beyond": entry.beyond,
        "weights": list(entry.weights),
        "marks": packed(marks),
        "opened": packed(opened),
    }
    file = state / "account" / f"{entry.id}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({name: value for name, value in content.items() if name not in without}))
    return file


def write_old_budget(state: Path, budget) -> Path:
    content = {"schema": 1, "epsilon": budget.epsilon, "delta": budget.delta, "data": budget.data}
    file = state / "budgets" / "some.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**content, "marks": packed(budget.marks)}))
    return file
