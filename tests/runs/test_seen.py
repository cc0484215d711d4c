"""First weights that have seen what a run protects: refused by name before any charge, and told."""

import json
import shutil
from dataclasses import replace

import cv2
import numpy as np
import pytest
from rich.console import Console

import dpose_scene.data as synthetic_module
import small_nano as small
from dpose import files
from dpose.account import charges
from dpose.cli import main
from dpose.media.images import write_image
from dpose.pose.data import DataSpec
from dpose.pose.folder import save_model
from dpose.pose.model import PoseConfig, PoseModel
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.config import RunConfig
from dpose.runs.evaluate import evaluate_run
from dpose.runs.reading import read_run
from dpose.runs.train import train_run
from dpose.runs.verify import verify_run
from dpose.training.first_weights import FirstWeights
from refusals import refused
from run_folders import sealed_again
from small_nano import small_nano  # noqa: F401

QUIET = Console(quiet=True)
ANNOTATION = {
    "id": 7, "image_id": 1, "category_id": 1, "iscrowd": 0, "num_keypoints": 17, "area": 900.0,
    "bbox": [20.0, 10.0, 40.0, 60.0], "keypoints": [v for j in range(17) for v in (22 + 2 * j, 12 + 3 * j, 1 + j % 2)],
}  # fmt: skip
PLAN = {"epsilon": 2.0, "delta": 1e-3, "epochs": 1, "expected_batch_size": 8, "accountant": "rdp"}
SECRET = {"datasets": [], "known": False, "licence": "Apache-2.0", "note": "trained on data that are not public"}


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(synthetic_module, "SPLITS", {"train": 12, "val": 6, "test": 6, "public": 6})


def picture(seed):
    noise = np.random.default_rng(seed).integers(0, 256, (90, 120, 3), np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 5)


def weights(place, **entry):
    """A model folder from elsewhere; with `trained_on` where anything is declared."""
    place.mkdir(parents=True)
    save_model(PoseModel(PoseConfig("nano", norm="folded")), place)
    if entry:
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, "trained_on": entry}))
    return place


def labelled(root, *, numbers=False, count=8, name="annotations/person_keypoints_val2017.json", **info):
    """Data in COCO's format, whose label file says `info` of itself."""
    names = [f"{i:012d}.jpg" if numbers else f"ward-{i}.png" for i in range(1, count + 1)]
    for i, file in enumerate(names, 1):
        write_image(root / "val2017" / file, picture(i))
    content = {
        "info": info,
        "images": [{"id": i, "file_name": f, "width": 120, "height": 90} for i, f in enumerate(names, 1)],
        "annotations": [{**ANNOTATION, "id": i, "image_id": i} for i in range(1, count + 1)],
        "categories": [{"id": 1, "name": "person"}],
    }
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(content))
    return root


OWN = {"description": "COCO 2017 Dataset", "url": "http://cocodataset.org"}


def run(out, init, data="synthetic:ward:train", plan=PLAN, **model):
    config = {"data": {"private": data, "validation_data": "none"}, "plan": plan}
    config["model"] = {"preset": "nano", "strategy": "light", "init": init and str(init), **model}
    return train_run(RunConfig.from_dict(config), out, QUIET)


