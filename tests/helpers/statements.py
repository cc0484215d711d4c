"""A picture's statement, for whoever needs one beside a training's."""

from fractions import Fraction

from dpose.privacy.accounting import Accountant
from dpose.privacy.events import Laplace
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.statement import Kind, PrivacyStatement


def of_a_picture(**changes) -> PrivacyStatement:
    """Of one that hides 16 pixels with epsilon 2, exactly."""
    fields = {
        "kind": Kind.PRIVATE,
        "unit": "pixel",
        "neighbours": Neighbours.of_pixels(16, "picture"),
        "epsilon": Fraction(2),
        "delta": 0.0,
        "accountant": Accountant.PURE,
        "events": (Laplace(Fraction(1), Fraction(2)),),
    }
    return PrivacyStatement(**{**fields, **changes})
