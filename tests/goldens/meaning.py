"""What a statement means, apart from its words and from the names of its fields: `meaning(json)`.

A change of the statement's schema changes this module, and no golden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def meaning(statement: Mapping[str, Any]) -> dict[str, Any]:
    """Who is protected against what, at which price, by which events; for a statement as JSON has it."""
    near = statement["neighbours"] or {}
    found = {
        "kind": statement["kind"],
        "unit": statement["unit"],
        "neighbours": {
            "relation": near.get("relation"),
            "m": near.get("m"),
            "scope": near.get("scope"),
            "box": [*near["box"], near["frames"]] if near.get("box") else None,
        },
        "epsilon": statement["epsilon"],
        "delta": statement["delta"],
        "accountant": statement["accountant"],
        "n": statement["n"],
        "events": [_event(each) for each in statement["events"]],
        "queries": [
            {"covered": each["covered"], "costs": _cost(each.get("cost", ""))} for each in statement["queries"]
        ],
        "conditional": bool(statement["conditional_on"]),
        "sealed": bool(statement.get("seal")),
    }
    if statement.get("tuning"):
        chosen = statement["tuning"]
        found["chosen"] = {
            "trials": chosen["law"],
            "events": [_event(each) for each in chosen["events"]],
            "scored": chosen["scored"],
        }
    if statement.get("groups"):
        found["groups"] = [each["epsilon"] for each in statement["groups"]]
    if statement.get("canaries"):
        found["canaries"] = {name: statement["canaries"][name] for name in ("kind", "count")}
    return found


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event of any family, with the same names: noise and sensitivity, squared where they are told so."""
    names = {"scale": "noise", "variance": "noise squared", "sigma": "noise multiplier"}
    names |= {"sensitivity_squared": "sensitivity squared", "q": "rate"}
    return {names.get(name, name): value for name, value in event.items()}


def _cost(text: str) -> str:
    """Epsilon and delta of a query's price, "" where it has none."""
    words = text.split()
    return " ".join(words[:5]) if words else ""
