"""Does a released picture, archive or video carry a statement that adds up, and is it its own?

The content's digest, the seal, and everything that the statement says are recomputed: sensitivities, noise and epsilon
from the sizes that the file shows, its words from its settings, the picture from the released values. What differs is
named, and what could not be checked is said. An archive's sums are held to the recorded noise, too (`noise_tests`).
That is arithmetic, not proof of origin: noise that is there may be anyone's, and the maker of another release can seal
it. A statement says what dpose did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.extensions import extensions
from dpose.files import file_bytes, file_digest, unchanged
from dpose.media.headers import read_header
from dpose.media.images import decode_pixels
from dpose.media.kinds import VIDEO_SUFFIXES, shows_something
from dpose.media.video import probe
from dpose.media.video_writer import written_size
from dpose.privacy.ranges import as_given, exact_text, upper
from dpose.privacy.statement import Kind, PrivacyStatement, software_versions
from dpose.release.archive import carried, holds_statement, restoration_of, unpack
from dpose.release.embed import (
    FILE,
    SIDECAR,
    SUMS,
    check_digest,
    check_seal,
    check_spelling,
    mask_digest,
    read_sidecar,
    read_stamp,
    sums_digest,
)
from dpose.release.linear import LinearPlan
from dpose.release.mechanism import GIVEN
from dpose.release.noise_tests import check_cells, check_grey, check_restored, noise_verdict
from dpose.release.objects import SoundPlan
from dpose.release.partition import RegionSums
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import DECODED_VIDEO, SOUND
from dpose.release.recompute import ask_account, check_count, compare_numbers, compare_words, expected
from dpose.release.record import recorded_plan
from dpose.release.regions import PrivateRegions, PublicRegions, Regions
from dpose.release.released import ReleasedSums, Shown
from dpose.release.restoration import PAINTED, RESTORING

PICTURES = (".png", ".jpg", ".jpeg")
ARTEFACTS = (*PICTURES, ".npz", *VIDEO_SUFFIXES)


@dataclass
class OpenedRelease:
    """A released file, opened.

    Attributes:
        path: The file.
        statement: The statement in the file, bound to its content by a seal, which was checked.
        shown: What the file itself shows of what the statement records.
        released: The released values: the archive's own, or those of the archive beside a picture.
        pixels: A picture's, as decoded.
        lossless: True if the pixels are exactly what was encoded.
        video: True if it is one.
        sound: True if it has sound.
        sums: Digest of the released values in a picture's seal.
        unchecked: What could not be checked.
    """

    path: Path
    statement: PrivacyStatement
    shown: dict[str, str]
    released: Shown | None = None
    pixels: NDArray[Any] | None = None
    lossless: bool = False
    video: bool = False
    sound: bool = False
    sums: str = ""
    unchecked: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FolderFiles:
    """What a folder of released files holds.

    Attributes:
        released: Files that need a statement: of the kinds that dpose writes, and other pictures and videos.
        others: Files that were not looked at.
    """

    released: list[Path]
    others: list[Path]


def released_files(path: Path) -> FolderFiles:
    """The released artefacts at `path`: itself, or those in the folder and below, by name.

    Nothing released means that there is nothing of the kind, or that `path` is a run, which may have drawings. Pictures
    and videos of any kind and name are among the artefacts: an original that was left in the folder carries no
    statement, and is refused for that.

    Raises:
        DposeError: a run, or a count, and a file with a statement of its own are in one folder, or below it, and the
            seal of one does not cover the other.
    """
    if path.is_file():
        return FolderFiles([path] if path.suffix.lower() in ARTEFACTS else [], [])
    files = sorted(file for file in path.rglob("*") if file.is_file())
    seen = [file for file in files if not _hidden(file.relative_to(path))]
    found = [file for file in seen if file.suffix.lower() in ARTEFACTS]
    runs = [file for file in seen if file.name in ("privacy.json", "ledger.jsonl", "seal.json")]
    if runs and (claim := next(filter(_claims, found), None)):
        said = f"holds {runs[0].relative_to(path)} of a run or count and, beside it, released files"
        raise DposeError("release-beside-run", said, str(path), f"name {claim} alone, or move one elsewhere")
    if any(file.parent == path for file in runs):
        return FolderFiles([], [])
    if runs or not found:
        return FolderFiles(found, [])
    rest = [file for file in files if file not in set(found) and not file.name.endswith(SIDECAR)]
    shown = {file for file in rest if _is_shown(file)}
    return FolderFiles(sorted([*found, *shown]), [file for file in rest if file not in shown])


def _is_shown(file: Path) -> bool:
    """Whether a file is a picture or video by its content, whatever its name is."""
    try:
        return shows_something(file)
    except OSError:
        return False


def _claims(file: Path) -> bool:
    """Whether a file carries a statement, or may: one that cannot be read."""
    try:
        if file.suffix.lower() == ".npz":
            return holds_statement(file)
        carried(file)
    except DposeError as error:
        return error.code != "statement-missing"
    return True


def verify_release(path: str | Path) -> tuple[PrivacyStatement, str]:
    """Check one released file.

    Args:
        path: A picture or video that was released, or an archive of released values (.npz).

    Returns:
        The file's statement, and one line that says what was found, and what could not be checked.

    Raises:
        DposeError: it is no file, there is no statement, it belongs to other content, it does not add up, or released
            sums cannot hold the noise that it records; names what differs.
    """
    path = Path(path)
    if path.is_dir():
        raise DposeError("release-is-folder", "is a folder", str(path), "name one file, or run dpose verify FOLDER")
    try:
        with unchanged(path):
            found = _opened(path)
            verified = _verified(found)
            if found.video:  # last, so that what the words say is told before how they are written
                check_spelling(path)
            return verified
    except OSError as error:
        raise DposeError("file-unreadable", f"cannot be read ({error})", str(path)) from error
    except (MemoryError, RecursionError) as error:
        raise DposeError(
            "statement-asks-too-much", "its statement asks for more than any release has", str(path)
        ) from error


def _verified(found: OpenedRelease) -> tuple[PrivacyStatement, str]:
    path, statement, where = found.path, found.statement, str(found.path)
    recorded = _recorded(statement.release)
    for name, value in found.shown.items():
        stated = recorded.get(name)
        if stated != value and (stated is not None or statement.kind in (Kind.PRIVATE, Kind.SEEDED)):
            raise DposeError(
                "pixels-differ-from-statement",
                f"has {name} {value}, but its statement is about {stated or 'none'}",
                where,
            )
    _check_sound(found)
    spent = statement.verify_claim()
    check_count(statement, where)
    found.unchecked += ask_account(statement, path)
    if spent is None:
        if recorded.get("channels") == "1" and found.video:
            check_grey(path)
        line = f"{path}: nothing is claimed: the statement is of kind {statement.kind.value}"
        if statement.kind is Kind.PAPER and not extensions("operators"):
            line += "; the published algorithm is in dpose_lab, which is not installed"
        return statement, line + _ending(found)
    if statement.kind is Kind.PRIVATE and GIVEN in statement.caveats:
        raise DposeError(
            "key-given-yet-private", "its statement says private, and that its key was given by the caller", where
        )
    plan = recorded_plan(statement.release, where)
    _check_statement(found, plan)
    _check_picture(found, plan)
    statement.verify_sections()
    noise = noise_verdict(found.released if found.pixels is None else None, statement.events, where)
    text = (
        exact_text(statement.epsilon) if isinstance(statement.epsilon, Fraction) else as_given(statement.epsilon or 0)
    )
    neighbours = statement.neighbours
    assert neighbours is not None
    line = (
        f"{path}: the recorded noise costs epsilon {upper(spent, 6)}, {text} is claimed, "
        f"delta {upper(statement.delta or 0, 6)}, for {neighbours.describe().removeprefix('any ')}"
    )
    if statement.kind is Kind.SEEDED:
        line += "; nothing is guaranteed: the noise came from a seed or a key that others may know"
    return statement, f"{line}; {noise}{_ending(found)}"


def _opened(path: Path) -> OpenedRelease:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        released, statement = unpack(file_bytes(path), str(path))
        cells = released.cells
        shown = {
            "size": f"{cells.width}x{cells.height}",
            "channels": str(cells.channels),
            "peak": str(cells.peak),
            "block": str(cells.block),
            "subdivide": str(getattr(cells, "subdivide", 1)),
        }
        if isinstance(released, ReleasedSums):
            layers = released.layers
            shown["colour"] = layers.colour.name
            if layers.colour.chroma:
                shown["chroma"] = str(layers.factor)
        return OpenedRelease(path, statement, shown, released)
    if suffix in PICTURES:
        return _picture(path)
    statement, line = read_sidecar(path)
    digest = file_digest(path)
    check_digest(statement, digest, str(path))
    check_seal(statement, line, {FILE: digest}, str(path))
    info = probe(path)
    width, height = written_size(info)
    shown = {"size": f"{width}x{height}", "frames": str(info.frames)}
    unchecked = ["that its frames follow from released values, of which a video keeps none"]
    return OpenedRelease(path, statement, shown, video=True, sound=info.sound, unchecked=unchecked)


def _picture(path: Path) -> OpenedRelease:
    data, where = file_bytes(path), str(path)
    statement, seal = read_stamp(data, where)
    pixels, lossless = decode_pixels(data, where), read_header(data).format == "png"
    shown = {"size": f"{pixels.shape[1]}x{pixels.shape[0]}", "channels": "1" if pixels.ndim == 2 else "3"}
    if lossless:
        shown["peak"] = str(np.iinfo(pixels.dtype).max)
    found = OpenedRelease(path, statement, shown, pixels=pixels, lossless=lossless)
    found.sums = seal.digests.get(SUMS, "")
    _look_beside(found)
    return found


def _look_beside(found: OpenedRelease) -> None:
    """Take the released values from the archive beside a picture, where that is of the same release."""
    beside = found.path.with_suffix(".npz")
    if beside.is_file():
        try:
            released, other = unpack(file_bytes(beside), str(beside))
        except DposeError:
            found.unchecked.append(f"the archive beside it, which cannot be read ({beside.name})")
            return
        if found.sums == sums_digest(released) and _but_restored(found.statement) == _but_restored(other):
            found.released = replace(released, restoration=restoration_of(found.statement, str(found.path)))
            return
        found.unchecked.append(f"the archive beside it, which is another release's ({beside.name})")


def _but_restored(statement: PrivacyStatement) -> dict[str, Any]:
    """What a picture's statement has in common with that of an archive from which it was restored another way."""
    bare = {name: text for name, text in statement.release.items() if name != "restoration"}
    versions = {name: text for name, text in statement.software.items() if name not in RESTORING}
    return statement.to_dict() | {"artefact_sha256": "", "seal": "", "release": bare, "software": versions}


