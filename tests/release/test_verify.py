"""What a release claims is bound: forged numbers, exchanged pictures and rewritten words are refused and named."""

import copy
import hashlib
import io
import json
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest

from archives import edited
from clips import write as write_clip
from dpose.errors import DposeError
from dpose.files import file_digest
from dpose.media.images import encode_image
from dpose.media.tags import embed_text, extract_text
from dpose.media.video import probe
from dpose.privacy.entries import sealed_alone
from dpose.privacy.events import Gaussian
from dpose.privacy.neighbours import Neighbours, Relation
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.ranges import exact_text
from dpose.privacy.statement import Kind
from dpose.release import archive, embed, noise_tests
from dpose.release.archive import pack_archive, restore_file, unpack
from dpose.release.counting import PUBLIC
from dpose.release.embed import (
    FILE,
    SEAL,
    SUMS,
    bound_to,
    read_stamp,
    sealed_file,
    sidecar_of,
    stamp,
    stamped_picture,
    sums_digest,
)
from dpose.release.embed import sealed as seal_of
from dpose.release.grid import Shape
from dpose.release.jobs import find_jobs
from dpose.release.linear import LinearPlan
from dpose.release.mechanism import Released
from dpose.release.plans import release_statement
from dpose.release.verify import verify_release
from plain_configs import plain_cells, plain_projection
from public_doors import obfuscate_file, pixelize, release_all, release_file, release_video
from records import recorded
from refusals import refused
from tiers import rest_slow

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (48, 64)).astype(np.uint8)
COLOUR = RNG.integers(0, 256, (48, 64, 3)).astype(np.uint8)
MASK = np.arange(64)[None, :].repeat(48, 0) < 32


def bare(folder, name, picture, statement):
    """As a forger writes them: a seal, which is no secret, of just this content and statement."""
    path = folder / name
    if path.suffix == ".npz":
        path.write_bytes(pack_archive(picture, statement))
    else:
        data = encode_image(picture, path.suffix)
        made, line = sealed_alone(
            replace(statement, seal=""), {SUMS: "00" * 32, FILE: hashlib.sha256(data).hexdigest()}
        )
        path.write_bytes(stamp(data, made, line.decode()))
    return path


def beside(video, statement):
    """The same for a video."""
    made, line = sealed_file(file_digest(video), replace(statement, seal=""))
    bound = bound_to(file_digest(video), made)
    content = json.loads(bound.to_json()) | {"sealed": line}
    sidecar_of(video).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def release_refused(path, code, where=None):
    with refused(code, where) as caught:
        verify_release(path)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


