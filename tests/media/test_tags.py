"""A text goes into a file and comes out again; the picture's own bytes stay as they were."""

import zlib

import cv2
import numpy as np
import pytest

from dpose.media import tags
from dpose.media.images import decode_image, encode_image
from dpose.media.tags import embed_text, extract_text

PICTURE = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)
TEXT = "{'epsilon': '2'}\nany letters: äß—" * 50


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
class TestBoth:
    def test_text_comes_back_and_the_file_too(self, suffix):
        data = encode_image(PICTURE, suffix)
        tagged = embed_text(data, "note", TEXT)
        assert extract_text(tagged, "note") == (TEXT, data)
        assert extract_text(tagged, "other") == (None, tagged)
        assert extract_text(data, "note") == (None, data)

    def test_decoders_see_the_same_picture(self, suffix):
        data = encode_image(PICTURE, suffix)
        tagged = embed_text(data, "note", TEXT)
        assert np.array_equal(decode_image(tagged, "x"), decode_image(data, "x"))

    def test_damage_is_noticed(self, suffix):
        tagged = bytearray(embed_text(encode_image(PICTURE, suffix), "note", TEXT))
        at = bytes(tagged).index(b"note\0") + 60
        tagged[at] ^= 0xFF
        with pytest.raises(ValueError, match=r"damaged|cut short"):
            extract_text(bytes(tagged), "note")

    def test_two_texts_of_one_name_are_refused(self, suffix):
        twice = embed_text(embed_text(encode_image(PICTURE, suffix), "note", "a"), "note", "b")
        with pytest.raises(ValueError, match="several"):
            extract_text(twice, "note")

    def test_a_text_is_in_no_more_bytes_than_it_takes(self, suffix, monkeypatch):
        packed = zlib.compressobj(9)
        loose = packed.compress(TEXT.encode()) + packed.flush(zlib.Z_FULL_FLUSH) + b"\0\0\0\xff\xff" * 99
        loose += packed.flush()
        assert zlib.decompress(loose) == TEXT.encode()
        monkeypatch.setattr(tags.zlib, "compress", lambda *_: loose)
        data = embed_text(encode_image(PICTURE, suffix), "note", TEXT)
        monkeypatch.undo()
        with pytest.raises(ValueError, match="something stands in it"):
            extract_text(data, "note")

    def test_a_bomb_is_not_expanded(self, suffix):
        with pytest.raises(ValueError, match="too long"):
            extract_text(embed_text(encode_image(PICTURE, suffix), "note", "0" * (1 << 21)), "note")


def test_no_bit_of_a_pngs_header_of_a_text_is_free():
    tagged = embed_text(encode_image(PICTURE, ".png"), "note", TEXT)
    at = tagged.index(b"note\0") + 5
    for place in range(at, at + 4):
        bad = bytearray(tagged)
        bad[place] ^= 0x40
        with pytest.raises(ValueError, match="header"):
            extract_text(bytes(bad), "note")


def test_png_checksums_are_right():
    tagged = embed_text(encode_image(PICTURE, ".png"), "note", TEXT)
    assert cv2.imdecode(np.frombuffer(tagged, np.uint8), cv2.IMREAD_UNCHANGED) is not None


def test_other_formats_and_endless_texts_are_refused():
    with pytest.raises(ValueError, match="neither"):
        embed_text(b"GIF89a", "note", "x")
    noise = np.random.default_rng(0).integers(32, 127, 90_000).astype(np.uint8).tobytes().decode()
    with pytest.raises(ValueError, match="does not fit"):
        embed_text(encode_image(PICTURE, ".jpg"), "note", noise)
