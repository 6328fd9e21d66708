"""Who listens on a port of this machine."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The process behind a listening socket; pid and name are None where the system does not say."""

    pid: int | None
    name: str | None

    def __str__(self) -> str:
        if self.pid is None:
            return "a process that this user may not look into"
        return f"pid {self.pid} ({self.name})" if self.name else f"pid {self.pid}"


def listeners(port: int) -> tuple[Listener, ...]:
    """Return every process that listens on the TCP port, over IPv4 or IPv6; several may share a socket."""
    found: dict[int | None, Listener] = {}
    for connection in psutil.net_connections(kind="tcp"):
        # an address is empty or (host, port)
        if connection.status != psutil.CONN_LISTEN or connection.laddr[1:] != (port,):
            continue
        found[connection.pid] = Listener(pid=connection.pid, name=_name(connection.pid))
    return tuple(found.values())


def _name(pid: int | None) -> str | None:
    if pid is None:
        return None
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return None
