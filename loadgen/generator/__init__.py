"""The generator: asyncio and uvloop, never locust or gevent."""
