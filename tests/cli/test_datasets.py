"""The whole path on real pictures: pretrain on several data, adapt the head, train privately, score."""

import json
import shutil

import numpy as np
import pytest
import torch
import yaml

import dpose_scene.data as synthetic_module
from dpose.cli import main
from dpose.media.images import write_image
from dpose.pose.codec import CODECS, RegressionCodec, register_codec
from dpose.pose.folder import load_model
from small_nano import small_nano  # noqa: F401
from tiers import rest_slow

SMALL = {"train": 10, "val": 6, "test": 6, "public": 4}
PUBLIC = ["train", "--method", "non-private", "--epochs", "1", "--batch-size", "7", "--set", "microbatch_size=4"]
PRIVATE = ["--method", "dp-sgd", "--epsilon", "8", "--delta", "1e-2", "--set", "plan.accountant=rdp", "--epochs", "1"]


@pytest.fixture(autouse=True)
def _small_and_local(monkeypatch, tmp_path):
    monkeypatch.setattr(synthetic_module, "SPLITS", SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def pretrained(pose_fixtures, tmp_path_factory):
    """A public run on COCO's pictures and rendered ones, of COCO's joints; tests only read it."""
    folder = tmp_path_factory.mktemp("pretrained") / "coco"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder.parent / "state"))
        patch.setattr(synthetic_module, "SPLITS", SMALL)
        data = ["--data", f"coco:{pose_fixtures}/coco", "--data", "synthetic:studio", "--set", "precision=bf16"]
        assert main([*PUBLIC, *data, "--strategy", "scratch", "--out", str(folder)]) == 0
    return folder


