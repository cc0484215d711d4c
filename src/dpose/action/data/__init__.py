"""Videos to learn from: their readers, and the units made of them."""

from dpose.action.data.spec import SOURCES, ActionSpec, open_videos
from dpose.action.data.units import Video, VideoSet, VideoUnits

__all__ = ["SOURCES", "ActionSpec", "Video", "VideoSet", "VideoUnits", "open_videos"]
