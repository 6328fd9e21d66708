"""The door: commands, exit codes and the order of a run.

Read cli (what can be asked), brief (what a run was asked to do), run (the order of a run), session (one of its R runs, with
traffic and live), ledger (its manifest, with host), interruption, check (how a run is ruled on from disk), plan (a schedule
shown), launch (an engine by itself), terminal, exits.
"""
