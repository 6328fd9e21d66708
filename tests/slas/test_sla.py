import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from profiles.sheet import Fault, SheetError, catalogue, find, json_schema
from slas.sla import Sla, SlaSheet, read_sla, sla_faults

S = 1_000_000_000


def written(folder: Path, text: str) -> Path:
    path = folder / "sla.yaml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> list[Fault]:
    with pytest.raises(SheetError) as caught:
        read_sla(written(folder, text))
    return list(caught.value.faults)


def beside(folder: Path, text: str, **fields: object) -> list[Fault]:
    sla, sheet = read_sla(written(folder, text))
    given: dict[str, object] = {
        "tenants": ("chat", "code"),
        "memory_source": "nvml",
        "memory_every_ns": S,
        "engine_metrics": True,
        "warmup_ns": 10 * S,
        "total_timeout_ns": 300 * S,
        "bursting": ("chat",),
    }
    return sla_faults(sla, sheet, **(given | fields))  # type: ignore[arg-type]


def promise(text: str, head: str = "") -> str:
    return f"version: 1\n{head}must:\n  - {text}\n"


def test_a_whole_sheet(tmp_path: Path) -> None:
    text = """version: 1
runs: 5
confidence: 95%
on_inconclusive: warn
must:
  - ttft.p99{tenant=chat} <= 300ms
  - {expr: error_rate <= 20%, abort_after: 10s, name: hopeless, min_samples: 50}
should:
  - ttft.p99{tenant=chat, phase=burst}   <= 200ms
"""
    sla, sheet = read_sla(written(tmp_path, text))
    assert (sla.name, sla.runs, sla.confidence, sla.on_inconclusive) == ("sla", 5, 0.95, "warn")
    first, second, third = sla.checks
    assert (first.level, first.name, first.spot.line, first.spot.column) == (
        "must",
        "ttft.p99{tenant=chat} <= 300ms",
        6,
        5,
    )
    assert (second.name, second.abort_after_ns, second.min_samples) == ("hopeless", 10 * S, 50)
    assert (second.spot.line, second.spot.column) == (7, 12)
    assert (third.level, third.name) == ("should", "ttft.p99{tenant=chat, phase=burst} <= 200ms")
    assert sheet.data == text.encode()


def test_defaults(tmp_path: Path) -> None:
    sla, _ = read_sla(written(tmp_path, promise("ttft.p99 <= 1s")))
    assert (sla.runs, sla.confidence, sla.on_inconclusive) == (1, None, "fail")
    point, _ = read_sla(written(tmp_path, promise("ttft.p99 <= 1s", "confidence: point\n")))
    assert point.confidence is None


def test_every_fault_is_found_at_once_and_at_its_column(tmp_path: Path) -> None:
    faults = refused(
        tmp_path,
        """version: 1
rnus: 5
must:
  - tfft.p99 <= 300ms
  - 'ttft.p99 <= 300'
  - {expr: "vram.peak <= 3ms"}
  - {expr: error_rate <= 1%, nme: x}
should:
  - ttft.p100 <= 3s
  - 5
""",
    )
    assert [(f.spot.line, f.spot.column, f.field) for f in faults] == [
        (2, 1, "rnus"),
        (4, 5, "must[0]"),
        (5, 18, "must[1]"),
        (6, 26, "must[2]"),
        (7, 30, "must[3].nme"),
        (9, 10, "should[0]"),
        (10, 5, "should[1]"),
    ]
    assert "did you mean 'runs'?" in faults[0].mend


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("version: 1\n", "needs a check"),
        ("version: 1\nmust: []\n", "needs a check"),
        ("version: 2\nmust: [ttft.p99 <= 1s]\n", "expected 1"),
        (promise("ttft.p99 <= 1s", "runs: 0\n"), "at least 1"),
        (promise("ttft.p99 <= 1s", "confidence: 0.95\n"), "confidence"),
        (promise("ttft.p99 <= 1s", "confidence: 100%\n"), "below 100%"),
        (promise("ttft.p99 <= 1s", "confidence: 40%\n"), "above 50%"),
        (promise("ttft.p99 <= 1s", "on_inconclusive: pass\n"), "unknown value"),
        (promise("{expr: ttft.p99 <= 1s, name: A B}"), "does not match"),
        (promise("{expr: ttft.p99 <= 1s, min_samples: 0}"), "at least 1"),
        (promise("{expr: ttft.p99 <= 1s, abort_after: 10}"), "no unit"),
        (promise("{expr: vram.peak <= 1GiB, abort_after: 10s}"), "cannot be watched"),
        (promise("{expr: 'ttft.p99{phase=burst} <= 1s', abort_after: 10s}"), "phase"),
        (promise("{expr: ttft.p99 <= baseline + 1%, abort_after: 10s}"), "baseline"),
        (promise("{expr: ttft.p99 <= 1s, abort_after: 10ms}"), "once a second"),
        ("version: 1\nshould: [{expr: ttft.p99 <= 1s, abort_after: 10s}]\n", "never ends a run"),
        (promise("ttft.p99 <= 1s\n  - ttft.p99   <= 1000ms"), "the same promise as must[0]"),
        (promise("ttft.p99 <= 1s\nshould:\n  - ttft.p99 <= 1s"), "the same promise as must[0]"),
        (
            promise("{expr: ttft.p99 <= 1s, name: x}\n  - {expr: ttft.p95 <= 1s, name: x}"),
            "already that of must[0]",
        ),
    ],
)
def test_sheets_that_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    faults = refused(tmp_path, text)
    assert any(fault in f.fault for f in faults), [str(f) for f in faults]
    assert all(f.mend for f in faults)


