"""Twenty square pictures made from scikit-image's astronaut by slicing alone: the same bits on every machine."""

import numpy as np
from skimage.data import astronaut


def astronauts(side):
    """uint8 (20, side, side, 3): parts and halves of the photograph, as they are, mirrored and turned."""
    whole = astronaut()
    half = np.ascontiguousarray(whole[::2, ::2])
    starts = [(y, x) for y in (0, 60, 120) for x in (60, 120, 180)]
    parts = [whole[y : y + side, x : x + side] for y, x in starts]
    parts += [half[256 - side :, 256 - side :], half[:side, :side]]
    parts += [part[:, ::-1] for part in parts[:5]]
    parts += [np.rot90(part, turns) for part, turns in zip(parts[7:11], (1, 2, 3, 1), strict=True)]
    return np.ascontiguousarray(np.stack(parts[:20]))
