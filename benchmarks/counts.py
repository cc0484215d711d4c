"""What counts are worth on rendered films, against the truth and against the noise-free count, and how fast they are.

    python benchmarks/counts.py films films.json        # an hour of rendered films, read once with the shipped model
    python benchmarks/counts.py days films.json         # days made of them: tables of docs/guide/count.md
    python benchmarks/counts.py live                    # frames a second at 640x480, best of several windows
    python benchmarks/counts.py clips demo.mp4 test.avi # noise-free numbers of real clips, to see whether they can be

`films` reads scenes of `synthetic:films:15` (360 of ten seconds), in any order, as chunks of 5 s and of 10 s and writes
their rows after each, with the truth beside them (it goes on where it was stopped): who is there, who lies, sits,
stands and falls is the scene's own, speed is what the public rule says of the true joints. `days` fills each ten
seconds of a day, of several cameras that are counted together, with one of those scenes or with nobody; releases the
day with exact noise again and again; and gives three errors of a window's number: of the model (noise-free against
truth), of privacy (released against noise-free), and of both. Set OMP_NUM_THREADS=1 where other programs run.
"""

from __future__ import annotations

from dpose.interpreter import settle_environment  # isort: skip

settle_environment()  # before torch is imported

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray

from dpose.measure.chunks import chunk_rows
from dpose.measure.config import CountConfig
from dpose.measure.counter import file_footage
from dpose.measure.live import live_config
from dpose.measure.plan import Schedule, bind_count
from dpose.measure.queries import QUERIES
from dpose.media.timed import TimedFrame
from dpose.pose.happenings import Rules, Seen, SeenFrame
from dpose.pose.people import PeopleFinder
from dpose.pose.postures import LYING, SITTING, STANDING, SeenPerson, body_height, joint_middle
from dpose.pose.predict import Pose
from dpose.pose.skeletons import MPII
from dpose.privacy.noise import AesNoise, Key
from dpose.privacy.ranges import exact_text
from dpose.privacy.stays import DAY
from dpose.runs.annotate import bundled_predictor
from dpose_scene.days import DAY_SIZE, DayScene, day_frames, day_moments, day_scenes
from dpose_scene.render import Scene, moments

Integers = NDArray[np.int64]

AN_HOUR = 15
"""Scenes an hour: in a day of them an hour of film."""
FALLEN = Fraction(33, 10)
"""Seconds after which somebody who falls lies: the fall begins at 2."""
SHORT = CountConfig.of(queries="occupancy,standing,sitting,lying", epsilon="1", chunk="5s")
LONG = CountConfig.of(queries="floor,falls,speed", epsilon="1", chunk="10s")


def finder() -> PeopleFinder:
    return bundled_predictor(flip_test=False).finder


def rows_of(scene: DayScene, found: PeopleFinder) -> dict[str, list[list[int]]]:
    """By query, the rows of a scene's chunks as the model sees them: two of 5 s, or one of 10 s."""
    rows: dict[str, list[list[int]]] = {}
    for config in (SHORT, LONG):
        frames = (TimedFrame(when - scene.begin, image) for when, image in day_frames(scene))
        for _, chunk in chunk_rows(frames, config, found):
            for name, row in (chunk or {}).items():
                rows.setdefault(name, []).append([int(value) for value in row])
    return rows


def truth_of(scene: DayScene) -> dict[str, list[list[int]]]:
    """The same from what is truly there."""
    frames = [
        SeenFrame(when - scene.begin, true_people(scene, when - scene.begin, one), DAY_SIZE[::-1])
        for when, one in day_moments(scene)
    ]
    rules, rows = Rules(LONG.line, LONG.fall_within, LONG.fall_stays), {}
    for config in (SHORT, LONG):
        size = config.chunk_frames
        chunks = [Seen(frames[k].time, frames[k : k + size]) for k in range(0, len(frames), size)]
        for name in config.queries:
            rows[name] = [[int(v) for v in QUERIES[name].row(chunk, rules)] for chunk in chunks]
    return {**rows, "falls": [[scene.falls]]}


def true_people(scene: DayScene, when: Fraction, one: Scene | None) -> list[SeenPerson]:
    """Who is there: the posture is the scene's own, the place that of the true joints."""
    if one is None:
        return []
    fallen = scene.action == "fall" and when >= FALLEN
    posture = LYING if fallen else SITTING if scene.action == "sit" else LYING if scene.action == "lie" else STANDING
    pose = Pose(one.keypoints.astype(np.float64), np.ones(16))
    hips = joint_middle(pose, MPII, "hip")
    assert hips is not None
    return [SeenPerson(0, posture, fallen, hips, hips, body_height(pose, MPII))]


