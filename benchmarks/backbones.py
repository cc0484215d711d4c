"""Two private steps of every family of timm's models, the smallest member of each: docs/guide/backbones.md.

    python benchmarks/backbones.py                         # the whole table; goes on where it was stopped
    python benchmarks/backbones.py --only resnet,fastvit   # these families again

Sixteen units of random numbers, micro-batches of two, from scratch and with random first weights by each strategy, in a
process a model: a crash is a row. Rows are kept in docs/benchmarks/backbones.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import signal
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from rich.console import Console

from dpose.errors import DposeError
from dpose.pose.model import PoseConfig, PoseModel, Strategy, apply_strategy, fold_batchnorm
from dpose.pose.task import PoseTask
from dpose.training.options import RunOptions
from dpose.training.plan import TrainingPlan
from dpose.training.trainer import train
from dpose.units import View

DOCS = Path(__file__).parents[1] / "docs"
ROWS, PAGE = DOCS / "benchmarks" / "backbones.jsonl", DOCS / "guide" / "backbones.md"
# fmt: off
MEMBERS = (
    "beit_base_patch16_224", "halonet_h1", "mobileone_s0", "cait_xxs24_224", "coat_tiny", "convit_tiny",
    "convmixer_768_32", "convnext_zepto_rms", "cpubone_nano", "crossvit_tiny_240", "csatv2",
    "cs3darknet_focus_s", "cspnext_tiny", "davit_tiny", "deit_tiny_patch16_224", "densenet121", "dla46x_c",
    "dpn48b", "edgenext_xx_small", "efficientformer_l1", "efficientformerv2_s0", "mobilenetv2_035",
    "efficientvim_m1", "efficientvit_b0", "efficientvit_m0", "eva02_tiny_patch14_224", "fasternet_t0",
    "fastvit_t8", "focalnet_tiny_srf", "gcvit_xxtiny", "ghostnet_050", "hardcorenas_a", "hgnetv2_b0",
    "hiera_tiny_224", "sam2_hiera_tiny", "hrnet_w18_small", "iformer_t", "inception_next_atto",
    "inception_resnet_v2", "inception_v3", "inception_v4", "lcnetv2_small", "levit_128s", "lowformer_b0",
    "mambaout_femto", "maxvit_pico_rw_256", "poolformer_s12", "gmlp_ti16_224", "lcnet_035", "mobilevit_xxs",
    "mvitv2_tiny", "naflexvit_base_patch16_gap", "nest_tiny", "nextvit_small", "nf_regnet_b0", "pit_ti_224",
    "pvt_v2_b0", "qwen3_vit_88m", "rdnet_tiny", "regnetx_002", "repghostnet_050", "repvit_m0_9",
    "res2net50_48w_2s", "resnest14d", "resnet10t", "resnetv2_18", "rexnet_100", "selecsls42",
    "legacy_seresnet18", "sequencer2d_s", "shvit_s1", "skresnet18", "starnet_s050", "swiftformer_xs",
    "swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256", "swinv2_cr_tiny_224", "tiny_vit_5m_224",
    "tnt_s_patch16_224", "tresnet_m", "twins_svt_small", "vgg11", "visformer_tiny", "vit_tiny_patch16_224",
    "vit_tiny_r_s16_p8_224", "vit_relpos_small_patch16_224", "samvit_base_patch16", "vitamin_small_224",
    "volo_d1_224", "ese_vovnet19b_slim_dw", "legacy_xception", "xception41", "xcit_nano_12_p16_224",
    "nasnetalarge", "pnasnet5large", "mobilenetv5_base", "gemma4_vit_167m", "deepseek_vit_412m",
)
# fmt: on
"""The smallest member of each family, one of timm's modules."""
STRATEGIES: tuple[Strategy, ...] = ("scratch", "light", "finetune", "full")
TRAINS = "trains"
ALONE = ", one unit at a time"
"""Behind the size where a gradient depends, in its last bits, on the other units of a micro-batch on this processor."""
TRIES = (((64, 48), 0), ((0, 0), 0), ((224, 224), 0), ((256, 256), 0), ((256, 256), 32), ((224, 224), 32))
"""Input sizes and strides, in turn, where one is refused: a small one, the backbone's own (0), what most models were
made for, and the stride that most have without being changed."""


class Noise:
    """Units of random pictures and joints."""

    unit = "image"

    def __init__(self, units: int, size: tuple[int, int]) -> None:
        numbers = np.random.default_rng(0)
        self.views = [
            View(
                numbers.integers(0, 256, (*size, 3), np.uint8),
                {
                    "keypoints": (numbers.random((16, 2)) * size[::-1]).astype(np.float32),
                    "visible": np.ones(16, np.float32),
                },
            )
            for _ in range(units)
        ]

    def __len__(self) -> int:
        return len(self.views)

    def unit_id(self, index: int) -> str:
        """A unit's name."""
        return f"picture-{index}"

    def content_hashes(self, index: int) -> tuple[str, ...]:
        """A unit's digest."""
        return (hashlib.sha256(self.views[index].image.tobytes()).hexdigest(),)

    def load(self, index: int, rng: object) -> list[View]:
        """A unit's one view."""
        return [self.views[index]]


