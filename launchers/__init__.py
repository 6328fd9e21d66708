"""Engines where the GPUs are: started, proved ready, watched, and gone without a trace.

Read spec, address, secret, objection, engine (and engines/), command, place (and places/), listener, supervisor,
marked, ready, fetch, cause, scrape, choice, dcgm, memory, sampler, watch, launch, sim/.
"""
