"""A run folder that was edited and sealed again is refused where it contradicts its plan, configuration or ledger.

Every single-field edit of a genuine statement is tried, each with a new chain, card and seal, on a machine that never
saw the run. docs/threat-model.md lists which fields are computed again and which the seal alone binds.
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from rich.console import Console

import dpose_scene.data as synthetic_module
from dpose import files
from dpose.cli import main
from dpose.errors import DposeError
from dpose.pose.folder import find_model
from dpose.privacy.entries import EntryType, read_ledger
from dpose.privacy.sections import AuditResult, Deployment, GroupResult, Query
from dpose.privacy.statement import Kind, PrivacyStatement
from dpose.runs.evaluate import evaluate_run, record_query
from dpose.runs.verify import verify_run
from dpose.training.folder import reseal
from refusals import refused
from run_folders import sealed_again
from small_nano import small_nano  # noqa: F401
from tiers import rest_slow

PLAN = ["train", "--data", "synthetic:ward", "--limit", "12", "--epochs", "2", "--batch-size", "20"]
PLAN += [
    "--epsilon",
    "2",
    "--delta",
    "1e-3",
    "--preset",
    "nano",
    "--strategy",
    "light",
    "--set",
    "data.validation_data=none",
]
FEATURES = ["--method", "fpdp-sgd", "--public", "synthetic:ward:public"]


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    """Two runs: one with canaries, a query, an audit and results by group; one with public views and public units."""
    place = tmp_path_factory.mktemp("genuine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_module, "SPLITS", {"train": 40, "val": 8, "test": 8, "public": 110})
        assert main([*PLAN, "--set", "canaries.count=20", "--out", str(place / "dp")]) == 0
        assert main([*PLAN, *FEATURES, "--out", str(place / "views")]) == 0
    record_query(place / "dp", Query("mean PCKh@0.5", "ward:test, 9 units"))
    audit, result = (AuditResult("an audit", "0.1", "0.95"), GroupResult("aid: cane", "3", "PCKh", "70.0", "60.0"))

    def more(_, statement):
        return replace(statement, audits=(audit,), results=(result,))

    reseal(place / "dp", more)
    return place


@pytest.fixture
def runs(genuine, tmp_path):
    shutil.copytree(genuine, tmp_path / "runs")
    return tmp_path / "runs"


def test_no_torch_is_imported_for_it(runs):
    """Whoever checks a model need not wait for what trains one."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from dpose import files\n"
        "from dpose.runs.verify import verify_run\n"
        "files.SHIPPED = Path(sys.argv[2])\n"
        "assert verify_run(sys.argv[1]).spent\n"
        "print(sorted({'torch', 'timm', 'torchvision', 'matplotlib'} & set(sys.modules)))\n"
    )
    words = [str(runs / "views"), str(files.SHIPPED)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def values_of(folder) -> dict:
    return json.loads((folder / "privacy.json").read_text())


def table() -> dict:
    """The threat model's table: what computes a field again, "" where the seal alone binds it."""
    page = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text()
    section = page.split("## What `dpose verify` computes again")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")
    ]
    return {
        name: again if again != "the seal alone" else ""
        for names, again, _ in rows
        for name in re.findall(r"`([\w.]+)`", names)
    }


def test_the_threat_model_names_every_field_of_a_statement():
    core = {f.name for f in fields(PrivacyStatement)} - {"deployment"}
    deployment = {f"deployment.{f.name}" for f in fields(Deployment)}
    assert set(table()) == {"schema"} | core | deployment


def edits(value):
    """Other values of one field of a statement: removed, emptied, and changed at every leaf."""
    if value is None or isinstance(value, bool):
        return [REMOVED, "1" if value is None else not value]
    if isinstance(value, int):
        return [REMOVED, None, value + 1, max(1, value - 1)]
    if isinstance(value, str):
        number = re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", value)
        changed = [repr(float(value) * 0.5), repr(float(value) * 1.01)] if number else [value[:-1] or "x"]
        return [REMOVED, "", *changed]
    if isinstance(value, dict):
        inner = [(name, other) for name in value for other in edits(value[name])]
        return [REMOVED, {}, *(without(value, name, other) for name, other in inner)]
    dropped = [value[:i] + value[i + 1 :] for i in range(len(value))]
    inner = [(i, other) for i, each in enumerate(value) for other in edits(each) if other is not REMOVED]
    return [REMOVED, [], *dropped, *([*value[:i], other, *value[i + 1 :]] for i, other in inner)]


REMOVED = object()


