"""What stands around a person: the room, seats and beds, bedding, furniture and things that look like limbs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpose.scene.draws import Draws
from dpose.scene.jit import kernel
from dpose.scene.materials import (
    BLANKET,
    CHAIR,
    CUSHION,
    FRAME_,
    METAL,
    PILLOW,
    PLAIN,
    SCREEN,
    SHEET,
    WOOD,
    Colour,
    Palette,
    linear,
)
from dpose.scene.mesh import Mesh, add_boxes, add_cloth
from dpose.scene.skeleton import JOINT

Floats = NDArray[np.float64]

WALLS: dict[str, tuple[Colour, ...]] = {
    "studio": (
        (0.93, 0.92, 0.90), (0.86, 0.88, 0.90), (0.90, 0.84, 0.76), (0.78, 0.85, 0.88), (0.95, 0.88, 0.82), (0.74, 0.82, 0.74),
        (0.62, 0.70, 0.80), (0.85, 0.76, 0.80), (0.52, 0.62, 0.66), (0.80, 0.62, 0.50), (0.96, 0.92, 0.74), (0.66, 0.66, 0.70),
    ),
    "ward": (
        (0.72, 0.78, 0.72), (0.62, 0.70, 0.74), (0.74, 0.70, 0.60), (0.50, 0.56, 0.52), (0.42, 0.46, 0.54), (0.66, 0.58, 0.52),
        (0.36, 0.40, 0.40), (0.80, 0.80, 0.76),
    ),
}  # fmt: skip
FLOORS: dict[str, tuple[Colour, ...]] = {
    "studio": (
        (0.80, 0.66, 0.50), (0.70, 0.52, 0.36), (0.86, 0.84, 0.80), (0.62, 0.62, 0.62), (0.55, 0.42, 0.32), (0.56, 0.66, 0.44),
        (0.74, 0.74, 0.78), (0.78, 0.70, 0.62),
    ),
    "ward": ((0.46, 0.52, 0.50), (0.40, 0.44, 0.50), (0.54, 0.50, 0.42), (0.34, 0.34, 0.36), (0.60, 0.62, 0.58)),
}  # fmt: skip

BED_HEIGHT = {"studio": 0.32, "ward": 0.62}
"""Height of the mattress's top, metres."""


def _shade(colour: Colour, factor: float) -> Colour:
    return (min(colour[0] * factor, 1.0), min(colour[1] * factor, 1.0), min(colour[2] * factor, 1.0))


def draw_room(draws: Draws, look: str) -> Floats:
    """(22,) the room's floor and walls.

    Floor pattern, its repeats a metre, colour (3), second colour (3); wall pattern, repeats, colour (3), second colour (3); distance
    of the back wall behind the origin, cosine and sine of its yaw, distance of the side wall, height of the skirting
    board, how fast the light falls off. Metres, linear light.
    """
    room = np.zeros(22)
    floor, wall = draws.choice(FLOORS[look]), draws.choice(WALLS[look])
    contrast = (0.82, 1.2) if look == "studio" else (0.7, 1.25)
    room[0] = draws.choice((0, 1, 2, 2, 3, 4, 5, 6) if look == "studio" else (0, 1, 2, 4, 4, 6))
    room[1] = 1.0 / draws.uniform(0.25, 0.5)
    room[2:5], room[5:8] = linear(floor), linear(_shade(floor, draws.uniform(*contrast) * 0.9))
    room[8] = draws.choice((0, 0, 0, 1, 2, 3, 4, 5, 5, 6, 7) if look == "studio" else (0, 0, 2, 4, 4, 6, 6, 7))
    room[9] = 1.0 / draws.uniform(0.16, 0.55)
    second = _shade(wall, draws.uniform(*contrast)) if draws.chance(0.7) else draws.choice(WALLS[look])
    room[10:13], room[13:16] = linear(wall), linear(second)
    yaw = draws.uniform(-0.9, 0.4)
    room[16], room[17], room[18] = draws.uniform(1.1, 2.6), math.cos(yaw), math.sin(yaw)
    room[19] = draws.uniform(1.2, 3.0)
    room[20] = draws.choice((0.0, 0.08, 0.12))
    room[21] = draws.uniform(0.0, 0.03) if look == "studio" else draws.uniform(0.04, 0.16)
    return room


