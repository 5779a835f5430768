"""``lengthwise classify``: a file of texts in, a label for every row out. The flags; the run is in `job`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli import common, job
from lengthwise.cli.common import PROOF, ROWS, SAYING, SPEED
from lengthwise.options import EngineOptions

EPILOG = """\b
Examples:
  lengthwise classify tickets.csv --labels billing,technical,account -o labelled.csv
  lengthwise classify tickets.csv --task task.toml --text subject --text body -o labelled.parquet
  cat tickets.jsonl | lengthwise classify - --text body --task task.toml > labelled.jsonl
  lengthwise classify big.csv.gz --task task.toml --verify 500 --report report.json -o out.csv.gz"""

DEFAULTS = EngineOptions()


def classify(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="The rows: a .csv, .tsv, .jsonl or .parquet file, also .gz; - reads stdin.",
            rich_help_panel=ROWS,
            show_default=False,
        ),
    ],
    labels: common.LabelsFlag = None,
    task: common.TaskFlag = None,
    text: common.TextFlag = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where the labelled rows go; - is stdout, which is also taken when it is no terminal. "
            "E.g. -o labelled.csv",
            rich_help_panel=ROWS,
            show_default=False,
        ),
    ] = None,
    input_format: common.InputFormatFlag = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--output-format",
            metavar="FORMAT",
            help="Format of the output; left out, its name tells, and stdout gets the input's format. "
            "E.g. --output-format jsonl",
            rich_help_panel=ROWS,
            show_default=False,
        ),
    ] = None,
    encoding: common.EncodingFlag = None,
    delimiter: common.DelimiterFlag = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix",
            metavar="TEXT",
            help="Put in front of the names of the new columns; the default is nothing. E.g. --prefix lw_",
            rich_help_panel=ROWS,
            show_default=False,
        ),
    ] = "",
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities", help="Add one column a label with its probability.", rich_help_panel=ROWS
        ),
    ] = False,
    model: common.ModelFlag = common.DEFAULT_MODEL,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="packed|bucketed|sequential",
            help="Share beginnings and pad nothing, pad rows of similar length, or run rows one by one. "
            "E.g. --strategy sequential",
            rich_help_panel=SPEED,
        ),
    ] = DEFAULTS.strategy,
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size",
            metavar="ROWS",
            help="Most rows in a bucket (--strategy bucketed). E.g. --batch-size 16",
            rich_help_panel=SPEED,
        ),
    ] = DEFAULTS.batch_size,
    max_batch_tokens: Annotated[
        int,
        typer.Option(
            "--max-batch-tokens",
            metavar="TOKENS",
            help="Most tokens that go through the model at once; fewer take less memory. "
            "E.g. --max-batch-tokens 512",
            rich_help_panel=SPEED,
        ),
    ] = DEFAULTS.max_batch_tokens,
    window: Annotated[
        int,
        typer.Option(
            "--window",
            metavar="ROWS",
            help="Rows that are read, answered and written at a time; more can share more. "
            "E.g. --window 1000",
            rich_help_panel=SPEED,
        ),
    ] = DEFAULTS.window,
    threads: common.ThreadsFlag = None,
    device: common.DeviceFlag = DEFAULTS.device,
    dtype: common.DtypeFlag = DEFAULTS.dtype,
    max_length: common.MaxLengthFlag = None,
    on_long: common.OnLongFlag = DEFAULTS.on_long,
    verify: Annotated[
        str,
        typer.Option(
            "--verify",
            metavar="sample|all|none|N",
            help="How many distinct prompts are run again one by one and compared; sample is 1%, 10 to 100. "
            "E.g. --verify 500",
            rich_help_panel=PROOF,
        ),
    ] = str(DEFAULTS.verify),
    on_mismatch: Annotated[
        str,
        typer.Option(
            "--on-mismatch",
            metavar="fail|warn",
            help="A row differs from one-by-one execution: give no output and exit 4, or only warn. "
            "E.g. --on-mismatch warn",
            rich_help_panel=PROOF,
        ),
    ] = DEFAULTS.on_mismatch,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Write the whole report as JSON, with versions and machine. E.g. --report report.json",
            rich_help_panel=SAYING,
            show_default=False,
        ),
    ] = None,
    quiet: common.QuietFlag = False,
    verbose: common.VerboseFlag = False,
) -> None:
    """Give every row of INPUT a label.

    Every row also gets the label's probability, its margin over the second best, and a status. The
    input's own columns stay as they are, in their order. Progress and report go to stderr; stdout carries
    rows only.
    """
    console = common.stderr_console()
    common.set_up_logging(console, quiet=quiet, verbose=verbose)
    options = EngineOptions(
        strategy=strategy,
        batch_size=batch_size,
        max_batch_tokens=max_batch_tokens,
        device=device,
        dtype=dtype,
        threads=threads,
        window=window,
        max_length=max_length,
        on_long=on_long,
        verify=verify,
        on_mismatch=on_mismatch,
    )
    request = job.Request(
        input=source,
        output=output,
        labels=labels,
        task=task,
        text=tuple(text or ()),
        model=model,
        input_format=input_format,
        output_format=output_format,
        encoding=encoding,
        delimiter=delimiter,
        prefix=prefix,
        probabilities=probabilities,
        options=options,
        report=report,
    )
    job.run(request, console, quiet=quiet)
