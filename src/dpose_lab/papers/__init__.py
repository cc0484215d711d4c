"""The papers' tables and figures, run again: one module a paper, one entry a table or figure."""
