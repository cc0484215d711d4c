"""Pictures for the studio's tests, and where it is."""

import numpy as np

from dpose.media.images import write_image

PORT = 8765
HOME = f"http://127.0.0.1:{PORT}"


def photo(path, height=120, width=160, seed=0):
    """A picture with large shapes, as pictures have."""
    rng = np.random.default_rng(seed)
    small = rng.integers(40, 220, (6, 8, 3), np.uint8)
    picture = np.kron(small, np.ones((-(-height // 6), -(-width // 8), 1), np.uint8))[:height, :width]
    write_image(path, picture)
    return path
