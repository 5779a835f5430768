"""The command line: one module a command; parse, call, print.

`main` is the only place where an error becomes words and an exit code.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lengthwise.cli import classify, explain, models
from lengthwise.cli.common import GroupedCommand, own_logging, say_error
from lengthwise.errors import LengthwiseError
from lengthwise.version import __version__

UNEXPECTED, INTERRUPTED, BROKEN_PIPE = 1, 130, 141
"""Exit codes that no LengthwiseError has; 141 is what a program ended by SIGPIPE gives."""

DEBUG = "LENGTHWISE_DEBUG"
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

EPILOG = """\b
Examples:
  lengthwise classify tickets.csv --labels billing,technical,account -o labelled.csv
  cat tickets.jsonl | lengthwise classify - --text body --task task.toml > labelled.jsonl
  lengthwise explain tickets.csv --row 17 --task task.toml
  lengthwise models pull smollm2-135m

Exit codes: 0 done, 1 unexpected, 2 usage or configuration, 3 input or output, 4 verification failed,
130 interrupted."""

app = typer.Typer(
    name="lengthwise",
    add_completion=False,
    context_settings=HELP,
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("classify", cls=GroupedCommand, context_settings=HELP, epilog=classify.EPILOG)(classify.classify)
app.command("explain", cls=GroupedCommand, context_settings=HELP, epilog=explain.EPILOG)(explain.explain)
app.add_typer(models.app, name="models", context_settings=HELP)


def _say_version(wished: bool) -> None:
    if wished:
        typer.echo(f"lengthwise {__version__}")
        raise typer.Exit


@app.callback()
def lengthwise(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and stop."),
    ] = False,
) -> None:
    """Label thousands of short texts with a small language model.

    Fast, and with proof that speed changed no answer.
    """


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code; every error becomes one line on stderr."""
    try:
        with own_logging():
            code = _invoke(list(arguments) or ["--help"])
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        code = _failed(error)
    return code


def _invoke(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("lengthwise", arguments) as context:
            command.invoke(context)
    except typer.Exit as finished:
        return finished.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _usage(error)
    return 0


def _usage(error: Any) -> int:
    """Typer's own complaints. Their classes lie in click or in typer, depending on the version."""
    message = error.format_message()
    if message.startswith("Usage:"):  # a group without a command: the help is the message
        typer.echo(message, err=True)
    else:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "lengthwise"
        say_error(f"{message.rstrip('.')}; see `{path} --help`.")
    return int(error.exit_code)


def _failed(error: BaseException) -> int:
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, BrokenPipeError):
        _leave_stdout()
        return BROKEN_PIPE
    code, message = _verdict(error)
    say_error(message)
    return code


def _verdict(error: BaseException) -> tuple[int, str]:
    """Exit code and sentence for an error."""
    if isinstance(error, LengthwiseError):
        return error.exit_code, str(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED, "stopped by the user."
    if isinstance(error, MemoryError):
        return UNEXPECTED, "there is no memory left; take a smaller --window or --max-batch-tokens."
    return UNEXPECTED, (
        f"this is a bug in lengthwise ({type(error).__name__}: {error}); run it again with {DEBUG}=1 "
        "for the traceback, and please report it."
    )


def _leave_stdout() -> None:
    """Nobody reads stdout any more: let Python's own flush at exit go nowhere instead of complaining."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
