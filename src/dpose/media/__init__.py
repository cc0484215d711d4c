"""Pictures in and out: safe decoding, atomic writing, drawing."""

from dpose.media.drawing import draw_skeleton, picture_grid
from dpose.media.images import decode_image, encode_image, image_size, read_image, write_image

__all__ = ["decode_image", "draw_skeleton", "encode_image", "image_size", "picture_grid", "read_image", "write_image"]
