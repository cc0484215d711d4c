"""A record is its configuration: what is recorded makes the same plan again, and one changed field is refused.

Each release is written by its plan, its statement is edited in one place, and the edited one is sealed again as a
forger can. What no file can refute is listed, with the reason.
"""

import hashlib
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clips import write as write_clip
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.media.video import probe
from dpose.privacy.entries import sealed_alone
from dpose.privacy.neighbours import CELL_FORMS
from dpose.privacy.statement import PrivacyStatement
from dpose.release.archive import pack_archive
from dpose.release.embed import FILE, SUMS, bound_to, encoded, read_sidecar, sealed_file, sidecar_of, stamp, sums_digest
from dpose.release.grid import Shape
from dpose.release.pixelization import PixelizationPlan
from dpose.release.plans import bind, release_statement
from dpose.release.record import plan_record, recorded_plan
from dpose.release.regions import PrivateRegions, PublicRegions
from dpose.release.restoration import Restoration
from dpose.release.verify import verify_release
from plain_configs import plain_cells, plain_projection
from public_doors import release_array, release_file
from tiers import rest_slow

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (48, 64, 3)).astype(np.uint8)
GREY = COLOUR[:, :, 0].copy()
MASK = np.arange(64)[None, :].repeat(48, 0) < 32

cells, grid = plain_cells, plain_projection
PICTURES = {
    "blocks": (GREY, cells(2, 4, 16)),
    "blocks, gaussian": (GREY, cells(2, 4, 16, delta=1e-5)),
    "blocks of 16 bits": (GREY.astype(np.uint16) * 257, cells(2, 4, 16)),
    "luma and chroma": (COLOUR, cells("1/3", 4, 8, colour="ycc", chroma=2)),
    "chosen": (COLOUR, cells(2, 4, "auto", colour=None, restore="learned")),
    "luma alone": (COLOUR, cells(2, 4, 8, colour="grey")),
    "restored": (GREY, cells(2, 4, 8, restore="tv")),
    "public mask": (GREY, cells(2, 4, 16, subdivide=4, regions=PublicRegions(MASK))),
    "private mask": (COLOUR, cells(2, 4, 16, subdivide=4, regions=PrivateRegions())),
    "private mask, threshold": (GREY, cells(2, 4, 16, subdivide=4, regions=PrivateRegions(threshold=9))),
    "low-pass": (COLOUR, grid(8, "1e-5", 4, "low-pass")),
    "block means": (COLOUR, grid(8, 0, 4, "block", colour=None)),
    "random": (GREY, grid(8, "1e-5", 4, "random")),
}
CLIPS = {
    "blocks": cells(2, "pixels:4", 8),
    "blocks of each frame": cells(2, "pixels:4/frame", 8, delta=1e-5),
    "blocks, a box": cells(2, "box:9x9/frames:3", 8),
    "block means": grid(8, "1e-5", 4, restore="learned"),
    "block means, colours": grid(8, "1e-5", "box:9x9/frames:3", colour="ycc"),
    "low-pass": grid(8, "1e-5", "frame", "low-pass", k=300, pool=2),
    "random, clipped": grid(8, "1e-5", 4, "random", clip_norm=100),
    "clipped together": grid(8, "1e-5", "clip", "low-pass", pool=2, clip_norm=100, clip_segment=True),
}


def of_cells(plan):
    return isinstance(plan, PixelizationPlan)


FREE = {
    "config.chosen": (of_cells, "cells that were chosen may as well have been asked for"),
    "config.restoration": (
        lambda plan: of_cells(plan) and plan.shape.still,
        "what cells were chosen for; what is shown may be restored another way, and is compared",
    ),
    "config.block": (
        lambda plan: of_cells(plan) and not plan.shape.still and not plan.config.delta,
        "a clip keeps no sums, and blocks of any size get the same Laplace noise",
    ),
    "config.chroma": (
        lambda plan: not of_cells(plan) and not plan.config.delta,
        "such a picture has no archive, and chroma of any size gets the same Laplace noise",
    ),
    "config.grid": (
        lambda plan: not of_cells(plan) and plan.clipping,
        "a clip keeps no values, and so many clipped ones move as far in any grid",
    ),
    "config.regions.quantile": (of_cells, "a little more marks the same blocks"),
    "config.regions.threshold": (of_cells, "a little more marks the same blocks"),
    "choice": (lambda plan: not of_cells(plan), "such a release keeps no values: it may be of another draw"),
}
"""Changes of the record, some of which no file alone refutes. All else is refused, whatever it is changed to."""
SAID = ("seal", "artefact_sha256", "schema", "software", "deployment", "caveats")
"""What is no field of a release (seals, the form itself), or the maker's own word."""


def leaves(values, path=()):
    """All places of a JSON value that hold no object."""
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from leaves(value, (*path, name))
    else:
        yield path, values


def others(value):
    """What stands there instead: other numbers and words, and values of another kind."""
    if isinstance(value, bool):
        return [not value, int(value), None]
    if isinstance(value, int):
        return [value + 1, 2 * value, value - 1, float(value), str(value), None, -value]
    if value is None:
        return [1, 2, True, "1", "rgb", {}, []]
    if isinstance(value, list) and value:
        numbers = [value[::-1]] if isinstance(value[0], int) else []  # sentences may stand in any order
        return [value[1:], [*value, *value[:1]], *numbers, [0], None]
    if isinstance(value, list):
        return [["block"], None]
    return [value + "1", "1" + value, "", 1, None]


