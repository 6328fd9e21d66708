"""Quantities as people write them (``250ms``, ``80GiB``, ``5%``, ``12/s``, ``$0.12``) and as tailgate counts them."""

from __future__ import annotations

import math
import re
from decimal import Decimal

NS_PER = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
BYTES_PER = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
SECONDS_PER = {"s": 1, "min": 60, "h": 3600}

_NUMBER = r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)"
_DURATION = rf"{_NUMBER} ?(?P<unit>{'|'.join(NS_PER)})"
_SIZE = rf"{_NUMBER} ?(?P<unit>{'|'.join(BYTES_PER)})"
_SHARE = rf"{_NUMBER} ?%"
_RATE = rf"{_NUMBER} ?/ ?(?P<unit>{'|'.join(SECONDS_PER)})"
_MONEY = rf"\$ ?{_NUMBER}"

# for JSON Schema, whose patterns know no named groups
PATTERNS = {
    kind: "^" + re.sub(r"\?P<\w+>", "", pattern) + "$"
    for kind, pattern in (
        ("duration", _DURATION),
        ("size", _SIZE),
        ("share", _SHARE),
        ("rate", _RATE),
        ("money", _MONEY),
    )
}

# int64 nanoseconds hold 292 years; a sheet that asks for a tenth of that is a slip of the pen
LONGEST_NS = 20 * 366 * 24 * NS_PER["h"]
LARGEST_BYTES = 2**60


class UnitError(ValueError):
    """A quantity that cannot be read: ``fault`` says what is wrong, ``mend`` what to write instead."""

    def __init__(self, fault: str, mend: str) -> None:
        super().__init__(f"{fault}; {mend}")
        self.fault = fault
        self.mend = mend


def _read(text: str, pattern: str, what: str, examples: str, bare: str) -> re.Match[str]:
    match = re.fullmatch(pattern, text, flags=re.ASCII)
    if match is not None:
        return match
    if len(text) > 80:
        text = text[:80] + "..."
    if re.fullmatch(r"-.*[0-9].*", text):
        raise UnitError(f"negative {what} {text!r}", f"write it without a sign, such as {examples}")
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise UnitError(f"{what} {text!r} has no unit", f"write {bare.format(text)}")
    raise UnitError(f"{text!r} is not a {what}", f"write one such as {examples}")


def duration_ns(text: str) -> int:
    """Return the nanoseconds in a duration (ns, us, ms, s, m or h).

    Raises UnitError when the unit is missing or unknown, when it is finer than 1 ns or longer than 20 years.

    >>> duration_ns("250ms"), duration_ns("1.5s"), duration_ns("2m")
    (250000000, 1500000000, 120000000000)
    """
    match = _read(text, _DURATION, "duration", "250ms, 1.5s or 2m", "{0}s or {0}ms")
    ns = Decimal(match["number"]) * NS_PER[match["unit"]]
    if ns != int(ns):
        raise UnitError(f"{text!r} is finer than 1 ns", "write whole nanoseconds")
    if ns > LONGEST_NS:
        raise UnitError(f"{text!r} is longer than 20 years", "write a shorter duration")
    return int(ns)


def size_bytes(text: str) -> int:
    """Return the bytes in a size (B, kB, MB, GB, TB or KiB, MiB, GiB, TiB), rounded to a whole byte.

    Raises UnitError when the unit is missing or unknown, or above 1 EiB.

    >>> size_bytes("80GiB"), size_bytes("10GB")
    (85899345920, 10000000000)
    """
    match = _read(text, _SIZE, "size", "80GiB or 512MiB", "{0}GiB or {0}MiB")
    size = int((Decimal(match["number"]) * BYTES_PER[match["unit"]]).to_integral_value())
    if size > LARGEST_BYTES:
        raise UnitError(f"{text!r} is more than 1 EiB", "write a smaller size")
    return size


def share(text: str) -> float:
    """Return a percentage as a share of 1; it may be above 1.

    Raises UnitError when the percent sign is missing.

    >>> share("5%"), share("0.1%")
    (0.05, 0.001)
    """
    match = _read(text, _SHARE, "share", "5% or 0.1%", "{0}%")
    return float(Decimal(match["number"]) / 100)


def rate_hz(text: str) -> float:
    """Return a rate (/s, /min or /h) per second.

    Raises UnitError when the unit is missing or unknown.

    >>> rate_hz("12/s"), rate_hz("30/min")
    (12.0, 0.5)
    """
    match = _read(text, _RATE, "rate", "12/s, 30/min or 100/h", "{0}/s or {0}/min")
    return float(Decimal(match["number"]) / SECONDS_PER[match["unit"]])


def money_usd(text: str) -> float:
    """Return an amount of US dollars.

    Raises UnitError when the dollar sign is missing.

    >>> money_usd("$0.12")
    0.12
    """
    return float(_read(text, _MONEY, "price", "$0.12", "${0}")["number"])


def _three_digits(number: float) -> str:
    """Return a number with three significant digits and no exponent: 1.2 -> "1.20", 1234 -> "1234"."""
    if number == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(number))))
    text = f"{number:.{decimals}f}"
    # rounding may have added a digit before the point: 9.999 -> "10.00"
    if decimals and sum(letter.isdigit() for letter in text.lstrip("-0.")) > 3:
        text = f"{number:.{decimals - 1}f}"
    return text


def _scaled(number: float, steps: tuple[tuple[float, str], ...]) -> str:
    if not math.isfinite(number):
        return f"{number} {steps[0][1]}"
    for size, unit in steps[:-1]:
        text = _three_digits(number / size)
        if abs(float(text)) < 1000:
            return f"{text} {unit}"
    size, unit = steps[-1]
    return f"{_three_digits(number / size)} {unit}"


def format_duration(ns: float) -> str:
    """Return nanoseconds in the unit that a person would choose, with three significant digits.

    >>> format_duration(312e6), format_duration(1.2e9), format_duration(250_000), format_duration(0)
    ('312 ms', '1.20 s', '250 us', '0 s')
    """
    if ns == 0:
        return "0 s"
    return _scaled(ns, tuple((size, unit) for unit, size in NS_PER.items()))


def format_bytes(n: float) -> str:
    """Return bytes in binary units, with three significant digits.

    >>> format_bytes(76 * 2**30), format_bytes(0)
    ('76.0 GiB', '0 B')
    """
    if math.isfinite(n) and abs(n) < 1000:
        return f"{n:.0f} B"
    return _scaled(n, tuple((BYTES_PER[unit], unit) for unit in ("B", "KiB", "MiB", "GiB", "TiB")))


def format_share(x: float) -> str:
    """Return a share of 1 as a percentage, with three significant digits.

    >>> format_share(0.05), format_share(0.000123), format_share(1)
    ('5.00 %', '0.0123 %', '100 %')
    """
    return f"{x * 100} %" if not math.isfinite(x) else f"{_three_digits(x * 100)} %"


def format_rate(hz: float) -> str:
    """Return a rate per second, with three significant digits.

    >>> format_rate(12), format_rate(0.25)
    ('12.0/s', '0.250/s')
    """
    return f"{hz}/s" if not math.isfinite(hz) else f"{_three_digits(hz)}/s"
