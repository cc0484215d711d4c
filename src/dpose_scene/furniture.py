"""Things made of boxes: seats, beds, clutter along the walls, and what stands in the way."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpose_scene.draws import Draws
from dpose_scene.materials import CHAIR, CUSHION, FRAME_, METAL, PILLOW, PLAIN, SCREEN, SHEET, WOOD

Floats = NDArray[np.float64]

BED_HEIGHT = {"studio": 0.32, "ward": 0.62}
"""Height of the mattress's top, metres."""


class Things:
    """Boxes in the making: each a centre, half sizes, yaw, tilt and material."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []

    def box(
        self,
        local: tuple[float, float, float],
        half: tuple[float, float, float],
        material: int,
        origin: tuple[float, float] = (0.0, 0.0),
        yaw: float = 0.0,
        tilt: float = 0.0,
    ) -> None:
        """Add a box at `local` (left, up, forward) in axes turned by `yaw` about `origin` (x, z)."""
        c, s = math.cos(yaw), math.sin(yaw)
        x, y, z = local
        self.rows.append((origin[0] + c * x + s * z, y, origin[1] - s * x + c * z, *half, yaw, tilt, material))

    def array(self) -> Floats:
        """(N, 9) for `mesh.add_boxes`."""
        return np.array(self.rows, np.float64).reshape(-1, 9)


def add_chair(things: Things, draws: Draws, pelvis: Floats, yaw: float, top: float) -> None:
    """A stool, chair, armchair or bench under a pelvis; its seat's top at `top` metres."""
    at = (float(pelvis[0]), float(pelvis[2]))
    kind = draws.weighted({"stool": 1.0, "chair": 3.0, "armchair": 1.5, "block": 1.2})
    top = max(top, 0.12)
    if kind == "armchair":
        things.box((0, top / 2, 0.08), (0.30, top / 2, 0.30), CUSHION, at, yaw)
        things.box((0, top / 2 + 0.25, -0.30), (0.34, top / 2 + 0.25, 0.09), CUSHION, at, yaw, -0.1)
        for side in (-1, 1):
            things.box((side * 0.36, top / 2 + 0.08, 0.05), (0.06, top / 2 + 0.08, 0.30), CUSHION, at, yaw)
        return
    if kind == "block":
        things.box((0, top / 2, 0.03), (0.30, top / 2, 0.24), WOOD, at, yaw)
        return
    things.box((0, top - 0.025, 0.05), (0.22, 0.025, 0.23), CHAIR, at, yaw)
    for x in (-0.19, 0.19):
        for z in (-0.15, 0.25):
            things.box((x, top / 2 - 0.025, z), (0.018, top / 2 - 0.025, 0.018), METAL, at, yaw)
    if kind == "chair":
        things.box((0, top + 0.32, -0.20), (0.21, 0.15, 0.016), CHAIR, at, yaw, -0.12)
        for x in (-0.17, 0.17):
            things.box((x, top + 0.15, -0.185), (0.014, 0.18, 0.014), METAL, at, yaw, -0.12)


def add_bed(
    things: Things,
    draws: Draws,
    look: str,
    origin: tuple[float, float],
    yaw: float,
    head: float,
    foot: float,
    recline: float,
) -> None:
    """A bed whose long axis is the person's: local z runs from `foot` (positive) to `head` (negative).

    Args:
        things: Written.
        draws: Random numbers.
        look: A ward's bed has rails and boards.
        origin: x, z of the pelvis.
        yaw: The person's heading.
        head: Local z of the head's end.
        foot: Local z of the feet's end.
        recline: Angle of the raised back part, radians; 0 is flat.
    """
    top = BED_HEIGHT[look]
    middle, half = 0.5 * (head + foot), 0.5 * (foot - head)
    wide = draws.uniform(0.44, 0.52) if look == "ward" else draws.uniform(0.48, 0.75)
    thick = 0.10
    things.box((0, top - thick, middle), (wide, thick, half), SHEET, origin, yaw)
    if top > 0.4:
        things.box((0, top - 2 * thick - 0.04, middle), (wide + 0.02, 0.04, half + 0.02), FRAME_, origin, yaw)
        for x in (-wide, wide):
            for z in (head + 0.1, foot - 0.1):
                things.box((x * 0.9, 0.2, z), (0.025, 0.2, 0.025), METAL, origin, yaw)
    board = top + draws.uniform(0.15, 0.4)
    things.box((0, board / 2, head - 0.04), (wide + 0.02, board / 2, 0.025), FRAME_, origin, yaw)
    if recline > 0.1:
        length = 0.42
        things.box(
            (0, top + length * math.sin(recline) - 0.06, -0.16 - length * math.cos(recline)),
            (wide * 0.92, 0.05, length),
            SHEET,
            origin,
            yaw,
            recline,
        )
    else:
        things.box((0, top + 0.035, head + 0.24), (min(wide * 0.72, 0.36), 0.045, 0.18), PILLOW, origin, yaw)
    if look == "ward":
        things.box((0, top - 0.05, foot + 0.04), (wide + 0.02, 0.16, 0.022), FRAME_, origin, yaw)
        for side in (-1, 1):
            if draws.chance(0.45):
                low, high = middle - 0.75 * half, middle + draws.uniform(-0.2, 0.3) * half
                rail = top + draws.uniform(0.12, 0.22)
                for y in (rail, rail - 0.10):
                    things.box(
                        (side * (wide + 0.04), y, (low + high) / 2),
                        (0.012, 0.014, (high - low) / 2),
                        METAL,
                        origin,
                        yaw,
                    )
                for k in range(5):
                    z = low + (high - low) * k / 4
                    things.box((side * (wide + 0.04), rail - 0.09, z), (0.009, 0.09, 0.009), METAL, origin, yaw)


