"""What a release means for a face, a person and several pictures: told in words and drawn, from sizes alone."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import dpose
from clips import write
from dpose.cli import main
from dpose.media.images import read_pixels
from dpose.privacy.accounting import Accountant, cost
from dpose.privacy.neighbours import Neighbours
from dpose.privacy.ranges import upper
from dpose.privacy.renyi import zcdp_epsilon
from dpose.release import explain_picture
from dpose.release.explain import explain_release
from dpose.release.explain_picture import draw_explanation, hidden_sides, legend
from dpose.release.grid import Shape
from dpose.release.objects import object_lines, preset_line, protected_neighbours, repeated_epsilon, warning_lines
from dpose.release.plans import bind, release_statement
from dpose.release.verify import verify_release
from plain_configs import plain_cells, plain_projection
from refusals import refused

THERE = re.compile(r"(?:a face seen for all \d.\d seconds: |pixels \(a face\) .*, and with )(\S+)")
PICTURE = np.random.default_rng(0).integers(0, 256, (120, 160, 3)).astype(np.uint8)


@pytest.fixture(autouse=True)
def _local(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "500")


def plan_for(neighbours="pixels:16", epsilon=2, delta=0, frames=None, operator=None, shape=(480, 640, 3)):
    if operator:
        config = plain_projection(epsilon, delta, neighbours, operator)
    else:
        config = plain_cells(epsilon, neighbours, 16, delta)
    return bind(config, Shape.of(*shape, frames=frames))


class TestWarning:
    def test_it_stands_where_a_face_keeps_more_than_20(self):
        """m pixels at epsilon 2 are 10,000 pixels at 20,000 / m: 20 exactly at m = 1,000."""
        assert warning_lines(plan_for("pixels:1000")) == ()
        (line,) = warning_lines(plan_for("pixels:999"))
        assert line.startswith("WARNING: an object of 100 x 100 pixels (a face) keeps epsilon 20.03")
        assert line.endswith("epsilon no longer limits recognition of a face")

    def test_a_face_that_stays_is_counted_in_all_frames(self):
        plan = plan_for("box:100x100/frames:5", frames=60)
        (line,) = warning_lines(plan)
        assert "keeps epsilon 24 in all 60 frames" in line
        assert warning_lines(plan_for("box:100x100/frames:5", frames=50)) == ()

    @pytest.mark.parametrize("operator", [None, "block"])
    def test_it_is_said_beforehand_and_in_the_statement(self, operator):
        plan = plan_for(operator=operator, delta="1e-5", frames=4)
        (line,) = warning_lines(plan)
        assert line in explain_release(plan)
        assert line in release_statement(plan, seeded=False).caveats


@pytest.mark.parametrize(
    ("operator", "frames", "said"),
    [
        (None, None, "epsilon for a face of 40 x 40: 2\n"),
        (None, 50, "epsilon for a face seen for all 2.0 seconds: 2\n"),
        (
            "block",
            50,
            "an object of 40 x 40 pixels (a face) is protected with epsilon 0.05019 in one frame, and with 2 ",
        ),
    ],
)
def test_explained_is_the_face_that_was_declared(operator, frames, said):
    near = protected_neighbours("face", "40x40").timed([Fraction(n, 25) for n in range(frames or 1)])
    plan = plan_for(near, delta="1e-5" if operator else 0, frames=frames, operator=operator)
    told = "\n".join(explain_release(plan, Fraction(25), face=(40, 40)))
    assert "100 x 100" not in told
    assert "a person of 120 x 320 pixels keeps epsilon" in told
    assert said in told


class TestSeveralPictures:
    def test_pure_epsilons_add_up(self):
        plan = plan_for()
        assert repeated_epsilon(plan) == 20
        assert "epsilon 20 for any 16 pixels of the picture, in each of them; 12,500 for" in object_lines(plan)[-2]

    def test_rho_adds_up(self):
        plan = plan_for(delta=1e-5)
        assert repeated_epsilon(plan) == pytest.approx(
            zcdp_epsilon(10 * sum(event.rho() for event in plan.events), 1e-5)
        )
        assert plan.object_epsilon(10**4) < plan.object_epsilon(10**4, 10) < 10 * plan.object_epsilon(10**4)

    def test_the_gaussian_mechanisms_curve(self):
        plan = plan_for(operator="block", delta="1e-5", epsilon=8, frames=10)
        (event,) = plan.events
        wanted = cost([replace(event, steps=10)], 1e-5, accountant=Accountant.GAUSSIAN)
        assert repeated_epsilon(plan) == pytest.approx(wanted)
        assert 8 < wanted < 80
        both = plan.epsilon_for(16, "clip", 2), plan.epsilon_for(16, "clip")
        assert both[1] < both[0] < 2 * both[1]

    def test_a_face_for_a_minute(self):
        plan = plan_for(operator="block", delta="1e-5", frames=100)
        told = "\n".join(explain_release(plan, 25))
        cost = plan.epsilon_near(Neighbours.of_box(100, 100, 100))
        assert f"epsilon for a face seen for all 4.0 seconds: {cost:,.0f}"[:-1] in told
        assert cost <= plan.epsilon_for(10**4, "frame")

    @pytest.mark.parametrize("operator", ["block", "low-pass"])
    @pytest.mark.parametrize("neighbours", ["pixels:16", "box:100x100/seconds:10"])
    def test_one_clip_has_one_figure_for_a_face(self, operator, neighbours):
        """A face is a box wherever it is spoken of: not as many pixels, which could fill whole cells."""
        near = Neighbours.parse(neighbours).timed([Fraction(n, 25) for n in range(100)])
        config = plain_projection(2, "1e-5", near, operator, colour="rgb", k=3 * 77)
        plan = bind(config, Shape.of(240, 426, 3, frames=100))
        cost = upper(plan.epsilon_near(Neighbours.of_box(100, 100, 100)))
        told = [*explain_release(plan, Fraction(25)), *release_statement(plan, seeded=False).caveats]
        found = [match[1] for line in told for match in THERE.finditer(line)]
        assert found == [cost] * 3
        assert any(head == f"a face: epsilon {cost} in all 100 frames" for _, head, _ in legend(plan, (100, 100)))
        if operator == "block":
            assert cost != upper(plan.epsilon_for(10**4, "frame"))


@pytest.mark.parametrize(
    "dropped", ["WARNING: ", "a person of ", "10 pictures of ", "an object of ", "so this hides details"]
)
def test_none_of_these_sentences_may_be_left_out(tmp_path, dropped):
    made = dpose.pixelize(PICTURE, 2, public=True)
    kept = tuple(line for line in made.statement.caveats if not line.startswith(dropped))
    assert len(kept) < len(made.statement.caveats)
    path = tmp_path / "a.png"
    replace(made, statement=replace(made.statement, caveats=kept)).save(path)
    with refused("record-sentence-left-out", where=dropped):
        verify_release(path)


class TestPresets:
    def test_what_they_stand_for(self):
        shape = Shape.of(480, 640, 3)
        for protect, face, m in (
            ("detail", None, 16),
            ("face", None, 10_000),
            ("face", "60x80", 4_800),
            ("person", None, 300 * 480),
            ("person", "20x25", 60 * 200),
        ):
            near = protected_neighbours(protect, *([face] if face else []))
            assert plain_cells(2, near).neighbours.resolved(shape).m == m
            assert preset_line(protect, *([face] if face else [])).startswith(f"protect {protect}: ")

    def test_a_video_gets_a_box_for_ten_seconds(self, tmp_path):
        source = write(tmp_path / "a.mp4", frames=70, rate=6)
        statement = dpose.release_video(
            source, tmp_path / "b.mp4", 8, "1e-5", protect="face", face_size="20x24", public=True
        )
        assert statement.neighbours == Neighbours.of_box(20, 24, 61)

    def test_an_array(self):
        made = dpose.pixelize(PICTURE, 2, protect="face", face_size="30x40", public=True)
        assert made.statement.neighbours.m == 1200
        assert made.statement == dpose.pixelize(PICTURE, 2, "pixels:1200", public=True).statement

    @pytest.mark.parametrize(
        ("more", "code"),
        [
            ({"protect": "face", "neighbours": "pixels:16"}, "protect-with-neighbours"),
            ({"protect": "everything"}, "protect-unknown"),
            ({"protect": "face", "face_size": "0x9"}, "face-size-malformed"),
            ({"face_size": "9x9"}, "face-size-unneeded"),
            ({"protect": "detail", "face_size": "9x9"}, "face-size-unneeded"),
        ],
    )
    def test_what_does_not_go_together(self, more, code):
        with refused(code):
            dpose.pixelize(PICTURE, 2, public=True, **more)

    def test_the_command_says_beforehand_what_will_be_left(self, capsys):
        cv2.imwrite("a.png", PICTURE)
        asked = ["pixelize", "a.png", "--epsilon", "2", "--protect", "face"]
        assert main([*asked, "--out", "b.png"]) == 0
        before, _ = capsys.readouterr().out.split("This protects")
        assert "protect face: as many pixels as 100 x 100 has" in before
        assert "little but noise is left" in before  # in the largest blocks, which are chosen
        assert main([*asked, "--block", "16", "--explain"]) == 0
        assert "nothing but noise is left" in capsys.readouterr().out


class TestDrawing:
    def test_its_pixels_do_not_depend_on_the_picture(self, capsys):
        """Two pictures of one size, one drawing; and nothing is released."""
        cv2.imwrite("a.png", PICTURE)
        cv2.imwrite("b.png", 255 - PICTURE[::-1])
        for name in "ab":
            command = ["pixelize", f"{name}.png", "--epsilon", "2", "--explain-picture", f"{name}-explained.png"]
            assert main(command) == 0
            assert "epsilon for a face of 100 x 100: 1,250" in capsys.readouterr().out
        drawn = [Path(f"{name}-explained.png").read_bytes() for name in "ab"]
        assert drawn[0] == drawn[1]
        assert sorted(p.name for p in Path().iterdir()) == ["a-explained.png", "a.png", "b-explained.png", "b.png"]
        assert read_pixels("a-explained.png").shape == (720, 1260, 3)

    def test_it_is_drawn_on_the_release_and_never_on_the_original(self, monkeypatch, capsys):
        cv2.imwrite("a.png", PICTURE)
        seen = []
        monkeypatch.setattr(
            explain_picture, "draw_explanation", lambda plan, path, **more: seen.append(more["released"])
        )
        command = ["pixelize", "a.png", "--epsilon", "2", "--explain-picture", "c.png", "--out", "out.png"]
        assert main(command) == 0
        assert seen[0] is None  # before
        assert np.array_equal(seen[1], read_pixels("out.png"))

    def test_a_release_stands_on_the_canvas(self, monkeypatch):
        blank, shown = Path("blank.png"), Path("shown.png")
        plan = plan_for(shape=(120, 160, 1))
        draw_explanation(plan, blank)
        draw_explanation(plan, shown, released=np.full((120, 160), 40, np.uint8))
        assert (read_pixels(shown) == 40).all(2).mean() > 0.15
        assert (read_pixels(blank) == 40).all(2).mean() < 0.001

    @pytest.mark.parametrize(
        ("neighbours", "sides"),
        [
            ("pixels:16", (4, 4)),
            ("pixels:1000/frame", (1000**0.5,) * 2),
            ("box:9x5/frames:2", (9, 5)),
            ("pixels:6000", (120, 50)),
        ],
    )
    def test_the_square_is_to_scale(self, neighbours, sides):
        found = hidden_sides(plan_for(neighbours, frames=2, shape=(50, 200, 3)))
        assert found == pytest.approx(sides)

    @pytest.mark.parametrize(("height", "width"), [(157, 105), (150, 900), (900, 200)])
    def test_the_face_lies_within_the_picture(self, height, width):
        axes = Figure().add_axes((0, 0, 1, 1))
        explain_picture._draw_sizes(axes, plan_for(shape=(height, width, 3)), (100, 100), 0.5)
        boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_width() == 100]
        (face,) = [box for box in boxes if box.get_edgecolor() == to_rgba(explain_picture.FACE_LINE)]
        assert 0 <= face.get_x() <= width - 100
        assert 0 <= face.get_y() <= height - 100

    def test_the_legend_has_the_plans_own_numbers(self):
        told = {head: text for _, head, text in legend(plan_for(), (100, 100))}
        assert told["hidden: epsilon 2"] == "any 16 pixels of the picture"
        assert "no longer limits recognition" in told["a face: epsilon 1,250"]
        assert told["a person: epsilon 18,000"] == "300 x 480 pixels"
        assert "epsilon 20 for what is hidden, 12,500 for a face in each" in told["10 pictures of one person"]
        clip = plan_for("box:100x100/frames:5", frames=50, operator="low-pass", epsilon=8, delta="1e-5")
        told = {head: text for _, head, text in legend(clip, (100, 100), 25)}
        assert any(head.startswith("a face: epsilon") and "in all 50 frames" in head for head in told)
        assert "gray levels a pixel" in told["noise"]

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            (["--explain-picture", "a.jpg"], "drawn as PNG"),
            (["--explain-picture", "a.png"], "take the place"),
            (["b.png", "--explain-picture", "c.png"], "not 2"),
            (["--explain-picture", "c.png", "--set", "paper=1"], "guarantees nothing"),
        ],
    )
    def test_one_line_for_what_cannot_be_drawn(self, capsys, more, said):
        cv2.imwrite("a.png", PICTURE)
        cv2.imwrite("b.png", PICTURE)
        before = Path("a.png").read_bytes()
        assert main(["pixelize", "a.png", *more, "--epsilon", "2"]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert said in line
        assert Path("a.png").read_bytes() == before
