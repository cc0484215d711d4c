"""Commands load what they use: modules are counted, not seconds."""

import json
import subprocess
import sys

import numpy as np
import pytest

from dpose.media import write_image

MODELS = {"torch", "timm", "torchvision", "matplotlib", "skimage"}
"""What only commands with a model or a drawing may load."""
NUMBERS = {"numpy", "scipy", "cv2", "numba", "av", "dp_accounting"}


def loaded_after(commands):
    """The modules that a fresh process has loaded after each of `commands`, one after the other."""
    code = (
        "import contextlib, io, json, sys\n"
        "seen = []\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    import dpose\n"
        "    if command:\n"
        "        from dpose.cli import main\n"
        "        with contextlib.redirect_stdout(io.StringIO()):\n"
        "            assert main(command) == 0, command\n"
        "    seen.append(sorted(sys.modules))\n"
        "print(json.dumps(seen))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [set(names) for names in json.loads(done.stdout)]


def test_the_package_loads_nothing():
    (found,) = loaded_after([[]])
    assert not found & (MODELS | NUMBERS)
    assert {name for name in found if name.startswith("dpose")} == {"dpose"}


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["train", "--help"], ["studio", "--help"]])
def test_help_loads_the_command_line_alone(command):
    (found,) = loaded_after([command])
    assert not found & (MODELS | NUMBERS)
    own = [name for name in found if name.partition(".")[0] == "dpose"]
    added = [name for name in found if name.startswith(("dpose_lab", "dpose_scene"))]
    assert len(own) <= 12
    assert len(added) <= 6


def test_what_needs_no_model_loads_none(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    picture, released = tmp_path / "street.png", tmp_path / "released.png"
    write_image(picture, np.zeros((48, 64, 3), np.uint8))
    plan = ["plan", "--units", "1000", "--epsilon", "8", "--delta", "1e-4", "--epochs", "1"]
    commands = [
        ["keys"],
        ["account"],
        ["pixelize", str(picture), "--epsilon", "2", "--out", str(released)],
        ["verify", str(released)],
    ]
    *_, last = found = loaded_after(commands)
    assert not any(modules & MODELS for modules in found)
    assert not last & {"numba", "av.container"}  # a small picture is no video and not worth a compiler
    (first,), (again,) = loaded_after([plan]), loaded_after([plan])
    assert not first & MODELS
    assert not again & {"scipy", "dp_accounting", "numba"}  # a plan that was looked at is remembered


def test_a_command_that_crashes_leaves_no_image_of_its_memory():
    resource = pytest.importorskip("resource")
    code = (
        "import resource, subprocess, sys\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)\n"
        "from dpose.cli import run\n"
        "sys.argv = ['dpose', '--version']\n"
        "try:\n"
        "    run()\n"
        "except SystemExit:\n"
        "    own = resource.getrlimit(resource.RLIMIT_CORE)[0]\n"
        "    print(own, subprocess.run(['sh', '-c', 'ulimit -c'], capture_output=True, text=True).stdout)\n"
    )
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("this machine allows no core dumps at all")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["0", "0"]
