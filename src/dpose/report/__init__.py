"""One self-contained page for a run: what was trained, what is guaranteed, how well it does."""

from dpose.report.page import write_report
from dpose.report.pictures import Tile, pose_tiles
from dpose.report.reading import read_run
from dpose.report.record import RunRecord

__all__ = ["RunRecord", "Tile", "pose_tiles", "read_run", "write_report"]
