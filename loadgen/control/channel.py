"""Frames over a socket that gevent waits on: how control speaks with tailgate and with each generator."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gevent import socket
from gevent.lock import RLock

from loadgen.frames import Frame, Inbox, encode

READ_BYTES = 1 << 18


class ChannelError(Exception):
    """The other end is gone: what was to be said reaches nobody."""


class Channel:
    """Our end of a socket pair; any greenlet may send, one reads."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = RLock()

    @classmethod
    def adopt(cls, descriptor: int) -> Channel:
        """Take over the socket that whoever started this process left open. Raises OSError if it is none."""
        end = socket.socket(fileno=descriptor)
        end.set_inheritable(False)
        end.getpeername()
        return cls(end)

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Return our end and the one for a child, which knows no gevent and finds a blocking socket."""
        ours, theirs = socket.socketpair()
        os.set_blocking(theirs.fileno(), True)
        return cls(ours), theirs

    def send(self, frame: Frame) -> None:
        """Send one frame whole. Raises ChannelError if nobody is at the other end."""
        line = encode(frame)
        # a long line takes several writes, between which another greenlet may run
        with self._sending:
            try:
                self._end.sendall(line)
            except OSError as fault:
                raise ChannelError(str(fault)) from fault

    def frames(self) -> Iterator[Frame]:
        """Yield what the other end says until it is gone or ``close`` was called.

        Raises ValueError on a line that is no frame.
        """
        inbox = Inbox()
        while True:
            try:
                data = self._end.recv(READ_BYTES)
            except OSError:
                return
            if not data:
                return
            yield from inbox.feed(data)

    def close(self) -> None:
        """End the conversation: the other end reads EOF, and so does a greenlet of ours that reads."""
        self._end.close()
