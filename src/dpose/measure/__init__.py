"""Private statistics of what people do in video: numbers instead of pictures (`dpose count`)."""

from pathlib import Path

from dpose.errors import DposeError
from dpose.privacy.sections import SIGNATURE

NUMBERS, TABLE, PLOT = "counts.json", "counts.csv", "counts.png"
STATEMENT, SEAL = "privacy.json", "seal.json"


def count_folders(folder: Path) -> list[Path]:
    """`folder` if a count or a part of one stands in it, and those in it of which the same holds: a live source's days.

    Raises:
        DposeError: something stands beside them that no count's seal covers, so that to check them would not check it.
    """
    parts = (NUMBERS, TABLE, PLOT, SEAL)
    found = {file.parent for name in parts for file in (*folder.glob(name), *folder.glob(f"*/{name}"))}
    if found and (folder / STATEMENT).exists():
        found.add(folder)
    own = {*parts, STATEMENT, SIGNATURE} if folder in found else set[str]()
    inside = sorted(folder.iterdir()) if found else []
    if beside := [one.name for one in inside if one not in found and one.name not in own and one.name[0] != "."]:
        said = f"holds a count and, beside it, {beside[0]}, which is not of it"
        raise DposeError("count-beside-others", said, str(folder), "name each alone, or move it elsewhere")
    return sorted(found)
