"""The house stands only while imports go down: read them, and hold them to DESIGN's floors."""

import ast
from pathlib import Path

import pytest

import dpose

ROOT = Path(dpose.__file__).parent
GROUND = 0  # single modules, and one room together
FLOORS = {
    "errors": 0,
    "units": 0,
    "files": 0,
    "interpreter": 0,
    "jit": 0,
    "data_spec": 0,
    "extensions": 0,
    "known_sets": 0,
    "remote": 0,
    "fetched": 0,
    "unpacked": 0,
    "tensors": 0,
    "privacy": 1,
    "media": 1,
    "engines": 1,
    "account": 2,
    "report": 2,
    "release": 3,
    "training": 3,
    "pose": 4,
    "action": 4,
    "runs": 5,
    "measure": 6,
    "audits": 6,
    "studio": 7,
    "cli": 8,
}
SCENE = {"errors", "jit", "__init__", "dpose_scene"}
"""All that rendered people take of dpose, but for their command."""
DOORS = {"__init__", "__main__"}  # the public names and `python -m dpose`: they may open any room
FORBIDDEN = {("pose", "training"), ("action", "training")}


def room_of(module: str) -> str:
    package, *rest = module.split(".")
    if package != "dpose":
        return package
    return rest[0] if rest else "__init__"


def imports(path: Path) -> set[str]:
    found = set()
    package = path.relative_to(ROOT.parent).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level]
                found.add(".".join([*base, *([node.module] if node.module else [])]))
            elif node.module == "dpose":
                found |= {f"dpose.{a.name}" for a in node.names}
            elif node.module:
                found.add(node.module)
    return {m for m in found if m.split(".")[0].startswith("dpose")}


def offences(room: str, used: set[str]) -> list[str]:
    bad = []
    for module in used:
        other = room_of(module)
        if other == room or FLOORS.get(other) == FLOORS[room] == GROUND:
            continue
        if other not in FLOORS or FLOORS[other] >= FLOORS[room] or (room, other) in FORBIDDEN:
            bad.append(module)
    return sorted(bad)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if room in DOORS:
        return
    assert room in FLOORS, f"{room} has no floor"
    assert offences(room, imports(path)) == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.with_name("dpose_scene").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT.parent))
)
def test_rendered_people_need_next_to_nothing(path):
    used = {room_of(module) for module in imports(path)}
    assert used <= SCENE or (path.name == "commands.py" and "dpose_lab" not in used)


def test_the_rule_bites():
    assert offences("training", {"dpose_lab.audits.lira"}) == ["dpose_lab.audits.lira"]
    assert offences("cli", {"dpose_scene.render"}) == ["dpose_scene.render"]
    assert offences("pose", {"dpose.training.plan"}) == ["dpose.training.plan"]
    assert offences("privacy", {"dpose.media.images"}) == ["dpose.media.images"]
    assert offences("training", {"dpose.pose.model", "dpose.privacy.noise"}) == ["dpose.pose.model"]
    assert offences("cli", {"dpose"}) == ["dpose"]
