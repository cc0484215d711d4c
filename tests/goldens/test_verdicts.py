"""What `dpose verify` says of genuine and of forged artefacts, each made by a recipe: a copy, and one thing changed."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from goldens import doors, forging
from goldens.held import hold, hold_cases
from goldens.pictures import GREY
from small_nano import small_nano  # noqa: F401


def less(values):
    """Half the epsilon."""
    values["epsilon"] = repr(float(values["epsilon"]) / 2) if "." in values["epsilon"] else "1"


def nothing_claimed(values):
    for name in ("neighbours", "epsilon", "delta", "accountant", "attackers", "groups"):
        values.pop(name) if name in ("attackers", "groups") else values.update({name: None})
    values.update(kind="none", events=[], public=[], conditional_on=[])


def lines(folder, count=None, without=()):
    """Keep so many of the ledger's lines, without those at some places."""
    path = folder / "ledger.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)[:count]
    path.write_bytes(b"".join(line for k, line in enumerate(kept) if k not in without))


def statement(change, resealed=True):
    return lambda folder: forging.statement_of_run(folder, change, resealed=resealed)


def config(change):
    return lambda folder: forging.config_of_run(folder, change)


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def louder(folder):
    path = folder / "ledger.jsonl"
    path.write_text(path.read_text().replace('"sigma":"', '"sigma":"9', 1))


def bare(folder):
    """Neither a seal's line nor its name."""
    lines(folder, -1)
    forging.statement_of_run(folder, lambda s: s.pop("seal"), resealed=False)


RUN_RECIPES = {
    "genuine": forging.as_it_is,
    "sealed again": statement(forging.as_it_is),
    "weights exchanged": written("model.safetensors", b"other weights"),
    "weights gone": lambda folder: (folder / "model.safetensors").unlink(),
    "log gone": lambda folder: (folder / "log.jsonl").unlink(),
    "ledger gone": lambda folder: (folder / "ledger.jsonl").unlink(),
    "ledger cut": lambda folder: lines(folder, -1),
    "ledger without its second line": lambda folder: lines(folder, without=(1,)),
    "ledger with another noise": louder,
    "seal's line gone, and its name": bare,
    "no statement": lambda folder: (folder / "privacy.json").unlink(),
    "statement is no JSON": written("privacy.json", b"{"),
    "epsilon lowered": statement(less, resealed=False),
    "epsilon lowered, sealed again": statement(less),
    "epsilon raised": statement(lambda s: s.update(epsilon="3.0"), resealed=False),
    "epsilon raised, sealed again": statement(lambda s: s.update(epsilon="3.0")),
    "delta changed": statement(lambda s: s.update(delta="1e-05"), resealed=False),
    "more noise, sealed again": statement(lambda s: s["events"][0].update(sigma="40.0")),
    "relation changed, sealed again": statement(lambda s: s["neighbours"].update(relation="add-or-remove")),
    "unit changed, sealed again": statement(lambda s: s.update(unit="crop")),
    "n changed, sealed again": statement(lambda s: s.update(n=s["n"] + 100)),
    "caveats emptied, sealed again": statement(lambda s: s.update(caveats=[])),
    "caveats emptied": statement(lambda s: s.update(caveats=[]), resealed=False),
    "public facts emptied, sealed again": statement(lambda s: s.update(public=[])),
    "queries emptied, sealed again": statement(lambda s: s.update(queries=[])),
    "canaries left out, sealed again": statement(lambda s: s.pop("canaries")),
    "nothing claimed, sealed again": statement(nothing_claimed),
    "card edited": lambda folder: (folder / "README.md").write_text("epsilon = 0.1"),
    "card edited, sealed again": lambda folder: forging.card_of_run(folder, "epsilon", "Epsilon"),
    "another plan, sealed again": config(lambda c: c["run"]["plan"].update(clip_norm=9.0)),
    "fewer steps, sealed again": config(lambda c: c["run"]["bound"].update(steps=1)),
    "another run's name, sealed again": config(lambda c: c.update(run_id="cd" * 16)),
    "other first weights, sealed again": config(lambda c: c["run"]["first_weights"].update(sha256="ab" * 32)),
    "nothing reserved, sealed again": lambda folder: forging.ledger_of_run(folder, "reserve"),
    "nothing taken, sealed again": lambda folder: forging.ledger_of_run(folder, "commit"),
}
FEATURE_RECIPES = {
    "genuine": forging.as_it_is,
    "conditions emptied": statement(lambda s: s.update(conditional_on=[]), resealed=False),
    "conditions emptied, sealed again": statement(lambda s: s.update(conditional_on=[])),
    "scope changed, sealed again": statement(lambda s: s["neighbours"].update(scope="unit")),
    "called private, sealed again": statement(lambda s: s.update(kind="private")),
}
TUNED_RECIPES = {"genuine": forging.as_it_is, "not chosen, sealed again": statement(lambda s: s.pop("tuning"))}


