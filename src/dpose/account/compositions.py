"""What charges cost together, remembered by the account: loss distributions take seconds, a look takes none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version

from dpose.account.composition import chosen_epsilon, chosen_share, composed
from dpose.account.journal import Transaction
from dpose.account.records import Charge, restated
from dpose.account.store import Where, opened
from dpose.privacy.neighbours import Neighbours


class Compositions:
    """Compositions that the account has computed before: by their events, so that none can be out of date."""

    def __init__(self, account: Transaction) -> None:
        self._key = account.key
        self._old: dict[str, float] = {}
        for digest, value, mac in account.rows("SELECT digest, value, mac FROM compositions"):
            if mac == self._key.mac(
                "composition", digest, value
            ):  # what somebody else wrote is computed anew
                self._old[digest] = float(value)
        self._new: dict[str, float] = {}

    def of(self, entries: Sequence[Charge], delta: float, asked: Neighbours) -> float:
        """`composed`, or what it was before."""
        events = sorted(repr(event) for entry in entries for event in restated(entry, asked))
        name = self._key.mac("question", version("dp-accounting"), repr(delta), str(asked.replaces), *events)
        if name not in self._old:
            self._old[name] = self._new[name] = composed(entries, delta, asked)
        return self._old[name]

    def chosen(self, entries: Sequence[Charge], delta: float, asked: Neighbours) -> float:
        """`chosen_epsilon` of charges among which is no score without noise: 0 for nothing."""
        alone = self.of(entries, chosen_share(delta), asked) if len(entries) == 1 else math.inf
        return chosen_epsilon(entries, delta, asked, alone)

    def keep(self, where: Where) -> None:
        """Write what is new, where there is an account."""
        if not self._new:
            return
        with opened(where).transaction(make=False) as account:
            for digest, value in self._new.items():
                account.run(
                    "INSERT INTO compositions (digest, value, mac) VALUES (:digest, :value, :mac) "
                    "ON CONFLICT DO NOTHING",
                    digest=digest,
                    value=repr(value),
                    mac=self._key.mac("composition", digest, repr(value)),
                )
