"""``lengthwise models list | pull | path``: see and fetch models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lengthwise.models import ModelRecord

app = typer.Typer(help="See, fetch and find models.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Hub id owner/name[@revision], folder, .gguf file or built-in name."
    ),
]


@app.command(name="list")
def list_command() -> None:
    """Show the built-in models and the models on this machine."""
    from lengthwise.models import list_models  # noqa: PLC0415 - keeps --help fast

    records = list_models()
    if sys.stdout.isatty():
        _print_table(records)
    else:
        for record in records:
            typer.echo("\t".join(_cells(record)))


@app.command()
def pull(name: Name) -> None:
    """Fetch a model unless it is here, make it ready to load, and print its folder."""
    from lengthwise import models  # noqa: PLC0415 - keeps --help fast
    from lengthwise.backends.convert import loadable_folder  # noqa: PLC0415

    typer.echo(loadable_folder(models.pull(name)))


@app.command()
def path(name: Name) -> None:
    """Print the folder that a run with this model loads."""
    from lengthwise import models  # noqa: PLC0415 - keeps --help fast

    typer.echo(models.path(name))


HEADINGS = ("name", "kind", "size", "state", "where")


def _cells(record: ModelRecord) -> tuple[str, str, str, str, str]:
    size = "-" if record.size is None else f"{record.size / 1e6:.0f} MB"
    where = "-" if record.path is None else str(record.path)
    return record.name, record.kind, size, _state(record), where


def _state(record: ModelRecord) -> str:
    if record.path is None:
        return "not fetched"
    return "not converted" if record.converted is False else "ready"


def _print_table(records: Sequence[ModelRecord]) -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        # long paths wrap instead of losing their ends
        table.add_column(heading, overflow="fold", justify="right" if heading == "size" else "left")
    for record in records:
        table.add_row(*(Text(cell) for cell in _cells(record)))  # as Text, brackets in paths are no markup
    Console().print(table)
