from __future__ import annotations

import pytest

from launchers.choice import Order
from launchers.fetch import LARGEST_BYTES, Reply, UnreachableError, fetch
from launchers.memory import Dcgm
from launchers.ready import Server, prove_attached
from tests.launchers.raw_server import Answer, page, serving

DEEP = b"[" * 100_000
TOO_DEEP = "its answer is nested too deeply to be read"


def refused(url: str, within_s: float = 30.0) -> str:
    with pytest.raises(UnreachableError) as fault:
        fetch(url, within_s=within_s)
    assert fault.value.stage == "answer"
    return str(fault.value)


def test_an_answer_is_a_status_and_a_body() -> None:
    with serving(lambda path: page(path.encode(), status="404 Not Found")) as url:
        assert fetch(f"{url}/v1/x", within_s=30) == Reply(status=404, body=b"/v1/x")


@pytest.mark.parametrize("whole", [0, 45], ids=["head", "body"])
def test_a_server_that_drips_meets_one_deadline(whole: int) -> None:
    # ten seconds of answer, each byte of it well within the bound
    said = page(b" " * 1000)
    with serving(lambda _: said, whole=whole, pause_s=0.01) as url:
        assert refused(url, within_s=0.3) == "no answer within 0.3 s"


def test_a_server_that_goes_on_and_on_meets_it_too() -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\n"
    with serving(lambda _: head * 400 + page(b""), whole=0, pause_s=0.001) as url:
        assert refused(url, within_s=0.3) == "no answer within 0.3 s"


def test_an_answer_too_large_is_refused() -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (LARGEST_BYTES + 2)
    with serving(lambda _: endless) as url:
        assert refused(url) == "its answer is larger than 8 MiB"
    with serving(lambda _: page(b"x" * LARGEST_BYTES)) as url:
        assert len(fetch(url, within_s=30).body) == LARGEST_BYTES


def test_an_answer_that_was_cut_is_none() -> None:
    with serving(lambda _: page(b"x" * 100)[:-10]) as url:
        assert refused(url) == "its answer was cut 10 bytes before its end"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0\0\x12\4\0\0",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    ],
)
def test_what_is_no_answer_is_told_in_words(said: bytes) -> None:
    with serving(lambda _: said) as url:
        assert refused(url)


def test_json_is_read_or_is_none_or_is_refused() -> None:
    assert Reply(status=200, body=b'{"a": 1}').json() == {"a": 1}
    assert Reply(status=200, body=b"<html>\xff").json() is None
    with pytest.raises(UnreachableError, match=TOO_DEEP):
        Reply(status=200, body=DEEP).json()


def proved(answer: Answer) -> tuple[str, ...]:
    with serving(answer) as url:
        server = Server(url=url, model="m", health=True, key_env=None, headers={})
        return prove_attached(server, within_ns=0, on_wait=None).warnings


@pytest.mark.parametrize(
    ("deep", "warned"),
    [
        ("/v1/models", f"/v1/models: {TOO_DEEP}"),
        ("completions", f"a request for one token to /v1/chat/completions: {TOO_DEEP}"),
        ("/version", f"/version: {TOO_DEEP}"),
        ("/tailgate/sim", f"/tailgate/sim: {TOO_DEEP}"),
    ],
)
def test_json_nested_too_deeply_is_a_warning_of_a_server_that_runs(deep: str, warned: str) -> None:
    def answer(path: str) -> bytes:
        if path.endswith(deep):
            return page(DEEP)
        if path == "/v1/models":
            return page(b'{"data": [{"id": "m"}]}')
        return page(b'{"choices": [{}]}')

    assert proved(answer) == (warned,)


def test_a_page_of_gpus_that_drips_is_none() -> None:
    said = page(b'DCGM_FI_DEV_FB_USED{gpu="0"} 1\n')
    with serving(lambda _: said, whole=0, pause_s=0.05) as url:
        source = Dcgm(Order(node="n", url=url, within_s=0.3))
        with pytest.raises(UnreachableError, match=r"no answer within 0\.3 s"):
            source.sweep()
