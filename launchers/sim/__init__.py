"""The embedded engine: an OpenAI-compatible server with simulated GPUs, and a public test double.

The model is pure and knows no clock: read preset, memory, kv, scheduler, text. Around it: request (a body
read and refused as vLLM would), events (the bytes of a stream), fault, metrics (its two pages), truth. The
world is in alarm, wire, engine, stream and server; command is the door.
"""
