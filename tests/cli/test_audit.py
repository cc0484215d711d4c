"""`dpose audit`: 0 where a claim stands, 1 where it is refuted, 2 for a mistake; and a report each time."""

import json

import numpy as np
import pytest

import dpose_scene.data as synthetic_module
from dpose.audits.faults import UNSEEN
from dpose.cli import main
from dpose.media.images import write_image
from dpose.pose.folder import load_model
from dpose.training.canaries import PARAMETER
from refusals import command_refused
from small_nano import small_nano  # noqa: F401

TRAINING = ["audit", "training", "--data", "synthetic:ward", "--epsilon", "2", "--delta", "1e-3"]
SMALL = ["--limit", "12", "--canaries", "24", "--epochs", "2", "--batch-size", "18", "--set", "seed=1"]


@pytest.fixture(autouse=True)
def _small_and_local(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic_module, "SPLITS", {"train": 40, "val": 8, "test": 8, "public": 4})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def test_a_true_run_is_not_refuted_and_is_a_run_like_any_other(capsys, tmp_path):
    out = tmp_path / "audit"
    assert main([*TRAINING, *SMALL, "--no-controls", "--out", str(out)]) == 0
    assert "not refuted" in capsys.readouterr().out
    assert {"audit.html", "audit.json", "audit.md", "audit.png"} <= {path.name for path in out.iterdir()}
    assert main(["verify", str(out)]) == 0
    assert PARAMETER not in dict(load_model(out).named_parameters())
    statement = json.loads((out / "privacy.json").read_text())
    assert any("canaries" in caveat for caveat in statement["caveats"])
    (reached,) = statement["audits"]
    assert 0 <= float(reached["epsilon"]) <= float(statement["epsilon"])
    assert reached["confidence"] == "0.95"


@pytest.mark.parametrize("kind", ["gradient", "input"])
def test_data_with_joints_of_their_own_are_audited(capsys, tmp_path, kind):
    """Canaries have the joints that the data have: others ended the run after it was charged."""
    for name, content in {
        "data.yaml": "train: images\nnames: ['person']\nkpt_shape: [3, 3]\nflip_idx: [1, 0, 2]\n",
        "labels/a.txt": "0 0.5 0.5 0.4 0.6 0.4 0.3 2 0.6 0.3 1 0 0 0\n",
    }.items():
        (tmp_path / "labels").mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    write_image(tmp_path / "images" / "a.png", np.zeros((40, 30, 3), np.uint8))
    asked = ["audit", "training", "--data", f"yolo:{tmp_path}", "--epsilon", "2", "--delta", "1e-3", *SMALL]
    assert main([*asked, "--kind", kind, "--no-controls", "--out", "out"]) == 0
    assert "not refuted" in capsys.readouterr().out


def test_a_planted_fault_is_flagged_and_the_controls_stand_beside_it(capsys, tmp_path):
    out = tmp_path / "audit"
    assert main([*TRAINING, *SMALL, "--plant", "not-clipped", "--kind", "gradient", "--out", str(out)]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "FLAGGED" in told
    assert "without a clip" in told
    assert not (out / "model.safetensors").exists()
    page = (out / "audit.html").read_text()
    assert "control: no noise at all" in page
    assert "control: each unit counted twice" in page


@pytest.mark.slow
def test_pictures_for_canaries_go_through_the_controls_too(capsys, tmp_path):
    out = tmp_path / "audit"
    # fewer units than a batch of views: some hold canaries or blank units alone
    assert main([*TRAINING, *SMALL, "--kind", "input", "--out", str(out)]) in (0, 1)
    controls = json.loads((out / "audit.json").read_text())["controls"]
    assert set(controls) == {"no noise at all", "each unit counted twice"}


def test_a_fault_that_no_audit_sees_says_so(capsys, tmp_path):
    out = tmp_path / "audit"
    planted = [*TRAINING, *SMALL, "--no-controls", "--plant", "realised-size", "--out", str(out)]
    assert main(planted) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "No audit sees this fault" in told
    assert "07 division by the realised batch size] rejects it" in told
    assert "No audit sees this fault" in (out / "audit.html").read_text()


@pytest.mark.parametrize("name", ["laplace", "randomized-response"])
@pytest.mark.parametrize("plant", [None, "double-counting"])
def test_a_mechanism(name, plant, tmp_path, capsys):
    file = tmp_path / "found.json"
    more = ["--plant", plant] if plant else []
    flagged = plant is not None
    assert main(["audit", "mechanism", name, "--epsilon", "1", "--seed", "1", "--out", str(file), *more]) == flagged
    assert json.loads(file.read_text())["flagged"] == flagged
    assert ("FLAGGED" in capsys.readouterr().out) == flagged


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", "mechanism", "gausian", "--epsilon", "1"], ("choose one of gaussian",)),
        (["audit", "mechanism", "laplace", "--epsilon", "1", "--samples", "0"], ("--samples",)),
        (
            ["audit", "mechanism", "gaussian", "--epsilon", "1", "--delta", "1e-5", "--plant", "wrong-sampling"],
            ("draws no sample", "poisson-gaussian"),
        ),
        ([*TRAINING, "--out", "x", "--plant", "nothing"], ("no fault called", "noise-missing")),
        ([*TRAINING, "--out", "x", "--canaries", "3"], ("use at least 20",)),
        ([*TRAINING, "--out", "x", "--method", "public-only"], ("claims nothing",)),
        ([*TRAINING, "--out", "."], ("already exists",)),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, words):
    command_refused(capsys, arguments, *words)


@pytest.mark.parametrize("fault", [name for name in UNSEEN if name not in ("shuffled-batches", "realised-size")])
def test_faults_that_only_structure_shows_name_their_test(capsys, fault):
    where = UNSEEN[fault].check
    command_refused(capsys, [*TRAINING, "--out", "x", "--plant", fault], "[fault-unseen]", where)
    mechanism = ["audit", "mechanism", "gaussian", "--epsilon", "1", "--delta", "1e-5", "--plant", fault]
    command_refused(capsys, mechanism, "[fault-unseen]", where)


@pytest.mark.slow
def test_membership_says_what_it_spent(capsys, tmp_path):
    out = tmp_path / "lira"
    code = main(
        [
            *("audit", "membership", "--data", "synthetic:ward", "--epsilon", "2", "--delta", "1e-3"),
            *("--limit", "8", "--shadows", "4", "--targets", "1", "--epochs", "1", "--batch-size", "4"),
            *("--no-controls", "--workers", "1", "--set", "seed=2", "--out", str(out)),
        ]
    )
    assert code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "by each run" in told
    assert "not refuted" in told
    assert (out / "audit.html").exists()
    assert len(list((out / "runs").iterdir())) == 5
