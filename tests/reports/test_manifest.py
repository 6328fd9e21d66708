from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.fault import FormatError
from reports.manifest import from_json, installed_versions, this_host, to_json, utc_now
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


@pytest.mark.parametrize("stored", [b"", b"[]", b"{}", b'{"format": "1"}', b'{"format": true}'])
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


def test_fields_that_a_later_writer_adds_are_left_aside() -> None:
    manifest, _ = synthetic(tenants=2, duration_s=4)
    stored = {**json.loads(to_json(manifest)), "carbon": 3}
    assert from_json(json.dumps(stored).encode(), PATH) == manifest


def test_host_reads_both_its_clocks_at_once() -> None:
    host = this_host("controller")
    assert host.epoch_monotonic_ns <= time.monotonic_ns()
    assert host.epoch_wall_ns > 1_700_000_000 * 10**9
    assert host.cores >= 1
    assert host.cpu
    assert len(utc_now()) == len("2026-11-30T17:41:05Z")
    assert "numpy" in installed_versions()
