"""Charts as inline SVG: scales, axes and lines, drawn on the server so that a page needs no script.

Colours and fonts are classes, which the page's style sheet fills in for light, dark and paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Values from ``low`` to ``high`` onto pixels from ``start`` to ``end``, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value, held within the scale."""
        low, high, value = (
            (math.log(self.low), math.log(self.high), math.log(max(value, self.low)))
            if self.log
            else (self.low, self.high, value)
        )
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self.start + share * (self.end - self.start)


def linear_ticks(high: float, most: int = 4) -> list[float]:
    """Return round numbers from 0 to at least ``high``, in steps of 1, 2 or 5 times a power of ten.

    >>> linear_ticks(37)
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    step = _round_step(max(high, 1e-9) / most)
    return [number * step for number in range(math.ceil(max(high, 1e-9) / step - 1e-9) + 1)]


def time_ticks(end_s: float, most: int = 8) -> list[float]:
    """Return round times within 0 .. end, in steps that a clock has.

    >>> time_ticks(75)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]
    """
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
    step = next((step for step in steps if end_s / step <= most), steps[-1])
    return [float(at) for at in range(0, math.floor(end_s) + 1, step)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten within low .. high; powers alone over many decades.

    >>> log_ticks(0.02, 0.6)
    [0.02, 0.05, 0.1, 0.2, 0.5]
    """
    decades = math.log10(high / low)
    factors = (1, 2, 5) if decades <= 2.2 else (1, 3) if decades <= 3.2 else (1,)
    ticks = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for factor in factors:
            tick = float(f"{factor}e{power}")
            if low * 0.999 <= tick <= high * 1.001:
                ticks.append(tick)
    return ticks


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


def tick_seconds(value_s: float) -> str:
    """Return a duration as short as an axis wants it.

    >>> [tick_seconds(s) for s in (0, 0.0005, 0.2, 1.5, 90, 7200)]
    ['0', '500 us', '200 ms', '1.5 s', '1.5 min', '2 h']
    """
    if value_s == 0:
        return "0"
    for size, unit in ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value_s >= size * 0.9995:
            return f"{value_s / size:.3g} {unit}"
    return f"{value_s * NS_PER_S:.3g} ns"


def tick_clock(at_s: float, end_s: float) -> str:
    """Return a time on an axis that ends at ``end_s``: seconds on a short one, hours and minutes on a long one.

    >>> tick_clock(70, 75), tick_clock(90, 600), tick_clock(5400, 7200)
    ('70 s', '1:30', '1:30:00')
    """
    seconds = round(at_s)
    if end_s <= 180:
        return f"{seconds} s"
    if end_s < 3600:
        return f"{seconds // 60}:{seconds % 60:02d}"
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def text_width(words: str) -> float:
    """Return about how wide words are at 12 units in a sans-serif font: too wide rather than too narrow."""
    return sum(
        3.6
        if letter in "iljtfr.,:;|'!() "
        else 10.5
        if letter in "mwMW%"
        else 8.8
        if letter.isupper()
        else 7.2
        for letter in words
    )