def refused_or_held(file, case, artefact, *words):
    hold(file, case, doors.verdict(artefact, *words))


@pytest.fixture(scope="module", autouse=True)
def _once(small_nano):  # noqa: F811
    """The small network's weights stand in for those that its runs began with."""


@pytest.mark.parametrize("name", RUN_RECIPES)
def test_a_run(name, pose_run, tmp_path):
    shutil.copytree(pose_run / "run", tmp_path / "run")
    RUN_RECIPES[name](tmp_path / "run")
    refused_or_held("verdicts", f"run: {name}", tmp_path / "run")


@pytest.mark.parametrize("name", FEATURE_RECIPES)
def test_a_run_with_public_views(name, dots_run, tmp_path):
    shutil.copytree(dots_run("fpdp-sgd", method="fpdp-sgd").folder, tmp_path / "run")
    FEATURE_RECIPES[name](tmp_path / "run")
    refused_or_held("verdicts", f"feature-private run: {name}", tmp_path / "run")


def test_a_run_that_claims_nothing(dots_run):
    run = dots_run("non-private", method="non-private")
    refused_or_held("verdicts", "non-private run: genuine", run.folder)


@pytest.mark.parametrize("name", TUNED_RECIPES)
def test_a_run_that_was_chosen(name, tmp_path):
    with doors.tuned(tmp_path / "run") as folder:
        TUNED_RECIPES[name](folder)
        refused_or_held("verdicts", f"chosen run: {name}", folder)


# --- releases


def other_pixels(path):
    forging.picture(path, other=255 - forging.pixels(path))


def noise_left_out(path):
    """Sums as they are, under a statement that records noise on them."""
    made = doors.pixelize(GREY, epsilon="2", neighbours="pixels:4", block=16, restore="none")
    (frame,) = made.frames
    sums = GREY.astype(np.int64).reshape(3, 16, 4, 16).sum((1, 3)).reshape(-1, 1)
    replace(made, frames=(replace(frame, sums={"luma": 0 * sums}),)).save(path)


def another_release_of_its_archive(path):
    """A picture of cells that another draw of the noise gave, sealed anew."""
    forging.picture(path, other=np.zeros_like(forging.pixels(path)), resealed=True)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-40])


