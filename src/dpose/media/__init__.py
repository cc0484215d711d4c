"""Pictures in and out: safe decoding, atomic writing, drawing."""
