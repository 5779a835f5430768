"""Buckets: the classical strategy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.backends.fake import FakeBackend, FakeReference
from lengthwise.plan.bucket import continuation_routes, plan_buckets
from tests.strategies import LABELS, label_sets, prompts, reference_scores, run_plan, trie_of


@given(prompts, label_sets, st.integers(1, 9), st.integers(1, 200))
def test_any_bucketing_gives_what_the_reference_gives(prompts, labels, batch_size, budget):
    """Whatever the batch size and budget, every label's score is that of the row alone."""
    trie = trie_of(labels)
    plan = plan_buckets(prompts, trie, batch_size=batch_size, budget=budget, max_wants=32)
    scores = run_plan(plan, FakeBackend(), trie, len(prompts))
    np.testing.assert_allclose(scores, reference_scores(FakeReference(), prompts, labels), atol=1e-12)


@given(prompts, label_sets, st.integers(1, 9), st.integers(1, 200))
def test_buckets_keep_rows_and_tokens_within_bounds(prompts, labels, batch_size, budget):
    """Never more rows than the batch size, never more padded tokens than the budget but for one row alone."""
    plan = plan_buckets(prompts, trie_of(labels), batch_size=batch_size, budget=budget, max_wants=32)
    for bucket in plan.work:
        assert len(bucket.sequences) <= batch_size
        assert bucket.computed_tokens <= budget or len(bucket.sequences) == 1


def test_sorting_keeps_padding_small():
    """Lengths 10, 11, 100, 101 in buckets of two pad one token each instead of 90."""
    rows = [(1,) * 100, (2,) * 10, (3,) * 101, (4,) * 11]
    plan = plan_buckets(rows, trie_of(LABELS[0]), batch_size=2, budget=1000, max_wants=32)
    assert [bucket.padding for bucket in plan.work] == [1, 1]


def test_one_token_labels_feed_nothing_behind_the_prompt():
    """Without continuations each prompt is one sequence of its own length."""
    plan = plan_buckets([(1, 2, 3)], trie_of(LABELS[0]), batch_size=8, budget=99, max_wants=32)
    assert [bucket.sequences for bucket in plan.work] == [((1, 2, 3),)]


@pytest.mark.parametrize("labels", LABELS)
def test_routes_end_at_every_deepest_continuation(labels):
    """The routes are the label beginnings that no other label beginning extends."""
    trie = trie_of(labels)
    prefixes = {label[:-1] for label in labels}
    deepest = {p for p in prefixes if not any(q != p and q[: len(p)] == p for q in prefixes)}
    assert {trie.prefix(route[-1]) for route in continuation_routes(trie)} == deepest
