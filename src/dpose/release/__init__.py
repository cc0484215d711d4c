"""Private pictures and clips: a public linear operator, exact noise, and a restoration that costs nothing."""
