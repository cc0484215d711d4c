"""PPM-100: portraits with alpha mattes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpose.errors import DposeError
from dpose.media.kinds import kind_of
from dpose_lab.photos.photo import Photo, Photos, folder_of, read_matte

PICTURES = ("image", "fg", "val/fg", "val/image")
MATTES = ("matte", "alpha", "val/alpha", "val/matte")


def open_ppm(root: Path) -> Photos:
    """Open portraits; masks are the pixels that belong at least half to the person.

    Args:
        root: Folder with `image/` and `matte/`, or `fg/` and `alpha/`, perhaps below `val/`; a picture and its
            matte have one stem.
    """
    pictures = _files(folder_of(root, PICTURES, "pictures"))
    mattes = _files(folder_of(root, MATTES, "mattes"))
    if not pictures:
        raise DposeError("pictures-missing", "holds no pictures", str(root))
    for stem, file in pictures.items():
        if stem not in mattes:
            raise DposeError("matte-missing", "has no matte", str(file))
    stems = tuple(sorted(pictures))

    def read(index: int) -> Photo:
        stem = stems[index]
        photo, matte = Photo.of_file(stem, pictures[stem]), read_matte(mattes[stem])
        if matte.shape != photo.pixels.shape:
            raise DposeError(
                "matte-size-differs",
                f"is {matte.shape[1]} x {matte.shape[0]}, its picture {photo.pixels.shape[1]} x "
                f"{photo.pixels.shape[0]}",
                str(mattes[stem]),
            )
        return replace(photo, mask=matte >= 128)

    return Photos(title="PPM-100", names=stems, read=read, masks="mattes, where at least one half")


def _files(folder: Path) -> dict[str, Path]:
    return {file.stem: file for file in sorted(folder.iterdir()) if kind_of(file) == "picture"}
