"""The load: control (locust, gevent) and its generators (asyncio, uvloop, aiohttp).

Read frames (the words between them), control/, event, dialect (and dialects/), generator/, locustfile.
"""
