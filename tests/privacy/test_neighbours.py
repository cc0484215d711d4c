"""What a guarantee protects, as one value: what it is read from, what it says, and what it refuses."""

import json
from fractions import Fraction

import pytest

from dpose.privacy.neighbours import (
    ACCOUNT_FORMS,
    BEYOND,
    CELL_FORMS,
    ONE_FRAME,
    PIXEL_SCOPES,
    RELEASE_FORMS,
    Neighbours,
    Relation,
)
from dpose.release.grid import Shape
from dpose.units import Unit
from refusals import refused

PICTURE, CLIP = Shape.of(24, 32, 3), Shape.of(24, 32, 3, frames=5)
TIMES = [Fraction(n, 2) for n in range(5)]


class TestParse:
    @pytest.mark.parametrize(
        ("value", "found"),
        [
            (16, Neighbours.of_pixels(16)),
            ("16", Neighbours.of_pixels(16)),
            ("pixels:16", Neighbours.of_pixels(16)),
            ("pixels:16/frame", Neighbours.of_pixels(16, "frame")),
            ("frame", Neighbours.of_pixels(None, ONE_FRAME)),
            ("clip", Neighbours.of_pixels(None, "clip")),
            ("box:9x5/frames:3", Neighbours.of_box(9, 5, 3)),
            ("box:9x5/seconds:1.5", Neighbours.of_box(9, 5, seconds=Fraction(3, 2))),
            (Neighbours.of_pixels(7, "clip"), Neighbours.of_pixels(7, "clip")),
        ],
    )
    def test_releases(self, value, found):
        assert Neighbours.parse(value) == found

    @pytest.mark.parametrize(
        ("word", "found"),
        [
            ("pixels:16", Neighbours.of_pixels(16)),
            ("image", Neighbours("image")),
            ("video", Neighbours("video")),
            ("subject:replace", Neighbours("subject", Relation.REPLACE)),
            ("crop:replace", Neighbours("crop", Relation.REPLACE)),
        ],
    )
    def test_the_account(self, word, found):
        assert Neighbours.parse(word, ACCOUNT_FORMS) == found

    @pytest.mark.parametrize("value", ["pixels", "pixels:x", "16.5", 16.5, True, "", "image", "pixels:1/clip"])
    @pytest.mark.parametrize("forms", [CELL_FORMS, RELEASE_FORMS])
    def test_what_names_nothing_that_a_release_hides(self, value, forms):
        with refused("neighbours-malformed", where="neighbours"):
            Neighbours.parse(value, forms)

    @pytest.mark.parametrize("word", ["frame", "clip"])
    def test_whole_frames_are_not_hidden_by_cells(self, word):
        with refused("neighbours-malformed"):
            Neighbours.parse(word, CELL_FORMS)

    def test_cells_take_no_value_of_one_frame(self):
        with refused("neighbours-not-pixels"):
            Neighbours.parse(Neighbours.of_pixels(4, ONE_FRAME), CELL_FORMS)

    @pytest.mark.parametrize("word", ["pictures", "image:again", "pixels:16/frame", "box:9x5/frames:3", "clip"])
    def test_what_the_account_cannot_be_asked(self, word):
        with refused("neighbours-unknown", where="--unit"):
            Neighbours.parse(word, ACCOUNT_FORMS, "--unit")

    @pytest.mark.parametrize("value", [0, -3, "pixels:0", "pixels:-1/frame"])
    def test_no_pixels(self, value):
        with refused("m-not-positive", where="neighbours"):
            Neighbours.parse(value)

    @pytest.mark.parametrize("unit", [unit for unit in Unit if unit not in (Unit.PIXEL, Unit.STAY)])
    def test_a_release_hides_no_units(self, unit):
        with refused("neighbours-not-pixels"):
            Neighbours.parse(Neighbours(unit, Relation.REPLACE))

    def test_a_release_hides_no_stays(self):
        with refused("neighbours-not-pixels"):
            Neighbours.parse(Neighbours.of_stays(4, Fraction(30)))

    def test_stays(self):
        found = Neighbours.parse("stays:4/seconds:30", ACCOUNT_FORMS)
        assert found == Neighbours.of_stays(4, Fraction(30))
        assert Neighbours.read(found.stated().to_dict(), "stay") == found
        with refused("neighbours-malformed"):
            Neighbours.parse("stays:4/seconds:30")

    @pytest.mark.parametrize("word", ["stays:0/seconds:30", "stays:4/seconds:0", "stays:4/seconds:-1"])
    def test_stays_that_hide_nothing(self, word):
        with refused(("m-not-positive", "stays-malformed")):
            Neighbours.parse(word, ACCOUNT_FORMS)


