"""Pictures and a clip that are made of whole numbers: the same everywhere."""

import numpy as np

GREY = np.add.outer(np.arange(48), 3 * np.arange(64)).astype(np.uint8)
COLOUR = np.stack([GREY, GREY[::-1], GREY[:, ::-1]], axis=2)
DEEP = GREY.astype(np.uint16) * 257
CLIP = np.stack([np.roll(COLOUR, 2 * t, axis=1) for t in range(6)])
MASK = np.arange(64)[None, :].repeat(48, 0) < 32
