"""What weights have learnt from by names: the table of public sets, what weights say, what follows."""

import json

import pytest

from dpose.known_sets import KNOWN_SETS, SetNames, set_called, sets_in, shared, shares_pictures
from dpose.training.first_weights import FirstWeights
from dpose.training.trained_on import (
    NOTHING,
    TrainedOn,
    check_unseen,
    conditions_of,
    learnt_by_run,
    said_by_user,
    seen_line,
    trained_on,
)
from refusals import refused


class TestTable:
    @pytest.mark.parametrize(
        ("name", "key"),
        [
            ("COCO", "coco"), ("MS-COCO", "coco"), ("coco2017", "coco"), ("coco_val2014", "coco"),
            ("coco-stuff", "coco"),
            ("COCO-WholeBody", "coco-wholebody"), ("wholebody", "coco-wholebody"), ("AI Challenger", "aic"),
            ("aic", "aic"), ("MPII Human Pose", "mpii"), ("mpii:val", "mpii"), ("Human3.6M", "h36m"), ("3DPW", "3dpw"),
            ("ImageNet-21k", "imagenet"), ("in22k", "imagenet"), ("PoseTrack18", "posetrack"),
            ("lsp_extended", "lspet"),
            ("MPI-INF-3DHP", "mpi-inf-3dhp"), ("MPII-Gaze", ""), ("our ward", ""), ("folder coco:train", ""), ("", ""),
        ],
    )  # fmt: skip
    def test_names_are_known_whatever_their_case_and_dashes(self, name, key):
        assert set_called(name) == key

    @pytest.mark.parametrize(
        ("text", "keys"),
        [
            ("vitpose-b-multi-coco-aic-mpii.pth", ("coco", "aic", "mpii")),
            ("td-hm_hrnet-w48_8xb32-210e_coco-wholebody-384x288.pth", ("coco-wholebody",)),
            ("rtmpose-m_simcc-body7_pt-aic-coco_420e-256x192", ("body7", "aic", "coco")),
            ("models--usyd-community--vitpose-plus-base", ("vitpose-plus",)),
            ("tiny_vit_5m_224.dist_in22k_ft_in1k", ("imagenet",)),
            ("mvit_v1_b_kinetics400.safetensors", ("kinetics",)),
            ("coconut-512.pth", ()),
            ("lite0.safetensors", ()),
        ],
    )
    def test_words_of_a_files_name(self, text, keys):
        assert sets_in(text) == keys

    @pytest.mark.parametrize(
        ("one", "other", "share"),
        [
            ("coco", "crowdpose", True), ("mpii", "crowdpose", True), ("coco", "ochuman", True),
            ("coco", "halpe", True),
            ("coco", "humanart", True), ("coco", "coco-reid", True), ("coco", "densepose", True),
            ("mpii", "mpii-trb", True),
            ("mpii", "posetrack", True), ("lsp", "lspet", True), ("lspet", "up3d", True), ("hmdb51", "pahmdb", True),
            ("hmdb51", "jhmdb", True), ("mpii", "body8", True), ("ochuman", "body8", True), ("ochuman", "body7", True),
            ("crowdpose", "posetrack", True),  # both have MPII's
            ("coco", "mpii", False), ("aic", "coco", False), ("lspet", "mpii", False), ("3dpw", "h36m", False),
            ("imagenet", "coco", False), ("mpii", "mpi-inf-3dhp", False), ("ward a", "ward b", False),
            ("ward a", "Ward A", True),
            ("coco:train", "coco:val", False), ("coco", "coco:val", True), ("coco:val", "coco:val", True),
            ("coco:val", "crowdpose:test", True),
            ("lspet:public", "lspet:private", False), ("lspet:choosing-train", "lspet:private", True),
            ("lspet:choosing-train", "lspet:choosing-test", False),
        ],
    )  # fmt: skip
    def test_relations_hold_both_ways(self, one, other, share):
        assert shares_pictures(one, other) is share
        assert shares_pictures(other, one) is share

    def test_every_key_and_alias_is_its_own_and_every_origin_is_there(self):
        names = [set_called(name) for key, known in KNOWN_SETS.items() for name in (key, *known.aliases)]
        assert names == [key for key, known in KNOWN_SETS.items() for _ in (key, *known.aliases)]
        assert {origin for known in KNOWN_SETS.values() for origin in known.of} <= set(KNOWN_SETS)

    def test_rendered_people_are_nobody(self):
        assert shared(["synthetic-ward:train", "mpii"], ["synthetic-ward:train"]) is None
        assert shared(["synthetic-ward", "mpii"], ["synthetic-ward", "crowdpose"]) == ("mpii", "crowdpose")


