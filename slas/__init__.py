"""The court: what was measured, what was promised, and the ruling. Pure: no network, no event loop, no process.

Read evidence, metric, histogram, measurement, expression, sla, health, ruling, regression, check.
"""
