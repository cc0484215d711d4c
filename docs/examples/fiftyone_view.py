"""Look at what `dpose predict --json found.json` found, in FiftyOne.

    dpose predict runs/a photos/ --out drawn/ --json found.json
    pip install fiftyone
    python docs/examples/fiftyone_view.py found.json photos/

FiftyOne is no part of dpose, and this file is only compiled by the tests, not run. FiftyOne keeps a database on
this machine and tells its makers of its use unless FIFTYONE_DO_NOT_TRACK=1: think of that before private pictures.
"""

import json
import sys
from pathlib import Path

import fiftyone as fo

found = json.loads(Path(sys.argv[1]).read_text())
folder = Path(sys.argv[2])
category = found["categories"][0]

dataset = fo.Dataset("dpose", overwrite=True)
dataset.default_skeleton = fo.KeypointSkeleton(
    labels=category["keypoints"], edges=[[a - 1, b - 1] for a, b in category["skeleton"]]
)
people = {}
for person in found["annotations"]:
    people.setdefault(person["image_id"], []).append(person)
for image in found["images"]:
    if "frame" in image:  # of a video
        continue
    width, height = image["width"], image["height"]
    poses, boxes = [], []
    for person in people.get(image["id"], []):
        values = person["keypoints"]
        points = [(x / width, y / height) for x, y in zip(values[::3], values[1::3], strict=True)]
        x, y, w, h = person["bbox"]
        poses.append(fo.Keypoint(label="person", points=points, confidence=values[2::3]))
        boxes.append(
            fo.Detection(
                label="person", bounding_box=[x / width, y / height, w / width, h / height], confidence=person["score"]
            )
        )
    sample = fo.Sample(filepath=str((folder / image["file_name"]).resolve()))
    sample["poses"], sample["people"] = fo.Keypoints(keypoints=poses), fo.Detections(detections=boxes)
    dataset.add_sample(sample)

fo.launch_app(dataset).wait()
