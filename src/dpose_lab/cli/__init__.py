"""The commands that dpose_lab adds to `dpose`."""
