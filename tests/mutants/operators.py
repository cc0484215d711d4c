"""Small faults for a module's source: each is the module's syntax tree with one thing changed.

    for mutant in mutants_of("training/step.py", text):
        code = compile(mutant.tree(text), ...)

A fault is known by the function it lies in and by what it changes, never by a line number, so that its name outlives
changes elsewhere in the file.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

Path = tuple[tuple[str, int | None], ...]
"""The way to a node from the module: fields, and places in them."""

LONG = 200
"""Characters of source in a fault's name."""

COMPARED = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
RENAMED = {
    "min": "max",
    "max": "min",
    "floor": "ceil",
    "ceil": "floor",
    "isqrt": "sqrt",
    "rint": "floor",
    "maximum": "minimum",
    "minimum": "maximum",
    "cos": "sin",
    "sin": "cos",
    "any": "all",
    "all": "any",
}
PLAIN = (ast.Name, ast.Attribute, ast.Constant)
"""Arguments that are mistaken for each other."""
SYMMETRIC = {"min", "max", "gcd", "minimum", "maximum", "allclose"}
UNWRAPPED = {"sorted", "abs", "sqrt", "sqrt_", "rint", "unique"}
PURPOSES = {
    "PRIVATE_SAMPLER": ("NOISE", "PUBLIC_SAMPLER"),
    "PUBLIC_SAMPLER": ("PRIVATE_SAMPLER", "NOISE"),
    "NOISE": ("PRIVATE_SAMPLER", "RELEASE"),
    "AUGMENT": ("NOISE", "INIT"),
    "RELEASE": ("NOISE", "AUGMENT"),
    "INIT": ("RELEASE", "AUGMENT"),
    "SUBSPACE": ("PRIVATE_SAMPLER", "PUBLIC_SAMPLER"),
}
SCALED = {
    "poisson_batch": (0, 1),
    "shuffled_batches": (0, 1),
    "add_gaussian": (1,),
    "gaussian": (1,),
    "rounded_gaussian": (0,),
    "discrete_laplace": (0,),
    "discrete_gaussian": (0,),
    "_laplace": (0,),
    "Clip": (0,),
    "Laplace": (0, 1),
    "Gaussian": (0, 1),
    "least_variance": (0, 1, 2),
    "largest_mu": (0, 1),
    "zcdp_budget": (0, 1),
}
"""Arguments that a guarantee hangs on, by the called function's name; also made 2 % larger."""


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        file: The module's path below src/dpose.
        function: The function or class it lies in, as `Class.method`; empty for the module's own level.
        change: What becomes what.
        tree: Makes the faulty module.
    """

    file: str
    function: str
    change: str
    tree: Callable[[], ast.Module] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """Tells it from all others."""
        return f"{self.file}::{self.function or '<module>'}: {self.change}"


def mutants_of(file: str, text: str, within: Sequence[str] = ()) -> list[Mutant]:
    """All faults of a module, each once; those that compile to the code of the module or of one before are left out.

    Args:
        file: The module's path below src/dpose.
        text: Its source.
        within: Only the functions (or classes) of these names; all where empty.
    """
    tree = ast.parse(text)
    seen = {_code(tree)}
    found: list[Mutant] = []
    names: set[tuple[str, str]] = set()
    for path in list(_paths(tree, ())):
        function = _function(tree, path)
        if within and not any(function == name or function.startswith(f"{name}.") for name in within):
            continue
        shown = _shown(tree, path)
        before = _label(tree, shown) + _text(_at(tree, shown))
        for new in list(_replacements(_at(tree, path), _at(tree, path[:-1]))):
            with _replaced(tree, path, new):
                try:
                    code = _code(tree)
                except (SyntaxError, ValueError, TypeError):
                    continue
                after = _label(tree, shown) + _text(_at(tree, shown))
            if code in seen:
                continue
            seen.add(code)
            change = f"{before} -> {after}"
            numbered = itertools.chain([change], (f"{change} #{n}" for n in itertools.count(2)))
            change = next(c for c in numbered if (function, c) not in names)
            names.add((function, change))
            found.append(Mutant(file, function, change, partial(_made, text, path, new)))
    return found


def uncached(tree: ast.Module) -> ast.Module:
    """The module with its kernels compiled anew: numba's cache would give those of the true source."""
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [
                ast.parse("__import__('numba').njit(nogil=True)", mode="eval").body
                if isinstance(decorator, ast.Name) and decorator.id == "kernel"
                else decorator
                for decorator in node.decorator_list
            ]
    return ast.fix_missing_locations(tree)


# ------------------------------------------------------------------------------------------------------ places


