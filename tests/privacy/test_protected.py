"""What a guarantee is about comes from the data (unit, selection, copies, identity), whatever a plan says."""

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from rich.console import Console

from dots import train
from dpose.account import charges
from dpose.pose.data.pictures import Person, Picture
from dpose.pose.data.units import PoseUnits, SubjectUnits
from dpose.privacy.merged import groups_of, merge_units
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.protected import Protected, declared_copies, label_digest, protect
from dpose.privacy.selection import Selection
from dpose.training.optim import OptimizerConfig
from dpose.training.plan import TrainingPlan
from dpose.training.validation import Validation
from dpose.units import CanonicalUnits, KnownPictures, UnitDataset
from refusals import refused

QUIET = Console(quiet=True)
FAST = OptimizerConfig("adam", lr=0.3, schedule="constant", warmup=0.0)
PLAN = TrainingPlan(epsilon=8.0, delta=1e-4, steps=3, expected_batch_size=20, accountant="rdp")


def pixels(seed):
    return np.random.default_rng(seed).integers(0, 256, (40, 30, 3), np.uint8)


def person(seed):
    rng = np.random.default_rng(1000 + seed)
    box = np.sort(rng.uniform(2, 28, (2, 2)), axis=0).ravel().astype(np.float32)
    return Person(rng.uniform(2, 28, (16, 2)).astype(np.float32), np.ones(16, bool), box, 9.0)


def picture(name, seed, people=2, subject="", order=1, moved=0.0):
    def read():
        found = tuple(person(10 * seed + k) for k in range(people))[::order]
        return pixels(seed), tuple(replace(p, keypoints=p.keypoints + np.float32(moved)) for p in found)

    return Picture(name, people, read, subject)


def pose_units(pictures, **options):
    return PoseUnits(pictures, **{"input_size": (32, 24), **options})


class Bare:
    """Units with nothing but what the protocol asks for."""

    unit = "image"

    def __init__(self, dots):
        self.dots = dots
        self.unit_id, self.content_hashes, self.load = dots.unit_id, dots.content_hashes, dots.load

    def __len__(self):
        return len(self.dots)


def settings(tmp_path, **changes):
    return {
        "plan": PLAN, "out": tmp_path / "run", "optimizer": FAST, "state_dir": tmp_path / "state", "console": QUIET,
        **changes,
    }  # fmt: skip


def started(folder):
    return json.loads((folder / "log.jsonl").read_text().splitlines()[0])


class TestUnit:
    def test_the_datas_word_stands_in_statement_plan_and_config(self, dots, tmp_path):
        done = train(dots.task, dots.task.build_model(), private=dots.data(60), **settings(tmp_path))
        assert done.statement.unit == "video"
        assert json.loads((tmp_path / "run" / "config.json").read_text())["run"]["plan"]["unit"] == "video"

    def test_crops_are_crops_in_the_statement(self, tmp_path, dots):
        """As in the README's example, with `unit="crop"` for the data and nothing in the plan."""
        crops = pose_units([picture(f"p{i}", i) for i in range(40)], unit="crop")
        bound = PLAN.bind_to(protect(crops))
        assert bound.plan.unit == "crop"
        assert bound.n == 80

    def test_another_word_in_the_plan_is_refused_before_anything_is_read(self, dots, tmp_path):
        data = dots.data(60)
        data.content_hashes = data.load = None
        with refused("unit-differs", where=("image", "video")):
            train(
                dots.task, dots.task.build_model(), private=data,
                **settings(tmp_path, plan=replace(PLAN, unit="image")),
            )  # fmt: skip
        assert not (tmp_path / "run").exists()
        assert not (tmp_path / "state").exists()

    def test_the_same_word_is_fine_and_makes_the_same_plan(self, dots):
        protected = protect(dots.data(60))
        assert replace(PLAN, unit="video").bind_to(protected).sha256 == PLAN.bind_to(protected).sha256

    def test_unknown_words(self, dots):
        with refused("choice-unknown"):
            TrainingPlan(epsilon=1, delta=1e-5, unit="person")
        data = dots.data(3)
        data.unit = "person"
        with refused("unit-unstated", where="person"):
            protect(data)
        data.unit = None
        with refused("unit-unstated"):
            protect(data)

    def test_the_value_cannot_be_made_for_another_relation_than_the_plans(self, dots, tmp_path):
        with refused("relation-differs", where=("replace", "zero-out")):
            train(
                dots.task, dots.task.build_model(), private=protect(dots.data(60), Relation.REPLACE),
                **settings(tmp_path),
            )  # fmt: skip
        assert not (tmp_path / "run").exists()

    def test_it_is_a_value(self, dots):
        protected = protect(dots.data(3))
        with pytest.raises(FrozenInstanceError):
            protected.neighbours = Neighbours("image")
        with refused("selection-not-stable", where="2 of"):
            replace(protected, stability=2)
        assert protected.identity.digest.hex() not in repr(protected)

    def test_what_is_watched_is_not_what_is_protected(self, dots, tmp_path):
        other = dots.data(30, seed=5)
        other.views[7] = dots.data(60).views[3]
        with refused("watched-unit-private", where=("recording-7", "private", "recording-3")):
            train(
                dots.task, dots.task.build_model(), private=dots.data(60),
                **settings(tmp_path, validation_data=Validation(other, "others", public=True)),
            )  # fmt: skip
        assert not (tmp_path / "run").exists()


