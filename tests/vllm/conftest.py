"""The tiny model's maker runs in vLLM's environment; here it cannot be imported, nor searched for doctests."""

collect_ignore = ["tiny_model.py"]
