"""Tests of the embedded engine: the model on a clock of its own, the server over real sockets."""
