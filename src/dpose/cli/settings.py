"""The settings of a command, read from the source of the classes that they fill in.

A setting is a field of a configuration class: its name, type, default and line under "Attributes:" are the option's
name, type, default and help. Source is read instead of imported, so that `--help` and refusals of what was typed wait
for none of the libraries that the classes need.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dpose.errors import DposeError, did_you_mean

T = TypeVar("T")
LONG = 90
"""Characters of a description above which `--help` shows its first part alone."""
SCALARS = {"str", "int", "float", "bool"}


@dataclass(frozen=True)
class Setting:
    """A field of a configuration.

    Attributes:
        path: Its place, such as "plan.clip_norm".
        kind: "str", "int", "float", "bool", "list", or "values" for a mapping whose keys are free.
        choices: All values that it takes; empty if it takes others.
        default: As YAML; empty if there is none.
        text: What it means: all of its description.
    """

    path: str
    kind: str
    choices: tuple[str, ...]
    default: str
    text: str

    @property
    def help(self) -> str:
        """The first sentence of its description, of a long one the first part, with its default."""
        first = re.split(r"(?<!e\.g)(?<=\.)\s", self.text.replace("`", ""))[0].rstrip(".")
        first = first if len(first) <= LONG else first.partition(";")[0]
        return f"{first}. Default: {self.default}." if self.default not in ("", "false") else f"{first}."

    def value(self, typed: str) -> Any:
        """What `typed` stands for: YAML, but text as it stands where the setting holds text."""
        if self.kind == "str" and not typed.startswith(("'", '"')):
            return typed
        import yaml

        try:
            return yaml.safe_load(typed)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise DposeError(
                "yaml-invalid", f"not YAML ({' '.join(str(error).split())})", f"--set {self.path}"
            ) from error


@cache
def settings_of(*classes: tuple[str, str], only: tuple[str, ...] = ()) -> Mapping[str, Setting]:
    """The settings of classes, by their paths.

    Args:
        classes: What stands before the paths of a class's fields, such as "about." or nothing; and the class, as
            "dpose.runs.config:RunConfig". A class takes the place of a field that has the name of its paths.
        only: Paths of those that are wanted; empty for all. The source of other fields' types is not read.
    """
    found: dict[str, Setting] = {}
    for before, place in classes:
        module, _, name = place.partition(":")
        found.update({s.path: s for s in _fields(*_resolved(module, name), before, only)})
    groups = {path.rpartition(".")[0] for path in found}
    return {path: setting for path, setting in found.items() if path not in groups}


def parsed(known: Mapping[str, Setting], text: str) -> tuple[str, Any]:
    """Path and value of `--set PATH=VALUE`."""
    path, equals, typed = text.partition("=")
    if not equals:
        raise DposeError("setting-malformed", "must be PATH=VALUE", f"--set {text}", _nearest(path, known))
    setting = known.get(path)
    if setting is None:
        parent = path.rpartition(".")[0]
        while parent and parent not in known:
            parent = parent.rpartition(".")[0]
        if not parent or known[parent].kind != "values":
            raise DposeError("setting-unknown", f"unknown setting {path}", f"--set {text}", _nearest(path, known))
        setting = replace(known[parent], path=path)
    return path, setting.value(typed)


def checked(kind: type[T], values: dict[str, Any], before: str = "") -> T:
    """A configuration class of plain values, with their types checked.

    Raises:
        DposeError: a value has another type, or the class refuses it.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = before + ".".join(map(str, first["loc"]))
        raise DposeError("setting-invalid", f"{first['msg']}", f"--set {place}") from error


def put(values: dict[str, Any], path: str, value: Any) -> None:
    """Enter `value` at `path` in nested values."""
    *parts, last = path.split(".")
    for part in parts:
        values = values.setdefault(part, {})
    if last in values:
        raise DposeError("setting-given-twice", "is given twice", f"--set {path}", "leave one of them out")
    values[last] = value


def spelling(known: Mapping[str, Setting], option: str, value: str = "VALUE") -> str:
    """How the setting that an option might mean is written: "--set plan.clip_norm=0.5"; "" if there is none or several.

    Args:
        known: The command's settings.
        option: An option that the command does not have, such as "--clip-norm" or "--no-normalise".
        value: What was typed behind it.
    """
    if option == "--annotations" and "data.private" in known:
        return f"--data NAME:ROOT,annotations={value}"
    negated = option.startswith("--no-") and option not in OLD
    word = option.removeprefix("--no-" if negated else "--").replace("-", "_")
    meant = [p for p in known if p == OLD.get(option) or p == word or p.endswith(f".{word}")]
    if len(meant) != 1:
        return ""
    setting = known[meant[0]]
    if setting.kind == "bool":
        value = "false" if option.startswith("--no-") else "true"
    elif setting.kind == "values":
        return f"--set {setting.path}.{value if '=' in value else 'KEY=VALUE'}"
    return f"--set {setting.path}={value}"


OLD = {
    "--subspace": "plan.subspace.kind",
    "--subspace-rank": "plan.subspace.rank",
    "--subspace-units": "plan.subspace.units",
    "--public-view": "plan.public_view.kind",
    "--ema": "plan.ema_decay",
    "--optimizer": "optimizer.name",
    "--canaries": "canaries.count",
    "--canary-kind": "canaries.kind",
    "--settings-chosen": "about.settings",
    "--slurm": "job.slurm",
    "--no-wait": "job.wait",
    "--regions": "regions.kind",
    "--stage-one": "regions.share",
    "--watch": "data.validation_data",
    "--copies": "plan.augmentation_multiplicity",
    "--tail": "plan.average_last",
    "--views-at-once": "microbatch_size",
}
"""Options whose names are not the last part of their setting's path."""


