"""One key, one artefact: what a source of noise lets a release claim.

A guarantee needs noise that is secret and that is used once. Only a key that this process had from the
operating system is known to be both, and only until it is used. What another process did with the same bytes cannot be
seen from here, so bytes that came from anywhere else guarantee nothing.
"""

from __future__ import annotations

import threading

from dpose.privacy.noise import AesNoise, NoiseSource, Origin

GIVEN = (
    "the noise's key was given by the caller: anyone who made it, or used it before, can take the noise away"
)

_spent: set[str] = set()
_lock = threading.Lock()


def claim_noise_key(source: NoiseSource) -> tuple[bool, tuple[str, ...]]:
    """Take a source for one artefact.

    **Guarantee.** A key from the operating system serves one release in the life of this process; a second one with the
    same key, also in another source or with other settings, is refused. Across processes: a key that is unpickled is
    one that a caller gave, and a source that crossed a fork is refused. What is not seen: the same secret bytes put
    into two processes through the interpreter's memory.

    Args:
        source: Where the noise of the release will come from.

    Returns:
        True if nothing may be guaranteed, and what the statement must say besides.

    Raises:
        RuntimeError: the key was used before, or in another process.
    """
    if not isinstance(source, AesNoise):
        return True, (GIVEN,)
    if source.origin is Origin.SEED:
        return True, ()
    if source.origin is not Origin.FRESH:
        return True, (GIVEN,)
    if source.forked:
        raise RuntimeError("a source of noise cannot be used on both sides of a fork; noise would repeat")
    with _lock:
        if source.key_id in _spent:
            raise RuntimeError("a key was used for a release twice; noise would repeat")
        _spent.add(source.key_id)
    return False, ()
