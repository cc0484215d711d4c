"""Streams never repeat and never mix; Gaussians are Gaussian to their tails; noise is added in float64."""

import hashlib
import math
import os
import pickle

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from dpose.privacy.gaussian_noise import add_gaussian, rounded_gaussian
from dpose.privacy.noise import ONCE, PAIRS_AT_ONCE, AesNoise, Key, Origin, Purpose, Stream


def noise(seed: int = 1) -> AesNoise:
    return AesNoise(Key.from_seed(seed))


def test_a_key_does_not_show_its_secret():
    key = Key(bytes(range(32)))
    shown = repr(key) + str(key) + key.key_id
    assert bytes(range(32)).hex() not in shown
    assert "secret" not in repr(key)
    assert len(key.key_id) == 16
    assert key.key_id != Key(bytes(32)).key_id


def test_fresh_keys_differ_and_are_not_seeded():
    one, two = Key.fresh(), Key.fresh()
    assert one.secret != two.secret
    assert len(one.secret) == 32
    assert not AesNoise(one).seeded
    assert noise().seeded


def test_a_key_says_where_it_is_from():
    """On this hangs whether a statement claims anything."""
    secret = bytes(range(32))
    assert [Key(secret).origin, Key.fresh().origin, Key.from_seed(1).origin] == [
        Origin.GIVEN,
        Origin.FRESH,
        Origin.SEED,
    ]
    assert Key.kept(secret).origin is Origin.KEPT
    assert Key.drawn(secret, seeded=False).origin is Origin.FRESH
    assert Key.drawn(secret, seeded=True).origin is Origin.SEED
    assert [key.seeded for key in (Key(secret), Key.fresh(), Key.from_seed(1), Key.kept(secret))] == [
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(TypeError):
        Key(secret, Origin.FRESH)


def test_a_key_is_its_bytes_wherever_they_are_from():
    secret = bytes(range(32))
    assert Key(secret) == Key.kept(secret)
    assert Key(secret) != Key(bytes(32))


def test_a_key_from_another_process_is_the_same_and_claims_nothing():
    key = Key.fresh()
    there = pickle.loads(pickle.dumps(key))  # noqa: S301
    assert there == key
    assert there.origin is Origin.GIVEN


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        Key(b"short")


def test_the_keystream_is_aes_256_ctr():
    # the first block of the keystream is E_K(0): the known answer of AES-256 for an all-zero key and block
    assert Stream(bytes(32)).bytes(16).hex() == "dc95c078a2408989ad48a21492842087"


def test_same_key_same_stream():
    first = noise().stream(Purpose.NOISE, 7, b"plan").bytes(64)
    assert noise().stream(Purpose.NOISE, 7, b"plan").bytes(64) == first
    assert noise(2).stream(Purpose.NOISE, 7, b"plan").bytes(64) != first


def test_purposes_steps_and_contexts_have_streams_of_their_own():
    source = noise()
    drawn = [source.stream(p, step, c).bytes(32) for p in Purpose for step in range(4) for c in (b"", b"a", b"b")]
    assert len(set(drawn)) == len(drawn)


def test_derivation_is_unambiguous():
    # without lengths in front, a context could imitate a step or another context
    source = noise()
    assert source.stream(Purpose.AUGMENT, 0, bytes(8)).bytes(16) != source.stream(Purpose.AUGMENT, 0, b"").bytes(16)
    assert source.stream(Purpose.AUGMENT, 1, b"\0").bytes(16) != source.stream(Purpose.AUGMENT, 256, b"").bytes(16)


def test_keys_and_streams_are_derived_as_they_were():
    """Written again from the standards: a run that is taken up, or replayed, needs the very same bits."""

    def blake(content, size, person, key=b""):
        return hashlib.blake2b(content, digest_size=size, person=person, key=key).digest()

    def keystream(subkey, blocks):
        aes = Cipher(algorithms.AES(subkey), modes.ECB()).encryptor()
        return b"".join(aes.update(number.to_bytes(16, "big")) for number in range(blocks))

    secret = blake(b"7", 32, b"dpose/seed/1")
    assert Key.from_seed(7).secret == secret
    assert Key.from_seed(7).seeded
    assert Key(secret).key_id == blake(b"", 8, b"dpose/key-id/1", secret).hex()
    for asked in ((Purpose.NOISE,), (Purpose.AUGMENT, 3), (Purpose.RELEASE, 300, b"frames")):
        purpose, step, context = (*asked, *(0, b"")[len(asked) - 1 :])
        parts = (purpose.value.encode(), step.to_bytes(8, "big"), context)
        encoded = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        wanted = keystream(blake(encoded, 32, b"dpose/stream/1", secret), 4)
        assert noise(7).stream(*asked).bytes(64) == wanted
        words = noise(7).stream(*asked).uint64((4, 2))
        assert words.ravel().tolist() == [int.from_bytes(wanted[k : k + 8], "little") for k in range(0, 64, 8)]
    generator = noise(7).stream(Purpose.AUGMENT).generator()
    words = noise(7).stream(Purpose.AUGMENT).uint64(2)
    assert generator.integers(1 << 62) == np.random.Generator(np.random.Philox(key=words)).integers(1 << 62)


def test_streams_are_uncorrelated():
    source = noise()
    a = source.stream(Purpose.NOISE, 0).gaussian(200_000).numpy()
    b = source.stream(Purpose.NOISE, 1).gaussian(200_000).numpy()
    c = source.stream(Purpose.AUGMENT, 0).gaussian(200_000).numpy()
    for x, y in ((a, b), (a, c), (b, c)):
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(200_000)


@pytest.mark.parametrize("purpose", sorted(ONCE))
def test_noise_and_samples_are_given_out_once(purpose):
    source = noise()
    source.stream(purpose, 3, b"x")
    source.stream(purpose, 4, b"x")
    source.stream(purpose, 3, b"y")
    with pytest.raises(RuntimeError, match="twice"):
        source.stream(purpose, 3, b"x")


def test_samplers_and_noise_are_all_of_them():
    drawn_once = {
        Purpose.PRIVATE_SAMPLER,
        Purpose.PUBLIC_SAMPLER,
        Purpose.SUBSPACE,
        Purpose.NOISE,
        Purpose.STATISTIC,
        Purpose.RELEASE,
        Purpose.TUNING,
        Purpose.SCORE,
        Purpose.COUNT,
    }
    assert drawn_once == ONCE


def test_augmentation_may_be_drawn_again():
    source = noise()
    draws = [source.stream(Purpose.AUGMENT, 3).generator().integers(1 << 60) for _ in range(2)]
    assert draws[0] == draws[1]


def test_unknown_purposes_and_negative_steps_are_refused():
    with pytest.raises(ValueError, match="nosie"):
        noise().stream("nosie")
    with pytest.raises(ValueError, match="negative"):
        noise().stream(Purpose.NOISE, -1)


def test_a_stream_does_not_cross_a_fork(monkeypatch):
    source = noise()
    stream = source.stream(Purpose.NOISE)
    assert not source.forked
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert source.forked
    with pytest.raises(RuntimeError, match="fork"):
        stream.bytes(1)
    with pytest.raises(RuntimeError, match="fork"):
        source.stream(Purpose.NOISE, 1)


def test_words_go_on_where_the_last_call_stopped():
    whole = noise().stream(Purpose.NOISE).uint64(10)
    stream = noise().stream(Purpose.NOISE)
    assert np.array_equal(np.concatenate([stream.uint64(3), stream.uint64((7,))]), whole)
    assert whole.dtype == np.uint64


@pytest.mark.parametrize("shape", [0, 1, 7, (), (3, 5), 2 * PAIRS_AT_ONCE + 3])
def test_gaussians_have_the_shape_asked_for(shape):
    drawn = noise().stream(Purpose.NOISE).gaussian(shape)
    assert drawn.dtype == torch.float64
    assert tuple(drawn.shape) == ((shape,) if isinstance(shape, int) else shape)
    assert torch.isfinite(drawn).all()
    assert drawn.unique().numel() == drawn.numel()


def test_gaussians_are_gaussian():
    n = 1_000_000
    drawn = noise(3).stream(Purpose.NOISE).gaussian(n).numpy()
    assert abs(drawn.mean()) < 5 / math.sqrt(n)
    assert abs(drawn.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((drawn**3).mean()) < 5 * math.sqrt(15 / n)
    assert abs((drawn**4).mean() - 3) < 5 * math.sqrt(96 / n)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    for edge in (2.0, 3.0, 4.0):
        expected = 2 * stats.norm.sf(edge) * n
        assert abs((abs(drawn) > edge).sum() - expected) < 5 * math.sqrt(expected)


def test_the_two_halves_of_a_pair_are_independent():
    drawn = noise(4).stream(Purpose.NOISE).gaussian(2 * PAIRS_AT_ONCE).numpy()
    cosine, sine = drawn[:PAIRS_AT_ONCE], drawn[PAIRS_AT_ONCE:]
    for x, y in ((cosine, sine), (cosine**2, sine**2)):
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(PAIRS_AT_ONCE)


@pytest.mark.parametrize(("word", "radius"), [(0, math.sqrt(128 * math.log(2))), (2**64 - 1, 0.0)])
def test_tails_reach_nine_sigma_and_nothing_is_infinite(word, radius, monkeypatch):
    stream = noise().stream(Purpose.NOISE)
    monkeypatch.setattr(stream, "uint64", lambda count: np.full(count, word, np.uint64))
    drawn = stream.gaussian(2)
    assert float(drawn.square().sum().sqrt()) == pytest.approx(radius, abs=1e-12)
    assert radius == 0 or radius > 9.4


def test_scale_is_the_standard_deviation():
    one = noise().stream(Purpose.NOISE).gaussian(1000)
    many = noise().stream(Purpose.NOISE).gaussian(1000, 25.0)
    assert torch.allclose(many, 25 * one, rtol=1e-14)
    assert (noise().stream(Purpose.NOISE).gaussian(5, 0.0) == 0).all()
    for bad in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="standard deviation"):
            noise().stream(Purpose.NOISE).gaussian(2, bad)


@pytest.mark.parametrize("grid_step", [None, 2.0**-20])
def test_every_coordinate_gets_noise_of_the_given_size(grid_step):
    sums = {"w": torch.full((400, 500), 3.0), "b": torch.full((100_000,), -2.0)}
    noisy = add_gaussian(sums, 0.5, noise(5).stream(Purpose.NOISE), grid_step)
    for name, value in sums.items():
        added = (noisy[name] - value).double()
        count = added.numel()
        assert noisy[name].dtype == value.dtype
        assert noisy[name].shape == value.shape
        assert abs(float(added.mean())) < 5 * 0.5 / math.sqrt(count)
        assert float(added.var()) == pytest.approx(0.25, rel=5 * math.sqrt(2 / count))
        assert (added != 0).sum() >= count - 5  # rounded noise may be 0
    assert float(sums["w"].sum()) == 600_000.0  # the sums themselves are left alone


def test_exact_noise_is_whole_multiples_of_the_step():
    step = 2.0**-10
    value = torch.arange(-5000, 5000, dtype=torch.float64) * step
    noisy = add_gaussian({"w": value}, 3.7 * step, noise().stream(Purpose.NOISE), step)["w"]
    added = (noisy - value) / step
    assert torch.equal(added, added.round())
    assert torch.equal(added.long(), torch.from_numpy(rounded_gaussian(3.7, 10_000, noise().stream(Purpose.NOISE))))
    # far beyond 2^24 steps, where a float32 would have lost them
    far = torch.tensor([2.0**50 + 1, -(2.0**50) - 1], dtype=torch.float64)
    noisy = add_gaussian({"w": far}, 2.0, noise().stream(Purpose.NOISE), 1.0)["w"] - far
    assert noisy.abs().max() < 20
    for off in (0.4 * step, math.nan, math.inf):
        with pytest.raises(ValueError, match="off the grid"):
            add_gaussian({"w": value + off}, 1.0, noise().stream(Purpose.NOISE), step)


def test_noise_does_not_depend_on_the_order_of_the_tensors():
    a, b = torch.zeros(5), torch.zeros(6)
    one = add_gaussian({"a": a, "b": b}, 1.0, noise().stream(Purpose.NOISE))
    two = add_gaussian({"b": b, "a": a}, 1.0, noise().stream(Purpose.NOISE))
    assert torch.equal(one["a"], two["a"])
    assert torch.equal(one["b"], two["b"])
    assert not torch.equal(one["a"], one["b"][:5])


def test_noise_is_added_before_rounding():
    # at 2^24 float32 steps by 2: noise rounded to float32 first would give another result than rounding once
    value = torch.full((20_000,), 2.0**24)
    noisy = add_gaussian({"w": value}, 1.0, noise().stream(Purpose.NOISE))["w"]
    exact = noise().stream(Purpose.NOISE).gaussian(20_000) + value.double()
    assert torch.equal(noisy, exact.float())
    assert set((noisy - value).tolist()) >= {-2.0, 0.0, 2.0}


def test_noise_of_no_size_or_on_integers_is_refused():
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="standard deviation"):
            add_gaussian({"w": torch.zeros(2)}, bad, noise().stream(Purpose.NOISE))
    with pytest.raises(ValueError, match="floating-point"):
        add_gaussian({"w": torch.zeros(2, dtype=torch.int64)}, 1.0, noise().stream(Purpose.NOISE))


