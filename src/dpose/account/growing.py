"""What an account keeps in memory of many charges: packed, in a mapping to which more is added at little cost."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_PLACES = struct.Struct(">QQ")


class GrowingMapping(Mapping[K, V]):
    """A mapping that never changes: with more in it, it is another one, which shares nearly all with this one.

    Its layers are mappings, each less than half of the one below it. So of n entries one is copied log2(n) times at the
    most, however few are added at a time, and whoever reads one mapping is not disturbed by who adds to it.

    Args:
        layers: Oldest first; what stands in a newer one stands for what is below.
    """

    def __init__(self, layers: tuple[dict[K, V], ...] = ()) -> None:
        self._layers = layers
        self._count = sum(1 for _ in self) if len(layers) > 1 else sum(map(len, layers))

    def with_all(self, more: Mapping[K, V]) -> GrowingMapping[K, V]:
        """These, and `more` in the place of those of the same keys."""
        layers = [*self._layers, dict(more)]
        while len(layers) > 1 and 2 * len(layers[-1]) >= len(layers[-2]):
            newer = layers.pop()
            layers[-1] = {**layers[-1], **newer}
        made = GrowingMapping[K, V]()
        made._layers = tuple(layers)
        made._count = self._count + sum(key not in self for key in more)
        return made

    def __getitem__(self, key: K) -> V:
        for layer in reversed(self._layers):
            if key in layer:
                return layer[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        """The keys, in the order in which they first came."""
        for depth, layer in enumerate(self._layers):
            below = self._layers[:depth]
            yield from (key for key in layer if not any(key in one for one in below))

    def __len__(self) -> int:
        return self._count


def packed(body: Mapping[str, Any], first: int, seq: int, like: bytes) -> bytes:
    """A row of the journal in few bytes.

    Args:
        body: What it says.
        first: The row that first named what it is about.
        seq: Its own number.
        like: The text of another row, which most of this one is equal to.
    """
    squeeze = zlib.compressobj(9, wbits=-15, memLevel=4, zdict=like)
    text = json.dumps(body, separators=(",", ":")).encode()
    return _PLACES.pack(first, seq) + squeeze.compress(text) + squeeze.flush()


def unpacked(content: bytes, like: bytes) -> tuple[dict[str, Any], int, int]:
    """The body, the first row and the row's number that `packed` was given."""
    first, seq = _PLACES.unpack_from(content)
    body: dict[str, Any] = json.loads(
        zlib.decompressobj(wbits=-15, zdict=like).decompress(content[_PLACES.size :])
    )
    return body, first, seq


def likeness(body: Mapping[str, Any]) -> bytes:
    """What `packed` takes as `like` for rows like this one."""
    return json.dumps(body, separators=(",", ":")).encode()
