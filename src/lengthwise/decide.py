"""From log-probabilities to an answer: label, margin, tie mark, status."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lengthwise.records import Answers, FloatArray, IntArray

NOT_A_NUMBER = "error: the model gave a score that is not a number"


def decide(log_probs: FloatArray, mass: FloatArray) -> Answers:
    """The answer for each row of ``log_probs`` (n, labels).

    The label with the highest log-probability wins, the first of equals. A row with anything that is
    not a finite number becomes an error, never an answer.
    """
    finite = np.isfinite(log_probs).all(axis=1) & np.isfinite(mass)
    safe = np.where(finite[:, None], log_probs, 0.0)
    label = np.where(finite, safe.argmax(axis=1), -1).astype(np.int64)
    top = np.sort(safe, axis=1)[:, ::-1]
    margin = np.where(finite, top[:, 0] - top[:, 1], np.nan)
    return Answers(
        label=label,
        log_probs=np.where(finite[:, None], log_probs, np.nan),
        margin=margin,
        mass=np.where(finite, mass, np.nan),
        tied=finite & (margin == 0.0),
        status=tuple("ok" if good else NOT_A_NUMBER for good in finite),
    )


def to_rows(answers: Answers, prompt_of_row: IntArray, status: Sequence[str]) -> Answers:
    """Spread the answers of distinct prompts over the rows that share them.

    ``prompt_of_row`` is -1 for rows without a prompt; ``status`` is what encoding said of each row. An
    error found later replaces it.
    """
    answered = prompt_of_row >= 0
    index = np.where(answered, prompt_of_row, 0)
    if len(answers) == 0:
        return _without_answers(answers, status)
    decided = answered & (answers.label[index] >= 0)
    return Answers(
        label=np.where(decided, answers.label[index], -1),
        log_probs=np.where(decided[:, None], answers.log_probs[index], np.nan),
        margin=np.where(decided, answers.margin[index], np.nan),
        mass=np.where(decided, answers.mass[index], np.nan),
        tied=decided & answers.tied[index],
        status=tuple(
            answers.status[index[row]] if answered[row] and not decided[row] else said
            for row, said in enumerate(status)
        ),
    )


def _without_answers(answers: Answers, status: Sequence[str]) -> Answers:
    count = len(status)
    return Answers(
        label=np.full(count, -1, dtype=np.int64),
        log_probs=np.full((count, answers.log_probs.shape[1]), np.nan),
        margin=np.full(count, np.nan),
        mass=np.full(count, np.nan),
        tied=np.zeros(count, dtype=np.bool_),
        status=tuple(status),
    )