def edited(values, path, new):
    changed = json.loads(json.dumps(values))
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = new
    return changed


def is_free(path, plan):
    name = ".".join(path).removeprefix("release.")
    return any(free(plan) and f"{name}.".startswith(f"{start}.") for start, (free, _) in FREE.items())


def passes(write, statement, path, new):
    """Whether `verify` holds what says `new` at a path, sealed again."""
    try:
        write(PrivacyStatement.from_json(json.dumps(edited(statement.to_dict(), path, new))))
        verify_release(write.file)
    except DposeError:
        return False
    return True


def check_every_field(write, statement):
    """Each field of the statement, the record among them, changed to each other value."""
    write(statement)
    verify_release(write.file)
    values, plan = statement.to_dict(), recorded_plan(statement.release, "a")
    held = [
        (".".join(path), new)
        for path, value in leaves(values)
        if path[0] not in SAID and not is_free(path, plan)
        for new in others(value)
        if new != value and passes(write, statement, path, new)
    ]
    assert not held, "\n".join(map(str, held))


@pytest.mark.parametrize("name", rest_slow(PICTURES, 1, 3, 8, 10, 12))
def test_a_changed_field_of_a_picture_is_refused(tmp_path, name):
    picture, config = PICTURES[name]
    made = release_array(picture, config)
    (released,) = made.frames
    archived = of_cells(recorded_plan(made.statement.release, "a"))

    def write(statement):
        if archived:
            write.file.with_suffix(".npz").write_bytes(pack_archive(released, statement))
        data = encoded(released, ".png")
        digests = {SUMS: sums_digest(released), FILE: hashlib.sha256(data).hexdigest()}
        sealed, line = sealed_alone(replace(statement, seal="", artefact_sha256=""), digests)
        write.file.write_bytes(stamp(data, sealed, line.decode()))

    write.file = tmp_path / "a.png"
    check_every_field(write, made.statement)


@pytest.mark.parametrize("name", rest_slow(CLIPS, 1, 2, 7))
def test_a_changed_field_of_a_clip_is_refused(tmp_path, name):
    target = tmp_path / "b.mp4"
    release_file(probe(write_clip(tmp_path / "a.mp4")), target, CLIPS[name])
    digest = file_digest(target)

    def write(statement):
        sealed, line = sealed_file(digest, replace(statement, seal="", artefact_sha256=""))
        content = json.loads(bound_to(digest, sealed).to_json())
        text = json.dumps(content | {"sealed": line}, indent=2, ensure_ascii=False)
        sidecar_of(target).write_text(text + "\n")

    write.file = target
    check_every_field(write, read_sidecar(target)[0])


@st.composite
def configs(draw):
    """Configurations of every operator, each with sizes that it fits."""
    still, channels = draw(st.booleans()), draw(st.sampled_from([1, 3]))
    epsilon = draw(st.fractions(Fraction(1, 10), 20, max_denominator=1000))
    forms = ["pixels:1", "pixels:16", "box:3x5/frames:2"] + ["pixels:4/frame"] * (not still)
    near, colour = draw(st.sampled_from(forms)), draw(st.sampled_from([None, "rgb"]))
    shape = Shape.of(draw(st.integers(16, 60)), draw(st.integers(16, 60)), channels, 255, None if still else 7)
    delta = draw(st.sampled_from([0, "1e-5"] if still else ["1e-5"]))
    if draw(st.booleans()):
        eye = PrivateRegions(segmenter=lambda picture: picture[:, :, 0], name="an eye")
        threshold = PrivateRegions(threshold=2.5, share=Fraction(1, 3))
        regions = draw(st.sampled_from([None, PrivateRegions(), threshold, eye]))
        n = 1 if regions is None else draw(st.sampled_from([2, 4]))
        block = draw(st.sampled_from(["auto", 8, 16]))
        assert "pixels:M" in CELL_FORMS
        return cells(epsilon, near, block, delta, n, regions, colour=colour), shape
    operator = draw(st.sampled_from(["block", "low-pass"] if delta else ["block"]))
    clip = draw(st.sampled_from([None, 100])) if delta else None
    more = {"clip_norm": clip, "clip_segment": clip is not None and draw(st.booleans())}
    pool = draw(st.sampled_from([None, 1, 3])) if not still else None
    return grid(epsilon, delta, near, operator, colour=colour, pool=pool, **more), shape


@settings(deadline=None, max_examples=60)  # the first of a kind loads or compiles
@given(configs(), st.sampled_from(["none", "tv", "learned"]))
def test_a_record_makes_the_same_plan_and_statement_again(given_, restore):
    config, shape = given_
    plan = bind(replace(config, restoration=Restoration.chosen(restore)), shape)
    record = json.loads(json.dumps(plan_record(plan)))
    again = recorded_plan(record, "a")
    assert again.events == plan.events
    assert again.shape == plan.shape
    assert plan_record(again) == record
    made, wanted = (release_statement(one, seeded=False).to_dict() for one in (again, plan))
    # what was made of a box that was asked for is told once
    assert set(made.pop("caveats")) <= set(wanted.pop("caveats"))
    assert made == wanted
