"""Private statistics of what people do in video: numbers instead of pictures (`dpose count`)."""

from pathlib import Path

from dpose.errors import DposeError
from dpose.privacy.sections import SIGNATURE

NUMBERS, TABLE, PLOT = "counts.json", "counts.csv", "counts.png"
STATEMENT, SEAL = "privacy.json", "seal.json"


def count_folders(folder: Path) -> list[Path]:
    """`folder` if the numbers or the seal of a count stand in it, and those in it of which the same holds: live days.

    Raises:
        DposeError: in one of these, or beside them, is what no count's seal covers: to check them would not check it.
    """
    here = [folder, *(one for one in sorted(folder.glob("*")) if one.is_dir() and one.name[0] != ".")]
    found = [one for one in here if any((one / name).exists() for name in (NUMBERS, SEAL))]
    if found and folder not in found and (folder / STATEMENT).exists():
        found.insert(0, folder)
    for place in {folder, *found} if found else ():
        own = {NUMBERS, TABLE, PLOT, STATEMENT, SEAL, SIGNATURE} if place in found else set[str]()
        beside = (one for one in sorted(place.iterdir()) if one not in found and one.name[0] != ".")
        if other := next((one.name for one in beside if one.name not in own), None):
            said = f"holds a count and, beside it, {other}, which is not of it"
            raise DposeError("count-beside-others", said, str(place), "name each alone, or move it elsewhere")
    return found
