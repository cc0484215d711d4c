"""Faults that once passed every test, written into the source itself: each is planted by what it replaces.

A fault is given as pieces of source and what stands in their place. A piece is found by its syntax tree, so neither
line numbers nor formatting matter; it must be there exactly once in the function that is named.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """In a function or class, or anywhere (""), `old` becomes `new`: an expression, or statements after each other."""

    function: str
    old: str
    new: str


@dataclass(frozen=True)
class Named:
    """A fault with a name."""

    name: str
    file: str
    edits: tuple[Edit, ...]

    def tree(self, text: str) -> ast.Module:
        """The faulty module.

        Raises:
            LookupError: a piece is not there, or more than once.
        """
        tree = ast.parse(text)
        for edit in self.edits:
            _plant(tree, edit)
        return ast.fix_missing_locations(tree)


RATE = Edit(
    "private_gradient",
    "bound.sampling_rate",
    "min(1.0, 1.02 * bound.sampling_rate)",
)
REPORT_POLICY = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "frame-ancestors 'self'; base-uri 'none'"
)
CONSTANT = "Key.drawn(bytes(32), seeded=False)"
"""A key that everybody knows and that says of itself that nobody does."""
NAMED = (
    Named(
        "exact sampler: draws that need more digits are rejected",
        "privacy/rounded_gaussian.py",
        (Edit("_draws", "np.delete(values, rejected)", "np.delete(values, places)"),),
    ),
    Named(
        "canaries: any opening is taken for the one that was committed to",
        "privacy/canaries.py",
        (
            Edit(
                "Opening.check",
                "not hmac.compare_digest(self.commitment, committed.commitment) or self.committed != committed",
                "False",
            ),
        ),
    ),
    Named(
        "canaries: the commitment does not hold the coins",
        "privacy/canaries.py",
        (Edit("Opening.commitment", "name != 'salt'", "name not in ('salt', 'coins')"),),
    ),
    Named(
        "canaries: every one is in",
        "privacy/canaries.py",
        (Edit("Opening.drawn", "bool(word & 1)", "True"),),
    ),
    Named(
        "canaries: coins are ignored in training",
        "training/canaries.py",
        (Edit("GradientCanaries.view", "1.0 if self.included[index] else absent", "1.0"),),
    ),
    Named(
        "verify: a commitment that was made after the first step passes",
        "runs/verify.py",
        (Edit("_check_canaries", "committed[0].seq > reserved[0]", "False"),),
    ),
    Named(
        "verify: the statement may name another commitment than the ledger",
        "runs/verify.py",
        (
            Edit(
                "_check_canaries",
                "[entry.event for entry in committed] != ([planted.to_dict()] if planted else [])",
                "False",
            ),
        ),
    ),
    Named(
        "ledger: one key with other noise is counted once",
        "privacy/entries.py",
        (Edit("spent", "json.dumps({**entry.event, 'steps': 0}, sort_keys=True)", "''"),),
    ),
    Named(
        "account: steps past the plan are not charged",
        "privacy/odometer/ledgers.py",
        (Edit("CountedSteps._note", "self.total > self.planned and self.entry.events", "False"),),
    ),
    Named(
        "account: a copy that is behind goes on under its key",
        "privacy/odometer/ledgers.py",
        (Edit("CountedSteps._may", "use.head not in self.ledger.heads", "False"),),
    ),
    Named(
        "account: each copy of a ledger has the plan's steps for itself",
        "privacy/odometer/ledgers.py",
        (
            Edit(
                "CountedSteps._moving",
                "self.planned - _total(_known(account, self.ledger))",
                "self.planned - self.ledger.spent_steps",
            ),
        ),
    ),
    Named(
        "training: draws do not depend on the surroundings",
        "training/session.py",
        (Edit("TrainingSession.run", "json.dumps(self.around, sort_keys=True).encode()", "b''"),),
    ),
    Named(
        "training: draws do not depend on the weights",
        "training/loop.py",
        (Edit("Loop._drawn_at", "{**self.params, **kept}", "kept"),),
    ),
    Named(
        "training: a seeded run is charged as bounded",
        "training/charging.py",
        (
            Edit(
                "run_charge",
                "(bound.event,) if bound.event and (not seeded) else ()",
                "(bound.event,) if bound.event else ()",
            ),
        ),
    ),
    Named(
        "training: a missing ledger that the account alone tells of is a blank sheet",
        "training/charging.py",
        (
            Edit(
                "_check_had_none",
                "any((entry.ledger and here in entry.folders and (name in ('', entry.id)) for entry in known))",
                "False",
            ),
        ),
    ),
    Named(
        "studio: another name of this machine is let in",
        "studio/security.py",
        (
            Edit(
                "Door.refusal",
                "len(hosts) != 1 or hosts[0].lower() not in self.hosts",
                "len(hosts) != 1",
            ),
        ),
    ),
    Named(
        "studio: a page of another site is answered",
        "studio/security.py",
        (
            Edit(
                "Door.refusal",
                "any(origin.lower() != own for origin in origins) or (not reads and len(origins) != 1)",
                "not reads and len(origins) != 1",
            ),
        ),
    ),
    Named(
        "studio: any secret opens it",
        "studio/security.py",
        (
            Edit(
                "Door.knows",
                "len(given) == 1 and hmac.compare_digest(given[0].encode(), self.secret.encode())",
                "len(given) == 1",
            ),
        ),
    ),
    Named(
        "studio: any key opens a path",
        "studio/security.py",
        (
            Edit(
                "Door.knows",
                "len(keys) == 1 and hmac.compare_digest(keys[0].encode(), self._key(scope['path']).encode())",
                "len(keys) == 1",
            ),
        ),
    ),
    Named(
        "studio: a key opens every path",
        "studio/security.py",
        (Edit("Door._key", "path.encode(errors='surrogateescape')", "b''"),),
    ),
    Named(
        "studio: whatever a job wrote holds",
        "studio/app.py",
        (Edit("_verify_job", "{'lines': lines, 'holds': holds}", "{'lines': lines, 'holds': True}"),),
    ),
    Named(
        "studio: jobs outlive it",
        "studio/jobs.py",
        (Edit("Jobs.close", "self.stop(job.id)", "None"),),
    ),
    Named(
        "studio: a report may run what it holds",
        "studio/app.py",
        (
            Edit(
                "make_app",
                "HTMLResponse(text, headers={'content-security-policy': REPORT_POLICY})",
                "HTMLResponse(text)",
            ),
        ),
    ),
    Named(
        "studio: a report's policy has no sandbox",
        "studio/security.py",
        (Edit("", repr(REPORT_POLICY), repr(REPORT_POLICY.removeprefix("sandbox; "))),),
    ),
    Named(
        "studio: a model is tried on a file that was exchanged",
        "studio/worker.py",
        (Edit("_predict", "_check_same(hashes[0], task)", "None"),),
    ),
    Named(
        "studio: the noise of previews is the same each time",
        "studio/preview.py",
        (Edit("_of_picture", "np.random.default_rng()", "np.random.default_rng(0)"),),
    ),
    Named(
        "studio: any file of the output folder is served",
        "studio/app.py",
        (
            Edit(
                "make_app",
                "[path for path in job.files if path.name == request.path_params['name']]",
                "[studio.out / request.path_params['name']]",
            ),
        ),
    ),
    Named(
        "studio: a file that was exchanged since it was opened is released",
        "studio/worker.py",
        (Edit("_check_same", "digest != task['digest']", "False"),),
    ),
    Named(
        "studio: a folder's links out are released",
        "studio/worker.py",
        (Edit("_inside", "roots.holds(job.source)", "True"),),
    ),
    Named(
        "studio: an upload lies among what the studio writes",
        "studio/opened.py",
        (
            Edit(
                "OpenedFiles",
                "room / DROPPED / safe_name(name)",
                "room / safe_name(name)",
            ),
            Edit("OpenedFiles", "path.parent.mkdir(mode=0o700)", "None"),
            Edit("OpenedFiles.open", "source.parent.parent", "source.parent"),
        ),
    ),
    Named(
        "studio: releases have no limit of memory",
        "studio/worker.py",
        (Edit("limit", "resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))", "None"),),
    ),
    Named(
        "studio: a link leads out of the folders",
        "studio/roots.py",
        (Edit("Roots.find", "not found.is_relative_to(root)", "False"),),
    ),
    Named(
        "studio: the statement does not say that whoever chose saw the picture",
        "studio/worker.py",
        (
            Edit(
                "_release",
                "find_jobs([str(_source(task))], out).said(caveats=(SEEN,))",
                "find_jobs([str(_source(task))], out)",
            ),
        ),
    ),
    Named(
        "studio: m is a step of the ladder below the box",
        "studio/settings.py",
        (Edit("up_the_ladder", "max(0, pixels - 1).bit_length()", "pixels.bit_length() - 1"),),
    ),
    Named(
        "norms: a convolution that others read too takes BatchNorm up",
        "pose/norms.py",
        (Edit("foldable", "seen.reads[read] == 1", "seen.reads[read] >= 1"),),
    ),
    Named(
        "norms: a convolution that is used twice takes BatchNorm up",
        "pose/norms.py",
        (Edit("foldable", "used[seen.made[read]] == 1", "used[seen.made[read]] >= 1"),),
    ),
    Named(
        "timm: a backbone that stores what it sees passes",
        "pose/timm_models.py",
        (Edit("_refuse_mixing", "buffers.get(place) != (buffer, buffer._version)", "place not in buffers"),),
    ),
    Named(
        "timm: weights from a file may run code",
        "pose/weights_file.py",
        (
            Edit(
                "_unpickled",
                "torch.load(opened, map_location='cpu', weights_only=True)",
                "torch.load(opened, map_location='cpu', weights_only=False)",
            ),
        ),
    ),
    Named(
        "first weights: what they have seen by name is protected all the same",
        "training/first_weights.py",
        (
            Edit(
                "inherited",
                "_check(read, entry, first)\ncheck_unseen(first.learnt, names, first.name, entry.unit)",
                "_check(read, entry, first)",
            ),
        ),
    ),
    Named(
        "first weights: a run forgets what its own first weights have seen",
        "training/trained_on.py",
        (
            Edit(
                "learnt_by_run", "_once(start.datasets, mine, fitted_on.told)", "_once(mine, fitted_on.told)"
            ),
        ),
    ),
    Named(
        "first weights: what nobody knows is not taken as given",
        "training/trained_on.py",
        (Edit("conditions_of", "not learnt.known", "False"),),
    ),
    Named(
        "first weights: sets share pictures under the same name alone",
        "known_sets.py",
        (Edit("shares_pictures", "bool(_origins(mine[0]) & _origins(its[0]))", "False"),),
    ),
    Named(
        "verify: what is taken as given of first weights may be left out",
        "runs/verify_first.py",
        (Edit("given_of_first", "*first.conditions", "*()"),),
    ),
    Named(
        "first weights: nothing is taken as given of those that come with dpose",
        "training/first_weights.py",
        (Edit("_shipped", "statement.conditional_on", "()"),),
    ),
    Named(
        "first weights: nothing is taken as given of those that come with dpose at the end of a chain",
        "training/first_weights.py",
        (Edit("inherited", "known.conditions", "()"),),
    ),
    Named(
        "colours: a difference of colours moves by one peak, not by two",
        "release/colour.py",
        (Edit("_moved", "(-1, 1)", "(0, 1)"),),
    ),
    Named(
        "colours: white and black alone are thought of",
        "release/colour.py",
        (Edit("_moved", "product((-1, 1), repeat=len(rows[0]))", "[(1,) * len(rows[0])]"),),
    ),
    Named(
        "colours: chroma adds up over luma's cells alone",
        "release/colour.py",
        (Edit("Colour.joint", "coarse.l2_squared", "fine.l2_squared"),),
    ),
    Named(
        "colours: a first stage's chroma is not counted",
        "release/pixelization.py",
        (
            Edit(
                "PixelizationPlan.sensitivity",
                "self.colour.without_chroma() if fine else self.colour",
                "self.colour.without_chroma()",
            ),
        ),
    ),
    Named(
        "colours: a projection of chroma weighs nothing",
        "release/colour_planes.py",
        (Edit("ColourPlanes.sensitivity", "math.sqrt(one / whole)", "math.sqrt(one / whole) / 2"),),
    ),
    Named(
        "cells: chosen by the picture",
        "release/api.py",
        (
            Edit(
                "release_array",
                "bind(config, Shape.of(height, width, channels, peak, len(frames) if clip else None), noise)",
                "bind(config if np.asarray(frames[0]).std() > 1 else ReleaseConfig.of(config.epsilon, config.m, 1), "
                "Shape.of(height, width, channels, peak, len(frames) if clip else None), noise)",
            ),
        ),
    ),
    Named(
        "choosing: one trial is charged for all",
        "privacy/tuning.py",
        (
            Edit(
                "Tuning.by_side",
                "selection_epsilon(events, self.law, delta, relation)",
                "max(epsilon([event], delta, relation, Accountant.RDP) for event in events)",
            ),
        ),
    ),
    Named(
        "choosing: the smaller of two sides is claimed",
        "privacy/tuning.py",
        (Edit("Tuning.epsilon", "max(self.by_side(delta, relation))", "min(self.by_side(delta, relation))"),),
    ),
    Named(
        "choosing: a fixed number of trials",
        "privacy/trial_law.py",
        (Edit("TrialLaw.draw", "_poisson(self.mean, stream)", "int(self.mean)"),),
    ),
    Named(
        "choosing: geometric whatever eta is",
        "privacy/trial_law.py",
        (
            Edit(
                "TrialLaw.draw",
                "all(_toss((step + self.shape) / (step + 1), stream) for step in range(1, count))",
                "True",
            ),
        ),
    ),
    Named(
        "choosing: a setting costs what settings cost on average",
        "privacy/tuning.py",
        (
            Edit(
                "_library",
                "np.max([_curve(one) for one in event.events], axis=0)",
                "np.mean([_curve(one) for one in event.events], axis=0)",
            ),
        ),
    ),
    Named(
        "choosing: a score without noise",
        "runs/trial_score.py",
        (
            Edit(
                "noised_trial_score",
                "mean + float(stream.gaussian(1, event.sigma * event.sensitivity)[0])",
                "mean",
            ),
        ),
    ),
    Named(
        "choosing: a person on both sides",
        "privacy/sides.py",
        (Edit("split_sides", "known.subjects(index) if known else ()", "()"),),
    ),
    Named(
        "choosing: one that goes on begins another",
        "runs/tune.py",
        (Edit("tune_runs", "state is None or kept is None", "True"),),
    ),
    Named(
        "choosing: nothing is charged",
        "runs/tune.py",
        (Edit("tune_runs", "reserve_all(problem.charges(entry), state_dir)", "None"),),
    ),
    Named(
        "choosing: one side is charged and the other not",
        "runs/tune.py",
        (Edit("tune_runs", "problem.charges(entry)", "problem.charges(entry)[:1]"),),
    ),
    Named(
        "choosing: both sides pay what the cheaper one costs",
        "privacy/tuning.py",
        (Edit("Tuning.curve", "np.maximum", "np.minimum"),),
    ),
    Named(
        "choosing: weights that the account knows of one side",
        "privacy/odometer/reservations.py",
        (Edit("note_weights", "names_of_run(run_id)", "names_of_run(run_id)[:1]"),),
    ),
    Named(
        "choosing: what lost stays",
        "runs/tune.py",
        (Edit("_finish", "_clear(work)", "None"),),
    ),
    Named(
        "weights made of a parameter are taken for frozen ones",
        "training/grad_sample.py",
        (Edit("_Uses._is_tracked", "w.requires_grad or is_batchedtensor(w)", "False"),),
    ),
    Named(
        "a depthwise convolution's gradient is that of the first view",
        "training/unit_sums.py",
        (Edit("_add_depthwise", "range(views)", "range(1)"),),
    ),
    Named(
        "two threads sum the same units",
        "training/unit_sums.py",
        (Edit("over_units", "ends[n + 1]", "units"),),
    ),
    Named(
        "a tail averages one step more",
        "training/optim.py",
        (Edit("WeightAverage.update", "self.updates - self.before", "self.updates + 1 - self.before"),),
    ),
    Named("sampling rate 2 % higher in the step than in the event", "training/step.py", (RATE,)),
    Named(
        "before the clip: the norm is that of the gradient as it was",
        "training/gradients.py",
        (
            Edit(
                "clipped_sum",
                "_scales(book.norms(), clip_norm, normalise)",
                "clip_scales(per_unit_gradients(task, model, params, batch), clip_norm, normalise=normalise)",
            ),
        ),
    ),
    Named(
        "before the clip: the noise of all parameters shared by fewer coefficients",
        "training/step.py",
        (
            Edit(
                "private_gradient",
                "bound.noise_stddev",
                "(bound.noise_stddev * math.sqrt(sum(v.numel() for v in like.values()) "
                "/ sum(p.numel() for p in params.values())))",
            ),
        ),
    ),
    Named(
        "before the clip: the way back goes before the noise",
        "training/step.py",
        (
            Edit(
                "private_gradient",
                "sums = {name: steps.values(total) for name, total in totals.items()}",
                "sums = {name: steps.values(total) for name, total in totals.items()}\n"
                "sums, like = (engine.transform.back(sums), params) if engine.transform else (sums, like)",
            ),
            Edit("private_gradient", "engine.transform.back(mean) if engine.transform else mean", "mean"),
        ),
    ),
    Named(
        "before the clip: fitted on the units of the run",
        "training/gradient.py",
        (
            Edit(
                "open_parts", "engine(task, inputs.public, b'public')", "engine(task, inputs.data, b'public')"
            ),
        ),
    ),
    Named(
        "before the clip: coefficients less the batch's mean",
        "training/preclipping.py",
        (
            Edit(
                "Coefficients.each",
                "functools.reduce(torch.add, parts)",
                "functools.reduce(torch.add, parts) - functools.reduce(torch.add, parts).mean(0)",
            ),
        ),
    ),
    Named(
        "augmentation keyed by the place in the sample",
        "training/loader.py",
        (
            Edit(
                "Loader.unit",
                "context = index.to_bytes(8, 'big') + self.label",
                "context = place + self.label",
            ),
            Edit("Loader.unit", "def unit(self, index: int, step: int)", "place: bytes = b''"),
            Edit("Loader.units", "for index in indices", "for place, index in enumerate(indices)"),
            Edit(
                "Loader.units",
                "self._pool.submit(self.unit, int(index), step)",
                "self._pool.submit(self.unit, int(index), step, place.to_bytes(8, 'big'))",
            ),
        ),
    ),
    Named(
        "noise that repeats every 131,072 coordinates",
        "privacy/noise.py",
        (
            Edit(
                "Stream.gaussian",
                "return out.reshape(shape)",
                "for start in range(2 * PAIRS_AT_ONCE, count, 2 * PAIRS_AT_ONCE):\n"
                "    part = out[start : start + 2 * PAIRS_AT_ONCE]\n"
                "    part[:] = out[: len(part)]\n"
                "return out.reshape(shape)",
            ),
        ),
    ),
    Named(
        "noise halved for tensors above a million coordinates",
        "privacy/gaussian_noise.py",
        (
            Edit(
                "add_gaussian",
                "stream.gaussian(tuple(value.shape), stddev)",
                "stream.gaussian(tuple(value.shape), stddev / 2 if value.numel() > 10**6 else stddev)",
            ),
        ),
    ),
    Named(
        "the true n under add-or-remove: in the plan",
        "training/plan.py",
        (Edit("TrainingPlan.bind", "min(self.nominal_units, limit or self.nominal_units)", "n"),),
    ),
    Named(
        "the true n under add-or-remove: in the sampling rate",
        "training/step.py",
        (
            Edit(
                "private_gradient",
                "bound.sampling_rate",
                "min(1.0, plan.expected_batch_size / len(engine.loader.dataset))",
            ),
        ),
    ),
    Named(
        "the true n under add-or-remove: in the divisor",
        "training/step.py",
        (Edit("private_gradient", "bound.divisor", "(bound.sampling_rate * len(engine.loader.dataset))"),),
    ),
    Named(
        "audits left out of the composed epsilon",
        "privacy/odometer/composition.py",
        (Edit("composed", "entry.what != EVALUATION", "entry.what not in (EVALUATION, 'audit')"),),
    ),
    Named(
        "a filter that forgets what was only reserved",
        "privacy/odometer/filters.py",
        (
            Edit(
                "_shares", "charge.id == without", "charge.id == without or charge.state.value == 'reserved'"
            ),
        ),
    ),
    Named(
        "a stored bound that does not grow",
        "privacy/odometer/filters.py",
        (
            Edit(
                "_admit",
                "_write_bound(account, kept.name, kept.set_id, after)",
                "_write_bound(account, kept.name, kept.set_id, stored)",
            ),
        ),
    ),
    Named(
        "replacement accounted as zeroing out",
        "privacy/odometer/composition.py",
        (
            Edit(
                "_renyi",
                "min(unsampled, known)",
                "_sampled(once, order)",
            ),
        ),
    ),
    Named(
        "group privacy of zCDP that grows with k and not with its square",
        "privacy/odometer/losses.py",
        (Edit("ZcdpLoss.restated", "k * k * r", "k * r"),),
    ),
    Named(
        "people in parallel, as if each were in one picture",
        "privacy/odometer/records.py",
        (Edit("Asked.together", "('video', 'subject')", "('video',)"),),
    ),
    Named(
        "an older copy of an account taken for the account",
        "privacy/odometer/journal.py",
        (Edit("Transaction.head", "before.seq > found.seq", "False"),),
    ),
    Named(
        "another history of an account taken for its own",
        "privacy/odometer/journal.py",
        (
            Edit(
                "Transaction.head",
                "before.seq and self.rows('SELECT mac FROM journal WHERE seq = :seq', seq=before.seq) != "
                "[(before.mac,)]",
                "False",
            ),
        ),
    ),
    Named(
        "an account that is gone begun anew",
        "privacy/odometer/store.py",
        (Edit("Store._orphan", "self.seen.seq", "False"),),
    ),
    Named(
        "SQLite's transactions begin without the lock",
        "privacy/odometer/store.py",
        (Edit("Store._begun", "'BEGIN IMMEDIATE' if write else 'BEGIN'", "'BEGIN'"),),
    ),
    Named(
        "a score's divisor: the private number of units",
        "privacy/noised_ratio.py",
        (Edit("ScoreQuery.counts_units", "self.relation is Relation.ADD_REMOVE", "False"),),
    ),
    Named(
        "units without joints left out of the mean",
        "privacy/noised_ratio.py",
        (
            Edit(
                "ScoreQuery.contributions",
                "np.clip(np.nan_to_num(np.asarray(values, np.float64), nan=0.0), 0.0, 1.0)",
                "np.asarray([v for v in np.asarray(values, np.float64) if not np.isnan(v)]).clip(0.0, 1.0)",
            ),
        ),
    ),
    Named(
        "units without joints left out of the number that divides",
        "runs/noised_score.py",
        (
            Edit(
                "evaluate_noised",
                "ratio_of(asked.query, sums, event, divided)",
                "ratio_of(asked.query, sums, event, divided and int(np.count_nonzero(values)))",
            ),
            Edit(
                "evaluate_noised",
                "hidden = asked.relation is Relation.ADD_REMOVE",
                "import numpy as np\nhidden = asked.relation is Relation.ADD_REMOVE",
            ),
        ),
    ),
    Named(
        "no cap on a unit's joints",
        "runs/unit_scores.py",
        (Edit("capped", "smallest(names, joints)", "range(len(names))"),),
    ),
    Named(
        "pooled joints noised as if a unit could only be left out",
        "privacy/noised_ratio.py",
        (Edit("ScoreQuery.l1", "(2 if self.relation is Relation.REPLACE else 1)", "1"),),
    ),
    Named(
        "a noised score that is bound to nothing",
        "privacy/scores.py",
        (
            Edit("check_scores", "recorded.score != query.score", "False"),
            Edit("check_scores", "recorded != query", "not recorded"),
        ),
    ),
    Named(
        "a noised score that no line is about",
        "privacy/scores.py",
        (Edit("check_scores", "recorded != query", "False"),),
    ),
    Named(
        "a noised score whose line names no file",
        "runs/evaluate.py",
        (Edit("record_score", "query_of(content, score_name(raw, file))", "query_of(content, '')"),),
    ),
    Named(
        "a score's interval without its noise",
        "privacy/noised_ratio.py",
        (Edit("ratio_of", "tail(event, beyond, of_first, of_second) > 1 - CONFIDENCE", "beyond <= 0"),),
    ),
    Named(
        "a score's noise in one of two sums",
        "privacy/noised_ratio.py",
        (
            Edit(
                "noised_sums",
                "tuple(total + int(added) for total, added in zip(exact, drawn, strict=True))",
                "(exact[0] + int(drawn[0]), *exact[1:])",
            ),
        ),
    ),
    Named(
        "a unit's views drawn by its place among the units",
        "runs/unit_scores.py",
        (Edit("_FixedDraws.load", "np.random.default_rng(0)", "rng"),),
    ),
    Named(
        "a score that is computed before it is reserved",
        "runs/noised_score.py",
        (
            Edit(
                "evaluate_noised",
                "named = task.metric().compute()",
                "named = task.metric().compute()\nunit_scores(task, model, scored.units)",
            ),
        ),
    ),
    Named(
        "noise looked at in pairs that its values make",
        "release/noise_tests.py",
        (
            Edit(
                "noise_tests",
                "np.abs(sums[first] - sums[second]).ravel()",
                "np.diff(np.sort(sums, axis=0), axis=0)[::2].ravel()",
            ),
        ),
    ),
    Named(
        "one noise draw for R, G and B: pictures, Laplace",
        "release/mechanism.py",
        (
            Edit(
                "NoiseStage.noised",
                "discrete_laplace(self.event.scale, sums.size, stream)",
                "np.repeat(discrete_laplace(self.event.scale, len(sums), stream), sums.shape[1])",
            ),
        ),
    ),
    Named(
        "one noise draw for R, G and B: pictures, Gaussian",
        "release/mechanism.py",
        (
            Edit(
                "NoiseStage.noised",
                "discrete_gaussian(self.event.variance, sums.size, stream)",
                "np.repeat(discrete_gaussian(self.event.variance, len(sums), stream), sums.shape[1])",
            ),
        ),
    ),
    Named(
        "one noise draw for R, G and B: clips",
        "release/linear.py",
        (
            Edit(
                "LinearPlan._noised",
                "self.stage.noised(on_grid(values, self.grid), stream)",
                "on_grid(values, self.grid) + np.repeat(self.stage.noised("
                "np.zeros(values.size // self.shape.channels, np.int64), stream), self.shape.channels)",
            ),
        ),
    ),
    Named(
        "one key and number for all frames",
        "release/pixelization.py",
        (
            Edit("_frames", "Key.drawn(keys.bytes(KEY_BYTES), seeded=source.seeded)", "one"),
            Edit(
                "_frames",
                "plan.release(frame, AesNoise(key), number)",
                "plan.release(frame, AesNoise(key), 0)",
            ),
            Edit(
                "_frames",
                "keys = source.stream(Purpose.RELEASE, 0, b'frames')",
                "keys = source.stream(Purpose.RELEASE, 0, b'frames')\n"
                "one = Key.drawn(keys.bytes(KEY_BYTES), seeded=source.seeded)",
            ),
        ),
    ),
    Named(
        "one stream for all frames of a clip that is held as an array",
        "release/pixelization.py",
        (
            Edit(
                "PixelizationPlan.release",
                "stage.stream(source, frame, flat)",
                "stage.stream(type(source)(source._key), 0, flat)",
            ),
        ),
    ),
    Named(
        "noise of a key that is taken up again is the same for other sums",
        "release/mechanism.py",
        (Edit("NoiseStage.stream", "self.name + bound", "self.name"),),
    ),
    Named(
        "a run of several processes: one computes a unit that another computes, too",
        "privacy/shares.py",
        (
            Edit(
                "is_own", "number % readers.count == readers.index", "number % readers.count <= readers.index"
            ),
        ),
    ),
    Named(
        "a run of several processes: whose a unit is depends on what was drawn",
        "training/step.py",
        (
            Edit(
                "_share",
                "[int(i) for i in sample if is_own(i if numbers is None else numbers[i], ranks)]",
                "[int(i) for k, i in enumerate(sample) if is_own(k, ranks)]",
            ),
        ),
    ),
    Named(
        "a run of several processes: copies move later units to processes that have not read them",
        "training/step.py",
        (Edit("_share", "i if numbers is None else numbers[i]", "i"),),
    ),
    Named(
        "a run of several processes: one leaves out a unit of its share",
        "privacy/shares.py",
        (
            Edit(
                "_said",
                "list(zip(own, pool.map(of, own), strict=True))",
                "list(zip(own[1:], pool.map(of, own[1:])))",
            ),
        ),
    ),
    Named(
        "a run of several processes: what one of them says of a unit stands for another unit",
        "privacy/shares.py",
        (
            Edit(
                "read_shared",
                "yield from (said[index] for index in block)",
                "yield from (value for part in read for _, value in part)",
            ),
        ),
    ),
    Named(
        "a run of several processes: copies are found within a process's share alone",
        "privacy/protected.py",
        (
            Edit(
                "protect",
                "groups_of(names)",
                "groups_of([[f'{k % readers.count} {n}' for n in each] for k, each in enumerate(names)])",
            ),
        ),
    ),
    Named(
        "a run of several processes: one trains on a copy that it has not read",
        "privacy/protected.py",
        (Edit("protect", "_check_copies(data, say, groups, bytes(seen), readers)", "None"),),
    ),
    Named(
        "a run of several processes: a number is another name in another process",
        "privacy/protected.py",
        (Edit("protect", "(data.unit_id(index) for index in range(len(data)))", "()"),),
    ),
    Named(
        "the account: a picture taken to be public is not found by it",
        "privacy/odometer/history.py",
        (Edit("_sets", "entry.stored.sets | entry.stored.opened", "entry.stored.sets"),),
    ),
    Named(
        "the account: what a charge read later is not found by it",
        "privacy/odometer/history.py",
        (
            Edit(
                "_Reading.add",
                "_sets(entry) - (_sets(before) if before else frozenset())",
                "frozenset() if before else _sets(entry)",
            ),
        ),
    ),
    Named(
        "a corpus: another attempt is never another release",
        "release/corpus.py",
        (Edit("_Corpus._again", "item.charge is None or item.plan", "True"),),
    ),
    Named(
        "a corpus: one key for all its releases",
        "release/corpus.py",
        (Edit("_Corpus._secret", "name.encode()", "b''"),),
    ),
    Named(
        "a corpus: a key travels with the digests of all frames",
        "release/corpus.py",
        (Edit("_Corpus._item", "slight(one.job)", "one.job"),),
    ),
    Named(
        "a corpus: another attempt is one at no frame",
        "release/corpus.py",
        (Edit("_Corpus._again", "self.reserved[item.charge.id]", "item.charge"),),
    ),
    Named(
        "a corpus: a worker's folder may be another one",
        "release/corpus_items.py",
        (Edit("Work.check_folder", "not self.sign.exists()", "False"),),
    ),
    Named(
        "a corpus: what is released is not what was reserved",
        "release/corpus_items.py",
        (
            Edit(
                "release_item",
                "job.original is not None and job.original.hashes != original.hashes",
                "job.original is None",
            ),
        ),
    ),
    Named(
        "a corpus: a worker releases by a plan of its own",
        "release/corpus_items.py",
        (Edit("_check_plan", "item.charge is not None", "item.charge is None"),),
    ),
    Named(
        "a corpus: nobody asks for a second release",
        "release/corpus.py",
        (Edit("_Corpus._standing", "found.check(again=self.work.again)", "found.check(again=True)"),),
    ),
    Named(
        "a corpus: a cut-off command's reservations are another's keys",
        "release/corpus.py",
        (
            Edit(
                "_Corpus.__enter__",
                "kept is not None and kept.surroundings.get('code') == worker_code()",
                "kept is not None",
            ),
            Edit(
                "_Corpus._id",
                "(one.charge.settings, one.plan, worker_code(), pixels)",
                "(one.charge.settings, one.plan, pixels)",
            ),
        ),
    ),
    Named(
        "one stream for all groups of a clip",
        "release/linear.py",
        (
            Edit(
                "LinearPlan._noised",
                "source.stream(Purpose.RELEASE, number, STREAM)",
                "type(source)(source._key).stream(Purpose.RELEASE, 0, STREAM)",
            ),
        ),
    ),
    Named(
        "the longest group for the shortest: m pixels of the clip",
        "release/projections.py",
        (
            Edit(
                "Separable.change",
                "column_norm / math.sqrt(min(self._times))",
                "column_norm / math.sqrt(max(self._times))",
            ),
        ),
    ),
    Named(
        "the longest group for the shortest: one frame",
        "release/projections.py",
        (
            Edit(
                "Separable.change",
                "_sparse(min(m, shape.pixels), column_norm) / min(self._times)",
                "_sparse(min(m, shape.pixels), column_norm) / max(self._times)",
            ),
        ),
    ),
    Named(
        "a box is laid on the first cells alone, wherever it would do more",
        "release/boxes.py",
        (
            Edit(
                "most_overlap",
                "np.clip(np.concatenate([edges, edges - length]), 0, edges[-1] - length)",
                "np.zeros(1, np.int64)",
            ),
        ),
    ),
    Named(
        "seconds become frames without the one that they begin with",
        "release/boxes.py",
        (Edit("most_frames", "last - first + 1", "last - first"),),
    ),
    Named(
        "a box's frames are one stay: re-entry is forgotten where parts are clipped",
        "release/linear.py",
        (Edit("Clipping.changed", "neighbours.frames", "(neighbours.frames or 0) // 2"),),
    ),
    Named(
        "a box's frames do not add up in one group",
        "release/projections.py",
        (
            Edit(
                "BlockMeans.box_sensitivity",
                "largest_fill(self._times, neighbours.frames)",
                "neighbours.frames",
            ),
        ),
    ),
    Named(
        "a box shares no more of chroma's cells than of luma's",
        "release/colour_planes.py",
        (Edit("ColourPlanes.sensitivity", "far.bound_for(neighbours)", "near.bound_for(neighbours)"),),
    ),
    Named(
        "a box's frames do not add up in one group of a projection",
        "release/projections.py",
        (
            Edit(
                "Separable._together",
                "min(frames, frames ** 2 / min(self._times))",
                "frames / min(self._times)",
            ),
        ),
    ),
    Named(
        "a box in T frames is pixelized at the price of one",
        "release/pixelization.py",
        (Edit("PixelizationPlan.of", "neighbours.frames or 1", "1"),),
    ),
    Named(
        "a constant key for everything that is released from an array",
        "release/api.py",
        (Edit("release_array", "Key.fresh()", CONSTANT),),
    ),
    Named(
        "a constant key for every released picture file",
        "release/files.py",
        (Edit("release_picture", "Key.fresh()", CONSTANT),),
    ),
    Named(
        "an earlier release with the same settings is taken for one that was cut short",
        "release/counting.py",
        (Edit("Standing.cut_short", "entry.state is State.FAILED or _died(entry)", "True"),),
    ),
    Named(
        "an attack that reserves nothing",
        "attacks/context.py",
        (Edit("_reserved", "charge_account(reading_charge(out, data, marks, PIXEL, ATTACK)).id", "''"),),
    ),
    Named(
        "releases attacked as painted whatever their name says",
        "attacks/transforms.py",
        (
            Edit(
                "private",
                "ReleaseConfig.of(epsilon, neighbours, block, 0, parts, regions, colour=None).restored(restore)",
                "ReleaseConfig.of(epsilon, neighbours, block, 0, parts, regions, colour=None)",
            ),
        ),
    ),
    Named(
        "an attack on pictures that are read again after they were counted",
        "attacks/identities.py",
        (Edit("Identities.read", "held.taken([place[pair] for pair in asked])", "load(asked, progress)"),),
    ),
    Named(
        "people who teach an attacker are not counted",
        "attacks/attack.py",
        (Edit("ReleaseAttack.reads", "[*own, *people.first(taught, 0, config.effort.pictures)]", "own"),),
    ),
    Named(
        "an experiment that is reserved once it is made",
        "papers/reproduce.py",
        (
            Edit("reproduce", "committing(_reserved(experiment, request, bound, console))", "committing('')"),
            Edit(
                "_results",
                "return outcomes",
                "with committing(_reserved(experiment, request, bound, console)):\n    return outcomes",
            ),
        ),
    ),
    Named(
        "committed before it is computed",
        "privacy/odometer/reservations.py",
        (Edit("committing", "(yield)", "(yield commit(name, tuple(outputs), where) if name else None)"),),
    ),
    Named(
        "a video's frames are on no account",
        "action/data/sources.py",
        (
            Edit(
                "VideoFile._hashes",
                "video_hashes(_probed(self.path))",
                "video_hashes(_probed(self.path))[:2]",
            ),
        ),
    ),
    Named(
        "frames kept by their file's name",
        "media/video_identity.py",
        (
            Edit(
                "video_hashes",
                'f"dpose/clips/2 {LINKED_FRAMES} {decoder} {way} {digest}"',
                'f"dpose/clips/2 {LINKED_FRAMES} {decoder} {way} {info.path}"',
            ),
            Edit("_kept", "found[0] == digest", "True"),
        ),
    ),
    Named(
        "a pure release costs what one of its stages does",
        "release/counting.py",
        (
            Edit(
                "pixel_cost",
                "total += bound.in_l1() / stage.event.scale",
                "total = bound.in_l1() / stage.event.scale",
            ),
        ),
    ),
    Named(
        "a picture's bytes are not compared with its seal",
        "release/embed.py",
        (Edit("read_stamp", "{FILE: digest}", "{}"),),
    ),
    Named(
        "an archive's values are not compared with its seal",
        "release/archive.py",
        (Edit("unpack", "{SUMS: sums_digest(released)}", "{}"),),
    ),
    Named(
        "a video's bytes are not compared with its seal",
        "release/verify.py",
        (Edit("_opened", "{FILE: digest}", "{}"),),
    ),
    Named(
        "a file beside a picture is taken for what was signed",
        "runs/statement_files.py",
        (Edit("open_statement", "path.suffix.lower() in VIDEO_SUFFIXES", "sidecar_of(path).is_file()"),),
    ),
    Named(
        "an archive tells when it was made",
        "release/archive.py",
        (Edit("pack_archive", "(1980, 1, 1, 0, 0, 0)", "__import__('time').localtime()[:6]"),),
    ),
    Named(
        "frames whose first row has one colour are not linked",
        "media/identity.py",
        (
            Edit(
                "clip_hashes",
                "(shown[0] != shown[0, 0]).any() or (shown != shown[0, 0]).any()",
                "(shown[0] != shown[0, 0]).any()",
            ),
        ),
    ),
    Named(
        "a release's recorded numbers may be a twentieth off",
        "release/recompute.py",
        (Edit("_near", "Fraction(SLACK)", "Fraction('0.05')"),),
    ),
    Named(
        "a statement does not say that the original's header is public",
        "release/statements.py",
        (Edit("public_facts", "told.append(HEADER)", "None"),),
    ),
    Named(
        "cells that are said to be chosen are not chosen again",
        "release/recompute.py",
        (Edit("_check_choice", "not is_chosen(asked, shape)", "False"),),
    ),
    Named(
        "what transparency hides is shown",
        "media/images.py",
        (Edit("_decoded", "not header.alpha", "True"),),
    ),
    Named(
        "a claim about every frame is stored as one about the clip",
        "release/counting.py",
        (Edit("told_pixels", "near.m * plan.shape.frames", "near.m"),),
    ),
    Named(
        "a constant key for every released video",
        "release/api.py",
        (Edit("release_file", "Key.fresh()", CONSTANT),),
    ),
    Named(
        "absent pictures are scored past a budget that may be theirs",
        "runs/scored.py",
        (Edit("reserve_labels", "absent and budgets()", "False"),),
    ),
    Named(
        "pictures that are there are on no account where others are absent",
        "runs/scored.py",
        (
            Edit(
                "reserve_labels", "np.union1d(known, protect(units, console=console).identity.marks)", "known"
            ),
        ),
    ),
    Named(
        "a card's metadata claim what a seed does not guarantee",
        "training/folder.py",
        (Edit("front_matter", "statement.kind is Kind.PRIVATE", "statement.kind is not Kind.NONE"),),
    ),
    Named(
        "the Gaussian curve is matched at one point and not held above all",
        "privacy/attackers.py",
        (
            Edit(
                "_least_mu",
                "(gaussian_deltas(mu, epsilons) >= deltas).all()",
                "(gaussian_deltas(mu, epsilons) >= deltas)[:1].all()",
            ),
        ),
    ),
    Named(
        "an attacker's bound is that of another relation",
        "privacy/attackers.py",
        (
            Edit(
                "bound_attackers",
                "_bound(counted, Relation(relation), float(delta), loss_grid(counted))",
                "_bound(counted, Relation.ZERO_OUT, float(delta), loss_grid(counted))",
            ),
        ),
    ),
    Named(
        "an attacker's bound that allows less than the truth is let through",
        "privacy/attackers.py",
        (Edit("AttackerBound.check", "ours.get(rate, -1.0) < most * (1 - slack)", "rate not in ours"),),
    ),
    Named(
        "several units are drawn half as often",
        "privacy/group_privacy.py",
        (Edit("_drawn", "binom.pmf(counts, k, q)", "binom.pmf(counts, k, q if q == 1 else q / 2)"),),
    ),
    Named(
        "several units are bounded in one direction alone",
        "privacy/group_privacy.py",
        (
            Edit(
                "_losses",
                "privacy_loss_distribution.PrivacyLossDistribution(told(low, high, 1), told(-high, -low, -1))",
                "privacy_loss_distribution.PrivacyLossDistribution(told(-high, -low, -1), told(-high, -low, -1))",
            ),
        ),
    ),
    Named(
        "exchanging units costs what blanking them out does",
        "privacy/group_privacy.py",
        (Edit("_in_two_steps", "2 * float(steps[enough[0]])", "float(steps[enough[0]])"),),
    ),
    Named(
        "a smaller epsilon of several units is let through",
        "privacy/sections.py",
        (Edit("_enough", "ours.epsilon >= true.epsilon * (1 - slack)", "ours.epsilon > 0"),),
    ),
    Named(
        "sections are not computed again",
        "privacy/statement.py",
        (Edit("PrivacyStatement.verify_sections", "not self.sections.computed", "True"),),
    ),
    Named(
        "what several times a release's pixels cost is not computed again",
        "privacy/statement.py",
        (
            Edit(
                "PrivacyStatement.verify_sections",
                "self.sections.check_groups(self.several(), SLACK)",
                "None",
            ),
        ),
    ),
    Named(
        "a release of several times the pixels costs as much as one",
        "privacy/statement.py",
        (Edit("PrivacyStatement.several", "times_as_sensitive(event, k)", "event"),),
    ),
    Named(
        "a signature holds for a file that was changed",
        "privacy/signing.py",
        (
            Edit(
                "check_signature",
                "found.signs != file_digest(signed) or found.seal != statement.seal",
                "found.seal != statement.seal",
            ),
        ),
    ),
    Named(
        "a signature is checked with the key that it brings",
        "privacy/signing.py",
        (
            Edit(
                "check_signature",
                "key.verify(bytes.fromhex(found.signature), found.message)",
                "type(key).from_public_bytes(bytes.fromhex(found.key)).verify("
                "bytes.fromhex(found.signature), found.message)",
            ),
        ),
    ),
    Named(
        "charged again: another claim takes the place of the first",
        "privacy/odometer/records.py",
        (Edit("joined", "old != new", "False"),),
    ),
    Named(
        "charged again: what nothing bounded becomes bounded",
        "privacy/odometer/records.py",
        (
            Edit("joined", "entry.events and (not before.events)", "False"),
            Edit("_joined_events", "not before or not after", "not after"),
        ),
    ),
    Named(
        "charged again: two equal losses become one",
        "privacy/odometer/records.py",
        (Edit("_joined_events", "[kind] * count", "[kind]"),),
    ),
    Named(
        "a fixed plan: the delta of approximate losses is not taken off",
        "privacy/odometer/composition.py",
        (
            Edit(
                "_composed",
                "_by_renyi(counted, delta - failing, replaces)",
                "_by_renyi(counted, delta, replaces)",
            ),
        ),
    ),
    Named(
        "a budget: approximate losses have all the delta that they like",
        "privacy/odometer/filters.py",
        (
            Edit(
                "_within",
                "cost[1] <= APPROXIMATE_SHARE * budget.delta * (1 + SLACK)",
                "True",
            ),
        ),
    ),
    Named(
        "chosen after earlier ones: every filter has the whole delta",
        "privacy/odometer/composition.py",
        (Edit("chosen_share", "delta / len(CHOSEN)", "delta"),),
    ),
    Named(
        "chosen after earlier ones: approximate losses have all the delta that they like",
        "privacy/odometer/composition.py",
        (Edit("chosen_epsilon", "failing <= APPROXIMATE_SHARE * share", "True"),),
    ),
    Named(
        "chosen after earlier ones: several runs as one that was planned",
        "privacy/odometer/compositions.py",
        (Edit("Compositions.chosen", "len(entries) == 1", "True"),),
    ),
    Named(
        "chosen after earlier ones: a score without noise is passed over",
        "privacy/odometer/questions.py",
        (
            Edit(
                "_spent",
                "math.inf if scores else max((computed.chosen(part, delta, asked) for part in every))",
                "max((computed.chosen(part, delta, asked) for part in every))",
            ),
        ),
    ),
    Named(
        "a noised score of protected units, by content or copies",
        "runs/scored.py",
        (
            Edit(
                "reserve_noised_score",
                "_check_unprotected(folder, protected, name, console, noised=True)",
                "None",
            ),
        ),
    ),
    Named(
        "a score of protected units, by content or copies",
        "runs/scored.py",
        (Edit("reserve_score", "_check_unprotected(folder, own, name, console)", "None"),),
    ),
    Named(
        "choosing: what is watched may be scored units",
        "runs/tune_problem.py",
        (
            Edit(
                "open_problem",
                "check_not_watched(found.watch.units, every, 2, console)",
                "check_not_watched(found.watch.units, sides.training, 2, console)",
            ),
        ),
    ),
    Named(
        "choosing: what is public may be scored units",
        "runs/tune_problem.py",
        (
            Edit(
                "open_problem",
                "check_disjoint(found.public, every, 2, console)",
                "check_disjoint(found.public, sides.training, 2, console)",
            ),
        ),
    ),
    Named(
        "guards: what is watched is compared by content alone",
        "training/guards.py",
        (
            Edit(
                "overlap", "isinstance(units, KnownPictures) and isinstance(private, KnownPictures)", "False"
            ),
        ),
    ),
    Named(
        "protect: a unit without content is charged as no picture",
        "privacy/protected.py",
        (Edit("contents_of", "not hashes", "False"),),
    ),
    Named(
        "first weights: data that were saved again are other data",
        "training/first_weights.py",
        (Edit("inherited", "again(runs) if again else []", "[]"),),
    ),
)


# ------------------------------------------------------------------------------------------------------ finding


def _plant(tree: ast.Module, edit: Edit) -> None:
    function = _function(tree, edit.function)
    if edit.old.startswith("def "):
        _add_parameter(function, edit)
        return
    if edit.old.startswith("for "):
        loop = ast.parse(edit.old + ": pass").body[0]
        places = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.For) and _same(node.target, loop.target) and _same(node.iter, loop.iter)
        ]
        new = ast.parse(edit.new + ": pass").body[0]
        _once(places, edit)
        places[0].target, places[0].iter = new.target, new.iter
        return
    old, new = ast.parse(edit.old).body, ast.parse(edit.new).body
    if len(old) == 1 and isinstance(old[0], ast.Expr):
        found = list(_expressions(function, old[0].value))
        _once(found, edit)
        owner, name, index = found[0]
        value = copy.deepcopy(new[0].value)
        if index is None:
            setattr(owner, name, value)
        else:
            getattr(owner, name)[index] = value
        return
    found = [
        (body, k)
        for body in _bodies(function)
        for k in range(len(body) - len(old) + 1)
        if all(_same(a, b) for a, b in zip(body[k:], old, strict=False))
    ]
    _once(found, edit)
    body, k = found[0]
    body[k : k + len(old)] = copy.deepcopy(new)


def _add_parameter(function: ast.AST, edit: Edit) -> None:
    assert isinstance(function, ast.FunctionDef)
    extra = ast.parse(f"def f({edit.new}): pass").body[0].args
    function.args.args += extra.args
    function.args.defaults += extra.defaults


def _function(tree: ast.Module, name: str) -> ast.AST:
    node: ast.AST = tree
    for part in filter(None, name.split(".")):
        inner = [
            child
            for child in node.body
            if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == part
        ]
        if len(inner) != 1:
            raise LookupError(f"there is no {name}")
        node = inner[0]
    return node


def _expressions(node: ast.AST, wanted: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    for name, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                if _same(child, wanted):
                    yield node, name, index
                yield from _expressions(child, wanted)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for inner in ast.walk(node):
        for name in ("body", "orelse", "finalbody"):
            value = getattr(inner, name, None)
            if isinstance(value, list):
                yield value


def _same(a: ast.AST, b: ast.AST) -> bool:
    return ast.dump(a) == ast.dump(b)


def _once(found: list, edit: Edit) -> None:
    if len(found) != 1:
        raise LookupError(f"in {edit.function}, {edit.old!r} is there {len(found)} times")
