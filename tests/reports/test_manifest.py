from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.fault import FormatError
from reports.manifest import from_json, to_json, utc_now
from tests.reports.synthetic import synthetic

PATH = Path("runs/x/manifest.json")


def test_manifest_comes_back() -> None:
    manifest, _ = synthetic(runs=2, tenants=2, duration_s=4)
    assert from_json(to_json(manifest), PATH) == manifest
    bare = replace(manifest, gpus=(), ended=None, cut="Ctrl-C", versions={})
    assert from_json(to_json(bare), PATH) == bare


def test_newer_format_is_refused_before_its_fields_are_looked_at() -> None:
    with pytest.raises(FormatError, match="format: 2 is newer") as caught:
        from_json(b'{"format": 2}', PATH)
    assert "manifest.json" in str(caught.value)
    assert "mend: " in str(caught.value)


@pytest.mark.parametrize(
    "stored",
    [b"", b"[]", b"{}", b'{"format": "1"}', b'{"format": true}', b'{"format": 0}', b"[" * 100_000],
)
def test_other_files_are_no_manifest(stored: bytes) -> None:
    with pytest.raises(FormatError):
        from_json(stored, PATH)


def test_wrong_fields_are_all_named() -> None:
    manifest, _ = synthetic(tenants=2, duration_s=4)
    stored: dict[str, Any] = json.loads(to_json(manifest))
    stored["plan"]["warmup_ns"] = "10s"
    del stored["engine"]["kind"]
    stored["state"] = "ajar"
    with pytest.raises(FormatError) as caught:
        from_json(json.dumps(stored).encode(), PATH)
    for field in ("plan.warmup_ns: ", "engine.kind: ", "state: "):
        assert field in str(caught.value)


HUGE = 10**30


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("hosts", []),
        ("hosts.0.epoch_monotonic_ns", HUGE),
        ("gpus.0.total_bytes", -1),
        ("level_percent", 0),
        ("engine.ready_ns", HUGE),
        ("telemetry.every_ns", 0),
        ("telemetry.memory", None),
        ("plan.warmup_ns", -1),
        ("plan.warmup_ns", HUGE),
        ("plan.duration_ns", 0),
        ("plan.duration_ns", HUGE),
        ("plan.drain_ns", -1),
        ("plan.total_timeout_ns", HUGE),
        ("plan.tenants", []),
        ("plan.tenants", ["chat", "chat"]),
        ("plan.tenants.0", "x"),
        ("plan.rates_hz.chat", -1.0),
        ("plan.rates_hz.chat", "1"),
        ("plan.concurrency", {"chat": 0}),
        ("plan.concurrency", {"x": 1}),
        ("plan.bursts", {"x": []}),
        ("plan.bursts.chat", [[0, HUGE]]),
        ("runs.0.run", -1),
        ("runs.0.start_ns", HUGE),
        ("runs.0.planned", {"chat": -1}),
        ("runs.0.planned", {"x": 1}),
        ("runs.1.run", 1),
    ],
)
def test_value_that_no_manifest_may_hold_is_named(place: str, value: object) -> None:
    manifest, _ = synthetic(runs=2, tenants=2, duration_s=4)
    stored: Any = json.loads(to_json(manifest))
    *way, last = (int(part) if part.isdigit() else part for part in place.split("."))
    inner = stored
    for part in way:
        inner = inner[part]
    inner[last] = value
    with pytest.raises(FormatError) as caught:
        from_json(json.dumps(stored).encode(), PATH)
    assert place.split(".")[0] in caught.value.fault


def test_fields_that_a_later_writer_adds_are_left_aside() -> None:
    manifest, _ = synthetic(tenants=2, duration_s=4)
    stored = {**json.loads(to_json(manifest)), "carbon": 3}
    assert from_json(json.dumps(stored).encode(), PATH) == manifest


def test_time_is_written_in_utc_to_the_second() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", utc_now())
