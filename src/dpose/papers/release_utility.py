"""What a released picture is still good for: a public pose model on released people, painted and restored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch

from dpose.errors import DposeError
from dpose.papers.experiment import Bound, Cell, Experiment, Findings, Outcome, Request, Values
from dpose.papers.pose.testing import open_tested, people
from dpose.pose.data import DataSpec, PoseUnits
from dpose.pose.folder import find_model, load_model
from dpose.pose.skeletons import MPII
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.rounding import between
from dpose.release.api import bind
from dpose.release.config import ReleaseConfig
from dpose.release.grid import Shape
from dpose.release.pixelization import PixelizationPlan
from dpose.report.results import Table
from dpose.stats import Floats, Interval, over_people
from dpose.units import UnitDataset, View, WrappedUnits

EPSILONS = (1, 2, 8, 32)
PIXELS = (1, 16)
SHOWN = {"none": "painted", "learned": "restored"}
MODEL = "nano"
PEOPLE = 200
RESAMPLES = 1000
RAW = Cell("raw", {})
NOTES = (
    "Released: every person's crop, at the model's input size, as a picture of its own by `dpose pixelize --epsilon E "
    "--neighbours pixels:M --restore none|learned`, blocks and colour chosen as there. The model never saw a release.",
    "Guarantee of a release: pure epsilon for two crops that differ in at most m pixels. A person, whose every pixel "
    "may differ, is not protected by it. A model trained with DP-SGD at the same epsilon protects the whole unit, "
    "labels and all, and shows no picture. The two epsilons cannot be compared.",
    "Intervals: 95 %, a bootstrap over pictures. All noise came from a seed: these releases protect nobody.",
)


class ReleasedCrops(WrappedUnits):
    """Units as they are released: each view a picture of its own, with noise from a seed.

    Args:
        dataset: The originals.
        config: How they are released.
        seed: Of the noise; a view's depends on its unit's name and its place.
    """

    def __init__(self, dataset: UnitDataset, config: ReleaseConfig, seed: int) -> None:
        super().__init__(dataset)
        self.config, self.seed = config, seed

    def load(self, index: int, rng: np.random.Generator) -> list[View]:
        """The unit's views, released."""
        name = self.unit_id(index)
        views = self.dataset.load(index, rng)
        return [replace(view, image=self._released(view, f"{name} {k}")) for k, view in enumerate(views)]

    def plan(self, height: int, width: int) -> PixelizationPlan:
        """For crops of this size."""
        bound = bind(self.config, Shape.of(height, width, 3))
        assert isinstance(bound, PixelizationPlan)
        return bound

    def _released(self, view: View, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        source = AesNoise(Key.from_seed(int.from_bytes(digest[:8], "big")))
        height, width = view.image.shape[:2]
        return np.asarray(self.plan(height, width).release(view.image, source).picture(), np.uint8)


@dataclass(frozen=True)
class Utility:
    """The experiment with its data opened.

    Attributes:
        spec: The data, with their split.
        units: Those that the model is tested on.
        seed: Of all noise.
        quick: Whether two budgets of one m are run only.
        public: Whether nobody in the data needs protection.
    """

    spec: DataSpec
    units: PoseUnits
    seed: int
    quick: bool
    public: bool

    @classmethod
    def of(cls, request: Request) -> Bound:
        """Open the data, or rendered people on a ward.

        Raises:
            DposeError: they cannot be used.
        """
        if len(request.data) > 1:
            raise DposeError("takes one --data", ", ".join(request.data))
        spec = DataSpec.parse(request.data[0] if request.data else "synthetic:ward").for_purpose("evaluate")
        size = load_model(find_model(MODEL)).config.input_size
        units = open_tested(str(spec), request.limit or PEOPLE, size)
        return cls(spec, units, request.noise_seed, request.quick, request.data_public or spec.public)

    def hashes(self) -> Iterator[str]:
        """Digests of all pictures that need protection."""
        for index in range(0 if self.public else len(self.units)):
            yield from self.units.content_hashes(index)
            yield from self.units.file_hashes(index)

    @property
    def settings(self) -> Values:
        """All that the results depend on."""
        return {"data": str(self.spec), "units": len(self.units), "seed": self.seed, "quick": self.quick}

    @property
    def cells(self) -> Sequence[Cell]:
        """Raw pictures, then one a budget, m and restoration."""
        epsilons, pixels = ((8, 32), (16,)) if self.quick else (EPSILONS, PIXELS)
        return [RAW] + [
            Cell(f"m{m}-e{epsilon}-{SHOWN[how]}", {"epsilon": epsilon, "m": m, "restore": how})
            for m, epsilon, how in product(pixels, epsilons, SHOWN)
        ]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Test the model once.

        Raises:
            DposeError: a picture cannot be read or released.
        """
        model = load_model(find_model(MODEL)).to("cuda" if torch.cuda.is_available() else "cpu")
        units, block = self.units.with_skeleton(MPII), 0
        shown: UnitDataset = units
        if cell.settings:
            config = ReleaseConfig.of(cell.settings["epsilon"], cell.settings["m"], None, colour=None)
            released = ReleasedCrops(units, config.restored(cell.settings["restore"]), self.seed)
            shown, block = released, released.plan(*model.config.input_size).config.side
        everyone = people(model, shown)
        found, scored = everyone.found()
        names = np.unique(everyone.names, return_inverse=True)[1]
        sums = [np.bincount(names, part).astype(np.float64) for part in (found, scored)]

        def share(weights: Floats) -> float:
            return float((sums[0] * weights).sum() / max((sums[1] * weights).sum(), 1))

        progress()
        pckh = over_people(share, len(sums[0]), self.seed, RESAMPLES)
        return {"pckh": pckh.to_dict(), "people": len(found), "block": block}

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """PCKh@0.5 by m and epsilon."""
        done = {outcome.cell.key: outcome.values for outcome in outcomes if outcome.status == "done"}
        rows = [("raw", "", "", _told(done.get(RAW.key)), "")]
        for m, epsilon in dict.fromkeys((c.settings["m"], c.settings["epsilon"]) for c in self.cells[1:]):
            pair = [done.get(f"m{m}-e{epsilon}-{how}") for how in SHOWN.values()]
            blocks = ", ".join(str(one["block"]) if one else "-" for one in pair)
            rows.append((str(m), str(epsilon), blocks, _told(pair[0]), _told(pair[1])))
        head = ("m", "epsilon", "blocks", "painted", "restored")
        title = (
            f"PCKh@0.5 in percent of `{MODEL}`, public weights, on {self.spec}, {len(self.units)} pictures"
        )
        return Findings((Table(title, head, tuple(rows)),), (), NOTES)


def _told(values: Mapping[str, Mapping[str, float]] | None) -> str:
    if not values:
        return "-"
    found = Interval(**values["pckh"])
    return f"{100 * found.value:.1f} ({between(found.low, found.high, places=1, times=100)})"


EXPERIMENTS = (
    Experiment(
        "release-utility",
        "what a public pose model finds in released pictures",
        Utility.of,
        reads=Utility.hashes,
        options=("data", "limit", "seed", "data_public", "quick"),
    ),
)
