"""A ledger that was altered, shortened, reordered or swapped is refused; every reserved step is counted."""

import hashlib
import json
import os
import stat
from dataclasses import replace

import pytest

from dpose.errors import DposeError
from dpose.privacy import ledger as ledger_module
from dpose.privacy.entries import Entry, EntryType, Seal, check_sealed, plan_digest
from dpose.privacy.ledger import Ledger, hold_run, read_ledger, spent, verify_ledger
from dpose.privacy.sections import PlantedCanaries, Query
from dpose.privacy.statement import PrivacyStatement
from dpose.runs.verify import verify_run
from dpose.training.plan import TrainingPlan
from refusals import refused
from run_folders import finished_run, sealed_again

SETTINGS = TrainingPlan(
    delta=1e-5, noise_multiplier=2.0, accountant="rdp", steps=30, expected_batch_size=50, unit="image"
)
BOUND = SETTINGS.bind(1000)
EVENT, PLAN, COST = BOUND.event, BOUND.sha256, BOUND.epsilon
QUERY = Query("mean PCKh@0.5", "ward:val")


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def run(tmp_path, state):
    """A finished run: 30 steps in blocks of 10, and a seal."""
    finished_run(tmp_path / "run", state, SETTINGS)
    return tmp_path / "run"


def said(run, **changes) -> PrivacyStatement:
    """The statement that stands in the folder, with changes."""
    return replace(PrivacyStatement.from_json((run / "privacy.json").read_text()), **changes)


def edit(run, change):
    file = run / "ledger.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(change(lines)))


def test_a_true_ledger_is_accepted(run, state):
    found = verify_run(run, state)
    assert found.spent == COST
    assert "30 reserved steps" in " ".join(found.lines)
    entries = read_ledger(run / "ledger.jsonl")
    assert [entry.seq for entry in entries] == list(range(8))
    assert entries[0].prev == "0" * 64
    assert spent(entries) == (EVENT,)


def test_the_lines_have_the_designs_fields(run):
    for number, line in enumerate((run / "ledger.jsonl").read_text().splitlines()):
        extra = ["run_id", "nonce"] if number == 0 else []
        assert list(json.loads(line)) == [
            *("seq", "prev", "type", "event", "first_step", "steps", "plan_sha256", "key_id"),
            *extra,
            "sha256",
        ]


def test_lines_that_take_no_steps_say_so(run):
    for entry in read_ledger(run / "ledger.jsonl"):
        takes = entry.type in (EntryType.RESERVE, EntryType.COMMIT)
        assert takes or (entry.first_step, entry.steps) == (0, 0)


def test_the_head_kept_apart_follows_every_line(tmp_path, state):
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN, "key", state) as ledger:
        file = state / "heads" / f"{ledger.run_id}.json"
        for write in (lambda: None, lambda: ledger.reserve(EVENT, 0, 10), lambda: ledger.commit(0, 10)):
            write()
            kept = json.loads(file.read_text())
            assert kept == {"run_id": ledger.run_id, "seq": len(ledger.entries) - 1, "sha256": ledger.head}
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(DposeError):
        Ledger.append_to(path, state)


@pytest.mark.parametrize("broken", [lambda whole: whole.removesuffix(b"\n"), lambda whole: whole + b"{"])
def test_what_is_mended_is_on_disk_before_anything_is_added(tmp_path, state, monkeypatch, broken):
    path, kept, real = tmp_path / "ledger.jsonl", [], os.fsync
    Ledger.create(path, PLAN, "key", state).close()
    whole = path.read_bytes()
    path.write_bytes(broken(whole))
    monkeypatch.setattr(os, "fsync", lambda number: kept.append(path.read_bytes()) or real(number))
    Ledger.append_to(path, state).close()
    assert whole in kept


