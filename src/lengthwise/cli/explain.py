"""``lengthwise explain``: one row's prompt, tokens, labels and scores, for people who debug prompts.

All numbers come from the reference, so they hold for every strategy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli import common
from lengthwise.cli.common import ROWS, SAYING, logger
from lengthwise.cli.show_explanation import show_explanation
from lengthwise.errors import InputError, OptionError
from lengthwise.options import EngineOptions

if TYPE_CHECKING:
    from lengthwise.engine import Engine
    from lengthwise.records import Answers, TokenIds, Window
    from lengthwise.task import Task

EPILOG = """\b
Examples:
  lengthwise explain tickets.csv --row 17 --task task.toml
  lengthwise explain tickets.csv --row 17 --task task.toml --model smollm2-135m --json
  lengthwise explain --text-value "I was charged twice" --labels billing,technical,account"""

DEFAULTS = EngineOptions()


def explain(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="The rows, as for classify; - reads stdin; left out with --text-value.",
            rich_help_panel=ROWS,
            show_default=False,
        ),
    ] = None,
    labels: common.LabelsFlag = None,
    task: common.TaskFlag = None,
    text: common.TextFlag = None,
    row: Annotated[
        int,
        typer.Option(
            "--row",
            "-r",
            metavar="N",
            min=1,
            help="Which row; the first is 1. E.g. --row 17",
            rich_help_panel=ROWS,
        ),
    ] = 1,
    text_value: Annotated[
        str | None,
        typer.Option(
            "--text-value",
            metavar="TEXT",
            help='Explain this text instead of a row of a file. E.g. --text-value "I was charged twice"',
            rich_help_panel=ROWS,
            show_default=False,
        ),
    ] = None,
    input_format: common.InputFormatFlag = None,
    encoding: common.EncodingFlag = None,
    delimiter: common.DelimiterFlag = None,
    model: common.ModelFlag = common.DEFAULT_MODEL,
    threads: common.ThreadsFlag = None,
    device: common.DeviceFlag = DEFAULTS.device,
    dtype: common.DtypeFlag = DEFAULTS.dtype,
    max_length: common.MaxLengthFlag = None,
    on_long: common.OnLongFlag = DEFAULTS.on_long,
    as_json: Annotated[
        bool, typer.Option("--json", help="Give everything as JSON, for programs.", rich_help_panel=SAYING)
    ] = False,
    verbose: common.VerboseFlag = False,
) -> None:
    """Show how one row is asked and answered.

    That is its prompt, its tokens with those that all rows share in [[ ]], each label's tokens, and the
    scores of plain one-by-one execution.
    """
    common.set_up_logging(quiet=not verbose, verbose=verbose)
    options = EngineOptions(
        strategy="sequential",
        verify="none",
        device=device,
        dtype=dtype,
        threads=threads,
        max_length=max_length,
        on_long=on_long,
    )
    asked = common.task_from(labels, task)
    if (source is None) == (text_value is None):
        raise OptionError('give either an input file or --text-value "some text".')
    if source is None:
        found = given_text(asked, str(text_value))
    else:
        found = row_of_file(asked, source, row, text or (), input_format, encoding, delimiter)
    explanation = explained(load(asked, model, options), found)
    print_json(explanation) if as_json else print_text(explanation)


# --- finding the row -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A window of one row. ``place`` says where it is from, ``alike`` which rows near it hold the same."""

    window: Window
    text_columns: tuple[str, ...]
    place: str
    alike: tuple[int, ...] = ()


def given_text(task: Task, text: str) -> Found:
    """A text from the command line; OptionError when the template needs columns too."""
    from lengthwise.records import Window  # noqa: PLC0415 - brings numpy

    if task.columns:
        raise OptionError(
            f"the task's template needs the columns {', '.join(task.columns)}; give a file and --row instead "
            "of --text-value."
        )
    return Found(Window(0, {"text": [text]}, (1,)), ("text",), "the given text")


def row_of_file(
    task: Task,
    path: str,
    row: int,
    requested: Sequence[str],
    input_format: str | None,
    encoding: str | None,
    delimiter: str | None,
) -> Found:
    """Row ``row`` of the input, counted from 1; InputError when there are fewer."""
    from lengthwise.rows.read import open_source  # noqa: PLC0415 - not needed for --help

    rows = 0
    with open_source(path, format=input_format, encoding=encoding, delimiter=delimiter) as source:
        text_columns = common.text_columns(task, source, requested)
        for window in source.windows(DEFAULTS.window, common.needed_columns(task, text_columns)):
            rows += len(window)
            if row <= rows:
                return one_row(window, row - 1 - window.first_row, text_columns, source.name)
        has = "1 row" if rows == 1 else f"{rows:,} rows"
        raise InputError(f"{source.name} has {has}; there is no row {row:,}, take one of these.")


