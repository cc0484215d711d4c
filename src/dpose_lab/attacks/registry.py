"""All attacks, by the name of their command. A new one is a module and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from dpose_lab.attacks.attack import Attack

ATTACKS: dict[str, str] = {
    "reid": "dpose_lab.attacks.reid:Reidentification",
    "reconstruct": "dpose_lab.attacks.reconstruction:Reconstruction",
    "attributes": "dpose_lab.attacks.attributes:AttributeInference",
    "linkage": "dpose_lab.attacks.linkage:Linkage",
    "view": "dpose_lab.attacks.public_view:PublicViewAttacks",
}
"""Attacks by name, as "module:class": learning code is imported when its command is called."""


def load_attack(name: str) -> type[Attack]:
    """The class of an attack.

    Raises:
        KeyError: there is no such attack.
    """
    module, _, kind = ATTACKS[name].partition(":")
    return cast("type[Attack]", getattr(import_module(module), kind))