def test_a_run_is_held_by_one_and_let_go_whatever_happens(state, monkeypatch):
    def fails():
        with hold_run("ab" * 16, state):
            with pytest.raises(DposeError), hold_run("ab" * 16, state):
                raise AssertionError("held twice")
            raise ValueError("within")

    taken, real = [], ledger_module.take_lock
    # kept here: no lock is let go by being forgotten
    monkeypatch.setattr(ledger_module, "take_lock", lambda path: taken.append(real(path)) or taken[-1])
    with pytest.raises(ValueError, match="within"):
        fails()
    with hold_run("ab" * 16, state):
        assert [lock is None for lock in taken] == [False, True, False]
        assert stat.S_IMODE((state / "heads").stat().st_mode) == 0o700


def test_a_ledger_that_is_not_started_is_not_kept_locked(run, state):
    with pytest.raises(DposeError) as caught:
        Ledger.create(run / "ledger.jsonl", PLAN, "key", state)
    assert caught.tb is not None
    Ledger.append_to(run / "ledger.jsonl", state).close()


def test_a_writer_counts_no_step_for_lines_that_take_none(tmp_path, state):
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN, "key", state) as ledger:
        ledger.canaries(PlantedCanaries("gradient", "7", "ab" * 32))
        ledger.query(QUERY.to_dict())
        ledger.seal(Seal({}, {}))
        ledger.resume("other-key", 0)
        assert {entry.type for entry in ledger.entries} == set(EntryType) - {EntryType.RESERVE, EntryType.COMMIT}
        assert {(entry.first_step, entry.steps) for entry in ledger.entries} == {(0, 0)}


def test_canaries_are_committed_to_before_a_step_is_reserved(tmp_path, state):
    planted = PlantedCanaries("gradient", "7", "ab" * 32)
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN, "key", state) as ledger:
        ledger.canaries(planted)
        assert (ledger.entries[-1].type, ledger.entries[-1].event) == (EntryType.CANARIES, planted.to_dict())
        ledger.reserve(EVENT, 0, 10)
        ledger.query(QUERY.to_dict())
        with pytest.raises(ValueError, match="before the first step"):
            ledger.canaries(planted)
    assert len(read_ledger(tmp_path / "ledger.jsonl")) == 4


def test_an_unfinished_reservation_is_spent(run, state):
    with Ledger.append_to(run / "ledger.jsonl", state) as ledger:
        ledger.reserve(EVENT, 30, 15)
    assert spent(read_ledger(run / "ledger.jsonl"))[0].steps == 45


def test_steps_taken_twice_are_counted_twice(run, state):
    with Ledger.append_to(run / "ledger.jsonl", state) as ledger:
        ledger.resume("other-key", 20)
        ledger.reserve(EVENT, 20, 10)
        ledger.commit(20, 10)
        assert ledger.entries[-1].key_id == "other-key"
    sealed_again(run, state=state)
    with refused("statement-does-not-add-up", where="ledger"):
        verify_run(run, state)


def test_steps_taken_again_under_one_key_with_other_noise_count_again(tmp_path, state):
    """Another event is another mechanism, whatever key its randomness comes from."""
    others = [replace(EVENT, sigma=0.5), replace(EVENT, q=0.1), replace(EVENT, sensitivity=2.0)]
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN, "key", state) as ledger:
        for event in (EVENT, EVENT, *others):
            ledger.reserve(event, 0, 10)
        assert ledger.spent_steps == 40
        assert ledger.new_steps(replace(EVENT, sigma=0.7), 5, 10) == 10
        assert ledger.new_steps(EVENT, 5, 10) == 5
        assert ledger.new_steps(EVENT, 5, 7) == 2
    assert sorted(event.steps for event in spent(ledger.entries)) == [10] * 4
    told = [replace(e, event=dict(sorted((e.event or {}).items()))) for e in ledger.entries if e.steps]
    assert spent([*told, *ledger.entries]) == spent(ledger.entries)


