"""What a witness might say of somebody: the attributes that are inferred."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from dpose.attacks.identities import PersonPictures
from dpose.errors import DposeError

ATTRIBUTES: Mapping[str, Callable[[Mapping[str, str]], bool]] = {
    "hospital gown": lambda a: a["bottom"] == "gown",
    "skirt or dress": lambda a: a["bottom"].endswith(("skirt", "dress")),
    "barefoot": lambda a: a["shoes"] == "barefoot",
    "child": lambda a: a["age"] == "child",
    "elderly": lambda a: a["age"] == "elderly",
    "stout": lambda a: a["build"] == "stout",
    "slim": lambda a: a["build"] == "slim",
    "dark skin": lambda a: a["skin"] in ("brown", "deep", "ebony"),
    "fair skin": lambda a: a["skin"] in ("porcelain", "fair", "beige"),
    "dark hair": lambda a: a["hair"].startswith(("black", "dark brown")),
    "bald": lambda a: a["hair"] == "bald",
    "beard": lambda a: a["beard"] == "yes",
    "glasses": lambda a: a["glasses"] == "yes",
}
"""By name, each true or not of a rendered person."""


def labels_of(album: PersonPictures) -> NDArray[np.bool_]:
    """(N, A), in the order of `ATTRIBUTES`.

    Raises:
        DposeError: nothing says what the people look like.
    """
    if not album.attributes:
        raise DposeError(
            "nothing says what its people look like",
            "--data",
            "only rendered people carry attributes: synthetic:ward",
        )
    return np.asarray(
        [[true_of(said) for true_of in ATTRIBUTES.values()] for said in album.attributes], np.bool_
    )
