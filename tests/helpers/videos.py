"""What tests say of videos that they write themselves."""

from fractions import Fraction
from pathlib import Path

from dpose.media.video import VideoInfo


def info_for(rate, base, size=(48, 64), length=None):
    """A colour video of (H, W), without sound."""
    return VideoInfo(Path("none"), size[1], size[0], 0, Fraction(rate), base, False, False, True, length=length)
