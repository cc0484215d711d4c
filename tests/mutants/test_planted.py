"""Faults with names can be planted, change something, and are taken back; and the tests that they name are there.

Whether those tests find them is what `make mutants` tries; what is here keeps names from rotting in between.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from types import SimpleNamespace

import pytest

from mutants import run
from mutants.planted import objects, undone
from mutants.planted.patches import Patches, Planted
from mutants.planted.rooms import planted_faults
from mutants.run import TESTS, Fault, _outcome, named_faults, named_tests

FAULTS = [fault for room in planted_faults().values() for fault in room]


@pytest.fixture(scope="module")
def found():
    """What is wrong with each: in a process of its own, as faults that cannot be taken back would be found later."""
    done = subprocess.run(
        [sys.executable, str(TESTS / "mutants" / "planted" / "undone.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_planted_and_taken_back(fault, found):
    """Where it cannot be planted, dpose was rewritten: give the path of what stands there now, or plant it anew."""
    assert found[fault.name] == ""


@cache
def names_in(file):
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return names | {f"{c.name}::{node.name}" for c in classes for node in c.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_finds_a_fault_is_there(fault):
    assert fault.tests
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert not name or name in names_in(file)


def test_names_are_told_apart():
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1


# ------------------------------------------------------------------------------------------------- what plants them

MADE = "dpose.made_for_a_test"
USER = "dpose.made_for_a_test_user"
SOURCE = """
import math
from functools import cached_property

LEAST = 3

def twice(x, times=2):
    return x * times

def most(values):
    return max(values) + (lambda: max(values))()

class Case:
    def __init__(self, size):
        self.size = size
    def grown(self, by):
        return self.size + by
    @classmethod
    def of(cls, size):
        return cls(size)
    @property
    def area(self):
        return self.size**2
    @cached_property
    def root(self):
        return math.sqrt(self.size)
