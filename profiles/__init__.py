"""The traffic, its units, and how any sheet is read. Pure: no network, no event loop, no process.

Read units, tree and sheet; then process, arrival (and arrivals/), lengths, surge, tracerow and trace (and traces/); then
tenant, amount, profile, schedule and prompt; summary last. shelf is how every room finds its entries by name.
"""
