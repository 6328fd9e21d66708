"""Engines where the GPUs are: started, proved ready, watched, and gone without a trace.

Read spec, engine (and engines/), command, place (and places/), supervisor, ready, memory, scrape, sampler, sim/.
"""
