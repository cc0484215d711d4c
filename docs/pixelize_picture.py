"""The guide's picture: what a pixelization leaves of a rendered person, by epsilon and with private regions.

python docs/pixelize_picture.py docs/pixelize.jpg
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import cv2

import dpose
from dpose.media.drawing import picture_grid
from dpose.media.images import write_image
from dpose_scene.render import render_person
from dpose_scene.splits import scene_seed

SIZE, SHOWN = (512, 384), (192, 256)
PEOPLE = (0, 333)
SETTINGS = {
    "b 16, epsilon 8": {"epsilon": 8, "block": 16},
    "b 16, epsilon 2": {"epsilon": 2, "block": 16},
    "b 16, epsilon 0.5": {"epsilon": "0.5", "block": 16},
    "b 32, n 4, epsilon 8": {"epsilon": 8, "block": 32, "subdivide": 4, "regions": "private"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    panels, labels = [], []
    for index in PEOPLE:
        image = render_person("ward", scene_seed("ward", "test", index), SIZE).image
        panels.append(cv2.resize(image, SHOWN, interpolation=cv2.INTER_AREA))
        labels.append("original")
        for label, settings in SETTINGS.items():
            released = dpose.pixelize(image, neighbours="pixels:16", seed=index, public=True, **settings)
            panels.append(cv2.resize(released.picture, SHOWN, interpolation=cv2.INTER_NEAREST))
            labels.append(label)
    write_image(out, picture_grid(panels, 1 + len(SETTINGS), labels=labels), quality=70)
    print(f"{out}: {len(PEOPLE)} people of ward:test, m = 16")


if __name__ == "__main__":
    main()