class TestForgedNumbers:
    """All of these add up by themselves: only what the picture must be tells that they are false."""

    @pytest.mark.parametrize("suffix", [".png", ".jpg"])
    def test_noise_for_a_mask_that_divides_everything(self, tmp_path, suffix):
        """Without its archive nobody knows the mask; noise for single pixels has a 50th of the variance."""
        made = pixelize(GREY, 2, 50, 16, delta=1e-5, subdivide=16, regions=MASK)
        (event,) = made.statement.events
        small = Gaussian(event.variance / 50, event.sensitivity_squared / 50)
        path = bare(tmp_path, f"a{suffix}", made.picture, replace(made.statement, events=(small,)))
        release_refused(path, "record-sensitivity-smaller")

    def test_one_channel_for_a_coloured_jpeg(self, tmp_path):
        grey, colour = pixelize(GREY, 2, 4, 16), pixelize(COLOUR, 2, 4, 16)
        release_refused(
            bare(tmp_path, "a.jpg", colour.picture, grey.statement), "pixels-differ-from-statement", "channels 3"
        )

    def test_one_channel_for_a_coloured_video(self, tmp_path):
        target, config = tmp_path / "b.mp4", plain_projection(8, "1e-5", 4)
        # noise on red, green and blue apart, and not restored: colours that no draw of the noise leaves out
        release_file(probe(write_clip(tmp_path / "a.mp4")), target, config)
        plan = LinearPlan.of(config, Shape(9, 32, 48, 1))
        forged = release_statement(plan, seeded=False)
        beside(target, replace(forged, caveats=(*forged.caveats, PUBLIC)))
        release_refused(target, "channels-differ")

    def test_a_grey_video_is_one(self, tmp_path):
        source = write_clip(tmp_path / "a.mkv", codec="ffv1", pix_fmt="gray")
        for name in ("b.mp4", "c.mkv"):
            release_video(source, tmp_path / name, 8, "1e-5", 4)
            verify_release(tmp_path / name)
        release_file(probe(source), tmp_path / "d.mp4", plain_cells(2, 4, 8))
        verify_release(tmp_path / "d.mp4")

    @pytest.mark.parametrize("release", ["projection", "pixelization"])
    def test_steps(self, tmp_path, release):
        target = tmp_path / "b.mp4"
        source = write_clip(tmp_path / "a.mp4")
        if release == "projection":
            made = release_video(source, target, 8, "1e-5", 4)
        else:
            made = release_file(probe(source), target, plain_cells(2, "pixels:4", 8))
        (event,) = made.events
        # nine frames' worth of noise on one release: it adds up, and is not what was done
        forged = replace(made, events=(replace(event, steps=9),), epsilon=made.epsilon * 9, seal="")
        beside(target, forged)
        release_refused(target, "record-value-differs", ("steps 9", "but 1"))

    def test_every_recorded_constant(self, tmp_path):
        made = pixelize(COLOUR, 2, 4, 16, subdivide=4, regions="private")
        regions = made.statement.release["config"]["regions"]
        constants = {
            "config.block": 8,  # a finer grid holds a coarser picture, and its Laplace noise is the same
            "config.subdivide": 2,
            "shape.height": 47,
            "shape.channels": 1,
            "shape.peak": 65535,
            "config.regions": None,
            "config.regions.share": "1/3",
            "config.regions.kind": "whatever looked nice",
            "config.regions.quantile": "0.5",
            "config.regions.threshold": "1.0",
            "config.regions.segmenter": "an eye",
            "mood": "good",
            "config.mood": "good",
            "shape.frames": 3,
        }
        told = {
            "shape.height": ("pixels-differ-from-statement", "size"),
            "config.regions": ("record-incomplete", "regions"),
            "config.regions.share": ("record-value-differs", "scale"),
            "config.regions.kind": ("record-regions-unknown",),
            "config.regions.quantile": ("mask-differs-from-statement",),
            "config.regions.threshold": ("record-value-differs", "quantile"),
            "config.regions.segmenter": ("record-value-differs", "quantile"),
            "mood": ("record-value-differs", "mood"),
            "config.mood": ("record-incomplete", "mood"),
            "shape.frames": ("artefact-of-other-kind",),
        }
        assert set(regions) == {"kind", "share", "segmenter", "threshold", "quantile"}
        for name, value in constants.items():
            forged = recorded(made.statement, {name: value})
            refusal = told.get(name, ("pixels-differ-from-statement", name.partition(".")[2]))
            release_refused(bare(tmp_path, "b.npz", made.frames[0], forged), *refusal)
            if name not in ("config.block", "config.subdivide", "config.regions.quantile"):
                release_refused(bare(tmp_path, "a.png", made.picture, forged), *refusal)
        for forged in (
            replace(made.statement, epsilon=Fraction(3)),
            replace(made.statement, epsilon=Fraction(21, 10)),
            replace(made.statement, events=tuple(replace(e, scale=e.scale * 2) for e in made.statement.events)),
        ):
            release_refused(bare(tmp_path, "a.png", made.picture, forged), "record-value-differs")
            dearer = recorded(forged, {"config.epsilon": exact_text(forged.epsilon)})
            release_refused(bare(tmp_path, "a.png", made.picture, dearer), "record-value-differs", "scale")


