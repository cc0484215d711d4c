"""The source of all randomness: keys, and a stream of bits for every use.

    noise = AesNoise(Key.fresh())
    stream = noise.stream(Purpose.NOISE, step)

A key is 32 secret bytes. Every use of randomness has a stream of its own, derived from the key by purpose,
step and context, so that no two uses share a bit: noise that is used twice cancels, and a batch whose draw
can be predicted from another draw is not a Poisson sample. Anyone who holds the key can take the noise away
again; it is never written into a run folder.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

KEY_BYTES = 32
PAIRS_AT_ONCE = 1 << 16
"""Box-Muller works on this many pairs at a time: 1 MiB of keystream, which stays in the processor's cache."""

Shape = int | tuple[int, ...]


class Purpose(StrEnum):
    """What a stream is for. The set is closed: a misspelt purpose is an error, not a shared stream."""

    PRIVATE_SAMPLER = "private-sampler"
    """Which units are in a step's Poisson batch."""
    PUBLIC_SAMPLER = "public-sampler"
    """Which public units or public views a step uses; independent of the private batch."""
    NOISE = "noise"
    """Noise on the clipped sum of a step."""
    STATISTIC = "statistic"
    """Noise on a sum over all units that a layer is solved from, in place of many steps."""
    SUBSPACE = "subspace"
    """Which public units a subspace is fitted on; independent of the private batch."""
    AUGMENT = "augment"
    """Augmentation and choice of views; may be drawn again, because it protects nothing."""
    RELEASE = "release"
    """Noise on the sums of a released picture, or of one frame of a clip."""
    COUNT = "count"
    """Noise on the counts of one window of a video."""
    SCORE = "score"
    """Noise on a score of private units."""
    TUNING = "tuning"
    """How many trials there are, which setting and which key each of them has: a secret, like noise."""
    CHAIN = "chain"
    """The start of the chain that draws depend on: published, of surroundings that need not be."""
    INIT = "init"
    """First weights, and the seeds of whatever else does not touch private data."""


ONCE = frozenset(
    {
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
)
"""Purposes whose streams may be drawn once only: to draw one again is to reuse noise or a sample."""


class Origin(StrEnum):
    """Origin of a key's bytes, as far as this process has seen it."""

    FRESH = "fresh"
    """The operating system gave them to this process."""
    KEPT = "kept"
    """The state folder gave back, or keeps, what an unfinished run had from the operating system: it may be used again,
    for the same things."""
    SEED = "seed"
    """The bytes follow from a number."""
    GIVEN = "given"
    """A caller gave them; who else knows them, and what they were used for, is unknown."""


@dataclass(frozen=True)
class Key:
    """The secret that all streams are derived from.

    A key that is made from bytes or unpickled (in another process) is `Origin.GIVEN`: nothing is known of it, and so
    nothing is guaranteed with it. One that crossed a fork is refused, since both processes have it. That is no defence
    against anyone who writes Python in the same process.

    Attributes:
        secret: 32 bytes; not shown by `repr`.
        origin: Where they come from.
        process: The number of the process that made this object.

    Raises:
        ValueError: the secret is not 32 bytes long.
    """

    secret: bytes = field(repr=False)
    origin: Origin = field(default=Origin.GIVEN, init=False, compare=False)
    process: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(self.secret)}")
        object.__setattr__(self, "process", os.getpid())

    def __reduce__(self) -> tuple[type[Key], tuple[bytes]]:
        return Key, (self.secret,)

    def __copy__(self) -> Key:
        return self

    def __deepcopy__(self, memo: object) -> Key:
        return self

    @classmethod
    def fresh(cls) -> Key:
        """A new key from the operating system."""
        return cls(os.urandom(KEY_BYTES))._from(Origin.FRESH)

    @classmethod
    def from_seed(cls, seed: int) -> Key:
        """The key that belongs to `seed`, for runs that must be repeatable and claim no privacy."""
        digest = hashlib.blake2b(str(int(seed)).encode(), digest_size=KEY_BYTES, person=b"dpose/seed/1")
        return cls(digest.digest())._from(Origin.SEED)

    @classmethod
    def kept(cls, secret: bytes) -> Key:
        """The fresh key of an unfinished run, read back from the state folder, or one that follows from such a key.

        For `dpose.privacy.keys` and `dpose.release.items` alone.
        """
        return cls(secret)._from(Origin.KEPT)

    @classmethod
    def drawn(cls, secret: bytes, *, seeded: bool) -> Key:
        """A key whose bytes come from another key: one frame's, or the first process's for all. For dpose alone.

        Args:
            secret: 32 bytes.
            seeded: Whether nothing is guaranteed with the key that they come from.
        """
        return cls(secret)._from(Origin.SEED if seeded else Origin.FRESH)

    def _from(self, origin: Origin) -> Key:
        object.__setattr__(self, "origin", origin)
        return self

    @property
    def seeded(self) -> bool:
        """Whether others may know it. Then nothing is guaranteed."""
        return self.origin in (Origin.SEED, Origin.GIVEN)

    @property
    def key_id(self) -> str:
        """A public name for the key, 16 hexadecimal digits: a one-way function of the secret."""
        return hashlib.blake2b(key=self.secret, digest_size=8, person=b"dpose/key-id/1").hexdigest()