@contextmanager
def _replaced(tree: ast.Module, path: Path, new: ast.AST) -> Iterator[None]:
    old = _at(tree, path)
    _put(tree, path, new)
    ast.fix_missing_locations(tree)
    try:
        yield
    finally:
        _put(tree, path, old)


def _made(text: str, path: Path, new: ast.AST) -> ast.Module:
    tree = ast.parse(text)
    _put(tree, path, copy.deepcopy(new))
    return ast.fix_missing_locations(tree)


def _put(tree: ast.Module, path: Path, new: ast.AST) -> None:
    owner, (name, index) = _at(tree, path[:-1]), path[-1]
    if index is None:
        setattr(owner, name, new)
    else:
        getattr(owner, name)[index] = new


def _shown(tree: ast.Module, path: Path) -> Path:
    """As much around it as tells what it is, if that is not too much."""
    while len(path) > 1 and not isinstance(_at(tree, path), ast.stmt) and len(_text(_at(tree, path))) < 16:
        above = _at(tree, path[:-1])
        if isinstance(above, ast.arguments) or len(_text(above)) > LONG:
            break
        path = path[:-1]
    return path


def _label(tree: ast.Module, path: Path) -> str:
    """The parameter that a default belongs to."""
    for k, (name, index) in enumerate(path):
        if name in ("defaults", "kw_defaults") and index is not None:
            arguments = _at(tree, path[:k])
            named = arguments.kwonlyargs if name == "kw_defaults" else arguments.args[-len(arguments.defaults) :]
            return f"{named[index].arg}="
    return ""


def _paths(node: ast.AST, path: Path) -> Iterator[Path]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "bases"):
            continue
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST):
                continue
            here = (*path, (name, index))
            if _is_text(child):
                continue
            yield here
            # what an error says guards nothing; that it is raised does
            if not isinstance(child, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
                yield from _paths(child, here)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _at(tree: ast.AST, path: Path) -> ast.AST:
    node = tree
    for name, index in path:
        node = getattr(node, name) if index is None else getattr(node, name)[index]
    return node


def _function(tree: ast.Module, path: Path) -> str:
    """The outermost function, with its class; what is nested in it goes by its name."""
    names = []
    for k in range(1, len(path) + 1):
        node = _at(tree, path[:k])
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
            if isinstance(node, ast.FunctionDef):
                break
    return ".".join(names)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        return f"{'if' if isinstance(node, ast.If) else 'while'} {ast.unparse(node.test)}"
    if isinstance(node, ast.For):
        return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
    if isinstance(node, ast.FunctionDef):
        return f"def {node.name}({ast.unparse(node.args)})"
    if isinstance(node, ast.With):
        return f"with {', '.join(ast.unparse(item) for item in node.items)}"
    if isinstance(node, ast.arguments):
        return ast.unparse(node)
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= LONG else text[: LONG - 3] + "..."


def _code(tree: ast.Module) -> str:
    def flat(code: object) -> object:
        if hasattr(code, "co_code"):
            consts = [flat(const) for const in code.co_consts]
            return (code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_qualname)
        return (type(code).__name__, repr(code))

    return repr(flat(compile(tree, "mutant", "exec", dont_inherit=True)))


# ------------------------------------------------------------------------------------------------------ operators


def _replacements(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant):
        yield from _constants(node, parent)
    elif isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in COMPARED[type(operator)]:
                yield _with(node, ops=[other() if k == place else o for k, o in enumerate(node.ops)])
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            yield node.operand
    elif isinstance(node, ast.BinOp):
        if type(node.op) in COMPUTED and not _is_union(node):
            yield _with(node, op=COMPUTED[type(node.op)]())
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.comprehension):
        for place in range(len(node.ifs)):
            yield _with(node, ifs=node.ifs[:place] + node.ifs[place + 1 :])
    elif isinstance(node, ast.Subscript):
        yield from _subscripts(node)
    elif isinstance(node, ast.Attribute):
        yield from _attributes(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.stmt):
        yield from _statements(node)


