"""Verify, then time: strategies against one-by-one execution on the same rows, in one process.

    python bench/compare.py FILE --text COLUMN [--text COLUMN] (--labels a,b,c | --task task.toml)
        [--model smollm2-135m] [--rows 100] [--strategies packed,bucketed] [--repeats 1]

Takes every k-th row that has text. Within a repeat the strategies run one after the other, so a drifting
machine hurts all alike. The last line of stdout is one JSON object: for each strategy the seconds, the
speed-up over one-by-one (smallest and largest of the repeats), labels equal, largest drift, tokens
computed, padding. Exit code 4 when a label differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace

import numpy as np

from lengthwise import machine
from lengthwise.backends.bucketed import BucketedBackend
from lengthwise.engine import Engine
from lengthwise.options import EngineOptions
from lengthwise.prepare import load_engine
from lengthwise.records import Answers, Window
from lengthwise.rows.read import open_source
from lengthwise.task import Task, load_task


@dataclass(frozen=True)
class Run:
    """One run of one strategy."""

    seconds: float
    answers: Answers
    engine: Engine


def main() -> int:
    args = parse_args()
    task = load_task(args.task) if args.task else Task.from_labels(args.labels)
    window, columns = every_kth_row(args.file, args.text, task, args.rows)
    options = EngineOptions(verify="none", max_batch_tokens=args.max_batch_tokens, threads=args.threads)
    base = load_engine(task, args.model, options)
    names = ["sequential", *args.strategies.split(",")]
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for repeat in range(args.repeats):
        for name in names:
            runs[name].append(timed(sibling(base, name), window, columns))
            print(f"repeat {repeat + 1} {name}: {runs[name][-1].seconds:.1f} s", file=sys.stderr, flush=True)
    result = {
        "file": str(args.file),
        "model": args.model,
        "rows": len(window),
        "threads": base.options.threads,
        "dtype": base.dtype,
        "scored_by": base.setup["labels_scored_by"],
        "weights_mb": round(base.setup["parameters"] * 4 / 1e6),
        "peak_mb": round((machine.peak_memory_bytes() or 0) / 1e6),
        "strategies": {name: summary(runs[name], runs["sequential"]) for name in names},
    }
    print(json.dumps(result, allow_nan=False))
    return 4 if any(s["labels_equal"] < len(window) for s in result["strategies"].values()) else 0


def every_kth_row(path: str, text: list[str], task: Task, rows: int) -> tuple[Window, tuple[str, ...]]:
    """One window of ``rows`` rows with text, evenly from the whole file."""
    wanted = tuple(dict.fromkeys([*text, *task.columns]))
    cells: dict[str, list[object]] = {name: [] for name in wanted}
    with open_source(path) as source:
        for window in source.windows(4096, wanted):
            for name in wanted:
                cells[name].extend(window.cells[name])
    filled = [i for i in range(len(cells[text[0]])) if str(cells[text[0]][i] or "").strip()]
    chosen = [filled[i * len(filled) // rows] for i in range(min(rows, len(filled)))]
    picked = {name: [values[i] for i in chosen] for name, values in cells.items()}
    return Window(0, picked, range(1, len(chosen) + 1)), tuple(text)


def sibling(base: Engine, strategy: str) -> Engine:
    """An engine of another strategy over the same model."""
    backend = base.backend
    if strategy == "sequential":
        backend = None
    elif strategy == "bucketed":
        backend = BucketedBackend(base.reference.model, base.reference.model.config.vocab_size)
    elif backend is not None:
        backend.reset()
    options = replace(base.options, strategy=strategy)
    return Engine(base.prepared, base.encoder, backend, base.reference, options, base.setup)


def timed(engine: Engine, window: Window, columns: tuple[str, ...]) -> Run:
    started = time.perf_counter()
    engine.start()
    answers = engine.answer(window, columns)
    return Run(time.perf_counter() - started, answers, engine)


def summary(runs: list[Run], sequential: list[Run]) -> dict[str, float | int]:
    truth, last = sequential[-1].answers, runs[-1]
    ratios = [base.seconds / run.seconds for base, run in zip(sequential, runs, strict=True)]
    ledger = last.engine.totals.ledger
    return {
        "seconds": round(float(np.median([run.seconds for run in runs])), 2),
        "speedup_min": round(min(ratios), 3),
        "speedup_max": round(max(ratios), 3),
        "labels_equal": int((last.answers.label == truth.label).sum()),
        "max_drift": float(np.nanmax(np.abs(last.answers.log_probs - truth.log_probs))),
        "raw_tokens": ledger.raw,
        "tokens_computed": ledger.computed,
        "padding": ledger.padding,
        "forwards": ledger.forwards,
    }


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--text", action="append", required=True)
    parser.add_argument("--labels")
    parser.add_argument("--task")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--strategies", default="packed,bucketed")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--max-batch-tokens", type=int, default=1024)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
