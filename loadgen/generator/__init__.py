"""The generator: asyncio and uvloop, never locust or gevent.

Read exchange (one request from due to done), then the wire from the bottom: sse, http1, reply (all without a
socket), wire, connections. Then clock, pacer, lookahead and turns (when to send what), player (one job), progress,
health and recorder (what it leaves), channel, service and process (its life).
"""
