"""The control plane: locust and gevent, never asyncio.

Read channel (frames over a socket), crew (the generators), statistics (locust's rows), sitting (the conversation
with tailgate), options, usher (locust's events).
"""
