"""The court: what was measured, what was promised, and the ruling. Pure: no network, no event loop, no process.

What there is: evidence (values from a run), columns (its rows as arrays), quantity (the shapes of metrics), metric and
metrics/ (every one of them), histogram, sample, measurement. What was promised: expression, sla. The ruling: confidence,
docket, finding, certainty, health, pause, slot, tokens, regression, steady, ruling, check. While a run goes on: abort.
"""