def without(value, name, other):
    return {k: v for k, v in {**value, name: other}.items() if v is not REMOVED}


def survivors(folder):
    """Fields with the edits of them that `verify_run` accepts after a new seal."""
    shutil.copytree(folder, kept := folder.with_name("kept"))
    found, tried = {}, 0
    values = values_of(folder)
    cases = {name: [{**values, name: other} for other in edits(value)] for name, value in values.items()}
    said = cases.pop("deployment")
    for name in Deployment.__dataclass_fields__:
        cases[f"deployment.{name}"] = [
            {**values, "deployment": without(values["deployment"], name, other)}
            for other in edits(values["deployment"][name])
        ]
    cases["deployment.released"] += [said[0], said[1]]
    for name, edited in cases.items():
        for one in edited:
            text = json.dumps({k: v for k, v in one.items() if v is not REMOVED})
            if json.loads(text) == values:
                continue
            tried += 1
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            try:
                sealed_again(folder, PrivacyStatement.from_json(text))
                verify_run(folder, folder.with_name("elsewhere"))
            except DposeError:
                continue
            if values_of(folder) | {"seal": ""} | {"ledger_head": ""} != values | {"seal": ""} | {"ledger_head": ""}:
                found.setdefault(name, []).append(one.get(name))
    assert tried > 100
    return found


@pytest.mark.parametrize("name", rest_slow(["dp", "views"]))
def test_every_single_edit_of_a_statement_is_refused_though_sealed_again(runs, name):
    folder = runs / name
    sealed_again(folder)
    verify_run(folder, runs / "elsewhere")  # a new seal alone changes nothing
    bound = {field for field, again in table().items() if not again}
    found = survivors(folder)
    assert {field: edited for field, edited in found.items() if field not in bound} == {}
    # the table calls nothing the seal's that is computed again
    there = bound & ({*values_of(folder)} | {f"deployment.{each}" for each in values_of(folder)["deployment"]})
    assert {field for field in there if field in found} == there


def run_refused(folder, code, where=None):
    with refused(code, where):
        verify_run(folder, folder.with_name("elsewhere"))


def statement_of(folder):
    return PrivacyStatement.from_json((folder / "privacy.json").read_text())


def lines_of(folder):
    return read_ledger(folder / "ledger.jsonl")


def config_of(folder, change=None):
    """The configuration; changed first, where `change` does that."""
    path = folder / "config.json"
    values = json.loads(path.read_text())
    if change:
        change(values)
        path.write_text(json.dumps(values))
    return values


def test_a_folder_without_its_seal_or_its_ledger_is_refused(runs):
    """Weights exchanged, and everything left out that would tell."""
    folder = runs / "views"
    (folder / "model.safetensors").write_bytes(b"other weights")
    bare = {k: v for k, v in values_of(folder).items() if k != "seal"}
    (folder / "privacy.json").write_text(json.dumps(bare))
    run_refused(folder, "ledger-longer-than-statement")
    path = folder / "ledger.jsonl"
    path.write_bytes(b"".join(line.line() for line in lines_of(folder)[:-1]))
    run_refused(folder, "statement-without-seal")
    head = lines_of(folder)[-1].sha256
    (folder / "privacy.json").write_text(json.dumps({**bare, "seal": head}))
    run_refused(folder, "ledger-without-seal")
    path.unlink()
    for blank in ({}, {"ledger_head": "", "plan_sha256": ""}):
        (folder / "privacy.json").write_text(json.dumps({**bare, **blank}))
        run_refused(folder, "ledger-missing")


def test_the_seal_is_the_ledgers_last_line_and_follows_the_head(runs):
    folder = runs / "views"
    values, lines = values_of(folder), lines_of(folder)
    for other in (lines[-3].sha256, lines[-1].sha256, "", "00" * 32):
        (folder / "privacy.json").write_text(json.dumps({**values, "ledger_head": other}))
        run_refused(folder, "seal-not-last")
    (folder / "privacy.json").write_text(json.dumps({**values, "seal": lines[-2].sha256}))
    run_refused(folder, "ledger-longer-than-statement")


def test_a_field_that_was_removed_is_not_what_was_sealed(runs):
    folder = runs / "dp"
    values = values_of(folder)
    known = PrivacyStatement.__pydantic_fields__
    optional = [name for name in values if name in known and known[name].exclude_if]
    optional = [name for name in optional if name not in ("canaries", "seal", "tuning")]
    assert len(optional) >= 7
    for name in optional:
        (folder / "privacy.json").write_text(json.dumps({k: v for k, v in values.items() if k != name}))
        run_refused(folder, "seal-value-differs", (name, "null"))