def model_folder(place, **config):
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(config))
    (place / "model.safetensors").write_bytes(b"weights")
    return place


class TestTold:
    def test_an_entry_is_taken_word_for_word_and_the_folders_name_says_nothing(self, tmp_path):
        entry = {"datasets": ["coco", "Our Own"], "known": True, "licence": "Apache-2.0", "note": "by us"}
        folder = model_folder(tmp_path / "vitpose-mpii", trained_on=entry)
        found = trained_on(folder)
        assert found == TrainedOn(("coco", "Our Own"), True, "Apache-2.0", "by us", how="as their config.json says")
        assert trained_on(folder / "model.safetensors") == found
        assert TrainedOn.from_dict(found.to_dict(), "x", found.how) == found

    @pytest.mark.parametrize(
        "entry", [None, [], {}, {"datasets": "coco"}, {"datasets": [1]}, {"datasets": [], "known": "yes"},
                  {"datasets": [], "license": "MIT"}, {"datasets": [], "note": 3}],
    )  # fmt: skip
    def test_an_entry_that_is_none_is_refused_in_one_line(self, tmp_path, entry):
        folder = model_folder(tmp_path / "m", trained_on=entry)
        with refused(("trained-on-field-unknown", "trained-on-missing"), where="config.json, trained_on") as caught:
            trained_on(folder)
        assert "\n" not in caught.value.line()

    def test_of_weights_from_elsewhere_card_configuration_and_names_are_read(self, tmp_path):
        folder = model_folder(tmp_path / "vitpose-base-aic", _name_or_path="someone/pose-coco")
        card = "---\ndatasets: [crowdpose]\nlicense: apache-2.0\n---\n# A model\n\nIt was fine-tuned on Halpe.\nIt is "
        (folder / "README.md").write_text(card + "\n\nbetter than others on OCHuman.\n")
        found = trained_on(folder)
        assert set(found.datasets) == {"aic", "coco", "crowdpose", "halpe"}
        assert (found.known, found.licence) == (False, "apache-2.0")
        assert found.how == "as their name says and as their config.json says and as their model card says"

    def test_a_file_is_told_by_its_name_and_a_nameless_one_by_its_folder(self, tmp_path):
        file = tmp_path / "hrnet_w32_coco_256x192.pth"
        file.touch()
        assert trained_on(file) == TrainedOn(("coco",), how="as their name says")
        nameless = tmp_path / "models--someone--vitpose-mpii" / "snapshots" / "0f3a" / "pytorch_model.bin"
        nameless.parent.mkdir(parents=True)
        nameless.touch()
        assert trained_on(nameless).datasets == ("mpii",)
        assert trained_on(file, called="hf:someone/pose-aic").datasets == ("aic", "coco")
        plain = tmp_path / "pose.pth"
        plain.touch()
        assert trained_on(plain) == TrainedOn()

    def test_what_the_user_says_is_added_and_takes_nothing_back(self, tmp_path):
        file = tmp_path / "vitpose-coco.pth"
        file.touch()
        found = trained_on(file, "AI Challenger, mpii:train,our own")
        assert (found.datasets, found.known) == (("coco", "aic", "mpii:train", "our own"), True)
        assert "model.init_data" in found.how
        assert trained_on(file, "unknown") == trained_on(file)
        assert not said_by_user("coco,unknown").known
        folder = model_folder(tmp_path / "m", trained_on={"datasets": [], "note": "not public"})
        assert not trained_on(folder, "coco").known  # whoever made them says that there is more
        with refused("trained-on-missing"):
            said_by_user(" , ")

    def test_weights_that_come_with_dpose_know_what_they_saw(self):
        from dpose import files

        assert trained_on(files.SHIPPED / "nano").datasets == ("synthetic-studio:large",)
        assert trained_on(files.SHIPPED / "lite0").datasets == ("imagenet", "synthetic-studio:large")
        assert trained_on(files.SHIPPED / "nano").known
        assert trained_on(files.SHIPPED / "lite0").known
        assert FirstWeights.of(files.SHIPPED / "lite0").licence == "Apache-2.0"

    def test_a_run_passes_on_what_its_first_weights_saw(self):
        first = TrainedOn(("coco",), True, "MIT", "a note")
        own, none = SetNames(("lspet:private",), ("lspet:private",), True), SetNames(whole=True)
        private = learnt_by_run(first, own, guaranteed=True, fitted_on=none)
        assert private == TrainedOn(("coco",), True, "MIT", "a note", protected=("lspet:private",))
        bare = learnt_by_run(private, own, guaranteed=False, fitted_on=SetNames(("aic",), ("aic",), True))
        assert set(bare.datasets) == {"coco", "lspet:private", "aic"}
        assert not learnt_by_run(first, SetNames(), guaranteed=True, fitted_on=none).known


