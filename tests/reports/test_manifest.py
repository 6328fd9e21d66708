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


def test_time_is_written_in_utc_to_the_second() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", utc_now())
