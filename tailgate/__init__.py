"""The door: commands, exit codes and the order of a run.

Read cli (what can be asked), run (how a run goes), check (how a run is ruled on from disk), exits.
"""
