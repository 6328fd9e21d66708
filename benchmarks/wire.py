"""What the generator's own code costs, without a kernel: canned bytes fed to a reply; ns an event, us a request.

``python -m benchmarks.wire``
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, perf_counter_ns

from loadgen.dialect import dialect
from loadgen.generator.exchange import Exchange, judge, row
from loadgen.generator.progress import Second
from loadgen.generator.reply import Reply, marks
from loadgen.generator.target import Target, request
from profiles.prompt import prompt_text
from profiles.schedule import PlannedRequest
from reports.rows import row_line

CHAT = dialect("chat")
MARKS = marks(CHAT)
MOST_TOKENS = 264
HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: x\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
EVENT = (
    'data: {"id":"chatcmpl-00c0ffee00000001","object":"chat.completion.chunk","created":1700000000,'
    '"model":"a-model","choices":[%s]%s}\n\n'
)
CHOICE = '{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s}'


def chunk(choice: str, more: str = "") -> bytes:
    data = (EVENT % (choice, more)).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def reads(tokens: int) -> list[bytes]:
    """Return a stream as a server sends it, an event a read."""
    token = chunk(CHOICE % ('"content":" word"', "null"))
    end = (
        chunk(CHOICE % ("", '"length"'))
        + chunk("", f',"usage":{{"prompt_tokens":200,"completion_tokens":{tokens}}}')
        + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    )
    return [
        HEAD + chunk(CHOICE % ('"role":"assistant","content":""', "null")),
        *[token] * tokens,
        end,
    ]


def best_ns(work: Callable[[], object], times: int, rounds: int = 7) -> float:
    """Return the quickest round's ns a call."""
    best = float("inf")
    for _ in range(rounds):
        before_ns = perf_counter_ns()
        for _ in range(times):
            work()
        best = min(best, (perf_counter_ns() - before_ns) / times)
    return best


def feed(parts: list[bytes]) -> Reply:
    reply = Reply(CHAT, MARKS, asked=MOST_TOKENS)
    for part in parts:
        reply.feed(part, monotonic_ns())
    return reply


def main() -> None:
    parts, longer = reads(64), reads(MOST_TOKENS)
    short = best_ns(lambda: feed(parts), 20)
    event_ns = (best_ns(lambda: feed(longer), 20) - short) / 200
    print(f"an event, a read each          {event_ns:8.0f} ns")
    at_once = [parts[0], b"".join(parts[1:-1]), parts[-1]]
    request_ns = short - 64 * event_ns
    print(
        f"an event, 64 in one read       {(best_ns(lambda: feed(at_once), 20) - request_ns) / 64:8.0f} ns"
    )
    print(f"a reply beside its tokens      {request_ns / 1e3:8.1f} us")
    planned = PlannedRequest(
        due_ns=0,
        tenant="chat",
        ordinal=1,
        session="s",
        turn=0,
        think_ns=0,
        burst=False,
        prompt_tokens=500,
        output_tokens=64,
    )
    head = Target(url="http://127.0.0.1:8000", model="a-model").head(CHAT)

    def make() -> Exchange:
        prompt = prompt_text(salt="s", seed=1, tenant="chat", ordinal=1, tokens=500)
        body = CHAT.body(model="a-model", prompt=prompt, output_tokens=64)
        return Exchange(
            planned, 0, request(head, body, "s-chat-1"), Reply(CHAT, MARKS, asked=MOST_TOKENS)
        )

    print(f"a request of 500 tokens, ahead {best_ns(make, 200) / 1e3:8.1f} us")
    exchange = make()
    exchange.sent_ns = 1
    for at, part in enumerate(parts):
        exchange.reply.feed(part, 40_000_000 * at + 50_000_000)
    exchange.ending = judge(exchange.reply)
    second = Second(["chat"])

    def record() -> None:
        made = row(exchange, run=0, start_ns=0, warmup_ns=0)
        second.end(made)
        row_line(made)

    print(f"a row of 64 tokens             {best_ns(record, 200) / 1e3:8.1f} us")


if __name__ == "__main__":
    main()
