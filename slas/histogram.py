"""HDR histograms of microseconds: 1 us to one hour, three digits, and nothing lost at either end.

The bucket layout is HdrHistogram's (https://github.com/HdrHistogram/HdrHistogram): 2048 buckets of 1 us, then
1024 buckets for every further doubling, so that a bucket is never wider than a thousandth of its values.
"""

from __future__ import annotations

import binascii
import ctypes
import math
import zlib
from collections.abc import Iterable
from typing import Final, Self

import numpy as np
from hdrh.codec import (
    HdrCookieException,
    HdrHistogramSettingsException,
    HdrLengthException,
)
from hdrh.histogram import HdrHistogram
from numpy.typing import ArrayLike, NDArray

LOWEST_US: Final = 1
HIGHEST_US: Final = 3_600_000_000
DIGITS: Final = 3
_HALF_BITS: Final = 10
_HALF: Final = 1 << _HALF_BITS
_DOUBLINGS: Final = 22
BUCKETS: Final = (_DOUBLINGS + 1) * _HALF
_WORD_BYTES: Final = 8
# Where values beyond the range go on the wire: the one bucket that no value within the range can reach.
_OVER_BUCKET: Final = BUCKETS - 1


class HistogramError(ValueError):
    """A text is no HDR histogram of ours; says why."""


def bucket_of_us(values_us: ArrayLike) -> NDArray[np.int64]:
    """Return the bucket index of each value in microseconds; values must lie within 0 .. 3.6e9.

    >>> bucket_of_us([0, 1, 2047, 2048, 2049, 2050]).tolist()
    [0, 1, 2047, 2048, 2048, 2049]
    """
    values = np.asarray(values_us, dtype=np.int64)
    # frexp is exact here: every value is far below 2**53
    exponent = np.frexp((values | (2 * _HALF - 1)).astype(np.float64))[1].astype(np.int64)
    doubling = exponent - (_HALF_BITS + 1)
    index: NDArray[np.int64] = (doubling << _HALF_BITS) + (values >> doubling)
    return index


def lower_us(index: int) -> int:
    """Return the least value that bucket ``index`` holds, in microseconds.

    >>> lower_us(2048)
    2048
    """
    doubling = max((index >> _HALF_BITS) - 1, 0)
    return (index - (doubling << _HALF_BITS)) << doubling


def upper_us(index: int) -> int:
    """Return the greatest value that bucket ``index`` holds, in microseconds.

    >>> upper_us(2048)
    2049
    """
    doubling = max((index >> _HALF_BITS) - 1, 0)
    return lower_us(index) + (1 << doubling) - 1


