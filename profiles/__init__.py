"""The traffic, its units, and how any sheet is read. Pure: no network, no event loop, no process.

Read units, sheet, arrival (and arrivals/), lengths, prompt, tenant, profile, schedule, trace (and traces/).
"""
