"""What a configuration means: several data, first weights, precision, what is watched."""

import json
import logging
import shutil
import urllib.error

import numpy as np
import pytest
import timm
import torch
from rich.console import Console

import dpose_scene.data as synthetic_module
from dpose import files
from dpose.pose.data import PoseUnits, SubjectUnits
from dpose.pose.folder import save_model
from dpose.pose.model import PoseConfig, PoseModel
from dpose.pose.skeletons import COCO, MPII
from dpose.pose.task import PoseTask
from dpose.privacy.protected import protect
from dpose.runs.build import build_model, check_settings, first_weights, open_public, open_units, precision
from dpose.runs.config import RunConfig
from dpose.runs.data import conditions, only_source, public_licence, shows_nobody, watched
from dpose.runs.train import explain_task, train_run
from dpose.training.gradients import mean_gradient, trainable_params
from dpose.training.guards import check_disjoint
from dpose.units import CanonicalUnits, KnownPictures
from refusals import refused

SMALL = {"train": 12, "val": 6, "test": 6, "public": 4}
PRIVATE = {"method": "dp-sgd", "epsilon": 8.0, "delta": 1e-2, "accountant": "rdp"}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(synthetic_module, "SPLITS", SMALL)


NANO = PoseConfig("nano")


def config(*data, plan=None, **values):
    return RunConfig.from_dict({"data": {"private": list(data)}, "plan": plan or {"method": "non-private"}, **values})


class TestSeveralData:
    def test_one_spec_or_a_list_of_them(self):
        assert config("synthetic:ward").data.private == "synthetic:ward"
        both = config("synthetic:ward", "synthetic:studio")
        assert both.data.sources == ("synthetic:ward", "synthetic:studio")
        assert RunConfig.from_dict(json.loads(json.dumps(both.to_dict()))) == both
        with refused("setting-invalid", where="data.private"):
            config()

    def test_units_of_all_in_the_joints_of_the_first(self, pose_fixtures):
        chosen = config(
            f"mpii:{pose_fixtures}/mpii,annotations=test_mpii.json", f"coco:{pose_fixtures}/coco", "synthetic:ward"
        )
        units = open_units(chosen, NANO)
        assert len(units) == 5 + 4 + 12
        assert units.skeleton == MPII
        assert build_model(chosen)[0].config.skeleton == "mpii"
        assert len({units.unit_id(i) for i in range(len(units))}) == len(units)

    def test_public_units_come_in_the_same_joints(self, pose_fixtures):
        chosen = config("synthetic:ward").model_copy()
        values = {**chosen.to_dict(), "data": {"private": "synthetic:ward", "public": f"coco:{pose_fixtures}/coco"}}
        public = open_public(RunConfig.from_dict(values), NANO)
        assert public.load(0, np.random.default_rng(0))[0].target["keypoints"].shape == (16, 2)

    def test_a_limit_is_of_all_together(self):
        chosen = config("synthetic:ward", "synthetic:studio")
        values = {**chosen.to_dict(), "data": {"private": ["synthetic:ward", "synthetic:studio"], "limit": 7}}
        assert len(open_units(RunConfig.from_dict(values), NANO)) == 7

    def test_people_are_the_same_in_every_part(self):
        plan = {**PRIVATE, "unit": "subject"}
        both = open_units(config("synthetic:ward:train", "synthetic:ward:val", plan=plan), NANO)
        assert isinstance(both, SubjectUnits)
        names = [both.unit_id(i) for i in range(len(both))]
        assert len(set(names)) == len(names)
        alone = (open_units(config(f"synthetic:ward:{s}", plan=plan), NANO) for s in ("train", "val"))
        assert set(names) == {units.unit_id(i) for units in alone for i in range(len(units))}

    def test_conditions_of_every_part(self):
        chosen = config("synthetic:ward", "lspet:/data/lspet:public", plan=PRIVATE)
        assert "near copies" in conditions(chosen)[0]

    def test_a_subspace_of_chosen_data_is_conditional_on_the_choice(self):
        chosen = RunConfig.from_dict(
            {
                "data": {"private": "lspet:x:private", "public": "lspet:x:public", "validation_data": "none"},
                "model": {"strategy": "scratch"},
                "plan": {"method": "pdp-sgd", "epsilon": 8, "delta": 1e-5},
            }
        )
        assert "near copies" in conditions(chosen)[0]

    def test_a_recipe_tells_of_the_data_that_it_was_chosen_on(self):
        def told(data):
            plan = {"epsilon": 8, "delta": 1e-5}
            return " ".join(
                conditions(RunConfig.from_dict({"recipe": "recommended", "data": {"private": data}, "plan": plan}))
            )

        assert "7001 to 8000" in told("lspet:x:private")
        assert "7001 to 8000" in told(["synthetic:ward", "lspet:x:private"])
        assert "7001" not in told("synthetic:ward")
        assert "7001" not in " ".join(conditions(config("lspet:x:private", plan=PRIVATE)))

    def test_public_units_may_be_in_no_part(self):
        both = open_units(config("synthetic:studio:val", "synthetic:ward:val"), NANO)
        assert isinstance(both, KnownPictures)
        assert isinstance(both, CanonicalUnits)
        again = open_units(config("synthetic:ward:val"), NANO)
        with refused("public-unit-private", where="synthetic:ward:val/ward-val-0000"):
            check_disjoint(again, protect(both), 1, Console(quiet=True))

    def test_a_copy_saved_again_is_found_in_every_part(self):
        both = open_units(config("synthetic:studio:val", "synthetic:ward:val"), NANO)
        near = open_units(config("synthetic:ward:val"), NANO)
        near.content_hashes = lambda index: (f"other bytes {index}",)
        near.subjects = lambda index: ()
        with refused("public-unit-private", where="looks like a picture"):
            check_disjoint(near, protect(both), 1, Console(quiet=True))

    def test_a_private_picture_in_two_parts_is_refused_before_anything_is_made(self, monkeypatch, tmp_path):
        monkeypatch.setattr("dpose.runs.pose.open_units", lambda *_: doubled())
        chosen = config("synthetic:ward", "synthetic:studio", plan=PRIVATE)
        with refused("picture-in-two-units", where=("a/ward-val-00000", "b/ward-val-00000")):
            train_run(chosen, tmp_path / "run", Console(quiet=True))
        assert not (tmp_path / "run").exists()


