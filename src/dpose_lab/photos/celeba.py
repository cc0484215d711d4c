"""CelebA, aligned and cropped, with identities."""

from __future__ import annotations

import re
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_text, leads_out
from dpose_lab.photos.photo import Photo, Photos, folder_of

PICTURES = ("img_align_celeba", "Img/img_align_celeba")
LISTS = ("identity_CelebA.txt", "Anno/identity_CelebA.txt")


def open_celeba(root: Path) -> Photos:
    """Open faces with identities, in the list's order.

    Args:
        root: Folder with `img_align_celeba/` and `identity_CelebA.txt` (a file name and a number a line), or both in
            the archive's own folders `Img` and `Anno`.
    """
    folder = folder_of(root, PICTURES, "pictures")
    path = next((root / name for name in LISTS if (root / name).is_file()), None)
    if path is None:
        raise DposeError("identities-missing", "has no list of identities", str(root), f"expected {LISTS[0]} in it")
    names, identities = [], []
    try:
        lines = file_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DposeError("identities-unreadable", "cannot be read as a list of identities", str(path)) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, _, who = line.strip().partition(" ")
        if not re.fullmatch("[0-9]{1,18}", who.strip()) or "/" in name or leads_out(name):
            raise DposeError("identity-line-invalid", f"line {number} is no file name with a number", str(path))
        names.append(name)
        identities.append(int(who))
    if not names:
        raise DposeError("identities-empty", "lists no people", str(path))

    def read(index: int) -> Photo:
        return Photo.of_file(names[index], folder / names[index], identities[index])

    return Photos("CelebA", tuple(names), read, identities=tuple(identities))
