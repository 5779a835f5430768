"""The orchestrator: the only place that knows the order of the stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lengthwise import verify
from lengthwise.backends.base import Backend, Reference
from lengthwise.calibrate import CONTENT_FREE, prior_from
from lengthwise.decide import decide, to_rows
from lengthwise.encode import Encoder
from lengthwise.errors import VerificationError
from lengthwise.options import EngineOptions
from lengthwise.plan.bucket import plan_buckets
from lengthwise.plan.pack import plan_packs
from lengthwise.prompt import PromptFrame, render_rows
from lengthwise.records import Answers, EncodedRows, FloatArray, LabelTokens, Plan, TokenIds, Window
from lengthwise.report import Ledger, RunReport, RunTotals
from lengthwise.score import EdgeTable, adjusted_scores, label_mass, log_softmax
from lengthwise.task import Task

MIN_SAVED = 2
"""Tokens that sharing a beginning must save before the tree branches there."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task made ready for one model.

    ``length_limit`` is the longest prompt with label in tokens (None: no limit known). Prompts longer
    than ``alone_above`` run one by one, since this model's positions depend on the longest row of a
    forward. ``notes`` are for the report.
    """

    task: Task
    frame: PromptFrame
    head: TokenIds
    labels: LabelTokens
    length_limit: int | None
    alone_above: int | None
    notes: tuple[str, ...]

    @property
    def reserve(self) -> int:
        """Tokens of the longest label that are fed behind a prompt."""
        return max(len(scored) for scored in self.labels.scored) - 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Told while a window is worked on: its rows, and its tokens done and planned.

    The tokens are those that go through the model, the expected ones of the proof included;
    ``verifying`` when the proof has begun.
    """

    rows_before: int
    window_rows: int
    tokens_done: int
    tokens_planned: int
    verifying: bool = False


