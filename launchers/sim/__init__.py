"""The embedded engine: an OpenAI-compatible server with simulated GPUs."""