class TestExchangedPictures:
    @pytest.mark.parametrize("shape", ["grey", "colour"])
    @pytest.mark.parametrize("regions", [None, "private", MASK])
    def test_random_numbers_under_a_genuine_statement(self, tmp_path, shape, regions):
        picture = GREY if shape == "grey" else COLOUR
        more = {} if regions is None else {"subdivide": 4, "regions": regions}
        made = pixelize(picture, 2, 4, 16, restore="none", **more)
        verify_release(bare(tmp_path, "a.png", made.picture, made.statement))
        release_refused(bare(tmp_path, "a.png", picture, made.statement), "cells-differ")

    @pytest.mark.parametrize("suffix", [".png", ".jpg"])
    @pytest.mark.parametrize("regions", [None, "private", MASK])
    def test_another_picture_than_the_archive_beside_it(self, tmp_path, suffix, regions):
        more = {} if regions is None else {"subdivide": 4, "regions": regions}
        made, other = (pixelize(COLOUR, 2, 4, 16, **more) for _ in range(2))
        bare(tmp_path, "a.npz", made.frames[0], made.statement)
        path = tmp_path / f"a{suffix}"
        path.write_bytes(stamped_picture(made.frames[0], suffix, made.statement))
        assert "archive" not in verify_release(path)[1]
        statement, _ = read_stamp(path.read_bytes(), "a")
        line, data = extract_text(path.read_bytes(), SEAL)[0], encode_image(other.picture, suffix)
        path.write_bytes(stamp(data, statement, line))
        release_refused(path, "seal-file-altered", "file")
        path.write_bytes(stamp(data, *seal_of(made.frames[0], made.statement, data)))
        release_refused(path, "archive-does-not-follow")

    def test_one_gray_level_of_a_jpeg_is_let_pass_and_two_are_not(self, tmp_path):
        made = pixelize(GREY, 50, 1, 16)
        shown = noise_tests.decode_pixels(noise_tests.encoded(made.frames[0], ".jpg"), "a").astype(int)
        noise_tests.check_restored(np.clip(shown + 1, 0, 255).astype(np.uint8), made.frames[0], ".jpg", "a")
        with refused("archive-does-not-follow", where="2 gray"):
            noise_tests.check_restored(np.clip(shown + 2, 0, 255).astype(np.uint8), made.frames[0], ".jpg", "a")

    def test_what_cannot_be_checked_is_said(self, tmp_path):
        made = pixelize(COLOUR, 2, 4, 16)
        _, line = verify_release(bare(tmp_path, "a.jpg", made.picture, made.statement))
        assert "not checked: " in line
        assert "no archive beside it" in line
        bare(tmp_path, "a.npz", pixelize(COLOUR, 2, 4, 16).frames[0], made.statement)
        assert "another release's" in verify_release(tmp_path / "a.jpg")[1]
        (tmp_path / "a.npz").write_bytes(b"broken")
        assert "cannot be read" in verify_release(tmp_path / "a.jpg")[1]


class TestSound:
    @pytest.fixture(params=["pixelize", "release-video", "obfuscate"])
    def make(self, request, tmp_path):
        source = write_clip(tmp_path / "a.mp4", sound=True)

        def run(target, keep):
            if request.param == "pixelize":
                return release_file(probe(source), target, plain_cells(2, 4, 8), keep_sound=keep)
            if request.param == "obfuscate":
                return obfuscate_file(probe(source), target, "blur", keep_sound=keep)
            return release_video(source, target, 8, "1e-5", 4, keep_sound=keep)

        return run

    def test_sound_that_is_kept_is_told(self, tmp_path, make):
        make(tmp_path / "b.mp4", False)
        assert "its sound" not in verify_release(tmp_path / "b.mp4")[1]
        make(tmp_path / "c.mp4", True)
        assert "its sound is the original's and not protected" in verify_release(tmp_path / "c.mp4")[1]

    def test_sound_that_no_statement_mentions(self, tmp_path, make):
        quiet, loud = make(tmp_path / "b.mp4", False), tmp_path / "c.mp4"
        make(loud, True)
        beside(loud, quiet)
        release_refused(loud, "sound-differs-from-statement")


def _zeroed_out(near):
    """Neighbours that dpose makes none of: pixels that are no longer replaced."""
    forged = copy.copy(near)
    object.__setattr__(forged, "relation", Relation.ZERO_OUT)
    return forged


EDITS = {
    "kind": lambda s: replace(s, kind=Kind.SEEDED if s.kind is Kind.PRIVATE else Kind.PRIVATE),
    "unit": lambda s: replace(s, unit="image", neighbours=Neighbours("image", Relation.REPLACE)),
    "scope": lambda s: replace(s, neighbours=replace(s.neighbours, scope="frame")),
    "relation": lambda s: replace(s, neighbours=_zeroed_out(s.neighbours)),
    "m": lambda s: replace(s, neighbours=replace(s.neighbours, m=10_000)),
    "epsilon": lambda s: replace(s, epsilon=s.epsilon * 2),
    "a caveat": lambda s: replace(s, caveats=s.caveats[1:]),
    "another caveat": lambda s: replace(s, caveats=("faces are safe", *s.caveats[1:])),
    "a public fact": lambda s: replace(s, public=s.public[1:]),
    "another public fact": lambda s: replace(s, public=(*s.public, "the sky is blue")),
    "a condition": lambda s: replace(s, conditional_on=(*s.conditional_on, "the reader is kind")),
    "n": lambda s: replace(s, n=5),
    "plan": lambda s: replace(s, plan_sha256="00" * 32),
    "record": lambda s: recorded(s, {"config.block": 2}),
}  # fmt: skip


