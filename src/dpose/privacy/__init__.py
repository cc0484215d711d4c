"""Noise, sampling, accounting, the ledger and the statement. Knows no image and no model."""
