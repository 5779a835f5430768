"""One run of ``lengthwise classify``: open, answer window by window, end well or badly.

Everything that costs nothing is checked by `open_job`, before the model is loaded.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from lengthwise.cli import common, show
from lengthwise.cli.common import STDIO, logger
from lengthwise.cli.progress import Meter, Tracker, meter_for
from lengthwise.errors import Interrupted, OptionError, OutputError, VerificationError
from lengthwise.options import EngineOptions

if TYPE_CHECKING:
    from rich.console import Console

    from lengthwise.engine import Engine, Progress
    from lengthwise.records import Window
    from lengthwise.report import RunReport
    from lengthwise.rows.read import Source
    from lengthwise.rows.write import Sink
    from lengthwise.task import Task


@dataclass(frozen=True, slots=True)
class Request:
    """What the flags of one call say."""

    input: str
    output: str | None
    labels: str | None
    task: Path | None
    text: tuple[str, ...]
    model: str
    input_format: str | None
    output_format: str | None
    encoding: str | None
    delimiter: str | None
    prefix: str
    probabilities: bool
    options: EngineOptions
    report: Path | None


# --- before the model ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """An opened input and output; everything that can be checked without the model is checked.

    ``windows`` can be gone through once; the first one has been read already.
    """

    task: Task
    source: Source
    sink: Sink
    text_columns: tuple[str, ...]
    answer_names: tuple[str, ...]
    probabilities: bool
    rows_on_terminal: bool
    has_rows: bool
    windows: Iterator[Window]


@contextlib.contextmanager
def open_job(request: Request) -> Iterator[Job]:
    """Open input and output; an output that is neither committed nor kept is taken away in the end."""
    from lengthwise.rows.read import open_source  # noqa: PLC0415 - not needed for --help
    from lengthwise.rows.write import answer_columns, open_sink  # noqa: PLC0415

    task = common.task_from(request.labels, request.task)
    output = output_of(request)
    check_paths(request, output)
    names = tuple(label.value for label in task.labels)
    answers = answer_columns(names, prefix=request.prefix, probabilities=request.probabilities)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(
            open_source(
                request.input,
                format=request.input_format,
                encoding=request.encoding,
                delimiter=request.delimiter,
            )
        )
        text_columns = common.text_columns(task, source, request.text)
        windows = source.windows(request.options.window, common.needed_columns(task, text_columns))
        sink = stack.enter_context(
            open_sink(output, source=source, answer_columns=answers, format=request.output_format)
        )
        on_terminal = output == STDIO and sys.stdout.isatty()
        if on_terminal and sink.format == "parquet":
            raise OutputError("Parquet is not for the eye; name a file with -o, or say --output-format csv.")
        yield Job(
            task,
            source,
            sink,
            text_columns,
            tuple(column.name for column in answers),
            request.probabilities,
            on_terminal,
            *peeked(windows),
        )


def peeked(windows: Iterator[Window]) -> tuple[bool, Iterator[Window]]:
    """Whether there is a window, and all of them; the first one is not held longer than the others."""
    first = list(itertools.islice(windows, 1))

    def all_windows() -> Iterator[Window]:
        while first:
            yield first.pop()
        yield from windows

    return bool(first), all_windows()


def output_of(request: Request) -> str:
    """The output's path or ``-``: stdout when asked for, for rows from stdin, and where it is no terminal."""
    if request.output is not None:
        return request.output
    if request.input == STDIO or not sys.stdout.isatty():
        return STDIO
    raise OptionError(
        "the rows have no place to go; name a file with -o labelled.csv, or say -o - to see them."
    )


def check_paths(request: Request, output: str) -> None:
    """OutputError unless output and report can be written, and neither would overwrite a file of this run."""
    taken = [("the input", Path(request.input))] if request.input != STDIO else []
    if request.task is not None:
        taken.append(("the task file", request.task))
    if output != STDIO:
        common.check_apart("the output", Path(output), taken)
        common.check_writable("the output", Path(output))
        taken.append(("the output", Path(output)))
    if request.report is not None:
        if str(request.report) == STDIO:
            raise OutputError("--report - would mix the report with the rows; name a file.")
        common.check_apart("the report", request.report, taken)
        common.check_writable("the report", request.report)


# --- the run -----------------------------------------------------------------------------------------------


def run(request: Request, console: Console, *, quiet: bool) -> None:
    """The whole command. Raises a LengthwiseError for everything that is not a finished run."""
    with open_job(request) as job:
        if not job.has_rows:
            finish_without_rows(job, request)
            return
        engine = load(job, request)
        tracker = Tracker()
        ending = Ending(job, engine, request, console, quiet)
        with Interrupts() as interrupts:
            try:
                with meter_for(console, quiet=quiet, rows_on_terminal=job.rows_on_terminal) as meter:
                    answer_all(job, engine, tracker, meter, interrupts)
                with interrupts.held():
                    job.sink.commit()
            except VerificationError:
                job.sink.abort()
                ending.report("none: the verification failed", "The verification failed.")
                raise
            except KeyboardInterrupt:
                kept = ending.keep()
                ending.report(kept, "Stopped by the user.")
                raise Interrupted(f"stopped by the user; {kept}.") from None
            except OutputError:
                raise
            except Exception:
                if job.sink.rows_written:
                    logger.warning("%s", ending.keep())
                raise
        ending.report(job.sink.name, None)


