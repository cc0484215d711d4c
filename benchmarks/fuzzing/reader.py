"""What a kind of bad input is: valid files, how they are mutated, and what reads them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fuzzing.mutations import Mutate


@dataclass(frozen=True)
class Reader:
    """A kind of file.

    Attributes:
        files: Valid ones by suffix.
        mutate: How they are mutated: all, or each by its suffix.
        read: Gets the mutant's path, alone in a folder that may be written to, and gives what is claimed: text that
            must not differ from what the valid file gives, or "".
    """

    files: Mapping[str, bytes]
    mutate: Mutate | Mapping[str, Mutate]
    read: Callable[[Path], str]

    def mutant(self, rng: random.Random) -> tuple[str, bytes]:
        """Suffix and content of a mutant."""
        suffix = rng.choice(sorted(self.files))
        mutate = self.mutate if callable(self.mutate) else self.mutate[suffix]
        return suffix, mutate(self.files[suffix], rng)