def tick_number(value: float) -> str:
    """Return a number as short as an axis wants it.

    >>> [tick_number(n) for n in (0, 0.5, 40, 12000)]
    ['0', '0.5', '40', '12k']
    """
    return f"{value / 1000:.3g}k" if value >= 10_000 else f"{value:.3g}"


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places moved apart so that they stand ``gap`` from each other, in their order, from low to high.

    Where there is no room for all of them they stand closer, evenly.

    >>> spread([10.0, 12.0, 50.0], 10.0, 0.0, 60.0)
    [6.0, 16.0, 50.0]
    """
    if not places:
        return []
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    ranked = sorted(range(len(places)), key=places.__getitem__)
    # blocks of neighbours that touch: (sum of the places of their first, as if it stood alone; how many)
    blocks: list[tuple[float, int]] = []
    for index in ranked:
        total, size = places[index], 1
        while blocks and total / size < blocks[-1][0] / blocks[-1][1] + gap * blocks[-1][1]:
            before, many = blocks.pop()
            total, size = before + total - size * gap * many, size + many
        blocks.append((total, size))
    moved = [total / size + gap * step for total, size in blocks for step in range(size)]
    for step in range(len(moved)):
        moved[step] = max(moved[step], low + gap * step)
    for step in range(len(moved)):
        moved[-1 - step] = min(moved[-1 - step], high - gap * step)
    found = list(places)
    for index, place in zip(ranked, moved, strict=True):
        found[index] = place
    return found


@dataclass(slots=True)
class Drawing:
    """An SVG image under construction: ``width`` x ``height`` user units, scaled to its place on the page."""

    width: float
    height: float
    label: str
    _parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """Draw a straight line."""
        self._parts.append(
            f'<line class="{escape(style)}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
        )

    def rect(
        self, x: float, y: float, width: float, height: float, style: str, title: str | None = None
    ) -> None:
        """Draw a filled box; ``title`` shows when a pointer rests on it."""
        box = (
            f'<rect class="{escape(style)}" x="{x:.1f}" y="{y:.1f}"'
            f' width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
        )
        self._parts.append(
            f"{box}/>" if title is None else f"{box}><title>{escape(title)}</title></rect>"
        )

    def dot(self, x: float, y: float, style: str, title: str) -> None:
        """Draw a point; ``title`` shows when a pointer rests on it."""
        self._parts.append(
            f'<circle class="{escape(style)}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(title)}</title></circle>"
        )

    def text(self, x: float, y: float, words: str, style: str, anchor: str = "start") -> None:
        """Write words; ``anchor`` is start, middle or end."""
        self._parts.append(
            f'<text class="{escape(style)}" x="{x:.1f}" y="{y:.1f}"'
            f' text-anchor="{escape(anchor)}">{escape(words)}</text>'
        )

    def polyline(
        self, points: Iterable[tuple[float, float]], style: str, title: str | None = None
    ) -> None:
        """Draw a line through points; a point with a NaN lifts the pen, and a lone point becomes a dash."""
        pieces: list[list[str]] = [[]]
        for x, y in points:
            if math.isnan(x) or math.isnan(y):
                pieces.append([])
            else:
                pieces[-1].append(f"{x:.1f} {y:.1f}")
        path = "".join(
            f"M{piece[0]}" + (f"L{' '.join(piece[1:])}" if len(piece) > 1 else "h1")
            for piece in pieces
            if piece
        )
        if path:
            self._path(path, style, title)

    def area(
        self,
        xs: Sequence[float],
        tops: Sequence[float],
        bottoms: Sequence[float],
        style: str,
        title: str | None = None,
    ) -> None:
        """Fill between two lines."""
        there = " ".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, tops, strict=True))
        back = " ".join(
            f"{x:.1f} {y:.1f}" for x, y in zip(reversed(xs), reversed(bottoms), strict=True)
        )
        self._path(f"M{there} {back}Z", style, title)

    def _path(self, path: str, style: str, title: str | None) -> None:
        opened = f'<path class="{escape(style)}" d="{path}"'
        self._parts.append(
            f"{opened}/>" if title is None else f"{opened}><title>{escape(title)}</title></path>"
        )

    def y_axis(
        self, scale: Scale, ticks: Iterable[float], right: float, name: Callable[[float], str]
    ) -> None:
        """Draw horizontal grid lines with their values at the left, from the scale's left edge to ``right``."""
        left = LEFT
        for tick in ticks:
            y = scale(tick)
            self.line(left, y, right, y, "grid")
            self.text(left - 8, y + 4, name(tick), "tick", "end")

    def svg(self) -> Markup:
        """Return the image."""
        return Markup(  # noqa: S704  # every part was escaped where it was added
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(self.label)}"'
            f' viewBox="0 0 {self.width:g} {self.height:g}">{"".join(self._parts)}</svg>'
        )


LEFT = 66.0
"""Where plots begin: left of it stand the values of the y axis."""