"""


@pytest.fixture
def made(monkeypatch):
    """Two modules of dpose's; the second has imported from the first, under another name, too."""
    modules = []
    for name, text in ((MADE, SOURCE), (USER, f"from {MADE} import LEAST, twice, twice as doubled\n")):
        module = type(sys)(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(text, vars(module))
        modules.append(module)
    return SimpleNamespace(source=modules[0], user=modules[1])


def test_whoever_has_imported_a_function_or_a_constant_gets_the_other(made):
    patch = Patches()
    patch.replace(f"{MADE}:twice", lambda original: lambda x, times=2: -original(x, times))
    patch.constant(f"{MADE}:LEAST", 4)
    assert (made.source.twice(3), made.user.twice(3), made.user.doubled(3, 3)) == (-6, -6, -9)
    assert (made.source.LEAST, made.user.LEAST) == (4, 4)
    assert made.user.twice.__name__ == "twice"
    patch.undo()
    assert (made.source.twice(3), made.user.doubled(3), made.user.LEAST) == (6, 6, 3)


def test_methods_of_every_kind(made):
    patch = Patches()
    patch.argument(f"{MADE}:Case.grown", "by", lambda by: 10 * by)
    patch.result(f"{MADE}:Case.of", lambda case, cls, size: cls(size + 1) if case.size == size else case)
    patch.result(f"{MADE}:Case.area", lambda area, case: area + case.size)
    patch.replace(f"{MADE}:Case.root", lambda original: lambda self: -original(self))
    patch.argument(f"{MADE}:twice", "times", lambda times: times + 1)
    case = made.source.Case.of(3)
    assert (case.size, case.grown(2), case.area, case.root, made.user.twice(1)) == (4, 24, 20, -2, 3)
    patch.undo()
    case = made.source.Case.of(4)
    assert (case.size, case.grown(2), case.area, case.root, made.user.twice(1)) == (4, 6, 16, 2, 2)
    patch.nothing(f"{MADE}:Case.grown")
    assert case.grown(2) is None
    patch.undo()


def test_what_one_module_sees_is_its_own(made):
    patch = Patches()
    patch.seen_by(USER, "twice", lambda original: lambda x: original(x) + 1)
    patch.seen_by(MADE, "math.sqrt", lambda _: lambda x: -x)
    patch.seen_by(MADE, "max", lambda _: min, "most")
    assert (made.user.twice(1), made.user.doubled(1), made.source.twice(1)) == (3, 2, 2)
    assert (made.source.Case(4).root, made.source.math.pi > 3) == (-4, True)
    assert (made.source.most([1, 2]), made.source.max([1, 2])) == (2, 2)  # within one function alone
    patch.undo()
    assert (made.user.twice(1), made.source.Case(4).root, made.source.most([1, 2])) == (2, 2, 4)
    assert not hasattr(made.source, "max")


@pytest.mark.parametrize(
    "plant",
    [
        lambda patch: patch.nothing("dpose.not_there:f"),
        lambda patch: patch.nothing(f"{MADE}:thrice"),
        lambda patch: patch.nothing(f"{MADE}:Case.shrunk"),
        lambda patch: patch.nothing(f"{MADE}:Box.grown"),
        lambda patch: patch.argument(f"{MADE}:twice", "often", lambda x: x),
        lambda patch: patch.seen_by(MADE, "thrice", lambda x: x),
        lambda patch: patch.seen_by(MADE, "math.cube", lambda x: x),
        lambda patch: patch.seen_by(MADE, "twice", lambda x: x, "Case.shrunk"),
        lambda patch: patch.get(f"{MADE}:MOST"),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error(made, plant):
    with pytest.raises(LookupError):
        plant(Patches())


def test_what_is_not_taken_back_or_changes_nothing_is_told(made):
    def kept(patch):
        patch.nothing(f"{MADE}:twice")
        made.user.LEAST = 5

    before = undone.bound([made.source, made.user])

    def told(plant):
        return undone.wrong_with(Planted("", plant, ()), before)

    assert told(lambda patch: patch.nothing(f"{MADE}:twice")) == ""
    assert told(lambda patch: patch.get(f"{MADE}:twice")) == "changes nothing"
    assert told(lambda patch: patch.nothing(f"{MADE}:thrice")).startswith("cannot be planted: LookupError")
    assert told(kept).startswith("is left behind in ")


def test_a_path_finds_what_is_in_a_class(made):
    assert objects.find(f"{MADE}:Case.grown") == (made.source.Case, "grown")


# ------------------------------------------------------------------------------------------------------- the run


def test_the_tests_of_a_fault_are_those_that_it_names():
    fault = Fault("n", "x.py", planted=Planted("n", lambda patch: None, ("a/test_x.py::test_b", "a/test_y.py")))
    assert named_tests([fault, Fault("m", "x.py")]) == {
        "a/test_x.py": ["a/test_x.py::test_b"],
        "a/test_y.py": ["a/test_y.py"],
    }
    names = ("a/test_x.py::test_b[1]", "a/test_x.py::test_bc", "a/test_x.py::test_c", "a/test_y.py::test_d")
    timed = {f"tests/{name}": {"seconds": 0.0} for name in names}
    assert run.tests_for(fault, {}, timed) == ["tests/a/test_x.py::test_b[1]", "tests/a/test_y.py::test_d"]


@pytest.mark.parametrize(
    ("code", "outcome"), [(0, "survived"), (1, "killed"), (4, "survived"), (5, "survived"), (72, "survived")]
)
def test_a_fault_that_no_test_was_tried_on_is_not_killed(code, outcome, tmp_path):
    fault = Fault("n", "x.py", planted=FAULTS[0])
    assert fault.named
    assert _outcome(fault, code << 8, 0.0, tmp_path / "log")["outcome"] == outcome


def test_every_fault_is_in_the_run_once():
    assert [fault.planted for fault in named_faults()] == FAULTS
