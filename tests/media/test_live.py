"""Live sources: a file that grows, and what may not be read."""

import threading
import time
from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
import pytest

from dpose.media.live import check_live, is_live, live_frames
from dpose.media.timed import TimedFrame
from refusals import refused


def written(path, parts, stopped):
    """An MPEG transport stream, part after part, behind what was there."""
    time.sleep(0.3)
    with path.open("ab") as file, av.open(file, "w", format="mpegts") as out:
        stream = out.add_stream("mpeg2video", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for part in range(parts):
            for _ in range(10):
                picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 20 * part, np.uint8), format="rgb24")
                for packet in stream.encode(picture):
                    out.mux(packet)
            time.sleep(0.1)
        for packet in stream.encode(None):
            out.mux(packet)
    time.sleep(0.5)
    stopped.set()


def test_a_file_that_grows(tmp_path):
    path, stopped, begun = tmp_path / "a.ts", threading.Event(), time.monotonic()
    path.write_bytes(b"G" * 188 * 50)  # what was filmed before is not read
    writer = threading.Thread(target=written, args=(path, 8, stopped))
    writer.start()
    found = list(
        live_frames(f"live:{path}", stopped.is_set, lambda: Fraction(time.monotonic() - begun).limit_denominator(1000))
    )
    writer.join()
    times = [frame.time for frame in found if frame.pixels is not None]
    assert len(times) >= 60
    # their own stamps, a tenth of a second apart, however quickly they were read
    assert {round(float(b - a), 3) for a, b in pairwise(times)} == {0.1}
    assert {frame.pixels.shape for frame in found if frame.pixels is not None} == {(48, 64, 3)}


def test_what_is_no_video_gives_ticks(tmp_path):
    path, left = tmp_path / "a.ts", iter([False] * 9)
    path.write_bytes(b"no video at all" * 1000)
    assert not any(frame.pixels for frame in live_frames(f"live:{path}", lambda: next(left, True), lambda: Fraction(1)))


def test_what_may_not_be_read(tmp_path):
    assert is_live("rtsp://camera/1")
    assert is_live("/dev/video0")
    assert not is_live("ward.mp4")
    with refused("file-missing"):
        check_live("live:no-such-file.ts")
    with refused("file-missing"):
        check_live("/dev/video77")
    check_live("rtsp://camera/1")


@pytest.mark.parametrize("address", ["rtsp://127.0.0.1:1/none"])
def test_a_camera_that_is_not_there_gives_ticks(address, monkeypatch):
    monkeypatch.setattr("dpose.media.live.WAIT", 0.01)
    left = iter([False] * 5)
    found = list(live_frames(address, lambda: next(left, True), lambda: Fraction(3)))
    assert found == [TimedFrame(Fraction(3), None)] * len(found) != []
