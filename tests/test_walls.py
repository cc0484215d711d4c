"""dpose works where neither `dpose_lab` nor `dpose_scene` is, and says what is missing of what they bring."""

import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dpose
from dpose import extensions
from dpose.media.images import write_image
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose_lab.baselines.pixelization import PaperPlan
from refusals import refused

LABEL = "0 0.5 0.5 0.4 0.6 " + "0.4 0.3 2 " * 17 + "\n"
ALONE = """
import json, os, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dpose_lab", "dpose_scene"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from dpose.cli import main
print(json.dumps([main(arguments) for arguments in json.loads(sys.argv[1])]))
print(json.dumps(sorted(name for name in sys.modules if name.startswith("dpose_"))))
"""


@pytest.fixture
def alone(tmp_path):
    """Run commands with a copy of dpose's folder alone: their exit codes, and all that they printed."""
    shutil.copytree(
        Path(dpose.__file__).parent, tmp_path / "source" / "dpose", ignore=shutil.ignore_patterns("__pycache__")
    )

    code = f"import sys; sys.path[0] = {str(tmp_path / 'source')!r}\n{ALONE}"

    def run(*commands):
        given = json.dumps([list(map(str, command)) for command in commands])
        done = subprocess.run([sys.executable, "-c", code, given], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        *_, codes, loaded = done.stdout.splitlines()
        assert json.loads(loaded) == []
        return json.loads(codes), done.stdout + done.stderr

    return run


def test_pictures_are_released_models_trained_and_both_verified(alone, tmp_path):
    rng = np.random.default_rng(0)
    write_image(tmp_path / "street.png", rng.integers(0, 256, (48, 64, 3), np.uint8))
    for number in range(8):
        write_image(tmp_path / f"data/train/images/{number}.png", rng.integers(0, 256, (64, 48, 3), np.uint8))
        (tmp_path / "data/train/labels").mkdir(exist_ok=True)
        (tmp_path / f"data/train/labels/{number}.txt").write_text(LABEL)
    (tmp_path / "data/data.yaml").write_text("train: train/images\nnames: [person]\nkpt_shape: [17, 3]\n")
    train = ["--method", "dp-sgd", "--epsilon", 8, "--delta", "1e-2", "--epochs", 1, "--batch-size", 4]
    model = ["--preset", "nano", "--strategy", "light", "--set", "data.validation_data=none"]
    codes, printed = alone(
        ["pixelize", "street.png", "--epsilon", 2, "--neighbours", "pixels:16", "--out", "released.png"],
        ["verify", "released.png"],
        ["train", "--data", "yolo:data:train", *train, *model, "--out", "run"],
        ["verify", "run"],
    )
    assert codes == [0, 0, 0, 0], printed


def test_what_is_missing_is_named(alone, tmp_path):
    write_image(tmp_path / "street.png", np.zeros((48, 64, 3), np.uint8))
    codes, printed = alone(
        ["scene", "sheet", "--out", "sheet.png"],
        ["reproduce"],
        ["data", "check", "synthetic:ward"],
        ["pixelize", "street.png", "--epsilon", 2, "--set", "paper=1", "--out", "paper.png"],
    )
    assert codes == [2, 2, 2, 2]
    assert "install dpose with dpose_scene" in printed
    assert "install dpose with dpose_lab" in printed


def test_a_published_algorithms_picture_is_verified_with_the_laboratory_and_without(alone, tmp_path, monkeypatch):
    from dpose.cli import main

    monkeypatch.chdir(tmp_path)
    write_image(tmp_path / "street.png", np.zeros((48, 64, 3), np.uint8))
    assert main(["pixelize", "street.png", "--epsilon", "2", "--set", "paper=1", "--out", "paper.png"]) == 0
    assert main(["verify", "paper.png"]) == 0
    codes, printed = alone(["verify", "paper.png"])
    assert codes == [0]
    assert "nothing is claimed" in printed
    assert "is in dpose_lab, which is not installed" in printed


def test_entry_points_are_the_modules_beside():
    """What metadata say, and what a source tree without metadata has: the same modules."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    groups = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"]
    declared = {(group, module) for group, entries in groups.items() for module in entries.values()}
    beside = {
        (f"dpose.{group}", module.__name__)
        for group in ("commands", "data", "operators")
        for module in extensions.extensions(group)
    }
    assert beside == {
        ("dpose.commands", "dpose_lab.commands"),
        ("dpose.commands", "dpose_scene.commands"),
        ("dpose.data", "dpose_scene.data"),
        ("dpose.operators", "dpose_lab.operators"),
    }
    assert declared == beside


def test_a_package_that_fails_to_import_is_not_passed_over(monkeypatch, tmp_path):
    (tmp_path / "broken_lab").mkdir()
    (tmp_path / "broken_lab" / "__init__.py").write_text("import there_is_no_such_module\n")
    points = (metadata.EntryPoint("x", "broken_lab", "dpose.data"),)
    monkeypatch.setattr(extensions.metadata, "entry_points", lambda group: points)
    monkeypatch.syspath_prepend(tmp_path)
    extensions.extensions.cache_clear()
    try:
        with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
            extensions.extensions("data")
    finally:
        extensions.extensions.cache_clear()


def test_without_rendered_people_the_spec_says_so(monkeypatch):
    monkeypatch.setattr(extensions, "extensions", lambda group: ())
    with refused("rendered-people-missing"):
        extensions.rendered_people()


@pytest.mark.parametrize("kind", [Kind.PRIVATE, Kind.SEEDED, Kind.NONE])
def test_no_package_gives_its_algorithm_a_guarantee(monkeypatch, kind):
    """A plan from elsewhere is a published algorithm's, whatever its own statement says."""
    picture = np.zeros((32, 32), np.uint8)
    claimed = dpose.pixelize(picture, 2, "pixels:16", 16, public=True).statement
    claimed = PrivacyStatement(kind, unit="pixel") if kind is Kind.NONE else replace(claimed, kind=kind)

    class Claiming(PaperPlan):
        def statement(self):
            return claimed

    module = SimpleNamespace(PUBLISHED={"pictures": Claiming.of})
    monkeypatch.setattr("dpose.release.published.extensions", lambda group: (module,))
    with pytest.raises(ValueError, match="guarantees nothing"):
        dpose.pixelize(picture, 2, "pixels:16", 16, paper=1, public=True)


def test_code_of_all_three_counts():
    names = [name for name, _ in extensions.source_files()]
    for name in ("dpose/errors.py", "dpose_lab/commands.py", "dpose_scene/render.py"):
        assert name in names
