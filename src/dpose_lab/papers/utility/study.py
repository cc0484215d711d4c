"""`release-utility`: its cells, and the tables of finished ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dpose.errors import DposeError
from dpose.pose.data import Augment, DataSpec, PoseUnits, open_data
from dpose.pose.folder import find_model, load_model
from dpose.pose.skeletons import MPII
from dpose.privacy.ranges import between
from dpose.report.results import Table
from dpose.runs.data import scored_units
from dpose_lab.papers.experiment import Bound, Cell, Findings, Outcome, Request, Values
from dpose_lab.papers.utility import clips, trained
from dpose_lab.papers.utility.evaluated import MODEL, SHOWN, evaluated
from dpose_lab.stats import Interval

EPSILONS, TRAINED, PIXELS = (1, 2, 8, 32), (1, 8, 32), (1, 16)
PEOPLE = 200
RAW, RAW_CLIPS = Cell("raw", {}), Cell("clips-raw", {"part": "clips"})
LEARNING: Mapping[str, Values] = {
    **{shown: {"on": "releases", "restore": how} for how, shown in SHOWN.items()},
    "dp-sgd": {"on": "dp-sgd"},
}
"""Training data at a budget."""
NOTES = (
    "Released: every person's crop, at the model's input size, as a picture of its own by `dpose pixelize --epsilon E "
    "--neighbours pixels:M --restore none|learned`, blocks and colour chosen as there.",
    "Guarantee of a release: pure epsilon for two crops that differ in at most m pixels. A person, whose every pixel "
    "may differ, is not protected by it. A model trained with DP-SGD at the same epsilon protects the whole unit, "
    "labels and all, and shows no picture. The two epsilons cannot be compared.",
    "Trained: all weights, from the public ones, on as many units, at fixed settings that were not tuned on releases; "
    "tested on raw pictures of another split. What is trained on releases is post-processing of them, each made once; "
    "its labels are taken as public and the model owes them nothing. DP-SGD: dpose's recipe, but as many "
    f"epochs and half of the units a step; delta {trained.DELTA:g}, one unit zeroed out, number of units public. "
    "One training of each.",
    f"Clips: rendered films, as by `dpose release-video --epsilon E --delta {clips.DELTA} --neighbours "
    f"pixels:{clips.M}`, cells and colour chosen as there, video coding left out; (epsilon, delta) for two clips that "
    f"differ in at most {clips.M} pixels of the whole clip. The model sees each frame's crop by the true box, which a "
    "release does not contain.",
    "Intervals: 95 %, a bootstrap over pictures, or over films. All noise came from a seed: nothing here protects "
    "anybody.",
)


@dataclass(frozen=True)
class Utility:
    """The experiment bound to its data.

    Attributes:
        spec: Data, with the split that the model is tested on.
        units: Units of that split.
        learners: Units to train on, of the split for training.
        films: Number of released films.
        seed: Seed of all noise.
        quick: True to run only a few budgets.
        public: True if the data are public.
    """

    spec: DataSpec
    units: PoseUnits
    learners: PoseUnits
    films: int
    seed: int
    quick: bool
    public: bool

    @classmethod
    def of(cls, request: Request) -> Bound:
        """Open the data, or rendered people on a ward."""
        if len(request.data) > 1:
            raise DposeError("data-given-several", "takes one --data", ", ".join(request.data))
        parsed = DataSpec.parse(request.data[0] if request.data else "synthetic:ward")
        spec, own = parsed.for_purpose("evaluate"), replace(parsed, split="").for_purpose("train")
        if spec.same_units(own):
            raise DposeError(
                "test-shares-units",
                "training and testing would share units",
                str(parsed),
                "name another split to test on",
            )
        model = load_model(find_model(MODEL)).config
        most = trained.LEARNERS // (4 if request.quick else 1)
        limit = most if request.limit is None else min(most, request.limit)
        return cls(
            spec,
            scored_units(spec, model, request.limit or PEOPLE).with_skeleton(MPII),
            open_data(own, input_size=model.input_size, augment=Augment.none(), limit=limit).with_skeleton(MPII),
            min(request.limit or clips.FILMS, 2 if request.quick else clips.FILMS),
            request.noise_seed,
            request.quick,
            request.data_public or (spec.public and own.public),
        )

    def hashes(self) -> Iterator[str]:
        """Digests of all pictures that need protection, training data included."""
        for units in () if self.public else (self.units, self.learners):
            for index in range(len(units)):
                yield from units.content_hashes(index)
                yield from units.file_hashes(index)

    @property
    def settings(self) -> Values:
        """Settings that the results depend on."""
        counts = {"units": len(self.units), "learners": len(self.learners), "films": self.films}
        return {"data": str(self.spec), **counts, "seed": self.seed, "quick": self.quick}

    @property
    def _budgets(self) -> tuple[int, ...]:
        return (8,) if self.quick else TRAINED

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells: pictures by budget, m and restoration; clips; then trainings."""
        epsilons, pixels = ((8, 32), (16,)) if self.quick else (EPSILONS, PIXELS)
        pictures = (
            Cell(f"m{m}-e{e}-{SHOWN[how]}", {"epsilon": e, "m": m, "restore": how})
            for m, e, how in product(pixels, epsilons, SHOWN)
        )
        films = (
            Cell(f"clips-e{e}-{SHOWN[how]}", {"part": "clips", "epsilon": e, "restore": how})
            for e, how in product(self._budgets, SHOWN)
        )
        plain = Cell("trained-raw", {"part": "trained", "on": "raw"})
        learning = (
            Cell(f"trained-e{e}-{way}", {"part": "trained", "epsilon": e, **how})
            for e, (way, how) in product(reversed(self._budgets), LEARNING.items())
        )
        return [RAW, *pictures, RAW_CLIPS, *films, plain, *learning]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Run a cell: test, or train and test."""
        settings = {name: value for name, value in cell.settings.items() if name != "part"}
        match cell.settings.get("part"):
            case "clips":
                values = clips.on_clips(settings, self.films, self.seed)
            case "trained":
                values = trained.score(settings, self.learners, self.units, self.seed)
            case _:
                values = evaluated(settings, self.units, self.seed)
        progress()
        return values

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present PCKh@0.5 of the public model on pictures and clips, and of trained models."""
        done = {outcome.cell.key: outcome.values for outcome in outcomes if outcome.status == "done"}
        return Findings((self._pictures(done), self._clips(done), self._trained(done)), (), NOTES)

    def _pictures(self, done: Mapping[str, Values]) -> Table:
        rows = [("raw", "", "", _pckh(done.get(RAW.key)), "")]
        budgets = [(c.settings["m"], c.settings["epsilon"]) for c in self.cells if "m" in c.settings]
        for m, epsilon in dict.fromkeys(budgets):
            pair = [done.get(f"m{m}-e{epsilon}-{how}") for how in SHOWN.values()]
            blocks = ", ".join(str(one["block"]) if one else "-" for one in pair)
            rows.append((str(m), str(epsilon), blocks, _pckh(pair[0]), _pckh(pair[1])))
        head = ("m", "epsilon", "blocks", "painted", "restored")
        title = f"PCKh@0.5 in percent of `{MODEL}`, public weights, on {self.spec}, {len(self.units)} pictures"
        return Table(title, head, tuple(rows))

    def _clips(self, done: Mapping[str, Values]) -> Table:
        rows: list[tuple[str, ...]] = [("raw", _pckh(done.get(RAW_CLIPS.key)), "")]
        for e in self._budgets:
            rows.append((str(e), *(_pckh(done.get(f"clips-e{e}-{how}")) for how in SHOWN.values())))
        shape = clips.SHAPE
        title = (
            f"the same on frames of {self.films} rendered films ({clips.LOOK}, {clips.SPLIT}), {shape.frames} frames "
            f"of {shape.width} x {shape.height}; m = {clips.M} pixels of the clip"
        )
        return Table(title, ("epsilon", "painted", "restored"), tuple(rows))

    def _trained(self, done: Mapping[str, Values]) -> Table:
        rows = [
            ("nothing: the public weights", "", "all of the units", _pckh(done.get(RAW.key))),
            ("raw, without privacy", "", "nothing", _pckh(done.get("trained-raw"))),
        ]
        kinds = {
            "painted": ("releases, painted", f"any {trained.M} pixels of a crop; labels are public"),
            "restored": ("releases, restored", f"any {trained.M} pixels of a crop; labels are public"),
            "dp-sgd": ("raw, with DP-SGD", "a whole unit, pixels and labels"),
        }
        for (way, (name, what)), e in product(kinds.items(), self._budgets):
            rows.append((name, str(e), what, _pckh(done.get(f"trained-e{e}-{way}"))))
        title = (
            f"PCKh@0.5 in percent on the raw pictures above of `{MODEL}` trained on {len(self.learners)} units; "
            "epsilons of different protection cannot be compared"
        )
        return Table(title, ("trained on", "epsilon", "what is protected", "PCKh@0.5"), tuple(rows), "words")


def _pckh(values: Mapping[str, Mapping[str, float]] | None) -> str:
    if not values:
        return "-"
    interval = Interval(**values["pckh"])
    return f"{100 * interval.value:.1f} ({between(interval.low, interval.high, places=1, times=100)})"
