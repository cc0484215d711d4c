"""What is installed from the wheel works by itself, with all its data files, far from the sources."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dpose.media.images import write_image

ROOT = Path(__file__).resolve().parents[1]
MADE = ("__pycache__", "evaluations")
PACKAGES = ("dpose", "dpose_lab", "dpose_scene")

pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution, as `make dist` makes them, of a copy of what they are made from."""
    pytest.importorskip("build")
    source = tmp_path_factory.mktemp("dist") / "source"
    ignored = shutil.ignore_patterns(*MADE, "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    out = source.parent / "out"
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An environment with nothing of dpose but the wheel; its dependencies are this one's, so nothing is fetched."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place / "env", with_pip=False)
    python = place / "env" / "bin" / "python"
    wheel, _ = built
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", wheel)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # files called .pth in this folder are not read: an editable dpose in it stays unknown
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return place, {**env, "HOME": str(place), "XDG_STATE_HOME": str(place / "state"), "COLUMNS": "100"}


def test_every_file_beside_the_code_is_in_both(built):
    wanted = {
        str(path.relative_to(ROOT / "src"))
        for package in PACKAGES
        for path in (ROOT / "src" / package).rglob("*")
        if path.is_file() and not set(path.parts) & set(MADE)
    }
    assert {f"{package}/py.typed" for package in PACKAGES} <= wanted
    wheel, source = built
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()
    with tarfile.open(source) as archive:
        names = {name.partition("/src/")[2] for name in archive.getnames()}
    assert wanted - names == set()


def test_it_helps_plans_releases_and_verifies(installed):
    place, env = installed
    dpose = place / "env" / "bin" / "dpose"
    found = run(place / "env" / "bin" / "python", "-c", "import dpose; print(dpose.__file__)", cwd=place, env=env)
    assert found.startswith(str(place))
    assert "release-video" in run(dpose, "--help", cwd=place, env=env)
    asked = ["--units", 7000, "--epochs", 20, "--batch-size", 512, "--epsilon", 8, "--delta", "1e-5"]
    assert "noise" in run(dpose, "plan", *asked, cwd=place, env=env)
    ramp = np.add.outer(np.arange(96), np.arange(128)).astype(np.uint8)
    write_image(place / "street.png", np.stack([ramp] * 3, -1))
    asked = ["--epsilon", 2, "--neighbours", "pixels:16", "--out", "released"]
    run(dpose, "pixelize", "street.png", *asked, cwd=place, env=env)
    assert "epsilon" in run(dpose, "verify", "released", cwd=place, env=env)
    # the public weights are there, and the restoration's
    run(dpose, "predict", found.strip().replace("__init__.py", "weights/nano"), "street.png", cwd=place, env=env)
    # research and rendered people are there, and nothing needs them
    assert "table2" in run(dpose, "reproduce", cwd=place, env=env)
    for package in PACKAGES[1:]:
        shutil.rmtree(Path(found.strip()).parents[1] / package)
    run(dpose, "pixelize", "street.png", *asked[:-1], "alone", "--again", cwd=place, env=env)
    assert "epsilon" in run(dpose, "verify", "alone", cwd=place, env=env)
    assert "reproduce" not in run(dpose, "--help", cwd=place, env=env)