class TestWhichSet:
    def test_coco_says_so_itself_and_else_its_pictures_are_numbered(self, tmp_path):
        def names(root, spec="coco", split="val"):
            return DataSpec.parse(f"{spec}:{root}:{split}").set_names

        own = names(labelled(tmp_path / "a", **OWN))
        assert (own.notes, own.sets) == (("coco:val",), ("coco:val",))
        numbered = names(labelled(tmp_path / "b", numbers=True))
        assert (numbered.notes, numbered.sets) == (("folder b:val",), ("coco",))
        assert numbered.declared.sets == ()
        ward = names(labelled(tmp_path / "coco"))  # a folder that is called by its format
        assert (ward.notes, ward.sets, ward.whole) == (("folder coco:val",), (), True)
        assert names(labelled(tmp_path / "crowdpose")).sets == ("crowdpose",)
        other = labelled(tmp_path / "c", name="ochuman_val.json")
        assert names(f"{other}", split="val,annotations=ochuman_val.json").sets == ("ochuman",)
        assert names(labelled(tmp_path / "d", name="one.json", **OWN)).notes == ("coco",)  # of all splits
        assert DataSpec.parse("mpii:/nowhere:val").set_names.sets == ("mpii:val",)
        assert DataSpec.parse("synthetic:ward:val").set_names.sets == ("synthetic-ward:val",)

    def test_yolo_says_so_in_its_settings(self, tmp_path):
        for name, path in (("a", "coco8-pose"), ("b", "."), ("coco", "coco")):
            root = tmp_path / name
            write_image(root / "images" / "train" / "one.png", picture(1))
            (root / "data.yaml").write_text(f"path: {path}\ntrain: images/train\nkpt_shape: [17, 3]\n")
        found = [DataSpec.parse(f"yolo:{tmp_path / n}:train").set_names.sets for n in ("a", "b", "coco")]
        assert found == [("coco",), (), ()]


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "how"), [("vitpose-coco-aic-mpii", "as their name says"), ("m", "as model.init_data says")]
    )
    def test_by_name_of_the_source_or_of_what_the_data_are_before_anything_is_charged(self, tmp_path, name, how):
        folder, said = weights(tmp_path / name), "coco,mpii" if name == "m" else None
        private = labelled(tmp_path / "mine", **OWN)
        for data in (f"coco:{private}:val", f"mpii:{tmp_path}:train", f"coco:{labelled(tmp_path / 'crowdpose')}:val"):
            with refused("first-weights-learnt-from-units", where=(how, "non-private")) as caught:
                run(tmp_path / "run", folder, data, init_data=said)
            assert "\n" not in caught.value.line()
        shutil.rmtree(tmp_path / "crowdpose")
        assert not (tmp_path / "run").exists()
        assert charges() == []

    def test_the_trainer_itself_refuses_whoever_calls_it(self, tmp_path):
        from dpose.pose.data import open_data
        from dpose.pose.task import PoseTask
        from dpose.training.options import RunOptions
        from dpose.training.plan import TrainingPlan
        from dpose.training.trainer import train

        units = open_data(f"coco:{labelled(tmp_path / 'mine', numbers=True)}:val", input_size=(64, 48))
        start = FirstWeights.of(weights(tmp_path / "pose-coco"))
        model = PoseModel(PoseConfig("nano", norm="folded"))
        with refused("first-weights-learnt-from-units", where="COCO"):
            train(
                PoseTask(), model, private=units, plan=TrainingPlan(**PLAN), out=tmp_path / "run",
                options=RunOptions(start=start, console=QUIET),
            )  # fmt: skip
        assert not (tmp_path / "run").exists()
        assert charges() == []

    def test_on_the_command_line_in_one_line(self, tmp_path, capsys):
        private = labelled(tmp_path / "mine", **OWN)
        words = ["train", "--data", f"coco:{private}:val", "--epsilon", "2", "--delta", "1e-3"]
        words += [
            "--init",
            str(weights(tmp_path / "m")),
            "--set",
            "model.init_data=crowdpose",
            "--out",
            str(tmp_path / "run"),
        ]
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "CrowdPose (as model.init_data says), and COCO's val split may have pictures in common" in line
        assert main([*words[:-4], "--set", "model.init_data=,", *words[-2:]]) == 2
        assert "[trained-on-missing]" in capsys.readouterr().err

    def test_public_training_is_not(self, tmp_path):
        folder = weights(tmp_path / "pose-coco")
        private = labelled(tmp_path / "mine", **OWN)
        plan = {"method": "non-private", "epochs": 1, "expected_batch_size": 8}
        run(tmp_path / "run", folder, f"coco:{private}:val", plan=plan)
        entry = json.loads((tmp_path / "run" / "config.json").read_text())["trained_on"]
        assert (entry["datasets"], entry["known"]) == (["coco", "coco:val"], False)
        verify_run(tmp_path / "run")


