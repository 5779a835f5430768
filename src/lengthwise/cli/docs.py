"""``python -m lengthwise.cli.docs`` prints docs/cli.md: what the commands themselves say as help."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from lengthwise.cli import app

WIDTH = 100
INTRODUCTION = """# The command line

This page is made from the commands themselves: `python -m lengthwise.cli.docs > docs/cli.md`.
A test fails when it has fallen behind.

stdout carries data only (labelled rows, explanations, paths); progress, notes and the report go to stderr.
One line on stderr says what went wrong, and the exit code says of which kind it is:

| exit code | meaning |
|---|---|
| 0 | done; single rows may still have another status than `ok`, which the report counts |
| 1 | unexpected: a bug of lengthwise, or no memory left (`LENGTHWISE_DEBUG=1` shows the traceback) |
| 2 | usage, configuration, task or model |
| 3 | input or output |
| 4 | verification failed: there is no output |
| 130 | interrupted with Ctrl-C: the rows of the finished windows are kept in `OUT.partial` |
| 141 | whoever read stdout stopped reading |
"""


def markdown() -> str:
    """The whole page."""
    pages = [
        f"## {name}\n\n```text\n{text}\n```\n" for name, text in helps(typer.main.get_command(app), None)
    ]
    return "\n".join([INTRODUCTION, *pages])


def helps(command: Any, parent: Any) -> Iterator[tuple[str, str]]:
    """Name and help of a command and all commands in it, at a fixed width."""
    context = command.make_context(
        command.name,
        [],
        parent=parent,
        resilient_parsing=True,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
    )
    yield context.command_path, "\n".join(line.rstrip() for line in context.get_help().splitlines())
    for inner in getattr(command, "commands", {}).values():
        yield from helps(inner, context)


if __name__ == "__main__":
    sys.stdout.write(markdown())
