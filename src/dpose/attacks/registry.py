"""All attacks, by the name of their command. A new one is a module and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from dpose.attacks.attack import Attack

ATTACKS: dict[str, str] = {
    "reid": "dpose.attacks.reid:Reidentification",
    "reconstruct": "dpose.attacks.reconstruction:Reconstruction",
    "attributes": "dpose.attacks.attributes:AttributeInference",
    "linkage": "dpose.attacks.linkage:Linkage",
    "view": "dpose.attacks.public_view:PublicViewAttacks",
}
"""Where each is defined, as "module:class": what learns is imported when its command is called."""


def load_attack(name: str) -> type[Attack]:
    """The class of an attack.

    Raises:
        KeyError: there is no such attack.
    """
    module, _, kind = ATTACKS[name].partition(":")
    return cast("type[Attack]", getattr(import_module(module), kind))
