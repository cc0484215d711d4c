"""Faults of the guarantee itself: noise, canaries, statements and their sections, signatures, who reads what."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

from mutants.planted.patches import Patches, Planted


def _noise_repeats(patch: Patches) -> None:
    period = 2 * patch.get("dpose.privacy.noise:PAIRS_AT_ONCE")

    def repeated(drawn, *_args, **_kw):
        flat = drawn.reshape(-1)
        for start in range(period, len(flat), period):
            part = flat[start : start + period]
            part[:] = flat[: len(part)]
        return drawn

    patch.result("dpose.privacy.noise:Stream.gaussian", repeated)


def _less_noise_for_many(patch: Patches) -> None:
    def make(original):
        def gaussian(self, shape, scale=1.0):
            count = shape if isinstance(shape, int) else math.prod(shape)
            return original(self, shape, scale / 2 if count > 10**6 else scale)

        return gaussian

    patch.replace("dpose.privacy.noise:Stream.gaussian", make)


def _copies_within_a_share(patch: Patches) -> None:
    counts = [1]

    def protect(original):
        def called(*args, **kw):
            counts.append(kw["readers"].count if "readers" in kw else 1)
            try:
                return original(*args, **kw)
            finally:
                counts.pop()

        return called

    def groups_of(original):
        return lambda names: original([[f"{k % counts[-1]} {name}" for name in each] for k, each in enumerate(names)])

    patch.seen_by("dpose.privacy.protected", "groups_of", groups_of, "protect")
    patch.replace("dpose.privacy.protected:protect", protect)


class _Agreeing:
    """Processes that agree on whatever they are asked first."""

    def __init__(self, readers: object) -> None:
        self._readers, self._requested = readers, False

    def __getattr__(self, name: str) -> object:
        return getattr(self._readers, name)

    def agree(self, digests: object) -> None:
        if self._requested:
            self._readers.agree(digests)
        self._requested = True


def _said_of_another(original):
    def told(do, readers):
        read = original(do, readers)
        values = [value for part in read for _, value in part]
        return [list(zip(sorted(index for part in read for index, _ in part), values, strict=True))]

    return told


def _by_the_key_it_brings(patch: Patches) -> None:
    signature_of = patch.get("dpose.privacy.signing:signature_file")
    signature = patch.get("dpose.privacy.signing:Signature")
    public = patch.get("cryptography.hazmat.primitives.asymmetric.ed25519:Ed25519PublicKey")

    def make(original):
        def check(signed, statement, public_key):
            brought = public.from_public_bytes(bytes.fromhex(signature.read(signature_of(signed)).key))
            return original(signed, statement, brought)

        return check

    patch.seen_by("dpose.privacy.signing", "_public", lambda _: lambda key: key, "check_signature")
    patch.replace("dpose.privacy.signing:check_signature", make)


def _several_times_for_once(patch: Patches) -> None:
    for event in ("Laplace", "Gaussian"):
        patch.argument(f"dpose.privacy.events:{event}.times", "k", lambda _: 1)


def _signs_another_file(patch: Patches) -> None:
    signature_of = patch.get("dpose.privacy.signing:signature_file")
    signature = patch.get("dpose.privacy.signing:Signature")
    patch.seen_by(
        "dpose.privacy.signing",
        "file_digest",
        lambda _: lambda signed: signature.read(signature_of(signed)).signs,
        "check_signature",
    )


def _another_relation(patch: Patches) -> None:
    zero_out = patch.get("dpose.privacy.neighbours:Relation").ZERO_OUT
    patch.seen_by(
        "dpose.privacy.attackers",
        "_bound",
        lambda original: lambda events, relation, *rest: original(events, zero_out, *rest),
        "bound_attackers",
    )


def _bound_too_low(original):
    def check(self, true, slack):
        found = tuple(replace(own, tpr=max(own.tpr, true.rates.get(own.fpr, own.tpr))) for own in self.tpr_bound)
        return original(replace(self, tpr_bound=found), true, slack)

    return check


def _groups_unchecked(original):
    def verify(self):
        if self.release and self.attackers is None:
            return None
        return original(self)

    return verify


def _commitment_afterwards(patch: Patches) -> None:
    reserve = patch.get("dpose.privacy.entries:EntryType").RESERVE
    patch.argument(
        "dpose.runs.verify:_check_canaries",
        "entries",
        lambda entries: [entry for entry in entries if entry.type is not reserve],
    )


def _another_commitment(patch: Patches) -> None:
    canaries = patch.get("dpose.privacy.entries:EntryType").CANARIES

    def make(original):
        def check(_statement, entries, ledger):
            events = [entry.event for entry in entries if entry.type is canaries]
            named = SimpleNamespace(to_dict=lambda: events[0]) if events else None
            return original(SimpleNamespace(canaries=named), entries, ledger)

        return check

    patch.replace("dpose.runs.verify:_check_canaries", make)


PRIVACY = (
    Planted(
        "exact sampler: draws that need more digits are rejected",
        lambda patch: patch.nothing("dpose.privacy.gaussian_noise:_slowly"),
        ("privacy/test_rounded_gaussian.py::test_a_draw_left_to_whole_numbers_stands_among_the_others_in_its_place",),
    ),
    Planted(
        "noise that repeats every 131,072 coordinates",
        _noise_repeats,
        ("privacy/test_noise.py::test_noise_never_repeats_however_large_the_tensor",),
    ),
    Planted(
        "noise halved for tensors above a million coordinates",
        _less_noise_for_many,
        ("privacy/test_noise.py::test_noise_is_as_large_in_every_block_and_every_tensor",),
    ),
    Planted(
        "canaries: any opening is taken for the one that was committed to",
        lambda patch: patch.nothing("dpose.privacy.canaries:Opening.check"),
        ("privacy/test_canaries.py::test_nothing_else_opens_it",),
    ),
    Planted(
        "canaries: the commitment does not hold the coins",
        lambda patch: patch.replace(
            "dpose.privacy.canaries:Opening.commitment",
            lambda original: lambda self: original(replace(self, coins=(False,) * len(self.coins))),
        ),
        ("privacy/test_canaries.py::test_nothing_else_opens_it",),
    ),
    Planted(
        "canaries: every one is in",
        lambda patch: patch.result(
            "dpose.privacy.canaries:Opening.drawn",
            lambda opening, *_: replace(opening, coins=(True,) * len(opening.coins)),
        ),
        ("privacy/test_canaries.py::test_coins_and_salt_are_drawn_anew_and_fair",),
    ),
    Planted(
        "verify: a commitment that was made after the first step passes",
        _commitment_afterwards,
        ("audits/test_claim.py::test_a_commitment_that_was_made_afterwards_is_noticed",),
    ),
    Planted(
        "verify: the statement may name another commitment than the ledger",
        _another_commitment,
        ("audits/test_claim.py::test_a_commitment_that_was_made_afterwards_is_noticed",),
    ),
    Planted(
        "ledger: one key with other noise is counted once",
        lambda patch: patch.seen_by("dpose.privacy.entries", "json.dumps", lambda _: lambda *args, **kw: "", "spent"),
        ("privacy/test_ledger.py::test_steps_taken_again_under_one_key_with_other_noise_count_again",),
    ),
    Planted(
        "a run of several processes: one computes a unit that another computes, too",
        lambda patch: patch.replace(
            "dpose.privacy.shares:is_local", lambda _: lambda number, readers: number % readers.count <= readers.index
        ),
        ("privacy/test_shares.py::test_each_unit_is_one_process_s",),
    ),
    Planted(
        "a run of several processes: one leaves out a unit of its share",
        lambda patch: patch.argument("dpose.privacy.shares:_said", "own", lambda own: own[1:]),
        ("privacy/test_shares.py::test_units_that_were_left_out_or_read_by_two_are_told",),
    ),
    Planted(
        "a run of several processes: what one of them says of a unit stands for another unit",
        lambda patch: patch.seen_by("dpose.privacy.shares", "broadcast", _said_of_another, "read_shared"),
        ("privacy/test_shares.py::test_they_find_the_units_digests_and_marks_that_one_finds",),
    ),
    Planted(
        "a run of several processes: copies are found within a process's share alone",
        _copies_within_a_share,
        ("privacy/test_shares.py::test_one_picture_under_two_names_in_two_processes_is_one_unit_or_refused",),
    ),
    Planted(
        "a run of several processes: one trains on a copy that it has not read",
        lambda patch: patch.nothing("dpose.privacy.protected:_check_copies"),
        ("privacy/test_shares.py::test_one_picture_under_two_names_in_two_processes_is_one_unit_or_refused",),
    ),
    Planted(
        "a run of several processes: a number is another name in another process",
        lambda patch: patch.argument("dpose.privacy.protected:protect", "readers", _Agreeing),
        ("privacy/test_shares.py::test_one_that_holds_something_else_is_refused_and_all_say_so",),
    ),
    Planted(
        "protect: a unit without content is charged as no picture",
        lambda patch: patch.replace(
            "dpose.privacy.protected:contents_of", lambda _: lambda data, index: data.content_hashes(index)
        ),
        (
            "privacy/test_protected.py::TestIdentity::test_a_unit_without_content_hash_is_refused_before_anything_is_charged",
        ),
    ),
    Planted(
        "the Gaussian curve is matched at one point and not held above all",
        lambda patch: patch.argument("dpose.privacy.attackers:_least_mu", "profile", lambda profile: profile[:2]),
        ("privacy/test_attackers.py::test_the_gaussian_curve_is_above_the_accountants_as_far_as_the_floor",),
    ),
    Planted(
        "an attacker's bound is that of another relation",
        _another_relation,
        ("privacy/test_attackers.py::test_of_one_gaussian_it_is_the_gaussian",),
    ),
    Planted(
        "an attacker's bound that allows less than the truth is let through",
        lambda patch: patch.replace("dpose.privacy.attackers:AttackerBound.check", _bound_too_low),
        ("privacy/test_attackers.py::test_one_that_was_made_prettier_is_refused",),
    ),
    Planted(
        "several units are drawn half as often",
        lambda patch: patch.argument("dpose.privacy.sections:_drawn", "q", lambda q: q if q == 1 else q / 2),
        ("privacy/test_group_privacy.py::test_one_step_is_the_mixture_of_dp_accounting",),
    ),
    Planted(
        "several units are bounded in one direction alone",
        lambda patch: patch.result(
            "dpose.privacy.sections:_losses", lambda found, *_: type(found)(found._pmf_add, found._pmf_add)
        ),
        ("privacy/test_group_privacy.py::test_one_step_is_the_mixture_of_dp_accounting",),
    ),
    Planted(
        "exchanging units costs what blanking them out does",
        lambda patch: patch.result("dpose.privacy.sections:_in_two_steps", lambda found, *_: found / 2),
        ("privacy/test_group_privacy.py::test_exchanging_is_bounded_by_blanking_out_twice",),
    ),
    Planted(
        "a smaller epsilon of several units is let through",
        lambda patch: patch.argument("dpose.privacy.sections:_enough", "slack", lambda _: 1.0),
        ("privacy/test_sections.py::test_numbers_made_prettier_by_hand_are_refused",),
    ),
    Planted(
        "sections are not computed again",
        lambda patch: patch.nothing("dpose.privacy.statement:PrivacyStatement.verify_sections"),
        ("privacy/test_sections.py::test_numbers_made_prettier_by_hand_are_refused",),
    ),
    Planted(
        "what several times a release's pixels cost is not computed again",
        lambda patch: patch.replace("dpose.privacy.statement:PrivacyStatement.verify_sections", _groups_unchecked),
        ("cli/test_statement.py::test_what_several_times_as_much_costs_cannot_be_made_prettier",),
    ),
    Planted(
        "a release of several times the pixels costs as much as one",
        _several_times_for_once,
        ("privacy/test_sections.py::test_a_release_says_what_several_times_its_pixels_cost",),
    ),
    Planted(
        "a signature holds for a file that was changed",
        _signs_another_file,
        ("privacy/test_signing.py::test_a_changed_statement_is_refused",),
    ),
    Planted(
        "a signature is checked with the key that it brings",
        _by_the_key_it_brings,
        ("privacy/test_signing.py::test_another_key_is_refused_though_the_signature_brings_its_own",),
    ),
)