def load(job: Job, request: Request) -> Engine:
    """The engine for this job, with a line in front, since this may take a while."""
    from lengthwise import prepare  # noqa: PLC0415 - brings torch in the end

    source, columns = job.source, ", ".join(job.text_columns) or "none"
    logger.debug("%s is %s, its text in: %s", source.name, source.format, columns)
    logger.debug("the output %s is %s", job.sink.name, job.sink.format)
    logger.info("loading %s", request.model)
    return prepare.load_engine(job.task, request.model, request.options)


def answer_all(job: Job, engine: Engine, tracker: Tracker, meter: Meter, interrupts: Interrupts) -> None:
    """Answer and write window after window; a Ctrl-C never leaves half a window in the output."""
    from lengthwise.report import answer_cells  # noqa: PLC0415 - brings numpy

    def tell(progress: Progress) -> None:
        tracker.tell(progress)
        meter.show(tracker.pace(), verifying=tracker.verifying)

    engine.on_progress = tell
    engine.start()
    for window in job.windows:
        tracker.begin(len(window), share_read(job, len(window), engine.options.window))
        answers = engine.answer(window, job.text_columns)
        cells = answer_cells(answers, engine.label_names, job.answer_names, probabilities=job.probabilities)
        with interrupts.held():
            job.sink.write(window, cells)
        tracker.end(engine.totals)
        meter.show(tracker.pace())
    warn_of_mismatches(engine)


def warn_of_mismatches(engine: Engine) -> None:
    """``--on-mismatch warn`` goes on to the end, and then says it in red, even when quiet."""
    found = len(engine.totals.mismatches)
    if found:
        compared = engine.totals.proof.compared
        logger.error(
            "%s of %s compared prompts differ from the reference, first row %s; the output is kept",
            f"{found:,}",
            f"{compared:,}",
            engine.totals.mismatches[0]["rows"][0],
        )


def share_read(job: Job, rows: int, window: int) -> float | None:
    """The part of the input that has been read with this window of ``rows`` rows; None when nobody knows."""
    source = job.source
    if source.total_rows:
        return (job.sink.rows_written + rows) / source.total_rows
    if rows < window:  # a window that is not full is the last one
        return 1.0
    return min(1.0, source.bytes_read / source.bytes_total) if source.bytes_total else None


# --- the end -----------------------------------------------------------------------------------------------


def finish_without_rows(job: Job, request: Request) -> None:
    """An input with a header only: an output with a header only, without loading a model."""
    from lengthwise.report import RunReport, RunTotals  # noqa: PLC0415 - brings numpy

    job.sink.commit()
    logger.warning("%s has no rows, so %s has none either", job.source.name, job.sink.name)
    if request.report is not None:
        labels = tuple(label.value for label in job.task.labels)
        report = RunReport(RunTotals(), labels, 0.0, {}, ())
        write_report(request.report, report, job.source.name, job.sink.name, None)


@dataclass(frozen=True, slots=True)
class Ending:
    """What happens after the last window, however the run came there."""

    job: Job
    engine: Engine
    request: Request
    console: Console
    quiet: bool

    def keep(self) -> str:
        """Keep the rows of the finished windows, and say how many there are and where."""
        sink = self.job.sink
        rows = f"{sink.rows_written:,} finished row" + ("" if sink.rows_written == 1 else "s")
        if not sink.rows_written:
            sink.abort()
            return "no row was finished"
        try:
            path = sink.keep_partial()
        except OutputError as error:
            return f"{rows} could not be kept ({error})"
        return f"{rows} went to {sink.name}" if path is None else f"{rows} are in {path}"

    def report(self, output: str, stopped: str | None) -> None:
        """Show the report, and write it where ``--report`` says."""
        report = self.engine.report()
        if self.request.report is not None:
            write_report(self.request.report, report, self.job.source.name, output, stopped)
        if self.quiet:
            for said in report.warnings():
                logger.warning("%s", said)
        else:
            show.show_report(self.console, report, self._outcome(output, stopped))

    def _outcome(self, output: str, stopped: str | None) -> show.Outcome:
        backend = self.engine.backend
        strategy = "sequential" if backend is None else backend.name
        return show.Outcome(strategy, self.engine.options.verify, output, stopped)


def write_report(path: Path, report: RunReport, source: str, output: str, stopped: str | None) -> None:
    """The report as strict JSON. Raises OutputError."""
    run = {"input": source, "output": output, "stopped": stopped}
    text = json.dumps({**run, **report.as_dict()}, ensure_ascii=False, allow_nan=False, indent=2)
    try:
        # half a surrogate pair, as an argument may hold, becomes its JSON escape
        path.write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError as error:
        raise OutputError(f"the report cannot be written to {path} ({error.strerror or error}).") from None


# --- Ctrl-C ------------------------------------------------------------------------------------------------


class Interrupts:
    """The first Ctrl-C stops the run where nothing is half done; a second one ends the process at once."""

    def __init__(self) -> None:
        self._held = False
        self._came = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        in_main = threading.current_thread() is threading.main_thread()
        # a handler of somebody else, or none (nohup), stays
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A Ctrl-C in here is raised when the block is left."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came:
            raise KeyboardInterrupt

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._came = True
        if not self._held:
            raise KeyboardInterrupt
