"""Nothing is imported from the current folder: not by a command, nor by any process that it starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpose
from dpose.interpreter import SAFE, child_environment, python, safe_path
from dpose.media import write_image

TRAPS = ["cv2", "multiprocessing", "json", "torch", "numpy", "pickle", "concurrent", "submitit", "ray", "dpose"]
CONSOLE = Path(sys.executable).with_name("dpose")
PIXELIZE = ["pixelize", "../photos", "--epsilon", "2", "--neighbours", "pixels:16", "--restore", "none"]


@pytest.fixture
def folder(tmp_path):
    """A folder with files that are called as modules are, and photographs beside it."""
    made = tmp_path / "strange"
    made.mkdir()
    for name in TRAPS:
        (made / f"{name}.py").write_text(f"open({str(made / 'RAN')!r}, 'a').write(__file__)\nraise SystemExit(9)\n")
    (tmp_path / "photos").mkdir()
    for k in range(2):
        seen = np.random.default_rng(k).integers(0, 256, (32, 32, 3)).astype(np.uint8)
        write_image(tmp_path / "photos" / f"{k}.png", seen)
    return made


def there(folder, *command, **more):
    """Run a command in the folder; what it printed."""
    variables = {name: value for name, value in os.environ.items() if name not in (SAFE, "PYTHONPATH")}
    done = subprocess.run(command, cwd=folder, env={**variables, **more}, capture_output=True, text=True, timeout=300)
    assert not (folder / "RAN").exists(), (folder / "RAN").read_text()
    assert done.returncode == 0, done.stderr
    return done.stdout


def script(folder, body):
    """Run a script that lies elsewhere, which imports nothing from the folder either."""
    place = folder.parent / "scripts" / "own.py"
    place.parent.mkdir(exist_ok=True)
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    place.write_text(f"if __name__ == '__main__':\n{lines}\n")
    return there(folder, sys.executable, str(place))


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_workers_of_an_engine(folder, engine):
    if engine == "ray":
        pytest.importorskip("ray")
    there(folder, CONSOLE, *PIXELIZE, "--engine", engine, "--workers", "2", "--out", "../released")
    assert len(list((folder.parent / "released").glob("*.png"))) == 2


def test_workers_that_a_script_has(folder):
    assert (
        script(
            folder,
            """
import os
from dpose.engines import engine, run_items
with engine("local", workers=2) as at:
    print([end.result for end in run_items(at, max, [3], shared=2)])
assert "PYTHONSAFEPATH" not in os.environ
""",
        ).strip()
        == "[3]"
    )


def test_the_module_as_a_command(folder):
    (folder / "dpose.py").unlink()  # what is to be run as a module is Python's to find
    (folder / "json.py").unlink()
    there(folder, sys.executable, "-m", "dpose", *PIXELIZE, "--engine", "local", "--workers", "2", "--out", "../a")
    there(folder, *python("dpose", *PIXELIZE, "--again", "--out", "../b"))


def test_the_studios_processes(folder):
    photo, room = folder.parent / "photos" / "0.png", folder.parent
    assert "picture" in script(
        folder,
        f"""
from dpose.studio.jobs import answer
print(answer("decode", {{"source": {str(photo)!r}, "roots": [{str(room)!r}], "room": {str(room)!r}}}))
""",
    )


def test_a_job_of_a_cluster(folder):
    pytest.importorskip("submitit")
    log = folder.parent / "log"
    script(
        folder,
        f"""
import time
from pathlib import Path
from dpose.engines.slurm import CommandJob, submit
from dpose.interpreter import python, version_of
log = Path({str(log)!r})
told = log / "exit"
command = python("dpose", "--version")
submit(CommandJob(command, command, str(log / "begun"), str(told), version_of("dpose")), log, "local", {{}})
until = time.monotonic() + 120
while not told.exists() and time.monotonic() < until:
    time.sleep(0.1)
""",
    )
    assert (log / "exit").read_text() == "0\n"


def test_a_file_of_the_folder_does_not_say_where_compiled_code_is_read_from(folder):
    (folder / ".numba_config.yaml").write_text("CACHE_DIR: planted\n")
    script(
        folder,
        """
import numpy as np
from dpose import jit
from dpose.release import partition
jit._spared = jit.WORTH
partition.block_sums(np.zeros((32, 32, 3), np.uint8), 16)
""",
    )
    assert not (folder / "planted").exists()


def test_a_process_finds_modules_where_this_one_does():
    found = subprocess.run(
        [*python("json.tool")], input="[1]", env=child_environment(), capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout) == [1]
    paths = child_environment()["PYTHONPATH"].split(os.pathsep)
    assert all(map(os.path.isabs, paths))
    assert str(Path(dpose.__file__).parents[1]) in paths


def test_the_variable_is_given_back(monkeypatch):
    monkeypatch.delenv(SAFE, raising=False)  # a command that ran in this process has set it
    for before in (None, "0"):
        if before is not None:
            monkeypatch.setenv(SAFE, before)
        with safe_path(), safe_path():
            assert os.environ[SAFE] == "1"
        assert os.environ.get(SAFE) == before


def test_every_process_is_started_by_these_commands():
    source = Path(dpose.__file__).parents[1]
    words = ("sys.executable", "get_context(", "ProcessPoolExecutor(", "Process(target", "os.fork")
    found = {
        (path.relative_to(source).as_posix(), line.strip())
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if any(word in line for word in words)
    }
    for path, line in found:
        assert path in ("dpose/interpreter.py", "dpose/engines/local.py") or any(
            word in line for word in ("spawning()", " -P", "context.Process(")
        ), (path, line)
    assert "context = spawning()" in (source / "dpose_lab" / "papers" / "parallel.py").read_text()


UNINSTALLED = """
from importlib import metadata
found = metadata.Distribution.from_name.__func__
def from_name(cls, name):
    if name == "dpose":
        raise metadata.PackageNotFoundError(name)
    return found(cls, name)
metadata.Distribution.from_name = classmethod(from_name)
"""


def test_a_source_tree_that_is_not_installed(tmp_path):
    for name in ("source", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "dpose").symlink_to(Path(dpose.__file__).parent)
    (tmp_path / "source" / "sitecustomize.py").write_text(UNINSTALLED)
    write_image(tmp_path / "a.png", np.zeros((32, 32, 3), np.uint8))

    def run(*arguments):
        path = {"PYTHONPATH": str(tmp_path / "source")}
        return there(tmp_path / "here", sys.executable, "-m", "dpose", *arguments, **path)

    assert run("--version") == "source\n"
    run("plan", "--units", "99", "--epochs", "1", "--epsilon", "8", "--delta", "1e-3")
    run("pixelize", "../a.png", "--epsilon", "2", "--neighbours", "pixels:16", "--out", "../b.png")
    run("verify", "../b.png")