class TestSeal:
    def made(self, folder, suffix, **more):
        """A sealed release as dpose writes it: its path, statement, and a function that writes an edited one."""
        path = folder / f"a{suffix}"
        if suffix == ".mp4":
            release_file(probe(write_clip(folder / "source.mp4")), path, plain_cells(2, 4, 8), **more)
            statement, line = embed.read_sidecar(path)

            def edit(changed, line=line):
                bound = bound_to(file_digest(path), changed)
                content = json.loads(bound.to_json()) | ({"sealed": line} if line else {})
                sidecar_of(path).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")

            return path, statement, edit
        release = pixelize(COLOUR, 2, 4, 16, **more)
        path.write_bytes(
            pack_archive(release.frames[0], release.statement)
            if suffix == ".npz"
            else embed.stamped_picture(release.frames[0], suffix, release.statement)
        )
        if suffix == ".npz":
            with np.load(path) as file:
                about = json.loads(file["about"].tobytes())
                arrays = {name: file[name] for name in file.files if name != "about"}
            statement, _ = verify_release(path)

            def edit(changed, line=about["sealed"]):
                digest = archive._digest(about, arrays)
                bound = bound_to(digest, changed)
                path.write_bytes(
                    edited(path.read_bytes(), lambda a: a.update(statement=json.loads(bound.to_json()), sealed=line))
                )

            return path, statement, edit
        statement, _ = embed.read_stamp(path.read_bytes(), "a")
        line, _ = extract_text(path.read_bytes(), SEAL)
        data = embed.encoded(release.frames[0], suffix)
        return path, statement, lambda changed, line=line: path.write_bytes(stamp(data, changed, line))

    @pytest.mark.parametrize("suffix", [".png", ".jpg", ".npz", ".mp4"])
    def test_what_dpose_makes_is_sealed(self, tmp_path, suffix):
        _, statement, _ = self.made(tmp_path, suffix)
        assert statement.seal

    @pytest.mark.parametrize("suffix", [".png", ".jpg", ".mp4"])
    def test_nothing_stands_between_a_statements_words(self, tmp_path, suffix):
        path = self.made(tmp_path, suffix)[0]
        hidden = "{" + " \t" * 500
        if suffix == ".mp4":
            text = sidecar_of(path).read_text()
            sidecar_of(path).write_text(text.replace("{", hidden, 1))
        else:
            line, rest = extract_text(path.read_bytes(), SEAL)
            text, rest = extract_text(rest, embed.NAME)
            path.write_bytes(embed_text(embed_text(rest, embed.NAME, text.replace("{", hidden, 1)), SEAL, line))
        release_refused(path, "statement-respelled", "not written as dpose writes it")

    @pytest.mark.parametrize("suffix", rest_slow([".png", ".jpg", ".npz", ".mp4"], 0, 3))
    @pytest.mark.parametrize("edit", EDITS)
    def test_a_rewritten_statement_is_not_the_sealed_one(self, tmp_path, suffix, edit):
        path, statement, write = self.made(tmp_path, suffix)
        write(statement)
        verify_release(path)
        write(EDITS[edit](statement))
        unreadable = {"relation": ("neighbours-not-pixels",)}.get(edit, ())
        with refused(unreadable or ("seal-value-differs", "statement-does-not-add-up")) as caught:
            verify_release(path)
        assert path.name in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("suffix", [".png", ".jpg", ".npz", ".mp4"])
    def test_a_statement_that_names_a_seal_fails_without_it(self, tmp_path, suffix):
        path, statement, write = self.made(tmp_path, suffix)
        write(statement, "")
        release_refused(path, "seal-missing")
        write(replace(statement, seal=""))
        release_refused(path, "seal-unnamed")
        other = tmp_path / "other"
        other.mkdir()
        _, _, write_other = self.made(other, suffix, seed=3)
        write_other(statement)
        release_refused(other / path.name, "seal-of-other-statement")

    @pytest.mark.parametrize("edit", sorted(set(EDITS) - {"kind", "another caveat", "n", "plan"}))
    @pytest.mark.parametrize("suffix", [".png", ".npz"])
    def test_sealing_again_does_not_make_it_follow(self, tmp_path, suffix, edit):
        """A forger seals what they wrote: it must still be what dpose says of such a release."""
        release = pixelize(COLOUR, 2, 4, 16, delta=1e-5)
        forged, path = EDITS[edit](release.statement), tmp_path / f"a{suffix}"
        path.write_bytes(
            pack_archive(release.frames[0], forged)
            if suffix == ".npz"
            else stamped_picture(release.frames[0], suffix, forged)
        )
        with pytest.raises(DposeError, match=r"a\.") as caught:
            verify_release(path)
        assert "\n" not in str(caught.value)

    def test_a_seal_holds_nothing_of_the_original(self, tmp_path):
        """Two originals, one release: the seals are the same."""
        made = pixelize(COLOUR, 2, 4, 16)
        one, line = seal_of(made.frames[0], made.statement)
        seal = json.loads(line)["event"]
        assert set(seal["digests"]) == {"released values"}
        assert seal_of(made.frames[0], one) == (one, line)

    def test_a_picture_and_its_archive_are_sealed_as_of_the_same_values(self, tmp_path):
        (tmp_path / "in.png").write_bytes(encode_image(COLOUR, ".png"))
        jobs = find_jobs([str(tmp_path / "in.png")], tmp_path / "out")
        list(release_all(jobs, plain_cells(2, 4, 16)))
        restore_file(tmp_path / "out" / "000001.npz", tmp_path / "b.jpg")
        sums = {sums_digest(unpack((tmp_path / "out" / "000001.npz").read_bytes(), "a")[0])}
        for path in (jobs[0].target, tmp_path / "b.jpg"):
            sums.add(read_stamp(path.read_bytes(), "a")[1].digests["released values"])
        assert len(sums) == 1

    def test_another_mask_in_the_archive(self, tmp_path):
        made = pixelize(GREY, 2, 4, 16, subdivide=4, regions=MASK)
        other = pixelize(GREY, 2, 4, 16, subdivide=4, regions=~MASK)
        path = bare(tmp_path, "a.npz", other.frames[0], made.statement)
        release_refused(path, "mask-differs-from-statement")

    def test_a_given_key_cannot_be_called_private(self, tmp_path):
        made = pixelize(GREY, 2, 4, 16, source=AesNoise(Key(bytes(32))))
        forged = replace(made.statement, kind=Kind.PRIVATE)
        release_refused(bare(tmp_path, "a.png", made.picture, forged), "key-given-yet-private")

    def test_another_archives_values_under_a_genuine_seal(self, tmp_path):
        path, statement, _ = self.made(tmp_path, ".npz")
        with np.load(path) as file:
            line = json.loads(file["about"].tobytes())["sealed"]
        other = pack_archive(pixelize(COLOUR, 2, 4, 16).frames[0], statement)
        with np.load(io.BytesIO(other)) as file:
            about = json.loads(file["about"].tobytes())
            arrays = {name: file[name] for name in file.files if name != "about"}
        bound = json.loads(bound_to(archive._digest(about, arrays), statement).to_json())
        path.write_bytes(edited(other, lambda a: a.update(statement=bound, sealed=line)))
        release_refused(path, "seal-file-altered", "released values")

    @pytest.mark.parametrize("suffix", [".png", ".jpg", ".npz", ".mp4"])
    def test_nothing_passes_without_a_seal(self, tmp_path, suffix):
        """Without one its words would not be compared with anything."""
        path, statement, write = self.made(tmp_path, suffix)
        write(replace(statement, seal="", caveats=("faces are safe",)), "")
        release_refused(path, "seal-missing")