# ---------------------------------------------------------------------------------------- beyond a million coordinates


LARGE = (1 << 21) + (1 << 19)
"""Coordinates of a large tensor: twenty times what is drawn at a time."""


def at_every_lag(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Correlations of `x` with `y` moved round by every number of places, in standard deviations."""
    product = np.fft.irfft(np.fft.rfft(x) * np.conj(np.fft.rfft(y)), len(x))
    return product / math.sqrt(len(x)) / (x.std() * y.std())


@pytest.fixture(scope="module", params=[None, 2.0**-24], ids=["float", "exact"])
def large(request):
    """The noise of one step on tensors of several sizes, in units of what was asked for."""
    sizes = {"a": (5, LARGE // 5), "b": (LARGE // 2,), "c": (1000, 10), "d": ()}
    zero = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in sizes.items()}
    drawn = add_gaussian(zero, 0.25, noise(12).stream(Purpose.NOISE, 3), request.param)
    return {name: value.numpy().ravel() / 0.25 for name, value in drawn.items()}


def test_noise_never_repeats_however_large_the_tensor(large):
    """At no lag: neither its values, nor (where only signs differ) its squares."""
    for name in ("a", "b"):
        for values in (large[name], large[name] ** 2 - 1):
            found = at_every_lag(values, values)
            assert abs(found[1:]).max() < 7


def test_noise_is_as_large_in_every_block_and_every_tensor(large):
    size = 1 << 14
    for name in ("a", "b"):
        blocks = large[name][: len(large[name]) // size * size].reshape(-1, size)
        assert abs(blocks.var(1) - 1).max() < 6 * math.sqrt(2 / size)
        assert abs(blocks.mean(1)).max() < 6 / math.sqrt(size)
    for values in (large["a"], large["b"], large["c"]):
        assert abs(values.var() - 1) < 6 * math.sqrt(2 / len(values))


def test_tensors_and_steps_share_no_noise(large):
    half = len(large["b"])
    for start in (0, half):
        assert abs(at_every_lag(large["a"][start : start + half], large["b"])).max() < 7
    for name in ("a", "b"):
        assert abs(at_every_lag(large[name][: len(large["c"])], large["c"])).max() < 6
    zero = {"b": torch.zeros(half, dtype=torch.float64)}
    other = add_gaussian(zero, 0.25, noise(12).stream(Purpose.NOISE, 4))["b"].numpy()
    assert abs(at_every_lag(large["b"], other)).max() < 7


@pytest.mark.parametrize("count", [999_999, 1_000_001, LARGE])
def test_all_that_is_drawn_is_of_one_stream_in_order(count):
    """Noise goes on where the bits stopped: so many words are used up, and the next draw is another."""
    stream = noise(13).stream(Purpose.NOISE)
    stream.gaussian(count)
    used = sum(2 * ((min(2 * PAIRS_AT_ONCE, count - start) + 1) // 2) for start in range(0, count, 2 * PAIRS_AT_ONCE))
    whole = noise(13).stream(Purpose.NOISE)
    whole.bytes(8 * used)
    assert stream.bytes(16) == whole.bytes(16)
