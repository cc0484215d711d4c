"""Programs run in processes of their own that need not import torch again: each is a fork of one that has.

    done = run(PROGRAM, ["--out", "x"], cwd=tmp_path)          # as subprocess.run([sys.executable, "-c", ...])
    first, second = run_ranks(PROGRAM, ["out"], 2)             # as torchrun starts them

What a program sees is that of a fresh interpreter but for the modules that are loaded already. A real `python` and a
real launcher are for tests of just these.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT = 300.0
"""Seconds after which a program is ended."""
GRACE = 5.0
"""Seconds that the others have, where one of several has failed."""
LOADED = ("dpose.cli", "dpose.runs.train", "dpose.runs.evaluate", "dpose.training.trainer", "dpose.action", "dots")


class _Zygote:
    def __init__(self) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        atexit.register(self.process.kill)

    def ask(self, **request: object) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@functools.cache
def _started() -> _Zygote:
    return _Zygote()


def run(
    program: str, arguments: Sequence[str] = (), *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `program`, the text of a Python program, with `sys.argv[1:]` of `arguments`."""
    return _run(program, arguments, cwd, [env or os.environ])[0]


def run_ranks(program: str, arguments: Sequence[str], ranks: int) -> list[subprocess.CompletedProcess[str]]:
    """Run `program` in `ranks` processes that find each other, and end the others where one fails."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    each = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    return _run(program, arguments, None, each)


def _run(
    program: str, arguments: Sequence[str], cwd: Path | None, environments: Sequence[Mapping[str, str]]
) -> list[subprocess.CompletedProcess[str]]:
    zygote = _started()
    with tempfile.TemporaryDirectory() as folder:
        files = [[str(Path(folder) / f"{kind}{k}") for kind in ("out", "err")] for k in range(len(environments))]
        pids = [
            zygote.ask(program=program, argv=list(arguments), cwd=str(cwd or Path.cwd()), env=dict(env), files=f)
            for env, f in zip(environments, files, strict=True)
        ]
        codes: dict[int, int] = {}
        end, asked = time.monotonic() + LIMIT, False
        while len(codes) < len(pids):
            for pid in set(pids) - set(codes):
                status = zygote.ask(wait=pid)
                if status >= 0:
                    codes[pid] = os.waitstatus_to_exitcode(status)
            now = time.monotonic()
            if any(codes.values()) and not asked:
                asked, end = True, min(end, now + GRACE)
            if now > end:
                for pid in set(pids) - set(codes):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        return [
            subprocess.CompletedProcess(list(arguments), codes[pid], *(Path(f).read_text() for f in pair))
            for pid, pair in zip(pids, files, strict=True)
        ]


def _fork(request: dict) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number, file in zip((1, 2), request["files"], strict=True):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(n), "w") for n in (1, 2))
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        sys.argv = ["program", *request["argv"]]
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(request["program"], "program", "exec"), vars(module))
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    import importlib

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            pid, status = os.waitpid(request["wait"], os.WNOHANG)
            answer = status if pid else -1
        else:
            answer = _fork(request)
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    _serve()
