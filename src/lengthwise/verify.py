"""The proof: chosen prompts are run again on the reference and compared.

Model-free: the reference comes as a function from prompts to log-probabilities, so this module knows
neither packs nor torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from lengthwise.records import Answers, FloatArray

SAMPLE_SHARE = 0.01
SAMPLE_LEAST = 10
SAMPLE_MOST = 100
TIE_BAND_FACTOR = 8.0
"""The tie band is this many times the largest drift seen (a winner can change only within twice a
row's own drift; the rest allows for rows that drift more than those compared)."""

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
"""Largest drift that still passes, in nats, by dtype. More is a defect, whatever the labels say."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt on both paths. ``margin`` is the reference's: its best minus what the fast path chose
    (its own margin when both agree).
    """

    prompt: int
    fast_label: int
    reference_label: int
    drift: float
    margin: float
    random: bool

    @property
    def differs(self) -> bool:
        return self.fast_label != self.reference_label


@dataclass(frozen=True, slots=True)
class Proof:
    """What was compared so far in a run; grows window by window with `merge`.

    ``compared`` prompts were run on both paths, ``random`` of them chosen for their length only (not
    for their small margin), ``differing`` gave another label, ``random_differing`` of the random ones.
    ``settled`` rows lay in the tie band and were answered by the reference. ``distinct`` prompts in all.
    """

    distinct: int = 0
    compared: int = 0
    random: int = 0
    differing: int = 0
    random_differing: int = 0
    outside_band: int = 0
    max_drift: float = 0.0
    min_margin: float = float("inf")
    settled: int = 0

    def merge(self, other: Proof) -> Proof:
        """Both together."""
        return Proof(
            distinct=self.distinct + other.distinct,
            compared=self.compared + other.compared,
            random=self.random + other.random,
            differing=self.differing + other.differing,
            random_differing=self.random_differing + other.random_differing,
            outside_band=self.outside_band + other.outside_band,
            max_drift=max(self.max_drift, other.max_drift),
            min_margin=min(self.min_margin, other.min_margin),
            settled=self.settled + other.settled,
        )

    def passed(self, dtype: str) -> bool:
        """Whether no row differs outside the tie band and no drift exceeds the dtype's tolerance."""
        return self.outside_band == 0 and self.max_drift <= TOLERANCE[dtype]

    @property
    def bound(self) -> float | None:
        """One-sided 95% upper bound on the share of differing rows among those not compared.

        Clopper-Pearson from the randomly chosen prompts; 0 when everything was compared, None when
        nothing was.
        """
        if self.distinct and self.compared >= self.distinct:
            return 0.0
        return upper_bound(self.random_differing, self.random) if self.random else None


def upper_bound(events: int, trials: int, confidence: float = 0.95) -> float:
    """Clopper-Pearson upper bound: the p with P(at most ``events`` of ``trials``) = 1 - confidence."""
    if events >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        tail = sum(comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(events + 1))
        low, high = (p, high) if tail > 1 - confidence else (low, p)
    return high


def choose(
    mode: str | int, lengths: Sequence[int], margins: FloatArray, already: int, seed: int
) -> tuple[list[int], list[int]]:
    """Which distinct prompts of a window to compare: (evenly over length, smallest margins).

    "sample" takes 1% of the prompts, at least 10 and at most 100 in the whole run, of which
    ``already`` are used up; a third goes to the smallest margins. A later window takes at most half of
    what is left, and at least one, so that a long run stays under proof to its end.
    """
    count = len(lengths)
    quota = sample_size(mode, count, already)
    if quota <= 0:
        return [], []
    if quota == count:
        return list(range(count)), []
    tight = min(quota // 3, quota - 1)
    order = np.argsort(np.where(np.isnan(margins), np.inf, margins), kind="stable")
    smallest = [int(i) for i in order[:tight]]
    rest = sorted(set(range(count)) - set(smallest), key=lambda i: (lengths[i], i))
    return _evenly(rest, quota - tight, seed), smallest


def sample_size(mode: str | int, count: int, already: int) -> int:
    """How many of a window's ``count`` distinct prompts are compared, see `choose`."""
    if mode == "none" or count == 0:
        return 0
    if mode == "all":
        return count
    if isinstance(mode, int):
        return min(count, max(0, mode - already))
    share = round(count * SAMPLE_SHARE)
    if already:
        return min(count, max(1, min(share, (SAMPLE_MOST - already) // 2)))
    return min(count, SAMPLE_MOST, max(SAMPLE_LEAST, share))


def _evenly(ordered: Sequence[int], count: int, seed: int) -> list[int]:
    """``count`` items, one at a random place in each of ``count`` equal stretches."""
    edges = [i * len(ordered) // count for i in range(count + 1)]
    random = np.random.default_rng(seed)
    return [ordered[int(random.integers(low, high))] for low, high in itertools.pairwise(edges)]


def compare(fast: Answers, reference: Answers, prompts: Sequence[int], random: int) -> list[Compared]:
    """Fast and reference answers side by side; the first ``random`` prompts were chosen at random.

    ``reference`` holds one entry for each of ``prompts``. A row that is not a number on one path only
    drifts infinitely.
    """
    rows = []
    for place, prompt in enumerate(prompts):
        truth = reference.log_probs[place]
        both = fast.label[prompt] >= 0 and reference.label[place] >= 0
        same_failure = fast.label[prompt] < 0 and reference.label[place] < 0
        drift = (
            float(np.abs(fast.log_probs[prompt] - truth).max()) if both else (0.0 if same_failure else np.inf)
        )
        chosen, best = int(fast.label[prompt]), int(reference.label[place])
        gap = (
            float(truth[best] - truth[chosen]) if both and chosen != best else float(reference.margin[place])
        )
        rows.append(Compared(prompt, chosen, best, drift, gap, place < random))
    return rows


def tie_band(max_drift: float, dtype: str) -> float:
    """Margins below this are settled by the reference: 8 times the drift, never above 8 times tolerance."""
    return TIE_BAND_FACTOR * min(max_drift, TOLERANCE[dtype])


def proof_of(rows: Sequence[Compared], distinct: int, band: float, settled: int) -> Proof:
    """The window's part of the proof."""
    margins = [row.margin for row in rows if not np.isnan(row.margin)]
    return Proof(
        distinct=distinct,
        compared=len(rows),
        random=sum(row.random for row in rows),
        differing=sum(row.differs for row in rows),
        random_differing=sum(row.differs and row.random for row in rows),
        outside_band=sum(row.differs and not row.margin < band for row in rows),
        max_drift=max((row.drift for row in rows), default=0.0),
        min_margin=min(margins, default=float("inf")),
        settled=settled,
    )


def is_defect(row: Compared, band: float, dtype: str) -> bool:
    """Whether numerics do not explain the difference: another label outside the band, or too much drift."""
    return (row.differs and not row.margin < band) or not row.drift <= TOLERANCE[dtype]


@dataclass(frozen=True, slots=True)
class Verified:
    """A window after verification: the answers with the tie band settled, its proof, its defects."""

    answers: Answers
    proof: Proof
    defects: tuple[Compared, ...]


def verify_window(
    answers: Answers,
    lengths: Sequence[int],
    reference: Callable[[Sequence[int]], Answers],
    *,
    mode: str | int,
    before: Proof,
    dtype: str,
    seed: int,
) -> Verified:
    """Compare chosen distinct prompts with the reference and let it settle the tie band.

    ``reference`` answers prompts by index. ``before`` is the proof of the run so far: it limits the
    sample and its largest drift widens the tie band.
    """
    spread, tight = choose(mode, lengths, answers.margin, before.compared, seed)
    chosen = spread + tight
    truth = reference(chosen)
    rows = compare(answers, truth, chosen, random=len(spread))
    band = tie_band(max([before.max_drift, *(row.drift for row in rows)]), dtype)
    compared_close = [place for place, prompt in enumerate(chosen) if answers.margin[prompt] < band]
    others_close = sorted(set(np.flatnonzero(answers.margin < band).tolist()) - set(chosen))
    defects = tuple(row for row in rows if is_defect(row, band, dtype))
    settled = answers.replaced([chosen[place] for place in compared_close], truth.take(compared_close))
    if others_close:
        settled = settled.replaced(others_close, reference(others_close))
    proof = proof_of(rows, len(lengths), band, settled=len(compared_close) + len(others_close))
    return Verified(settled, proof, defects)