RELEASE_RECIPES = {
    "grey.png": {
        "genuine": lambda path: None,
        "other pixels": other_pixels,
        "other pixels, sealed again": lambda path: forging.picture(path, other=GREY, resealed=True),
        "metadata stripped": forging.stripped,
        "epsilon lowered": lambda path: forging.picture(path, less),
        "epsilon lowered, sealed again": lambda path: forging.picture(path, less, resealed=True),
        "less noise, sealed again": lambda path: forging.picture(
            path, lambda s: s["events"][0].update(scale="1", sensitivity="2"), resealed=True
        ),
        "m raised, sealed again": lambda path: forging.picture(
            path, lambda s: [near.update(m=400) for near in forging.neighbours_of(s)], resealed=True
        ),
        "block in the record, sealed again": lambda path: forging.picture(
            path, lambda s: forging.config_of(s).update(block=8), resealed=True
        ),
        "caveats emptied, sealed again": lambda path: forging.picture(
            path, lambda s: s.update(caveats=[]), resealed=True
        ),
        "seal left out": lambda path: forging.picture(path, lambda s: s.pop("seal")),
    },
    "grey.jpg": {
        "genuine": lambda path: None,
        "other pixels": other_pixels,
        "metadata stripped": forging.stripped,
        "size in the record, sealed again": lambda path: forging.picture(
            path, lambda s: forging.shape_of(s).update(height=47), resealed=True
        ),
    },
    "beside.png": {
        "genuine": lambda path: None,
        "another release than its archive's, sealed again": another_release_of_its_archive,
        "archive of another release": lambda path: shutil.copy(path.with_name("regions.npz"), path.with_suffix(".npz")),
        "epsilon lowered": lambda path: forging.picture(path, less),
    },
    "colour.png": {"genuine": lambda path: None, "epsilon lowered": lambda path: forging.picture(path, less)},
    "seeded.png": {
        "genuine": lambda path: None,
        "called private, sealed again": lambda path: forging.picture(
            path, lambda s: s.update(kind="private"), resealed=True
        ),
    },
    "alone.npz": {
        "genuine": lambda path: None,
        "sums without noise": noise_left_out,
        "epsilon lowered": lambda path: forging.archive(path, lambda a: less(a["statement"])),
        "another height": lambda path: forging.archive(path, lambda a: a.update(height=47)),
        "cut short": cut_short,
    },
    "regions.npz": {"genuine": lambda path: None},
    "projected.mp4": {
        "genuine": lambda path: None,
        "sidecar gone": lambda path: path.with_name(path.name + ".privacy.json").unlink(),
        "epsilon lowered": lambda path: forging.sidecar(path, less),
        "epsilon lowered, sealed again": lambda path: forging.sidecar(path, less, resealed=True),
        "another video": lambda path: shutil.copy(path.with_name("pixelized.mp4"), path),
        "frames in the record, sealed again": lambda path: forging.sidecar(
            path, lambda s: forging.shape_of(s).update(frames=5), resealed=True
        ),
    },
    "pixelized.mp4": {
        "genuine": lambda path: None,
        "more steps, sealed again": lambda path: forging.sidecar(
            path, lambda s: (s["events"][0].update(steps=6), s.update(epsilon="12")), resealed=True
        ),
    },
    "blurred.mp4": {"genuine": lambda path: None},
}
RELEASES = [(file, recipe) for file, recipes in RELEASE_RECIPES.items() for recipe in recipes]


@pytest.mark.parametrize(("file", "recipe"), RELEASES)
def test_a_release(file, recipe, released, tmp_path):
    place = tmp_path / "released"
    shutil.copytree(released, place)
    RELEASE_RECIPES[file][recipe](place / file)
    refused_or_held("verdicts", f"{file}: {recipe}", place / file)


# --- signatures


def another_key(place):
    doors.done("statement", "key", place / "other.pem")
    (place / "other.pem.pub").replace(place / "key.pem.pub")


def forged_signature(place):
    (path,) = (place / "run").glob("privacy.json.*")
    values = json.loads(path.read_text())
    first = values["signature"][0]
    path.write_text(json.dumps({**values, "signature": ("0" if first != "0" else "1") + values["signature"][1:]}))


SIGNED_RECIPES = {
    "genuine": lambda place: None,
    "statement changed": lambda place: statement(less, resealed=False)(place / "run"),
    "sealed again": lambda place: statement(lambda s: s.update(caveats=[*s["caveats"], "more"]))(place / "run"),
    "weights exchanged": lambda place: written("model.safetensors", b"other weights")(place / "run"),
    "another key": another_key,
    "signature forged": forged_signature,
    "not signed": lambda place: next((place / "run").glob("privacy.json.*")).unlink(),
}


@pytest.mark.parametrize("name", SIGNED_RECIPES)
def test_a_signed_statement(name, pose_run, tmp_path):
    shutil.copytree(pose_run / "run", tmp_path / "run")
    doors.done("statement", "key", tmp_path / "key.pem")
    doors.done("statement", "sign", tmp_path / "run", "--key", tmp_path / "key.pem")
    SIGNED_RECIPES[name](tmp_path)
    words = ("statement", "verify", "--key", tmp_path / "key.pem.pub")
    refused_or_held("verdicts", f"signed run: {name}", tmp_path / "run", *words)


def test_no_verdict_is_lost():
    names = [f"run: {n}" for n in RUN_RECIPES] + [f"feature-private run: {n}" for n in FEATURE_RECIPES]
    names += [f"chosen run: {n}" for n in TUNED_RECIPES] + [f"signed run: {n}" for n in SIGNED_RECIPES]
    hold_cases("verdicts", [*names, "non-private run: genuine", *(f"{file}: {n}" for file, n in RELEASES)])