class TestTold:
    def test_data_in_the_format_that_are_not_known_to_be_the_set_are_a_condition(self, tmp_path):
        private = labelled(tmp_path / "ward")
        done = run(tmp_path / "run", weights(tmp_path / "pose-coco"), f"coco:{private}:val")
        named, rest = done.statement.conditional_on
        assert named.startswith("no protected image is a picture of COCO, which the first weights (sha256 ")
        assert rest.startswith("no protected image was among the data that the first weights (sha256 ")
        assert verify_run(tmp_path / "run").statement == done.statement
        assert "* COCO\n* folder ward:val, under the guarantee above" in (tmp_path / "run" / "README.md").read_text()

    def test_where_nothing_is_known_that_is_a_condition_with_licence_and_note(self, tmp_path):
        folder = weights(tmp_path / "foreign", **SECRET)
        done = run(tmp_path / "run", folder)
        (line,) = done.statement.conditional_on
        assert line.startswith("no protected image was among the data that the first weights (sha256 ")
        assert line.endswith("which are not known: trained on data that are not public")
        (given,) = done.statement.inputs
        assert given.licence == "Apache-2.0"
        entry = json.loads((tmp_path / "run" / "config.json").read_text())["trained_on"]
        assert (entry["known"], entry["note"], entry["licence"]) == (False, SECRET["note"], "Apache-2.0")
        assert (
            "* more that is not known: trained on data that are not public"
            in (tmp_path / "run" / "README.md").read_text()
        )

    def test_so_it_is_of_weights_that_come_with_dpose_and_need_no_statement(self, tmp_path, monkeypatch):
        shipped = tmp_path / "shipped"
        folder = weights(shipped / "blaze", **SECRET)
        monkeypatch.setattr(files, "SHIPPED", shipped)
        done = run(tmp_path / "run", folder)
        (fact,) = [line for line in done.statement.public if line.startswith("the first weights, ")]
        assert fact.endswith("which come with dpose: trained on data that are not public")
        (line,) = done.statement.conditional_on
        assert line.startswith("no protected image was among the data")
        (given,) = done.statement.inputs
        assert given.licence == "Apache-2.0"
        verify_run(tmp_path / "run")
        # told by the digest, whatever a folder says: word for word, with the licence
        config = json.loads((tmp_path / "run" / "config.json").read_text())
        config["run"]["first_weights"]["conditional_on"] = []
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        sealed_again(tmp_path / "run", replace(done.statement, conditional_on=()))
        with refused("statement-sentence-missing", where=("conditional_on", "protected image was among")):
            verify_run(tmp_path / "run", tmp_path / "elsewhere")
        other = (replace(given, licence="MIT"),)
        sealed_again(tmp_path / "run", replace(done.statement, inputs=other))
        with refused("inputs-licence-missing"):
            verify_run(tmp_path / "run", tmp_path / "elsewhere")

    def test_dposes_own_weights_add_nothing(self, tmp_path):
        done = run(tmp_path / "run", None)
        assert done.statement.conditional_on == ()
        with refused("init-data-without-init"):
            run(tmp_path / "other", None, init_data="coco", strategy="scratch")


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Two private runs, one after the other, from weights that saw COCO and AI Challenger."""
    place = tmp_path_factory.mktemp("chain")
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch)
        patch.setattr(synthetic_module, "SPLITS", {"train": 12, "val": 6, "test": 6, "public": 6})
        run(place / "first", weights(place / "vitpose-coco-aic"))
        run(place / "second", place / "first", "synthetic:ward:test")
    return place


@pytest.fixture
def second(chain, tmp_path):
    return shutil.copytree(chain / "second", tmp_path / "second")


def changed(folder, change, statement=None):
    """The folder with its configuration changed, sealed again; of a machine that never saw it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    sealed_again(folder, statement)


