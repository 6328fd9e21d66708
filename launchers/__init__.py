"""Engines where the GPUs are: started, proved ready, watched, and gone without a trace.

Read spec (and objection), engine (and engines/), command, place (and places/, listener), supervisor, marked, ready
(and fetch, cause), memory, scrape, sampler, watch, launch; sim/ is an engine of our own.
"""
