import sys
from dataclasses import replace

import pytest
import torch
import yaml

from dpose.files import file_digest
from dpose.pose.export import export_run
from dpose.pose.folder import load_model, push_to_hub, save_model, save_pretrained
from dpose.pose.model import PoseConfig, PoseModel
from dpose.privacy.accounting import Accountant
from dpose.privacy.events import SampledGaussian
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.statement import FLOATING_POINT_CAVEAT, Kind, PrivacyStatement
from dpose.training.first_weights import digest_of_weights
from dpose.training.folder import front_matter
from refusals import refused


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    source = tmp_path / "source"
    save_model(PoseModel(PoseConfig("nano", (64, 64))), source)
    (source / "privacy.json").write_text('{"kind": "private"}')
    (source / "README.md").write_text("the card")
    (source / "log.jsonl").write_text("stays at home")
    (source / "ledger.jsonl").write_text("a chain")
    return source


WHOLE = ["README.md", "config.json", "ledger.jsonl", "model.safetensors", "privacy.json"]


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_saved_model_carries_what_is_needed_to_verify_it_and_nothing_else(folder, tmp_path):
    model = load_model(folder)
    copy = save_pretrained(model, tmp_path / "copy")
    assert names(copy) == WHOLE
    for name in WHOLE:  # to the byte, or its seal would not hold
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
    again = load_model(copy)
    assert all(torch.equal(t, again.state_dict()[n]) for n, t in model.state_dict().items())


def test_a_changed_model_does_not_carry_a_statement_that_is_not_its_own(folder, tmp_path):
    model = load_model(folder)
    with torch.no_grad():
        model.head.joints.bias[0] += 1e-3
    copy = save_pretrained(model, tmp_path / "copy")
    assert names(copy) == ["README.md", "config.json", "model.safetensors"]
    assert "no statement of privacy" in (copy / "README.md").read_text()


def test_a_statement_stays_beside_its_own_weights(folder):
    model, before = load_model(folder), (folder / "model.safetensors").read_bytes()
    save_pretrained(model, folder)
    with torch.no_grad():
        model.head.joints.bias[0] += 1e-3
    with refused("statement-of-other-weights", where=str(folder)):
        save_pretrained(model, folder)
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_fresh_model_claims_nothing(tmp_path):
    copy = save_pretrained(PoseModel(PoseConfig("nano", (64, 64))), tmp_path / "copy")
    assert names(copy) == ["README.md", "config.json", "model.safetensors"]


def test_a_model_is_saved_as_a_run_writes_it(tmp_path):
    """The account knows weights by their file: what was trained and saved anew is found there."""
    model = PoseModel(PoseConfig("nano", (64, 64)))
    copy = save_pretrained(model, tmp_path / "copy")
    assert file_digest(copy / "model.safetensors") == digest_of_weights(model)


def test_a_run_whose_statement_is_gone_is_not_passed_on(folder, tmp_path):
    model = load_model(folder)
    (folder / "privacy.json").unlink()
    with refused("statement-gone", where=str(folder)):
        save_pretrained(model, tmp_path / "copy")
    with refused("statement-gone", where=str(folder)):
        export_run(folder, tmp_path / "pose.onnx", [])
    assert not list(tmp_path.glob("copy*")) + list(tmp_path.glob("*.onnx"))


class TestHub:
    hub = pytest.importorskip("huggingface_hub")

    def test_what_is_uploaded_is_the_folder_and_private(self, folder, tmp_path, monkeypatch):
        import huggingface_hub.hub_mixin as mixin

        seen = {}

        class Api:
            def __init__(self, token=None):
                pass

            def create_repo(self, repo_id, private, exist_ok):
                seen.update(repo=repo_id, private=private)
                return type("Repo", (), {"repo_id": repo_id})

            def upload_folder(self, *, folder_path, **_):
                seen["files"] = names(folder_path)
                seen["statement"] = (folder_path / "privacy.json").read_text()
                return "https://example.org/commit"

        monkeypatch.setattr(mixin, "HfApi", Api)
        assert push_to_hub(load_model(folder), "hf:me/pose") == "https://example.org/commit"
        assert (seen["repo"], seen["private"]) == ("me/pose", True)
        assert seen["files"] == WHOLE
        assert seen["statement"] == '{"kind": "private"}'

    def test_a_name_with_the_prefix_is_fetched(self, folder, monkeypatch):
        requests = []
        monkeypatch.setattr(self.hub, "snapshot_download", lambda name, **o: requests.append((name, o)) or str(folder))
        model = load_model("hf:me/pose")
        assert requests[0][0] == "me/pose"
        assert set(WHOLE) < set(requests[0][1]["allow_patterns"])
        assert "log.jsonl" not in requests[0][1]["allow_patterns"]
        assert model.config == load_model(folder).config

    def test_a_mistyped_folder_asks_nobody(self, monkeypatch):
        monkeypatch.setattr(self.hub, "snapshot_download", lambda *a, **o: pytest.fail("asked the Hub"))
        with refused("model-unknown", where="nano"):
            load_model("runs/pubilc")

    def test_failures_are_one_line(self, folder, monkeypatch):
        def fails(*args, **options):
            raise ConnectionError("no route\nto host")

        monkeypatch.setattr(self.hub, "snapshot_download", fails)
        with refused("hub-fetch-failed", where="route"):
            load_model("hf:me/pose")
        with refused("hub-name-malformed"):
            load_model("hf:pose")


def test_without_the_extra_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with refused("package-missing", where="pip install huggingface_hub"):
        push_to_hub(load_model(folder), "me/pose")


def test_a_card_claims_in_its_metadata_what_the_statement_guarantees_and_no_more():
    def read(statement, method="dp-sgd"):
        _, front, after = front_matter("pose", statement, method).split("---\n")
        assert after == ""
        return yaml.safe_load(front)

    event = SampledGaussian(0.1, 1.0, 100, 1.0)
    private = PrivacyStatement(
        Kind.PRIVATE,
        unit="image",
        neighbours=Neighbours("image", Relation.ZERO_OUT),
        epsilon=9.4501,
        delta=1e-5,
        accountant=Accountant.PLD,
        n=5000,
        events=(event,),
        caveats=(FLOATING_POINT_CAVEAT,),
    )
    assert read(private) == {
        "library_name": "dpose",
        "pipeline_tag": "keypoint-detection",
        "tags": ["pose", "differential_privacy", "dp-sgd"],
        "differential_privacy": {
            "epsilon": 9.451,  # upward
            "delta": 1e-5,
            "unit": "image",
            "relation": "zero-out",
            "scope": "unit",
        },
    }
    assert read(private, "")["tags"] == ["pose", "differential_privacy"]
    for kind in (Kind.SEEDED, Kind.PAPER):
        assert read(replace(private, kind=kind))["tags"] == ["pose"]
    for claims_nothing in (PrivacyStatement(Kind.NONE, unit="image"), None):
        assert set(read(claims_nothing)) == {"library_name", "pipeline_tag", "tags"}
    data = pytest.importorskip("huggingface_hub").ModelCard(front_matter("pose", private, "dp-sgd") + "# text").data
    assert data.pipeline_tag == "keypoint-detection"
