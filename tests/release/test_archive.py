"""Archives restore bit for bit, are small, and are refused when altered, broken or newer; verify looks closely."""

import io
import zipfile
import zlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archives import edited, npy, rebuilt
from dpose.errors import DposeError
from dpose.media.images import encode_image
from dpose.privacy.events import Laplace
from dpose.release.archive import _deflated, _framed, pack_archive, unpack
from dpose.release.embed import read_stamp, stamped_picture
from dpose.release.verify import verify_release
from public_doors import pixelize
from records import recorded
from refusals import refused

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (45, 61)).astype(np.uint8)
MASK = np.arange(61)[None, :].repeat(45, 0) < 30


@settings(deadline=None, max_examples=40)
@given(
    height=st.integers(8, 40),
    width=st.integers(8, 40),
    colour=st.booleans(),
    deep=st.booleans(),
    regions=st.sampled_from([None, "private"]),
    n=st.sampled_from([2, 4, 8]),
)
def test_every_release_is_restored_bit_for_bit(height, width, colour, deep, regions, n):
    picture = RNG.integers(0, 65536 if deep else 256, (height, width, 3) if colour else (height, width))
    picture = picture.astype(np.uint16 if deep else np.uint8)
    made = pixelize(picture, 3, 4, 8, subdivide=n if regions else 1, regions=regions)
    released, statement = unpack(pack_archive(made.frames[0], made.statement), "x")
    assert {k: v.tolist() for k, v in released.sums.items()} == {k: v.tolist() for k, v in made.frames[0].sums.items()}
    assert np.array_equal(released.picture().reshape(picture.shape), made.picture)
    assert released.picture().dtype == picture.dtype
    assert replace(statement, artefact_sha256="", seal="") == made.statement


