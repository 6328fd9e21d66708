"""API dialects, one a file."""