def test_an_archive_of_whole_gray_levels_is_a_published_algorithms(tmp_path):
    made = pixelize(COLOUR, 2, 4, 16, paper=1)
    made.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        assert json.loads(file["about"].tobytes())["version"] == 2
    assert "not checked" not in verify_release(tmp_path / "a.npz")[1]
    restore_file(tmp_path / "a.npz", tmp_path / "a.png")
    verify_release(tmp_path / "a.png")
    claims = pixelize(COLOUR, 2, 4, 16, colour="rgb", subdivide=4, regions="private", restore="none")
    levels = Released(claims.frames[0].cells, claims.frames[0].values)
    (tmp_path / "b.npz").write_bytes(pack_archive(levels, claims.statement))
    release_refused(tmp_path / "b.npz", "archive-without-sums")


def test_a_video_without_sound_track_says_no_sound(tmp_path):
    target = tmp_path / "b.mp4"
    made = release_video(write_clip(tmp_path / "a.mp4", sound=True), target, 8, "1e-5", 4, keep_sound=True)
    with av.open(str(target)) as given, av.open(str(tmp_path / "c.mp4"), "w") as out:
        stream = out.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(given.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    beside(tmp_path / "c.mp4", made)
    release_refused(tmp_path / "c.mp4", "sound-differs-from-statement")


def test_a_path_may_be_text_and_a_folder_is_refused(tmp_path):
    pixelize(GREY, 2, 16, 8).save(tmp_path / "a.png")
    assert verify_release(str(tmp_path / "a.png")) == verify_release(tmp_path / "a.png")
    for folder in (tmp_path, str(tmp_path)):
        with refused("release-is-folder", where=tmp_path):
            verify_release(folder)
