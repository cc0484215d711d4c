"""Every grid: the tables and figures of seed 000."""

from __future__ import annotations

from dpose.experiments.papers.pose.designs import Design, Scale
from dpose.experiments.papers.pose.printed import printed

EPSILONS_000 = (0.2, 0.4, 0.6, 0.8, 1.0, 3.0, 5.0, 7.0)
CLIP_NORMS = (1.0, 0.1, 0.01)
_ALL = ("finetune", "full", "scratch")

LOST = (
    "the papers do not name their optimizer, learning rate or batch size; these are dpose's own",
    "the papers' numbers are for TinyViT-5M at 256x192, pretrained on COCO, on MPII: elsewhere the difference compares "
    "data and models as much as methods",
    "the papers draw their public subset from the training set; here it is other data, and in no private unit",
)


def _paper(name: str, title: str, methods: tuple[str, ...], tables: tuple[str, ...]) -> Design:
    epsilons = EPSILONS_000
    return Design(
        name=name,
        title=title,
        methods=methods,
        tables=tuple(map(printed, tables)),
        data="synthetic:ward",
        delta=4e-5,
        accountant="rdp",
        whole=Scale(_ALL, epsilons, CLIP_NORMS, 25.0, 1024, 1e-3, 0.0, "private"),
        core=Scale(
            ("finetune",), (0.2, 0.8), CLIP_NORMS, 1.5, 256, 3e-3, 0.9, "none", limit=2000, tested=300
        ),
        notes=LOST,
    )


DESIGNS = (
    _paper("000/table1", "pose without privacy, three strategies", (), ("000/table1",)),
    _paper("000/table2", "pose with DP-SGD", ("dp-sgd",), ("000/table2",)),
    _paper("000/table3", "pose with DP-SGD and projection", ("pdp-sgd",), ("000/table3",)),
    _paper(
        "000/figure1",
        "pose with and without projection, by epsilon",
        ("dp-sgd", "pdp-sgd"),
        ("000/table2", "000/table3"),
    ),
)
