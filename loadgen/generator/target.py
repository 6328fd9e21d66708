"""The server under test, as requests name it: root, host, key, and the bytes of a request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version

from yarl import URL

from loadgen.dialect import Dialect

_NOT_A_TOKEN = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One server and the model asked for. ``url`` is its root; a trailing ``/v1`` is taken off.

    ``api_key`` goes into the Authorization header and nowhere else.
    """

    url: str
    model: str
    api_key: str | None = None

    @property
    def root(self) -> URL:
        """The root without a trailing slash or ``/v1``."""
        return URL(self.url.rstrip("/").removesuffix("/v1").rstrip("/"))

    def head(self, dialect: Dialect) -> bytes:
        """Return the head of every request of a dialect, up to the lines that ``request`` adds."""
        root = self.root
        host = root.raw_host or ""
        if ":" in host:
            host = f"[{host}]"
        if root.explicit_port is not None:
            host = f"{host}:{root.explicit_port}"
        lines = [
            f"POST {root.raw_path.rstrip('/')}{dialect.path} HTTP/1.1",
            f"Host: {host}",
            f"User-Agent: tailgate/{version('tailgate')}",
            "Accept: text/event-stream",
            "Accept-Encoding: identity",
            "Content-Type: application/json",
        ]
        if self.api_key is not None:
            lines.append(f"Authorization: Bearer {self.api_key}")
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def request(head: bytes, body: bytes, request_id: str) -> bytes:
    """Return a whole request; ``request_id`` is made fit for a header and lets the engine's log be searched."""
    token = _NOT_A_TOKEN.sub("-", request_id).encode()
    return b"%sX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s" % (head, token, len(body), body)
