from __future__ import annotations

import asyncio
import json
import socket

from .client import HOST, Connection, ask, chat, connected, serving


async def test_a_reader_that_is_slow_gets_everything_in_order() -> None:
    async with serving(send_bytes=4096) as port:
        # small windows on both sides, so that the server has to keep most of it back
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, (HOST, port))
        body = json.dumps(chat(1000)).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
        await asyncio.get_running_loop().sock_sendall(raw, head + body)
        await asyncio.sleep(0.3)  # and now read, while the rest is still being made
        connection = Connection(*await asyncio.open_connection(sock=raw))
        reply = await connection.reply()
        assert (await connection.request("GET", "/health")).status == 200
        await connection.close()
    assert reply.ended
    assert len(reply.text.split()) == 1000
    assert reply.events[-1] == "[DONE]"


async def test_a_client_that_resets_harms_nobody_else() -> None:
    async with serving() as port:

        async def reset(after_s: float) -> None:
            async with connected(port) as connection:
                body = json.dumps(chat(5000)).encode()
                head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
                await connection.send(head % len(body) + body)
                await asyncio.sleep(after_s)
                connection.reset()

        async def whole() -> bool:
            reply = await ask(port, "POST", "/v1/chat/completions", chat(200))
            return reply.ended and len(reply.text.split()) == 200

        outcomes = await asyncio.gather(
            *(reset(0.005 * at) for at in range(20)), *(whole() for _ in range(20))
        )
        assert outcomes[20:] == [True] * 20
        for _ in range(200):
            page = (await ask(port, "GET", "/metrics")).body
            if b'finished_reason="abort"} 20.0' in page:
                break
            await asyncio.sleep(0.05)
        assert b'finished_reason="abort"} 20.0' in page
        assert b'vllm:num_requests_running{engine="0",model_name="tailgate-sim"} 0.0' in page
