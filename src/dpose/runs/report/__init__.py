"""The page of a run: what was trained, what is guaranteed, how well it does."""
