"""Faults of clips: streams of frames and groups, boxes that move, projections, and what frames are known by."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mutants.planted.patches import Patches, Planted


def with_times(path: str, change: Callable[[Any], Any], scope: str = "") -> Callable[[Patches], None]:
    """A method of an operator that sees other lengths of groups, for neighbours of one scope where it is named."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, neighbours: Any, *args: Any) -> Any:
            if scope and neighbours.scope != scope:
                return original(self, neighbours, *args)
            other = copy.copy(self)
            vars(other)["_times"] = change(self._times)
            return original(other, neighbours, *args)

        return called

    return lambda patch: patch.replace(path, make)


# ---------------------------------------------------------------------------------------- noise


def fresh(source: Any) -> Any:
    """The same streams once more."""
    return type(source)(source._key)


def one_draw(patch: Patches) -> None:
    """R, G and B of a place have one draw of a clip's noise."""

    name = patch.get("dpose.release.linear:STREAM")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noised(self: Any, sums: Any, stream: Any) -> Any:
            if self.name != name or sums.size % 3:
                return original(self, sums, stream)
            few = original(self, np.zeros(sums.size // 3, np.int64), stream)
            return sums + np.repeat(few, 3).reshape(sums.shape)

        return noised

    patch.replace("dpose.release.mechanism:NoiseStage.noised", make)


def one_key_and_number(patch: Patches) -> None:
    class Alike:
        """A plan that takes the first frame's key and number for all."""

        def __init__(self, plan: Any) -> None:
            self.plan, self.frames, self.first = plan, plan.frames, None

        def release(self, frame: Any, noise: Any, number: int) -> Any:
            self.first = self.first or noise
            return self.plan.release(frame, fresh(self.first), 0)

    patch.argument("dpose.release.pixelization:_frames", "plan", Alike)


def one_stream_for_frames(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, source, frame, sums: original(self, fresh(source), 0, sums)

    patch.replace("dpose.release.mechanism:NoiseStage.stream", make)


def one_stream_for_groups(patch: Patches) -> None:
    class Alike:
        """A source that gives the first group's stream to all."""

        def __init__(self, source: Any) -> None:
            self.source = source

        def stream(self, purpose: Any, number: int, label: bytes) -> Any:
            return fresh(self.source).stream(purpose, 0, label)

    patch.argument("dpose.release.linear:LinearPlan._noised", "source", Alike)


NOISE = (
    Planted(
        "one noise draw for R, G and B: clips",
        one_draw,
        ("release/test_clips.py::TestWhatIsPassedOn::test_each_group_has_a_stream_of_its_own_and_the_choice_another",),
    ),
    Planted(
        "one key and number for all frames",
        one_key_and_number,
        ("release/test_repeated.py::test_frames_of_a_video_and_videos_of_two_releases",),
    ),
    Planted(
        "one stream for all frames of a clip that is held as an array",
        one_stream_for_frames,
        ("release/test_api.py::test_every_frame_and_stage_has_a_stream_of_its_own",),
    ),
    Planted(
        "one stream for all groups of a clip",
        one_stream_for_groups,
        ("release/test_clips.py::test_frames_and_groups_have_noise_of_their_own",),
    ),
)


# ---------------------------------------------------------------------------------------- boxes and projections


def first_cells_alone(patch: Patches) -> None:
    """Of a line that ends where the stretch does: it can lie at the beginning alone."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda edges, length: original(np.unique(np.minimum(edges, length)), length)

    patch.replace("dpose.release.grid:most_overlap", make)


def without_the_first(patch: Patches) -> None:
    patch.result("dpose.privacy.ranges:most_frames", lambda most, *_: most - 1)


def one_stay(patch: Patches) -> None:
    """Clipped parts of half as many frames can change."""

    of_box = patch.get("dpose.privacy.neighbours:Neighbours").of_box

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def changed(self: Any, neighbours: Any, groups: int) -> float:
            if neighbours.frames is not None:
                neighbours = of_box(*neighbours.box, neighbours.frames // 2 or groups)
            return original(self, neighbours, groups)

        return changed

    patch.replace("dpose.release.linear:Clipping.changed", make)


def chroma_as_luma(patch: Patches) -> None:
    means = patch.get("dpose.release.projections:BlockMeans")

    def alike(planes: Any) -> Any:
        first, *others = planes.planes
        return replace(planes, planes=(first,) * (1 + len(others))) if isinstance(first, means) else planes

    patch.argument("dpose.release.colour_planes:ColourPlanes.sensitivity", "self", alike)


def light_chroma(patch: Patches) -> None:
    """Half of the length that a pixel of all combinations has after projection."""

    def halved(planes: Any) -> Any:
        first, *others = planes.planes
        light = copy.copy(first)
        if hasattr(first, "change"):
            vars(light)["change"] = lambda neighbours, norm: first.change(neighbours, norm / 2)
        return replace(planes, planes=(light, *others))

    patch.argument("dpose.release.colour_planes:ColourPlanes.sensitivity", "self", halved)


def not_more_than_one(patch: Patches) -> None:
    patch.replace(
        "dpose.release.projections:Separable._together", lambda _: lambda self, frames: frames / min(self._times)
    )


def price_of_one(patch: Patches) -> None:
    def make(event: Callable[..., Any]) -> Callable[..., Any]:
        def called(config: Any, bound: Any, share: Any, steps: int) -> Any:
            return event(config, bound, share, 1 if config.neighbours.box is not None else steps)

        return called

    patch.seen_by("dpose.release.pixelization", "_event", make, within="PixelizationPlan.of")


BOUNDS = (
    Planted(
        "the longest group for the shortest: m pixels of the clip",
        with_times("dpose.release.projections:Separable.change", lambda times: Counter([max(times)]), "clip"),
        ("release/test_projections.py::test_one_pixel_of_an_uneven_group_is_bounded_exactly",),
    ),
    Planted(
        "the longest group for the shortest: one frame",
        with_times("dpose.release.projections:Separable.change", lambda times: Counter([max(times)]), "one frame"),
        ("release/test_projections.py::test_no_neighbour_in_every_frame_or_in_one_frame_changes_more",),
    ),
    Planted(
        "a box is laid on the first cells alone, wherever it would do more",
        first_cells_alone,
        ("release/test_boxes.py::test_a_stretch_fills_pieces_most_where_an_end_meets_an_edge",),
    ),
    Planted(
        "seconds become frames without the one that they begin with",
        without_the_first,
        ("release/test_boxes.py::TestTime::test_at_a_constant_rate_it_is_the_floor_plus_one",),
    ),
    Planted(
        "a box's frames are one stay: re-entry is forgotten where parts are clipped",
        one_stay,
        ("release/test_boxes.py::test_re_entry_counts_each_frame_may_stand_in_a_part_of_its_own",),
    ),
    Planted(
        "a box's frames do not add up in one group",
        with_times(
            "dpose.release.projections:BlockMeans.box_sensitivity",
            lambda times: Counter({1: sum(length * count for length, count in times.items())}),
        ),
        ("release/test_boxes.py::test_no_box_in_any_frames_changes_an_operator_more",),
    ),
    Planted(
        "a box shares no more of chroma's cells than of luma's",
        chroma_as_luma,
        ("release/test_boxes.py::TestLumaAndChroma::test_no_box_in_any_frames_changes_an_operator_more",),
    ),
    Planted(
        "colours: a projection of chroma weighs nothing",
        light_chroma,
        ("release/test_colour.py::TestOperators::test_no_neighbouring_clip_changes_more",),
    ),
    Planted(
        "a box's frames do not add up in one group of a projection",
        not_more_than_one,
        ("release/test_boxes.py::test_no_box_in_any_frames_changes_an_operator_more",),
    ),
    Planted(
        "a box in T frames is pixelized at the price of one",
        price_of_one,
        ("release/test_boxes.py::test_pixelized_clips_cost_no_more_than_is_claimed",),
    ),
)


# ---------------------------------------------------------------------------------------- what frames are known by


def known_by_name(patch: Patches) -> None:
    """Digests are kept by the name of a file, whatever is in it now."""
    kept: dict[Any, Any] = {}

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def video_hashes(info: Any, damage: Any = None) -> Any:
            name = (str(info.path), damage is None)
            if name not in kept:
                kept[name] = original(info, damage)
            return kept[name]

        return video_hashes

    patch.replace("dpose.media.video_identity:video_hashes", make)


def first_row_tells_all(patch: Patches) -> None:
    as_shown = patch.get("dpose.media.identity:as_shown")
    pixel_hash = patch.get("dpose.media.identity:pixel_hash")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_hashes(frames: Iterator[Any], shape: Any) -> tuple[str, ...]:
            shown = [as_shown(frame) for frame in frames]
            alike = {pixel_hash(frame) for frame in shown if (frame[0] == frame[0, 0]).all()}
            whole, *each = original(shown, shape)
            return whole, *(one for one in each if one not in alike)

        return clip_hashes

    patch.replace("dpose.media.identity:clip_hashes", make)


KNOWN = (
    Planted(
        "frames kept by their file's name",
        known_by_name,
        ("action/test_data.py::test_frames_are_digested_once_for_each_content_and_kept_for_their_owner_alone",),
    ),
    Planted(
        "frames whose first row has one colour are not linked",
        first_row_tells_all,
        ("release/test_counting.py::TestIdentity::test_a_frame_is_linked_though_its_first_row_has_one_colour",),
    ),
)

# ---------------------------------------------------------------------------------------- spans of a film


def charged_to_itself(patch: Patches) -> None:
    """What is charged for is the span, of which another span knows nothing."""
    marks_of = patch.get("dpose.privacy.marks:marks_of")
    digest = patch.get("dpose.release.counting:settings_digest")

    def change(charge: Any, work: Any, *_: Any) -> Any:
        return replace(charge, marks=marks_of((digest(*work.spans),)) if work.spans else charge.marks)

    patch.result("dpose.release.items:item_charge", change)


def any_span_is_the_same(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, job, seed: original(replace(self, spans=()), job, seed)

    patch.replace("dpose.release.items:Work.settings", make)


SPANS = (
    Planted(
        "a span is charged to itself only",
        charged_to_itself,
        ("release/test_spans.py::test_spans_are_charged_to_the_whole_film_and_add_up",),
    ),
    Planted(
        "another span is taken for one that was released",
        any_span_is_the_same,
        ("release/test_spans.py::test_the_same_spans_again_are_there_and_others_are_not",),
    ),
    Planted(
        "who chose the spans is not said",
        lambda patch: patch.nothing("dpose.release.plans:spans_given", ()),
        ("release/test_spans.py::test_it_verifies_and_says_that_a_person_chose",),
    ),
)

VIDEO = (*NOISE, *BOUNDS, *KNOWN, *SPANS)
