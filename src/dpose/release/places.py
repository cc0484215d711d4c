"""What stands where a release is to go: the same one, complete; what one that was cut short has left; another file.

    there = find_output(release_history(charge), target, outputs_at)

A complete output is one whose files have the digests that the account recorded when they were finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_bytes, file_digest
from dpose.media.video import VIDEO_SUFFIXES
from dpose.release.archive import unpack
from dpose.release.counting import ReleaseHistory
from dpose.release.embed import SIDECAR, read_sidecar, read_stamp

Outputs = Callable[[Path], Sequence[Path]]
"""All files of a release, from the first one's name."""


def find_output(
    found: ReleaseHistory | None, target: Path, outputs: Outputs, *, numbered: bool = False
) -> Path | None:
    """The first file of the same release of the same original, if that stands complete where this one is to go.

    Of numbered files each command makes new ones: an earlier one is looked for under the name that the account knows.

    Args:
        found: The release, and the earlier ones; None where it is not counted.
        target: The first file of its output.
        outputs: All files of it.
        numbered: Whether its name is a number that this command has chosen.

    Returns:
        None where it is still to be made, and there is room for it.

    Raises:
        DposeError: another file is in the way, or one there cannot be read.
    """
    for entry in reversed(found.finished if found else []):
        place = target.parent / Path(entry.folder).name if numbered else target
        if entry.outputs and _digests(outputs(place)) == sorted(entry.outputs):
            return place
    standing_there = [path for path in outputs(target) if path.exists()]
    left = found is not None and any(Path(e.folder) == target.resolve() for e in found.cut_short)
    for path in standing_there:
        if not (left and _is_release(path, target)):
            raise DposeError(
                "output-exists",
                "another file is in the way",
                str(path),
                "choose another --out, or remove it first",
            )
    return None


def _digests(paths: Sequence[Path]) -> list[str]:
    try:
        return sorted(file_digest(path) for path in paths)
    except OSError:
        return []


def _is_release(path: Path, target: Path) -> bool:
    """Whether a file carries a statement of ours, so that it may be what a release that was cut short has left."""
    try:
        if path.suffix == ".npz":
            unpack(file_bytes(path), str(path))
        elif path.name.endswith(SIDECAR) or path.suffix.lower() in VIDEO_SUFFIXES:
            read_sidecar(target)
        else:
            read_stamp(file_bytes(path), str(path))
    except (DposeError, OSError):
        return False
    return True
