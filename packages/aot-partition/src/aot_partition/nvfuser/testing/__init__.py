"""Checks of fusions on machines without a GPU."""