def _check_sound(found: OpenedRelease) -> None:
    mentioned = SOUND in (*found.statement.conditional_on, *found.statement.caveats)
    if found.video and found.sound != mentioned:
        have, say = ("has sound", "does not mention it") if found.sound else ("has no sound", "says that it has")
        raise DposeError(
            "sound-differs-from-statement", f"{have}, and its statement {say}", str(found.path), "do not rely on it"
        )


def _recorded(record: Mapping[str, Any]) -> dict[str, str]:
    """What a record says of what a file shows by itself; of some of it nothing where it is no record of ours."""
    shape, config = (values if isinstance(values := record.get(n), dict) else {} for n in ("shape", "config"))
    known = {n: shape[n] for n in ("channels", "peak", "frames") if shape.get(n) is not None}
    known |= {n: config[n] for n in ("block", "subdivide", "colour", "chroma") if config.get(n) is not None}
    if {"width", "height"} <= set(shape):
        known["size"] = f"{shape['width']}x{shape['height']}"
    return {name: str(value) for name, value in known.items()}


def _check_statement(found: OpenedRelease, plan: SoundPlan) -> None:
    """Make the statement again from the configuration that it records, and compare."""
    statement, where = found.statement, str(found.path)
    if found.video and plan.shape.channels == 1:
        check_grey(found.path)
    if plan.shape.still == found.video:
        kinds = ("video", "picture") if found.video else ("picture", "clip")
        raise DposeError("artefact-of-other-kind", f"is a {kinds[0]}, but its statement is about a {kinds[1]}", where)
    wanted = expected(statement, plan)
    if isinstance(found.released, ReleasedSums):
        _check_layers(found.released, plan, where)
    compare_numbers(statement, wanted, where)
    if isinstance(plan, PixelizationPlan) and plan.config.regions is not None:
        _check_mask(found, plan.config.regions)
    if statement.software.get("dpose") != software_versions()["dpose"]:
        found.unchecked.append("the statement's words, which are another version's")
        return
    caveats = (DECODED_VIDEO,) if found.video else ()
    given = (SOUND,) if found.sound else ()
    rough = isinstance(plan, LinearPlan) and plan.config.operator != "block"
    compare_words(statement, wanted, where, caveats=caveats, given=given, rough=rough)


