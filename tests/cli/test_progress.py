"""Pace, estimates and who is shown what."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lengthwise.cli.common import logger
from lengthwise.cli.progress import (
    BarMeter,
    LineMeter,
    Pace,
    SilentMeter,
    Tracker,
    duration,
    meter_for,
    pace_text,
)
from lengthwise.engine import Progress
from lengthwise.report import Ledger, RunTotals


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def told(done: int, planned: int) -> Progress:
    return Progress(rows_before=0, window_rows=0, tokens_done=done, tokens_planned=planned)


def test_time_left_is_reckoned_in_tokens() -> None:
    """A quarter of the input is read and 10 s did half of its tokens: 70 s are left, however many rows."""
    clock = Clock()
    tracker = Tracker(clock)
    tracker.begin(rows=100, share_read=0.25)
    tracker.tell(told(500, 1000))
    clock.now += 10
    assert tracker.pace() == Pace(
        rows=50, tokens_per_second=None, computed_per_second=50.0, share=0.125, seconds_left=70.0
    )


def test_raw_tokens_a_second_from_the_second_window_on() -> None:
    """Finished windows count as the engine says, the one in work by the average of the rows before it."""
    clock = Clock()
    tracker = Tracker(clock)
    tracker.begin(rows=100, share_read=0.5)
    tracker.tell(told(1000, 1000))
    tracker.end(RunTotals(rows=100, ledger=Ledger(raw=8000)))
    tracker.begin(rows=100, share_read=1.0)
    tracker.tell(told(500, 1000))
    clock.now += 10
    pace = tracker.pace()
    assert (pace.rows, pace.tokens_per_second, pace.share, pace.seconds_left) == (150, 1200.0, 0.75, 10 / 3)


def test_nothing_is_claimed_before_anything_is_known() -> None:
    """At the start, and for a pipe whose length nobody knows, there is no share and no time left."""
    clock = Clock()
    tracker = Tracker(clock)
    assert tracker.pace() == Pace(0, None, None, None, None)
    tracker.begin(rows=10, share_read=None)
    tracker.tell(told(5, 10))
    clock.now += 1
    assert tracker.pace() == Pace(5, None, 5.0, None, None)


def test_the_window_in_work_never_goes_backwards() -> None:
    """The engine counts rows that run alone from zero again; the bar stays where it is."""
    tracker = Tracker(Clock())
    tracker.begin(rows=10, share_read=1.0)
    tracker.tell(told(80, 100))
    tracker.tell(told(1, 5))
    assert tracker.pace().share == 0.8


def test_the_comparison_is_shown_until_the_next_window() -> None:
    """While the reference runs the meter says so; the next window labels again."""
    tracker = Tracker(Clock())
    tracker.begin(rows=10, share_read=1.0)
    tracker.tell(told(99, 100))
    assert not tracker.verifying
    tracker.tell(Progress(0, 10, 100, 100, verifying=True))
    assert tracker.verifying
    tracker.begin(rows=10, share_read=1.0)
    assert not tracker.verifying


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 999)), min_size=1, max_size=8),
    st.floats(min_value=0.01, max_value=1e4),
)
def test_shares_grow_to_one(windows: list[tuple[int, int]], seconds: float) -> None:
    """When each window's part of the input is its part of the tokens, the share is exact all the way."""
    clock = Clock()
    tracker, totals = Tracker(clock), RunTotals()
    whole = sum(tokens for _, tokens in windows)
    before = 0
    for rows, tokens in windows:
        tracker.begin(rows, (before + tokens) / whole)
        tracker.tell(told(tokens, tokens))
        clock.now += seconds
        before += tokens
        assert tracker.pace().share == pytest.approx(before / whole)
        totals.rows += rows
        tracker.end(totals)
    assert tracker.pace().rows == sum(rows for rows, _ in windows)
    assert tracker.pace().seconds_left == pytest.approx(0.0, abs=1e-6 * clock.now)


@pytest.mark.parametrize(
    ("pace", "text"),
    [
        (Pace(4096, 1240.4, 99.0, 0.5, 170.0), "4,096 rows, 1,240 tokens/s, about 3 min left"),
        (Pace(12, None, 310.0, 0.1, 42.0), "12 rows, 310 tokens/s computed, about 42 s left"),
        (Pace(12, None, None, None, None), "12 rows"),
        (Pace(12, 5.0, 5.0, 1.0, 0.2), "12 rows, 5 tokens/s"),
    ],
)
def test_the_words(pace: Pace, text: str) -> None:
    """Rows, tokens a second, time left; nothing that is not known."""
    assert pace_text(pace) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (7500, "2 h 05 min")],
)
def test_durations(seconds: float, text: str) -> None:
    """As exact as an estimate deserves."""
    assert duration(seconds) == text


def test_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is called; a run of under ten seconds says nothing."""
    said: list[str] = []
    monkeypatch.setattr(logger, "info", lambda form, *values: said.append(form % values))
    clock = Clock()
    with LineMeter(clock) as meter:
        for tenth in range(250):
            clock.now = 100 + tenth / 10
            meter.show(Pace(tenth, None, None, None, None), verifying=tenth == 200)
    assert said == ["100 rows", "200 rows, comparing with the reference"]


@pytest.mark.parametrize(
    ("stream", "term", "quiet", "rows_on_terminal", "kind"),
    [
        (Terminal(), "xterm", False, False, BarMeter),
        (Terminal(), "dumb", False, False, LineMeter),
        (Terminal(), "xterm", False, True, LineMeter),
        (Terminal(), "xterm", True, False, SilentMeter),
        (io.StringIO(), "xterm", False, False, LineMeter),
    ],
)
def test_who_sees_what(
    monkeypatch: pytest.MonkeyPatch,
    stream: io.StringIO,
    term: str,
    quiet: bool,
    rows_on_terminal: bool,
    kind: type[object],
) -> None:
    """A bar on a terminal of its own, lines elsewhere, nothing when quiet."""
    monkeypatch.setenv("TERM", term)
    console = Console(file=stream)
    assert type(meter_for(console, quiet=quiet, rows_on_terminal=rows_on_terminal)) is kind


def test_the_bar_leaves_the_terminal_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the pace, and at the end it is gone and the cursor is back."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    console = Console(file=stream, width=100)
    with BarMeter(console) as meter:
        meter.show(Pace(12, None, 310.0, 0.1, 42.0))
        meter.show(Pace(24, 500.0, 310.0, 0.2, 40.0), verifying=True)
    text = stream.getvalue()
    assert "comparing" in text
    assert "24 rows, 500 tokens/s, about 40 s left" in text
    assert text.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


def test_no_colour_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR: the bar has movements but no colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    with BarMeter(Console(file=stream, width=100)) as meter:
        meter.show(Pace(12, None, 310.0, 0.1, 42.0))
    assert "12 rows" in stream.getvalue()
    assert "\x1b[3" not in stream.getvalue()
    assert "\x1b[9" not in stream.getvalue()
