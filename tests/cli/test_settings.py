"""Settings of commands: read from the source of the classes that they fill in, and reached by `--set`."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

from dpose.cli import main, settings
from dpose.cli.app import root, table
from dpose.cli.options import RUN, TRAIN
from dpose.cli.settings import parsed, put, settings_of, spelling
from dpose.runs.config import RunConfig
from refusals import refused

KNOWN = settings_of(RUN)


def defaults(kind: Any, before: str = "") -> dict[str, Any]:
    """The default of every field below a class, by its path, as Python has it; MISSING for none."""
    found: dict[str, Any] = {}
    hints = get_type_hints(kind)
    if issubclass(kind, BaseModel):
        given = {n: MISSING if f.is_required() else f.default for n, f in kind.model_fields.items()}
    else:
        given = {f.name: f.default for f in fields(kind)}
    for name, default in given.items():
        groups = [k for k in (hints[name], *get_args(hints[name])) if is_group(k)]
        if groups:
            found |= defaults(groups[0], f"{before}{name}.")
        else:
            found[before + name] = default
    return found


def is_group(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, BaseModel))


def test_the_source_says_what_the_classes_say():
    true = defaults(RunConfig)
    assert set(KNOWN) == set(true)
    for path, default in true.items():
        value = default.value if isinstance(default, Enum) else default
        if value is None or value is MISSING or isinstance(value, Mapping):
            assert KNOWN[path].default == "", path
        else:
            assert KNOWN[path].value(KNOWN[path].default) == value, path


def test_every_setting_is_described():
    assert [path for path, setting in KNOWN.items() if len(setting.text) < 10] == []


@pytest.mark.parametrize(
    ("path", "kind", "choices"),
    [
        ("plan.clip_norm", "float", ()),
        ("plan.normalise", "bool", ()),
        ("data.private", "list", ()),
        ("model.strategy", "str", ("light", "finetune", "full", "scratch", "head")),
        ("precision", "str", ("float32", "bf16")),
        ("plan.relation", "str", ("zero-out", "add-or-remove", "replace")),
        ("canaries.kind", "str", ("gradient", "input")),
        ("optimizer.options", "values", ()),
        ("about.contact", "str", ()),
    ],
)
def test_types_are_those_of_the_annotations(path, kind, choices):
    assert (KNOWN[path].kind, KNOWN[path].choices) == (kind, choices)


def test_a_new_field_is_a_setting_by_itself(tmp_path, monkeypatch):
    package = tmp_path / "dpose_more"
    package.mkdir()
    (package / "base.py").write_text(
        'class Base:\n    """A base.\n\n    Attributes:\n        a: First.\n    """\n    a: int = 1\n'
    )
    (package / "new.py").write_text(
        "from dpose_more.base import Base as Older\n"
        "class New(Older):\n"
        '    """New.\n\n    Attributes:\n        warm: How warm:\n            very. Or not.\n    """\n'
        "    warm: float | None = 0.5\n"
    )
    monkeypatch.setattr(settings, "folder_of", lambda package: tmp_path / package)
    settings._names.cache_clear()
    found = settings_of(("method.", "dpose_more.new:New"))
    settings._names.cache_clear()
    assert list(found) == ["method.a", "method.warm"]
    warm = found["method.warm"]
    assert (warm.kind, warm.default, warm.text) == ("float", "0.5", "How warm: very. Or not.")
    assert warm.help == "How warm: very. Default: 0.5."
    assert parsed(found, "method.warm=2") == ("method.warm", 2)


def test_a_class_that_reads_text_is_a_setting_and_a_group_takes_the_place_of_a_field(tmp_path, monkeypatch):
    package = tmp_path / "dpose_more"
    package.mkdir()
    (package / "new.py").write_text(
        "from fractions import Fraction\n"
        "class Part:\n    size: int = 1\n    @classmethod\n    def parse(cls, text):\n        return cls()\n"
        'class New:\n    """New.\n\n    Attributes:\n        share: How much.\n        part: Which part.\n'
        '        inner: Replaced.\n    """\n'
        "    share: Fraction\n    part: Part = Part()\n    inner: str = 'x'\n    hidden: tuple[str, ...] = ()\n"
        'class Inner:\n    """Inner.\n\n    Attributes:\n        kind: Which.\n    """\n    kind: str = "a"\n'
    )
    monkeypatch.setattr(settings, "folder_of", lambda package: tmp_path / package)
    settings._names.cache_clear()
    found = settings_of(("", "dpose_more.new:New"), ("inner.", "dpose_more.new:Inner"))
    settings._names.cache_clear()
    assert {path: (s.kind, s.default, s.text) for path, s in found.items()} == {
        "share": ("str", "", "How much."),
        "part": ("str", "", "Which part."),
        "inner.kind": ("str", "a", "Which."),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plan.clip_norm=0.5", 0.5),
        ("plan.normalise=false", False),
        ("about.curator=Ward 7: # us", "Ward 7: # us"),
        ("about.curator='Ward 7'", "Ward 7"),
        ("data.public=none", "none"),
        ("data.private=[coco:/a, mpii:/b]", ["coco:/a", "mpii:/b"]),
        ("optimizer.options={momentum: 0.9}", {"momentum": 0.9}),
        ("optimizer.options.betas=[0.9, 0.99]", [0.9, 0.99]),
    ],
)
def test_a_value_is_yaml_and_text_stays_text(text, value):
    assert parsed(KNOWN, text) == (text.partition("=")[0], value)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("plan.clip_nrom=1", "setting-unknown", "did you mean plan.clip_norm?"),
        ("clip_norm=1", "setting-unknown", "did you mean plan.clip_norm?"),
        ("optimizer.lr.warm=1", "setting-unknown", "optimizer.lr.warm"),
        ("plan={}", "setting-unknown", "plan"),
        ("zzz=1", "setting-unknown", "see --settings"),
        ("plan.clip_norm", "setting-malformed", "PATH=VALUE"),
        ("plan.epochs=[1", "yaml-invalid", "plan.epochs"),
    ],
)
def test_what_is_no_setting_is_refused(text, code, named):
    with refused(code, where=named):
        parsed(KNOWN, text)


