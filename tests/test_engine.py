"""The orchestrator over the fake backend, a tiny tokenizer and, once, a tiny real model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.backends.fake import FakeBackend, FakeReference
from lengthwise.backends.reference import HuggingFaceReference
from lengthwise.backends.select import choose_backend
from lengthwise.encode import Encoder
from lengthwise.engine import Engine, Prepared
from lengthwise.errors import VerificationError
from lengthwise.options import EngineOptions
from lengthwise.prepare import encode_task
from lengthwise.rows.memory import memory_source
from lengthwise.task import Task
from tests.tiny_models import VOCAB, tiny_model
from tests.tiny_tokenizers import byte_level

TASK = Task.from_labels("billing,technical,account")
NESTED = Task.from_labels(["card payment", "card payment refused", "card", "other"])


class Flipped(FakeBackend):
    """A broken backend: every value of the first prompt is wrong."""

    def run(self, work, trie):
        values = super().run(work, trie)
        return [-8.0 - v if want.prompt == 0 else v for want, v in zip(work.wants, values, strict=True)]


def engine(task=TASK, backend="fake", **options):
    encoder = Encoder(byte_level())
    frame, labels, _ = encode_task(task, encoder)
    prepared = Prepared(
        task=task,
        frame=frame,
        head=encoder.head(frame),
        labels=labels,
        length_limit=400,
        alone_above=options.pop("alone_above", None),
        notes=(),
    )
    made = FakeBackend() if backend == "fake" else backend
    built = Engine(prepared, encoder, made, FakeReference(), EngineOptions(**options), {"dtype": "float32"})
    built.start()
    return built


def run(built, texts):
    """The answers to texts, window by window."""
    return [
        built.answer(window, ("text",))
        for window in memory_source(texts).windows(built.options.window, ("text",))
    ]


def labels_of(parts):
    return np.concatenate([part.label for part in parts]).tolist()


@pytest.mark.parametrize("task", [TASK, NESTED])
@pytest.mark.parametrize("options", [{}, {"max_batch_tokens": 16}, {"window": 3}])
def test_fast_answers_are_the_references(task, options):
    """Any budget and window: labels and probabilities of all rows equal the sequential strategy's."""
    texts = [f"ticket number {i % 7} about {'card ' * (i % 5)}" for i in range(20)]
    fast = run(engine(task, verify="all", **options), texts)
    slow = run(engine(task, backend=None), texts)
    assert labels_of(fast) == labels_of(slow)
    np.testing.assert_allclose(
        np.concatenate([part.log_probs for part in fast]),
        np.concatenate([part.log_probs for part in slow]),
        atol=1e-9,
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.none(), st.just("  "), st.text(max_size=20)), max_size=12), st.integers(1, 5))
def test_row_i_is_input_i(texts, window):
    """Each row, duplicates and empty ones among them, has the answer it gets alone."""
    together = labels_of(run(engine(window=window), [*texts, "last"]))
    alone = [labels_of(run(engine(), [text]))[0] for text in [*texts, "last"]]
    assert together == alone


def test_duplicates_are_computed_once():
    """A hundred copies of a text cost as much as one, and the ledger says so."""
    one, many = engine(), engine()
    run(one, ["My card was charged twice."])
    run(many, ["My card was charged twice."] * 100)
    assert many.totals.ledger.computed == one.totals.ledger.computed
    assert many.totals.ledger.raw == 100 * one.totals.ledger.raw
    assert many.totals.ledger.deduped == one.totals.ledger.deduped


def test_the_ledger_adds_up_and_equals_what_the_backend_did():
    """raw >= deduped >= shared, computed = shared + padding, and the backend computed just that."""
    backend = FakeBackend()
    built = engine(NESTED, backend=backend, window=8)
    run(built, [f"ticket {i % 11} is about a card" for i in range(30)])
    ledger = built.totals.ledger
    assert ledger.raw >= ledger.deduped >= ledger.shared
    assert ledger.computed == ledger.shared + ledger.padding == backend.computed_tokens
    assert ledger.forwards == backend.forwards
    assert ledger.padding == 0


def test_the_head_is_computed_once_for_all_windows():
    """Ten windows of unlike rows: the head's tokens are in the ledger once."""
    built = engine(window=1, verify="none")
    texts = [f"{i} tickets" for i in range(10)]
    run(built, texts)
    head = len(built.prepared.head)
    assert head > 5
    assert built.totals.ledger.shared <= built.totals.ledger.deduped - 9 * head


def test_a_broken_backend_stops_the_run_and_names_the_rows():
    """Wrong numbers raise VerificationError with the row; the report lists it and did not pass."""
    built = engine(backend=Flipped(), verify="all")
    with pytest.raises(VerificationError, match="first row 1 "):
        run(built, ["first", "second", "third"])
    report = built.report().as_dict()
    assert report["proof"]["passed"] is False
    assert report["proof"]["mismatches"][0]["rows"] == [1]


