"""Words that servers, sheets and hosts might say to break a report."""

from __future__ import annotations

from dataclasses import replace

from reports.report import Report

WORDS = (
    "<script>alert(1)</script>",
    "\"' onload=x &amp; ]]> --> {{ 7*7 }} {% raw %}",
    "| **bold** | [x](http://evil.example) `code` @everyone #1 <!-- \n\n# title",
    "\x1b[31mred\x1b[0m \x00\x07 \ufffe \u202e \u2028 \ud800",
)


def with_words(report: Report, words: str) -> Report:
    """Return the report with the words in every place that an outsider fills."""
    manifest, verdict = report.manifest, report.verdict
    check = replace(
        verdict.checks[0],
        expr=words,
        name=words,
        tenant=words,
        because=words,
        mend=words,
        file=words,
    )
    return replace(
        report,
        manifest=replace(
            manifest,
            engine=replace(manifest.engine, model=words, version=words, url=words, fault=words),
            hosts=tuple(replace(host, name=words, cpu=words) for host in manifest.hosts),
            gpus=tuple(replace(gpu, name=words, driver=words, node=words) for gpu in manifest.gpus),
            plan=replace(manifest.plan, profile=words, tenants=(words, "chat")),
            warnings=(words,),
            argv=(words,),
        ),
        verdict=replace(
            verdict,
            checks=(check, *verdict.checks),
            warnings=(words,),
            engine_fault=words,
            cut=words,
            aborted=words,
            health=replace(
                verdict.health, fit=False, reasons=(words,), causes=(words,), mend=words
            ),
        ),
    )
