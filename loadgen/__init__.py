"""The load: control (locust, gevent) and its generators (asyncio, uvloop, aiohttp).

Read frames (the words between them), control/, dialect (and dialects/), generator/, locustfile.
"""
