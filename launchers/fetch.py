"""One HTTP exchange at a time, on the standard library: for probes and scrapes, never for the load."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

LARGEST_BYTES = 16 << 20


class UnreachableError(Exception):
    """Nobody answered: ``stage`` is "connect" when no connection could be made, else "answer"."""

    def __init__(self, stage: str, why: str) -> None:
        super().__init__(why)
        self.stage = stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A status and a body."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the body's JSON, or None if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def excerpt(self) -> str:
        """The body's first words, on one line."""
        words = " ".join(self.body.decode("utf-8", "replace").split())
        return words if len(words) <= 300 else f"{words[:300]}..."


def root(url: str) -> str:
    """Return a server's root from its root or its ``/v1``.

    >>> root("http://gpu1:8000/v1/"), root("https://host/llm")
    ('http://gpu1:8000', 'https://host/llm')
    """
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def fetch(
    url: str,
    *,
    body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    within_s: float,
) -> Reply:
    """GET the URL, or POST ``body`` as JSON; ``within_s`` bounds the connection and each read. No redirects.

    Raises UnreachableError if there is no answer.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=within_s)
    try:
        try:
            connection.connect()
        except (OSError, UnicodeError) as fault:
            raise UnreachableError("connect", _words(fault, within_s)) from fault
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {"Accept": "*/*", "Connection": "close", **(headers or {})}
        data = None
        if body is not None:
            sent["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            connection.request("GET" if data is None else "POST", path, data, sent)
            answer = connection.getresponse()
            return Reply(status=answer.status, body=answer.read(LARGEST_BYTES))
        except (OSError, http.client.HTTPException) as fault:
            raise UnreachableError("answer", _words(fault, within_s)) from fault
    finally:
        connection.close()


def _words(fault: Exception, within_s: float) -> str:
    if isinstance(fault, TimeoutError):
        return f"no answer within {within_s:.3g} s"
    if isinstance(fault, socket.gaierror):
        return "the name of its host is not known"
    if isinstance(fault, ssl.SSLError):
        return f"its TLS handshake failed ({fault.reason or fault})"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror.lower()
    return str(fault) or type(fault).__name__