def test_noise_unlike_the_statements_is_found(run, state):
    with Ledger.append_to(run / "ledger.jsonl", state) as ledger:
        ledger.reserve(replace(EVENT, sigma=0.5), 30, 1)
    sealed_again(run, state=state)
    with refused("statement-does-not-add-up"):
        verify_run(run, state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda ls: [*ls[:3], ls[3].replace('"steps":10', '"steps":1', 1), *ls[4:]],
            ("ledger-entry-altered", "line 4"),
        ),
        (
            lambda ls: [*ls[:3], ls[3].replace('"sigma":"2.0"', '"sigma":"2.1"'), *ls[4:]],
            ("ledger-entry-altered", "line 4"),
        ),
        (lambda ls: [*ls[:2], ls[3], ls[2], *ls[4:]], ("ledger-order-broken", "line 3")),
        (lambda ls: [*ls[:2], *ls[3:]], ("ledger-order-broken", "line 3")),
        (lambda ls: ls[1:], ("ledger-order-broken", "line 1")),
        (lambda ls: [*ls[:3], "\n", *ls[3:]], ("ledger-entry-invalid", "line 4")),
        (lambda ls: [*ls[:3], "[]\n", *ls[3:]], ("ledger-entry-invalid", "line 4")),
        (lambda ls: [*ls[:2], ls[2].replace(",", ", ", 1), *ls[3:]], ("ledger-entry-altered", "line 3")),
        (lambda ls: ls[:-1], ("ledger-cut",)),
        (lambda ls: ls[:1], ("ledger-cut",)),
        (lambda ls: [], ("ledger-empty",)),
    ],
)
def test_tampering_is_refused_and_named(run, state, change, message):
    edit(run, change)
    with refused(*message) as caught:
        verify_run(run, state)
    assert "\n" not in str(caught.value)
    # and on a machine that never saw the run, by the statement's head alone
    with pytest.raises(DposeError):
        verify_run(run, state / "elsewhere")


@pytest.mark.parametrize("position", range(0, 2000, 97))
def test_one_changed_byte_is_refused(run, state, position):
    file = run / "ledger.jsonl"
    raw = bytearray(file.read_bytes())
    raw[position % (len(raw) - 1)] ^= 1
    file.write_bytes(raw)
    with refused(("ledger-entry-altered", "ledger-entry-invalid")):
        verify_run(run, state)


def test_a_rewritten_chain_is_refused_by_either_head(run, state):
    """All hashes made good again after an edit: only what stands outside the file shows it."""
    entries = read_ledger(run / "ledger.jsonl")
    forged, prev = [], "0" * 64
    for entry in entries[:5]:
        forged.append(replace(entry, prev=prev).sealed() if entry.seq else replace(entry, key_id="x").sealed())
        prev = forged[-1].sha256
    (run / "ledger.jsonl").write_bytes(b"".join(entry.line() for entry in forged))
    read_ledger(run / "ledger.jsonl")
    with refused("ledger-end-missing"):
        verify_ledger(run / "ledger.jsonl", entries[-1].sha256, state / "elsewhere")
    with refused("ledger-cut"):
        verify_ledger(run / "ledger.jsonl", forged[-1].sha256, state)


def test_a_rewritten_chain_of_the_same_length_is_refused_where_it_was_made(run, state):
    path = run / "ledger.jsonl"
    forged, prev = [], "0" * 64
    for entry in read_ledger(path):
        forged.append(replace(entry, prev=prev, key_id="x").sealed())
        prev = forged[-1].sha256
    path.write_bytes(b"".join(entry.line() for entry in forged))
    verify_ledger(path, prev, state / "elsewhere")
    with pytest.raises(DposeError) as caught:
        verify_ledger(path, prev, state)
    assert f"line {len(forged)}" in str(caught.value)
    with pytest.raises(DposeError):
        Ledger.append_to(path, state)


def test_ledger_and_statement_restored_together_are_refused_where_they_were_made(run, state):
    old = read_ledger(run / "ledger.jsonl")[4].sha256
    edit(run, lambda lines: lines[:5])
    (run / "privacy.json").write_text(said(run, ledger_head=old, seal="").to_json())
    with refused("ledger-cut", where="8 lines"):
        verify_run(run, state)


def test_another_runs_ledger_is_refused(run, state, tmp_path):
    other = tmp_path / "other.jsonl"
    with Ledger.create(other, PLAN, "key", state) as ledger:
        ledger.reserve(EVENT, 0, 1)
    (run / "ledger.jsonl").write_bytes(other.read_bytes())
    with refused("ledger-end-missing"):
        verify_run(run, state)


