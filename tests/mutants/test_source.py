"""The run over the source plants what it says: faults with names fit the source, and operators change one thing.

The run itself (`make mutants`) takes minutes; what is here keeps it from rotting in between.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest
import yaml

from mutants.guards import GUARDED
from mutants.named import NAMED, Edit, Named
from mutants.operators import mutants_of, uncached
from mutants.run import EXPLAINED, SOURCE, TESTS, Fault, in_part


def source(file):
    return (SOURCE / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.name)
def test_a_named_fault_fits_the_source(named):
    """Where this fails the code was rewritten: write the fault anew in tests/mutants/named.py, for the new code."""
    tree = named.tree(source(named.file))
    compile(tree, named.file, "exec")
    assert ast.dump(tree) != ast.dump(ast.parse(source(named.file)))
    assert named.file in GUARDED


def test_parts_are_apart_and_together_all_faults_and_each_has_those_with_names():
    named = Fault("n", "a.py", (), lambda: ast.parse(""), named=True)
    others = [Fault(f"fault {i}", "a.py", (), lambda: ast.parse("")) for i in range(400)]
    parts = [[f for f in others if in_part(f, f"{k}/7")] for k in range(1, 8)]
    assert sorted(f.name for part in parts for f in part) == sorted(f.name for f in others)
    assert all(30 < len(part) < 90 for part in parts)
    assert all(in_part(named, f"{k}/7") for k in range(1, 8))
    assert all(in_part(f, "") for f in others)
    with pytest.raises(SystemExit, match="8/7"):
        in_part(others[0], "8/7")


def test_names_are_told_apart():
    assert max(Counter(named.name for named in NAMED).values()) == 1


def test_a_fault_that_fits_nowhere_or_twice_is_refused():
    text = "def f(x):\n    return g(x) + g(x) + h(x)\n"
    for old in ("g(x)", "k(x)"):
        with pytest.raises(LookupError, match="times"):
            Named("", "", (Edit("f", old, "0"),)).tree(text)
    with pytest.raises(LookupError, match="there is no"):
        Named("", "", (Edit("e", "h(x)", "0"),)).tree(text)
    assert ast.unparse(Named("", "", (Edit("f", "h(x)", "0"),)).tree(text)).endswith("g(x) + g(x) + 0")


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
        known |= {
            f"{c.name}.{node.name}" for c in classes for node in c.body if isinstance(node, ast.FunctionDef)
        }
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
    assert not {f"{named.file}: {named.name}" for named in NAMED} & set(names)
