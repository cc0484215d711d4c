"""Action recognition: what people do in a video, and attributes of the people in it."""
