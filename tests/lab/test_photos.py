"""Readers of PETS and Venice-2 (MOT), PPM-100 and CelebA, on small data of the same layout."""

import cv2
import numpy as np
import pytest

from dpose.errors import DposeError
from dpose_lab.photos.photo import KEPT, Photo, Photos
from dpose_lab.photos.spec import open_photos
from refusals import refused

SIZE = (48, 64)


def picture(seed, size=SIZE):
    rng = np.random.default_rng(seed)
    return cv2.GaussianBlur(rng.integers(0, 256, (*size, 3)).astype(np.uint8), (0, 0), 2)


def write(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image)


@pytest.fixture
def mot(tmp_path):
    root = tmp_path / "Venice-9"
    for frame in range(1, 7):
        write(root / "img1" / f"{frame:06d}.jpg", picture(frame))
    (root / "gt").mkdir()
    (root / "gt" / "gt.txt").write_text("2,1,11,6,20,30,1,-1,-1,-1\n2,2,-5,40,10,20,1,1,0.5\n3,1,1,1,4,4,0,1,1\n")
    (root / "seqinfo.ini").write_text(
        "[Sequence]\nname=Venice-9\nimDir=img1\nframeRate=30\nseqLength=6\nimWidth=64\nimHeight=48\nimExt=.jpg\n"
    )
    return root


@pytest.fixture
def ppm(tmp_path):
    root = tmp_path / "PPM-100"
    for stem in ("b", "a"):
        write(root / "image" / f"{stem}.jpg", picture(ord(stem)))
        matte = np.zeros(SIZE, np.uint8)
        matte[10:30, 20:40] = 255
        matte[10:12, 20:40] = 100
        write(root / "matte" / f"{stem}.png", matte)
    return root


@pytest.fixture
def celeba(tmp_path):
    root = tmp_path / "celeba"
    for number in (1, 2, 3):
        write(root / "img_align_celeba" / f"{number:06d}.jpg", picture(number))
    (root / "identity_CelebA.txt").write_text("000001.jpg 2880\n000003.jpg 2937\n000002.jpg 2880\n\n")
    return root


class TestMot:
    def test_frames_and_boxes(self, mot):
        photos = open_photos(f"mot:{mot}", SIZE)
        assert (photos.title, len(photos), photos.masks) == ("Venice-9", 6, "people's boxes")
        two = photos.load(1)
        assert two.pixels.shape == SIZE
        assert two.pixels.dtype == np.uint8
        wanted = np.zeros(SIZE, bool)
        wanted[5:35, 10:30] = True  # counted from 1 in the file
        wanted[39:, :4] = True  # the part of the second that is in the picture
        assert np.array_equal(two.mask, wanted)
        assert not photos.load(2).mask.any()  # marked as not to be scored
        assert not photos.load(0).mask.any()

    def test_without_description_and_truth(self, mot):
        (mot / "seqinfo.ini").unlink()
        (mot / "gt" / "gt.txt").unlink()
        photos = open_photos(f"mot:{mot}", SIZE)
        assert len(photos) == 6
        assert photos.masks == ""
        assert photos.load(0).mask is None

    @pytest.mark.parametrize(
        ("change", "word"),
        [
            (lambda root: (root / "img1" / "000006.jpg").unlink(), ("frames-count-differs", ("seqinfo.ini", "says 6"))),
            (lambda root: (root / "seqinfo.ini").write_text("name=x"), ("sequence-unreadable", "seqinfo.ini")),
            (lambda root: (root / "seqinfo.ini").write_text("[Sequence]\nimDir=.."), ("data-folder-missing", "frames")),
            (
                lambda root: (root / "seqinfo.ini").write_text(f"[Sequence]\nimDir={'x' * 9000}"),
                ("data-folder-missing", "frames"),
            ),
            (lambda root: (root / "gt" / "gt.txt").write_text("1,1,0,0\n"), ("box-line-invalid",)),
            (lambda root: (root / "gt" / "gt.txt").write_text("1,1,nan,0,1,1,1\n"), ("box-line-invalid",)),
            (lambda root: [f.unlink() for f in (root / "img1").iterdir()], ("frames-missing",)),
            (lambda root: (root / "img1").rename(root / "img2"), ("data-folder-missing", "img1")),
            (
                lambda root: write(root / "img1" / "000001.jpg", picture(0, (20, 20))),
                ("frame-size-differs", ("seqinfo.ini", "64 x", "x 48")),
            ),
        ],
    )
    def test_broken_sequences(self, mot, change, word):
        change(mot)
        with refused(*word):
            open_photos(f"mot:{mot}", SIZE).load(0)