def test_another_plan_is_refused(run, state):
    (run / "privacy.json").write_text(said(run, plan_sha256="cd" * 32).to_json())
    with refused("ledger-of-other-plan"):
        verify_run(run, state)


def test_lines_after_the_statement_are_refused(run, state):
    with Ledger.append_to(run / "ledger.jsonl", state) as ledger:
        ledger.query(QUERY.to_dict())
    with refused("ledger-longer-than-statement", where="line 9"):
        verify_run(run, state)


def test_queries_must_stand_in_both_word_for_word(run, state):
    with Ledger.append_to(run / "ledger.jsonl", state) as ledger:
        ledger.query(QUERY.to_dict())
    sealed_again(run, state=state)
    with refused("statement-queries-differ", where="1 queries"):
        verify_run(run, state)
    before = said(run)
    for other in (replace(QUERY, what="a mean"), replace(QUERY, covered=True), replace(QUERY, cost="nothing")):
        sealed_again(run, before.with_query(other), state=state)
        with refused("statement-queries-differ", where="1"):
            verify_run(run, state)
    sealed_again(run, before.with_query(QUERY), state=state)
    verify_run(run, state)


def test_a_missing_ledger_is_refused(run, state):
    (run / "ledger.jsonl").unlink()
    with refused("ledger-missing"):
        verify_run(run, state)
    (run / "privacy.json").write_text(said(run, ledger_head="", seal="").to_json())
    with refused("ledger-missing"):
        verify_run(run, state / "elsewhere")


def test_a_folder_without_a_statement_is_refused(tmp_path):
    with refused("statement-missing"):
        verify_run(tmp_path / "nowhere")


@pytest.mark.parametrize("kept", [1, 40, 200, -3])
def test_a_torn_last_line_counts_as_a_reservation(run, state, kept):
    file = run / "ledger.jsonl"
    whole = file.read_bytes()
    with Ledger.append_to(file, state) as ledger:
        ledger.reserve(EVENT, 30, 10)
    line = file.read_bytes()[len(whole) :]
    file.write_bytes(whole + line[:kept])
    (state / "heads" / f"{ledger.run_id}.json").unlink()  # the head is kept after the line is whole
    entries = read_ledger(file)
    assert entries[-1].torn
    assert spent(entries)[0].steps == 40
    with refused("statement-does-not-add-up"):
        verify_run(run, state)

    with Ledger.append_to(file, state) as ledger:
        ledger.resume("other-key", 30)
    mended = read_ledger(file)
    assert not any(entry.torn for entry in mended)
    assert spent(mended)[0].steps == 40


def test_a_torn_line_after_the_seal_is_counted_and_is_no_other_end(run):
    file = run / "ledger.jsonl"
    whole = check_sealed(run, said(run), read_ledger(file))
    file.write_bytes(file.read_bytes() + b"{")
    entries = read_ledger(file)
    assert entries[-1].torn
    assert check_sealed(run, said(run), entries) == whole
    with pytest.raises(DposeError):
        check_sealed(run, said(run), entries[:-2])


def test_a_torn_line_stands_for_the_largest_reservation_after_the_last(tmp_path, state):
    file = tmp_path / "ledger.jsonl"
    with Ledger.create(file, PLAN, "key", state) as ledger:
        file.write_bytes(file.read_bytes() + b"{")
        nothing = read_ledger(file)[-1]
        file.write_bytes(file.read_bytes()[:-1])
        for first, steps in ((0, 10), (10, 20), (30, 5)):
            ledger.reserve(EVENT, first, steps)
        ledger.resume("other-key", 30)
    assert (nothing.torn, nothing.seq, nothing.event) == (True, 1, None)
    assert (nothing.first_step, nothing.steps) == (0, 0)
    last = read_ledger(file)[-1]
    file.write_bytes(file.read_bytes() + b"{")
    torn = read_ledger(file)[-1]
    assert (torn.seq, torn.prev, torn.key_id) == (5, last.sha256, "other-key")
    assert (torn.first_step, torn.steps, torn.event["steps"]) == (35, 20, 20)
    assert spent(read_ledger(file))[0].steps == 55


