"""The README's first picture: what `dpose predict` finds in a photograph with nothing else.

    python docs/predict_picture.py docs/predict.jpg

The photograph is scikit-image's astronaut (Eileen Collins, NASA), which is in the public domain.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import numpy as np
from skimage.data import astronaut

from dpose.media.drawing import draw_skeleton
from dpose.media.images import write_image
from dpose.pose.blaze_people import BlazePeople


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    photograph = astronaut()
    finder = BlazePeople.load()
    drawn, blank = photograph, np.full_like(photograph, 245)
    people = finder(photograph)
    for person in people:
        how = (person.pose.keypoints, person.pose.scores, finder.skeleton.edges, finder.skeleton.colours, 3)
        drawn, blank = draw_skeleton(drawn, *how), draw_skeleton(blank, *how)
    write_image(arguments.out, np.hstack([photograph, drawn, blank]))
    print(f"{arguments.out}: {len(people)} people found")


if __name__ == "__main__":
    main()
