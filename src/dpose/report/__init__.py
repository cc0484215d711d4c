"""One self-contained page for a run: what was trained, what is guaranteed, how well it does; and one for an audit."""

from dpose.audits.page import write_audit
from dpose.audits.record import Attacked, AuditRecord, Blind, Rates, Share
from dpose.runs.report.page import write_report
from dpose.runs.report.pictures import Tile, pose_tiles
from dpose.runs.report.reading import read_run
from dpose.runs.report.record import RunRecord

__all__ = [
    "Attacked",
    "AuditRecord",
    "Blind",
    "Rates",
    "RunRecord",
    "Share",
    "Tile",
    "pose_tiles",
    "read_run",
    "write_audit",
    "write_report",
]
