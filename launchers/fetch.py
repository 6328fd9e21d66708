"""One HTTP exchange at a time, on the standard library: for probes and scrapes, never for the load."""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

LARGEST_BYTES = 8 << 20


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
        """Return the body's JSON, or None if it is none.

        Raises UnreachableError if nobody could read it.
        """
        try:
            return json.loads(self.body)
        except ValueError:
            return None
        except RecursionError:
            why = "its answer is nested too deeply to be read"
            raise UnreachableError("answer", why) from None

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
    """GET the URL, or POST ``body`` as JSON, over a connection of its own. No redirects.

    ``within_s`` bounds the connection to each of the host's addresses, and then the whole exchange, however slowly
    the answer drips. Raises UnreachableError if there is no whole answer of at most ``LARGEST_BYTES``.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=within_s)
    try:
        connection.connect()
    except (OSError, UnicodeError) as fault:
        connection.close()
        raise UnreachableError("connect", _words(fault, within_s)) from fault
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {"Accept": "*/*", "Connection": "close", **(headers or {})}
    data = None
    if body is not None:
        sent["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    # http.client bounds each read by itself, and a server that drips would never meet that bound
    with connection.sock as plain:
        connection.sock = cast(socket.socket, _Timed(plain, time.monotonic() + within_s))
        try:
            connection.request("GET" if data is None else "POST", path, data, sent)
            answer = connection.getresponse()
            page = answer.read(LARGEST_BYTES + 1)
        except (OSError, http.client.HTTPException) as fault:
            raise UnreachableError("answer", _words(fault, within_s)) from fault
    if len(page) > LARGEST_BYTES:
        raise UnreachableError("answer", f"its answer is larger than {LARGEST_BYTES >> 20} MiB")
    if answer.length:
        raise UnreachableError("answer", f"its answer was cut {answer.length} bytes before its end")
    return Reply(status=answer.status, body=page)


class _Timed(io.RawIOBase):
    """What http.client asks of a socket, with one deadline for all of it."""

    def __init__(self, plain: socket.socket, until_s: float) -> None:
        self._plain = plain
        self._until_s = until_s

    def sendall(self, data: bytes) -> None:
        self._wait()
        self._plain.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._wait()
        return self._plain.recv_into(buffer)

    def close(self) -> None:
        """Leave the socket to whoever opened it: http.client closes it before it has read the body."""

    def _wait(self) -> None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._plain.settimeout(left_s)


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
