"""The command line: parse, call, print."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from typing import Any

from dpose.errors import DposeError
from dpose.interpreter import SAFE, settle_environment


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done. 1: some of many items failed. 2: a mistake, a line on standard error. 130: stopped by Ctrl-C after saving.
    """
    _open_streams()
    settle_environment()  # before anything imports torch
    import typer

    from dpose.cli.app import root

    _print_anything()
    # typer brings its own copy of click in some releases and imports it in others: take the class from typer itself
    complaint: Any = typer.BadParameter.__mro__[2]
    try:
        code = root().main(arguments, prog_name="dpose", standalone_mode=False, **_width())
        return code if isinstance(code, int) else 0
    except DposeError as error:
        _complain(f"{error.line()} [{error.code}]")
        return error.exit_code
    except typer.Exit as ended:
        return ended.exit_code
    except complaint as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            return 0
        words = sys.argv[1:] if arguments is None else arguments
        if said := _as_setting(error, words):
            _complain(f"{said} [option-is-setting]")
            return 2
        _complain(_with_one_dash(error, words) or " ".join(error.format_message().split()))
        return int(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        words = sys.argv[1:] if arguments is None else arguments
        _complain(f"stopped{GOES_ON if words and words[0] in RELEASING else ''}")
        return 130
    except OSError as error:  # from a file that nothing above has given words to
        _complain(f"{error.filename or 'a file'}: {error.strerror or error}")
        return 2
    except MemoryError:
        _complain("out of memory; try a smaller --preset or --set microbatch_size=1")
        return 2


def _width() -> dict[str, int]:
    """Columns of a help that no terminal limits: as many as let each command's fit 40 lines."""
    return {} if "COLUMNS" in os.environ or sys.stdout.isatty() else {"terminal_width": 100}


RELEASING = ("pixelize", "release-video", "obfuscate")
GOES_ON = "; the same command goes on, and counts again what was in work"
"""Said of those: what they have made stays, and what they were making may have been seen."""
TERMINATED = 128 + signal.SIGTERM
"""Exit code of a command that SIGTERM has stopped."""


def _as_setting(error: Any, words: list[str]) -> str:
    """How an option that a command does not have is written as a setting; "" if it is none."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    settings = getattr(context.command.callback, "settings", None) if context else None
    if settings is None or option is None:
        return ""
    from dpose.cli.settings import spelling

    place = next((i for i, word in enumerate(words) if word.partition("=")[0] == option), None)
    if place is None:  # several short options in one word
        return ""
    _, equals, value = words[place].partition("=")
    following = words[place + 1 : place + 2]
    typed = value if equals else following[0] if following and not following[0].startswith("--") else "VALUE"
    written = spelling(settings.known, option, typed)
    return f"{option} is now {written}" if written else ""


def _with_one_dash(error: Any, words: list[str]) -> str:
    """What is meant by a word that was read as short options: a long one, or a file; "" if no such word is typed."""
    short = getattr(error, "option_name", None) or "--"
    word = next((w for w in words if w.startswith(short) and len(w) > len(short)), "")
    if short.startswith("--") or not word:
        return ""
    meant = f"./{word}" if os.path.lexists(word) else f"-{word}"
    return f"No such option: {word}. Did you mean {meant}?"


def _open_streams() -> None:
    """Let nothing that is printed fail where a standard stream was closed before the start, as by `>&-`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # in this order each takes its own number again
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _print_anything() -> None:
    """Let standard output show escaped what has no encoding, as a file's name that is no UTF-8: standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _complain(line: str) -> None:
    print(f"dpose: {line}", file=sys.stderr)


def no_core_dumps() -> None:
    """Leave no image of the memory on disk if this process, or one that it starts, crashes: keys are in it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    with contextlib.suppress(ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def run() -> None:
    """The console script. SIGTERM ends a command as Ctrl-C does, so that nothing half-written is left."""
    no_core_dumps()
    os.environ[SAFE] = "1"  # for all that is started, of whatever library
    terminated = False

    def stop(number: int, frame: object) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    code = main()
    sys.exit(TERMINATED if terminated and code == 130 else code)
