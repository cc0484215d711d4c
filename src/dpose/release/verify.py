"""Does a released picture, archive or video carry a statement that adds up, and is it its own?

Three things are recomputed: the content's digest, the sensitivities (from the sizes that the statement records and the
file shows) and epsilon (from the events). That is arithmetic, not proof of origin: nobody can see from a picture that
noise was added to it. A statement says what dpose did.
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.media.images import read_pixels
from dpose.media.video import VIDEO_SUFFIXES, probe
from dpose.privacy.exact import GaussianEvent, LaplaceEvent, exact_text
from dpose.privacy.rounding import as_given, upper
from dpose.privacy.statement import Kind, Neighbours, PrivacyStatement
from dpose.release.archive import unpack
from dpose.release.carry import check_digest, read_stamp, sidecar_of
from dpose.release.clip_claims import MECHANISM, check_clip
from dpose.release.operators import BlockSums, Cells, RegionSums

PICTURES = (".png", ".jpg", ".jpeg")
ARTEFACTS = (*PICTURES, ".npz", *VIDEO_SUFFIXES)


def released_files(path: Path) -> list[Path]:
    """The released artefacts at `path`: itself, or those in the folder and below, by name.

    An empty list means that there is nothing of the kind, or that `path` is a run.
    """
    if path.is_file():
        return [path] if path.suffix.lower() in ARTEFACTS else []
    if not path.is_dir() or (path / "privacy.json").exists() or (path / "ledger.jsonl").exists():
        return []
    found = sorted(path.rglob("*"))
    return [
        file
        for file in found
        if file.suffix.lower() in ARTEFACTS and file.is_file() and not _hidden(file.relative_to(path))
    ]


def verify_release(path: Path) -> tuple[PrivacyStatement, str]:
    """Check one released file.

    Returns:
        Its statement, and one line that says what was found.

    Raises:
        DposeError: there is no statement, it belongs to other content, or it does not add up.
    """
    suffix = path.suffix.lower()
    statement, cells, shown = _carried(path, suffix)
    spent = statement.verify()
    if spent is None:
        return statement, f"{path}: nothing is claimed: the statement is of kind {statement.kind.value}"
    _check_release(statement, cells, shown, str(path))
    text = (
        exact_text(statement.epsilon)
        if isinstance(statement.epsilon, Fraction)
        else as_given(statement.epsilon or 0)
    )
    neighbours = statement.neighbours
    assert neighbours is not None
    where = {"picture": "", "clip": " of the clip", "frame": " of every frame"}.get(
        neighbours.scope, f" of {neighbours.scope}"
    )
    line = (
        f"{path}: the recorded noise costs epsilon {upper(spent, 6)}, {text} is claimed, "
        f"delta {upper(statement.delta or 0, 6)}, for {neighbours.m:,} pixels{where}"
    )
    if statement.kind is Kind.SEEDED:
        line += "; nothing is guaranteed: the noise came from a seed"
    return statement, line


def _carried(path: Path, suffix: str) -> tuple[PrivacyStatement, Cells | None, dict[str, str]]:
    """The statement, the partition where the file has it, and what the file shows of the recorded sizes."""
    try:
        if suffix == ".npz":
            released, statement = unpack(path.read_bytes(), str(path))
            cells = released.cells
            n = str(getattr(cells, "subdivide", 1))
            return (
                statement,
                cells,
                {
                    "size": f"{cells.width}x{cells.height}",
                    "channels": str(cells.channels),
                    "levels": str(cells.peak),
                    "block": str(cells.block),
                    "subdivide": n,
                },
            )
        if suffix in PICTURES:
            statement = read_stamp(path.read_bytes(), str(path))
            pixels = read_pixels(path)
            shown = {"size": f"{pixels.shape[1]}x{pixels.shape[0]}"}
            if suffix == ".png":
                shown["levels"] = str(np.iinfo(pixels.dtype).max)
                shown["channels"] = "1" if pixels.ndim == 2 else "3"
            return statement, None, shown
        sidecar = sidecar_of(path)
        if not sidecar.exists():
            raise DposeError("carries no privacy statement", str(path), f"{sidecar.name} is missing")
        statement = PrivacyStatement.from_json(sidecar.read_text(encoding="utf-8"), str(sidecar))
        check_digest(statement, file_digest(path), str(path))
        info = probe(path)
        return statement, None, {"size": f"{info.width}x{info.height}", "frames": str(info.frames)}
    except (OSError, UnicodeDecodeError) as error:
        raise DposeError(f"cannot be read ({error})", str(path)) from error


def _check_release(
    statement: PrivacyStatement, cells: Cells | None, shown: dict[str, str], where: str
) -> None:
    """Recompute what the noise should have been calibrated to."""
    record = statement.release
    for name, value in shown.items():
        if record.get(name) != value:
            raise DposeError(
                f"has {name} {value}, but its statement is about {record.get(name, 'none')}", where
            )
    if record.get("mechanism") == MECHANISM:
        check_clip(statement, where)
        return
    blocks, fine, frames = _partitions(record, where)
    neighbours = statement.neighbours
    regions = record.get("regions")
    if neighbours is None or neighbours.scope not in ("picture", "clip", "frame"):
        raise DposeError("its statement has no neighbours of a release", where)
    if (neighbours.scope == "picture") != (frames is None):
        raise DposeError("its statement mixes a picture's neighbours with a clip's", where)
    steps = frames if neighbours.scope == "frame" and frames else 1
    wanted: list[Cells] = [blocks]
    if regions == "private":
        wanted = [blocks, fine]
    elif regions == "public":
        # without the archive's mask: no mask has smaller cells than the one that divides every block
        wanted = [cells if isinstance(cells, RegionSums) else fine]
    elif regions != "none":
        raise DposeError(f"its statement has unknown regions {regions!r}", where)
    if len(wanted) != len(statement.events):
        raise DposeError(f"its statement has {len(statement.events)} events, not {len(wanted)}", where)
    for event, partition in zip(statement.events, wanted, strict=True):
        _check_event(event, partition, neighbours, steps, where)


def _check_event(event: Any, partition: Cells, neighbours: Neighbours, steps: int, where: str) -> None:
    bound = partition.sensitivity(neighbours)
    if isinstance(event, LaplaceEvent):
        enough = event.sensitivity >= bound.l1
    else:
        enough = isinstance(event, GaussianEvent) and event.sensitivity_squared >= bound.l2_squared
    if not enough or event.steps < steps:
        raise DposeError(
            "its noise was made for a smaller sensitivity than such a picture has", where, "do not rely on it"
        )


def _partitions(record: Any, where: str) -> tuple[BlockSums, BlockSums, int | None]:
    try:
        found = re.fullmatch(r"(\d{1,6})x(\d{1,6})", record["size"])
        if found is None or record["mechanism"] != "pixelization":
            raise ValueError
        width, height = int(found[1]), int(found[2])
        channels, peak, block, n = (int(record[k]) for k in ("channels", "levels", "block", "subdivide"))
        if min(width, height, channels, peak, block, n) < 1 or block % n:
            raise ValueError
        frames = int(record["frames"]) if "frames" in record else None
    except (KeyError, ValueError) as error:
        raise DposeError("its statement does not say how it was released", where) from error
    return (
        BlockSums(height, width, block, channels, peak),
        BlockSums(height, width, block // n, channels, peak),
        frames,
    )


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