def test_a_card_beside_the_statement_says_what_the_statement_says(runs):
    folder = runs / "dp"
    card = (folder / "README.md").read_text()
    sealed_again(folder, card=re.sub(r"epsilon = [\d.]+", "epsilon = 0.1", card))
    run_refused(folder, "card-differs", "README.md")
    other = {**statement_of(folder).software, "dpose": "0.0.1"}
    sealed_again(folder, replace(statement_of(folder), software=other), card=card)
    run_refused(folder, "card-differs", "0.0.1")
    (folder / "README.md").unlink()
    run_refused(folder, "sealed-file-missing", "README.md")


CONFIG = {
    "another run's name": (lambda c: c.update(run_id="cd" * 16), "ledger-of-other-run"),
    "no name": (lambda c: c.pop("run_id"), "plan-missing"),
    "a seed": (lambda c: c["run"].update(seed=3), "canaries-with-seed", "canaries.count"),
    "another plan": (lambda c: c["run"]["plan"].update(clip_norm=9.0), "plan-differs"),
    "a copy more": (lambda c: c["run"]["plan"].update(augmentation_multiplicity=2), "plan-differs"),
    "a setting more": (lambda c: c["run"]["plan"].update(mercy=True), "plan-missing"),
    "fewer units": (lambda c: c["run"]["bound"].update(n=11), "plan-missing"),
    "fewer steps": (lambda c: c["run"]["bound"].update(steps=1), "plan-missing"),
    "a lower rate": (lambda c: c["run"]["bound"]["event"].update(q="0.1"), "plan-missing"),
    "less noise": (lambda c: c["run"]["bound"]["event"].update(sigma="0.5"), "plan-missing"),
    "no plan": (lambda c: c["run"].pop("plan"), "plan-missing"),
    "a model that is none": (lambda c: c.update(model=[]), "plan-missing"),
    "another task": (lambda c: c.update(task="action"), "plan-missing"),
    "a curator": (lambda c: c["run"]["about"].update(curator="me"), "statement-section-unfounded", "deployment"),
    "ImageNet": (lambda c: c["run"]["model"].update(init="imagenet"), "statement-sentence-missing", "conditional_on"),
    "other canaries": (lambda c: c["run"]["canaries"].update(count=24), "config-canaries-differ"),
    "no canaries": (lambda c: c["run"].update(canaries=None), "config-canaries-differ"),
    "a lower limit": (lambda c: c["run"]["data"].update(limit=11), "n-above-limit", "of 11"),
    "a choice": (lambda c: c["run"].update(tuning={}), "tuning-differs"),
}


@pytest.mark.parametrize("what", CONFIG)
def test_a_configuration_that_says_otherwise_is_refused(runs, what):
    change, *told = CONFIG[what]
    config_of(runs / "dp", change)
    sealed_again(runs / "dp")
    run_refused(runs / "dp", *told)


def test_a_seed_in_the_configuration_is_no_guarantee(runs):
    config_of(runs / "views", lambda c: c["run"].update(seed=3))
    sealed_again(runs / "views")
    run_refused(runs / "views", "statement-section-unfounded", "kind")


def test_what_first_weights_ask_for_is_there(runs):
    folder = runs / "dp"
    statement = statement_of(folder)
    (line,) = [line for line in statement.public if line.startswith("the first weights, ")]
    silent = replace(statement, public=tuple(each for each in statement.public if each != line))
    sealed_again(folder, silent, first_weights="")
    run_refused(folder, "first-weights-altered")
    config_of(folder, lambda c: c["run"]["first_weights"].update(sha256=""))
    sealed_again(folder, silent, first_weights="")
    run_refused(folder, "log-line-missing", ("public", "first weights"))
    config_of(folder, lambda c: c["run"]["first_weights"].update(sha256="ab" * 32))
    sealed_again(folder, silent, first_weights="ab" * 32)
    run_refused(folder, "log-line-missing", ("first weights", "sha256 abababababababab"))


def test_a_query_that_the_statement_leaves_out_is_refused_by_the_ledger(runs):
    """Though the statement was sealed again, with the ledger's query in its place."""
    folder = runs / "dp"
    sealed_again(folder, replace(statement_of(folder), queries=()))
    run_refused(folder, "statement-queries-differ", ("1 queries", "lists 0"))


def test_sealed_files_that_are_gone_are_named(runs):
    folder = runs / "dp"
    assert not any("not here any more" in line for line in verify_run(folder).lines)
    (folder / "log.jsonl").unlink()
    assert any(line.startswith("not here any more, and not checked: ") for line in verify_run(folder).lines)


