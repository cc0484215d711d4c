"""`dpose evaluate`: scores of a model, with noise where the data are private."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpose.cli.data import Annotations, with_annotations
from dpose.cli.options import Limit, option, plain_console, unset
from dpose.errors import DposeError

if TYPE_CHECKING:
    from rich.console import Console

    from dpose.privacy.noised_query import NoisedQuery


@dataclass(frozen=True)
class NoisedScore:
    """What a noised score may cost; without `epsilon` there is no noise, and nothing else may be given."""

    epsilon: Annotated[str | None, option("Adds noise: the price for each unit, such as 0.1 or 1/3.")] = unset(
        "no noise"
    )
    delta: Annotated[float | None, option("Above 0: Gaussian noise. Default: Laplace noise.")] = None
    relation: Annotated[str | None, option("zero-out, add-or-remove or replace.")] = unset("zero-out")
    pooled: Annotated[bool, option("All joints of all units together, found and missed noised apart.")] = False
    joints_per_unit: Annotated[int | None, option("With --pooled: at most so many joints of a unit count.", min=1)] = (
        None
    )

    def query(self) -> NoisedQuery | None:
        """The query that releases the score; None for a score without noise."""
        if self.epsilon is None:
            if self != NoisedScore():
                raise DposeError(
                    "epsilon-missing", "a score with noise needs a price", fix="give --epsilon, as in --epsilon 0.1"
                )
            return None
        if self.pooled != (self.joints_per_unit is not None):
            what, where = "go together: the cap is what bounds a unit's part", "--pooled and --joints-per-unit"
            fix = "give both, as in --pooled --joints-per-unit 14"
            raise DposeError("pooled-without-joints", what, where, fix)
        from dpose.privacy.neighbours import Relation

        relations = [relation.value for relation in Relation]
        if self.relation is not None and self.relation not in relations:
            where, fix = f"--relation {self.relation}", f"choose one of {', '.join(relations)}"
            raise DposeError("relation-unknown", "there is no such relation", where, fix)
        from dpose.privacy.noised_query import NoisedQuery
        from dpose.privacy.ranges import parse_exact

        return NoisedQuery(
            parse_exact(self.epsilon, "--epsilon"),
            self.delta,
            Relation(self.relation or Relation.ZERO_OUT),
            self.joints_per_unit,
        )


@dataclass(frozen=True)
class ScoreChoice:
    """What is scored besides people in the labels' boxes by a model."""

    whole_pictures: Annotated[bool, option("Look for people in whole pictures; use no boxes.", "--whole-pictures")] = (
        False
    )
    detections: Annotated[
        str | None, option("For AP: a file with a detector's boxes (COCO results), relative to ROOT.")
    ] = None
    predictions: Annotated[
        Path | None, option("Score this file instead of a model: COCO's JSON, or MPII's .mat or JSON.")
    ] = None
    groups: Annotated[bool, option("Score each group of people; private data need --epsilon.", "--groups")] = False
    before: Annotated[Path | None, option("With --groups: a model to compare with, such as one without privacy.")] = (
        None
    )

    def check(self, run: Path | None, out: Path | None, limit: int | None, *, with_noise: bool) -> None:
        """Raise a DposeError if options do not go together."""
        if self.predictions is not None and (limit is not None or self.detections is not None):
            said = "a file of predictions is scored on all labels, and has its own people"
            raise DposeError("predictions-scored-whole", said, "--predictions", "leave out --limit and --detections")
        if run is not None and self.predictions is not None:
            raise DposeError(
                "score-source-unclear", "a model is scored, or a file", "--predictions", "give one of them"
            )
        if self.whole_pictures and (self.predictions or self.detections or with_noise or self.groups):
            raise DposeError(
                "whole-pictures-conflict",
                "a score of whole pictures uses no boxes, is without noise and of everybody",
                "--whole-pictures",
                "leave out the other option",
            )
        if out is not None and (self.predictions or (self.groups and not with_noise)):
            raise DposeError("out-with-predictions", "holds a score of a model", f"--out {out}", "leave it out")
        files = self.predictions is not None or self.detections is not None
        if self.groups or self.before:
            if files or not self.groups or (with_noise and self.before):
                raise DposeError(
                    "groups-conflict",
                    "groups are of a model's own scores, with noise of one model by itself",
                    "--groups",
                )
        elif with_noise and files:
            raise DposeError(
                "epsilon-with-predictions",
                "noise goes on scores of a model, of each unit by itself",
                "--epsilon",
                "leave out the other file",
            )


def evaluate(
    data: Annotated[str, option("NAME[:ROOT][:SPLIT]; the split defaults to validation.")],
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run or model folder, or the name of a model that comes with dpose. Default: that of predict."
        ),
    ] = None,
    annotations: Annotations = None,
    limit: Limit = None,
    out: Annotated[Path | None, option("A JSON file to write the score to, too.")] = None,
    choice: ScoreChoice = ScoreChoice(),
    noised: NoisedScore = NoisedScore(),
) -> None:
    """Score a model: PCKh, OKS AP on COCO and Human-Art, top-1 of actions.

    Where none is named, the model that dpose predict takes. People are scored in the labels' boxes; with
    --whole-pictures they have to be found first, and people who are not found count as missed.

    Of held-out private data a score without noise stands in statement and account, and is refused where they have a
    budget. With --epsilon it has noise and a price: the mean over units, or with --pooled over all their joints.
    """
    console = plain_console()
    spec = with_annotations(data, annotations)
    choice.check(run, out, limit, with_noise=noised.epsilon is not None)
    query = noised.query()
    if choice.predictions is not None:
        from dpose.runs.evaluate import score_file

        console.print(score_file(choice.predictions, spec, console))
        return
    model = _model(run, console)
    if query is not None:
        from dpose.runs.group_scores import GROUPS
        from dpose.runs.noised_score import evaluate_noised

        query = replace(query, groups=GROUPS) if choice.groups else query
        found: object = evaluate_noised(model, spec, query, limit=limit, out=out, console=console)
        console.print(found, highlight=False)
        return
    if choice.groups:
        from dpose.runs.group_scores import evaluate_groups, group_table

        console.print(group_table(evaluate_groups(model, spec, choice.before, limit=limit, console=console)))
        return
    from dpose.runs.evaluate import evaluate_run

    scores = evaluate_run(
        model,
        spec,
        limit=limit,
        detections=choice.detections,
        whole_pictures=choice.whole_pictures,
        out=out,
        console=console,
    )
    console.print(scores[0])


def _model(run: Path | None, console: Console) -> Path:
    """The model folder that is scored: of a path, of a name that comes with dpose, or what `dpose predict` takes."""
    from dpose.pose.folder import PREDICTOR, find_model

    if run is not None:
        return find_model(str(run))
    console.print(f"Model: {PREDICTOR}, which comes with dpose", highlight=False)
    return find_model(PREDICTOR)
