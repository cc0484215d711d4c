"""`release-quality`: its cells, and the tables and figures of finished ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from dpose.errors import DposeError
from dpose.media.images import decode_image, encode_image
from dpose.release.choosing import SIDES
from dpose.release.restoration import Restoration
from dpose.report.plots import png
from dpose.report.results import Figure, Table
from dpose_lab.papers.experiment import Cell, Findings, Outcome, Request, Values
from dpose_lab.papers.pixelization.data import ORIGINALS, Data, ShownOutcomes, four_digits, three
from dpose_lab.papers.quality.drawn import five_budgets, psnr_curves
from dpose_lab.papers.quality.measure import (
    DRAWS,
    EPSILONS,
    FILM_BUDGET,
    FILM_SHAPE,
    FILM_WAYS,
    FILMS,
    FORMER,
    LEARNED,
    LEAST_BLOCK,
    ORACLE,
    WAYS,
    M,
    measured_film,
    measured_picture,
)
from dpose_lab.photos.photo import Photo

PHOTOGRAPHS, RENDERED, SIZE, FEW = "skimage", "synthetic:studio:test", (480, 640), 4
AIM, FLOOR, OVER_FORMER = 2.0, 1.5, 6.0
"""Targets of the learned restoration, decibels: over the best rgb block (mean, least), and over the former default."""
LIBRARIES = ("numpy", "opencv-python-headless", "scikit-image")
"""Packages besides dpose that restore and measure."""
QUALITY = 82
"""Quality of the JPEG."""


@dataclass(frozen=True)
class QualityStudy:
    """The experiment bound to its pictures.

    Attributes:
        data: The photographs, then further requested data.
        seed: Seed of the noise.
        weights: Digest of the learned restoration's weights.
        command: Command that makes these results again.
    """

    data: Data
    seed: int
    weights: str
    command: str

    @property
    def settings(self) -> Values:
        """Settings that the results depend on."""
        return {**self.data.to_dict(), "seed": self.seed, "draws": DRAWS, "m": M, "weights": self.weights}

    @property
    def cells(self) -> Sequence[Cell]:
        """Cells, one per picture, way and epsilon; then one per film and way."""
        pictures = [
            Cell(
                _key(number, index, way, epsilon),
                {"data": number + 1, "photo": index + 1, "way": way, "epsilon": epsilon},
            )
            for number, photos in enumerate(self.data.sets)
            for index in range(len(photos))
            for epsilon in EPSILONS
            for way in WAYS
        ]
        films = [Cell(f"film-{f}-{way}", {"film": f, "way": way}) for f in FILMS for way in FILM_WAYS]
        return [*pictures, *films]

    def run(self, cell: Cell, progress: Callable[[], None]) -> Values:
        """Release and measure a cell."""
        settings = cell.settings
        if "film" in settings:
            values = measured_film(settings["way"], settings["film"], self.seed)
        else:
            photo = self._photo(settings["data"] - 1, settings["photo"] - 1)
            assert photo.colours is not None
            values = measured_picture(settings["way"], settings["epsilon"], photo.name, photo.colours, self.seed)
        progress()
        return values

    def show(self, outcomes: Sequence[Outcome]) -> Findings:
        """Present tables, curves, and the first picture at every budget."""
        shown = ShownOutcomes(outcomes)
        tables, curves = [], {}
        for number, photos in enumerate(self.data.sets):
            scored = _Scores(shown, number, len(photos))
            title = f"{photos.title}, {len(photos)}"
            tables += [scored.gains(title), scored.measures(title), scored.each(title, photos.names)]
            curves[photos.title] = {way: scored.curve(way) for way in WAYS}
        figures = [psnr_curves(curves)]
        files = {}
        panels = [[(epsilon, shown.values(_key(0, 0, way, epsilon))) for epsilon in EPSILONS] for way in WAYS]
        if all(values is not None for row in panels for _, values in row):
            photo = self._photo(0, 0)
            blocks = {
                (way, epsilon): int(values["block"])
                for way, row in zip(WAYS, panels, strict=True)
                for epsilon, values in row
                if values
            }
            picture = png(five_budgets(photo, blocks, self.seed))
            caption = f"{photo.name} at five budgets, four ways; m = {M}"
            figures.append(Figure("five-budgets", caption, png=picture))
            files["five-budgets.jpg"] = encode_image(decode_image(picture, photo.name), ".jpg", QUALITY)
        return Findings((*tables, _films(shown)), tuple(figures), self._notes(shown), files=files)

    def _photo(self, number: int, index: int) -> Photo:
        return self.data.sets[number].load(index)

    def _notes(self, shown: ShownOutcomes) -> tuple[str, ...]:
        spreads = [float(o.values["psnr_sd"]) for o in shown.outcomes if "psnr_sd" in o.values]
        sides = [str(side) for side in SIDES if side >= LEAST_BLOCK]
        return (
            f"made by: {self.command}; noise from seed {self.seed}, {DRAWS} draws a picture, one a film; weights "
            f"{self.weights[:12]}, {', '.join(f'{name} {version(name)}' for name in LIBRARIES)}",
            *self.data.notes(),
            f"pictures: epsilon is for any {M} pixels, delta 0, Laplace noise; an object of A pixels keeps epsilon "
            f"A / {M}, a face of 100 x 100 at epsilon 2 {2 * 100**2 / M:,.0f}. Small details are hidden, not persons",
            "former default: R, G and B in blocks of 16, painted. Best rgb block: that of each picture with the least "
            f"error among {', '.join(sides)}, found by looking at the original, painted: no release could choose so. "
            "One rgb block for all: chosen so for all pictures together",
            "tv, learned: luma and chroma, blocks chosen by the public prior (--block auto). Neither it nor the "
            "training of the learned one has seen the photographs; other rendered people of studio had a part in both",
            "mean over pictures; after it the standard deviation between pictures, which differ far more than draws of "
            f"noise do (at most {max(spreads, default=0):.2f} dB, standard deviation, for any picture)",
            "MSE and PSNR over R, G and B; SSIM of luma, window 7",
            ORIGINALS,
        )


def quality_study(request: Request) -> QualityStudy:
    """Open photographs of scikit-image and requested data; rendered people by default."""
    learned = Restoration.chosen(LEARNED)
    if learned.note:
        raise DposeError("restoration-missing", "there is nothing to measure", "learned", learned.note)
    besides = [spec for spec in request.data or (RENDERED,) if spec != PHOTOGRAPHS]
    data = Data.open(replace(request, data=(PHOTOGRAPHS, *besides)), [SIZE], FEW)
    options = "".join(f" --data {spec}" for spec in request.data)
    options += f" --limit {request.limit}" if request.limit else ""
    options += f" --seed {request.seed}" if request.seed else ""
    return QualityStudy(data, request.noise_seed, learned.weights, f"dpose reproduce release-quality{options}")


def _key(number: int, index: int, way: str, epsilon: str) -> str:
    return f"{number + 1}-{index + 1}-{way}-e{epsilon}"


@dataclass(frozen=True)
class _Scores:
    """Measurements of one set of pictures; a set has numbers once all of its pictures are done."""

    shown: ShownOutcomes
    number: int
    count: int

    def values(self, way: str, epsilon: str, name: str) -> list[float]:
        """Values of a way at a budget, one per picture; [] until all are done."""
        measured = [self.shown.values(_key(self.number, index, way, epsilon)) for index in range(self.count)]
        done = [float(values[name]) for values in measured if values is not None]
        return done if len(done) == self.count else []

    def differences(self, epsilon: str, other: str) -> list[float]:
        """Gain in PSNR of the learned restoration over another way, one per picture."""
        pairs = zip(self.values(LEARNED, epsilon, "psnr"), self.values(other, epsilon, "psnr"), strict=False)
        return [one - another for one, another in pairs]

    def one_block(self, epsilon: str) -> tuple[int, float] | None:
        """The best rgb block for all pictures together, with its mean PSNR; None until all are done."""
        measured = [self.shown.values(_key(self.number, index, ORACLE, epsilon)) for index in range(self.count)]
        tried = [values["by_block"] for values in measured if values is not None]
        if len(tried) < self.count:
            return None
        means = {int(side): statistics.mean(one[side] for one in tried) for side in tried[0]}
        block = max(means, key=lambda side: means[side])
        return block, means[block]

    def curve(self, way: str) -> list[tuple[float, float]]:
        """Mean PSNR by epsilon."""
        curve = ((float(epsilon), self.values(way, epsilon, "psnr")) for epsilon in EPSILONS)
        return [(epsilon, statistics.mean(values)) for epsilon, values in curve if values]

    def gains(self, title: str) -> Table:
        """Table of PSNR, and of the learned restoration's gain beside its target."""
        rows = []
        for epsilon in EPSILONS:
            over, former = self.differences(epsilon, ORACLE), self.differences(epsilon, FORMER)
            aim = OVER_FORMER if float(epsilon) <= 1 else None
            fixed, learned = self.one_block(epsilon), self.values(LEARNED, epsilon, "psnr")
            over_fixed = [value - fixed[1] for value in learned] if fixed else []
            rows.append(
                (
                    epsilon,
                    *(_spread(self.values(way, epsilon, "psnr")) for way in WAYS),
                    f"{fixed[1]:.2f} ({fixed[0]})" if fixed else "-",
                    _goal(over, AIM, FLOOR),
                    " to ".join(f"{value:+.1f}" for value in (min(over), max(over))) if over else "-",
                    _goal(over_fixed, AIM, FLOOR),
                    _goal(former, aim, aim),
                )
            )
        head = (
            "epsilon",
            *WAYS.values(),
            "one rgb block for all",
            f"learned over the best block (aim {AIM:g}, floor {FLOOR:g})",
            "least and most",
            "over one block for all",
            f"over the former default (aim {OVER_FORMER:g} up to epsilon 1)",
        )
        return Table(f"{title}: PSNR, dB", head, tuple(rows))

    def measures(self, title: str) -> Table:
        """Table of SSIM and MSE."""
        head = ("epsilon", *(f"{name}, {WAYS[way]}" for name in ("SSIM", "MSE") for way in WAYS))
        rows = []
        for epsilon in EPSILONS:
            cells = [_mean(self.values(way, epsilon, "ssim"), three) for way in WAYS]
            cells += [_mean(self.values(way, epsilon, "mse"), four_digits) for way in WAYS]
            rows.append((epsilon, *cells))
        return Table(f"{title}: SSIM and MSE", head, tuple(rows))

    def each(self, title: str, names: Iterable[str]) -> Table:
        """Table of PSNR of each picture, with its blocks."""
        rows = []
        for index, name in enumerate(names):
            for epsilon in EPSILONS:
                cells = []
                for way in WAYS:
                    values = self.shown.values(_key(self.number, index, way, epsilon))
                    wide = f" x {values['chroma']}" if values and values["chroma"] > 1 else ""
                    cells.append(f"{values['psnr']:.2f} ({values['block']}{wide})" if values else "-")
                rows.append((name, epsilon, *cells))
        head = ("picture", "epsilon", *WAYS.values())
        return Table(f"{title}: each, PSNR in dB (block x how much wider chroma's is)", head, tuple(rows))


def _films(shown: ShownOutcomes) -> Table:
    epsilon, delta = FILM_BUDGET
    rows = tuple(
        (film, *(shown.text(f"film-{film}-{way}", "psnr", "{:.2f}".format) for way in FILM_WAYS)) for film in FILMS
    )
    shape = FILM_SHAPE
    title = (
        f"rendered films, studio, {shape.frames} frames of {shape.width} x {shape.height}, epsilon {epsilon}, delta "
        f"{delta}, {M} pixels of the clip: PSNR, dB"
    )
    return Table(title, ("film", *(WAYS[way] for way in FILM_WAYS)), rows)


def _mean(values: Sequence[float], write: Callable[[float], str]) -> str:
    return write(statistics.mean(values)) if values else "-"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f} ± {statistics.pstdev(values):.1f}" if values else "-"


def _goal(gains: Sequence[float], aim: float | None, floor: float | None) -> str:
    if not gains:
        return "-"
    gain = round(statistics.mean(gains), 2)  # as it is printed
    if aim is None or floor is None:
        return f"{gain:+.2f}"
    return f"{gain:+.2f}, {'reached' if gain >= aim else 'above the floor' if gain >= floor else 'missed'}"
