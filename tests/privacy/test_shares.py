"""Several processes read the units together: each its own, and all end with what one would have found."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from circle import Circle, together
from dots import Dots
from dpose.errors import DposeError
from dpose.privacy import shares
from dpose.privacy.merged import first_entries
from dpose.privacy.neighbours import Relation
from dpose.privacy.protected import protect
from dpose.privacy.shares import ALONE, broadcast, is_local, read_shared
from dpose.training.charging import run_charge
from dpose.training.distributed import ProcessGroup
from dpose.training.guards import check_disjoint
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.step import _share
from dpose.units import View

PLAN = TrainingPlan(noise_multiplier=2.0, delta=1e-4, steps=3, expected_batch_size=5, accountant="rdp")


class Files:
    """Units that write down which of them were read, by what `content` holds for each."""

    unit = "image"

    def __init__(self, content, names=None, prints=None):
        self.content, self.names, self.read = list(content), names, set()
        self.prints = prints

    def __len__(self):
        return len(self.content)

    def unit_id(self, index):
        return self.names[index] if self.names else f"p{index}"

    def content_hashes(self, index):
        self.read.add(index)
        if self.content[index] is None:
            raise DposeError("picture-cut-short", "is cut short", self.unit_id(index))
        return tuple(hashlib.sha256(part.encode()).hexdigest() for part in self.content[index].split("+"))

    def file_hashes(self, index):
        return (hashlib.sha256(f"file {self.content[index]}".encode()).hexdigest(),)

    def load(self, index, rng):
        self.read.add(index)
        return [View(np.zeros((4, 4, 3), np.uint8), {"way": np.int64(len(self.content[index] or ""))})]


class Printed(Files):
    """The same, with fingerprints and people."""

    def fingerprints(self, index):
        self.read.add(index)
        return np.full((1, 16), self.prints[index], np.uint8)

    def subjects(self, index):
        return ()


def found(protected):
    """All that a run takes from its units."""
    identity, data = protected.identity, protected.data
    return (identity.digest, identity.marks.tolist(), identity.units, identity.merged, list(first_entries(data)))


def shared(count, data):
    """What each of `count` processes makes of its own `data(index)`."""
    made = [data(index) for index in range(count)]

    def do(reader):
        return found(protect(made[reader.index], readers=reader))

    return together(count, do), made


@pytest.mark.parametrize("count", [2, 3, 5])
def test_they_find_the_units_digests_and_marks_that_one_finds(count, monkeypatch):
    """Copies in other shares, by way of others, in every block: with fewer pictures than units in all."""
    monkeypatch.setattr(shares, "BLOCK", 3)
    rng = np.random.default_rng(count)
    for n in (0, 1, 2, 23, 40):
        content = ["+".join(map(str, rng.integers(0, n, size=rng.integers(1, 3)))) for _ in range(n)]
        alone = protect(Files(content))
        assert alone.identity.merged > 0 or n < 3
        ended, made = shared(count, lambda _, content=content: Files(content))
        assert all(one == found(alone) for one in ended)
        groups = [[int(i) for i in group] for group in getattr(alone.data, "_groups", [[i] for i in range(n)])]
        for index, files in enumerate(made):  # its own, and the copies of those: no other
            copies = {i for group in groups if group[0] % count == index for i in group}
            assert files.read == copies | {i for i in range(n) if i % count == index}


def test_what_a_process_trains_on_it_has_read_and_nothing_else(monkeypatch):
    """The unit is its first entry's process's: copies that stand before it move nobody's units."""
    content = ["a", "a", "b", "c", "a", "d", "d", "e", "f"]
    ended, made = shared(2, lambda _: Files(content))
    entries = ended[0][-1]
    assert entries == [0, 2, 3, 5, 7, 8]
    every = np.arange(len(entries))
    parts = [_share(every, ProcessGroup(index, 2), entries) for index in range(2)]
    assert sorted(parts[0] + parts[1]) == every.tolist()
    assert parts[0] == [0, 1, 5]
    groups = [(0, 1, 4), (2,), (3,), (5, 6), (7,), (8,)]
    for index, part in enumerate(parts):
        assert {i for unit in part for i in groups[unit]} <= made[index].read


