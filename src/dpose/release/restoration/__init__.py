"""Restoration: from what was released to a picture that one can use. Post-processing, so it costs no privacy.

    picture = restore(released.observed(), "learned")

Nothing here sees an original: `restore` takes an `Observed`, which is public.
"""

from __future__ import annotations

from dpose.release.restoration.restoring import (
    METHODS,
    OPENCV,
    PAINTED,
    RESTORING,
    Restoration,
    restore,
    restored_clip,
    restored_levels,
)

__all__ = ["METHODS", "OPENCV", "PAINTED", "RESTORING", "Restoration", "restore", "restored_clip", "restored_levels"]