class Engine:
    """Answers windows of rows. ``backend`` None is the sequential strategy: every row on the reference."""

    def __init__(
        self,
        prepared: Prepared,
        encoder: Encoder,
        backend: Backend | None,
        reference: Reference,
        options: EngineOptions,
        setup: dict[str, Any],
    ) -> None:
        self.prepared = prepared
        self.encoder = encoder
        self.backend = backend
        self.reference = reference
        self.options = options
        self.setup = setup
        self.dtype = str(setup.get("dtype", "float32"))
        self.on_progress: Callable[[Progress], None] | None = None
        self.totals = RunTotals()
        self._prior: FloatArray | None = None
        self._window_rows = self._done = self._planned = 0
        self._started = time.perf_counter()

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.value for label in self.prepared.task.labels)

    def start(self) -> None:
        """Begin a run: fresh totals, and the prior where the task asks for one."""
        self.totals = RunTotals()
        self._started = time.perf_counter()
        task = self.prepared.task
        if task.calibrate == "prior" and self._prior is None:
            cells = dict.fromkeys(("text", *task.columns), CONTENT_FREE)
            encoded = self.encode(Window(0, cells, (1, 2, 3)), ("text",))
            self._prior = prior_from(self._scores(self._sums(encoded.prompts)))

    def answer(self, window: Window, text_columns: Sequence[str]) -> Answers:
        """One answer for each row of the window, in order.

        Raises VerificationError when the reference disagrees beyond numerics.
        """
        self._window_rows, self._done = len(window), 0
        with self._timed("encode"):
            encoded = self.encode(window, text_columns)
        self._planned = self._expected_proof_tokens(encoded.prompts)
        with self._timed("compute"):
            sums = self._sums(encoded.prompts)
        with self._timed("decide"):
            answers = self._decide(sums)
        with self._timed("verify"):
            answers = self._verify(encoded, answers, window)
        rows = to_rows(answers, encoded.prompt_of_row, encoded.status)
        self._account(encoded, rows)
        return rows

    def encode(self, window: Window, text_columns: Sequence[str]) -> EncodedRows:
        """The window's distinct prompts as tokens; nothing is run."""
        prepared = self.prepared
        rows, status = render_rows(prepared.task, window.cells, text_columns, len(window))
        return self.encoder.encode_rows(
            prepared.frame,
            rows,
            status,
            limit=prepared.length_limit,
            reserve=prepared.reserve,
            on_long=self.options.on_long,
            boundary=prepared.labels.boundary,
            line_numbers=window.line_numbers,
        )

    def report(self) -> RunReport:
        """The account of the run so far."""
        return RunReport(
            totals=self.totals,
            labels=self.label_names,
            seconds=time.perf_counter() - self._started,
            setup=self.setup,
            notes=self.prepared.notes,
        )

    def _sums(self, prompts: Sequence[TokenIds]) -> FloatArray:
        """Plain label scores, shape (prompts, labels)."""
        sums = np.full((len(prompts), len(self.label_names)), np.nan)
        limit = self.prepared.alone_above
        fits = [limit is None or len(prompt) + self.prepared.reserve <= limit for prompt in prompts]
        together = [i for i, fit in enumerate(fits) if fit and self.backend is not None]
        alone = sorted(set(range(len(prompts))) - set(together))
        self._planned += sum(self._reference_tokens(prompts[i]) for i in alone)
        if together and self.backend is not None:
            sums[together] = self._run(self.backend, [prompts[i] for i in together])
        for i in alone:
            sums[i] = self.reference.score(prompts[i], self.prepared.labels.scored)
            tokens = self._reference_tokens(prompts[i])
            self._count(Ledger(shared=tokens, computed=tokens, forwards=1))
            self._tell(tokens)
        return sums

    def _run(self, backend: Backend, prompts: Sequence[TokenIds]) -> FloatArray:
        """Plan the prompts and run the plan; after an error nothing stays resident."""
        trie = self.prepared.labels.trie
        plan = self._plan(backend, prompts)
        table = EdgeTable(len(prompts), trie)
        self._planned += plan.computed_tokens
        try:
            for work in plan.work:
                table.fill(work.wants, backend.run(work, trie))
                self._tell(work.computed_tokens)
        except BaseException:
            backend.reset()
            raise
        computed, padding = plan.computed_tokens, plan.padding
        self._count(
            Ledger(shared=computed - padding, padding=padding, computed=computed, forwards=len(plan.work))
        )
        return table.label_scores()

    def _plan(self, backend: Backend, prompts: Sequence[TokenIds]) -> Plan:
        options, trie, head = self.options, self.prepared.labels.trie, self.prepared.head
        limits = {"budget": options.max_batch_tokens, "max_wants": backend.max_wants()}
        if backend.name == "bucketed":
            return plan_buckets(prompts, trie, batch_size=options.batch_size, **limits)
        resident = backend.head_resident(head)
        return plan_packs(prompts, trie, head, head_resident=resident, min_saved=MIN_SAVED, **limits)

    def _scores(self, sums: FloatArray) -> FloatArray:
        counts = [len(scored) for scored in self.prepared.labels.scored]
        return adjusted_scores(sums, counts, normalize=self.prepared.task.normalize, prior=self._prior)

    def _decide(self, sums: FloatArray) -> Answers:
        return decide(log_softmax(self._scores(sums)), label_mass(sums))

    def _verify(self, encoded: EncodedRows, answers: Answers, window: Window) -> Answers:
        """Hold a sample against the reference; extends the run's proof, stops the run on a defect."""
        if self.backend is None or self.options.verify == "none":
            return answers
        verified = verify.verify_window(
            answers,
            [len(prompt) for prompt in encoded.prompts],
            lambda index: self._reference_answers([encoded.prompts[i] for i in index]),
            mode=self.options.verify,
            before=self.totals.proof,
            dtype=self.dtype,
            seed=window.first_row,
        )
        self.totals.proof = self.totals.proof.merge(verified.proof)
        found = [self._mismatch(defect, encoded, window) for defect in verified.defects]
        self.totals.mismatches.extend(found)
        if found and self.options.on_mismatch == "fail":
            raise VerificationError(
                f"{len(found)} of {verified.proof.compared} compared prompts differ from the reference "
                f"beyond the tie band, first row {found[0]['rows'][0]} ({found[0]['fast']} instead of "
                f"{found[0]['reference']}, drift {verified.defects[0].drift:.2g}); take --strategy "
                "sequential, or --on-mismatch warn to go on all the same."
            )
        return verified.answers

    def _reference_answers(self, prompts: Sequence[TokenIds]) -> Answers:
        scored = self.prepared.labels.scored
        sums = np.empty((len(prompts), len(scored)))
        for i, prompt in enumerate(prompts):
            sums[i] = self.reference.score(prompt, scored)
            tokens = self._reference_tokens(prompt)
            self._count(Ledger(reference=tokens))
            self._tell(tokens, verifying=True)
        return self._decide(sums)

    def _expected_proof_tokens(self, prompts: Sequence[TokenIds]) -> int:
        """About what the comparison will cost, for the time left."""
        if self.backend is None or not prompts:
            return 0
        count = verify.sample_size(self.options.verify, len(prompts), self.totals.proof.compared)
        tokens = sum(self._reference_tokens(prompt) for prompt in prompts)
        return tokens * count // len(prompts)

    def _reference_tokens(self, prompt: TokenIds) -> int:
        """Tokens the reference feeds for a prompt: once for one-token labels, else label by label."""
        scored = self.prepared.labels.scored
        if self.prepared.reserve == 0:
            return len(prompt)
        return sum(len(prompt) + len(label) - 1 for label in scored)

    def _mismatch(self, defect: verify.Compared, encoded: EncodedRows, window: Window) -> dict[str, Any]:
        places = np.flatnonzero(encoded.prompt_of_row == defect.prompt).tolist()
        return {
            "rows": [window.first_row + place + 1 for place in places],
            "lines": [window.line_numbers[place] for place in places],
            "fast": self._name(defect.fast_label),
            "reference": self._name(defect.reference_label),
            "drift": defect.drift if np.isfinite(defect.drift) else None,
            "margin": defect.margin if np.isfinite(defect.margin) else None,
        }

    def _name(self, label: int) -> str | None:
        return self.label_names[label] if label >= 0 else None

    def _account(self, encoded: EncodedRows, answers: Answers) -> None:
        continuation = self.prepared.labels.trie.continuation_tokens
        answered = int((encoded.prompt_of_row >= 0).sum())
        raw = encoded.row_tokens + continuation * answered
        deduped = sum(len(prompt) + continuation for prompt in encoded.prompts)
        self._count(Ledger(raw=raw, deduped=deduped))
        self.totals.add_answers(answers)

    def _count(self, ledger: Ledger) -> None:
        self.totals.ledger = self.totals.ledger + ledger

    def _tell(self, tokens: int, *, verifying: bool = False) -> None:
        self._done += tokens
        if self.on_progress is not None:
            planned = max(self._done, self._planned)
            self.on_progress(Progress(self.totals.rows, self._window_rows, self._done, planned, verifying))

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.totals.seconds[stage] = self.totals.seconds.get(stage, 0.0) + spent
