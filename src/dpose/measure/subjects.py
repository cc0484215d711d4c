"""Known subjects: by given labels, at most k chunks of each on a day are counted, and the others dropped.

    dropped = dropped_chunks(read_sightings(Path("seen.csv"), names), config)

**Guarantee.** docs/proofs/counts.md, "Known subjects". Neighbours: two days with equal labels that differ in content
where one subject is said to be seen. Which chunks are dropped follows from labels and settings alone, so at most k rows
differ, whatever the detector does (tests/measure/test_sensitivity.py, over all films).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpose.errors import DposeError
from dpose.files import file_table
from dpose.measure.config import CountConfig
from dpose.privacy.ranges import parse_duration
from dpose.privacy.stays import DAY

COLUMNS = ["subject", "source", "begin", "end"]
"""Of a file of labels: `source` is a file's name, times are seconds after midnight, or as 8h."""


@dataclass(frozen=True)
class Sighting:
    """A label: from when to when a subject is seen by a source.

    Attributes:
        subject: Who.
        source: Number of the source.
        begin: Seconds since midnight.
        end: The same; in it the subject may still be seen.
    """

    subject: str
    source: int
    begin: Fraction
    end: Fraction


def dropped_chunks(sightings: Sequence[Sighting], config: CountConfig) -> frozenset[tuple[int, int]]:
    """Source and number of the chunks that are dropped, so that at most k of any subject's are left.

    A chunk is a subject's if it sees a moment of a sighting, in its lead-in too. Chunks are taken in one public order
    that spreads them over the day; one is dropped if any of its subjects has k already.
    """
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    for one in sightings:
        last = math.floor((one.end + config.lead) / config.chunk)
        for chunk in range(math.floor(one.begin / config.chunk), last + 1):
            owners[one.source, chunk].add(one.subject)
    kept, dropped = Counter[str](), set()
    for place in sorted(owners, key=_spread):
        if any(kept[subject] >= (config.subject_chunks or 0) for subject in owners[place]):
            dropped.add(place)
        else:
            kept.update(owners[place])
    return frozenset(dropped)


def _spread(place: tuple[int, int]) -> tuple[int, int]:
    """Multiples of the golden ratio, which fill the day evenly however many of them are taken."""
    source, chunk = place
    return chunk * 2_654_435_769 % 2**32, source


def read_sightings(file: Path, sources: Sequence[str]) -> tuple[Sighting, ...]:
    """The labels of a CSV file with the columns `COLUMNS`; sources are named by paths of files, in order."""
    try:
        columns, rows = file_table(file)
    except (OSError, ValueError) as error:
        raise DposeError("subjects-unreadable", f"cannot be read ({error})", str(file)) from error
    if columns != COLUMNS:
        raise DposeError(
            "subjects-columns-differ", "has other columns", str(file), f"let its first line be {','.join(COLUMNS)}"
        )
    found = []
    for line, row in enumerate(rows, 2):
        where = f"{file}, line {line}"
        near = [k for k, name in enumerate(sources) if row["source"] in (name, Path(name).name)]
        subject = row["subject"].strip()
        if not subject:
            raise DposeError("subjects-name-missing", "names no subject", where)
        if len(near) != 1:
            raise DposeError(
                "subjects-source-unknown", f"names {len(near)} of the sources that are counted, not one", where
            )
        begin, end = parse_duration(row["begin"], where), parse_duration(row["end"], where)
        if not 0 <= begin <= end <= DAY:
            raise DposeError("subjects-times-out-of-range", "begins after its end, or leaves the day", where)
        found.append(Sighting(subject, near[0], begin, end))
    return tuple(found)