def test_the_account_is_asked_for_the_same_by_all(tmp_path):
    content = [str(i % 7) for i in range(20)]

    def charge(reader):
        own = protect(Files(content), readers=reader)
        bound = PLAN.bind_to(own)
        asked = run_charge(tmp_path, bound, own, RunOptions(), opened=None, seeded=False, known=None)
        return bound.sha256, asked.marks.tolist(), replace(asked, id="", at="", marks=own.identity.marks[:0])

    alone = charge(ALONE)
    for one in together(3, charge):
        assert one[:2] == alone[:2]
        assert (one[2].units, one[2].events, one[2].unit) == (7, alone[2].events, "image")


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        # another name for a number, in a unit that the others read
        (lambda: Files("abcdef", names=["p0", "p1", "p2", "p3", "p5", "p4"]), "they differ in the data"),
        (lambda: Files("abcde"), "they differ in the data"),
        # p4 is a copy of p1, which is this process's: here it is another picture, and would be trained on
        (lambda: Files("abcdxf"), "p4 is not what another read"),
        # an original that this one alone cannot read
        (lambda: Files(["a", None, "c", "d", "b", "f"]), "is cut short"),
        (lambda: Files(["a", "b", "c", "d", None, "f"]), "is cut short"),
    ],
)
def test_one_that_holds_something_else_is_refused_and_all_say_so(odd, named):
    ended, _ = shared(2, lambda index: odd() if index else Files("abcdbf"))
    for error in ended:
        assert isinstance(error, DposeError)
        assert named in error.line()


def test_one_picture_under_two_names_in_two_processes_is_one_unit_or_refused():
    """Files that were put in another order on one node: 0 holds "a" under p0, 1 holds it under p3, and both read it."""
    ended, _ = shared(2, lambda index: Files("abcdef"[:: -1 if index else 1]))
    for error in ended:
        assert isinstance(error, DposeError)
        assert "is not what another read" in error.line()


def test_a_difference_that_no_process_reads_is_none():
    """What another process alone reads need not be here at all."""
    ended, _ = shared(2, lambda index: Files([c if k % 2 == index else None for k, c in enumerate("abcdef")]))
    assert ended[0] == ended[1] == found(protect(Files("abcdef")))


class Idle(Circle):
    """The last process says nothing of its share."""

    def gather(self, content):
        idle = self.index == self.count - 1 and b'{"said": [[' in content
        return super().gather(b'{"said": []}' if idle else content)


class Eager(Circle):
    """The last process answers for the first one's first unit, too."""

    def gather(self, content):
        eager = self.index == self.count - 1 and b'{"said": [[' in content
        return super().gather(content.replace(b'"said": [', b'"said": [[0, 1], ') if eager else content)


@pytest.mark.parametrize("reader", [Idle, Eager])
def test_units_that_were_left_out_or_read_by_two_are_told(reader):
    def do(readers):
        return list(read_shared(lambda index: [index], range(10), readers))

    assert together(2, do) == [[[i] for i in range(10)]] * 2
    for error in together(2, do, reader):
        assert isinstance(error, DposeError)
        assert "left out units of its own, or read others'" in error.line()


def test_whoever_is_alone_sees_the_error_itself():
    class OwnError(DposeError):
        """What a caller may wait for."""

    error = OwnError("a-code", "is broken", "here", "mend it")

    def do():
        raise error

    with pytest.raises(OwnError) as caught:
        broadcast(do, ALONE)
    assert caught.value is error
    for told in together(2, lambda readers: broadcast(do, readers)):
        assert (type(told), told.code, told.line()) == (DposeError, "a-code", error.line())


def test_each_unit_is_one_process_s():
    for count in (1, 2, 3, 7):
        owners = [[is_local(number, ProcessGroup(index, count)) for index in range(count)] for number in range(20)]
        assert all(sum(row) == 1 for row in owners)


@pytest.mark.parametrize(
    ("content", "prints", "told"), [("xc", [9, 9], "is a picture of"), ("xy", [9, 4], "looks like")]
)
def test_public_units_are_compared_with_pictures_that_others_read(content, prints, told):
    """Unit p2 is the first process's: the second one learns from it what the picture is."""
    private = [Printed("abcd", prints=[240, 255, 5, 60]) for _ in range(2)]
    public = Printed(content, names=["q0", "q1"], prints=prints)

    def do(reader):
        own = protect(private[reader.index], readers=reader)
        check_disjoint(public, own, 1, Console(quiet=True), reader)

    for error in together(2, do):
        assert isinstance(error, DposeError)
        assert f"q1 {told} private unit p2" in error.line().replace("looks like a picture of", "looks like")
    assert private[1].read == {1, 3}


def test_units_of_the_engine_s_own_protocol_alone_are_shared_too():
    alone = found(protect(Dots(9), Relation.ADD_REMOVE))
    assert together(2, lambda reader: found(protect(Dots(9), Relation.ADD_REMOVE, readers=reader))) == [alone] * 2
