from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from launchers.address import web_address
from profiles.sheet import RefusalError

GOOD = (
    "http://gpu1:8000",
    "https://api.example.com./v1/",
    "http://127.0.0.1:1",
    "http://[::1]:65535/v1",
    "HTTP://Host_A-1/a%20b/~c;d=1",
    "https://xn--mnchen-3ya.example",
)
BAD = {
    "http://[::1": "no address",
    "http://::1": "no address",
    "http://[::zz]": "no",
    "http://[v1.x]": "no",
    "http://a b/": "holds ' '",
    " http://a": "holds ' '",
    "http://a\n.b/": "holds '\\n'",
    "http://a/\x7f": "holds '\\x7f'",
    "http://a/\0": "holds '\\x00'",
    "http://127.0.0.1:21000/\u00fc": "holds '\u00fc'",
    "http://m\u00fcnchen.example": "holds '\u00fc'",
    "http://a\\b": "holds '\\\\'",
    "http://a/%": "bare %",
    "http://a/%zz": "bare %",
    "http://h:0": "names no port",
    "http://h:": "names no port",
    "http://h:65536": "no address",
    "http://h:x": "no address",
    "http://h:-1": "no address",
    "http://": "names no host",
    "http:///v1": "names no host",
    "http://:80": "names no host",
    "http://a..b": "no name of a host",
    "http://-a": "no name of a host",
    "http://" + "a" * 64: "no name of a host",
    "http://" + "a." * 127 + "b": "no name of a host",
    "http://h/" + "a" * 3000: "longer than",
    "here:8000": "http or https",
    "ftp://here": "http or https",
    "": "http or https",
    "http://u:hunter2@h": "no user",
    "http://@h": "no user",
    "http://h/?key=hunter2": "no query",
    "http://h/?": "no query",
    "http://h/#": "no query",
    "http://h \u00fc:x/#hunter2": "no query",
}


@pytest.mark.parametrize("url", GOOD)
def test_an_address_stays_as_it_is(url: str) -> None:
    assert web_address(url) == url


@pytest.mark.parametrize(("url", "said"), BAD.items())
def test_what_is_no_address_is_refused_with_a_mend(url: str, said: str) -> None:
    with pytest.raises(RefusalError) as refused:
        web_address(url)
    assert said in refused.value.fault
    assert refused.value.mend
    assert "hunter2" not in str(refused.value)
    assert len(str(refused.value)) < 400


@given(st.text(alphabet="htps:/[]%@?#.-a0 9:\n\u00fc\x00~_", max_size=20))
def test_what_is_taken_can_be_asked_by_every_client(end: str) -> None:
    try:
        url = web_address(f"http://{end}")
    except RefusalError:
        return
    parts = urlsplit(url)
    assert parts.hostname is not None
    parts.hostname.encode("idna")
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    connection.putrequest("GET", parts.path or "/")
    assert URL(url).host