class Histogram:
    """Counts of integer microseconds; what lies outside 0 .. 3.6e9 us is counted in ``over`` and ``under``.

    ``total`` includes both. Percentiles come from the buckets (their upper edge), so that they are the same after
    ``encode``, ``decode`` and ``add`` in any order.
    """

    __slots__ = ("counts", "over", "under")

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(BUCKETS, dtype=np.int64)
        self.over = 0
        self.under = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return (
            self.over == other.over
            and self.under == other.under
            and bool(np.array_equal(self.counts, other.counts))
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Histogram(total={self.total}, over={self.over}, under={self.under})"

    @property
    def total(self) -> int:
        """Everything recorded, within the range or not."""
        return int(self.counts.sum()) + self.over + self.under

    def record_us(self, value_us: int, count: int = 1) -> None:
        """Count a value ``count`` times. Raises ValueError on a negative count or a fraction."""
        if count < 0 or value_us != int(value_us):
            raise ValueError(f"cannot record {value_us!r} us {count!r} times")
        if value_us > HIGHEST_US:
            self.over += count
        elif value_us < 0:
            self.under += count
        else:
            doubling = max(int(value_us).bit_length() - (_HALF_BITS + 1), 0)
            self.counts[(doubling << _HALF_BITS) + (int(value_us) >> doubling)] += count

    def record_many_us(self, values_us: ArrayLike) -> None:
        """Count every value of an integer array, in microseconds."""
        values = np.asarray(values_us)
        if values.size == 0:
            return
        if values.dtype.kind not in "iu":
            raise ValueError(f"histograms count integer microseconds, not {values.dtype}")
        over = values > HIGHEST_US
        under = values < 0
        self.over += int(over.sum())
        self.under += int(under.sum())
        within = values[~(over | under)] if over.any() or under.any() else values
        self.counts += np.bincount(bucket_of_us(within), minlength=BUCKETS)

    def add(self, other: Histogram) -> None:
        """Count everything that ``other`` counted."""
        self.counts += other.counts
        self.over += other.over
        self.under += other.under

    def sparse(self) -> tuple[tuple[int, int], ...]:
        """Return (bucket index, count) of every bucket in use; ``over`` is the last bucket, ``under`` the first."""
        counts = self._folded()
        used = np.flatnonzero(counts)
        return tuple(zip(used.tolist(), counts[used].tolist(), strict=True))

    def add_sparse(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Count (bucket index, count) pairs. Raises ValueError on an index or a count that cannot be."""
        for index, count in pairs:
            if not 0 <= index < BUCKETS or count < 0:
                raise ValueError(f"no such bucket count: {index!r}, {count!r}")
            if index == _OVER_BUCKET:
                self.over += count
            else:
                self.counts[index] += count

    def percentile_us(self, share: float, above: int = 0) -> int | None:
        """Return the value at rank ceil(share x n), in microseconds, as its bucket's upper edge.

        ``above`` adds that many values over every limit to n (requests that failed). None if nothing was
        recorded or if the rank falls on a value over the range: it has no value that could be shown.
        Raises ValueError unless 0 < share <= 1.
        """
        if not 0 < share <= 1:
            raise ValueError(f"a percentile's share is in (0, 1], not {share!r}")
        n = self.total + above
        if n == 0:
            return None
        rank = rank_of(share, n) - self.under
        if rank <= 0:
            return 0
        cumulated = np.cumsum(self.counts)
        index = int(np.searchsorted(cumulated, rank, side="left"))
        return None if index == BUCKETS else upper_us(index)

    def encode(self) -> str:
        """Return HdrHistogram V2 (zlib, base64), as .hlog lines carry it.

        ``over`` goes to the last bucket, which no value within the range reaches, so ``decode`` restores it;
        ``under`` goes to the first.
        """
        wire = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS, _WORD_BYTES)
        counts = self._folded()
        used = np.flatnonzero(counts)
        if used.size:
            raw = counts.astype(np.uint64)
            ctypes.memmove(wire.counts, raw.ctypes.data, raw.nbytes)
            wire.set_internal_tacking_values(int(used[0]), int(used[-1]), int(counts.sum()))
        encoded: bytes = wire.encode()
        return encoded.decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the histogram that V2 text holds, from us or any other HdrHistogram with our settings.

        Raises HistogramError on a damaged text and on other settings (1 us, three digits).
        """
        try:
            wire = HdrHistogram.decode(text.encode("ascii"))
        except (
            HdrCookieException,
            HdrHistogramSettingsException,
            HdrLengthException,
            binascii.Error,
            zlib.error,
            ValueError,
            IndexError,
            OverflowError,
            TypeError,
            MemoryError,
            AssertionError,
        ) as fault:
            raise HistogramError(
                f"not an HdrHistogram V2 text: {str(fault) or type(fault).__name__}"
            ) from fault
        if (wire.lowest_trackable_value, wire.significant_figures) != (LOWEST_US, DIGITS):
            raise HistogramError(
                f"histogram of {wire.significant_figures} digits from {wire.lowest_trackable_value};"
                f" ours have {DIGITS} digits from {LOWEST_US} us"
            )
        counts = np.ctypeslib.as_array(wire.counts).astype(np.int64)
        histogram = cls()
        shared = min(counts.size, _OVER_BUCKET)
        histogram.counts[:shared] = counts[:shared]
        histogram.over = int(counts[shared:].sum())
        return histogram

    def _folded(self) -> NDArray[np.int64]:
        counts = self.counts.copy()
        counts[_OVER_BUCKET] += self.over
        counts[0] += self.under
        return counts


def rank_of(share: float, n: int) -> int:
    """Return ceil(share x n), at least 1, unharmed by binary fractions (0.07 x 100 is 7, not 8).

    >>> [rank_of(0.99, n) for n in (60, 100, 101)]
    [60, 99, 100]
    """
    product = share * n
    nearest = round(product)
    if abs(product - nearest) <= 1e-9 * max(1.0, product):
        return max(1, nearest)
    return max(1, math.ceil(product))
