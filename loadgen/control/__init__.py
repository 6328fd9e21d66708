"""The control plane: locust and gevent, never asyncio."""
