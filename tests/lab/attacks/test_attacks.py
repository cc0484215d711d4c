"""Attacks on rendered people: what is recognised raw, released and obscured; and that files work too."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from scipy.stats import binom

from dpose import pixelize
from dpose.training.public_view import PublicView
from dpose_lab.attacks.adversary import (
    AttackerEffort,
    AttackerTraining,
    adaptive_embedder,
    onnx_embedder,
    plain_embedder,
)
from dpose_lab.attacks.appearance import SIZE as SIZE_OF_DESCRIPTOR
from dpose_lab.attacks.attributes import ATTRIBUTES, labels_of
from dpose_lab.attacks.context import AttackConfig
from dpose_lab.attacks.identities import FRAME, open_identities
from dpose_lab.attacks.ranking import search
from dpose_lab.attacks.transforms import RAW, all_transforms, pixelated, private, public_view
from quick import quick  # noqa: F401
from refusals import refused
from tiers import rest_slow

PEOPLE, QUERIES, SIZE = 30, 3, (128, 96)


def quiet(*_):
    return lambda: None


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        crowd = open_identities("synthetic:ward", SIZE).chosen(PEOPLE, 1 + QUERIES)
        school = AttackerTraining(crowd, AttackerEffort(people=120, pictures=4), quiet)
        yield school, crowd.album(0, 1, quiet()), crowd.album(1, QUERIES, quiet())


def found(bench, shown, adaptive=False):
    school, gallery, queries = bench
    embedder = adaptive_embedder(school, shown) if adaptive else plain_embedder(school)
    known = shown.album(gallery, 0, "gallery") if adaptive else gallery
    likeness = embedder.embed(shown.album(queries, 0, "query")) @ embedder.embed(known).T
    return search(likeness, gallery.people, queries.people)


@pytest.mark.slow
def test_raw_queries_are_recognised_far_above_chance(bench):
    hits = (found(bench, RAW).rank == 1).sum()
    assert hits > binom.isf(1e-6, PEOPLE * QUERIES, 1 / PEOPLE)


@pytest.mark.parametrize("adaptive", rest_slow([False, True]))
def test_strong_noise_brings_them_to_chance(bench, adaptive):
    hits = (found(bench, private("0.001", "pixels:1", 16), adaptive).rank == 1).sum()
    assert hits <= binom.isf(1e-3, PEOPLE * QUERIES, 1 / PEOPLE)


def test_who_learnt_from_blurred_pictures_recognises_more_in_them(bench):
    (_, blur) = all_transforms(["gaussian-blur"], blocks=[], subdivisions=[], epsilons=[], neighbours="pixels:1")
    plain, adaptive = (found(bench, blur, adaptive).precision.mean() for adaptive in (False, True))
    assert adaptive > plain + 0.02


def test_who_attacks_which_release():
    coarse = pixelated(16)
    both, adaptive = AttackConfig("synthetic:ward"), AttackConfig("synthetic:ward", attackers=("adaptive",))
    assert both.attackers_of(coarse) == ("plain", "adaptive")
    assert adaptive.attackers_of(coarse) == ("adaptive",)
    assert both.attackers_of(RAW) == adaptive.attackers_of(RAW) == ("plain",)


def test_attackers_are_kept_and_taught_by_others(bench):
    school, gallery, _ = bench
    assert not set(school.album.people) & set(gallery.people)
    first = school.embedder(RAW)
    again = AttackerTraining(school.identities, school.effort, quiet)
    np.testing.assert_array_equal(again.embedder(RAW).matrix, first.matrix)
    assert "album" not in vars(again)  # nothing was rendered for it
    other = AttackerTraining(school.identities, AttackerEffort(people=20, pictures=2), quiet)
    assert not np.array_equal(other.embedder(RAW).matrix, first.matrix)
    assert "album" in vars(other)


def test_rooms_differ_and_frames_of_one_room_do_not(bench):
    crowd = bench[0].identities
    who = crowd.people[0]
    one, other, later = crowd.load([(who, 0), (who, 1), (who, FRAME)], quiet()).pictures
    assert (one != other).mean() > 0.5
    assert np.abs(one[:12].astype(int) - later[:12]).mean() < np.abs(one[:12].astype(int) - other[:12]).mean()


def test_releases_are_those_that_users_make(bench):
    picture = bench[1].pictures[0]
    for block, parts, restore in ((16, 1, "none"), ("auto", 2, "none"), (16, 1, "tv"), ("auto", 1, "learned")):
        own = private("0.5", "pixels:1", block, parts, restore).apply(picture, 7)
        regions = "private" if parts > 1 else None
        theirs = pixelize(
            picture, "0.5", "pixels:1", block, subdivide=parts, regions=regions, restore=restore, seed=7, public=True
        ).picture
        np.testing.assert_array_equal(own, theirs)
    for name, kind in (("view:gaussian-blur", "blur"), ("view:pixelization", "pixelize")):
        np.testing.assert_array_equal(public_view(name).apply(picture, 0), PublicView(kind)(picture))
    ragged = picture[:70, :50]
    means = pixelated(16).apply(ragged, 0)
    assert abs(int(means[69, 49, 0]) - ragged[64:, 48:, 0].mean()) <= 0.5


def test_noise_differs_by_picture_and_purpose_and_repeats_by_seed(bench):
    queries = bench[2]
    shown = private("0.1", "pixels:1", 16)
    one = shown.album(queries, 0, "query").pictures[0]
    np.testing.assert_array_equal(one, shown.album(queries, 0, "query").pictures[0])
    for other in (shown.album(queries, 1, "query"), shown.album(queries, 0, "gallery")):
        assert (one != other.pictures[0]).any()
    twins = queries.instead([queries.pictures[0]] * len(queries))
    first, second, *_ = shown.album(twins, 0, "query").pictures
    assert (first != second).any()


def test_restorations_of_one_release_share_its_noise_and_say_which_they_are(bench):
    queries, settings = bench[2], {"blocks": [8], "subdivisions": [1], "epsilons": ["5"]}
    _, painted, learned = all_transforms(["dp"], **settings, neighbours="pixels:1", restorations=["none", "learned"])
    assert painted.title == "dpose pixelize, b 8, painted, epsilon 5"
    assert learned.title == "dpose pixelize, b 8, learned, epsilon 5"
    assert learned.key == f"{painted.key}-learned"
    (_, default) = all_transforms(["dp"], **settings, neighbours="pixels:1")
    assert default.key == learned.key
    seen, theirs = painted.album(queries, 0, "query"), learned.album(queries, 0, "query")
    raw = np.stack(queries.pictures).astype(int)
    error, other = (np.abs(np.stack(one.pictures) - raw).mean() for one in (seen, theirs))
    assert other < error
    again = replace(learned, noise="").album(queries, 0, "query").pictures
    assert any((one != two).any() for one, two in zip(again, theirs.pictures, strict=True))
    seeds = []
    shared = replace(painted, apply=lambda picture, seed: seeds.append(seed) or picture)
    shared.album(queries, 0, "query")
    replace(learned, apply=shared.apply).album(queries, 0, "query")
    assert seeds[: len(queries)] == seeds[len(queries) :]


def test_an_unknown_restoration_is_refused(bench):
    with refused("restoration-unknown"):
        private("5", "pixels:1", 16, restore="magic")


def test_every_attribute_is_true_of_some_and_not_of_all():
    crowd = open_identities("synthetic:ward:test", (64, 64))
    labels = labels_of(crowd.album(0, 1, quiet()))
    assert labels.shape == (200, len(ATTRIBUTES))
    assert labels.any(0).all()
    assert not labels.all(0).any()


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for who in range(14):
        (tmp_path / "people" / f"p{who:02d}").mkdir(parents=True)
        for k in range(3):
            picture = np.full((40, 30 + who, 3), (10 * who, 200 - 10 * who, 90), np.uint8) + rng.integers(0, 9)
            cv2.imwrite(str(tmp_path / "people" / f"p{who:02d}" / f"{k}.png"), picture)
    return tmp_path / "people"


def test_a_folder_of_people(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert any("keep it where" in line for line in AttackConfig(f"folder:{folder}").caveats())
    assert AttackConfig(f"folder:{folder}").folder_mode == 0o700  # the report shows some of them
    assert AttackConfig("synthetic:ward").folder_mode == 0o755
    crowd = open_identities(f"folder:{folder}", SIZE, in_grey=True).chosen(3, 2)
    assert (crowd.people, crowd.public) == ((0, 1, 2), tuple(range(3, 14)))
    school = AttackerTraining(crowd, AttackerEffort(people=11, pictures=3), quiet)
    assert school.embedder(RAW).matrix.shape[0] == SIZE_OF_DESCRIPTOR
    assert not list(tmp_path.rglob("*.safetensors"))  # what was learnt from files is not kept
    album = crowd.album(1, 5, quiet())
    assert album.people.tolist() == [0, 0, 1, 1, 2, 2]
    assert album.pictures[2].shape == (40, 31)
    assert len(crowd.teaching(500, 5, quiet())) == 33
    with refused("attributes-missing"):
        labels_of(album)
    with refused("people-left-too-few", where="2 people"):
        open_identities(f"folder:{folder}", SIZE).chosen(12, 2).teaching(500, 5, quiet())
    with refused("pictures-of-people-too-few"):
        open_identities(f"folder:{folder}", SIZE).chosen(12, 4)


def test_celeba_is_grey_and_goes_by_its_list(tmp_path):
    (tmp_path / "img_align_celeba").mkdir()
    lines = []
    for k in range(12):
        cv2.imwrite(str(tmp_path / "img_align_celeba" / f"{k}.png"), np.full((30, 20, 3), 20 * k, np.uint8))
        lines.append(f"{k}.png {7 - k % 4}")
    (tmp_path / "identity_CelebA.txt").write_text("\n".join(lines))
    crowd = open_identities(f"celeba:{tmp_path}", SIZE).chosen(2, 3)
    album = crowd.album(0, 3, quiet())
    assert album.people.tolist() == [7, 7, 7, 6, 6, 6]
    assert [int(picture[0, 0]) for picture in album.pictures] == [0, 80, 160, 20, 100, 180]
    assert album.pictures[0].shape == (30, 20)


@pytest.mark.parametrize("suffix", ["", ",imagenet"])
def test_an_embedder_of_ones_own(tmp_path, folder, suffix):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)
    graph = helper.make_graph([node], "mean", [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "mean.onnx")
    album = open_identities(f"folder:{folder}", SIZE).chosen(2, 2).album(0, 1, quiet())
    vectors = onnx_embedder(f"{tmp_path / 'mean.onnx'}{suffix}").embed(album)
    means = np.stack([picture.reshape(-1, 3).mean(0) for picture in album.pictures])
    mean, deviation = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]) if suffix else (0.5, 0.5)
    wanted = (means / 255 - mean) / deviation
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
