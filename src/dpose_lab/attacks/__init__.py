"""Attacks on released pictures: re-identification, linkage, attribute inference, reconstruction."""
