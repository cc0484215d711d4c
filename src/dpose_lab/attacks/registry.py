"""All attacks, by the name of their command. A new one is a module and a line here."""

from __future__ import annotations

ATTACKS: dict[str, str] = {
    "reid": "dpose_lab.attacks.reid:Reidentification",
    "reconstruct": "dpose_lab.attacks.reconstruction:Reconstruction",
    "attributes": "dpose_lab.attacks.attributes:AttributeInference",
    "linkage": "dpose_lab.attacks.linkage:Linkage",
    "view": "dpose_lab.attacks.public_view:PublicViewAttacks",
}
"""Attacks by name, as "module:class": learning code is imported when its command is called."""
