"""Small videos for tests."""

from fractions import Fraction

import av
import numpy as np


def write(path, frames=9, rate=6, size=(48, 32), stamps=None, codec="libx264", sound=False, pix_fmt="yuv420p"):
    """A video of a bar that moves over grey."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = *size, pix_fmt
        tone = out.add_stream("aac", rate=44_100) if sound else None
        if stamps:
            stream.codec_context.time_base = stream.time_base = Fraction(1, rate)
            stream.codec_context.max_b_frames = 0
        for number in range(frames):
            pixels = np.full((size[1], size[0], 3), 90, np.uint8)
            pixels[:, number : number + 9] = 220
            picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if stamps:
                picture.pts, picture.time_base = stamps[number], Fraction(1, rate)
            for packet in stream.encode(picture):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
        if tone is not None:
            for start in range(0, 44_100, 1024):
                wave = (np.sin(np.arange(start, start + 1024) / 9) * 9000).astype(np.int16)[None]
                samples = av.AudioFrame.from_ndarray(wave, format="s16", layout="mono")
                samples.rate, samples.pts = 44_100, start
                for packet in tone.encode(samples):
                    out.mux(packet)
            for packet in tone.encode(None):
                out.mux(packet)
    return path