def doubled():
    part = open_units(config("synthetic:ward:val"), NANO)
    assert isinstance(part, PoseUnits)
    return PoseUnits.joined([part, part], ["a", "b"])


def test_an_audit_takes_one():
    assert only_source(config("synthetic:ward"), "an audit") == "synthetic:ward"
    with refused("data-given-several", where=("audit", "--data")):
        only_source(config("synthetic:ward", "synthetic:studio"), "an audit")


class TestWatched:
    def test_the_public_split_of_the_first_that_has_one(self):
        assert str(watched(config("coco:/data/coco", "synthetic:studio"))) == "synthetic:studio:public"
        assert watched(config("coco:/data/coco")) is None

    @pytest.mark.parametrize("again", ["synthetic:ward:val", "synthetic:ward"])
    def test_none_of_the_protected_data(self, again):
        values = {"data": {"private": ["synthetic:studio", "synthetic:ward:val"], "validation_data": again}}
        with refused("watched-data-protected"):
            watched(RunConfig.from_dict({**values, "plan": PRIVATE}))  # evaluation's split is val

    def test_a_label_file_that_two_splits_share_is_one_dataset(self, pose_fixtures):
        root = pose_fixtures / "mpii"
        values = {"data": {"private": f"mpii:{root}:train", "validation_data": f"mpii:{root}:val"}, "plan": PRIVATE}
        with refused("watched-data-protected"):
            watched(RunConfig.from_dict(values))

    def test_a_split_called_public_is_not_watched_where_it_is_protected(self):
        assert watched(config("synthetic:ward:public", plan=PRIVATE)) is None
        assert watched(config("synthetic:ward:public")) is not None