def add_furniture(things: Things, draws: Draws, look: str, room: Floats) -> None:
    """Clutter behind the person: cabinets, shelves, pictures, lamps, and bars as thick as limbs."""
    ward = look == "ward"
    yaw = math.atan2(room[18], room[17])
    wall = -room[16]
    for _ in range(draws.integer(4) + (1 if ward else 0)):
        kind = draws.weighted({"cabinet": 2.0, "picture": 2.5, "table": 1.2, "lamp": 1.0, "rack": 1.2, "plant": 0.8})
        x = draws.uniform(-1.5, 1.5)
        if kind == "cabinet":
            h, w, d = draws.uniform(0.3, 1.0), draws.uniform(0.2, 0.5), draws.uniform(0.15, 0.3)
            things.box((x, h, wall + d), (w, h, d), draws.choice((WOOD, PLAIN, CHAIR)), (0, 0), yaw)
            things.box((x, h, wall + 2 * d), (w * 0.04, h * 0.9, 0.01), METAL, (0, 0), yaw)
        elif kind == "picture":
            w, h = draws.uniform(0.15, 0.55), draws.uniform(0.15, 0.5)
            y = draws.uniform(1.0, 2.0)
            things.box((x, y, wall + 0.01), (w + 0.03, h + 0.03, 0.01), WOOD, (0, 0), yaw)
            things.box((x, y, wall + 0.025), (w, h, 0.01), draws.choice((SCREEN, PLAIN)), (0, 0), yaw)
        elif kind == "table":
            h, z = draws.uniform(0.5, 0.8), wall + draws.uniform(0.35, 0.6)
            things.box((x, h, z), (0.5, 0.02, 0.3), WOOD, (0, 0), yaw)
            for dx in (-0.45, 0.45):
                for dz in (-0.25, 0.25):
                    things.box((x + dx, h / 2, z + dz), (0.025, h / 2, 0.025), WOOD, (0, 0), yaw)
        elif kind == "lamp":
            z = wall + 0.3
            things.box((x, 0.75, z), (0.018, 0.75, 0.018), METAL, (0, 0), yaw)
            things.box((x, 1.6, z), (0.14, 0.14, 0.14), CUSHION, (0, 0), yaw + 0.6)
            things.box((x, 0.015, z), (0.14, 0.015, 0.14), METAL, (0, 0), yaw)
        elif kind == "rack":  # bars at the angles and widths of arms and legs
            z = wall + 0.25
            material = draws.choice((WOOD, CUSHION, PLAIN, CHAIR))
            for _ in range(draws.integer(3) + 2):
                things.box(
                    (x + draws.uniform(-0.4, 0.4), draws.uniform(0.3, 1.7), z),
                    (0.045, draws.uniform(0.18, 0.4), 0.045),
                    material,
                    (0, 0),
                    yaw + draws.uniform(-1.5, 1.5),
                    draws.uniform(-1.2, 1.2),
                )
        else:
            z = wall + 0.35
            things.box((x, 0.16, z), (0.13, 0.16, 0.13), CHAIR, (0, 0), yaw)
            for _ in range(6):
                things.box(
                    (x + draws.uniform(-0.12, 0.12), draws.uniform(0.45, 1.0), z),
                    (0.03, 0.3, 0.01),
                    PLAIN,
                    (0, 0),
                    draws.uniform(-3, 3),
                    draws.uniform(-0.5, 0.5),
                )


def add_occluder(things: Things, draws: Draws, look: str) -> None:
    """Something between the camera and a standing person that hides a part of the legs or of one side."""
    z = draws.uniform(0.55, 0.95)
    if draws.chance(0.6):
        h = draws.uniform(0.14, 0.38)
        material = draws.choice((WOOD, PLAIN, CHAIR, FRAME_))
        things.box(
            (draws.uniform(-0.5, 0.5), h, z),
            (draws.uniform(0.12, 0.4), h, 0.15),
            material,
            yaw=draws.uniform(-0.5, 0.5),
        )
    else:
        x = draws.choice((-1, 1)) * draws.uniform(0.12, 0.35)
        things.box((x, 1.0, z), (0.025, 1.0, 0.025), METAL)
