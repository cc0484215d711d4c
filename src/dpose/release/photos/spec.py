"""`NAME:ROOT[:SPLIT]`: one short text says which photos. A new source is a module here and an entry in `KINDS`."""

from __future__ import annotations

from pathlib import Path

from dpose.errors import DposeError
from dpose.release.photos.celeba import open_celeba
from dpose.release.photos.mot import open_mot
from dpose.release.photos.photo import Photos
from dpose.release.photos.ppm import open_ppm
from dpose.release.photos.rendered import open_rendered

KINDS = {"mot": open_mot, "ppm100": open_ppm, "celeba": open_celeba}
RENDERED = "synthetic"


def open_photos(spec: str, size: tuple[int, int], limit: int | None = None) -> Photos:
    """The photos that `spec` names.

    Args:
        spec: `synthetic:LOOK[:SPLIT]`, `mot:ROOT`, `ppm100:ROOT` or `celeba:ROOT`.
        size: (height, width) that rendered people get; files keep their own.
        limit: At most so many, evenly spaced.

    Raises:
        DposeError: unknown data, no root, or data that cannot be read.
    """
    name, _, root = spec.partition(":")
    known = f"known are {', '.join((RENDERED, *KINDS))}"
    if name not in (RENDERED, *KINDS):
        raise DposeError(f"no photos called {name!r}", spec, known)
    if not root:
        raise DposeError(
            f"{name} needs a {'look' if name == RENDERED else 'folder'}", spec, f"write {name}:..."
        )
    if limit is not None and limit < 1:
        raise DposeError(f"a limit of {limit} leaves nothing", spec, "use 1 or more")
    if name == RENDERED:
        look, _, split = root.partition(":")
        return open_rendered(look, split or "test", size).limit(limit)
    return KINDS[name](Path(root).expanduser()).limit(limit)