def _constants(node: ast.Constant, parent: ast.AST) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        if value >= 16:
            yield ast.Constant(value // 2)
    elif isinstance(value, float):
        yield ast.Constant(value * 1.02 if value else 1.0)
    elif isinstance(value, bytes) and value:
        yield ast.Constant(b"")
    elif isinstance(value, str) and isinstance(parent, ast.Compare | ast.Dict):
        yield ast.Constant(value + "?")


def _subscripts(node: ast.Subscript) -> Iterator[ast.AST]:
    if not isinstance(node.ctx, ast.Load) or _is_type(node):
        return
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for place, part in enumerate(parts):
        others: list[ast.AST] = []
        if isinstance(part, ast.Slice):
            others = [_with(part, **{name: None}) for name in ("lower", "upper", "step") if getattr(part, name)]
        elif not isinstance(part, ast.Constant):
            others = [ast.Constant(0)]
        for other in others:
            new = [other if k == place else p for k, p in enumerate(parts)]
            yield _with(node, slice=ast.Tuple(new, ast.Load()) if isinstance(node.slice, ast.Tuple) else new[0])


def _is_type(node: ast.Subscript) -> bool:
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    return name[:1].isupper() or name in ("list", "dict", "tuple", "set", "frozenset", "deque")


def _is_union(node: ast.BinOp) -> bool:
    """Of types, by their names."""
    return isinstance(node.op, ast.BitOr) and isinstance(node.right, ast.Name) and _looks_like_type(node.right)


def _looks_like_type(node: ast.Name) -> bool:
    return node.id[:1].isupper() or node.id in ("int", "str", "tuple", "float", "bytes")


def _attributes(node: ast.Attribute) -> Iterator[ast.AST]:
    if isinstance(node.value, ast.Name) and node.value.id == "Purpose":
        for other in PURPOSES.get(node.attr, ()):
            yield _with(node, attr=other)
    if node.attr == "secret":
        yield ast.parse("bytes(32)", mode="eval").body


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    name = _name(node.func)
    arguments = node.args
    starred = any(isinstance(argument, ast.Starred) for argument in arguments)
    if name in RENAMED:
        other = RENAMED[name]
        yield _with(
            node,
            func=_with(node.func, attr=other) if isinstance(node.func, ast.Attribute) else _with(node.func, id=other),
        )
    if name in UNWRAPPED and len(arguments) == 1 and not starred:
        yield arguments[0]
    if name in UNWRAPPED and not arguments and isinstance(node.func, ast.Attribute):
        yield node.func.value
    if name in ("stream", "fresh", "drawn", "Key", "AesNoise"):
        yield from _randomness(node, name)
    if not starred:
        for place in range(len(arguments) - 1) if name not in SYMMETRIC else ():
            if not all(isinstance(a, PLAIN) for a in arguments[place : place + 2]):
                continue
            swapped = [*arguments]
            swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
            yield _with(node, args=swapped)
            if name not in SCALED and name != "stream":
                break  # most are of different types, and one says that the order counts
        for place in SCALED.get(name, ()):
            if place < len(arguments):
                scaled = _Fill(arguments[place]).visit(ast.parse("_ + _ / 50", mode="eval").body)
                yield _with(node, args=[scaled if k == place else a for k, a in enumerate(arguments)])
    for place in range(len(node.keywords)):
        keyword = node.keywords[place]
        # a flag that is left out is a flag that is turned round, mostly
        if keyword.arg and not (isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool)):
            yield _with(node, keywords=node.keywords[:place] + node.keywords[place + 1 :])


def _randomness(node: ast.Call, name: str) -> Iterator[ast.AST]:
    """Streams of another or the same step and context; keys that anybody may know."""
    if name == "fresh":
        yield ast.parse("Key.drawn(bytes(32), seeded=False)", mode="eval").body
    elif name == "AesNoise":
        yield ast.parse("AesNoise(Key.drawn(bytes(32), seeded=False))", mode="eval").body
    elif name in ("Key", "drawn") and node.args:
        yield _with(node, args=[ast.parse("bytes(32)", mode="eval").body, *node.args[1:]])
    elif name == "stream":
        for place, constant in ((1, 0), (2, b"")):
            if place < len(node.args):
                yield _with(node, args=[ast.Constant(constant) if k == place else a for k, a in enumerate(node.args)])


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and not isinstance(node.test, ast.Compare):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Raise | ast.AugAssign | ast.Continue | ast.Break) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.YieldFrom)
    ):
        yield ast.Pass()
    if isinstance(node, ast.AugAssign):
        if type(node.op) in COMPUTED:
            yield _with(node, op=COMPUTED[type(node.op)]())
    elif isinstance(node, ast.Assign) and not any(isinstance(t, ast.Name | ast.Tuple) for t in node.targets):
        yield ast.Pass()


class _Fill(ast.NodeTransformer):
    def __init__(self, node: ast.AST) -> None:
        self.node = node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copy.deepcopy(self.node) if node.id == "_" else node


def _name(function: ast.AST) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _with(node: ast.AST, **changes: object) -> ast.AST:
    """A copy of a node with some fields changed."""
    made = copy.copy(node)
    for name, value in changes.items():
        setattr(made, name, value)
    return made