def furnish_palette(draws: Draws, look: str, table: Floats) -> None:
    """Materials of things, written into rows 16 and up of a palette."""
    palette = Palette()
    ward = look == "ward"
    woods: tuple[Colour, ...] = ((0.62, 0.44, 0.28), (0.42, 0.28, 0.18), (0.80, 0.66, 0.48), (0.26, 0.18, 0.13))
    vivid: tuple[Colour, ...] = (
        (0.75, 0.30, 0.25), (0.25, 0.45, 0.65), (0.85, 0.70, 0.30), (0.35, 0.55, 0.40), (0.55, 0.40, 0.60), (0.88, 0.86, 0.84),
        (0.30, 0.32, 0.36), (0.82, 0.58, 0.48),
    )  # fmt: skip
    dull: tuple[Colour, ...] = ((0.50, 0.54, 0.54), (0.66, 0.66, 0.62), (0.36, 0.40, 0.44), (0.46, 0.42, 0.36), (0.30, 0.36, 0.34))
    things = dull if ward else vivid
    palette.set(FRAME_, draws.choice(dull if ward else woods), kind="thing")
    palette.set(SHEET, draws.choice(((0.90, 0.90, 0.88), (0.74, 0.82, 0.86), (0.86, 0.86, 0.78))), kind="cloth", folds=0.5)
    blanket = draws.choice(((0.40, 0.55, 0.66), (0.82, 0.82, 0.78), (0.50, 0.62, 0.54), (0.66, 0.56, 0.46), (0.56, 0.40, 0.42)))
    palette.set(
        BLANKET, blanket, (0.85, 0.85, 0.8), draws.choice(("plain", "plain", "stripes", "checks")), 0.16, "cloth", 0.9
    )
    palette.set(PILLOW, (0.92, 0.92, 0.90), kind="cloth", folds=0.4)
    palette.set(CHAIR, draws.choice(things + woods), kind="thing")
    palette.set(CUSHION, draws.choice(things), kind="cloth", folds=0.3)
    palette.set(WOOD, draws.choice(woods), kind="wood")
    palette.set(PLAIN, draws.choice(things), draws.choice(things), draws.choice(("plain", "stripes", "blocks")), 0.3, "thing")
    palette.set(METAL, (0.62, 0.64, 0.66), kind="thing", gloss=0.4)
    palette.set(SCREEN, draws.choice(things), draws.choice(things), "print", 0.25, "thing")
    table[16:] = palette.table[16:]


