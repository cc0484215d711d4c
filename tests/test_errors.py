"""Errors: each has a code that scripts compare, and it comes through wrappers, pickles and the command line."""

import ast
import pickle
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dpose
from dpose.account.store import SetBackError
from dpose.cli import main
from dpose.engines import Failure
from dpose.errors import DposeError, IncompleteError, naming
from dpose.training.run import TrainingDivergedError
from refusals import refused

ROOTS = sorted(path.parent for path in Path(dpose.__file__).parents[1].glob("dpose*/__init__.py"))
CLASSES = {"DposeError", "IncompleteError", "TrainingDivergedError", "SetBackError", "Failure"}
FORM = re.compile(r"(?=.{1,40}$)[a-z0-9]+(-[a-z0-9]+){1,4}")


@cache
def modules() -> list[tuple[str, ast.Module]]:
    paths = [path for root in ROOTS for path in sorted(root.rglob("*.py"))]
    top = ROOTS[0].parent
    return [(path.relative_to(top).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def errors_in(tree: ast.AST) -> list[ast.Call]:
    """Every place where an error is made."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in found if ast.unparse(call.func).rpartition(".")[2] in CLASSES]


def codes_of(node: ast.expr) -> Iterator[str | None]:
    """Codes that an expression can give: literals, or a choice between them; None where one is told on."""
    match node:
        case ast.Constant(value=str(code)):
            yield code
        case ast.IfExp(body=body, orelse=orelse):
            yield from codes_of(body)
            yield from codes_of(orelse)
        case ast.Attribute(attr="code") | ast.Name(id="code"):
            yield None
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value="code"), default]):
            yield None
            yield from codes_of(default)
        case _:
            yield ast.unparse(node)


def test_every_refusal_has_a_code():
    made = [(where, call) for where, tree in modules() for call in errors_in(tree)]
    assert len(made) > 900
    without = [
        f"{where}:{call.lineno}: {code}"
        for where, call in made
        for code in (codes_of(call.args[0]) if call.args else ["no code"])
        if code is not None and not FORM.fullmatch(code)
    ]
    assert not without, "\n".join(without)


def test_a_code_has_one_spelling():
    """Of two codes of the same words in another order a script would compare the wrong one."""
    words = defaultdict(set)
    for _, tree in modules():
        for call in errors_in(tree):
            for code in filter(None, codes_of(call.args[0])):
                words[tuple(sorted(code.split("-")))].add(code)
    assert not [same for same in words.values() if len(same) > 1]


def test_what_one_function_refuses_is_told_apart():
    """Two sentences of one function have two codes, but where they tell one mistake: those are named here."""
    same = set()
    for where, tree in modules():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                sentences = defaultdict(set)
                for call in errors_in(function):
                    for code in codes_of(call.args[0]):
                        sentences[code].add(ast.unparse(call.args[1]))
                same |= {(where, code) for code, told in sentences.items() if code and len(told) > 1}
    assert same == {
        ("dpose/release/archive.py", "archive-damaged"),
        ("dpose/release/linear.py", "video-length-differs"),
        ("dpose/studio/jobs.py", "decoding-limit-passed"),
    }


ERRORS = [
    DposeError("ledger-cut", "is cut off"),
    DposeError("file-missing", "there is no such file", "a.png", "name another"),
    IncompleteError("picture-undecodable", "cannot be decoded", fix="copy it again"),
    TrainingDivergedError("training-diverged", "training diverged at step 3"),
    SetBackError("account-set-back", "the account was set back", "sqlite:///a"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_goes_through_a_pickle_whole(error):
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  (what was pickled here)
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error) == error.line()
    assert copy.exit_code == error.exit_code


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_comes_back_from_a_worker_with_its_code(error):
    back = Failure.of(error).error
    assert (back.code, back.line()) == (error.code, error.line())


def test_a_failed_item_of_some_has_another_exit_code_than_a_mistake():
    assert (DposeError.exit_code, IncompleteError.exit_code) == (2, 1)


def test_a_file_that_is_named_later_leaves_the_code():
    with refused("setting-unknown", where="a.yaml: --lr: unknown key"), naming(Path("a.yaml")):
        raise DposeError("setting-unknown", "unknown key", "--lr")
    with refused("file-missing", where="a.yaml"), naming(Path("a.yaml")):
        raise DposeError("file-missing", "there is no such file", "a.yaml")


def test_the_command_line_prints_the_code_behind_the_sentence(tmp_path, capsys):
    missing = tmp_path / "absent.png"
    assert main(["pixelize", str(missing), "--out", str(tmp_path / "out"), "--epsilon", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"dpose: {missing}: there is no such file or folder [file-missing]"


def test_refused_tells_codes_and_places_apart():
    """What tests compare with: another code, no error, and a place that is not named do not pass."""
    with refused("file-missing", where=("a.png", 7)) as caught:
        raise DposeError("file-missing", "no such file, 7 times", "a.png")
    assert caught.value.where == "a.png"
    with pytest.raises(AssertionError, match="file-missing"), refused("file-unreadable"):
        raise DposeError("file-missing", "no such file", "a.png")
    with pytest.raises(AssertionError, match=r"b\.png"), refused("file-missing", where="b.png"):
        raise DposeError("file-missing", "no such file", "a.png")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"), refused("file-missing"):
        pass
    with pytest.raises(ValueError, match="another"), refused("file-missing"):
        raise ValueError("another")


def test_an_error_is_one_line_without_control_characters():
    line = DposeError("file-missing", "there is no such file", "a\nb\x1b[31m\x9bc\x7f.png").line()
    assert line == "a b\\x1b[31m\\x9bc\\x7f.png: there is no such file"
