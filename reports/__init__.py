"""The paper: the run directory, its readers and its writers.

Read rundir, manifest, rows, hlog, baseline, writer (and writers/).
"""