class TestFollows:
    WEIGHTS = "the first weights (sha256 ab...)"

    def test_a_derived_set_is_refused_in_one_line_that_says_how_it_is_known(self):
        learnt = TrainedOn(("coco", "mpii"), how="as their name says")
        with refused("first-weights-learnt-from-units") as caught:
            check_unseen(learnt, SetNames(("crowdpose:train",), ("crowdpose:train",), True), "vitpose", "image")
        line = caught.value.line()
        assert line.startswith(
            "vitpose: the first weights learnt from COCO (as their name says), and CrowdPose's train split may "
        )
        assert line.endswith(
            "; start from weights that have not seen them, or treat the data as public (--method non-private)"
        )
        assert "\n" not in line

    def test_what_is_protected_already_and_what_is_apart_is_not_refused(self):
        own = SetNames(("lspet:private",), ("lspet:private",), True)
        check_unseen(TrainedOn(("lspet:public",), True, protected=("lspet:private",)), own, "a run", "image")
        check_unseen(NOTHING, own, "drawn", "image")
        with refused("first-weights-learnt-from-units", where=("images", "Leeds Sports Pose Extended's private split")):
            check_unseen(TrainedOn(("lspet",)), own, "a model", "image")

    def test_conditions_name_what_is_known_and_what_is_not(self):
        assert conditions_of(NOTHING, "image", self.WEIGHTS) == ()
        assert conditions_of(
            TrainedOn(("coco", "aic"), True, how="as model.init_data says"), "image", self.WEIGHTS
        ) == (
            "no protected image is a picture of COCO or AI Challenger, which the first weights (sha256 ab...) learnt "
            "from, and from nothing else (as model.init_data says)",
        )
        secret = TrainedOn(note="trained on data that are not public")
        assert conditions_of(secret, "crop", self.WEIGHTS) == (
            "no protected crop was among the data that the first weights (sha256 ab...) learnt from, which are not "
            "known: trained on data that are not public",
        )
        named, rest = conditions_of(TrainedOn(("coco",), how="as their name says"), "image", self.WEIGHTS)
        assert named.endswith("learnt from (as their name says)")
        assert "besides, which are not known" in rest
        assert conditions_of(TrainedOn(("synthetic-ward",), True, how="x"), "image", self.WEIGHTS) == ()

    def test_a_score_on_a_set_that_was_seen_says_so(self):
        learnt = TrainedOn(("coco", "synthetic-studio:large"), True, how="as their name says")
        assert "they learnt from COCO, as their name says" in seen_line(learnt, SetNames(("coco:val",), ("coco:val",)))
        assert "OCHuman may have pictures in common" in seen_line(learnt, SetNames(("ochuman",), ("ochuman",)))
        assert seen_line(learnt, SetNames(("mpii:val",), ("mpii:val",))) == ""
        assert seen_line(learnt, SetNames(("synthetic-studio:large",), ("synthetic-studio:large",))) == ""
        unknown = TrainedOn(note="trained on data that are not public")
        assert "is not known (trained on data that are not public)" in seen_line(unknown, SetNames((), ("mpii",)))
