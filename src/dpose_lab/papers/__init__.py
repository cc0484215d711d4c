"""Reproduction of the papers' tables and figures: a module per paper, an entry per table or figure."""