def _nearest(path: str, known: Mapping[str, Setting]) -> str:
    same = [p for p in known if p.rpartition(".")[2] == path.rpartition(".")[2]]
    return f"did you mean {same[0]}?" if same else did_you_mean(path, known) or "see --settings"


def _fields(module: str, node: ast.AST | None, before: str, only: tuple[str, ...]) -> Iterator[Setting]:
    """The settings of the class `node` of `module`, those of its bases first."""
    assert isinstance(node, ast.ClassDef)
    for base in node.bases:
        where, found = _resolved(module, ast.unparse(base))
        if isinstance(found, ast.ClassDef):
            yield from _fields(where, found, before, only)
    texts = _attributes(ast.get_docstring(node) or "")
    for field in node.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        path = before + field.target.id
        if only and not any(f"{wanted}.".startswith(f"{path}.") for wanted in only):
            continue
        kind, choices, where, group = _kind(module, field.annotation)
        text = texts.get(field.target.id, "")
        if group is not None and not _is_text(group):
            yield from _fields(where, group, f"{path}.", only)
        elif text and (kind or group):
            default = _default(module, field.value) if field.value else ""
            yield Setting(path, kind or "str", choices, default, text)


def docstring_of(place: str) -> str:
    """The docstring of a class or function, such as "dpose.cli.train:train_model"."""
    module, _, name = place.partition(":")
    _, node = _resolved(module, name)
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return ast.get_docstring(node) or ""


def _is_text(kind: ast.ClassDef) -> bool:
    """True for a class whose values are written as text: it reads them by `parse` or `chosen`."""
    return any(isinstance(n, ast.FunctionDef) and n.name in ("parse", "chosen") for n in kind.body)


def _attributes(docstring: str) -> dict[str, str]:
    """What stands under "Attributes:", by name."""
    section = docstring.partition("Attributes:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _kind(module: str, annotation: ast.AST) -> tuple[str, tuple[str, ...], str, ast.ClassDef | None]:
    """Kind and choices of a type; or the class that it is a group of, with the module that has it."""
    match annotation:
        case ast.BinOp(op=ast.BitOr()):
            parts = [_kind(module, side) for side in (annotation.left, annotation.right)]
            parts = [part for part in parts if part[0] or part[3]]
            return next((part for part in parts if part[0] == "list"), parts[0])
        case ast.Subscript(value=ast.Name(id="Literal"), slice=slice):
            values = slice.elts if isinstance(slice, ast.Tuple) else [slice]
            given = [v.value for v in values if isinstance(v, ast.Constant)]
            return type(given[0]).__name__, tuple(map(str, given)), module, None
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *_])):
            return _kind(module, first)
        case ast.Subscript(value=ast.Name(id=name)):
            kinds = {"tuple": "list", "list": "list", "dict": "values", "Mapping": "values"}
            return kinds.get(name, ""), (), module, None
        case ast.Name(id=name) if name in SCALARS:
            return name, (), module, None
        case ast.Name(id=name):
            where, found = _resolved(module, name)
            if isinstance(found, ast.ClassDef):
                if any("Enum" in ast.unparse(base) for base in found.bases):
                    values = [n.value for n in found.body if isinstance(n, ast.Assign)]
                    return ("str", tuple(str(v.value) for v in values if isinstance(v, ast.Constant)), where, None)
                return "", (), where, found
            return _kind(where, found) if found is not None else ("str", (), module, None)
        case ast.Constant(value=str(text)):
            return _kind(module, ast.parse(text, mode="eval").body)
    return "", (), module, None


def _default(module: str, value: ast.AST) -> str:
    """A default as YAML; "" if it is nothing that can be written."""
    match value:
        case ast.Constant(value=None):
            return ""
        case ast.Constant(value=bool(flag)):
            return str(flag).lower()
        case ast.Constant(value=float(number)) if number.is_integer():
            return str(int(number))
        case ast.Constant(value=constant):
            return str(constant)
        case ast.Attribute(value=ast.Name(id=name), attr=member):
            _, found = _resolved(module, name)
            for node in found.body if isinstance(found, ast.ClassDef) else ():
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == member:
                    return _default(module, node.value)
        case ast.Name(id=name):
            where, found = _resolved(module, name)
            return _default(where, found) if found is not None else ""
        case ast.Call(keywords=keywords):
            return next((_default(module, k.value) for k in keywords if k.arg == "default"), "")
    return ""


def folder_of(package: str) -> Path | None:
    """Folder of a package, which is not imported for it; one that extends dpose may stand elsewhere than dpose."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _resolved(module: str, name: str) -> tuple[str, ast.AST | None]:
    """What `name` is in `module`, and in which module it is defined; None for what is not of these packages."""
    found = _names(module).get(name)
    if isinstance(found, tuple):
        return _resolved(*found)
    return module, found


@cache
def _names(module: str) -> dict[str, ast.AST | tuple[str, str]]:
    """Classes, values and imported names at the top of a module."""
    package, *inner = module.split(".")
    folder = folder_of(package) if package.startswith("dpose") else None
    if folder is None:
        return {}
    place = folder.joinpath(*inner)
    file = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
    if not file.exists():
        return {}
    found: dict[str, ast.AST | tuple[str, str]] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found[name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
            case ast.ImportFrom(module=str(source), names=names):
                found.update({alias.asname or alias.name: (source, alias.name) for alias in names})
    return found