@pytest.mark.parametrize(
    ("text", "fields", "fault", "mend", "column"),
    [
        ("ttft.p99{tenant=chta} <= 1s", {}, "no tenant 'chta'", "'chat'", 21),
        ("ttft.p99{tenant=code,phase=burst} <= 1s", {}, "never bursts", "phase=burst", 26),
        ("ttft.p99{phase=burst} <= 1s", {"bursting": ()}, "no tenant bursts", "lengthen", 14),
        ("vram.peak <= 1GiB", {"memory_source": None}, "nothing watches", "--dcgm URL", 5),
        ("vram.spike <= 30%", {"warmup_ns": 2 * S}, "too short", "warmup: 3.00 s", 5),
        ("vram.steady <= 30%", {"warmup_ns": 2 * S}, "too short", "warmup: 3.00 s", 5),
        ("kv.peak <= 90%", {"engine_metrics": False}, "engine's metrics", "/metrics", 5),
        ("error_rate <= 100%", {}, "cannot fail", "lower", 16),
        ("kv.peak <= 100%", {}, "cannot fail", "lower", 13),
        ("vram.peak <= 100%", {}, "cannot fail", "lower", 15),
        ("goodput(ttft <= 1s) >= 0%", {}, "cannot fail", "raise", 25),
        ("ttft.p99 <= 300s", {}, "no latency can break this", "error_rate", 14),
        ("goodput(e2e <= 6m) >= 9%", {}, "never miss", "tighter", 13),
    ],
)
def test_faults_beside_other_sheets(
    tmp_path: Path, text: str, fields: dict[str, object], fault: str, mend: str, column: int
) -> None:
    (found,) = beside(tmp_path, promise(text), **fields)
    assert fault in found.fault
    assert mend in found.mend
    assert (found.spot.line, found.spot.column) == (3, column)


@pytest.mark.parametrize(
    "text",
    [
        "ttft.p99{tenant=chat,phase=burst} <= 1s",
        "ttft.p99{tenant=*,phase=burst} <= 1s",
        "ttft.p99{tenant=code,phase=calm} <= 1s",
        "error_rate < 100%",
        "error_rate <= 0%",
        "vram.peak <= 99.9%",
        "vram.spike <= 200%",
        "ttft.p99 <= 299s",
        "goodput(ttft <= 1s) > 0%",
        "preemptions <= 0",
    ],
)
def test_promises_that_can_be_broken_are_taken(tmp_path: Path, text: str) -> None:
    assert beside(tmp_path, promise(text)) == []


def test_a_should_may_wait_for_bursts_that_do_not_come(tmp_path: Path) -> None:
    text = "version: 1\nshould: ['ttft.p99{tenant=code,phase=burst} <= 1s']\n"
    assert beside(tmp_path, text) == []


def test_three_warm_samples_are_enough(tmp_path: Path) -> None:
    assert beside(tmp_path, promise("vram.spike <= 30%"), warmup_ns=3 * S) == []


@pytest.mark.parametrize(("runs", "refused"), [(1, True), (2, True), (3, False)])
def test_confidence_needs_three_runs(tmp_path: Path, runs: int, refused: bool) -> None:
    found = beside(tmp_path, promise("ttft.p99 <= 1s", f"runs: {runs}\nconfidence: 95%\n"))
    assert bool(found) is refused
    if found:
        assert (found[0].field, found[0].spot.line) == ("confidence", 3)
        assert "--runs 3" in found[0].mend


@pytest.mark.parametrize("text", ["error_rate <= 0%", "goodput(ttft <= 1s) >= 100%"])
def test_what_no_number_of_requests_can_prove(tmp_path: Path, text: str) -> None:
    (found,) = beside(tmp_path, promise(text, "runs: 5\nconfidence: 95%\n"))
    assert "exactly" in found.fault


@pytest.mark.parametrize("name", sorted(catalogue("slas")))
def test_the_catalogue_is_without_fault(name: str) -> None:
    sla, sheet = read_sla(find(name, "slas"))
    assert isinstance(sla, Sla)
    # the shortest warm-up and timeouts among the profiles that ship
    faults = sla_faults(
        sla,
        sheet,
        tenants=("chat",),
        memory_source="dcgm",
        memory_every_ns=S,
        engine_metrics=True,
        warmup_ns=4 * S,
        total_timeout_ns=30 * S,
        bursting=("chat",),
    )
    assert faults == []
    assert len(catalogue("slas")[name]) > 20


def test_the_claims_are_all_there_and_named_as_claims() -> None:
    path = find("seed-claims", "slas")
    sla, sheet = read_sla(path)
    promised = {check.expression.text for check in sla.checks}
    assert promised == {
        "ttft.mean <= 120ms",
        "ttft.mean <= 140ms",
        "ttft.mean <= 130ms",
        "ttft.p99 <= 300ms",
        "ttft.p99 <= 260ms",
        "ttft.p99 <= 150ms",
        "itl.p99 <= 30ms",
        "vram.spike{gpu=*} <= 30%",
        "vram.peak{gpu=*} <= 85%",
        *(f"vram.peak{{gpu=*}} <= {size}GiB" for size in (8, 12, 16, 24, 48)),
    }
    lines = sheet.data.decode().splitlines()
    for check in sla.checks:
        assert "unproven claim" in lines[check.spot.line - 2]


def test_the_schema_takes_the_catalogue_and_refuses_a_misspelling() -> None:
    schema = json.loads(json.dumps(json_schema(SlaSheet)))
    jsonschema.Draft202012Validator.check_schema(schema)
    for name in catalogue("slas"):
        jsonschema.validate(yaml.safe_load(find(name, "slas").read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": 1, "mst": []}, schema)
