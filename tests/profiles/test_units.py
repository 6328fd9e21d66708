from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.units import (
    BYTES_PER,
    NS_PER,
    PATTERNS,
    UnitError,
    duration_ns,
    format_bytes,
    format_duration,
    format_rate,
    format_share,
    money_usd,
    rate_hz,
    share,
    size_bytes,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("250ms", 250_000_000),
        ("1.5s", 1_500_000_000),
        ("2m", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("10us", 10_000),
        ("100ns", 100),
        ("0s", 0),
        ("3 s", 3_000_000_000),
        ("0.1s", 100_000_000),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("80GiB", 80 * 2**30), ("512MiB", 2**29), ("10GB", 10**10), ("1B", 1), ("0.1GiB", 107374182)],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert size_bytes(text) == bytes_


def test_shares_rates_and_money() -> None:
    assert [share(text) for text in ("5%", "0.1%", "100%", "250 %")] == [0.05, 0.001, 1.0, 2.5]
    assert [rate_hz(text) for text in ("12/s", "30/min", "90/h", "0.5 / s")] == [
        12,
        0.5,
        0.025,
        0.5,
    ]
    assert [money_usd(text) for text in ("$0.12", "$700", "$ 2.80")] == [0.12, 700, 2.8]


@pytest.mark.parametrize(
    ("read", "text", "said", "mend"),
    [
        (duration_ns, "10", "has no unit", "write 10s or 10ms"),
        (duration_ns, "-5s", "negative", "without a sign"),
        (duration_ns, "1.5", "has no unit", "write 1.5s or 1.5ms"),
        (duration_ns, "0.5ns", "finer than 1 ns", "whole nanoseconds"),
        (duration_ns, "999999h", "longer than 20 years", "shorter"),
        (duration_ns, "5 minutes", "is not a duration", "250ms"),
        (duration_ns, "1h30m", "is not a duration", "250ms"),
        (duration_ns, "nan", "is not a duration", "250ms"),
        (duration_ns, "infs", "is not a duration", "250ms"),
        (duration_ns, "1e3s", "is not a duration", "250ms"),
        (duration_ns, "٣s", "is not a duration", "250ms"),
        (duration_ns, "", "is not a duration", "250ms"),
        (size_bytes, "80", "has no unit", "write 80GiB"),
        (size_bytes, "80gb", "is not a size", "80GiB"),
        (size_bytes, "9999999TiB", "more than 1 EiB", "smaller"),
        (share, "0.05", "has no unit", "write 0.05%"),
        (share, "-1%", "negative", "without a sign"),
        (rate_hz, "12", "has no unit", "write 12/s"),
        (rate_hz, "12/day", "is not a rate", "12/s"),
        (money_usd, "12", "has no unit", "write $12"),
        (money_usd, "$-1", "is not a price", "$0.12"),
    ],
)
def test_faults_say_what_and_how_to_mend(read: object, text: str, said: str, mend: str) -> None:
    assert callable(read)
    with pytest.raises(UnitError) as caught:
        read(text)
    assert said in caught.value.fault
    assert mend in caught.value.mend


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (312e6, "312 ms"),
        (1.2e9, "1.20 s"),
        (250e3, "250 us"),
        (0, "0 s"),
        (1, "1.00 ns"),
        (999_600_000, "1.00 s"),
        (9_999_000_000, "10.0 s"),
        (75e9, "75.0 s"),
        (3600e9, "60.0 m"),
        (-5e6, "-5.00 ms"),
        (0.25, "0.250 ns"),
        (math.inf, "inf ns"),
    ],
)
def test_durations_are_shown_with_three_digits(ns: float, text: str) -> None:
    assert format_duration(ns) == text


def test_other_quantities_are_shown_with_three_digits() -> None:
    assert [format_bytes(n) for n in (0, 999, 1023, 76 * 2**30, 2**50)] == [
        *("0 B", "999 B", "0.999 KiB", "76.0 GiB", "1024 TiB"),
    ]
    assert [format_share(x) for x in (0, 0.05, 1, 0.99949, 0.000123, 12.5)] == [
        *("0 %", "5.00 %", "100 %", "99.9 %", "0.0123 %", "1250 %"),
    ]
    assert [format_rate(x) for x in (0, 12, 0.25, 1234.5)] == [
        *("0/s", "12.0/s", "0.250/s", "1234/s"),
    ]


@given(ns=st.integers(1, 10**17))
def test_a_shown_duration_reads_back_within_half_its_last_digit(ns: int) -> None:
    assert duration_ns(format_duration(ns)) == pytest.approx(ns, rel=0.0051)


@given(
    whole=st.integers(0, 10**6),
    unit=st.sampled_from(sorted(NS_PER)),
    space=st.sampled_from(["", " "]),
)
def test_whole_durations_are_exact(whole: int, unit: str, space: str) -> None:
    text = f"{whole}{space}{unit}"
    try:
        assert duration_ns(text) == whole * NS_PER[unit]
    except UnitError as error:
        assert "longer than" in error.fault  # noqa: PT017 - the only fault that such a text can have
        assert whole * NS_PER[unit] > 10**17
    assert re.search(PATTERNS["duration"], text)


@given(whole=st.integers(0, 10**4), unit=st.sampled_from(sorted(BYTES_PER)))
def test_whole_sizes_are_exact(whole: int, unit: str) -> None:
    assert size_bytes(f"{whole}{unit}") == whole * BYTES_PER[unit]
    assert re.search(PATTERNS["size"], f"{whole}{unit}")


@given(text=st.text(max_size=12))
def test_no_text_raises_anything_but_a_unit_error(text: str) -> None:
    for read in (duration_ns, size_bytes, share, rate_hz, money_usd):
        said = ""
        try:
            assert read(text) >= 0
        except UnitError as error:
            said = f"{error.fault}{error.mend}"
        assert said or text.isprintable()
