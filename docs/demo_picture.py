"""The README's picture: predictions of the demo's models on rendered people who were not trained on.

    dpose demo --out runs/demo
    python docs/demo_picture.py runs/demo docs/demo.jpg

Three rows: the truth, the public weights that come with dpose, the private run. The people are the first eight of
`ward:val` of whom no joint is hidden; they were not chosen by how well they came out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import cv2
import numpy as np

from dpose.media.drawing import draw_skeleton, picture_grid
from dpose.media.images import write_image
from dpose.pose.folder import find_model, load_model
from dpose.pose.predict import predict_image
from dpose.pose.skeletons import MPII
from dpose_scene.render import render_person
from dpose_scene.splits import SPLITS, scene_seed

COUNT, ZOOM = 8, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    models = [load_model(folder) for folder in (find_model("nano"), arguments.run)]
    size = models[0].config.input_size
    scenes = (render_person("ward", scene_seed("ward", "val", i), size=size) for i in range(SPLITS["val"]))
    chosen = [scene for scene, _ in zip((s for s in scenes if s.visible.all()), range(COUNT), strict=False)]

    def drawn(image: np.ndarray, keypoints: np.ndarray) -> np.ndarray:
        large = cv2.resize(image, None, fx=ZOOM, fy=ZOOM, interpolation=cv2.INTER_CUBIC)
        points = (keypoints + 0.5) * ZOOM - 0.5
        return draw_skeleton(large, points, np.ones(len(points)), MPII.edges, MPII.colours)

    rows = [drawn(s.image, s.keypoints) for s in chosen]
    for model in models:
        rows += [drawn(s.image, predict_image(model, s.image, flip_test=True).keypoints) for s in chosen]
    write_image(arguments.out, picture_grid(rows, COUNT))
    print(f"{arguments.out}: truth, public weights, private run; {COUNT} people of ward:val")


if __name__ == "__main__":
    main()