class TestIdentity:
    @pytest.mark.parametrize("wrap", [lambda d: d, Bare], ids=["canonical", "bare"])
    def test_it_holds_ids_order_contents_labels_and_weights(self, dots, wrap):
        def digest(change=lambda data: None):
            data = dots.data(20)
            change(data)
            return protect(wrap(data)).identity.digest

        def first(**changes):
            def change(data):
                data.views[4] = [replace(v, **changes) for v in data.views[4]]

            return change

        def named(data):
            data.unit_id = lambda index: f"unit {index}"

        found = {
            digest(),
            digest(named),
            digest(lambda data: data.views.reverse()),
            digest(lambda data: data.views.pop()),
            digest(first(target={"way": np.int64(9)})),
            digest(first(target={"way": np.int32(9)})),
            digest(first(weight=7.0)),
            digest(first(image=np.zeros((4, 6, 6, 3), np.uint8))),
        }
        assert len(found) == 8
        assert digest() in found, "and nothing else"

    def test_poses_tell_joints_boxes_and_skeleton(self):
        one = protect(pose_units([picture("a", 1)])).identity.digest
        assert one == protect(pose_units([picture("a", 1)])).identity.digest
        assert one != protect(pose_units([picture("a", 1, moved=1.0)])).identity.digest
        assert one != protect(pose_units([picture("a", 1)], padding=1.5)).identity.digest
        assert one != protect(pose_units([picture("a", 1, order=-1)])).identity.digest

    def test_reading_decodes_each_picture_once(self):
        calls = []
        inner = picture("a", 1)

        def read():
            calls.append(1)
            return inner.read()

        protect(pose_units([replace(inner, read=read)], cache_bytes=0))
        assert len(calls) == 1

    def test_people_tell_the_labels_of_all_their_pictures(self):
        def people(moved):
            return SubjectUnits(
                pose_units([picture("a", 1, subject="ann"), picture("b", 2, subject="ann", moved=moved)])
            )

        assert label_digest(people(0.0), 0) == label_digest(people(0.0), 0) != label_digest(people(1.0), 0)
        assert protect(people(0.0)).neighbours == Neighbours("subject")

    def test_a_unit_without_content_hash_is_refused_before_anything_is_charged(self, dots, tmp_path):
        """It would be charged as no picture, and could be read again and again."""
        data = dots.data(60)
        known = data.content_hashes
        data.content_hashes = lambda index: () if index == 7 else known(index)
        with refused("unit-without-hash", where="recording-7"):
            train(dots.task, dots.task.build_model(), private=data, **settings(tmp_path))
        assert not (tmp_path / "run").exists()
        assert charges(tmp_path / "state") == []

    @pytest.mark.parametrize("wrap", [Bare, lambda dots: dots])
    def test_labels_of_another_type_are_refused_before_anything_is_charged(self, dots, tmp_path, wrap):
        """In a batch they would be rounded to the types of other units."""
        data = dots.data(60)
        data.views[7] = [replace(view, target={"way": 0.9}) for view in data.views[7]]
        with refused("views-not-alike", where=("recording-7", "way", "int", "float")) as caught:
            train(dots.task, dots.task.build_model(), private=wrap(data), **settings(tmp_path))
        assert "0.9" not in caught.value.line()
        assert charges(tmp_path / "state") == []

    def test_labels_may_be_of_several_shapes_and_texts_of_several_lengths(self, dots):
        """Tasks of one's own bring them together."""
        data = dots.data(2)
        for i, views in enumerate(data.views):
            data.views[i] = [replace(v, target={"boxes": np.zeros((i, 4)), "name": "a" * (1 + i)}) for v in views]
        assert len(protect(Bare(data)).data) == 2

    def test_a_hash_that_is_no_tuple_is_refused(self, dots):
        """Its letters were taken for hashes, and nearly all units for copies."""
        data = Bare(dots.data(5))
        data.content_hashes = lambda index: f"{index:064x}"
        with refused("hashes-not-tuple", where="recording-0"):
            protect(data, threads=1)


