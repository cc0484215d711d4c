"""What a user should hear before a run begins."""

from __future__ import annotations

FEW = 500
"""Below so many units a private run is told what that means."""


def few_units(count: int) -> str | None:
    """A warning about a private run on `count` units; None where there are enough.

    The noise is as large as one unit's share must be hidden, whatever their number: what many units agree on stands out
    from it, what a few agree on does not.
    """
    if count >= FEW:
        return None
    units = "1 unit is" if count == 1 else f"{count:,} units are"
    return (
        f"{units} few: the noise that hides any one of them hides most of what they all teach. Expect a model hardly "
        "better than the weights it starts from, and take its scores on so few units as chance. Thousands are usual."
    )
