"""What is stopped leaves nothing half-written, and a home that cannot be written says what to do."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from clips import write
from dpose.cli import TERMINATED, main
from dpose.media.images import write_image

PROGRAM = [sys.executable, "-P", "-c", "from dpose.cli import run; run()"]


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGTERM")
def test_sigterm_leaves_nothing(tmp_path):
    film = write(tmp_path / "film.mp4", frames=600, size=(320, 240))
    out = tmp_path / "out"
    words = ["pixelize", str(film), "--epsilon", "2", "--neighbours", "pixels:16", "--public", "--out"]
    program = subprocess.Popen([*PROGRAM, *words, str(out / "o.mp4")], stderr=subprocess.PIPE, text=True)
    while program.poll() is None and not (out.is_dir() and any(out.iterdir())):
        time.sleep(0.01)
    assert program.poll() is None, "it was over before it could be stopped"
    program.send_signal(signal.SIGTERM)
    _, told = program.communicate(timeout=60)
    assert program.returncode == TERMINATED == 143
    assert "Traceback" not in told
    assert list(out.iterdir()) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no folder that nobody can write to")
def test_a_state_folder_that_cannot_be_written_names_the_variable(tmp_path, capsys, monkeypatch):
    write_image(tmp_path / "a.png", np.full((48, 64, 3), 90, np.uint8))
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    words = ["pixelize", str(tmp_path / "a.png"), "--epsilon", "2", "--neighbours", "pixels:16", "--out"]
    assert main([*words, str(tmp_path / "o.png")]) == 2
    assert "set XDG_STATE_HOME" in capsys.readouterr().err