def one_row(window: Window, place: int, text_columns: tuple[str, ...], name: str) -> Found:
    """The row at ``place`` of the window, with the numbers of the window's rows that hold the same."""
    from lengthwise.records import Window  # noqa: PLC0415 - brings numpy

    rows = list(zip(*window.cells.values(), strict=True))
    first, line = window.first_row, window.line_numbers[place]
    alike = tuple(first + i + 1 for i, cells in enumerate(rows) if cells == rows[place] and i != place)
    cells = {column: [values[place]] for column, values in window.cells.items()}
    said = f"row {first + place + 1:,} of {name} (line {line:,})"
    return Found(Window(first + place, cells, (line,)), text_columns, said, alike)


def load(task: Task, model: str, options: EngineOptions) -> Engine:
    """The engine, with a line in front when verbose."""
    from lengthwise import prepare  # noqa: PLC0415 - brings torch in the end

    logger.info("loading %s", model)
    return prepare.load_engine(task, model, options)


# --- what there is to say ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """A token and what it adds to the text."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class ExplainedLabel:
    """A label's tokens, of which the first ``scored`` count; scores are None for a row without an answer.

    ``sum`` is the log-probability of the scored tokens over the full vocabulary, ``log_probability`` and
    ``probability`` are over the labels, after normalisation and calibration.
    """

    label: str
    tokens: tuple[Piece, ...]
    scored: int
    sum: float | None
    log_probability: float | None
    probability: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one row. ``head`` is how many tokens at the prompt's beginning all rows share."""

    place: str
    status: str
    same_text_rows: tuple[int, ...]
    prompt: str
    tokens: tuple[Piece, ...]
    head: int
    rule: str
    terminator: Piece | None
    normalize: str
    calibrate: str
    labels: tuple[ExplainedLabel, ...]
    answer: str | None
    margin: float | None
    tied: bool
    label_mass: float | None
    setup: dict[str, Any]
    notes: tuple[str, ...]


def explained(engine: Engine, found: Found) -> Explanation:
    """Ask the reference about the row and put everything together."""
    prepared, task = engine.prepared, engine.prepared.task
    encoded = engine.encode(found.window, found.text_columns)
    prompt: TokenIds = encoded.prompts[0] if encoded.prompts else ()
    engine.start()
    answers = engine.answer(found.window, found.text_columns)
    decided = int(answers.label[0])
    terminator = prepared.labels.terminator
    return Explanation(
        place=found.place,
        status=answers.status[0],
        same_text_rows=found.alike,
        prompt=engine.encoder.decode(prompt),
        tokens=pieces(engine, prompt),
        head=len(prepared.head) if prompt[: len(prepared.head)] == prepared.head else 0,
        rule=prepared.labels.rule,
        terminator=None if terminator is None else pieces(engine, (terminator,))[0],
        normalize=task.normalize,
        calibrate=task.calibrate,
        labels=explained_labels(engine, prompt, answers),
        answer=engine.label_names[decided] if decided >= 0 else None,
        margin=float(answers.margin[0]) if decided >= 0 else None,
        tied=bool(answers.tied[0]),
        label_mass=float(answers.mass[0]) if decided >= 0 else None,
        setup=dict(engine.setup),
        notes=prepared.notes,
    )


def pieces(engine: Engine, ids: TokenIds) -> tuple[Piece, ...]:
    """Token numbers with what each adds to the text."""
    return tuple(Piece(int(i), text) for i, text in zip(ids, engine.encoder.pieces(ids), strict=True))


def explained_labels(engine: Engine, prompt: TokenIds, answers: Answers) -> tuple[ExplainedLabel, ...]:
    """Each label with its tokens and what the reference gives it."""
    import numpy as np  # noqa: PLC0415 - not needed for --help

    labels, decided = engine.prepared.labels, int(answers.label[0]) >= 0
    sums = engine.reference.score(prompt, labels.scored) if decided else None
    return tuple(
        ExplainedLabel(
            label=name,
            tokens=pieces(engine, labels.tokens[k]),
            scored=len(labels.scored[k]),
            sum=None if sums is None else float(sums[k]),
            log_probability=float(answers.log_probs[0, k]) if decided else None,
            probability=float(np.exp(answers.log_probs[0, k])) if decided else None,
        )
        for k, name in enumerate(engine.label_names)
    )


# --- saying it -------------------------------------------------------------------------------------------


def print_json(explanation: Explanation) -> None:
    """The whole explanation on stdout; ASCII, so that it survives every locale."""
    typer.echo(json.dumps(asdict(explanation), allow_nan=False, indent=2))


def print_text(explanation: Explanation) -> None:
    """The explanation on stdout for people."""
    from rich.console import Console  # noqa: PLC0415 - not needed for --help

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # prompts hold any script, locales may not
    show_explanation(Console(), explanation)
