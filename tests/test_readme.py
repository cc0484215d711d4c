"""The README's Python runs as it stands, on a small rendered dataset in place of a real one."""

import re
from pathlib import Path

import dpose_scene.data as synthetic_module
from dpose.release.verify import verify_release

ROOT = Path(__file__).resolve().parents[1]


def test_the_training_of_the_readme_runs_on_photographs(tmp_path, monkeypatch, capsys, pose_fixtures):
    """COCO's people have other joints than the model."""
    monkeypatch.chdir(tmp_path)
    train = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    for there, here in (("coco:/data/ward:train", f"coco:{pose_fixtures}/coco"), ("epochs=20", "epochs=1")):
        assert there in train
        train = train.replace(there, here)
    exec(train, {})
    assert "This protects each single image among the 4 " in capsys.readouterr().out


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(synthetic_module, "SPLITS", {"train": 12, "val": 4, "test": 4, "public": 4})
    train, release = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for there, here in (("coco:/data/ward:train", "synthetic:ward"), ("epochs=20", "epochs=1")):
        assert there in train
        train = train.replace(there, here)
    exec(train, {})
    assert "This protects each single image among the 12" in capsys.readouterr().out
    exec(release, {})
    assert "epsilon 2" in capsys.readouterr().out
    assert verify_release(tmp_path / "released.png")[0].epsilon == 2


def test_it_is_read_in_two_minutes():
    assert len((ROOT / "README.md").read_text().split()) <= 400


def test_the_pages_and_pictures_it_links_are_there():
    text = (ROOT / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    assert links
    for link in links:
        assert (ROOT / link.partition("#")[0]).exists(), link