def read_films(path: Path) -> None:
    scenes, found = day_scenes(AN_HOUR), finder()
    kept: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    for number in np.random.default_rng(0).permutation(len(scenes))[len(kept) :]:
        scene = scenes[number]
        kept.append({"action": scene.action, "model": rows_of(scene, found), "truth": truth_of(scene)})
        path.write_text(json.dumps(kept))
        print(f"{len(kept)} of {len(scenes)}", end="\r", flush=True)


BUSY = np.where((np.arange(24) >= 7) & (np.arange(24) < 21), 1.0, 0.3)
"""By hour, the share of ten seconds in which a camera shows a scene."""
RARE = 0.002
"""Share of scenes that are falls."""
DAYS, DRAWS = 3, 200


def a_day(kept: Sequence[dict[str, Any]], cameras: int, draws: np.random.Generator) -> Integers:
    """Number of the scene that each camera shows in each ten seconds of a day, (8640, cameras); -1 for none."""
    falls = np.array([one["action"] == "fall" for one in kept])
    chances = np.where(falls, RARE / falls.sum(), (1 - RARE) / (~falls).sum())
    shown = draws.choice(len(kept), (8640, cameras), p=chances)
    return np.where(draws.random(shown.shape) < BUSY.repeat(360)[:, None], shown, -1)


def errors(kept: Sequence[dict[str, Any]], config: CountConfig, cameras: int) -> Iterator[str]:
    """A row of the table for each query."""
    plan = bind_count(config, Schedule("day", cameras, Fraction(0), DAY))
    draws, slots = np.random.default_rng(7), int(config.window / 10)
    for name, mechanism in plan.mechanisms.items():
        none = np.zeros(mechanism.query.width, np.int64)
        sums = {
            whose: np.stack([*(sum(map(mechanism.clamped, one[whose][name])) for one in kept), none])
            for whose in ("model", "truth")
        }
        unit = float(plan.divisor(mechanism.query, 0))
        model, truth, released = [], [], []
        for _ in range(DAYS):
            day = a_day(kept, cameras, draws)
            of_day = {w: rows[day].sum(1).reshape(-1, slots, none.size).sum(1) for w, rows in sums.items()}
            for _ in range(DRAWS):
                noise = AesNoise(Key.fresh())
                for window, row in enumerate(of_day["model"]):
                    released.append(np.maximum(mechanism.noised(row, noise, window, 0) / unit, 0))
                model += list(of_day["model"] / unit)
                truth += list(of_day["truth"] / unit)
        m, t, r = np.array(model), np.array(truth), np.array(released)
        of_model, of_noise, of_both = (np.abs(a - b).mean() for a, b in ((m, t), (r, m), (r, t)))
        within = [f"{(np.abs(r - a) <= 2).mean():.0%}" if name == "falls" else "" for a in (m, t)]
        about = (exact_text(config.window), str(cameras), exact_text(config.epsilon))
        cells = (name, *about, f"{t.mean():.3g}", f"{m.mean():.3g}")
        pairs = ((of_model, t), (of_noise, m), (of_both, t))
        shares = (f"{off:.3g} ({off / of.mean():.0%})" for off, of in pairs)
        yield f"| {' | '.join((*cells, *shares, *within))} |"


HEAD = (
    *("query", "window, s", "cameras", "epsilon", "truth", "noise-free"),
    *("off by the model", "by noise", "by both", "falls within 2 of noise-free", "of truth"),
)
CORRIDOR = {"visible": "30s", "times": 4, "chunk": "5s"}
PASSING = {"visible": "5s", "times": 1, "chunk": "10s"}
TRIED: list[tuple[str, dict[str, Any], tuple[str, ...], tuple[int, ...], tuple[str, ...]]] = [
    ("occupancy", CORRIDOR, ("600", "3600", "86400"), (8,), ("1/2", "1", "2")),
    ("occupancy", CORRIDOR, ("3600",), (4, 16), ("1",)),
    ("lying", CORRIDOR, ("3600", "86400"), (8,), ("1",)),
    ("falls", PASSING, ("3600", "86400"), (8,), ("1", "2", "4")),
    ("speed", {**PASSING, "most": {"speed": 2}}, ("3600", "86400"), (8,), ("1",)),
]
"""Query, settings, windows, cameras and epsilons; K 4 stays of 30 s, and K 1 of 5 s with a lead-in of 5 s."""


