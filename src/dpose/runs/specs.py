"""A data spec of whatever a run may be about: poses or videos."""

from __future__ import annotations

from dpose.data_spec import Spec
from dpose.pose.data.spec import DataSpec


def any_spec(text: str) -> Spec | None:
    """The spec of poses or of videos that `text` writes; None if no data have its name.

    Raises:
        DposeError: data of that name have no such option.
    """
    name = text.partition(":")[0].partition(",")[0]
    if name in ("", "none"):
        return None
    if name in DataSpec.datasets:
        return DataSpec.parse(text)
    from dpose.action.data.spec import ActionSpec

    return ActionSpec.parse(text) if name in ActionSpec.datasets else None


def in_a_folder(text: str | None) -> bool:
    """Whether a data spec, as it was written, names a folder on this machine."""
    found = any_spec(text or "")
    return found is not None and found.dataset.in_a_folder
