"""Recipes: what the command line runs, put together from the lower rooms."""
