from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from reports.report import Report, RuledBy
from reports.rundir import RunDir
from reports.writers.html import render
from slas.evidence import Outcome
from slas.ruling import Ruling
from tests.reports.hostile import WORDS, with_words
from tests.reports.synthetic import interrupted, report_of, synthetic

VOID = {"meta", "br", "hr", "img", "input", "link", "col"}
ALLOWED = frozenset(
    {
        *("html", "head", "meta", "title", "style", "body", "main", "header", "section"),
        *("div", "span", "h1", "h2", "h3", "p", "b", "i", "code", "dl", "dt", "dd", "ul", "li"),
        *(
            "table",
            "colgroup",
            "col",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "br",
            "figure",
            "figcaption",
        ),
        *("details", "summary", "svg", "line", "rect", "path", "circle", "text"),
    }
)


class Page(HTMLParser):
    """What is on the page: its elements, its attributes, its words; and whether tags pair up."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.css = ""
        self.feed(page.decode())
        self.close()
        assert self.open == [], "these tags were never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.css += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def check_page(page: Page) -> None:
    """Assert that the page is whole and fetches nothing."""
    for tag, attributes in page.elements:
        assert tag in ALLOWED, f"<{tag}> is not for this page"
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "href", "srcset", "action", "data", "poster")
            if name != "xmlns" and name != "aria-label":
                assert "url(" not in (value or "")
    assert "url(" not in page.css
    assert "@import" not in page.css


def test_page_is_whole_and_fetches_nothing(report: Report) -> None:
    check_page(Page(render(report)))


def test_rulings_come_first_with_reason_and_mend(report: Report) -> None:
    text = Page(render(report)).text
    for words in (
        "a promise was broken: ttft.p99{tenant=chat} <= 300ms, measured 471 ms, and 1 more (exit 99)",
        "2,104 requests in 2 runs",
        "76 samples in 2 runs",
        "Mend: run with --runs 8",
        "p99 of 2,104 requests is 471 ms, 57 % over the limit",
        "lower the burst factor, add a replica, or raise the limit",
        "slas/interactive.yaml:4",
        "above every limit",
        "3 FAIL, 1 INCONCLUSIVE, 1 SKIPPED, 3 PASS",
    ):
        assert words in text
    assert text.index("a promise was broken") < text.index("What happened when")


def test_how_it_was_measured_is_said(report: Report) -> None:
    text = Page(render(report)).text
    for words in (
        report.verdict.schedule_sha256,
        "one of 100 ms is seen with a probability of 10.0 %",
        "numpy",
        "lateness",
        "2 runs, 95%",
    ):
        assert words in text


def test_simulated_is_marked_and_a_real_run_is_not(report: Report) -> None:
    assert "not a real one" in Page(render(report)).text
    real = replace(
        report,
        manifest=replace(report.manifest, simulated=False),
        verdict=replace(report.verdict, simulated=False),
    )
    assert "not a real one" not in Page(render(real)).text


def test_sla_that_ruled_is_named_and_the_runs_own_is_told_apart(report: Report) -> None:
    other = RuledBy(sla="slas/p95.yaml", sha256="ab" * 32, again="2026-12-01T08:00:00Z")
    text = Page(render(replace(report, ruled_by=other))).text
    assert f"ruled again on p95.yaml, sha256 {'ab' * 32}" in text
    assert "slas/p95.yaml" in text
    assert "again, 2026-12-01T08:00:00Z" in text
    assert f"sha256 {'bb' * 32}; the run's own, which this report was not ruled by" in text
    own = RuledBy(sla="runs/x/sheets/sla.yaml", sha256="bb" * 32, again=None)
    text = Page(render(replace(report, ruled_by=own))).text
    assert "ruled again" not in text
    assert "not ruled by" not in text
    again = Page(render(replace(report, ruled_by=replace(own, again="2026-12-01T08:00:00Z")))).text
    assert "ruled again on the run's own SLA" in again


def test_interruption_is_said_once(report: Report) -> None:
    page = Page(render(interrupted(report)))
    check_page(page)
    assert page.text.count("SIGINT") == 1
    assert "INTERRUPTED" in page.text
    assert "INVALID" not in page.text
    assert "not broken for certain" not in page.text


def test_fit_instrument_has_notes_and_no_causes(report: Report) -> None:
    text = Page(render(report)).text
    assert "note no run-queue wait to speak of" in text
    health = replace(report.verdict.health, fit=False, reasons=("lateness p99 is 41 ms",))
    verdict = replace(report.verdict, ruling=Ruling.INVALID, health=health)
    text = Page(render(replace(report, verdict=verdict))).text
    assert "cause no run-queue wait to speak of" in text
    assert "by our fault and not the engine's: lateness p99 is 41 ms (exit 99)" in text


def test_every_cell_of_a_promise_has_a_name_where_the_table_becomes_cards(report: Report) -> None:
    page = Page(render(report))
    names = [
        attributes["data-name"] for tag, attributes in page.elements if "data-name" in attributes
    ]
    assert set(names) == {"for", "measured", "limit", "of limit", "evidence"}
    assert len(names) == 5 * len(report.verdict.checks)


def test_images_are_well_formed_and_keep_within_their_box(report: Report) -> None:
    images = re.findall(r"<svg.*?</svg>", render(report).decode(), re.DOTALL)
    assert len(images) == 2 + 4  # a time line a run; percentiles of three tenants and of all
    for image in images:
        root = fromstring(image)
        _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
        for element in root:
            for name, most in (("x", width), ("x1", width), ("x2", width), ("cx", width)):
                assert 0 <= float(element.get(name, 0)) <= most
            for name in ("y", "y1", "y2", "cy"):
                assert 0 <= float(element.get(name, 0)) <= height
        assert re.search(r"\b(nan|inf)\b", image) is None


@pytest.mark.parametrize("words", WORDS)
def test_hostile_words_stay_words(words: str, report: Report) -> None:
    page = Page(render(with_words(report, words)))
    check_page(page)
    assert "49" not in re.findall(r"onload=x.{0,40}", page.text)


def test_run_without_rows_memory_or_health_still_has_a_page(report: Report) -> None:
    evidence = replace(report.evidence, rows=(), memory=(), engine=(), health=(), bursts={})
    verdict = replace(
        report.verdict,
        ruling=Ruling.INVALID,
        checks=(),
        health=replace(
            report.verdict.health,
            fit=False,
            reasons=("nothing was due in the window",),
            lateness_p99_s=None,
            loop_lag_p99_s=None,
            steal_share_max=None,
        ),
    )
    page = Page(
        render(replace(report, evidence=evidence, verdict=verdict, measurements=(), histograms={}))
    )
    check_page(page)
    assert "nothing was due in the window" in page.text


def test_run_in_which_everything_failed_still_has_a_page(report: Report) -> None:
    rows = tuple(
        replace(
            row,
            outcome=Outcome.REFUSED,
            first_ns=None,
            output_first_ns=None,
            last_ns=None,
            gaps_ns=(),
            gap_tokens=(),
        )
        for row in report.evidence.rows
    )
    manifest, evidence = report.manifest, replace(report.evidence, rows=rows)
    page = Page(render(report_of(manifest, evidence, report.run_dir)))
    check_page(page)
    assert "no request was answered" in page.text


def test_large_run_stays_small(tmp_path: Path) -> None:
    manifest, evidence = synthetic(runs=2, tenants=8, duration_s=600, rate_hz=1.0)
    page = render(report_of(manifest, evidence, RunDir(tmp_path)))
    assert len(page) * 5 / 2 < 3_000_000