class TestFields:
    @pytest.mark.parametrize("relation", [Relation.ZERO_OUT, Relation.ADD_REMOVE])
    def test_pixels_are_replaced(self, relation):
        with refused("neighbours-not-pixels", where="neighbours.relation"):
            Neighbours("pixel", relation, 16, "picture")

    @pytest.mark.parametrize("scope", [*PIXEL_SCOPES, "box", "dragon"])
    def test_units_have_no_scope_of_pixels(self, scope):
        with refused("scope-not-of-training", where="neighbours.scope"):
            Neighbours("image", Relation.REPLACE, 1, scope)

    @pytest.mark.parametrize("scope", ["unit", BEYOND, "dragon"])
    def test_pixels_have_no_scope_of_units(self, scope):
        with refused("field-choice-unknown", where="neighbours.scope"):
            Neighbours.of_pixels(1, scope)

    @pytest.mark.parametrize("m", [0, -1, True, 1.0, "16", None])
    def test_how_many_units(self, m):
        with refused("m-not-positive", where="neighbours.m"):
            Neighbours("image", Relation.REPLACE, m)

    def test_unknown_units_and_relations(self):
        with refused("unit-unknown", where="person"):
            Neighbours("person")
        with refused("field-choice-unknown", where="neighbours.relation"):
            Neighbours("image", "twins")

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ((45, (9, 5), None), "box-malformed"),
            ((135, (9, 5, 3), 3), "box-malformed"),
            ((0, (0, 5), 3), "box-malformed"),
            ((46, (9, 5), 1), "m-not-of-box"),
            ((None, (9, 5), 1), "m-not-of-box"),
            ((45, (9, 5), None, Fraction(1)), "m-not-of-box"),
            ((None, (9, 5), None, Fraction(-1)), "seconds-negative"),
        ],
    )
    def test_a_box_adds_up(self, fields, code):
        m, *sides = fields
        with refused(code):
            Neighbours("pixel", Relation.REPLACE, m, "box", *sides)

    @pytest.mark.parametrize("more", [{"box": (4, 4)}, {"frames": 1}, {"seconds": Fraction(1)}])
    @pytest.mark.parametrize("near", [Neighbours("image"), Neighbours.of_pixels(16, "clip")])
    def test_nothing_else_has_a_box(self, near, more):
        from dataclasses import replace

        with refused("box-not-allowed"):
            replace(near, **more)

    def test_who_is_replaced_and_who_shares(self):
        assert [n.replaces for n in (Neighbours("image"), Neighbours.of_pixels(1))] == [False, True]
        assert {u for u in Unit if u not in (Unit.PIXEL, Unit.STAY) and Neighbours(u).together} == {"video", "subject"}
        assert not Neighbours.of_pixels(1).together
        assert (Neighbours("image").of_units, Neighbours.of_pixels(1).of_units) == (True, False)


