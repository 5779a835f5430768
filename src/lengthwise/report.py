"""What a run did: token account, times, answers, proof. Data only; the command line draws it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from lengthwise.records import Answers
from lengthwise.verify import TIE_BAND_FACTOR, TOLERANCE, Proof

LOW_MASS = 0.01
"""Below this mean label mass the prompt does not fit the model, and the run says so."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The token account of a run.

    raw         prompt and label tokens of every answered row, each row on its own
    deduped     the same for distinct prompts only
    shared      tokens of the plan, common beginnings once
    padding     tokens added to make rows of a bucket equally long
    computed    what went through the model: shared + padding
    reference   tokens run again for the proof, the tie band and the first check of the backend
    forwards    packs or buckets run
    """

    raw: int = 0
    deduped: int = 0
    shared: int = 0
    padding: int = 0
    computed: int = 0
    reference: int = 0
    forwards: int = 0

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(slots=True)
class RunTotals:
    """Grows while a run goes on; the only mutable record, owned by the engine."""

    rows: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    proof: Proof = field(default_factory=Proof)
    seconds: dict[str, float] = field(default_factory=dict)
    labels: Counter[int] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    ties: int = 0
    mass_sum: float = 0.0
    mass_least: float = math.inf
    answered: int = 0
    mismatches: list[dict[str, Any]] = field(default_factory=list)

    def add_answers(self, answers: Answers) -> None:
        """Count a window's rows."""
        good = answers.label >= 0
        self.rows += len(answers)
        self.answered += int(good.sum())
        self.labels.update(answers.label[good].tolist())
        self.statuses.update(status_kind(status) for status in answers.status)
        self.ties += int(answers.tied.sum())
        if good.any():
            self.mass_sum += float(answers.mass[good].sum())
            self.mass_least = min(self.mass_least, float(answers.mass[good].min()))


def status_kind(status: str) -> str:
    """The countable part of a status: what stands before details in brackets."""
    return status.split(" (", 1)[0]


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything about a finished run, ready for people and for JSON."""

    totals: RunTotals
    labels: tuple[str, ...]
    seconds: float
    setup: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def rows_per_second(self) -> float:
        return self.totals.rows / self.seconds if self.seconds else 0.0

    @property
    def mean_mass(self) -> float | None:
        return self.totals.mass_sum / self.totals.answered if self.totals.answered else None

    @property
    def label_counts(self) -> dict[str, int]:
        """Rows a label, in the order of the labels."""
        return {label: self.totals.labels.get(i, 0) for i, label in enumerate(self.labels)}

    @property
    def compute_seconds(self) -> float:
        """Seconds in forwards of the fast path."""
        return self.totals.seconds.get("compute", 0.0)

    @property
    def tokens_per_second(self) -> float:
        """Raw tokens answered per second of the whole run: what a row-by-row run would have to reach."""
        return self.totals.ledger.raw / self.seconds if self.seconds else 0.0

    def warnings(self) -> list[str]:
        """What a person should look at, each with the mend."""
        said = list(self.notes)
        mass = self.mean_mass
        if mass is not None and mass < LOW_MASS:
            said.append(
                f"the labels hold only {mass:.2%} of the model's probability: the prompt does not fit the "
                "model; look at one with `lengthwise explain` and try other instructions, label texts or "
                "another model"
            )
        return said

    def as_dict(self) -> dict[str, Any]:
        """Strictly JSON-able: no NaN, no infinity."""
        totals = self.totals
        proof = totals.proof
        dtype = str(self.setup.get("dtype", "float32"))
        return {
            "rows": totals.rows,
            "answered": totals.answered,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows_per_second, 3),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "stage_seconds": {stage: round(value, 3) for stage, value in totals.seconds.items()},
            "ledger": asdict(totals.ledger),
            "labels": self.label_counts,
            "statuses": dict(totals.statuses),
            "ties": totals.ties,
            "label_mass": {"mean": finite(self.mean_mass), "least": finite(totals.mass_least)},
            "proof": {
                "distinct": proof.distinct,
                "compared": proof.compared,
                "differing": proof.differing,
                "outside_tie_band": proof.outside_band,
                "max_drift": finite(proof.max_drift),
                "smallest_margin": finite(proof.min_margin),
                "settled_by_reference": proof.settled,
                "tie_band_factor": TIE_BAND_FACTOR,
                "drift_tolerance": TOLERANCE.get(dtype),
                "upper_bound_95": finite(proof.bound),
                "passed": proof.passed(dtype) if proof.compared else None,
                "mismatches": totals.mismatches,
            },
            "setup": dict(self.setup),
            "warnings": self.warnings(),
        }


def finite(value: float | None) -> float | None:
    """None for anything JSON has no number for."""
    return None if value is None or not math.isfinite(value) else float(value)


def answer_cells(
    answers: Answers, labels: Sequence[str], names: Sequence[str], *, probabilities: bool
) -> dict[str, list[str | float | None]]:
    """A window's answer columns, one list a column, under ``names`` (in the order of `answer_columns`)."""
    probs = np.exp(answers.log_probs)
    decided = answers.label >= 0
    cells: list[list[str | float | None]] = [
        [labels[k] if k >= 0 else None for k in answers.label.tolist()],
        [float(probs[row, k]) if k >= 0 else None for row, k in enumerate(answers.label.tolist())],
        [float(m) if good else None for m, good in zip(answers.margin, decided, strict=True)],
        list(answers.status),
    ]
    if probabilities:
        for k in range(len(labels)):
            cells.append([float(p) if good else None for p, good in zip(probs[:, k], decided, strict=True)])
    return dict(zip(names, cells, strict=True))
