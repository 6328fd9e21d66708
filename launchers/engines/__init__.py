"""Engines that tailgate can start or attach to, one a file."""
