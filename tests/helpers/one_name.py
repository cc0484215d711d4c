"""Data in which two pictures have one name, in folders of their own."""

import json


def in_two_folders(root):
    """Move the first two pictures of the COCO labels at `root` to a/1.jpg and b/1.jpg; return the labels."""
    truth = json.loads((root / "test_coco.json").read_text())
    for folder, image in zip("ab", truth["images"], strict=False):
        (root / folder).mkdir()
        (root / image["file_name"]).rename(root / folder / "1.jpg")
        image["file_name"] = f"{folder}/1.jpg"
    (root / "test_coco.json").write_text(json.dumps(truth))
    return truth