def _check_layers(released: ReleasedSums, plan: SoundPlan, where: str) -> None:
    """Refuse an archive of other cells or colours than the configuration's."""
    sizes = plan.layers.sizes if isinstance(plan, PixelizationPlan) else {}
    for name, value in released.layers.sizes.items():
        if sizes.get(name) != value:
            raise DposeError(
                "pixels-differ-from-statement",
                f"has {name} {value or 'none'} in its archive, but its statement is about {sizes.get(name) or 'none'}",
                where,
            )


def _check_mask(found: OpenedRelease, regions: Regions) -> None:
    """Compare the mask in the archive, where that is at hand, with the public one, or with what its rule gives."""
    released = found.released
    if not (isinstance(released, ReleasedSums) and isinstance(released.cells, RegionSums)):
        if isinstance(regions, PublicRegions):
            found.unchecked.append("the mask of complex regions, which stands in the archive")
        return
    mask = released.cells.mask
    if isinstance(regions, PublicRegions):
        differs = found.statement.release.get("blocks_sha256") != mask_digest(mask)
    elif isinstance(regions, PrivateRegions) and regions.segmenter is None:
        blocks = released.layers.blocks
        differs = not np.array_equal(regions.blocks(released.block_colours(), blocks), mask)
    else:
        found.unchecked.append("which blocks the segmenter found")
        return
    if differs:
        raise DposeError(
            "mask-differs-from-statement", "its mask is not the one that its statement is about", str(found.path)
        )


def _check_picture(found: OpenedRelease, plan: SoundPlan) -> None:
    where = str(found.path)
    restoration = restoration_of(found.statement, where)
    if found.pixels is None:
        return
    if found.released is not None:
        try:
            restoration.check_here()
        except DposeError as error:
            found.unchecked.append(f"that the picture follows from its archive: {error.what}")
            return
        check_restored(found.pixels, found.released, ".png" if found.lossless else ".jpg", where)
        return
    if found.lossless and restoration == PAINTED and isinstance(plan, PixelizationPlan):
        check_cells(found.pixels, plan.config.part, where)
        return
    found.unchecked.append("that the picture follows from released values, as there is no archive beside it")


def _ending(found: OpenedRelease) -> str:
    heard = "; its sound is the original's and not protected" if found.sound else ""
    return heard + (f"; not checked: {'; '.join(found.unchecked)}" if found.unchecked else "")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
