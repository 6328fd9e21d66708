"""Report writers, one a file."""