def by_action(kept: Sequence[dict[str, Any]]) -> Iterator[str]:
    """How often the model finds somebody, and the posture that is true, by what happens."""
    for action in dict.fromkeys(one["action"] for one in kept):
        some = [one for one in kept if one["action"] == action]
        model, truth = (
            {name: np.array([one[whose][name] for one in some]) for name in SHORT.queries}
            for whose in ("model", "truth")
        )
        frames = max(truth["occupancy"].sum(), 1)
        right = sum(np.minimum(model[name], truth[name]).sum() for name in SHORT.queries[1:]) / frames
        found = np.minimum(model["occupancy"], truth["occupancy"]).sum() / frames
        falls = sum(one["model"]["falls"][0][0] for one in some)
        yield (
            f"| {action or 'nobody'} | {len(some)} | {found:.0%}"
            f" | {right:.0%} | {falls} | {np.maximum(model['occupancy'] - truth['occupancy'], 0).sum()} |"
        )


def days(path: Path) -> None:
    kept = json.loads(path.read_text())
    print("| scene | scenes | somebody found | posture right | falls counted | people too many, frames |")
    print("|---|---|---|---|---|---|", *by_action(kept), sep="\n")
    print(f"\n{len(kept)} scenes, {DAYS} days released {DRAWS} times each\n\n| {' | '.join(HEAD)} |")
    print("|---" * len(HEAD) + "|")
    for query, given, windows, cameras, epsilons in TRIED:
        for window, number, epsilon in itertools.product(windows, cameras, epsilons):
            config = CountConfig.of(queries=query, window=window, epsilon=epsilon, **given)
            print(*errors(kept, config, number), flush=True)


def live() -> None:
    """Frames that are decoded and counted, by chunks, of a film of 640x480 with one person."""
    found, walk = finder(), day_scenes(AN_HOUR)[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "walk.ts"
        with av.open(str(path), "w") as file:
            stream: Any = file.add_stream("mpeg2video", rate=25)
            stream.width, stream.height, stream.pix_fmt = 640, 480, "yuv420p"
            for one in moments("ward", walk.seed, "walk", range(125), (480, 640)):
                file.mux(stream.encode(av.VideoFrame.from_ndarray(one.image)))
            file.mux(stream.encode())
        footage = file_footage(path, Fraction(5))  # the second chunk, and the lead-in of the third
        for queries, rate in (("occupancy", "10"), ("occupancy,entries,speed", "10"), ("falls", "2")):
            config = CountConfig.of(queries=queries, epsilon="1", rate=rate)
            deadline, took = float(live_config(config).deadline or 0), []
            for _ in range(12):
                begun = time.perf_counter()
                dict(chunk_rows(footage.frames(), config, found))
                took.append(time.perf_counter() - begun)
            best, middle = (config.chunk_frames / seconds for seconds in (min(took), np.median(took)))
            late = sum(seconds > deadline for seconds in took)
            print(
                f"{queries} at rate {rate}: best {best:.1f} frames a second, median {middle:.1f}, of 12 chunks of 5 s;"
                f" {late} took longer than the {deadline:.1f} s that a live chunk has;"
                f" {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def clips(paths: Sequence[Path]) -> None:
    found = finder()
    config = CountConfig.of(queries="occupancy,standing,sitting,lying,entries,falls,speed", epsilon="1")
    for path in paths:
        footage = file_footage(path, Fraction(0))
        rows = [row for _, row in chunk_rows(footage.frames(), config, found) if row is not None]
        frames = sum(len(row["occupancy"]) for row in rows)
        sums = {name: np.sum([np.sum(row[name], axis=None) for row in rows]) for name in config.queries[:-1]}
        most = max(max(row["occupancy"]) for row in rows)
        said = ", ".join(f"{name} {value / frames:.2f}" for name, value in list(sums.items())[:4])
        speeds = np.sum([row["speed"] for row in rows], axis=0).tolist()
        print(f"{path.name}: {float(footage.end):.1f} s, {frames} frames looked at; a frame: {said}, at most {most};")
        print(f"    {sums['entries']} entries, {sums['falls']} falls, people by speed {speeds}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("films", "days", "live", "clips"))
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    {
        "films": lambda: read_films(*given.files),
        "days": lambda: days(*given.files),
        "live": live,
        "clips": lambda: clips(given.files),
    }[given.what]()


if __name__ == "__main__":
    main()
