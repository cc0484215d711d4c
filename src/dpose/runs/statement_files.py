"""Where statements lie: a run or model folder, a statement's own file, a released picture, archive or video.

Which bytes a signature is of, and what they bind, is answered here alone (`open_statement`):

* a picture or archive: of the file itself, which carries its statement and seal. The seal binds every other byte of a
  picture, and an archive's values and mask;
* a video: of its sidecar, FILE.privacy.json, which is part of the format. The sidecar's seal binds the video's bytes;
* a run or model folder: of its privacy.json. Its seal binds weights, config, card and log;
* a statement's own file: of that file. What it is about is not looked at.

No other file counts because it lies beside one of these.

A statement as an entry of the Differential Privacy Deployments Registry of OpenDP.

The fields are those of the registry's own schema (opendp/deployments-registry-data, schemas/deployments-schema.yaml, as
of July 2026), tier 2 and what of tier 3 a statement knows. An entry is a draft: people review it before it is listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_bytes
from dpose.privacy.accounting import Accountant
from dpose.privacy.ranges import upper
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
    """
    if statement.kind is not Kind.PRIVATE or statement.epsilon is None or statement.neighbours is None:
        raise DposeError("guarantee-missing", "guarantees nothing that could be registered", "privacy statement")
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


LARGEST = 16 * 1024 * 1024
"""Bytes of a statement; a larger file is none."""


@dataclass(frozen=True)
class StatementFile:
    """A statement and the file that it lies in.

    Attributes:
        file: What a signature would sign.
        statement: As it stands there.
        folder: The run or model folder; None of anything else.
        found: What is known of a release that was checked while it was opened, in a line; of anything else that
            nothing was.
    """

    file: Path
    statement: PrivacyStatement
    folder: Path | None = None
    found: str = "what it is about was not looked at: name the run's folder, or the released file"

    @property
    def name(self) -> str:
        """SHA-256 of the artefact."""
        return self.folder.resolve().name if self.folder else self.file.name


def open_statement(path: Path) -> StatementFile:
    """The statement of whatever `path` is, and the file whose bytes a signature is of.

    Raises:
        DposeError: there is none, or a released file does not hold what its statement says.
    """
    from dpose.media.kinds import kind_of
    from dpose.release.embed import sidecar_of
    from dpose.release.verify import ARTEFACTS, verify_release

    if path.is_file() and path.suffix.lower() in ARTEFACTS:
        statement, found = verify_release(path)
        video = kind_of(path) == "video"
        return StatementFile(sidecar_of(path) if video else path, statement, found=found)
    file = path / "privacy.json" if path.is_dir() else path
    return StatementFile(file, PrivacyStatement.from_json(_text(file), str(file)), path if path.is_dir() else None)


def card_metadata(opened: StatementFile) -> str:
    """The metadata of a model card, as those that training writes have."""
    import json

    from dpose.training.folder import front_matter

    if opened.folder is None:
        raise DposeError("card-without-model", "only a model has a card", str(opened.file), "name its folder")
    path = opened.folder / "config.json"
    try:
        config = json.loads(_text(path))
        return front_matter(
            str(config["task"]), opened.statement, config.get("run", {}).get("plan", {}).get("method", "")
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DposeError("config-invalid", "is no model's configuration", str(path)) from error


def _text(file: Path) -> str:
    try:
        return file_bytes(file, LARGEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = f" ({error.strerror})" if isinstance(error, OSError) else ""
        raise DposeError(
            "statement-missing",
            f"there is no readable privacy statement{reason}",
            str(file),
            "name a run, model or release",
        ) from error