class Stream:
    """The bits of one purpose, step and context, in order. Every call goes on where the last one stopped.

    AES-256 in counter mode, which stands in for independent uniform bits.
    """

    def __init__(self, subkey: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(subkey), modes.CTR(bytes(16))).encryptor()
        self._process = os.getpid()

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes.

        Raises:
            RuntimeError: the stream was made before this process was forked; both would draw the same bits.
        """
        if os.getpid() != self._process:
            raise RuntimeError("a stream of random bits cannot be used on both sides of a fork")
        return self._encryptor.update(bytes(count))

    def uint64(self, shape: Shape) -> NDArray[np.uint64]:
        """Uniform 64-bit words of the given shape."""
        words = np.frombuffer(self.bytes(8 * _size(shape)), dtype="<u8").astype(np.uint64, copy=False)
        return words.reshape(shape)

    def gaussian(self, shape: Shape, scale: float = 1.0) -> Tensor:
        """Independent Gaussians with standard deviation `scale`, float64, on the CPU.

        Box-Muller on 64-bit words: radius sqrt(-2 ln u) with u in [2^-64, 1], so that the tails reach 9.42
        standard deviations; a true Gaussian is farther out with probability below 5e-21. The same key gives
        the same values on the same machine and torch version; another build may differ in the last bit of a
        sine.

        Args:
            shape: Shape of the result.
            scale: Standard deviation, finite and >= 0.

        Raises:
            ValueError: `scale` is negative or not finite.
        """
        if not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"a standard deviation must be finite and not negative, not {scale}")
        import torch

        count = _size(shape)
        out = torch.empty(count, dtype=torch.float64)
        for start in range(0, count, 2 * PAIRS_AT_ONCE):
            chunk = out[start : start + 2 * PAIRS_AT_ONCE]
            pairs = (len(chunk) + 1) // 2
            words = self.uint64(2 * pairs).astype(np.float64)
            uniform = torch.from_numpy(words).add_(1.0).mul_(2.0**-64)
            radius = uniform[:pairs].log_().mul_(-2.0).sqrt_().mul_(scale)
            angle = uniform[pairs:].mul_(2.0 * math.pi)
            chunk[:pairs] = torch.cos(angle).mul_(radius)
            chunk[pairs:] = torch.sin(angle).mul_(radius)[: len(chunk) - pairs]
        return out.reshape(shape)

    def generator(self) -> np.random.Generator:
        """A NumPy generator keyed by the next 16 bytes: for augmentation and shuffling, never for noise.

        Philox is fast and statistically sound but not a cipher: what it draws may be inferred from what it
        drew.
        """
        return np.random.Generator(np.random.Philox(key=self.uint64(2)))


class NoiseSource(Protocol):
    """What the engine asks for randomness."""

    @property
    def key_id(self) -> str:
        """Public name of the key, as the ledger records it."""

    @property
    def seeded(self) -> bool:
        """Whether the key came from a seed or a caller; the statement's kind is then `seeded`."""

    def stream(self, purpose: Purpose, step: int = 0, context: bytes = b"") -> Stream:
        """The stream of this purpose, step and context."""


class AesNoise:
    """AES-CTR streams under subkeys derived from one key with keyed BLAKE2b.

    Equal (purpose, step, context) give equal streams, different ones independent streams. A stream of a
    purpose in `ONCE` is given out once in the life of this object and only in the process that made its key.
    The object cannot see other processes: that a key is not taken up again by a second run is the ledger's
    business.

    Args:
        key: The secret.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._given: dict[bytes, object] = {}

    @property
    def key_id(self) -> str:
        """Public name of the key."""
        return self._key.key_id

    @property
    def seeded(self) -> bool:
        """Whether the key came from a seed or a caller."""
        return self._key.seeded

    @property
    def origin(self) -> Origin:
        """Origin of the key."""
        return self._key.origin

    @property
    def forked(self) -> bool:
        """Whether this process is another than the one that made the key: then both have it."""
        return os.getpid() != self._key.process

    def stream(self, purpose: Purpose, step: int = 0, context: bytes = b"") -> Stream:
        """The stream of this purpose, step and context, from its start.

        Args:
            purpose: What it is for.
            step: The step (or epoch, or frame), >= 0.
            context: Whatever else tells this use from others (a digest of the plan, a unit's index).

        Raises:
            ValueError: unknown purpose or negative step.
            RuntimeError: a stream that may be drawn once only was asked for twice, or in a forked process.
        """
        purpose = Purpose(purpose)
        if step < 0:
            raise ValueError(f"a step is not negative: {step}")
        subkey = self._subkey(purpose, step, context)
        if purpose in ONCE:
            if self.forked:
                raise RuntimeError(f"the {purpose} stream was asked for in a forked process; noise would repeat")
            mine = object()
            if self._given.setdefault(subkey, mine) is not mine:  # in one step, so that threads cannot both have it
                raise RuntimeError(f"the {purpose} stream of step {step} was asked for twice; noise would repeat")
        return Stream(subkey)

    def _subkey(self, purpose: Purpose, step: int, context: bytes) -> bytes:
        # lengths in front, so that no two different triples encode alike
        parts = (purpose.value.encode(), step.to_bytes(8, "big"), context)
        encoded = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hashlib.blake2b(encoded, key=self._key.secret, digest_size=KEY_BYTES, person=b"dpose/stream/1").digest()


def _size(shape: Shape) -> int:
    return shape if isinstance(shape, int) else math.prod(shape)