def test_a_ledger_that_is_none_is_one_line(tmp_path):
    (tmp_path / "folder").mkdir()
    for name, content, words in (
        ("folder", None, "ledger-unreadable"),
        ("half", b'{"seq":0', "ledger-first-line-cut"),
        ("empty", b"", "ledger-empty"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with refused(words):
            read_ledger(tmp_path / name)


@pytest.mark.parametrize("change", [{"seq": 2}, {"prev": "f" * 64}])
def test_a_line_follows_the_one_before_by_number_and_by_hash(tmp_path, change):
    first = Entry(0, "0" * 64, "open", None, 0, 0, PLAN, "key", run_id="a" * 32, nonce="b" * 32).sealed()
    second = Entry(1, first.sha256, "query", QUERY.to_dict(), 0, 0, PLAN, "key")
    (tmp_path / "ledger").write_bytes(first.line() + second.sealed().line())
    assert len(read_ledger(tmp_path / "ledger")) == 2
    (tmp_path / "ledger").write_bytes(first.line() + replace(second, **change).sealed().line())
    with refused("ledger-order-broken", where="line 2"):
        read_ledger(tmp_path / "ledger")


def test_a_line_holds_nothing_that_json_has_not(tmp_path):
    first = Entry(0, "0" * 64, "open", None, 0, 0, PLAN, "key", run_id="a" * 32, nonce="b" * 32).sealed()
    (tmp_path / "ledger").write_bytes(first.line() + b'{"seq":1,"event":{"what":NaN}}\n')
    with refused("ledger-entry-invalid", where="line 2"):
        read_ledger(tmp_path / "ledger")
    with pytest.raises(ValueError, match="JSON"):
        Entry(1, first.sha256, "query", {"what": float("nan")}, 0, 0, PLAN, "key").sealed()


def test_a_plans_digest_is_of_its_settings_as_json():
    content = {"event": None, "n": 7, "plan": {"a": 1, "b": "x"}, "steps": 3}
    expected = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    assert plan_digest({"b": "x", "a": 1}, 7, 3, None) == expected


def test_a_last_line_that_lacks_only_its_newline_is_whole(run, state):
    file = run / "ledger.jsonl"
    file.write_bytes(file.read_bytes().removesuffix(b"\n"))
    assert not read_ledger(file)[-1].torn
    verify_run(run, state)
    with Ledger.append_to(file, state) as ledger:
        ledger.query(QUERY.to_dict())
    assert len(read_ledger(file)) == 9


def test_a_torn_line_is_no_way_to_shorten(run, state):
    file = run / "ledger.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    with refused("ledger-cut"):
        verify_run(run, state)
    with refused("ledger-cut"):
        Ledger.append_to(file, state)


def test_a_second_writer_is_refused(run, state):
    with Ledger.append_to(run / "ledger.jsonl", state) as ledger:
        with refused("ledger-busy"):
            Ledger.append_to(run / "ledger.jsonl", state)
        ledger.query(QUERY.to_dict())
    Ledger.append_to(run / "ledger.jsonl", state).close()


def test_a_ledger_is_not_started_twice(run, state):
    with refused("ledger-exists"):
        Ledger.create(run / "ledger.jsonl", PLAN, "key", state)
    verify_run(run, state)


def test_a_process_that_is_killed_as_it_starts_a_ledger_leaves_none_or_a_whole_one(tmp_path, state):
    calls = ("open", "write", "fsync", "chmod", "replace")
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, left = folder / "ledger.jsonl", [number]
        child = os.fork()
        if not child:
            try:
                for name in calls:
                    setattr(os, name, _ends_after(getattr(os, name), left))
                Ledger.create(path, PLAN, "key", state)
                os._exit(0)
            finally:
                os._exit(2)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if path.exists():
            Ledger.append_to(path, state).close()
        else:
            Ledger.create(path, PLAN, "key", state).close()
        if not ended:
            break
    assert ended == 0
    assert number > len(calls)


def _ends_after(call, left):
    def counted(*args, **kwargs):
        if left[0] == 0:
            os._exit(1)
        left[0] -= 1
        return call(*args, **kwargs)

    return counted


def test_a_ledger_that_is_missing_is_not_made(tmp_path, state):
    with refused("file-access-failed"):
        Ledger.append_to(tmp_path / "ledger.jsonl", state)
    assert not (tmp_path / "ledger.jsonl").exists()


def test_only_reserved_steps_are_committed(tmp_path, state):
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN, "key", state) as ledger:
        ledger.reserve(EVENT, 0, 10)
        for first, steps in ((0, 11), (10, 1)):
            with pytest.raises(ValueError, match="never reserved"):
                ledger.commit(first, steps)
        ledger.commit(0, 10)
    with pytest.raises(ValueError, match="closed"):
        ledger.commit(0, 10)


def test_a_line_is_on_disk_before_reserve_returns(tmp_path, state, monkeypatch):
    synced = []
    fsync = os.fsync

    def watch(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("no /proc to see which file was flushed")
    monkeypatch.setattr(os, "fsync", watch)
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path, PLAN, "key", state) as ledger:
        # written beside, then renamed
        assert str(tmp_path) in synced
        assert any(name.startswith(str(tmp_path / ".ledger.jsonl.")) for name in synced)
        synced.clear()
        ledger.reserve(EVENT, 0, 10)
        assert str(path) in synced
        assert path.read_bytes().endswith(ledger.entries[-1].line())


def test_a_full_disk_is_an_error_and_no_reservation(tmp_path, state, monkeypatch):
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN, "key", state) as ledger:
        head = ledger.head
        monkeypatch.setattr(ledger_module.os, "write", lambda descriptor, line: len(line) // 2)
        with refused("disk-full"):
            ledger.reserve(EVENT, 0, 10)
        assert ledger.head == head
        with pytest.raises(ValueError, match="closed"):
            ledger.reserve(EVENT, 0, 10)


def test_the_head_kept_apart_is_private_and_current(run, state):
    entries = read_ledger(run / "ledger.jsonl")
    file = state / "heads" / f"{entries[0].run_id}.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["sha256"] == entries[-1].sha256
    for content in ("{}", '{"seq": 1e999, "sha256": ""}'):
        file.write_text(content)
        with refused("ledger-head-unreadable"):
            verify_run(run, state)


def test_the_users_state_folder_is_the_default(tmp_path):
    with Ledger.create(tmp_path / "ledger.jsonl", PLAN, "key") as ledger:
        kept = ledger_module._head_file(ledger.run_id, None)
    assert kept.is_file()
    assert str(kept).startswith(os.environ["XDG_STATE_HOME"])


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "../../etc/x"},
        {"steps": -1},
        {"first_step": True},
        {"steps": 2.5},
        {"plan_sha256": 7},
        {"key_id": None},
        {"type": "commit"},
    ],
)
def test_fields_are_checked_even_where_the_hash_is_right(tmp_path, change):
    good = Entry(0, "0" * 64, "open", None, 0, 0, PLAN, "key", run_id="a" * 32, nonce="b" * 32)
    (tmp_path / "good").write_bytes(good.sealed().line())
    read_ledger(tmp_path / "good")
    (tmp_path / "bad").write_bytes(replace(good, **change).sealed().line())
    with refused("ledger-field-invalid", where="line 1"):
        read_ledger(tmp_path / "bad")


def test_a_reservation_must_say_what_it_reserves(tmp_path):
    first = Entry(0, "0" * 64, "open", None, 0, 0, PLAN, "key", run_id="a" * 32, nonce="b" * 32).sealed()
    for event in (None, EVENT.to_dict(), {**EVENT.to_dict(), "sigma": "0"}):
        bad = Entry(1, first.sha256, "reserve", event, 0, 10, PLAN, "key").sealed()
        (tmp_path / "ledger").write_bytes(first.line() + bad.line())
        with refused(("ledger-field-invalid", "ledger-steps-differ", "noise-out-of-range"), where="line 2"):
            read_ledger(tmp_path / "ledger")


def test_one_step_is_told_of_in_the_singular(tmp_path, state):
    finished_run(tmp_path / "run", state, replace(SETTINGS, steps=1), blocks=1)
    assert "; 1 reserved step costs " in " ".join(verify_run(tmp_path / "run", state).lines)
