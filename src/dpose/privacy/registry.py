"""A statement as an entry of the Differential Privacy Deployments Registry of OpenDP.

The fields are those of the registry's own schema (opendp/deployments-registry-data, schemas/deployments-schema.yaml, as
of July 2026), tier 2 and what of tier 3 a statement knows. An entry is a draft: people review it before it is listed.
"""

from __future__ import annotations

import re
from typing import Any

from dpose.errors import DposeError
from dpose.privacy.accounting import Accountant
from dpose.privacy.rounding import upper
from dpose.privacy.sections import UNSTATED, Deployment
from dpose.privacy.statement import Kind, PrivacyStatement


def registry_entry(
    statement: PrivacyStatement, name: str, *, date: str = "", region: str = UNSTATED, author: str = ""
) -> dict[str, Any]:
    """What the registry's YAML says of an artefact.

    Args:
        statement: A private one.
        name: Of the artefact.
        date: When it was published, YYYY-MM-DD; the statement's own by default.
        region: Whom the data describe, or whose laws hold.
        author: Who wrote the entry; the contact by default.

    Raises:
        DposeError: nothing is guaranteed, or there is no date.
    """
    if statement.kind is not Kind.PRIVATE or statement.epsilon is None or statement.neighbours is None:
        raise DposeError(
            "guarantee-missing", "guarantees nothing that could be registered", "privacy statement"
        )
    said, words = statement.deployment or Deployment(), statement.words()
    published = date or said.date
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", published):
        raise DposeError("date-missing", "there is no date of publication", "--date", "give one, YYYY-MM-DD")
    trained, pure = not statement.release, statement.accountant is Accountant.PURE
    details = [*words.curve, *words.several]
    entry: dict[str, Any] = {
        "basic": {
            "name": name,
            "data_curators": [said.curator],
            "intended_use": said.intended_use,
            "data_product_type": "Machine learning model" if trained else "Dataset",
            "data_product_region": region,
            "description": words.guarantee,
            "publication_date": published,
        },
        "dp_variant": {
            "variant_name": "Pure DP" if pure else "Approximate DP",
            "unprotected_quantities": _listed(statement.public),
        },
        "privacy_loss": {
            "privacy_unit": statement.unit.value,
            "privacy_unit_details": f"{words.difference} Relation: {statement.neighbours.relation.value}, "
            f"scope: {statement.neighbours.scope}.",
            "privacy_parameters": {
                "epsilon": float(upper(statement.epsilon).replace(",", "")),
                "delta": float(statement.delta or 0),
            },
            "privacy_parameters_details": _listed(details),
        },
        "deployment_model": {
            "model_name": said.model.capitalize(),
            "release_type": "One release",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
            "access_type_details": said.access,
        },
        "accounting": {"composition": words.method or UNSTATED},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": f"Settings: {said.settings}.",
            "mechanisms": _listed(
                [
                    *sorted({event.to_dict()["type"] for event in statement.events}),
                    *(f"{package} {version}" for package, version in statement.software.items()),
                    *statement.side_channels,
                    *statement.caveats,
                ]
            ),
            "justification": f"Epsilon: {said.why_epsilon}. Delta: {said.why_delta}. Unit: {said.why_unit}.",
        },
        "administrative": {"registry_authors": [author or said.contact]},
    }
    slug = re.sub(r"[^a-z0-9]+", "-", f"{name} {published[:4]}".lower()).strip("-")
    return {"url_slug": slug, "status": "Draft", "tier": 2, "deployment": entry}


def _listed(lines: Any) -> str:
    return "\n".join(f"- {line}" for line in lines) or UNSTATED
