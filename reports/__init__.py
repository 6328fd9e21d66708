"""The paper: the run directory, its readers and its writers.

Read manifest and rundir (with fault, replacing); what a run appends: members, rows, samples; what is derived from it:
intervals, hlog, baseline. Then report, writer (and writers/), wording; the drawings: timeline, plot, figures.
"""
