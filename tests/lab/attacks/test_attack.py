"""An attack is one class and one line of the registry: nothing else knows more of it."""

import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

import pytest

from dpose.cli import main
from dpose.errors import DposeError
from dpose.report.results import Table
from dpose_lab.attacks.attack import Attacked, AttackRow, ReleaseAttack, attack_each, option, samples, strongest
from dpose_lab.attacks.registry import ATTACKS
from dpose_lab.attacks.transforms import RAW, pixelated
from dying import Dying
from quick import quick  # noqa: F401
from refusals import refused


@dataclass(frozen=True)
class Brightness(AttackRow):
    level: float

    @property
    def strength(self):
        return self.level

    def measures(self):
        return {"level": self.level}


@dataclass(frozen=True)
class Toy(ReleaseAttack):
    """How bright is it? Told from released pictures."""

    name: ClassVar[str] = "toy"
    title: ClassVar[str] = "How bright is it?"

    most: int = option(255, "The brightest there is.", min=1)

    @property
    def pictures(self):
        return 1

    def learn(self, context):
        return context.pictures(0, 1, "the pictures")

    def attack(self, context, learnt, release):
        seen = release.album(learnt, context.config.seed, "query")
        level = sum(float(picture.mean()) for picture in seen.pictures) / len(seen) / self.most
        rows = tuple(Brightness(release, name, level) for name in context.config.attackers_of(release))
        return Attacked(release, rows, samples(release, learnt, seen))

    def headline(self, learnt, rows):
        return f"{len(strongest(rows))} releases are bright."

    def threat(self, context, learnt):
        return ("Somebody looks.",)

    def tables(self, learnt, rows):
        return (Table("brightness", ("Release", "Level"), tuple((r.release.title, f"{r.level:.2f}") for r in rows)),)


def test_an_attack_from_elsewhere_is_a_command_with_its_options_and_a_report(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(ATTACKS, "toy", f"{__name__}:Toy")
    monkeypatch.chdir(tmp_path)
    small = [
        "--data",
        "synthetic:ward",
        "--identities",
        "3",
        "--set",
        "size=64x64",
        "--release",
        "pixelate",
        "--block",
        "8",
    ]
    assert main(["attack", "toy", *small, "--most", "510", "--attacker", "plain", "--out", "t"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 releases are bright." in told
    assert "An attack that fails proves nothing" in told
    assert {path.name for path in (tmp_path / "t").iterdir()} == {
        "index.html", "results.json", "results.md", "pictures.png",
    }  # fmt: skip
    found = json.loads((tmp_path / "t" / "results.json").read_text())
    assert found["attack"] == "toy"
    assert found["settings"]["most"] == 510
    assert [row["key"] for row in found["results"]["rows"]] == ["raw", "pixelate-b8"]
    assert 0 < found["results"]["rows"][0]["level"] < 0.5
    assert "Somebody looks." in (tmp_path / "t" / "index.html").read_text()
    assert main(["attack", "toy", "--help"]) == 0
    assert "The brightest there is." in capsys.readouterr().out
    assert main(["attack", "toy", *small, "--most", "0", "--out", "u"]) == 2


def test_an_engines_workers_find_the_same(monkeypatch, tmp_path):
    monkeypatch.setitem(ATTACKS, "toy", f"{__name__}:Toy")
    small = ["attack", "toy", "--data", "synthetic:ward", "--identities", "3", "--set", "size=64x64"]
    small += ["--release", "pixelate", "--block", "8,16", "--attacker", "plain"]
    assert main([*small, "--out", str(tmp_path / "one")]) == 0
    at = Dying({1})
    monkeypatch.setattr("dpose_lab.attacks.engines.engine", lambda name, workers: nullcontext(at))
    assert main([*small, "--engine", "local", "--out", str(tmp_path / "two")]) == 0
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("one", "two"))
    assert one["results"] == two["results"]
    assert len(one["results"]["rows"]) == 3


def test_help_needs_no_torch():
    code = (
        "import sys, dpose.cli; code = dpose.cli.main(['attack', '--help']); sys.exit(code or ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ATTACKS)


def test_the_stronger_attacker_of_each_release_counts():
    coarse = pixelated(16)
    rows = [Brightness(RAW, "plain", 0.9), Brightness(coarse, "plain", 0.2), Brightness(coarse, "adaptive", 0.3)]
    assert strongest(rows) == [rows[0], rows[2]]
    assert strongest([rows[1], rows[1]]) == [rows[1]]


def refuse(_):
    raise DposeError("release-impossible", "cannot be made", "here")


def test_a_release_that_is_refused_is_left_out_unless_it_is_all_there_is():
    coarse, fine = pixelated(16), pixelated(4)
    done, left, stopped = attack_each([RAW, coarse, fine], lambda one: refuse(one) if one is coarse else one)
    assert (done, stopped) == ([RAW, fine], False)
    assert [one.key for one, _ in left] == [coarse.key]
    with refused("release-impossible", where="cannot be made"):
        attack_each([RAW, coarse], lambda one: one if one is RAW else refuse(one))
    with refused("release-impossible", where="cannot be made"):
        attack_each([RAW, coarse], refuse)


def test_a_stop_keeps_what_was_done_if_that_is_more_than_raw_pictures():
    coarse, fine = pixelated(16), pixelated(4)

    def stop_at(release):
        def attack(one):
            if one is release:
                raise KeyboardInterrupt
            return one

        return attack

    done, left, stopped = attack_each([RAW, coarse, fine], stop_at(fine))
    assert (done, left, stopped) == ([RAW, coarse], [(fine, "stopped")], True)
    with pytest.raises(KeyboardInterrupt):
        attack_each([RAW, coarse, fine], stop_at(coarse))
