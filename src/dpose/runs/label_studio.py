"""Predictions as Label Studio's pre-annotations: people to correct by hand instead of drawing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

LOCAL = "/data/local-files/?d="
"""Where Label Studio serves files of its own machine; what follows is a path below its document root."""


def label_studio_tasks(document: Mapping[str, Any], version: str) -> list[dict[str, Any]]:
    """One task a picture, with a prediction: a rectangle a person, and its joints as points that belong to it.

    The labelling configuration has RectangleLabels called "person" and KeyPointLabels called "joint", both of an Image
    called "image" (docs/guide/workflows.md). Joints outside the picture, for which there is no
    place, and those of no score are left out.

    Args:
        document: As `dpose predict --json` writes it; frames of videos are left out, they are in no file.
        version: Of the model, for Label Studio's list of predictions.
    """
    joints = document["categories"][0]["keypoints"]
    people: dict[int, list[Mapping[str, Any]]] = {}
    for person in document["annotations"]:
        people.setdefault(person["image_id"], []).append(person)
    tasks = []
    for image in document["images"]:
        if "frame" not in image:
            found = people.get(image["id"], [])
            shapes = [shape for person in found for shape in _shapes(person, image, joints)]
            scores = [person["score"] for person in found]
            prediction = {
                "model_version": version,
                "score": sum(scores) / max(len(scores), 1),
                "result": shapes,
            }
            tasks.append({"data": {"image": LOCAL + image["file_name"]}, "predictions": [prediction]})
    return tasks


def _shapes(
    person: Mapping[str, Any], image: Mapping[str, Any], joints: list[str]
) -> Iterator[dict[str, Any]]:
    """A person's rectangle and points, in percent of the picture."""
    width, height = image["width"], image["height"]
    facts = {
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
    }
    name = f"person-{person['id']}"
    x, y, w, h = person["bbox"]
    x0, x1 = (min(max(v / width, 0.0), 1.0) * 100 for v in (x, x + w))
    y0, y1 = (min(max(v / height, 0.0), 1.0) * 100 for v in (y, y + h))
    yield {
        **facts,
        "id": name,
        "from_name": "person",
        "type": "rectanglelabels",
        "score": person["score"],
        "value": {
            "x": x0,
            "y": y0,
            "width": x1 - x0,
            "height": y1 - y0,
            "rotation": 0,
            "rectanglelabels": ["person"],
        },
    }
    values = person["keypoints"]
    for k, joint in enumerate(joints):
        px, py, score = values[3 * k] / width, values[3 * k + 1] / height, values[3 * k + 2]
        if score > 0 and 0 <= px <= 1 and 0 <= py <= 1:
            yield {
                **facts,
                "id": f"{name}-{joint}",
                "from_name": "joint",
                "parentID": name,
                "type": "keypointlabels",
                "score": score,
                "value": {"x": 100 * px, "y": 100 * py, "width": 0.5, "keypointlabels": [joint]},
            }
