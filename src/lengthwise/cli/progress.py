"""How far a run is: a bar where stderr is a terminal, a plain line every ten seconds where it is not.

Time left is reckoned in computed tokens, not in rows: a row that shares everything with its neighbours
costs next to nothing, one long row may cost as much as hundreds of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from lengthwise.cli.common import logger

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from lengthwise.engine import Progress
    from lengthwise.report import RunTotals

LINE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """A moment of a run. What is not known yet is None; ``share`` is the part of the work done, 0 to 1.

    ``tokens_per_second`` are raw tokens, as in the report. They are counted when a window is done; until
    the first one is, there is only ``computed_per_second``, what goes through the model.
    """

    rows: int
    tokens_per_second: float | None
    computed_per_second: float | None
    share: float | None
    seconds_left: float | None


class Tracker:
    """Adds up what the engine tells, window by window.

    ``share_read`` of `begin` is the part of the input that has been read with this window (None: not
    known, as for a pipe): all windows so far cost ``computed`` tokens, so the whole costs
    computed / share_read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._share_read: float | None = None
        self._before = 0
        self._done = 0
        self._planned = 0
        self._raw = 0
        self._rows = 0
        self._window_rows = 0
        self.verifying = False

    def begin(self, rows: int, share_read: float | None) -> None:
        """A window of ``rows`` rows is about to be answered."""
        self._window_rows, self._share_read = rows, share_read
        self._done = self._planned = 0
        self.verifying = False

    def tell(self, progress: Progress) -> None:
        """What the engine says while it works on the window; never goes backwards."""
        self._planned = max(self._planned, progress.tokens_planned)
        self._done = max(self._done, progress.tokens_done)
        self.verifying = progress.verifying

    def end(self, totals: RunTotals) -> None:
        """The window is answered and written."""
        self._before += self._planned
        self._rows, self._raw = totals.rows, totals.ledger.raw
        self._done = self._planned = self._window_rows = 0

    def pace(self) -> Pace:
        """The run as it stands now."""
        elapsed = self._clock() - self._started
        fraction = self._done / self._planned if self._planned else 0.0
        done = self._before + self._done
        whole = (self._before + self._planned) / self._share_read if self._share_read else None
        rows = self._rows + int(self._window_rows * fraction)
        return Pace(
            rows=rows,
            tokens_per_second=self._raw_tokens(fraction) / elapsed if self._raw and elapsed else None,
            computed_per_second=done / elapsed if done and elapsed else None,
            share=min(1.0, done / whole) if whole else None,
            seconds_left=max(0.0, whole - done) * elapsed / done if whole and done else None,
        )

    def _raw_tokens(self, fraction: float) -> float:
        """Tokens answered, the window in work counted with the tokens that earlier rows had on average."""
        return self._raw * (1 + fraction * self._window_rows / self._rows)


def pace_text(pace: Pace) -> str:
    """``4,096 rows, 1,240 tokens/s, about 3 min left``, without what is not known yet."""
    parts = [f"{pace.rows:,} rows"]
    if pace.tokens_per_second is not None:
        parts.append(f"{pace.tokens_per_second:,.0f} tokens/s")
    elif pace.computed_per_second is not None:
        parts.append(f"{pace.computed_per_second:,.0f} tokens/s computed")
    if pace.seconds_left is not None and pace.seconds_left >= 1:
        parts.append(f"about {duration(pace.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """``42 s``, ``3 min``, ``2 h 05 min``: as much as an estimate is worth."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


class Meter(Protocol):
    """Shows a run's pace; used as a context manager around the run."""

    def __enter__(self) -> Meter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, pace: Pace, *, verifying: bool = False) -> None:
        """Draw the pace; cheap enough to be called for every pack."""
        ...


class SilentMeter:
    """Shows nothing: ``--quiet``."""

    def __enter__(self) -> SilentMeter:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def show(self, pace: Pace, *, verifying: bool = False) -> None:
        """Nothing."""


class LineMeter(SilentMeter):
    """A log line at most every ten seconds; short runs stay silent."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def show(self, pace: Pace, *, verifying: bool = False) -> None:
        now = self._clock()
        if now - self._last >= LINE_EVERY_S:
            self._last = now
            logger.info("%s", pace_text(pace) + (", comparing with the reference" if verifying else ""))


class BarMeter:
    """A bar that is taken away when the run ends."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

        spinner = "dots" if console.encoding.startswith("utf") else "line"
        self._bar: Bar = Progress(
            SpinnerColumn(spinner),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[pace]}"),
            console=console,
            transient=True,
            redirect_stdout=False,
            expand=True,
        )
        self._task: TaskID = self._bar.add_task("labelling", total=None, pace="")

    def __enter__(self) -> BarMeter:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def show(self, pace: Pace, *, verifying: bool = False) -> None:
        self._bar.update(
            self._task,
            description="comparing" if verifying else "labelling",
            total=None if pace.share is None else 1.0,
            completed=pace.share or 0.0,
            pace=pace_text(pace),
        )


def meter_for(console: Console, *, quiet: bool, rows_on_terminal: bool) -> Meter:
    """A bar for a terminal that the rows do not go to, lines for everything else, nothing when quiet."""
    if quiet:
        return SilentMeter()
    if console.file.isatty() and not console.is_dumb_terminal and not rows_on_terminal:
        return BarMeter(console)
    return LineMeter()
