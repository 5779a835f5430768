"""What the commands share: their flags, what they say on stderr, the checks of paths.

Light on purpose: everything here is imported for ``lengthwise --help``.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from lengthwise.errors import OptionError, OutputError, TaskError, suggestion

if TYPE_CHECKING:
    from rich.console import Console

    from lengthwise.rows.read import Source
    from lengthwise.task import Task

STDIO = "-"
DEFAULT_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
"""The same as ``models.DEFAULT_MODEL`` (a test holds them together), without the import."""

logger = logging.getLogger("lengthwise")

# --- flags ---------------------------------------------------------------------------------------------

TASK, ROWS, SPEED = "What is asked", "Rows in and out", "Model and speed"
PROOF, SAYING, OTHER = "Proof", "What is said", "Other"

LabelsFlag = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="A,B,C",
        help="The labels, separated by commas; asks the default question. "
        "E.g. --labels billing,technical,account",
        rich_help_panel=TASK,
        show_default=False,
    ),
]
TaskFlag = Annotated[
    Path | None,
    typer.Option(
        "--task",
        metavar="FILE",
        help="A task file (TOML) with instructions, labels, template and examples. E.g. --task task.toml",
        rich_help_panel=TASK,
        show_default=False,
    ),
]
TextFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        "-t",
        metavar="NAME",
        help="Column with the text; several are joined; left out, it is guessed where that is obvious. "
        "E.g. --text subject --text body",
        rich_help_panel=TASK,
        show_default=False,
    ),
]
InputFormatFlag = Annotated[
    str | None,
    typer.Option(
        "--format",
        "--input-format",
        metavar="FORMAT",
        help="Format of the input: csv, tsv, jsonl or parquet; left out, its name or its first bytes tell. "
        "E.g. --format jsonl",
        rich_help_panel=ROWS,
        show_default=False,
    ),
]
EncodingFlag = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of the input; left out, UTF-8, or what a byte order mark says. E.g. --encoding cp1252",
        rich_help_panel=ROWS,
        show_default=False,
    ),
]
DelimiterFlag = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        help="Column separator of a CSV input; left out, the header tells. E.g. --delimiter ';'",
        rich_help_panel=ROWS,
        show_default=False,
    ),
]
ModelFlag = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A hub id, a folder, a .gguf file or a built-in name. E.g. --model smollm2-135m",
        rich_help_panel=SPEED,
    ),
]
DeviceFlag = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda|mps",
        help="Where the model runs; auto takes an accelerator when there is one. E.g. --device cpu",
        rich_help_panel=SPEED,
    ),
]
DtypeFlag = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="auto|float32|bfloat16|float16",
        help="Number format of the model; auto takes float32 on CPUs. E.g. --dtype bfloat16",
        rich_help_panel=SPEED,
    ),
]
ThreadsFlag = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="CPU threads; left out, as many as this process may really use. E.g. --threads 4",
        rich_help_panel=SPEED,
        show_default=False,
    ),
]
MaxLengthFlag = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        metavar="TOKENS",
        help="Longest prompt; left out, what the model can take. E.g. --max-length 1024",
        rich_help_panel=SPEED,
        show_default=False,
    ),
]
OnLongFlag = Annotated[
    str,
    typer.Option(
        "--on-long",
        metavar="truncate|error|skip",
        help="A longer row: cut its text, stop the run, or leave it without a label. E.g. --on-long skip",
        rich_help_panel=SPEED,
    ),
]
QuietFlag = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Say only warnings and errors: no progress, no report.", rich_help_panel=SAYING
    ),
]
VerboseFlag = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Say more on the way: files, model, versions.", rich_help_panel=SAYING
    ),
]


class GroupedCommand(TyperCommand):
    """A command whose help shows its parameters in groups, in the order of each group's first one."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or OTHER, []).append(record)
        for title in sorted(groups, key=lambda title: title == OTHER):
            with formatter.section(title):
                formatter.write_dl(groups[title])


# --- saying --------------------------------------------------------------------------------------------


def stderr_console() -> Console:
    """The console for people; without colours where stderr is no terminal, is dumb, or NO_COLOR is set."""
    from rich.console import Console  # noqa: PLC0415 - not needed for --help

    return Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


STYLES = {logging.WARNING: ("yellow", "warning: "), logging.ERROR: ("bold red", "")}


Line = str | Sequence[str | tuple[str, str]]
"""A line of words for people: plain, or in parts, of which some have a style: ``("done", "bold")``."""