def test_on_mismatch_warn_goes_on_and_lists_the_rows():
    """With on_mismatch="warn" all rows are answered and the rows stand in the report."""
    built = engine(backend=Flipped(), verify="all", on_mismatch="warn")
    assert len(labels_of(run(built, ["first", "second"]))) == 2
    assert built.report().as_dict()["proof"]["mismatches"][0]["rows"] == [1]


def test_long_rows_of_length_dependent_models_run_alone():
    """Above the limit for sharing a forward rows go to the reference; the others stay packed."""
    backend = FakeBackend()
    built = engine(backend=backend, alone_above=80, verify="none")
    parts = run(built, ["short", "long " * 60])
    assert labels_of(parts) == labels_of(run(engine(backend=None), ["short", "long " * 60]))
    assert backend.computed_tokens < 80


def test_rows_without_text_have_a_status_and_no_answer():
    """None, blank and "NA": the first two are empty, the last is a text."""
    (part,) = run(engine(), [None, " ", "NA"])
    assert part.status == ("empty", "empty", "ok")
    assert (part.label >= 0).tolist() == [False, False, True]


def test_an_input_without_any_text_runs():
    """All rows empty: nothing is computed, nothing compared, nothing fails."""
    built = engine()
    (part,) = run(built, [None, None])
    assert part.label.tolist() == [-1, -1]
    assert built.totals.ledger.computed == 0
    assert built.report().as_dict()["proof"]["passed"] is None


def test_the_prior_is_taken_off():
    """calibrate = "prior": the mean log-probability over content-free rows becomes equal for all labels."""
    task = Task.from_labels("billing,technical,account", calibrate="prior")
    built = engine(task)
    (plain,) = run(engine(), ["N/A", "[MASK]", "..."])
    (calibrated,) = run(built, ["N/A", "[MASK]", "..."])
    prior = plain.log_probs.mean(axis=0)
    expected = plain.log_probs - prior
    np.testing.assert_allclose(
        calibrated.log_probs - calibrated.log_probs[:, :1], expected - expected[:, :1], atol=1e-9
    )


def test_an_error_in_a_forward_leaves_nothing_resident():
    """After an exception the backend holds nothing, and the next window is right."""

    class FailsOnce(FakeBackend):
        failed = False

        def run(self, work, trie):
            values = super().run(work, trie)
            if self.forwards == 2 and not self.failed:
                self.failed = True
                raise MemoryError("said the test")
            return values

    backend = FailsOnce()
    built = engine(backend=backend, max_batch_tokens=16)
    with pytest.raises(MemoryError):
        run(built, ["one ticket", "another ticket"])
    assert backend.resident_segments == ()
    assert labels_of(run(built, ["one ticket"])) == labels_of(run(engine(), ["one ticket"]))


def test_progress_counts_tokens_up_to_the_plan():
    """Progress never goes back and ends with all planned tokens done, those of the proof included."""
    seen = []
    built = engine(max_batch_tokens=16)
    built.on_progress = seen.append
    run(built, ["one ticket", "another ticket"])
    ledger = built.totals.ledger
    assert seen[-1].tokens_done == seen[-1].tokens_planned == ledger.computed + ledger.reference
    assert [p.verifying for p in seen] == sorted(p.verifying for p in seen)
    assert [p.tokens_done for p in seen] == sorted(p.tokens_done for p in seen)


@pytest.mark.parametrize("name", ["qwen2", "gpt2-learned-positions", "lfm2-hybrid", "phi3-longrope"])
@pytest.mark.parametrize("strategy", ["packed", "bucketed"])
def test_with_a_real_model_every_row_is_proven(name, strategy):
    """Text to answer on tiny models, a hybrid and one with length-dependent positions: all rows agree."""
    model = tiny_model(name)
    reference = HuggingFaceReference(model)
    backend, _ = choose_backend(strategy, model, VOCAB, reference, (5, 6, 7), 1e-3)
    encoder = Encoder(byte_level())
    frame, labels, _ = encode_task(NESTED, encoder)
    limit = 32 if name == "phi3-longrope" else None
    prepared = Prepared(NESTED, frame, encoder.head(frame), labels, 500, limit, ())
    built = Engine(prepared, encoder, backend, reference, EngineOptions(verify="all"), {"dtype": "float32"})
    built.start()
    texts = ["hi", "Hello, my card " * 6, "refund", "refund please", "refund please now"]
    parts = run(built, texts)
    proof = built.totals.proof
    assert (proof.compared, proof.differing) == (5, 0)
    assert proof.max_drift < 1e-4
    assert all(status == "ok" for part in parts for status in part.status)