class TestFirstWeights:
    def test_a_model_of_seventeen_joints_starts_one_of_sixteen(self, tmp_path):
        torch.manual_seed(0)
        coco = PoseModel(PoseConfig(preset="nano", skeleton="coco"))
        save_model(coco, tmp_path / "coco")
        made, _, caveats = build_model(config("mpii:/data/mpii", plan=PRIVATE, model={"init": str(tmp_path / "coco")}))
        assert "adapted from coco's joints to mpii's" in caveats[-1]
        shared = [name for name in COCO.joints if name in MPII.joints]
        assert len(shared) == 12
        for name in MPII.joints:
            row = made.head.joints.weight[MPII.joints.index(name)]
            carried = any(torch.equal(row, other) for other in coco.head.joints.weight)
            assert carried == (name in shared), name
            if carried:
                assert torch.equal(row, coco.head.joints.weight[COCO.joints.index(name)])
        assert torch.equal(made.head.x.weight, coco.head.x.weight)

    def test_imagenets_weights_under_a_fresh_head(self, monkeypatch):
        torch.manual_seed(3)
        theirs = timm.create_model("tiny_vit_5m_224", num_classes=0, window_sizes=[8, 8, 16, 8])
        real = timm.create_model

        def create(name, pretrained=False, **options):
            assert (name, pretrained) == ("tiny_vit_5m_224", True)
            made = real(name, **options)
            made.load_state_dict(theirs.state_dict())
            return made

        monkeypatch.setattr(timm, "create_model", create)
        values = {"preset": "5m", "init": "imagenet"}
        model, start, _ = build_model(config("coco:/data/coco", model=values))
        assert model.config.norm == "batch"
        stem = "patch_embed.conv1.conv.weight"
        assert torch.equal(model.backbone.get_parameter(stem), theirs.get_parameter(stem))
        assert (start.name, start.digest) == ("ImageNet", "")
        assert "ImageNet" in start.given
        # a run with a guarantee folds BatchNorm first
        private, _, _ = build_model(config("mpii:/data/mpii", plan=PRIVATE, model=values))
        assert private.config.norm == "folded"

    def test_where_they_are_from(self, tmp_path):
        scratch = build_model(config("mpii:/data/mpii", plan=PRIVATE, model={"strategy": "scratch"}))[1]
        assert not scratch.name
        assert build_model(config("mpii:/data/mpii", plan=PRIVATE))[1].name == "nano"
        save_model(PoseModel(PoseConfig(preset="nano")), tmp_path / "mine")
        named = build_model(config("mpii:/data/mpii", plan=PRIVATE, model={"init": str(tmp_path / "mine")}))[1]
        assert (named.name, named.statement, named.folder) == ("mine", None, str(tmp_path / "mine"))

    def test_for_another_size_the_head_is_resampled(self, tmp_path):
        values = {"preset": "lite0", "init": str(tmp_path), "input_size": (96, 64)}
        save_model(PoseModel(PoseConfig("lite0", (64, 48), norm="folded")), tmp_path)
        made, start, caveats = build_model(config("mpii:/data/mpii", plan=PRIVATE, model=values))
        assert (made.config.input_size, start.folder) == ((96, 64), str(tmp_path))
        assert "resampled from 64x48 pixels, stride 16, to 96x64, 16" in caveats[-1]
        assert build_model(config("mpii:/data/mpii", model={"init": str(tmp_path)}))[2] == []

    def test_logits_divided_by_a_temperature_are_told(self, tmp_path):
        saved = PoseModel(PoseConfig("lite0", (64, 48), norm="folded")).eval()
        save_model(saved, tmp_path)
        values = {"preset": "lite0", "init": str(tmp_path), "temperature": 2.0}
        made, _, caveats = build_model(config("mpii:/data/mpii", plan=PRIVATE, model=values))
        picture = torch.rand(1, 3, 64, 48) * 255
        for mine, theirs in zip(made.eval()(picture), saved(picture), strict=True):
            torch.testing.assert_close(mine, theirs / 2)
        assert caveats == ["the logits of the first weights were divided by 2"]
        plain = {**values, "temperature": 1.0}
        assert build_model(config("mpii:/data/mpii", plan=PRIVATE, model=plain))[2] == []

    def test_another_codec_has_a_fresh_head_which_is_told(self, tmp_path):
        saved = PoseModel(PoseConfig("lite0", (64, 48), norm="folded"))
        save_model(saved, tmp_path)
        values = {"preset": "lite0", "init": str(tmp_path), "codec": "heatmap"}
        made, again = (build_model(config("mpii:/data/mpii", plan=PRIVATE, model=values, seed=3))[0] for _ in range(2))
        assert (made.config.codec, made.config.input_size) == ("heatmap", (64, 48))
        assert torch.equal(made.backbone.conv_stem.weight, saved.backbone.conv_stem.weight)
        assert torch.equal(made.head.joints.weight, again.head.joints.weight)
        _, start, caveats = build_model(config("mpii:/data/mpii", plan=PRIVATE, model=values))
        assert (start.folder, caveats) == (str(tmp_path), ["the head is fresh: heatmap in the place of simcc"])
        fresh = config("mpii:/data/mpii", model={"preset": "lite0", "strategy": "scratch", "codec": "regression"})
        assert build_model(fresh)[0].config.codec == "regression"

    def test_a_temperature_is_for_a_codec_with_logits_that_the_first_weights_have(self, tmp_path):
        save_model(PoseModel(PoseConfig("lite0", (64, 48), norm="folded", codec="regression")), tmp_path)
        values = {"preset": "lite0", "init": str(tmp_path), "temperature": 2.0}
        with refused("temperature-without-bins", where="regression"):
            build_model(config("mpii:/data/mpii", plan=PRIVATE, model=values))
        with refused("temperature-of-fresh-head", where="simcc"):
            build_model(config("mpii:/data/mpii", plan=PRIVATE, model={**values, "codec": "simcc"}))
        # before a recipe's public stage, too
        with refused("temperature-without-bins", where="heatmap"):
            check_settings(config("mpii:/data/mpii", plan=PRIVATE, model={**values, "codec": "heatmap"}))

    @pytest.mark.parametrize("method", [PRIVATE, {"method": "non-private"}])
    @pytest.mark.parametrize(
        ("init", "code"), [("typo.safetensors", "weights-file-missing"), ("who.csv", "weights-of-no-kind")]
    )
    def test_a_file_that_is_none_of_weights_is_told_before_the_work(self, tmp_path, monkeypatch, init, code, method):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "who.csv").write_text("a.png,anna\n")
        asked = config("synthetic:ward", model={"init": init}, plan=method)
        with refused(code, where=init):
            explain_task(asked)
        with refused(code, where=init):
            build_model(asked)

    def test_a_temperature_without_first_weights_is_refused(self):
        values = {"preset": "lite0", "init": "imagenet", "temperature": 2.0}
        with refused("temperature-without-init"):
            build_model(config("mpii:/data/mpii", plan=PRIVATE, model=values))

    def test_the_weights_that_come_with_dpose_are_of_the_backbone_by_any_name(self, tmp_path, monkeypatch):
        shutil.copytree(files.SHIPPED / "nano", tmp_path / "lite0")
        monkeypatch.setattr(files, "SHIPPED", tmp_path)
        for preset in ("lite0", "timm:efficientnet_lite0"):
            asked = config("mpii:/data/mpii", model={"preset": preset})
            assert first_weights(asked) == tmp_path / "lite0"
        assert first_weights(config("mpii:/data/mpii")) is None
        from_photographs = config("mpii:/data/mpii", model={"preset": "lite0", "init": "imagenet"})
        assert first_weights(from_photographs) is None

    def test_imagenets_weights_that_cannot_be_had_are_one_line(self, monkeypatch, caplog):
        def offline(name, pretrained=False, **options):
            logging.getLogger("huggingface_hub.utils").warning("retrying")
            raise urllib.error.URLError("no\nnetwork" + " at all" * 100)

        monkeypatch.setattr(timm, "create_model", offline)
        with refused("pretrained-weights-unavailable") as raised:
            build_model(config("coco:/data/coco", model={"preset": "5m", "init": "imagenet"}))
        line = raised.value.line()
        assert "tiny_vit_5m_224" in line
        assert "no network" in line
        assert "--init" in line
        assert len(line) < 500
        assert not caplog.records

    @pytest.mark.parametrize(
        ("model", "words"),
        [
            ({"init": "imagenet"}, ("pretrained-weights-missing",)),
            ({"preset": "5m", "init": "imagenet", "strategy": "scratch"}, ("init-with-scratch", "--init")),
            ({"preset": "5m", "strategy": "full"}, ("init-missing", "--init")),
        ],
    )
    def test_what_does_not_go_together(self, model, words):
        with refused(*words):
            build_model(config("coco:/data/coco", model=model))


