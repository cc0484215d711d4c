"""Action recognition: what people do in a video, and what else a video tells of them."""
