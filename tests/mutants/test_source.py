"""The run over the source plants what it says: operators change one thing, and parts of the run are all of it.

The run itself (`make mutants`) takes minutes; what is here keeps it from rotting in between.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest
import yaml

from mutants import run
from mutants.guards import GUARDED
from mutants.operators import mutants_of, uncached
from mutants.planted.patches import Planted
from mutants.run import EXPLAINED, TESTS, Fault, in_part, named_faults, source_of


def source(file):
    return source_of(file).read_text(encoding="utf-8")


def test_parts_are_apart_and_together_all_faults_and_each_has_those_with_names():
    named = Fault("n", "a.py", planted=Planted("n", lambda patch: None, ()))
    others = [Fault(f"fault {i}", "a.py", (), lambda: ast.parse("")) for i in range(400)]
    parts = [[f for f in others if in_part(f, f"{k}/7")] for k in range(1, 8)]
    assert sorted(f.name for part in parts for f in part) == sorted(f.name for f in others)
    assert all(30 < len(part) < 90 for part in parts)
    assert all(in_part(named, f"{k}/7") for k in range(1, 8))
    assert all(in_part(f, "") for f in others)
    with pytest.raises(SystemExit, match="8/7"):
        in_part(others[0], "8/7")


def test_a_sample_is_the_same_for_a_seed_and_grows_and_has_those_with_names():
    named = Fault("n", "a.py", planted=Planted("n", lambda patch: None, ()))
    every = [named, *(Fault(f"fault {i}", "a.py") for i in range(400))]
    ten, fifty, other = (run.sampled(every, *how) for how in ((10, 1), (50, 1), (50, 2)))
    assert [len(ten), len(fifty), len(other)] == [11, 51, 51]
    assert all(named in some for some in (ten, fifty, other))
    assert set(ten) < set(fifty) != set(other)
    assert run.sampled(list(reversed(every)), 10, 1) == list(reversed(ten))
    assert run.sampled(every, 1000, 1) == every


def test_only_the_modules_that_are_asked_for_are_changed():
    assert run.modules_of("account/") == [file for file in GUARDED if file.startswith("account/")]
    assert run.modules_of("privacy/sampling.py") == ["privacy/sampling.py"]
    assert run.modules_of("") == run.modules_of("no path has this") == list(GUARDED)


def test_names_are_stored_until_the_source_changes_and_each_fault_makes_its_tree(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "STORE", tmp_path)
    file = "privacy/sampling.py"
    found = run.faults([file])
    assert len(found) > 20
    monkeypatch.setattr(run, "mutants_of", lambda *given: pytest.fail("they were made again"))
    again = run.faults([file])
    assert [(f.name, f.file, f.functions) for f in again] == [(f.name, f.file, f.functions) for f in found]
    trees = {ast.dump(fault.tree()) for fault in again}
    assert len(trees) == len(again)
    assert ast.dump(ast.parse(source(file))) not in trees
    run._mutants.cache_clear()
    (stored,) = (tmp_path / "names").iterdir()
    stored.write_text(stored.read_text().replace('"digest": "', '"digest": "0'))
    with pytest.raises(pytest.fail.Exception, match="made again"):
        run.faults([file])
    run._mutants.cache_clear()


def test_an_explanation_is_stale_only_where_all_faults_of_its_module_were_tried():
    every = [Fault(name, name.split("::")[0]) for name in ("a.py::f: x", "a.py::g: y", "b.py::f: x")]
    reasons = dict.fromkeys(("a.py::f: x", "a.py::gone: z", "b.py::f: x", "c.py::f: x"), "because")
    killed, survived = {"outcome": "killed"}, {"outcome": "survived"}
    some = {"a.py::f: x": killed, "b.py::f: x": survived}
    assert run.stale_explanations(reasons, every, some) == []
    assert run.stale_explanations(reasons, every, some | {"a.py::g: y": killed}) == ["a.py::f: x", "a.py::gone: z"]


TEXT = '''
def draw(n, rate, noise, step):
    """What 3 things: untouched."""
    stream = noise.stream(Purpose.NOISE, step, b"label")
    if n < 1:
        raise ValueError("0 of them")
    sums = poisson_batch(n, rate, stream)
    sums += 1
    return sums[:, 0], min(sums)
'''


def test_operators_change_what_they_should():
    changed = [mutant.change for mutant in mutants_of("x.py", TEXT)]
    for wanted in (
        "noise.stream(Purpose.NOISE, step, b'label') -> noise.stream(Purpose.PRIVATE_SAMPLER, step, b'label')",
        "noise.stream(Purpose.NOISE, step, b'label') -> noise.stream(Purpose.NOISE, 0, b'label')",
        "noise.stream(Purpose.NOISE, step, b'label') -> noise.stream(Purpose.NOISE, step, b'')",
        "if n < 1 -> if n <= 1",
        "if n < 1 -> if n >= 1",
        "raise ValueError('0 of them') -> pass",
        "poisson_batch(n, rate, stream) -> poisson_batch(n, rate + rate / 50, stream)",
        "poisson_batch(n, rate, stream) -> poisson_batch(rate, n, stream)",
        "sums += 1 -> pass",
        "sums += 1 -> sums -= 1",
    ):
        assert wanted in changed
    assert any("max(sums)" in change for change in changed)
    assert any("sums[:, 1]" in change for change in changed)
    assert not any("untouched" in change or "1 of them" in change for change in changed)


def test_every_guarded_module_and_test_is_there():
    for file, guarded in GUARDED.items():
        tree = ast.parse(source(file))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        known = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        known |= {f"{c.name}.{node.name}" for c in classes for node in c.body if isinstance(node, ast.FunctionDef)}
        assert set(guarded.within) <= known
        for test in guarded.tests:
            assert (TESTS / test).exists()


def test_faults_differ_from_the_source_and_from_each_other():
    file = "privacy/sampling.py"
    found = mutants_of(file, source(file), ("poisson_batch",))
    assert len(found) > 20
    assert {mutant.function for mutant in found} == {"poisson_batch"}
    trees = [ast.dump(mutant.tree()) for mutant in found] + [ast.dump(ast.parse(source(file)))]
    assert len({mutant.name for mutant in found}) == len(found)
    assert len(set(trees)) == len(trees)


def test_changed_kernels_are_compiled_anew():
    tree = uncached(ast.parse("@kernel\ndef f(x):\n    return x\n"))
    assert "cache" not in ast.unparse(tree)
    assert "njit" in ast.unparse(tree)


def test_every_explanation_gives_a_reason_once():
    groups = yaml.safe_load(EXPLAINED.read_text(encoding="utf-8"))
    names = Counter(name for group in groups for name in group["mutants"])
    assert all(len(group["why"]) > 20 for group in groups)
    assert all(count == 1 for count in names.values())
    assert all(name.split("::")[0] in GUARDED for name in names)
    assert not {fault.name for fault in named_faults()} & set(names)