class TestCopies:
    def test_groups_are_joined_through_others(self):
        assert groups_of([("a",), ("b",), ("b", "c"), ("d",), ("c", "a"), ()]) == [[0, 1, 2, 4], [3], [5]]
        assert groups_of([]) == []

    def test_one_picture_under_eleven_names_is_one_unit(self, dots, tmp_path):
        data = dots.data(60)
        for i in range(20, 31):
            data.views[i] = data.views[20]
        with (tmp_path / "said.txt").open("w") as file:
            done = train(
                dots.task, dots.task.build_model(), private=data,
                **settings(tmp_path, console=Console(file=file, width=200)),
            )  # fmt: skip
        assert done.statement.n == started(tmp_path / "run")["n"] == 50
        assert "10 of 60 units (video) are copies of others" in (tmp_path / "said.txt").read_text()
        for path in (tmp_path / "run").rglob("*"):
            if path.suffix in (".json", ".jsonl", ".md", ".html"):
                assert "10 of 60" not in path.read_text()
        assert any("saved again" in caveat for caveat in done.statement.caveats)

    def test_a_merged_unit_has_the_views_of_all_and_is_bounded(self, dots):
        data = dots.data(30)
        for i in range(3, 14):
            data.views[i] = data.views[3]
        merged = protect(data)
        assert (merged.identity.units, merged.identity.merged, len(merged.data)) == (20, 10, 20)
        assert [merged.data.unit_id(i) for i in (2, 3, 4)] == ["recording-2", "recording-3", "recording-14"]
        views = merged.data.load(3, np.random.default_rng(0))
        assert len(views) == 8 * len(data.views[3])  # 8 of the 11 copies
        assert len(merged.data.canonical(3)) == 11 * len(data.views[3])
        assert isinstance(merged.data, CanonicalUnits)
        assert protect(merged.data).identity.merged == 0
        assert isinstance(merge_units(Bare(data), [[0, 1], *([i] for i in range(2, 30))]), UnitDataset)
        assert not isinstance(merge_units(Bare(data), [[0, 1], *([i] for i in range(2, 30))]), CanonicalUnits)

    def test_pictures_and_people(self):
        once, again = picture("a", 1, subject="ann"), picture("b", 1, subject="bob", order=-1)
        other = picture("c", 2, subject="eve")
        images = protect(pose_units([once, again, other]))
        assert len(images.data) == 2
        assert isinstance(images.data, KnownPictures)
        assert images.data.subjects(0) == ("ann", "bob")
        assert images.data.fingerprints(0).shape == (2, 16)
        assert len(protect(SubjectUnits(pose_units([once, again, other]))).data) == 2

    def test_the_crops_of_one_picture_are_units_and_those_of_its_copy_are_the_same(self):
        crops = protect(pose_units([picture("a", 1), picture("b", 1, order=-1), picture("c", 2)], unit="crop"))
        assert len(crops.data) == 4
        assert sorted(len(crops.data.canonical(i)) for i in range(4)) == [1, 1, 2, 2]

    def test_crops_of_data_that_declare_nothing_are_told_apart_by_labels(self, dots):
        data = Bare(dots.data(4))
        data.unit, data.content_hashes = "crop", lambda index: ("the picture",)
        assert len({declared_copies(data, i) for i in range(4)}) == 4
        data.load = lambda index, rng: dots.data(4).views[0]
        assert len({declared_copies(data, i) for i in range(4)}) == 1

    def test_no_copy_no_change(self, dots):
        data = dots.data(10)
        assert protect(data).data is data

    def test_under_add_or_remove_their_number_is_not_told(self, dots, tmp_path):
        data = dots.data(60)
        data.views[5] = data.views[4]
        with (tmp_path / "said.txt").open("w") as file:
            protect(data, Relation.ADD_REMOVE, console=Console(file=file, width=200))
        said = (tmp_path / "said.txt").read_text()
        assert "copies" in said
        assert not any(letter.isdigit() for letter in said)


