"""Places where an engine can run, one a file."""
