"""Private statistics of what people do in video: numbers instead of pictures (`dpose count`)."""