NOMINAL, LIMIT = 1000, 200
PLAN_ADD = TrainingPlan(
    epsilon=8.0, delta=1e-5, steps=3, expected_batch_size=20, accountant="rdp", relation="add-or-remove",
    nominal_units=NOMINAL,
)  # fmt: skip


class TestSelection:
    def test_one_name_more_never_swaps_units(self):
        selection = Selection(LIMIT, Relation.ADD_REMOVE, NOMINAL)
        rng = np.random.default_rng(0)
        for trial in range(200):
            names = [f"{trial}-{k}" for k in rng.permutation(900)]
            more = [*names, f"{trial}-new"]
            kept, then = ({all_[i] for i in selection.chosen(all_)} for all_ in (names, more))
            assert then - kept <= {more[-1]}
            assert kept <= then

    @pytest.mark.parametrize("kind", ["image", "crop"])
    def test_nor_does_a_picture_more(self, kind):
        pictures = [picture(f"p{i}", i % 3, people=1) for i in range(300)]
        for trial in range(20):
            first = pictures[: 200 + trial]
            limit = Selection(40, Relation.ADD_REMOVE, 250)
            before, after = (
                {u.unit_id(i) for i in range(len(u))}
                for u in (pose_units(p, unit=kind).limit(limit) for p in (first, pictures[: 201 + trial]))
            )
            assert len(before ^ after) <= 1

    def test_about_as_many_are_kept_as_asked_for(self):
        names = [f"n{i}" for i in range(NOMINAL)]
        kept = Selection(LIMIT, Relation.ADD_REMOVE, NOMINAL).chosen(names)
        assert 150 < len(kept) < 250
        assert kept == sorted(kept)
        assert set(kept) <= set(Selection(2 * LIMIT, Relation.ADD_REMOVE, NOMINAL).chosen(names))
        assert set(kept) != set(Selection(LIMIT, Relation.ADD_REMOVE, NOMINAL, seed=1).chosen(names))
        assert len(Selection(5000, Relation.ADD_REMOVE, NOMINAL).chosen(names)) == NOMINAL

    def test_elsewhere_the_public_order_is_exact(self):
        names = [f"n{i}" for i in range(100)]
        for relation in (Relation.ZERO_OUT, Relation.REPLACE):
            assert len(Selection(30, relation).chosen(names)) == 30

    def test_the_first_of_an_order_is_refused_under_add_or_remove(self):
        units = pose_units([picture(f"p{i}", i) for i in range(30)]).limit(Selection(20))
        protect(units)
        protect(units, Relation.REPLACE)
        with refused("selection-not-stable", where="2 of"):
            protect(units, Relation.ADD_REMOVE)

    def test_a_bare_number_is_no_selection(self):
        with pytest.raises(AttributeError):
            pose_units([picture("a", 1)]).limit(1)
        with refused("nominal-units-missing"):
            Selection(5, Relation.ADD_REMOVE)
        with refused("nominal-units-missing"):
            Selection(5, nominal=10)
        with refused("limit-not-positive"):
            Selection(0)

    def test_what_is_published_is_nominal(self):
        units = pose_units([picture(f"p{i}", i % 50, people=1) for i in range(500)])
        kept = units.limit(Selection(LIMIT, Relation.ADD_REMOVE, NOMINAL))
        protected = protect(kept, Relation.ADD_REMOVE)
        bound = PLAN_ADD.bind_to(protected)
        assert bound.n == LIMIT
        assert bound.plan.nominal_units == NOMINAL, "a run that goes on selects as before"
        assert bound.sampling_rate == 20 / LIMIT
        assert f"{len(kept)}" not in kept.report[-1]
        assert bound.sha256 != PLAN_ADD.bind_to(protect(units, Relation.ADD_REMOVE)).sha256
        with refused("nominal-units-differ"):
            replace(PLAN_ADD, nominal_units=900).bind_to(protected)

    def test_where_none_is_left_nothing_runs(self):
        units = pose_units([picture("a", 1)]).limit(Selection(1, Relation.ADD_REMOVE, 10**9))
        assert len(units) == 0
        with refused("units-missing"):
            PLAN_ADD.bind_to(protect(units, Relation.ADD_REMOVE))

    def test_other_relations_are_bound_to_what_there_is(self):
        units = pose_units([picture(f"p{i}", i) for i in range(30)])
        assert PLAN.bind_to(protect(units.limit(Selection(20)))).n == 20


def test_only_protect_makes_it_from_data(dots):
    assert isinstance(protect(dots.data(3)), Protected)
    with pytest.raises(TypeError):
        Protected(dots.data(3))