def nothing(config):
    """No change."""


class TestInherited:
    def test_along_a_chain_of_runs_the_third_is_refused(self, chain, tmp_path):
        assert verify_run(chain / "second").statement.conditional_on
        entry = json.loads((chain / "second" / "config.json").read_text())["trained_on"]
        assert entry["datasets"] == ["coco", "aic"]
        assert set(entry["protected"]) == {"synthetic-ward:train", "synthetic-ward:test"}
        private = labelled(tmp_path / "mine", **OWN)
        for start in (chain / "second", chain / "second" / "model.safetensors"):
            assert FirstWeights.of(start).learnt.datasets == ("coco", "aic")
        with refused("first-weights-learnt-from-units", where=("COCO", "config.json", "COCO's val split")):
            run(tmp_path / "third", chain / "second", f"coco:{private}:val")
        with refused("first-weights-learnt-from-units", where="CrowdPose"):
            run(tmp_path / "third", chain / "second", f"coco:{labelled(tmp_path / 'crowdpose')}:val")
        assert charges() == []

    def test_a_condition_that_was_taken_out_is_missed(self, second):
        before = PrivacyStatement.from_json((second / "privacy.json").read_text())
        assert len(before.conditional_on) > 1
        for line in before.conditional_on:
            silent = replace(before, conditional_on=tuple(x for x in before.conditional_on if x != line))
            changed(second, nothing, silent)
            with refused("statement-sentence-missing", where="conditional_on"):
                verify_run(second, second.parent / "elsewhere")
            softer = replace(silent, conditional_on=(*silent.conditional_on, line.replace("COCO", "nothing") + "."))
            changed(second, nothing, softer)
            with refused("statement-sentence-missing", where="conditional_on"):
                verify_run(second, second.parent / "elsewhere")
        changed(second, nothing, before)
        verify_run(second, second.parent / "elsewhere")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda c: c.pop("trained_on"), ("trained-on-missing",)),
            (lambda c: c["run"].pop("first_weights"), ("trained-on-missing",)),
            (lambda c: c["trained_on"].update(datasets=["aic"]), ("first-weights-left-out", "coco")),
            (lambda c: c["trained_on"].update(known=True), ("first-weights-called-known",)),
            (lambda c: c["trained_on"].update(note="all is well"), ("first-weights-licence-differs",)),
            (
                lambda c: c["trained_on"].update(protected=["synthetic-studio"]),
                ("first-weights-left-out", "synthetic-ward:train"),
            ),
            (lambda c: c["run"]["first_weights"].update(sha256="ab" * 32), ("first-weights-altered",)),
            (lambda c: c["run"]["data"].update(private="lspet:x:private"), ("run-data-left-out", "lspet:private")),
        ],
    )
    def test_so_is_what_the_configuration_must_say(self, second, change, said):
        changed(second, change)
        with refused(*said):
            verify_run(second, second.parent / "elsewhere")


class TestScored:
    def test_a_score_on_a_set_that_was_seen_says_so_once_in_the_file_and_in_the_report(self, chain, tmp_path, capsys):
        folder = shutil.copytree(chain / "second", tmp_path / "second")
        data = f"coco:{labelled(tmp_path / 'mine', **OWN)}:val"
        evaluate_run(folder, data, console=Console(width=1000))
        told = [line for line in capsys.readouterr().out.splitlines() if "have seen the set" in line]
        assert len(told) == 1
        assert "they learnt from COCO, as their config.json says" in told[0]
        (file,) = (folder / "evaluations").glob("*.json")
        assert json.loads(file.read_text())["seen"] == told[0]
        assert told[0] in (folder / "report.html").read_text()
        assert [each.seen for each in read_run(folder).evaluations] == [told[0]]

    def test_one_on_another_does_not(self, tmp_path, capsys):
        run(tmp_path / "run", None)
        evaluate_run(tmp_path / "run", "synthetic:studio:val", console=Console())
        assert "seen the set" not in capsys.readouterr().out