class TestPrecision:
    def test_bf16_by_itself_is_for_what_is_neither_clipped_nor_noised(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert precision(config("synthetic:ward")) == "bf16"
        assert precision(config("synthetic:ward", precision="float32")) == "float32"
        assert precision(config("synthetic:ward", plan={"method": "public-only"})) == "float32"
        assert precision(config("synthetic:ward", plan=PRIVATE)) == "float32"
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert precision(config("synthetic:ward")) == "float32"
        for method in ("dp-sgd", "pdp-sgd", "fdp-sgd", "fpdp-sgd"):
            asked = config("synthetic:ward", plan={**PRIVATE, "method": method}, precision="bf16")
            assert precision(asked) == "bf16"
        assert config("synthetic:ward", plan={"method": "public-only"}, precision="bf16")

    def test_bf16_is_for_poses(self):
        with refused("precision-unsupported", where="action"):
            RunConfig.from_dict(
                {
                    "task": "action",
                    "data": {"private": "synthetic"},
                    "plan": {"method": "non-private", "epochs": 1},
                    "precision": "bf16",
                }
            )

    def test_bf16_computes_nearly_the_same_gradient_in_float32_weights(self):
        torch.manual_seed(0)
        model = PoseModel(PoseConfig(preset="nano", norm="folded"))
        params = trainable_params(model)
        task = PoseTask()
        units = open_units(config("synthetic:studio:val"), NANO)
        batch = task.collate([units.load(i, np.random.default_rng(i)) for i in range(4)])
        exact, loss = mean_gradient(task, model, params, batch)
        rough, rough_loss = mean_gradient(PoseTask(precision="bf16"), model, params, batch)
        assert {g.dtype for g in rough.values()} == {torch.float32}
        assert rough_loss.dtype == torch.float32
        flat, other = (torch.cat([g.flatten() for g in found.values()]) for found in (exact, rough))
        assert not torch.equal(flat, other)
        assert torch.nn.functional.cosine_similarity(flat, other, dim=0) > 0.99
        assert float(rough_loss) == pytest.approx(float(loss), rel=0.01)


@pytest.mark.parametrize(
    ("data", "licence", "nobody"),
    [
        ({"private": "synthetic:ward"}, "Apache-2.0, rendered by dpose", False),
        ({"private": "synthetic:studio"}, "Apache-2.0, rendered by dpose", True),
        ({"private": "lspet:here:public"}, "not stated", True),
        ({"private": "lspet:here"}, "not stated", False),
        ({"private": ["lspet:here:public", "synthetic:studio"]}, "not stated", True),
        ({"private": ["lspet:here", "synthetic:studio"]}, "not stated", False),
        ({"private": "lspet:here", "public": "synthetic:studio"}, "Apache-2.0, rendered by dpose", False),
        ({"private": "synthetic:ward", "public": "coco:here"}, "not stated", False),
        ({"private": "synthetic:ward", "public": "coco:here", "public_licence": "CC-BY-4.0"}, "CC-BY-4.0", False),
    ],
)
def test_what_is_public_is_known_by_its_name_and_its_licence_if_it_is_our_own(data, licence, nobody):
    config = RunConfig.from_dict({"data": data, "plan": PRIVATE})
    assert (public_licence(config), shows_nobody(config)) == (licence, nobody)
