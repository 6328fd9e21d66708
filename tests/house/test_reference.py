"""The pages that promise to list everything do: sheet keys, metrics, files of a run, options, decisions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from launchers.engine import ENGINES
from launchers.sim.command import sim
from launchers.sim.fault import NONE
from launchers.sim.preset import PRESETS
from loadgen.dialect import DIALECTS
from profiles.arrival import ARRIVALS
from profiles.sheet import json_schema
from profiles.trace import TRACES
from reports.rundir import RunDir
from reports.writer import WRITERS
from slas.metric import METRICS
from slas.quantity import Latency, Unit
from tailgate.cli import SHEETS

REPO = Path(__file__).parents[2]
LIMITS = {
    Unit.SECONDS: "duration",
    Unit.SHARE: "share",
    Unit.PER_SECOND: "rate",
    Unit.COUNT: "count",
}


def page(name: str) -> str:
    return (REPO / name).read_text()


def code(text: str) -> set[str]:
    """Return what stands in backticks, whole and split into its words."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return {word for span in spans for word in (span, *re.findall(r"[\w.-]+", span))}


def rows(text: str, heading: str) -> Iterator[list[str]]:
    """Yield the cells of the rows under the table whose first cell is ``heading``."""
    _, found, rest = text.partition(f"\n| {heading} |")
    assert found, heading
    for line in rest.splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def properties(schema: Any) -> Iterator[str]:
    """Yield the name of every property anywhere in a JSON Schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from properties(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties":
                yield from value
            yield from properties(value)


@pytest.mark.parametrize("kind", SHEETS)
def test_every_key_of_a_sheet_is_named(kind: str) -> None:
    names = set(properties(json_schema(SHEETS[kind])))
    assert len(names) > 5
    assert not names - code(page("docs/sheets.md"))


def test_every_choice_of_a_sheet_is_named() -> None:
    choices = {*ARRIVALS, *TRACES, *DIALECTS, *ENGINES, *PRESETS}
    assert not choices - code(page("docs/sheets.md"))


def test_the_table_of_metrics_is_complete_and_has_their_limits_and_selectors() -> None:
    seen = set()
    for names, limit, selectors, *_ in rows(page("docs/sheets.md"), "metric"):
        for name in re.findall(r"`([a-z0-9_.]+)", names):
            metric = METRICS[name]
            seen.add(name)
            assert set(filter(None, selectors.split(", "))) == metric.selectors, name
            assert limit.split(",")[0] == LIMITS.get(metric.unit, "size"), name
    assert seen == set(METRICS)


def test_the_metrics_that_need_a_statistic_come_first() -> None:
    latencies = [
        all(isinstance(METRICS[name], Latency) for name in re.findall(r"`([a-z0-9_.]+)", row[0]))
        for row in rows(page("docs/sheets.md"), "metric")
    ]
    assert latencies == sorted(latencies, reverse=True)
    assert sum(latencies) == 8
    assert "first eight rows need a statistic" in page("docs/sheets.md")


def test_every_key_of_the_engine_sheet_says_which_engines_read_it() -> None:
    said = {
        row[0].strip("`"): row[3]
        for row in rows(page("docs/sheets.md").partition("## Engine")[2], "key")
    }
    for key in SHEETS["engine"].model_fields:
        own = [name for name, kind in ENGINES.items() if key in kind.keys]
        if own:
            assert said[key] == ", ".join(own), key
        else:
            assert said[key] in ("all", "sim, vllm, command"), key


def test_every_file_of_a_run_is_named() -> None:
    text = page("docs/run-directory.md")
    run = RunDir(Path("/run"))
    paths = [
        getattr(run, name) for name, member in vars(RunDir).items() if isinstance(member, property)
    ]
    files = {str(path.relative_to(run.path)) for path in paths}
    files |= {writer.file for writer in WRITERS.values()}
    for source in (*(REPO / "tailgate").glob("*.py"), *(REPO / "launchers").glob("*.py")):
        for folder, file in re.findall(r'run_dir\.(path|engine) / "([^"]+)"', source.read_text()):
            files.add(file if folder == "path" else f"engine/{file}")
    assert {"manifest.json", "locust.log", "engine/samplers.log", "metrics.txt"} <= files
    named = " ".join(row[0] for row in rows(text, "file"))
    missing = {file for file in files if not re.search(rf"`{re.escape(file)}[`/]", named)}
    # the folder of a named file is named with it
    assert not {file for file in missing if f"`{file}/" not in named}


def test_the_readme_names_every_report() -> None:
    assert not {writer.file for writer in WRITERS.values()} - code(page("README.md"))


def test_every_flag_and_fault_of_the_simulator_is_named() -> None:
    named = code(page("docs/sim.md"))
    flags = {option for p in sim.params if isinstance(p, click.Option) for option in p.opts}
    assert not flags - named
    assert not set(NONE.changed({}).__dataclass_fields__) - named
    assert not set(PRESETS) - named


def test_every_option_of_the_locustfile_is_named() -> None:
    # read, not imported: importing locust would patch this process
    tree = ast.parse((REPO / "loadgen" / "control" / "options.py").read_text())
    tables = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in ("VALUES", "FLAGS", "DISTRIBUTED")
    }
    options = {f"--{name}" for name in (*tables["VALUES"], *tables["FLAGS"], "generators")}
    assert len(options) > 10
    assert not (options | set(tables["DISTRIBUTED"].values())) - code(page("docs/locust.md"))


def test_the_readme_links_every_decision() -> None:
    readme = page("README.md")
    for decision in sorted((REPO / "docs" / "decisions").glob("*.md")):
        assert f"(docs/decisions/{decision.name})" in readme, decision.name