def print_lines(console: Console, lines: Iterable[Line]) -> None:
    """Print lines as they are: brackets are no markup, and control characters are made visible."""
    from rich.text import Text  # noqa: PLC0415 - not needed for --help

    for line in lines:
        parts = [line] if isinstance(line, str) else line
        styled = [(part, "") if isinstance(part, str) else part for part in parts]
        text = Text.assemble(*((visible(words), style) for words, style in styled))
        console.print(text, highlight=False, soft_wrap=True, emoji=False)


class ConsoleHandler(logging.Handler):
    """Writes log records as ``lengthwise: ...`` lines, above a bar that is on the same console."""

    def __init__(self, console: Console | None) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        style, word = STYLES.get(record.levelno, ("", ""))
        console = self._console or stderr_console()
        console.print(f"lengthwise: {word}{one_line(record.getMessage())}", style=style, markup=False)


def set_up_logging(console: Console | None = None, *, quiet: bool = False, verbose: bool = False) -> None:
    """Notes go to ``console`` (None: stderr) and nowhere else."""
    logger.handlers[:] = [ConsoleHandler(console)]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)


@contextlib.contextmanager
def own_logging() -> Iterator[None]:
    """Notes go to stderr in here; afterwards the logger is as a program around this one had it."""
    before = list(logger.handlers), logger.propagate, logger.level
    set_up_logging()
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = before[:2]
        logger.setLevel(before[2])


def say_error(message: str) -> None:
    """One line on stderr; the last thing a failed command says."""
    console = stderr_console()
    console.print("lengthwise: [bold red]error:[/] ", end="")
    console.print(one_line(message), markup=False)


def one_line(message: str) -> str:
    """The message without line breaks and control characters, which texts and file names may bring along."""
    return visible(" ".join(message.split()))


def visible(text: str) -> str:
    """The text with control and other unprintable characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# --- task and paths ------------------------------------------------------------------------------------


def task_from(labels: str | None, task_file: Path | None) -> Task:
    """The task that the flags name; OptionError unless exactly one of them is given."""
    from lengthwise.task import Task, load_task  # noqa: PLC0415 - not needed for --help

    both = "--labels billing,technical,account for the default question, or --task task.toml for your own"
    if labels is not None and task_file is not None:
        raise OptionError(f"--labels and --task are both given; take one: {both}.")
    if task_file is not None:
        return load_task(task_file)
    if labels is not None:
        return Task.from_labels(labels)
    raise OptionError(f"there are no labels; give {both}.")


def text_columns(task: Task, source: Source, requested: Sequence[str]) -> tuple[str, ...]:
    """The columns for the template's {text}, none when it has no such place.

    OptionError for a column that is not there or not clear, TaskError when the template names another
    column that is not there.
    """
    from lengthwise.rows.read import choose_text_columns  # noqa: PLC0415 - not needed for --help

    for name in task.columns:
        if name not in source.columns:
            found = ", ".join(source.columns) or "none"
            raise TaskError(
                f"the task's template needs a column {name!r}, but {source.name} has: {found}"
                f"{suggestion(name, source.columns) or '.'}"
            )
    if task.uses_text:
        return choose_text_columns(source.columns, requested, source.name)
    if requested:
        raise OptionError(
            "--text is given, but the task's template has no {text}; leave it away or add {text}."
        )
    return ()


def needed_columns(task: Task, text_columns: Sequence[str]) -> tuple[str, ...]:
    """All columns that a prompt is made from, each once."""
    return tuple(dict.fromkeys((*text_columns, *task.columns)))


def check_writable(what: str, path: Path) -> None:
    """OutputError when ``path`` cannot become a file; nothing is written."""
    if path.is_dir():
        raise OutputError(f"{what} {path} is a folder; name a file in it.")
    folder = path.parent
    if not folder.is_dir():
        raise OutputError(f"{what} cannot be written to {path}: there is no folder {folder}; make it first.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OutputError(f"{what} may not be written to {path}; name another place or change that.")


def check_apart(what: str, path: Path, others: Iterable[tuple[str, Path]]) -> None:
    """OutputError when ``path`` is one of the other files, also by way of a link."""
    for name, other in others:
        try:
            same = path.resolve() == other.resolve() or (path.is_file() and path.samefile(other))
        except OSError:
            continue  # one of them is not there or cannot be looked at; opening it says why
        if same:
            raise OutputError(f"{what} {path} is also {name}; name another file.")