def test_a_setting_given_twice_is_refused():
    values = {}
    put(values, "plan.epsilon", 1)
    with refused("setting-given-twice", where="plan.epsilon"):
        put(values, "plan.epsilon", 1)
    assert values == {"plan": {"epsilon": 1}}


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["--clip-norm", "0.5"], "--clip-norm is now --set plan.clip_norm=0.5"),
        (["--clip-norm=0.5"], "--clip-norm is now --set plan.clip_norm=0.5"),
        (["--clip-norm"], "--clip-norm is now --set plan.clip_norm=VALUE"),
        (["--no-normalise"], "--no-normalise is now --set plan.normalise=false"),
        (["--ema", "0.9"], "--ema is now --set plan.ema_decay=0.9"),
        (["--subspace-units", "9"], "--subspace-units is now --set plan.subspace.units=9"),
        (["--slurm", "nodes=2"], "--slurm is now --set job.slurm.nodes=2"),
        (["--watch", "none"], "--watch is now --set data.validation_data=none"),
        (["--no-wait"], "--no-wait is now --set job.wait=false"),
        (["--annotations", "a.json"], "--annotations is now --data NAME:ROOT,annotations=a.json"),
    ],
)
def test_an_option_that_became_a_setting_says_its_new_spelling(words, written, capsys):
    assert main(["train", "--data", "synthetic:ward", "--out", "x", *words]) == 2
    assert capsys.readouterr().err == f"dpose: {written} [option-is-setting]\n"


def test_no_other_option_is_taken_for_a_setting(capsys):
    assert spelling(KNOWN, "--units") == spelling(KNOWN, "--kind") == spelling(KNOWN, "--no-such") == ""
    assert main(["train", "--kind", "x"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_all_settings_are_listed(capsys):
    assert main(["train", "--settings"]) == 0
    shown = capsys.readouterr().out
    assert "plan.clip_norm: float = 1\n" in shown
    assert all(f"{path}: " in shown for path in TRAIN.known)


def test_what_commands_name_are_settings():
    seen = 0
    for words in table():
        command = root()
        for word in words.split():
            command = command.commands[word]
        if found := getattr(command.callback, "settings", None):
            seen += 1
            assert set(found.named) | set(found.defaults) <= set(found.known)
    assert seen >= 10
