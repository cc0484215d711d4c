"""Faults of releases: keys and draws of noise, cells and colours, what is counted, and what is said and sealed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mutants.planted.patches import Patches, Planted

# ---------------------------------------------------------------------------------------- keys and noise


def constant_key(module: str, within: str) -> Callable[[Patches], None]:
    """A function that takes a key that everybody knows, and that says of itself that nobody does."""

    def plant(patch: Patches) -> None:
        kind = patch.get("dpose.privacy.noise:Key")
        patch.seen_by(
            module,
            "AesNoise",
            lambda noise: lambda key: noise(key if key.seeded else kind.drawn(bytes(32), seeded=False)),
            within=within,
        )

    return plant


def one_draw(law: str) -> Callable[[Patches], None]:
    """Three sums beside each other, R, G and B of a cell, have one draw of noise."""

    def make(draw: Callable[..., Any]) -> Callable[..., Any]:
        return lambda size, count, stream: np.repeat(draw(size, -(-count // 3), stream), 3)[:count]

    return lambda patch: patch.seen_by("dpose.release.mechanism", law, make, within="NoiseStage.noised")


def same_for_other_sums(patch: Patches) -> None:
    patch.argument("dpose.release.mechanism:NoiseStage.stream", "sums", lambda sums: sums[:0])


def pairs_of_values(patch: Patches) -> None:
    """Sums that lie beside each other in size are looked at as if they lay beside each other in the picture."""

    def in_order(released: Any) -> Any:
        return replace(released, sums={name: np.sort(sums, axis=0) for name, sums in released.sums.items()})

    patch.argument("dpose.release.noise_tests:noise_tests", "released", in_order)


NOISE = (
    Planted(
        "a constant key for everything that is released from an array",
        constant_key("dpose.release.api", "release_array"),
        ("release/test_api.py::test_fresh_noise_each_time_and_the_same_with_a_seed",),
    ),
    Planted(
        "a constant key for every released picture file",
        constant_key("dpose.release.items", "release_item"),
        ("release/test_files.py::TestPictures::test_grey_and_deep_pictures_keep_their_kind",),
    ),
    Planted(
        "a constant key for every released video",
        constant_key("dpose.release.items", "release_item"),
        ("release/test_repeated.py::test_frames_of_a_video_and_videos_of_two_releases",),
    ),
    Planted(
        "one noise draw for R, G and B: pictures, Laplace",
        one_draw("discrete_laplace"),
        ("release/test_repeated.py::test_channels_of_a_picture_and_pictures_of_two_releases",),
    ),
    Planted(
        "one noise draw for R, G and B: pictures, Gaussian",
        one_draw("discrete_gaussian"),
        ("release/test_repeated.py::test_channels_of_a_picture_and_pictures_of_two_releases",),
    ),
    Planted(
        "noise of a key that is taken up again is the same for other sums",
        same_for_other_sums,
        ("release/test_corpus.py::test_noise_of_a_key_that_is_taken_up_again_is_bound_to_the_sums",),
    ),
    Planted(
        "noise looked at in pairs that its values make",
        pairs_of_values,
        ("release/test_noise_tests.py::TestLevel::test_no_small_values",),
    ),
)


# ---------------------------------------------------------------------------------------- cells and colours


def one_peak(patch: Patches) -> None:
    patch.seen_by(
        "dpose.release.colour",
        "product",
        lambda product: lambda signs, repeat: product((0, 1), repeat=repeat),
        within="_moved",
    )


def white_and_black(patch: Patches) -> None:
    patch.seen_by("dpose.release.colour", "product", lambda _: lambda signs, repeat: [(1,) * repeat], within="_moved")


def over_luma_alone(patch: Patches) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, fine, coarse: original(self, fine, replace(coarse, l2_squared=fine.l2_squared))

    patch.replace("dpose.release.colour:Colour.joint", make)


def chroma_not_counted(patch: Patches) -> None:
    patch.argument(
        "dpose.release.pixelization:PixelizationPlan.sensitivity",
        "self",
        lambda plan: replace(plan, colour=plan.colour.without_chroma()),
    )


def chosen_by_the_picture(patch: Patches) -> None:
    split = patch.get("dpose.release.api:split_frames")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def release_array(image: Any, config: Any, **kw: Any) -> Any:
            _, frames = split(image)
            if np.asarray(frames[0]).std() <= 1:
                config = replace(config, block=1)
            return original(image, config, **kw)

        return release_array

    patch.replace("dpose.release.api:release_array", make)


def choice_unchecked(patch: Patches) -> None:
    patch.seen_by("dpose.release.record", "is_chosen", lambda _: lambda *_: True, within="_config")


def shown_through(patch: Patches) -> None:
    patch.seen_by(
        "dpose.media.images",
        "_checked_header",
        lambda header: lambda *args: replace(header(*args), alpha=False),
        within="_decoded",
    )


CELLS = (
    Planted(
        "colours: a difference of colours moves by one peak, not by two",
        one_peak,
        ("release/test_colour.py::TestOnePixel::test_real_pixels_never_change_more_than_the_corners",),
    ),
    Planted(
        "colours: white and black alone are thought of",
        white_and_black,
        ("release/test_colour.py::TestOnePixel::test_real_pixels_never_change_more_than_the_corners",),
    ),
    Planted(
        "colours: chroma adds up over luma's cells alone",
        over_luma_alone,
        ("release/test_colour.py::TestSmallPictures::test_pixels_that_share_a_chroma_cell_alone",),
    ),
    Planted(
        "colours: a first stage's chroma is not counted",
        chroma_not_counted,
        ("release/test_colour.py::TestSmallPictures::test_no_neighbour_changes_more",),
    ),
    Planted(
        "cells: chosen by the picture",
        chosen_by_the_picture,
        ("release/test_colour.py::TestChoice::test_it_follows_from_public_numbers",),
    ),
    Planted(
        "cells that are said to be chosen are not chosen again",
        choice_unchecked,
        ("release/test_colour.py::TestChoice::test_what_is_said_to_be_chosen_is_chosen_again",),
    ),
    Planted(
        "what transparency hides is shown",
        shown_through,
        ("media/test_images.py::TestTransparency::test_colours_are_laid_on_white_and_turned_with_their_alpha",),
    ),
)


# ---------------------------------------------------------------------------------------- what is counted and said


def one_of_its_stages(patch: Patches) -> None:
    laplace = patch.get("dpose.privacy.events:Laplace")

    def last_stage(plan: Any) -> Any:
        several = hasattr(plan, "stages") and isinstance(plan.events[0], laplace)
        return replace(plan, stages=plan.stages[-1:]) if several else plan

    patch.argument("dpose.release.counting:_events_for", "plan", last_stage)


def frame_for_clip(patch: Patches) -> None:
    patch.replace(
        "dpose.release.counting:claimed_pixels", lambda _: lambda plan: plan.config.neighbours.resolved(plan.shape).m
    )


def all_cut_short(patch: Patches) -> None:
    patch.replace("dpose.release.counting:ReleaseHistory.cut_short", lambda _: lambda self: list(self._alike))


def header_unsaid(patch: Patches) -> None:
    header = patch.get("dpose.release.plans:HEADER")

    def less(told: tuple[str, ...], _: Any) -> tuple[str, ...]:
        return tuple(fact for fact in told if fact != header)

    patch.result("dpose.release.plans:public_facts", less)


def a_twentieth_off(patch: Patches) -> None:
    patch.seen_by("dpose.release.recompute", "Fraction", lambda number: lambda *_: number("0.05"), within="_near")


def unsealed(module: str, within: str) -> Callable[[Patches], None]:
    """A seal that is checked against nothing."""

    def make(check: Callable[..., Any]) -> Callable[..., Any]:
        return lambda statement, line, digests, where: check(statement, line, {}, where)

    return lambda patch: patch.seen_by(module, "check_seal", make, within=within)


def tells_the_time(patch: Patches) -> None:
    patch.seen_by(
        "dpose.release.archive", "zipfile.ZipInfo", lambda entry: lambda name, *_: entry(name, time.localtime()[:6])
    )


SAID = (
    Planted(
        "a pure release costs what one of its stages does",
        one_of_its_stages,
        ("release/test_counting.py::TestCosts::test_no_neighbour_costs_more_than_the_points_say",),
    ),
    Planted(
        "a claim about every frame is stored as one about the clip",
        frame_for_clip,
        ("release/test_counting.py::TestCosts::test_clips_by_projection",),
    ),
    Planted(
        "an earlier release with the same settings is taken for one that was cut short",
        all_cut_short,
        ("release/test_counting.py::TestPython::test_grey_and_tensors_are_the_same_picture",),
    ),
    Planted(
        "a statement does not say that the original's header is public",
        header_unsaid,
        ("release/test_files.py::TestPictures::test_a_statement_says_what_no_noise_hides",),
    ),
    Planted(
        "a release's recorded numbers may be a twentieth off",
        a_twentieth_off,
        ("release/test_clips.py::TestFiles::test_a_forged_record_is_found_out",),
    ),
    Planted(
        "an archive may hold other cells than its statement's configuration",
        lambda patch: patch.seen_by(
            "dpose.release.verify", "_check_layers", lambda _: lambda *_: None, "_check_statement"
        ),
        ("release/test_colour.py::TestReleases::test_an_archive_of_other_multiples_is_refused",),
    ),
    Planted(
        "a mask is not what its recorded rule makes of the first stage",
        lambda patch: patch.seen_by(
            "dpose.release.verify", "_check_mask", lambda _: lambda *_: None, "_check_statement"
        ),
        ("release/test_verify.py::TestForgedNumbers::test_every_recorded_constant",),
    ),
    Planted(
        "a picture's bytes are not compared with its seal",
        unsealed("dpose.release.embed", "read_stamp"),
        ("release/test_verify.py::TestExchangedPictures::test_another_picture_than_the_archive_beside_it",),
    ),
    Planted(
        "an archive's values are not compared with its seal",
        unsealed("dpose.release.archive", "unpack"),
        ("release/test_verify.py::TestSeal::test_another_archives_values_under_a_genuine_seal",),
    ),
    Planted(
        "a video's bytes are not compared with its seal",
        unsealed("dpose.release.verify", "_opened"),
        ("cli/test_statement.py::TestForgeries::test_another_video_under_a_signed_sidecar",),
    ),
    Planted(
        "an archive tells when it was made",
        tells_the_time,
        ("release/test_archive.py::TestRefusals::test_no_clock_is_published",),
    ),
)

RELEASE = (*NOISE, *CELLS, *SAID)