def command_refused(capsys, arguments, *words):
    assert main([str(a) for a in arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    for word in words:
        assert word in line, line


def lines(run, kind):
    found = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in found if line["type"] == kind]


class TestPretraining:
    def test_two_data_are_one_with_the_joints_of_the_first(self, pretrained, pose_fixtures):
        config = json.loads((pretrained / "config.json").read_text())
        assert config["run"]["data"]["private"] == ["coco:coco", "synthetic:studio"]
        assert config["run"]["precision"] == "bf16"
        assert (config["model"]["skeleton"], config["run"]["microbatch_size"]) == ("coco", 4)
        assert lines(pretrained, "start")[0]["n"] == 4 + SMALL["train"]
        assert len(lines(pretrained, "step")) == 2
        # the other data's public split is watched, by its own joints' metric
        (score, *_rest) = lines(pretrained, "score")
        assert score["data"] == "synthetic:studio:public, 4 units"
        assert score["result"]["metric"] == "PCKh"
        assert score["result"]["columns"]["Mean"] is not None
        report = (pretrained / "report.html").read_text()
        assert "coco:coco:train and synthetic:studio:train" in report
        assert "data:image/" in report

    def test_what_is_told_of_data_is_told_as_it_is(self, pose_fixtures, capsys):
        """Nothing of "coco:train:" is a picture of a tram, and no bracket in a file's name is a style."""
        assert main(["data", "check", f"coco:{pose_fixtures}/coco", "--out", "sheet [bold].png"]) == 0
        shown = capsys.readouterr().out
        assert "coco:train: 4 pictures, 12 people" in shown
        assert "Contact sheet: sheet [bold].png" in shown

    def test_a_stopped_run_on_two_data_goes_on(self, pretrained, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(pretrained.parent / "state"))  # which knows where the data lie
        run = shutil.copytree(pretrained, tmp_path / "run")
        wanted = dict(load_model(run).named_parameters())
        (run / "model.safetensors").unlink()
        assert main(["train", "--resume", str(run)]) == 0
        assert all(torch.equal(p, wanted[name]) for name, p in load_model(run).named_parameters())

    def test_it_is_scored_with_a_detectors_boxes(self, pretrained, pose_fixtures, tmp_path, capsys):
        run = shutil.copytree(pretrained, tmp_path / "run")
        capsys.readouterr()
        arguments = ["--data", f"coco:{pose_fixtures}/coco", "--detections", "test_coco_det_AP_H_56.json"]
        assert main(["evaluate", str(run), *arguments]) == 0
        shown = capsys.readouterr().out
        assert "118 of test_coco_det_AP_H_56.json" in shown
        assert "12 people in 4 pictures" in shown
        (written,) = (run / "evaluations").iterdir()
        assert json.loads(written.read_text())["result"]["metric"] == "OKS AP"
        # and compared: AP and PCKh have columns of their own, in percent
        assert main(["compare", str(run)]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "OKS AP" in shown
        assert (tmp_path / "comparison.png").stat().st_size > 0


class TestAdapting:
    @pytest.fixture
    def adapted(self, pretrained, pose_fixtures, tmp_path, capsys):
        capsys.readouterr()
        data = ["--data", f"mpii:{pose_fixtures}/mpii,annotations=test_mpii.json", "--batch-size", "5"]
        arguments = ["train", *data, "--init", str(pretrained), *PRIVATE, "--set", "optimizer.lr=1e-9", "--out", "m"]
        assert main(arguments) == 0
        return tmp_path / "m"

    def test_five_people_run_and_are_warned_of(self, adapted, pose_fixtures, capsys):
        assert "5 units are few" in capsys.readouterr().out
        config = json.loads((adapted / "config.json").read_text())
        assert config["run"]["data"]["private"] == "mpii:mpii,annotations=test_mpii.json"
        assert config["run"]["precision"] == "float32"
        statement = json.loads((adapted / "privacy.json").read_text())
        assert statement["n"] == 5
        assert any("adapted from coco's joints to mpii's" in caveat for caveat in statement["caveats"])
        assert main(["verify", str(adapted)]) == 0

    def test_twelve_rows_are_carried_over_by_name(self, adapted, pretrained):
        from dpose.pose.skeletons import COCO, MPII

        before, after = load_model(pretrained).head.joints.weight, load_model(adapted).head.joints.weight
        # at a learning rate of 1e-9 the noise moves no weight by as much as fresh rows differ
        near = {
            name
            for row, name in zip(after, MPII.joints, strict=True)
            if name in COCO.joints and (row - before[COCO.joints.index(name)]).abs().max() < 1e-6
        }
        assert near == set(MPII.joints) & set(COCO.joints)
        assert len(near) == 12
        for name in ("upper_neck", "head_top", "pelvis", "thorax"):
            assert ((after[MPII.joints.index(name)] - before).abs().amax(dim=1) > 1e-3).all()


class TestJointsOfItsOwn:
    def test_a_model_learns_and_is_scored_on_them(self, tmp_path, capsys):
        root = tmp_path / "owls"
        rng = np.random.default_rng(0)
        for split in ("train", "val"):
            folder = root / "images" / split
            lines = []
            for k in range(4):
                patches = rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
                write_image(folder / f"{k}.png", patches.repeat(8, 0).repeat(8, 1))
                lines.append(f"0 0.5 0.5 0.8 0.8 0.5 0.3 2 0.{k + 1} 0.5 2 0.7 0.5 1\n")
            (root / "labels" / split).mkdir(parents=True)
            for k, line in enumerate(lines):
                (root / "labels" / split / f"{k}.txt").write_text(line)
        (root / "data.yaml").write_text(
            "train: images/train\nval: images/val\nnames: {0: owl}\nkpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n"
            "kpt_names: {0: [beak, left_wing, right_wing]}\n"
        )
        data = ["--data", f"yolo:{root}", "--strategy", "full", "--set", "optimizer.lr=1e-3"]
        assert main(["train", *data, *PRIVATE, "--batch-size", "2", "--out", "owl"]) == 0
        config = json.loads((tmp_path / "owl" / "config.json").read_text())
        assert config["model"]["skeleton"]["joints"] == ["beak", "l_wing", "r_wing"]
        assert main(["verify", "owl"]) == 0
        _, front, _ = (tmp_path / "owl" / "README.md").read_text().split("---\n", 2)
        card = yaml.safe_load(front)
        assert card["pipeline_tag"] == "keypoint-detection"
        assert card["tags"] == ["pose", "differential_privacy", "dp-sgd"]
        assert 7.9 < card["differential_privacy"]["epsilon"] <= 8
        assert card["differential_privacy"]["delta"] == 0.01
        capsys.readouterr()
        assert main(["evaluate", "owl", "--data", f"yolo:{root}"]) == 0
        assert "4 people in 4 pictures" in capsys.readouterr().out
        # a score is listed in the statement and in the card, which keeps its metadata
        again = (tmp_path / "owl" / "README.md").read_text()
        assert again.startswith(f"---\n{front}---\n")
        assert main(["verify", "owl"]) == 0
        picture = str(root / "images" / "val" / "0.png")
        assert main(["predict", "owl", picture, "--out", "p.png", "--json", "found.json"]) == 0
        assert main(["evaluate", "--predictions", "found.json", "--data", f"yolo:{root}"]) == 0


class TestPrivateOnSeveral:
    def test_units_of_both_are_counted_and_protected(self, pose_fixtures, tmp_path, capsys):
        data = ["--data", f"mpii:{pose_fixtures}/mpii", "--data", "synthetic:ward"]
        assert main(["train", *data, *PRIVATE, "--batch-size", "5", "--out", "both"]) == 0
        statement = json.loads((tmp_path / "both" / "privacy.json").read_text())
        assert statement["n"] == 5 + SMALL["train"]
        assert main(["verify", "both"]) == 0
        # the score while training is of the ward's public split, not of what is protected
        assert {line["data"] for line in lines(tmp_path / "both", "score")} == {"synthetic:ward:public, 4 units"}
        capsys.readouterr()
        (tmp_path / "link").symlink_to(pose_fixtures)
        for data in (f"mpii:{pose_fixtures}/mpii", "mpii:link/mpii:train", "synthetic:ward:train"):
            command_refused(capsys, ["evaluate", "both", "--data", data], "[scored-data-protected]")
        assert main(["evaluate", "both", "--data", "synthetic:ward:val"]) == 0

    @pytest.mark.parametrize("slow", [False, True])
    def test_in_bfloat16(self, slow, capsys, monkeypatch, tmp_path):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": not slow}, raising=False)
        arguments = ["train", "--data", "synthetic:ward", *PRIVATE, "--set", "precision=bf16"]
        assert main([*arguments, "--set", "microbatch_size=4", "--out", "short"]) == 0
        assert ("slower on it than float32" in capsys.readouterr().out) == slow
        config = json.loads((tmp_path / "short" / "config.json").read_text())
        assert (config["run"]["precision"], config["run"]["microbatch_size"]) == ("bf16", 4)
        assert main(["verify", "short"]) == 0
        assert {p.dtype for p in load_model(tmp_path / "short").parameters()} == {torch.float32}


class TestMistakes:
    def test_annotations_of_whom(self, capsys):
        both = ["--data", "coco:/a", "--data", "mpii:/b", "--annotations", "labels.json", "--out", "run"]
        command_refused(capsys, [*PUBLIC, *both], "--annotations is now --data NAME:ROOT,annotations=labels.json")

    def test_annotations_of_data_that_have_none(self, capsys):
        command_refused(
            capsys,
            [*PUBLIC, "--data", "synthetic:studio,annotations=labels.json", "--out", "run"],
            "synthetic takes no option annotations",
        )

    def test_one_of_several_is_absent(self, capsys):
        command_refused(capsys, [*PUBLIC, "--data", "synthetic:studio", "--data", "coco:/b", "--out", "run"], "/b")

    def test_the_same_twice(self, capsys, pose_fixtures):
        coco = f"coco:{pose_fixtures}/coco"
        command_refused(
            capsys, [*PUBLIC, "--data", coco, "--data", f"{coco}:val", "--out", "run"], "[data-given-twice]"
        )

    def test_public_units_among_several(self, capsys):
        data = ["--data", "synthetic:studio", "--data", "synthetic:ward", "--public", "synthetic:ward:train"]
        arguments = ["train", *data, *PRIVATE, "--method", "pdp-sgd", "--out", "run"]
        command_refused(capsys, arguments, "[public-data-private]")
        command_refused(capsys, arguments, "the private ones; name data of other people, or leave it out")

    def test_a_precision_that_there_is_not(self, capsys):
        command_refused(
            capsys, [*PUBLIC, "--data", "synthetic:ward", "--set", "precision=half", "--out", "run"], "precision"
        )


class TestCodecs:
    @pytest.fixture(autouse=True)
    def _from_outside(self):
        class Mine(RegressionCodec):
            """Places that no score is told of."""

            def decode(self, outputs):
                places, scores = super().decode(outputs)
                return places, torch.ones_like(scores)

        register_codec("mine", Mine.of)
        yield
        del CODECS["mine"]

    @pytest.mark.parametrize("codec", rest_slow(["heatmap", "regression", "mine"], 2))
    def test_a_private_run_scores_and_verifies(self, codec, tmp_path, capsys):
        arguments = [
            "train",
            "--data",
            "synthetic:ward",
            "--set",
            f"model.codec={codec}",
            *PRIVATE,
            "--batch-size",
            "5",
        ]
        assert main([*arguments, "--out", "run"]) == 0
        run = tmp_path / "run"
        config = json.loads((run / "config.json").read_text())
        assert (config["model"]["codec"], config["run"]["model"]["codec"]) == (codec, codec)
        caveats = json.loads((run / "privacy.json").read_text())["caveats"]
        assert f"the head is fresh: {codec} in the place of simcc" in caveats
        assert main(["verify", "run"]) == 0
        capsys.readouterr()
        assert main(["evaluate", "run", "--data", "synthetic:ward:test"]) == 0
        assert "PCKh" in capsys.readouterr().out
        picture = np.random.default_rng(0).integers(0, 256, (80, 60, 3), np.uint8)
        write_image(tmp_path / "picture.png", picture)
        assert main(["predict", "run", "picture.png", "--out", "pose.png"]) == 0

    def test_what_is_not_possible_is_one_line(self, capsys):
        arguments = ["train", "--data", "synthetic:ward", *PRIVATE, "--batch-size", "5", "--out", "run"]
        command_refused(capsys, [*arguments, "--set", "model.codec=heat"], "no codec heat", "simcc, heatmap")
        command_refused(
            capsys,
            [*arguments, "--set", "model.codec=heatmap", "--set", "model.temperature=2"],
            "model.temperature=2",
            "heatmap",
        )
