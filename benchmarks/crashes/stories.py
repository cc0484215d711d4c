"""What is cut off, by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crashes.releases import Account, Corpus, Release
from crashes.story import Story
from crashes.trainings import Ranks, Training
from crashes.tunings import Tuning

KINDS: Mapping[str, Callable[[int], Story]] = {
    "release": Release, "corpus": Corpus, "account": Account, "training": Training, "ranks": Ranks, "tuning": Tuning,
}  # fmt: skip
