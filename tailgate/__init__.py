"""The door: commands, exit codes and the order of a run.

Read cli (what can be asked), run (how a run goes, with traffic, live, terminal and host), check (how a run is ruled on
from disk), plan (a schedule shown), launch (an engine by itself), exits.
"""
