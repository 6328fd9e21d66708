"""The language of promises: one line that says what is measured, where, and which limit it must keep.

::

    check     = measure [ selector ] operator limit
    measure   = metric [ "." statistic ] | "goodput" "(" bound { "," bound } ")"
    metric    = name { "." name }                        one of slas.metric
    statistic = "p" number | "mean" | "min" | "max"      "p99", "p97.5": above 0, below 100
    bound     = metric ( "<=" | "<" ) duration
    selector  = "{" key "=" value { "," key "=" value } "}"
    key       = "tenant" | "phase" | "gpu" | "node"
    value     = "*" | word                               "*": one check for each; phase: burst or calm
    operator  = "<=" | ">=" | "<" | ">"
    limit     = quantity | "baseline" margin [ "or" margin ]
    margin    = ( "+" | "-" ) ( quantity | points )      a percentage is a share of the baseline's value
    points    = number "pp"                              percentage points of a metric that is itself a share

Blanks may stand between any two of these, and before a unit. Of two margins the wider one counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from profiles.sheet import nearest
from profiles.units import (
    UnitError,
    duration_ns,
    format_bytes,
    format_duration,
    format_rate,
    format_share,
    rate_hz,
    share,
    size_bytes,
)
from slas.metric import PLANNED, metrics
from slas.quantity import Bound, Gauge, Latency, Metric, Ratio, Unit

Operator = Literal["<=", ">=", "<", ">"]
SELECTORS = ("tenant", "phase", "gpu", "node")
PHASES = ("burst", "calm")
_STATISTICS = ("mean", "min", "max")
_MEANT = {"avg": "write mean", "average": "write mean", "median": "write p50", "": "write p99"}


class ExpressionError(ValueError):
    """A promise that cannot be read: what is wrong at which character (from 0), and the mend."""

    def __init__(self, offset: int, fault: str, mend: str) -> None:
        super().__init__(f"{fault}; {mend}")
        self.offset = offset
        self.fault = fault
        self.mend = mend


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """What is taken of a distribution; ``share`` is the percentile's, exact, and None for the others."""

    text: str
    share: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """How far from the baseline is allowed: ``amount`` is signed, a share of its value or in the metric's unit."""

    relative: bool
    amount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A number (ns, bytes, shares, 1/s, counts), a share of the GPU's memory, or margins around a baseline."""

    value: float | None
    of_gpu: bool = False
    margins: tuple[Margin, ...] = ()

    @property
    def relative(self) -> bool:
        """Whether it needs a baseline."""
        return bool(self.margins)

    def beside(self, baseline: float, upper: bool) -> float:
        """Return the limit for a baseline's value: the widest of the margins, on the side that is allowed."""
        limits = [
            baseline * (1 + margin.amount) if margin.relative else baseline + margin.amount
            for margin in self.margins
        ]
        return max(limits) if upper else min(limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A promise, read. A selector is None where it is not given and "*" where it stands for each."""

    text: str
    metric: Metric
    statistic: Statistic | None
    bounds: tuple[Bound, ...]
    tenant: str | None
    phase: str | None
    gpu: str | None
    node: str | None
    operator: Operator
    limit: Limit

    @property
    def upper(self) -> bool:
        """Whether the limit is a ceiling."""
        return self.operator in ("<=", "<")

    @property
    def strict(self) -> bool:
        """Whether the limit itself is already too much, or too little."""
        return self.operator in ("<", ">")


def quantity_text(unit: Unit, value: float) -> str:
    """Return a value in the metric's own unit (ns, bytes, shares, 1/s, counts) as people write it."""
    match unit:
        case Unit.SECONDS:
            return format_duration(value)
        case Unit.BYTES:
            return format_bytes(value)
        case Unit.SHARE:
            return format_share(value)
        case Unit.PER_SECOND:
            return format_rate(value)
        case Unit.COUNT:
            return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def base_units(unit: Unit, value: float) -> float:
    """Return a value in the base unit of reports: nanoseconds become seconds, all else is already there."""
    return value / 1e9 if unit is Unit.SECONDS else value


def parse(text: str) -> Expression:
    """Read one promise.

    Raises ExpressionError at the first character that cannot be right.

    >>> promise = parse("ttft.p99{tenant=chat} <= 300ms")
    >>> promise.metric.name, promise.tenant, promise.limit.value
    ('ttft', 'chat', 300000000)
    """
    return _Reader(text).check()


class _Reader:
    """Reads one expression from left to right; ``at`` is the next unread character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def check(self) -> Expression:
        start, metric, statistic = self._measure()
        bounds = self._bounds(start, metric)
        chosen = self._selector(metric)
        operator_at, operator = self._operator(metric, ("<=", ">=", "<", ">"))
        if isinstance(metric, Latency) and operator in (">=", ">"):
            raise ExpressionError(
                operator_at,
                f"{metric.name} is a time: its promise is an upper limit, not {operator!r}",
                "write <= or <",
            )
        limit = self._limit(metric)
        self._end()
        return Expression(
            text=self.text,
            metric=metric,
            statistic=statistic,
            bounds=bounds,
            tenant=chosen.get("tenant"),
            phase=chosen.get("phase"),
            gpu=chosen.get("gpu"),
            node=chosen.get("node"),
            operator=operator,
            limit=limit,
        )

    def _skip(self) -> int:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        return self.at

    def _take(self, pattern: str) -> re.Match[str] | None:
        match = re.compile(pattern, re.ASCII).match(self.text, self._skip())
        if match is not None:
            self.at = match.end()
        return match

    def _rest(self) -> str:
        return self.text[self._skip() :]

    def _wanted(self, what: str, mend: str) -> ExpressionError:
        found = self._rest()
        said = repr(found) if found else "the end of the line"
        return ExpressionError(self.at, f"expected {what}, found {said}", mend)

    def _end(self) -> None:
        if self._rest():
            raise ExpressionError(
                self.at, f"{self._rest()!r} is left over", "end the check after its limit"
            )

    # ----------------------------------------------------------------------------------------------------
    # what is measured

    def _name(self) -> tuple[int, str]:
        match = self._take(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*\.?")
        if match is None:
            raise self._wanted("a metric", "write a check such as ttft.p99 <= 300ms")
        return match.start(), match.group()

    def _measure(self) -> tuple[int, Metric, Statistic | None]:
        start, name = self._name()
        known = metrics()
        if name in known:
            metric = known[name]
            if isinstance(metric, Latency):
                raise ExpressionError(
                    start + len(name),
                    f"{name} needs a statistic",
                    f"write {name}.p99, {name}.mean, {name}.min or {name}.max",
                )
            return start, metric, None
        # the longest metric that the name begins with; what follows it is the statistic
        owner = max(
            (other for other in known if name.startswith(f"{other}.")), key=len, default=None
        )
        if owner is None:
            raise _unknown_metric(start, name, known)
        metric = known[owner]
        after = name[len(owner) + 1 :]
        offset = start + len(owner) + 1
        if not isinstance(metric, Latency):
            raise ExpressionError(
                offset, f"{owner} is one number and has no statistic {after!r}", f"write {owner}"
            )
        return start, metric, _statistic(offset, owner, after)

    def _bounds(self, start: int, metric: Metric) -> tuple[Bound, ...]:
        opened = self._take(r"\(")
        bounded = isinstance(metric, Ratio) and metric.bounded
        if opened is None:
            if bounded:
                raise ExpressionError(
                    start + len(metric.name),
                    f"{metric.name} needs bounds",
                    f"write {metric.name}(ttft <= 500ms, itl <= 60ms) >= 99%",
                )
            return ()
        if not bounded:
            raise ExpressionError(
                opened.start(), f"{metric.name} takes no bounds", "remove the parentheses"
            )
        bounds: list[Bound] = []
        seen: set[str] = set()
        while True:
            at, bound, name = self._bound()
            if name in seen:
                raise ExpressionError(at, f"{name} is bounded twice", "keep the tighter bound")
            seen.add(name)
            bounds.append(bound)
            if self._take(r","):
                continue
            if self._take(r"\)"):
                return tuple(bounds)
            raise self._wanted("',' or ')'", "close the bounds with ')'")

    def _bound(self) -> tuple[int, Bound, str]:
        at, name = self._name()
        known = metrics()
        latency = known.get(name)
        if not isinstance(latency, Latency) or latency.clock == "instrument":
            latencies = [
                other
                for other, metric in known.items()
                if isinstance(metric, Latency) and metric.clock != "instrument"
            ]
            owner = next((other for other in latencies if name.startswith(f"{other}.")), None)
            if owner is not None:
                raise ExpressionError(
                    at + len(owner),
                    "a bound is on a single request and has no statistic",
                    f"write {owner}",
                )
            raise ExpressionError(
                at, f"{name!r} is no latency of a request", nearest(name, latencies)
            )
        operator = self._operator(latency, ("<=", "<"))[1]
        value, _ = self._quantity(latency.unit, False)
        single = known[latency.in_goodput] if latency.in_goodput else latency
        assert isinstance(single, Latency)
        return at, Bound(latency=single, strict=operator == "<", limit_ns=int(value)), name

    # ----------------------------------------------------------------------------------------------------
    # where

    def _selector(self, metric: Metric) -> dict[str, str]:
        chosen: dict[str, str] = {}
        if not self._take(r"\{"):
            return chosen
        while True:
            key_match = self._take(r"[A-Za-z_]+")
            if key_match is None:
                raise self._wanted("a selector", f"write one of {', '.join(SELECTORS)}")
            key, at = key_match.group(), key_match.start()
            if key not in SELECTORS:
                raise ExpressionError(at, f"unknown selector {key!r}", nearest(key, SELECTORS))
            if key not in metric.selectors:
                allowed = [name for name in SELECTORS if name in metric.selectors]
                mend = f"it takes {', '.join(allowed)}" if allowed else "remove the selector"
                raise ExpressionError(at, f"{metric.name} cannot be split by {key}", mend)
            if key in chosen:
                raise ExpressionError(at, f"{key} is selected twice", "keep one of them")
            if not self._take(r"="):
                raise self._wanted("'='", f"write {key}=VALUE")
            chosen[key] = self._value(key)
            if self._take(r","):
                continue
            if self._take(r"\}"):
                return chosen
            raise self._wanted("',' or '}'", "close the selector with '}'")

    def _value(self, key: str) -> str:
        match = self._take(r"\*|[A-Za-z0-9_.-]+")
        if match is None:
            raise self._wanted(f"a {key}", f"write {key}=NAME, or {key}=* for each")
        value = match.group()
        if key == "phase" and value not in PHASES:
            raise ExpressionError(match.start(), f"unknown phase {value!r}", nearest(value, PHASES))
        if key == "gpu" and value != "*" and not re.fullmatch(r"[0-9]{1,6}", value):
            raise ExpressionError(
                match.start(), f"{value!r} is no GPU index", "write its number, or * for each"
            )
        return value

    # ----------------------------------------------------------------------------------------------------
    # how much

    def _operator(self, metric: Metric, allowed: tuple[Operator, ...]) -> tuple[int, Operator]:
        match = self._take(r"<=|>=|<|>|==|!=|=")
        if match is None:
            raise self._wanted(
                f"one of {' '.join(allowed)}", f"write {metric.name} {allowed[0]} LIMIT"
            )
        for operator in allowed:
            if match.group() == operator:
                return match.start(), operator
        raise ExpressionError(
            match.start(), f"{match.group()!r} is no comparison here", f"use {' or '.join(allowed)}"
        )

    def _limit(self, metric: Metric) -> Limit:
        gauge = isinstance(metric, Gauge) and metric.share_of_gpu
        baseline = self._take(r"baseline\b")
        if baseline is None:
            at = self._skip()
            value, of_gpu = self._quantity(metric.unit, gauge)
            if of_gpu and value > 1:
                raise ExpressionError(at, "a GPU has no more than 100 %", "write at most 100%")
            return Limit(value=value, of_gpu=of_gpu)
        if isinstance(metric, Ratio) and metric.bounded:
            raise ExpressionError(
                baseline.start(),
                f"a stored run does not hold {metric.name} for these bounds",
                f"write a fixed limit, such as {metric.name}(...) >= 99%",
            )
        margins = [self._margin(metric)]
        if self._take(r"or\b"):
            margins.append(self._margin(metric))
        return Limit(value=None, margins=tuple(margins))

    def _margin(self, metric: Metric) -> Margin:
        sign = self._take(r"[+-]")
        if sign is None:
            raise self._wanted("'+' or '-'", "write baseline + 10%")
        factor = 1 if sign.group() == "+" else -1
        at = self._skip()
        if re.compile(r"[0-9.]+ ?%", re.ASCII).match(self.text, at):
            relative, _ = self._quantity(Unit.SHARE, False)
            if factor < 0 and relative >= 1:
                raise ExpressionError(at, "nothing is left below -100 %", "write less than 100%")
            return Margin(relative=True, amount=factor * relative)
        points = self._take(r"([0-9]+(?:\.[0-9]+)?) ?pp\b")
        if points is not None:
            return Margin(relative=False, amount=factor * _points(at, points.group(1), metric))
        amount, _ = self._quantity(metric.unit, False)
        return Margin(relative=False, amount=factor * amount)

    def _quantity(self, unit: Unit, gauge: bool) -> tuple[float, bool]:
        """Return (number in the metric's own unit, whether it is a share of a GPU)."""
        at = self._skip()
        match = self._take(
            r"-?\$? ?(?:[0-9][0-9.eE]*|\.[0-9]+|[A-Za-z]+) ?(?:%|/ ?[A-Za-z]+|[A-Za-z]+)?"
        )
        if match is None:
            raise self._wanted("a limit", f"write one such as {_EXAMPLES[unit]}")
        text = match.group().strip()
        # the blank before a unit must not swallow the word "or" between two margins
        if re.fullmatch(r".* or", text):
            text = text[:-3].rstrip()
            self.at = at + len(text)
        if gauge and text.endswith("%"):
            return _number(at, text, Unit.SHARE, share), True
        return _number(at, text, unit, _PARSERS[unit]), False


def _statistic(offset: int, owner: str, text: str) -> Statistic:
    if text in _STATISTICS:
        return Statistic(text=text, share=None)
    match = re.fullmatch(r"p([0-9]{1,3}(?:\.[0-9]{1,6})?)", text)
    if match is None:
        if re.fullmatch(r"p[0-9.]*", text):
            raise ExpressionError(offset, f"{text!r} is no percentile", "write one such as p99")
        known = ("p50", "p90", "p95", "p99", "p99.9", *_STATISTICS)
        mend = _MEANT.get(text) or nearest(text, known)
        raise ExpressionError(offset, f"{owner} has no statistic {text!r}", mend)
    value = Fraction(match.group(1)) / 100
    if not 0 < value < 1:
        raise ExpressionError(
            offset,
            f"{text} is no percentile: it lies at the end of the distribution",
            f"write {owner}.min" if value == 0 else f"write {owner}.max or a percentile below 100",
        )
    return Statistic(text=text, share=value)


def _points(at: int, number: str, metric: Metric) -> float:
    """Return percentage points as what they add to a share."""
    if metric.unit is not Unit.SHARE:
        raise ExpressionError(
            at,
            f"{metric.name} is no share, and has no percentage points",
            f"write a percentage of the baseline, such as 10%, or {_EXAMPLES[metric.unit].split()[0]}",
        )
    # exact in the decimals that were written: 0.1pp is the float that 0.1% is
    points = share(f"{number}%")
    if points >= 1:
        raise ExpressionError(at, "a share moves by less than 100 points", "write fewer than 100pp")
    return points


def _unknown_metric(start: int, name: str, known: Iterable[str]) -> ExpressionError:
    for planned in PLANNED:
        if name == planned or name.startswith(f"{planned}."):
            return ExpressionError(start, f"{planned} is not yet supported", "remove the check")
    stem = re.sub(r"\.(p[0-9.]+|mean|min|max)\.?$", "", name)
    return ExpressionError(start, f"unknown metric {stem!r}", nearest(stem, known))


def _count(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,6})?", text):
        raise UnitError(f"{text!r} is not a count", "write a bare number, such as 8")
    return float(text)


_PARSERS: dict[Unit, Callable[[str], float]] = {
    Unit.SECONDS: duration_ns,
    Unit.SHARE: share,
    Unit.BYTES: size_bytes,
    Unit.PER_SECOND: rate_hz,
    Unit.COUNT: _count,
}
_EXAMPLES = {
    Unit.SECONDS: "300ms",
    Unit.SHARE: "99%",
    Unit.BYTES: "76GiB or 85%",
    Unit.PER_SECOND: "12/s",
    Unit.COUNT: "8",
}


def _number(at: int, text: str, unit: Unit, read: Callable[[str], float]) -> float:
    try:
        return read(text)
    except UnitError as error:
        if any(_reads(other, text) for kind, other in _PARSERS.items() if kind is not Unit.COUNT):
            fault = f"{text!r} is not {_KINDS[unit]}"
            raise ExpressionError(at, fault, f"write one such as {_EXAMPLES[unit]}") from None
        raise ExpressionError(at, error.fault, error.mend) from None


def _reads(read: Callable[[str], float], text: str) -> bool:
    try:
        read(text)
    except UnitError:
        return False
    return True


_KINDS = {
    Unit.SECONDS: "a duration",
    Unit.SHARE: "a share",
    Unit.BYTES: "a size",
    Unit.PER_SECOND: "a rate",
    Unit.COUNT: "a count",
}