class Things:
    """Boxes in the making: each a centre, half sizes, yaw, tilt and material."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []

    def box(
        self, local: tuple[float, float, float], half: tuple[float, float, float], material: int,
        origin: tuple[float, float] = (0.0, 0.0), yaw: float = 0.0, tilt: float = 0.0,
    ) -> None:  # fmt: skip
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
    things: Things, draws: Draws, look: str, origin: tuple[float, float], yaw: float, head: float, foot: float,
    recline: float,
) -> None:  # fmt: skip
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
            (wide * 0.92, 0.05, length), SHEET, origin, yaw, recline,
        )  # fmt: skip
    else:
        things.box((0, top + 0.035, head + 0.24), (min(wide * 0.72, 0.36), 0.045, 0.18), PILLOW, origin, yaw)
    if look == "ward":
        things.box((0, top - 0.05, foot + 0.04), (wide + 0.02, 0.16, 0.022), FRAME_, origin, yaw)
        for side in (-1, 1):
            if draws.chance(0.45):
                low, high = middle - 0.75 * half, middle + draws.uniform(-0.2, 0.3) * half
                rail = top + draws.uniform(0.12, 0.22)
                for y in (rail, rail - 0.10):
                    things.box((side * (wide + 0.04), y, (low + high) / 2), (0.012, 0.014, (high - low) / 2), METAL, origin, yaw)
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
                    (x + draws.uniform(-0.4, 0.4), draws.uniform(0.3, 1.7), z), (0.045, draws.uniform(0.18, 0.4), 0.045),
                    material, (0, 0), yaw + draws.uniform(-1.5, 1.5), draws.uniform(-1.2, 1.2),
                )  # fmt: skip
        else:
            z = wall + 0.35
            things.box((x, 0.16, z), (0.13, 0.16, 0.13), CHAIR, (0, 0), yaw)
            for _ in range(6):
                things.box(
                    (x + draws.uniform(-0.12, 0.12), draws.uniform(0.45, 1.0), z), (0.03, 0.3, 0.01), PLAIN,
                    (0, 0), draws.uniform(-3, 3), draws.uniform(-0.5, 0.5),
                )  # fmt: skip


def add_occluder(things: Things, draws: Draws, look: str) -> None:
    """Something between the camera and a standing person that hides a part of the legs or of one side."""
    z = draws.uniform(0.55, 0.95)
    if draws.chance(0.6):
        h = draws.uniform(0.14, 0.38)
        material = draws.choice((WOOD, PLAIN, CHAIR, FRAME_))
        things.box((draws.uniform(-0.5, 0.5), h, z), (draws.uniform(0.12, 0.4), h, 0.15), material, yaw=draws.uniform(-0.5, 0.5))
    else:
        x = draws.choice((-1, 1)) * draws.uniform(0.12, 0.35)
        things.box((x, 1.0, z), (0.025, 1.0, 0.025), METAL)


_DRAPED = np.array(
    [
        (JOINT[a], JOINT[b], r)
        for a, b, r in (
            ("r_hip", "r_knee", 0.085), ("l_hip", "l_knee", 0.085), ("r_knee", "r_ankle", 0.055), ("l_knee", "l_ankle", 0.055),
            ("r_ankle", "r_toe", 0.05), ("l_ankle", "l_toe", 0.05), ("r_hip", "l_hip", 0.12), ("pelvis", "lumbar", 0.125),
            ("lumbar", "thorax", 0.13),
        )
    ]
)  # fmt: skip


@kernel
def _drape(joints: Floats, bones: Floats, grid: Floats, frame: Floats, base: float, scale: float, heights: Floats) -> None:
    rows, columns = heights.shape
    cy, sy = math.cos(frame[2]), math.sin(frame[2])
    for r in range(rows):
        lz = grid[2] + (grid[3] - grid[2]) * r / (rows - 1)
        for c in range(columns):
            lx = grid[0] + (grid[1] - grid[0]) * c / (columns - 1)
            x, z = frame[0] + cy * lx + sy * lz, frame[1] - sy * lx + cy * lz
            best = base + 0.012
            for k in range(bones.shape[0]):
                a, b, radius = int(bones[k, 0]), int(bones[k, 1]), bones[k, 2] * scale + 0.015
                ax, az, bx, bz = joints[a, 0], joints[a, 2], joints[b, 0], joints[b, 2]
                ex, ez = bx - ax, bz - az
                t = ((x - ax) * ex + (z - az) * ez) / (ex * ex + ez * ez + 1e-9)
                t = min(max(t, 0.0), 1.0)
                y = joints[a, 1] + t * (joints[b, 1] - joints[a, 1])
                d = math.sqrt((x - ax - t * ex) ** 2 + (z - az - t * ez) ** 2)
                h = y + math.sqrt(radius * radius - d * d) if d < radius * 0.8 else y + 0.6 * radius - 1.1 * (d - radius * 0.8)
                best = max(best, h)
            heights[r, c] = best


@dataclass(frozen=True)
class Blanket:
    """Bedding over part of a lying person.

    Attributes:
        frame: (3,) x, z and yaw of the bed.
        grid: (4,) half widths and ends, see `mesh.add_cloth`.
        base: Height of the mattress, metres.
        scale: Body size, which scales what lies under it.
    """

    frame: Floats
    grid: Floats
    base: float
    scale: float


def add_blanket(mesh: Mesh, blanket: Blanket, joints: Floats, part: int) -> None:
    """Append the blanket as it lies over a body in a pose."""
    heights = np.empty((18, 15))
    _drape(joints, _DRAPED, blanket.grid, blanket.frame, blanket.base, blanket.scale, heights)
    add_cloth(mesh, heights, blanket.grid, blanket.frame, BLANKET, part)


__all__ = [
    "BED_HEIGHT",
    "Blanket",
    "Things",
    "add_bed",
    "add_blanket",
    "add_boxes",
    "add_chair",
    "add_furniture",
    "add_occluder",
    "draw_room",
    "furnish_palette",
]
