"""The address of a server, as sheets and options may write it."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from profiles.sheet import RefusalError, shown

LONGEST_LETTERS = 2048
FORM = "write http://host:8000 or https://host/v1"
# what RFC 3986 lets no address hold, and the @, ? and # that are refused with words of their own
_ODD = re.compile(r"[^A-Za-z0-9._~:/\[\]!$&'()*+,;=%-]", re.ASCII)
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
_LONGEST_HOST = 253


def web_address(url: str) -> str:
    """Return the URL if it names a host over http or https: ASCII, and without user, password, query and fragment.

    Raises RefusalError (a ValueError) otherwise; what may be a secret is not repeated in it.

    >>> web_address("http://gpu1:8000/v1")
    'http://gpu1:8000/v1'
    """
    if "@" in url:
        raise RefusalError(
            "an address must hold no user and no password",
            "name the key with --api-key-env, and write the @ of a path as %40",
        )
    if "?" in url or "#" in url:
        raise RefusalError(
            "an address must hold no query and no fragment", "end it at its path, without ? and #"
        )
    if len(url) > LONGEST_LETTERS:
        raise RefusalError(
            f"an address of {len(url)} characters is longer than {LONGEST_LETTERS}", FORM
        )
    odd = _ODD.search(url)
    if odd:
        raise RefusalError(
            f"{shown(url)} holds {odd[0]!r}, which no address may",
            "remove it, or write it as % and two hex digits a byte; a host in its xn-- form",
        )
    if _BARE_PERCENT.search(url):
        raise RefusalError(f"{shown(url)} holds a bare %", "write it as %25")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as fault:
        raise RefusalError(f"{shown(url)} is no address: {str(fault).lower()}", FORM) from None
    if parts.scheme not in ("http", "https"):
        raise RefusalError(f"{shown(url)} is no address over http or https", FORM)
    if not host:
        raise RefusalError(f"{shown(url)} names no host", FORM)
    if port == 0 or parts.netloc.endswith(":"):
        raise RefusalError(f"{shown(url)} names no port", "write one from 1 to 65535, or none")
    if not _is_host(host, bracketed="[" in parts.netloc):
        raise RefusalError(f"{shown(host)} is no name of a host", FORM)
    return url


def _is_host(host: str, *, bracketed: bool) -> bool:
    if bracketed:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return False
        return True
    labels = host.removesuffix(".").split(".")
    return len(host) <= _LONGEST_HOST and all(_LABEL.fullmatch(label) for label in labels)
