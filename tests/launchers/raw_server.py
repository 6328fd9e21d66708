"""A server for tests that answers every path with bytes of one's choice, as slowly as wished."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[str], bytes]


def page(body: bytes, *, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


@contextlib.contextmanager
def serving(answer: Answer, *, whole: int = 1 << 30, pause_s: float = 0.0) -> Iterator[str]:
    """Serve until the block ends; after ``whole`` bytes of an answer every other one waits ``pause_s``."""
    ended = threading.Event()

    def talk(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += client.recv(65536)
            said = answer(asked.split(b" ")[1].decode())
            client.sendall(said[:whole])
            for byte in said[whole:]:
                if ended.wait(pause_s):
                    return
                client.sendall(bytes([byte]))
            client.shutdown(socket.SHUT_WR)
            # what was posted is read, so that closing resets nothing that is still under way
            client.settimeout(1)
            while client.recv(65536):
                pass

    def accept(listening: socket.socket) -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = listening.accept()
                threading.Thread(target=talk, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        thread = threading.Thread(target=accept, args=(listening,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()