class TestWords:
    @pytest.mark.parametrize(
        ("near", "words"),
        [
            (Neighbours("image"), "each image, left blank"),
            (Neighbours("crop", Relation.ADD_REMOVE), "each crop, added or left out"),
            (Neighbours("video", Relation.REPLACE), "each video, exchanged for any other"),
            (Neighbours("image", scope=BEYOND), "what each image holds beyond its public view, left blank"),
            (Neighbours.of_pixels(1, "clip"), "any 1 pixel of the clip, counted over all its frames"),
            (Neighbours.of_pixels(1000), "any 1,000 pixels of the picture"),
            (Neighbours.of_pixels(4, "frame"), "any 4 pixels in every frame of the clip at once"),
            (Neighbours.of_pixels(None, ONE_FRAME), "all pixels of any one frame of the clip"),
            (
                Neighbours.of_box(100, 80, 25),
                "whatever one box of 100 x 80 pixels shows, which may lie anywhere in each frame, in any 25 frames of "
                "the clip",
            ),
        ],
    )
    def test_all_of_it(self, near, words):
        assert near.describe() == words
        assert near.describe().startswith(str(near))

    def test_how_one_becomes_the_other(self):
        assert Neighbours("image", Relation.ADD_REMOVE).change() == "any one image were added or left out"
        assert Neighbours("image", Relation.REPLACE, 3).change() == "any 3 of them were exchanged for any other"
        beyond = Neighbours("image", Relation.REPLACE, scope=BEYOND)
        assert beyond.change().endswith("any other with the same public view and labels")
        assert "contributed nothing but its public view" in Neighbours("image", scope=BEYOND).change()

    def test_whether_their_number_is_public(self):
        assert {r: "protected" in r.rule for r in Relation} == {
            Relation.ZERO_OUT: False,
            Relation.ADD_REMOVE: True,
            Relation.REPLACE: False,
        }


class TestResolved:
    @pytest.mark.parametrize(
        ("value", "picture", "clip"),
        [
            ("pixels:16", (16, "picture"), (16, "clip")),
            ("pixels:16/frame", (16, "picture"), (16, "frame")),
            ("frame", (768, "picture"), (768, ONE_FRAME)),
            ("clip", (768, "picture"), (3840, "clip")),
        ],
    )
    def test_pixels(self, value, picture, clip):
        near = Neighbours.parse(value)
        assert near.resolved(PICTURE) == Neighbours.of_pixels(*picture)
        assert near.resolved(CLIP) == Neighbours.of_pixels(*clip)
        assert near.resolved(CLIP).resolved(CLIP) == near.resolved(CLIP)

    @pytest.mark.parametrize(("value", "sizes"), [(769, PICTURE), ("pixels:769/frame", CLIP), (3841, CLIP)])
    def test_more_than_there_are(self, value, sizes):
        with refused("m-above-pixels"):
            Neighbours.parse(value).resolved(sizes)

    def test_a_box_is_cut_and_counted(self):
        near = Neighbours.parse("box:40x9/seconds:1")
        with refused("frames-without-times"):
            near.resolved(CLIP)
        counted = near.timed(TIMES)
        assert (counted.frames, counted.m, counted.seconds) == (3, 40 * 9 * 3, 1)
        assert counted.resolved(CLIP) == Neighbours.of_box(32, 9, 3)
        assert near.resolved(PICTURE) == Neighbours.of_pixels(32 * 9)
        assert Neighbours.of_box(40, 9, 9).resolved(CLIP) == Neighbours.of_box(32, 9, 5)
        assert [word in " ".join(counted.notes(CLIP)) for word in ("1 seconds", "cut", "all 5")] == [1, 1, 0]
        assert "all 5 frames" in " ".join(Neighbours.of_box(9, 9, 9).notes(CLIP))
        assert Neighbours.of_box(9, 9, 3).notes(CLIP) == Neighbours.of_pixels(16).notes(CLIP) == ()

    def test_what_has_no_seconds_needs_no_times(self):
        near = Neighbours.of_box(9, 5, 3)
        assert near.timed(TIMES) is near


class TestJson:
    @pytest.mark.parametrize(
        ("near", "told"),
        [
            (Neighbours("video", Relation.REPLACE), {"relation": "replace", "m": 1, "scope": "unit"}),
            (Neighbours.of_pixels(16, "frame"), {"relation": "replace", "m": 16, "scope": "frame"}),
            (Neighbours.of_box(9, 5, 3), {"relation": "replace", "m": 135, "scope": "box", "box": [9, 5], "frames": 3}),
        ],
    )
    def test_it_reads_back(self, near, told):
        assert json.loads(json.dumps(near.stated().to_dict())) == told
        assert Neighbours.read(told, near.unit) == near

    @pytest.mark.parametrize("near", [Neighbours.of_pixels(None), Neighbours.of_box(9, 5, 3, Fraction(1))])
    def test_what_depends_on_the_picture_is_not_written(self, near):
        with pytest.raises(ValueError, match="how many"):
            near.stated().to_dict()
