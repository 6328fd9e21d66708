"""Arrival models, one a file."""
