"""Published release algorithms as printed, for comparison: they do not guarantee what they claim."""
