"""The command line explains itself, and the docs name only what it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tailgate.cli import tailgate
from tests.house.test_docs import PAGES, blocks

COMMANDS = tailgate.commands


def walk(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command below a group."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from walk(command, (*words, name))
        elif not command.hidden:
            yield (*words, name)


def parsed(words: list[str]) -> None:
    """Parse a command line as the program would, without running it. Raises click.UsageError."""
    group: click.Group = tailgate
    context = click.Context(group, info_name="tailgate")
    while True:
        name, *words = words
        command = group.get_command(context, name)
        if command is None:
            raise click.UsageError(f"no command {name!r}")
        if not isinstance(command, click.Group):
            command.make_context(name, words, parent=context)
            return
        group, context = command, click.Context(command, info_name=name, parent=context)


@pytest.mark.parametrize("words", list(walk(tailgate)), ids=" ".join)
def test_help_says_what_a_command_does_and_shows_it(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(tailgate, [*words, "--help"])
    assert shown.exit_code == 0, shown.output
    _, _, example = shown.output.partition("Example")
    assert re.search(rf"\btailgate {' '.join(words)}\b", example), f"{words} has no example"


def test_the_docs_name_only_commands_and_options_that_exist() -> None:
    seen = 0
    for page in PAGES:
        for block in blocks(page):
            for line in re.findall(r"(?m)^tailgate [^\n]*", block.text.replace("\\\n", " ")):
                words = shlex.split(line, comments=True)[1:]
                words = words[: next((i for i, w in enumerate(words) if w in ">|&;"), None)]
                try:
                    parsed(words)
                except click.UsageError as error:
                    pytest.fail(f"{block.page}:{block.line}: {line}\n{error.format_message()}")
                except click.exceptions.Exit:
                    pass  # --help and --version
                seen += 1
    assert seen > 10


def test_every_exit_code_stands_in_the_docs() -> None:
    from tailgate.exits import Exit

    repo = Path(__file__).parents[2]
    for page in (repo / "README.md", repo / "docs" / "verdicts.md"):
        table = page.read_text()
        for code in Exit:
            assert re.search(rf"(?m)^\|[ 0-9/]*\b{code.value}\b[ 0-9/]*\|", table), (
                f"{page.name}: {code!r}"
            )