@pytest.mark.parametrize("block", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("regions", [None, "private"])
def test_archives_of_all_sums_are_hardly_larger_than_pngs(block, regions):
    picture = np.add.outer(np.arange(256), np.arange(320)).astype(np.uint8)
    made = pixelize(picture, 0.5, 16, block, subdivide=2 if regions else 1, regions=regions)
    png = stamped_picture(made.frames[0], ".png", made.statement)
    assert len(pack_archive(made.frames[0], made.statement)) < 2 * len(png)


def archive(**more) -> bytes:
    made = pixelize(GREY, 2, 4, 8, **more)
    return pack_archive(made.frames[0], made.statement)


def values(data: bytes):
    return np.load(io.BytesIO(data))["luma"]


SECRET = np.random.default_rng(0).bytes(400)


class TestRefusals:
    @pytest.mark.parametrize(
        "broken",
        [
            lambda data: b"",
            lambda data: b"no archive",
            lambda data: data[: len(data) // 2],
            lambda data: data[:-30],
            lambda data: rebuilt(data, luma=None),
            lambda data: rebuilt(data, about=None),
            lambda data: rebuilt(data, extra=npy(np.zeros(3))),
            lambda data: rebuilt(data, luma=npy(values(data)[:-1])),
            lambda data: rebuilt(data, luma=npy(values(data).astype(np.float64))),
            lambda data: rebuilt(data, luma=npy(np.array([{"a": 1}], dtype=object))),
            lambda data: rebuilt(data, luma=b"\x93NUMPY"),
            lambda data: rebuilt(data, about=npy(np.frombuffer(b"{}", np.uint8))),
            lambda data: rebuilt(data, about=npy(np.zeros(1 << 21, np.uint8))),
            lambda data: edited(data, lambda about: about.update(height=0)),
            lambda data: edited(data, lambda about: about.update(height=10**9)),
            lambda data: edited(data, lambda about: about.update(peak=7)),
            lambda data: edited(data, lambda about: about.update(version="1")),
            lambda data: edited(data, lambda about: about.update(mood="good")),
            lambda data: edited(data, lambda about: about.update(subdivide=2)),
            lambda data: edited(data, lambda about: about.update(colour="rgb")),
            lambda data: edited(data, lambda about: about.update(combinations="4 x (R + 2G + B)")),
            lambda data: edited(data, lambda about: about.update(chroma=3)),
            lambda data: edited(data, lambda about: about.update(chroma="1")),
            lambda data: edited(data, lambda about: about.update(stages=2)),
            lambda data: encode_image(GREY, ".jpg") + data,
            lambda data: data + b"\0",
            lambda data: data[:-2] + b"\4\0note",
        ],
    )
    def test_broken_archives(self, broken):
        with refused("archive-damaged", where="a.npz"):
            unpack(broken(archive()), "a.npz")

    @pytest.mark.parametrize(
        "altered",
        [
            lambda data: rebuilt(data, luma=npy(values(data) ^ 1)),
            lambda data: edited(data, lambda about: about.update(height=about["height"] - 1)),
            lambda data: edited(data, lambda about: about["statement"].update(artefact_sha256="00" * 32)),
            lambda data: edited(data, lambda about: about["statement"].update(caveats=[])),
        ],
    )
    def test_altered_archives(self, altered):
        with refused("file-of-other-statement"):
            unpack(altered(archive()), "a.npz")

    def test_an_altered_mask(self):
        data = archive(subdivide=2, regions=MASK)
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            mask = np.load(io.BytesIO(file.read("mask.npy")))
        with refused("archive-damaged"):
            unpack(rebuilt(data, mask=npy(mask ^ 0x80)), "a.npz")

    def test_a_newer_archive(self):
        with refused("archive-newer"):
            unpack(edited(archive(), lambda about: about.update(version=4)), "a.npz")

    def test_flipped_bytes_anywhere_never_pass_silently(self):
        data = archive(subdivide=2, regions=MASK)
        whole, statement = unpack(data, "a.npz")
        for at in range(0, len(data), 11):
            bad = bytearray(data)
            bad[at] ^= 0x40
            try:
                released, told = unpack(bytes(bad), "a.npz")
            except DposeError:
                continue
            # the bits that are left of a stream's last byte
            assert np.array_equal(released.picture(), whole.picture())
            assert told == statement

    @pytest.mark.parametrize(
        "place", ["behind a stream", "behind an array", "between words", "in empty blocks", "level 0"]
    )
    def test_nothing_hides_in_an_archive(self, place):
        data = archive()
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = {name: file.read(name) for name in file.namelist()}
        streams = {name: _deflated(content, 9) for name, content in members.items()}
        assert unpack(_framed(members, list(streams.values())), "a.npz")
        if place == "behind a stream":
            streams["luma.npy"] += SECRET
        elif place == "behind an array":
            members["luma.npy"] += SECRET
        elif place == "between words":
            about = np.load(io.BytesIO(members["about.npy"])).tobytes()
            members["about.npy"] = npy(np.frombuffer(b"{" + b" \t" * 99 + about[1:], np.uint8))
        elif place == "in empty blocks":
            packing = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
            packed = packing.compress(members["luma.npy"]) + packing.flush(zlib.Z_FULL_FLUSH)
            streams["luma.npy"] = packed + b"\0\0\0\xff\xff" * 99 + packing.flush()
            assert zlib.decompress(streams["luma.npy"], -zlib.MAX_WBITS) == members["luma.npy"]
        for name, content in members.items():
            if place in ("behind an array", "between words"):
                streams[name] = _deflated(content, 9)
            if place == "level 0":
                streams[name] = _deflated(content, 0)
        with refused("archive-damaged", where="a.npz"):
            unpack(_framed(members, list(streams.values())), "a.npz")

    def test_no_clock_is_published(self):
        with zipfile.ZipFile(io.BytesIO(archive())) as file:
            assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}

    def test_arrays_are_of_the_format_that_every_numpy_reads(self):
        with zipfile.ZipFile(io.BytesIO(archive())) as file:
            assert {file.read(name)[:8] for name in file.namelist()} == {b"\x93NUMPY\x01\x00"}

    def test_nothing_is_pickled(self):
        with np.load(io.BytesIO(archive()), allow_pickle=False) as file:
            assert set(file.files) == {"about", "luma"}
            assert file["luma"].dtype == np.int16


class TestVerify:
    def write(self, folder, name, made):
        path = folder / name
        if path.suffix == ".npz":
            path.write_bytes(pack_archive(made.frames[0], made.statement))
        else:
            path.write_bytes(stamped_picture(made.frames[0], path.suffix, made.statement))
        return path

    @pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.npz"])
    @pytest.mark.parametrize("delta", [0, 1e-5])
    @pytest.mark.parametrize("regions", [None, "private", MASK])
    def test_what_dpose_makes_passes(self, tmp_path, name, delta, regions):
        more = {} if regions is None else {"subdivide": 2, "regions": regions}
        made = pixelize(GREY, 2, 100, 8, delta=delta, **more)
        _, line = verify_release(self.write(tmp_path, name, made))
        assert "is claimed" in line

    def test_seeds_and_papers_claim_nothing(self, tmp_path):
        _, line = verify_release(self.write(tmp_path, "a.png", pixelize(GREY, 2, 4, 8, seed=1)))
        assert "nothing is guaranteed" in line
        _, line = verify_release(self.write(tmp_path, "a.png", pixelize(GREY, 2, 4, 8, paper=2)))
        assert "nothing is claimed" in line

    @pytest.mark.parametrize("name", ["a.png", "a.npz"])
    @pytest.mark.parametrize(
        ("change", "word"),
        [
            (lambda s: replace(s, epsilon=Fraction(1)), ("statement-does-not-add-up",)),
            (
                lambda s: replace(s, epsilon=Fraction(1), events=(Laplace(Fraction(510), Fraction(510)),)),
                ("record-sensitivity-smaller",),
            ),
            (
                lambda s: replace(s, events=s.events * 2, epsilon=Fraction(4)),
                (("archive-events-differ", "record-events-differ"),),
            ),
            (lambda s: recorded(s, {"shape.width": 60}), ("pixels-differ-from-statement", "size")),
            (lambda s: recorded(s, {"shape.channels": 3}), ("pixels-differ-from-statement", "channels")),
            (lambda s: recorded(s, {"config.regions": {"kind": "secret"}}), ("record-regions-unknown",)),
            (lambda s: replace(s, release={}), ("pixels-differ-from-statement", "size")),
            (lambda s: recorded(s, {"config.block": "x"}), (("pixels-differ-from-statement", "record-incomplete"),)),
            (
                lambda s: replace(s, neighbours=replace(s.neighbours, scope="clip")),
                ("record-value-differs", "neighbours"),
            ),
            (lambda s: replace(s, neighbours=replace(s.neighbours, m=5)), ("record-value-differs", "neighbours")),
            (
                lambda s: recorded(replace(s, neighbours=replace(s.neighbours, m=5)), {"config.neighbours.m": 5}),
                ("record-sensitivity-smaller",),
            ),
        ],
    )
    def test_prettier_claims_are_refused(self, tmp_path, name, change, word):
        made = pixelize(GREY, 2, 4, 8, restore="none")
        path = self.write(tmp_path, name, replace(made, statement=change(made.statement)))
        with refused(*word) as caught:
            verify_release(path)
        assert "\n" not in str(caught.value)

    def test_another_pictures_statement_is_refused(self, tmp_path):
        made, other = pixelize(GREY, 2, 4, 8), encode_image(GREY, ".png")
        path = self.write(tmp_path, "a.png", made)
        from dpose.media.tags import embed_text

        statement, _ = read_stamp(path.read_bytes(), "a.png")
        path.write_bytes(embed_text(other, "dpose-privacy", statement.to_json()))
        with refused("file-of-other-statement"):
            verify_release(path)
        path.write_bytes(other)
        with refused("statement-missing"):
            verify_release(path)
