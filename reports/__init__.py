"""The paper: the run directory, its readers and its writers.

Read manifest and rundir (with fault, replacing, shape); what a run appends: members, rows, samples; what is derived from it:
intervals, hlog, summary, baseline. Then report, writer (and writers/), wording; the drawings: timeline, plot, figures.
"""