def model_of(name: str, strategy: Strategy, size: tuple[int, int], stride: int) -> PoseModel:
    """The model as `dpose train` makes it."""
    torch.manual_seed(0)
    scratch = strategy == "scratch"
    model = PoseModel(PoseConfig(name, size, norm="group" if scratch else "batch", stride=stride))
    model = model if scratch else fold_batchnorm(model)
    apply_strategy(model, strategy)
    return model.to(memory_format=torch.channels_last)


def tried(name: str, strategy: Strategy, at_once: int = 2) -> tuple[str, str]:
    """The input size, and "trains" or why the backbone is refused."""
    refused = ""
    for size, stride in TRIES:
        try:
            model = model_of(name, strategy, size, stride)
            shown = "x".join(map(str, model.config.input_size)) + (f", stride {stride}" if stride else "")
            with tempfile.TemporaryDirectory() as folder, Path(folder, "printed").open("w") as printed:
                run = train(
                    PoseTask(codec=model.codec),
                    model,
                    private=Noise(16, model.config.input_size),
                    plan=TrainingPlan(epsilon=8.0, delta=1e-3, steps=2, expected_batch_size=8, unit="image"),
                    out=Path(folder, "run"),
                    options=RunOptions(
                        microbatch_size=at_once, state_dir=Path(folder, "state"), console=Console(file=printed)
                    ),
                )
                finite = all(bool(p.isfinite().all()) for p in run.model.parameters())
            return shown, TRAINS if finite and run.steps == 2 else "DEFECT: weights that are not finite"
        except DposeError as error:
            line = error.line()
            if "--set microbatch_size=1" in line and at_once > 1:
                size_, result = tried(name, strategy, 1)
                return size_ + ALONE, result
            if not any(about in line for about in ("input size", "input_size", "has no stride")):
                return "", line
            if not refused or size == (0, 0):  # of several reasons the one at the backbone's own size
                refused = line
    return "", refused


def rows_of(name: str) -> dict[str, dict[str, str]]:
    """Each strategy's result for one model, found in a process of its own: a crash is a result."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "results")
        process = multiprocessing.get_context("fork").Process(target=_into, args=(name, place))
        process.start()
        process.join()
        found = {row.pop("strategy"): row for row in map(json.loads, place.read_text().splitlines())}
    if process.exitcode:
        at = next(strategy for strategy in STRATEGIES if strategy not in found)
        found[at] = {"size": "", "result": f"DEFECT: {signal.Signals(-process.exitcode).name}"}
    return found


def _into(name: str, place: Path) -> None:
    with place.open("w") as file:
        for strategy in STRATEGIES:
            try:
                size, result = tried(f"timm:{name}", strategy)
            except Exception as error:
                said = " ".join(str(error).split())[:160]
                size, result = "", f"DEFECT: {type(error).__name__}: {said}"
            print(json.dumps({"strategy": strategy, "size": size, "result": result}), file=file, flush=True)


def read_rows() -> list[dict[str, Any]]:
    """The rows that are kept."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def write(rows: list[dict[str, Any]]) -> None:
    """Keep the rows, and print them into the guide's page."""
    rows.sort(key=lambda row: row["family"])
    ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"| family | model | {' | '.join(STRATEGIES)} |", "|---" * (2 + len(STRATEGIES)) + "|"]
    lines += map(table_row, rows)
    head = PAGE.read_text().partition("| family |")[0]
    missing = [f"`{name}`" for name in MEMBERS if name not in {row["model"] for row in rows}]
    lines += ["", f"Not run yet: {', '.join(missing)}."] if missing else []
    PAGE.write_text(head + "\n".join(lines) + "\n")


def table_row(row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [shown(row["results"].get(strategy)) for strategy in STRATEGIES]
    return f"| {row['family']} | `{row['model']}` | {' | '.join(cells)} |"


def shown(result: dict[str, str] | None) -> str:
    """A cell of the table."""
    if result is None:
        return ""
    return result["size"] if result["result"] == TRAINS else result["result"].replace("|", "/")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    asked.add_argument("--only", default="", help="families, with commas between them")
    given = asked.parse_args()
    tried("nano", "light")  # what is computed once for the process is inherited by those forked from it
    rows = {row["model"]: row for row in read_rows()}
    for name in MEMBERS:
        family = timm.models.model_entrypoint(name).__module__.rpartition(".")[2]
        if family in given.only.split(",") or not (given.only or name in rows):
            rows[name] = {"family": family, "model": name, "results": rows_of(name)}
            write(list(rows.values()))
            print(json.dumps(rows[name]), flush=True)


if __name__ == "__main__":
    main()
