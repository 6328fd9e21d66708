"""The docs run: every shell block of README, the quickstart and then the other pages is executed, in one folder.

A block starts with ```sh and may say more: ``exits=99`` is the status it must end with (0 by default);
``no-run`` marks one that needs what a test has not (a GPU, a package index, somebody's server).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
FIRST = (
    REPO / "README.md",
    REPO / "docs" / "quickstart.md",
)  # later pages look at the quickstart's run
PAGES = (
    *FIRST,
    REPO / "CONTRIBUTING.md",
    *sorted(set((REPO / "docs").rglob("*.md")).difference(FIRST)),
)
FENCE = re.compile(
    r"^```(?P<info>\S*)(?P<marks>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SHELLS = {"sh", "bash", "shell", "console"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    page: str
    line: int
    marks: tuple[str, ...]
    text: str

    @property
    def exits(self) -> int:
        return next(
            (int(m.removeprefix("exits=")) for m in self.marks if m.startswith("exits=")), 0
        )


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page=str(page.relative_to(REPO)),
            line=text.count("\n", 0, match.start()) + 1,
            marks=tuple(match["marks"].split()),
            text=match["text"],
        )
        for match in FENCE.finditer(text)
        if match["info"] in SHELLS
    ]


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if "no-run" not in block.marks]


def script(pages: tuple[Path, ...]) -> str:
    """Return a bash program that runs the pages' blocks and stops at the first that ends otherwise."""
    parts = ["set -u"]
    for block in (block for page in pages for block in runnable(page)):
        where = f"{block.page}:{block.line}"
        parts.append(
            f"echo '--- {where}'\n( set -e\n{block.text})\nstatus=$?\n"
            f'if [ "$status" -ne {block.exits} ]; then\n'
            f'  echo "{where} ended with $status, not {block.exits}"; exit 1\nfi'
        )
    return "\n".join(parts)


@pytest.mark.timeout(600)
def test_the_commands_of_the_docs_do_what_they_say(tmp_path: Path) -> None:
    commands = Path(sys.executable).parent
    output = tmp_path / "output.txt"
    work = tmp_path / "work"
    work.mkdir()
    with output.open("wb") as out:
        bash = subprocess.Popen(
            ["bash", "-c", script(PAGES)],
            cwd=work,
            env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = bash.wait()
        finally:
            # What a page starts in the background (`tailgate sim ... &`) ends with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGTERM)
            bash.wait()
    assert status == 0, output.read_text()


def test_every_make_command_named_in_the_docs_exists() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (REPO / "Makefile").read_text()))
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", page.read_text(), re.MULTILINE))
        unknown = {a or b for a, b in named} - targets
        assert not unknown, f"{page.name}: make {unknown}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(REPO)}: {target}"


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (REPO / "README.md").read_text()
    for page in PAGES[1:]:
        if page.parent.name != "decisions":
            assert f"({page.relative_to(REPO)})" in readme, f"README.md has no link to {page.name}"
    assert "(docs/decisions/" in readme


def test_only_known_marks_stand_on_a_block() -> None:
    for page in PAGES:
        for block in blocks(page):
            for mark in block.marks:
                assert re.fullmatch(r"no-run|exits=\d+", mark), f"{block.page}:{block.line}: {mark}"


def test_the_way_to_add_something_names_what_is_there() -> None:
    text = (REPO / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"\| `([a-z_/]+)/NAME\.py` \| `([A-Z]+)` in `([a-z_/]+\.py)` \|", text)
    assert len(rows) >= 6
    for folder, shelf, module in rows:
        assert (REPO / folder).is_dir(), folder
        assert re.search(rf"(?m)^{shelf}\b.*=", (REPO / module).read_text()), f"{shelf} in {module}"