def test_a_folder_without_a_statement_is_one_line(tmp_path):
    run_refused(tmp_path / "none", "statement-missing")


def test_queries_of_log_and_evaluations_are_listed(runs):
    folder = runs / "dp"
    entries = [line for line in lines_of(folder) if line.type is not EntryType.QUERY]
    silent = replace(statement_of(folder), queries=())
    (folder / "evaluations").mkdir(exist_ok=True)
    kept = folder / "evaluations" / "score.json"
    kept.write_text(json.dumps({"data": "ward:test", "public": False}))
    verify_run(folder)
    sealed_again(folder, silent, entries=entries)
    run_refused(folder, "score-not-in-statement", "ward:test")
    kept.write_text(json.dumps({"data": "ward:test", "public": True}))
    verify_run(folder, runs / "elsewhere")
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"type": "score", "step": 1, "data": "ward:val, 8 units", "public": false}\n')
    sealed_again(folder)
    run_refused(folder, "score-not-in-statement", ("log.jsonl", "ward:val, 8 units"))


def test_a_ledger_tells_what_was_reserved_and_what_was_not_taken(runs):
    folder = runs / "dp"
    lines = lines_of(folder)
    sealed_again(folder, entries=[line for line in lines if line.type is not EntryType.COMMIT])
    run_refused(folder, "log-line-missing", ("caveats", "stopped"))
    louder = [
        replace(line, event={**line.event, "sigma": "50.0"}) if line.type is EntryType.RESERVE else line
        for line in lines
    ]
    sealed_again(folder, entries=louder)
    run_refused(folder, "ledger-event-differs")
    other = replace(lines[0], run_id="cd" * 16)
    sealed_again(folder, entries=[other, *lines[1:]])
    run_refused(folder, "ledger-of-other-run")


def test_steps_of_ledger_and_log_were_reserved(runs):
    folder = runs / "dp"
    lines, log = lines_of(folder), (folder / "log.jsonl").read_text()
    sealed_again(folder, entries=[line for line in lines if line.type is not EntryType.RESERVE])
    run_refused(folder, "ledger-steps-not-reserved")
    last = max(line.seq for line in lines if line.type is EntryType.RESERVE)
    later = [replace(line, key_id="x") if line.seq == last else line for line in lines]
    sealed_again(folder, entries=later)
    run_refused(folder, "ledger-steps-not-reserved")
    sealed_again(folder, entries=lines)
    resumed = '{"type": "resume", "step": 1, "key_id": "ef"}\n{"type": "step", "step": 2}\n'
    for other in (log.replace('"n": 32', '"n": 9'), log + '{"type": "step", "step": 5}\n', log + resumed):
        assert other != log
        (folder / "log.jsonl").write_text(other)
        sealed_again(folder)
        run_refused(folder, "log-of-other-run", "log.jsonl")


def test_a_checkpoint_is_that_of_its_run(runs):
    folder = runs / "dp"
    path = sorted((folder / "checkpoints").glob("step-*/state.json"))[-1]
    genuine = json.loads(path.read_text())
    sealed_again(folder)
    verify_run(folder)
    for other in ({"step": genuine["step"] - 1}, {"plan_sha256": "ab" * 32}, {"ledger_head": "ab" * 32}, None):
        path.write_text(json.dumps(other and genuine | other))
        sealed_again(folder)
        run_refused(folder, "checkpoint-of-other-run", str(path.relative_to(folder)))


def test_a_run_with_a_guarantee_is_not_scored_beside_another_model(runs):
    shipped, quiet = find_model("nano"), Console(quiet=True)
    with refused("score-beside-private-run", where=str(runs / "dp")):
        evaluate_run(shipped, "synthetic:ward:train", beside=[("the run", runs / "dp")], console=quiet)


def test_a_configuration_without_data_is_said_to_be_unchecked(runs):
    folder = runs / "views"
    assert not any("names no data" in line for line in verify_run(folder).lines)
    config_of(folder, lambda c: c["run"].pop("data"))
    sealed_again(folder)
    assert any("names no data" in line for line in verify_run(folder, runs / "elsewhere").lines)


def test_a_private_plan_has_no_statement_of_kind_none(runs):
    folder = runs / "dp"
    found = statement_of(folder)
    none = PrivacyStatement(Kind.NONE, found.unit, n=found.n, queries=found.queries, plan_sha256=found.plan_sha256)
    sealed_again(folder, replace(none, canaries=found.canaries))
    run_refused(folder, "statement-section-unfounded")