class TestPpm:
    @pytest.mark.parametrize("layout", [("image", "matte"), ("fg", "alpha"), ("val/fg", "val/alpha")])
    def test_portraits_and_mattes(self, ppm, layout):
        for old, new in zip(("image", "matte"), layout, strict=True):
            (ppm / new).parent.mkdir(exist_ok=True)
            (ppm / old).rename(ppm / new)
        photos = open_photos(f"ppm100:{ppm}", SIZE)
        assert photos.names == ("a", "b")
        mask = photos.load(0).mask
        assert mask.sum() == 18 * 20  # where the matte is at least one half
        assert mask[12, 20]
        assert not mask[11, 20]

    def test_what_is_missing_or_does_not_fit(self, ppm):
        write(ppm / "matte" / "a.png", np.zeros((5, 5), np.uint8))
        with refused("matte-size-differs", where=("a.png", "5 x", "64 x", "x 48")):
            open_photos(f"ppm100:{ppm}", SIZE).load(0)
        (ppm / "matte" / "b.png").unlink()
        with refused("matte-missing", where="b.jpg"):
            open_photos(f"ppm100:{ppm}", SIZE)


class TestCelebA:
    @pytest.mark.parametrize("archive", [False, True])
    def test_faces_and_identities(self, celeba, archive):
        if archive:
            (celeba / "Img").mkdir()
            (celeba / "Anno").mkdir()
            (celeba / "img_align_celeba").rename(celeba / "Img" / "img_align_celeba")
            (celeba / "identity_CelebA.txt").rename(celeba / "Anno" / "identity_CelebA.txt")
        photos = open_photos(f"celeba:{celeba}", SIZE)
        assert photos.identities == (2880, 2937, 2880)
        assert photos.names[1] == "000003.jpg"
        assert photos.load(1).identity == 2937
        assert photos.load(1).mask is None
        assert photos.limit(2).identities == (2880, 2937)
        assert photos.limit(2).load(1).name == "000003.jpg"

    @pytest.mark.parametrize("line", ["000001.jpg", "000001.jpg x", "../a.jpg 3"])
    def test_lines_that_cannot_be_read(self, celeba, line):
        (celeba / "identity_CelebA.txt").write_text(f"000001.jpg 1\n{line}\n")
        with refused("identity-line-invalid", where="line 2"):
            open_photos(f"celeba:{celeba}", SIZE)

    def test_a_picture_that_is_listed_but_absent(self, celeba):
        (celeba / "img_align_celeba" / "000003.jpg").unlink()
        with refused("file-unreadable", where="000003.jpg"):
            open_photos(f"celeba:{celeba}", SIZE).load(1)

    def test_no_list(self, celeba):
        (celeba / "identity_CelebA.txt").unlink()
        with refused("identities-missing"):
            open_photos(f"celeba:{celeba}", SIZE)


class TestRendered:
    def test_people_with_exact_masks(self):
        photos = open_photos("synthetic:ward:test", SIZE, 2)
        assert photos.rendered
        assert photos.names == ("test 0", "test 500")
        photo = photos.load(1)
        assert photo.pixels.shape == photo.mask.shape == SIZE
        assert 0 < photo.mask.mean() < 1


@pytest.mark.parametrize(
    "spec", ["mpii:x", "mot", "mot:", "synthetic:beach", "synthetic:ward:march", "ppm100:/no/such/folder"]
)
def test_what_cannot_be_opened(spec):
    with pytest.raises(DposeError):
        open_photos(spec, SIZE)


def test_a_limit_of_nothing():
    with refused("limit-not-positive"):
        open_photos("synthetic:ward:test", SIZE, 0)


def test_pictures_are_read_once_while_they_fit():
    calls = []

    def read(index):
        calls.append(index)
        return Photo(str(index), np.broadcast_to(np.uint8(0), (KEPT // 2, 1)))

    photos = Photos("x", ("0", "1", "2"), read)
    for index in (0, 1, 0, 1, 2, 2):
        photos.load(index)
    assert calls == [0, 1, 2, 2]
