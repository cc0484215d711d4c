"""Which modules get faults, and which tests guard each of them: those that run its code for the guarantee's sake.

Among a module's tests the run takes those that reach the function with the fault, so a file that guards many modules
costs little. Post-processing and choices made from public numbers alone are left out where there is much of them: no
fault in them touches a guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarded:
    """A module.

    Attributes:
        tests: Test files below tests/, those that are tried first before the others.
        within: Functions that get faults; all where empty.
    """

    tests: tuple[str, ...]
    within: tuple[str, ...] = ()


STREAMS = ("privacy/test_noise.py", "privacy/test_sampling.py")
STEP = (
    *("training/test_passed.py", "training/test_step.py", "training/test_preclipping.py"),
    "mutants/test_training.py",
)
ACCOUNT = ("account/test_account.py", "account/test_store.py", "account/test_set_back.py")
RESUMED = ("training/test_copies.py", "training/test_resume.py")
EXACT = ("privacy/test_coins.py", "privacy/test_discrete.py")
PICTURES = (
    "release/test_api.py",
    "release/test_partition.py",
    "release/test_boxes.py",
    "release/test_repeated.py",
    "mutants/test_release.py",
)
CLIPS = (
    "release/test_clips.py",
    "release/test_boxes.py",
    "release/test_registry.py",
    "release/test_repeated.py",
    "mutants/test_video.py",
)

GUARDED = {
    "training/step.py": Guarded(
        (
            *(*STEP, "training/test_gradient.py", "training/test_methods.py", "training/test_subspace.py"),
            *("training/test_mechanism.py", "training/test_graph.py"),
        )
    ),
    "training/gradients.py": Guarded(("training/test_preclipping.py", "training/test_gradients.py"), ("clipped_sum",)),
    "studio/security.py": Guarded(
        ("studio/test_security.py",), ("Door.refusal", "Door.knows", "Door.keyed", "Door._key", "Door._visits", "Guard")
    ),
    "studio/roots.py": Guarded(
        ("studio/test_security.py",), ("Roots.find", "Roots.closed", "Roots.holds", "Roots.inside", "Roots._split")
    ),
    "studio/worker.py": Guarded(
        ("studio/test_release.py", "studio/test_security.py"),
        (*("_release", "_inside", "_checked", "_roots", "_source", "_check_same"), *("_marks", "limit")),
    ),
    "studio/jobs.py": Guarded(
        ("studio/test_views.py", "studio/test_security.py", "studio/test_release.py"),
        ("Child.lines", "Child.stop", "answer", "release_memory", "Jobs", "ReleaseJob.hear"),
    ),
    "studio/opened.py": Guarded(
        ("studio/test_security.py", "studio/test_release.py"),
        ("OpenedFile.dropped", "OpenedFile.task", "OpenedFiles", "safe_name"),
    ),
    "studio/app.py": Guarded(
        ("studio/test_views.py", "studio/test_release.py", "studio/test_security.py"),
        (
            *("Studio.close", "_open_file", "_release", "_verify_job", "_run", "_predict", "_history", "_folder"),
            *("_file_json", "_job_json", "make_app"),
        ),
    ),
    "studio/preview.py": Guarded(("studio/test_release.py",), ("_noise", "_of_clip", "plan_for")),
    "studio/settings.py": Guarded(("studio/test_release.py",), ("up_the_ladder", "wanted", "drawn_box")),
    "privacy/canaries.py": Guarded(
        ("privacy/test_canaries.py", "audits/test_claim.py"), ("Opening.check", "Opening.commitment", "Opening.drawn")
    ),
    "runs/verify.py": Guarded(("audits/test_claim.py", "runs/test_verify.py", "runs/test_tune.py")),
    "runs/verify_plan.py": Guarded(("audits/test_claim.py", "runs/test_seen.py", "runs/test_verify.py")),
    "privacy/ledger.py": Guarded(
        ("privacy/test_ledger.py", "training/test_copies.py"),
        (
            *(
                "Ledger.create",
                "Ledger.append_to",
                "Ledger.new_steps",
                "Ledger.reserve",
                "Ledger.commit",
                "Ledger.canaries",
                "Ledger._append",
                "Ledger._mend",
            ),
            *("verify_ledger", "hold_run", "_make_locked", "_keep_head_apart", "_check_head_apart"),
        ),
    ),
    "privacy/entries.py": Guarded(
        ("privacy/test_seal.py", "privacy/test_ledger.py", "training/test_sealed.py", "runs/test_verify.py")
    ),
    "training/resume.py": Guarded(
        (*RESUMED, "training/test_validation.py"),
        (
            *("look_back", "_read_ledger", "choose_key", "_take_up", "forsake_key", "go_on", "_open_ledger"),
            *("_commit_to_canaries", "caveats", "conclude_run"),
        ),
    ),
    "training/charging.py": Guarded(
        ("training/test_first_weights.py", "training/test_validation.py", *RESUMED),
        ("read_data", "_public_units", "price_run", "run_charge", "_check_had_none", "watch_charge"),
    ),
    "training/run.py": Guarded(
        ("training/test_trainer.py", "training/test_validation.py", *RESUMED),
        (
            *(
                "checkpoint_steps",
                "Run.__init__",
                "Run.close",
                "Run.start",
                "Run.restore",
                "Run.take_steps",
                "Run._reserve",
                "Run._drawn_at",
                "Run._step",
            ),
            *("Run._scores_due", "Run._score", "Run._followed", "Run.save"),
        ),
    ),
    "training/dry_run.py": Guarded(
        ("training/test_dry_run.py", "training/test_preclipping.py"), ("dry_run", "fit_microbatch")
    ),
    "training/trainer.py": Guarded(
        (
            *("training/test_trainer.py", "training/test_guards.py", "training/test_dry_run.py"),
            *("training/test_validation.py", *RESUMED),
        ),
        ("train", "_check_beginning", "_take_all_steps", "_release", "describe_run"),
    ),
    "training/statement.py": Guarded(
        (
            "training/test_methods.py",
            "training/test_gradient.py",
            "training/test_trainer.py",
            "training/test_first_weights.py",
            "runs/test_verify.py",
        )
    ),
    "training/bookkeeping.py": Guarded(("training/test_layers.py", "training/test_gradients.py")),
    "media/video.py": Guarded(
        ("media/test_video.py", "media/test_video_reader.py", "media/test_spans.py", "field/test_field_frames.py"),
        (
            *("probe", "frame_ticks", "frame_times", "read_frames", "VideoInfo.moved", "VideoReader", "_check_opaque"),
            *("empty_chunks", "shown_frames", "_packets", "counted_frames"),
        ),
    ),
    "media/spans.py": Guarded(("media/test_spans.py",), ("spans_of", "cut")),
    "media/container.py": Guarded(("media/test_video.py", "media/test_video_reader.py"), ("opened_video",)),
    "media/shown.py": Guarded(("field/test_field_frames.py", "media/test_video.py")),
    "media/headers.py": Guarded(("media/test_headers.py", "field/test_field_files.py"), ("_tiff", "_gif")),
    "training/canaries.py": Guarded(("audits/test_claim.py",), ("GradientCanaries.view",)),
    "training/first_weights.py": Guarded(
        ("training/test_first_weights.py", "runs/test_tasks.py", "runs/test_seen.py"), ("inherited",)
    ),
    "training/trained_on.py": Guarded(
        ("training/test_trained_on.py", "runs/test_seen.py"), ("check_unseen", "learnt_by_run", "conditions_of")
    ),
    "known_sets.py": Guarded(("training/test_trained_on.py",), ("shares_pictures", "shared")),
    "training/preclipping.py": Guarded(
        ("training/test_preclipping.py", "training/test_gradient.py", "training/test_methods.py"),
        ("Coefficients", "Scales", "PublicFit"),
    ),
    "training/grad_sample.py": Guarded(("training/test_layers.py",), ("_Uses._is_tracked",)),
    "training/graph.py": Guarded(
        ("training/test_graph.py",), ("ReplayedSums.begin", "ReplayedSums.add", "_empty", "_empty_like")
    ),
    "training/kernels/__init__.py": Guarded(("training/test_kernels.py", "training/test_grid.py")),
    "training/kernels/cpu.py": Guarded(("training/test_layers.py", "training/test_kernels.py"), ("over_units",)),
    "training/kernels/reference.py": Guarded(
        ("training/test_kernels.py", "training/test_grid.py"), ("Reference.truncate_sum",)
    ),
    "training/optim.py": Guarded(("training/test_optim.py",), ("WeightAverage.update",)),
    "training/clip.py": Guarded(("training/test_grid.py", "training/test_clip.py")),
    "training/loader.py": Guarded(("training/test_passed.py", "training/test_step.py")),
    "training/plan.py": Guarded(
        ("training/test_plan.py", "training/test_passed.py", "training/test_step.py"),
        ("TrainingPlan.bind", "BoundPlan", "shared_budget"),
    ),
    "privacy/neighbours.py": Guarded(
        ("privacy/test_neighbours.py", "release/test_boxes.py"),
        ("Neighbours.parse", "Neighbours.timed", "Neighbours.resolved"),
    ),
    "privacy/ranges.py": Guarded(("release/test_boxes.py",), ("most_frames",)),
    "privacy/noise.py": Guarded((*STREAMS, "training/test_step.py")),
    "privacy/gaussian_noise.py": Guarded(
        (*STREAMS, "training/test_step.py", "privacy/test_rounded_gaussian.py", "training/test_graph.py")
    ),
    "privacy/shares.py": Guarded(("privacy/test_shares.py",)),
    "privacy/protected.py": Guarded(
        ("privacy/test_shares.py", "privacy/test_protected.py"),
        ("protect", "_check_copies", "_seen", "_content_reader", "contents_of", "contents_and_files"),
    ),
    "privacy/sampling.py": Guarded(("privacy/test_sampling.py", "training/test_passed.py")),
    "privacy/marks.py": Guarded(ACCOUNT),
    "privacy/events.py": Guarded((*ACCOUNT, "privacy/test_exact.py", "privacy/test_accounting.py")),
    "privacy/renyi.py": Guarded((*ACCOUNT, "account/test_orders.py", "privacy/test_exact.py")),
    "account/charges.py": Guarded(
        (*ACCOUNT, "account/test_growing.py"),
        (
            *("unbounded", "restated", "joined", "_joined_events", "_counted", "lineage"),
            *("History", "history", "row_sets", "Charges", "_unpacked", "grown", "reading"),
            *("known_set", "register_set", "_above", "sets_meeting", "sets_of", "without", "cells_of"),
            *("cells_within", "chains_of", "check_account"),
        ),
    ),
    "account/composition.py": Guarded(ACCOUNT),
    "account/budgets.py": Guarded(
        (
            *(*ACCOUNT, "account/test_filters.py", "account/test_ledgers.py", "training/test_copies.py"),
            "lab/attacks/test_counted.py",
        ),
        (
            *("_standing", "_admit", "_shares", "_cost", "_added", "_within", "_fits", "_highest"),
            *("charge_all", "charge_within", "conclude", "committing", "note_weights"),
            *("CountedSteps._may", "CountedSteps._moving", "CountedSteps._note", "_known"),
        ),
    ),
    "account/store.py": Guarded(
        ACCOUNT,
        (
            *("AccountKey", "account_key", "_secret", "_make_key", "HighWater", "seen", "note_seen", "seen_file"),
            *("Transaction.head", "Transaction.append", "Transaction.journal", "Transaction.last_of"),
            *("Store._begun", "Store._absent"),
        ),
    ),
    "privacy/noised_query.py": Guarded(
        ("privacy/test_noised_query.py", "privacy/test_noised_groups.py", "runs/test_tune.py"),
        ("NoisedQuery", "noised_sums", "noised_mean"),
    ),
    "privacy/scores.py": Guarded(("runs/test_noised_score.py", "runs/test_group_scores.py")),
    "runs/evaluate.py": Guarded(("runs/test_noised_score.py",), ("record_score",)),
    "runs/group_scores.py": Guarded(("runs/test_noised_score.py", "runs/test_tune.py", "runs/test_group_scores.py")),
    "runs/noised_score.py": Guarded(("runs/test_noised_score.py",), ("evaluate_noised", "_values")),
    "privacy/trial_law.py": Guarded(("privacy/test_tuning.py",)),
    "privacy/tuning.py": Guarded(("privacy/test_tuning.py", "runs/test_tune.py")),
    "runs/tune.py": Guarded(("runs/test_tune.py",), ("tune_runs", "_trials", "_trial", "_publish", "_finish", "_copy")),
    "runs/tune_problem.py": Guarded(("runs/test_tune.py",), ("TuningProblem.charges", "priced_trials", "open_problem")),
    "privacy/discrete.py": Guarded(("test_jit.py", *EXACT)),
    "release/mechanism.py": Guarded((*PICTURES, "release/test_corpus.py")),
    "release/pixelization.py": Guarded((*PICTURES, "release/test_files.py")),
    "release/noise_tests.py": Guarded(
        ("release/test_noise_tests.py",),
        (
            *("noise_verdict", "noise_tests", "_multiples", "_differences", "binomial_tail", "chernoff_bound"),
            *("multiple_chance", "within", "_grids", "_on_grid", "_pairs"),
        ),
    ),
    "release/colour.py": Guarded(("release/test_colour.py",), ("Colour", "_moved")),
    "release/colour_planes.py": Guarded(
        ("release/test_colour.py", "release/test_boxes.py"),
        ("ColourPlanes.sensitivity", "ColourPlanes.box_sensitivity", "make_planes", "_plane"),
    ),
    "release/linear.py": Guarded(
        CLIPS,
        (
            *("Clipping", "clip_neighbours", "grid_for", "squared_change", "on_grid", "_change", "_event"),
            *(
                f"LinearPlan.{name}"
                for name in ("of", "around", "sigma", "epsilon_for", "release", "measured", "released")
            ),
            *("LinearPlan._checked", "LinearPlan._noised", "LinearPlan.run", "LinearPlan.length"),
        ),
    ),
    "release/projections.py": Guarded(
        ("release/test_projections.py", "release/test_registry.py", "release/test_boxes.py"),
        (
            *("BlockMeans.sensitivity", "BlockMeans.box_sensitivity", "Separable.change", "Separable.column_norm"),
            *("Separable.box_sensitivity", "Separable._together", "_sparse", "rounded_up"),
        ),
    ),
    "release/grid.py": Guarded(
        ("release/test_projections.py", "release/test_partition.py", "release/test_boxes.py"),
        ("largest_fill", "count_lengths", "products", "squares_of", "most_overlap", "most_weight"),
    ),
    "release/partition.py": Guarded(
        ("release/test_partition.py", "release/test_boxes.py", "test_jit.py"),
        (*("BlockSums.sensitivity", "RegionSums.sensitivity", "_fill", "_sides"), *("block_sums", "_sum_blocks")),
    ),
    "release/api.py": Guarded(
        (*CLIPS, "release/test_api.py", "release/test_files.py"), ("pixelize", "release_array", "release_video")
    ),
    "release/plans.py": Guarded(
        (*CLIPS, "release/test_api.py", "release/test_files.py"), ("bind", "bind_video", "public_facts")
    ),
    "release/counting.py": Guarded(
        ("release/test_counting.py",), ("claimed_pixels", "together", "reserved_release", "ReleaseCount.add_to")
    ),
    "release/items.py": Guarded(
        (*CLIPS, "release/test_files.py", "release/test_repeated.py", "release/test_corpus.py"),
        ("read_item", "write_item", "_write", "whole_plan", "_check_plan", "release_item", "check_folder"),
    ),
    "release/batch.py": Guarded(
        (*CLIPS, "release/test_files.py", "release/test_repeated.py", "release/test_corpus.py"),
        (
            "release_one",
            "release_all",
            "_Batch._standing",
            "_Batch._reserve",
            "_Batch._again",
            "_Batch._item",
            "_Batch._secret",
        ),
    ),
    "release/archive.py": Guarded(
        ("release/test_archive.py", "release/test_verify.py"), ("pack_archive", "unpack", "_digest")
    ),
    "release/embed.py": Guarded(
        ("release/test_sealing.py", "release/test_verify.py", "cli/test_statement.py"),
        (
            "stamped_picture",
            "stamp",
            "read_stamp",
            "bound_to",
            "check_digest",
            "sealed",
            "sealed_file",
            "check_seal",
            "sums_digest",
            "mask_digest",
            "_little",
            "_sealed",
        ),
    ),
    "release/verify.py": Guarded(
        ("release/test_verify.py", "release/test_archive.py", "cli/test_statement.py"),
        ("_opened", "_picture", "_look_beside", "_check_statement", "_check_layers", "_check_mask", "_check_picture"),
    ),
    "release/record.py": Guarded(
        ("release/test_records.py", "release/test_clips.py", "release/test_colour.py", "release/test_verify.py"),
        ("plan_record", "config_record", "recorded_plan", "_shape", "_config", "_regions"),
    ),
    "release/recompute.py": Guarded(
        ("release/test_clips.py", "release/test_colour.py", "release/test_verify.py"),
        ("expected", "compare_numbers", "_leaves", "_compare_event", "_near"),
    ),
    "runs/statement_files.py": Guarded(("cli/test_statement.py",), ("open_statement",)),
    "media/identity.py": Guarded(("release/test_counting.py",)),
    "media/images.py": Guarded(("media/test_images.py",), ("_decoded", "_turned")),
    "dpose_lab/attacks/context.py": Guarded(("lab/attacks/test_counted.py",), ("_reserved",)),
    "dpose_lab/attacks/identities.py": Guarded(("lab/attacks/test_counted.py",), ("Identities.read",)),
    "dpose_lab/attacks/attack.py": Guarded(("lab/attacks/test_counted.py",), ("ReleaseAttack.reads",)),
    "dpose_lab/attacks/transforms.py": Guarded(("lab/attacks/test_attacks.py",), ("private",)),
    "dpose_lab/papers/reproduce.py": Guarded(("lab/papers/test_papers.py",), ("_reserved",)),
    "pose/norms.py": Guarded(("pose/test_timm_models.py",), ("foldable",)),
    "pose/timm_models.py": Guarded(("pose/test_timm_models.py",), ("_refuse_mixing",)),
    "pose/weights_file.py": Guarded(("pose/test_weights_file.py",), ("read_tensors",)),
    "action/data/sources.py": Guarded(("action/test_data.py",), ("VideoFile._hashes",)),
    "media/video_identity.py": Guarded(("action/test_data.py",), ("video_hashes", "checked_digest")),
    "runs/scored.py": Guarded(("runs/test_tasks.py", "runs/test_scoring.py"), ("reserve_labels", "_check_unprotected")),
    "training/guards.py": Guarded(("training/test_guards.py", "runs/test_tasks.py"), ("overlap", "learnt_again")),
    "training/folder.py": Guarded(("pose/test_hub.py",), ("front_matter",)),
    "privacy/attackers.py": Guarded(("privacy/test_attackers.py",), ("_least_mu", "AttackerBound.check")),
    "privacy/sections.py": Guarded(
        ("privacy/test_group_privacy.py", "privacy/test_sections.py"), ("_in_two_steps", "_drawn", "_enough")
    ),
    "privacy/statement.py": Guarded(
        ("privacy/test_sections.py", "cli/test_statement.py"),
        (
            "PrivacyStatement.verify",
            "PrivacyStatement.verify_claim",
            "PrivacyStatement.verify_sections",
            "PrivacyStatement.several",
        ),
    ),
    "privacy/signing.py": Guarded(("privacy/test_signing.py",), ("check_signature",)),
}
"""By the module's path below src/dpose, or below src where another package is named."""
