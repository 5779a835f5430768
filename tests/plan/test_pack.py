"""Packs: budget, residency, completeness. The fake backend's values depend on every token before them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.backends.fake import FakeBackend, FakeReference
from lengthwise.plan.pack import continuation_runs, plan_packs
from lengthwise.plan.tree import HEAD
from tests.strategies import LABELS, heads, label_sets, prompts, reference_scores, run_plan, trie_of

budgets = st.integers(1, 60)


def planned(prompts, labels, head=(), *, budget=40, max_wants=16, min_saved=2, head_resident=False):
    return plan_packs(
        prompts,
        trie_of(labels),
        head,
        head_resident=head_resident,
        budget=budget,
        max_wants=max_wants,
        min_saved=min_saved,
    )


@given(prompts, label_sets, heads, budgets, st.integers(1, 8))
def test_any_plan_gives_what_the_reference_gives(prompts, labels, head, budget, min_saved):
    """Whatever is shared, cut or dissolved, every label's score is that of the row alone."""
    plan = planned(prompts, labels, head, budget=budget, min_saved=min_saved)
    scores = run_plan(plan, FakeBackend(), trie_of(labels), len(prompts))
    np.testing.assert_allclose(scores, reference_scores(FakeReference(), prompts, labels), atol=1e-12)


@given(prompts, label_sets, heads, budgets)
def test_packs_keep_the_budget_and_the_number_of_wants(prompts, labels, head, budget):
    """Only the head, which must stay in one piece, may exceed the budget, and then it is alone in it."""
    longest_run = max(len(run) for run in [[], *continuation_runs(trie_of(labels))])
    for pack in planned(prompts, labels, head, budget=budget, max_wants=16).work:
        only_head = [segment.id for segment in pack.segments] == [HEAD]
        assert pack.computed_tokens <= budget or only_head
        assert len(pack.wants) <= max(16, longest_run)
        assert pack.padding == 0


@given(prompts, label_sets, heads, budgets)
def test_every_wanted_position_is_answered_exactly_once(prompts, labels, head, budget):
    """Each prompt asks once for each node of the label trie."""
    plan = planned(prompts, labels, head, budget=budget)
    asked = [(want.prompt, want.node) for pack in plan.work for want in pack.wants]
    nodes = len(trie_of(labels).parents)
    assert sorted(asked) == [(prompt, node) for prompt in range(len(prompts)) for node in range(nodes)]


@given(prompts, label_sets, heads, budgets)
def test_kv_is_kept_exactly_as_long_as_a_descendant_needs_it(prompts, labels, head, budget):
    """A segment is resident between its pack and the pack of its last descendant, and at no other time."""
    plan = planned(prompts, labels, head, budget=budget)
    pack_of = {s.id: n for n, pack in enumerate(plan.work) for s in pack.segments}
    parent_of = {s.id: s.parent for pack in plan.work for s in pack.segments}
    last_use = dict(pack_of)
    for segment_id, number in pack_of.items():
        ancestor = parent_of[segment_id]
        while ancestor in pack_of:
            last_use[ancestor] = max(last_use[ancestor], number)
            ancestor = parent_of[ancestor]
    for number, pack in enumerate(plan.work):
        due = {i for i in pack_of if pack_of[i] == number and last_use[i] > number and i != HEAD}
        assert set(pack.keep) - {HEAD} == due
        freed = {i for i in pack_of if pack_of[i] < number and last_use[i] == number and i != HEAD}
        assert set(pack.release) == freed


@given(prompts, label_sets, heads, budgets)
def test_the_predicted_peak_is_what_the_backend_holds(prompts, labels, head, budget):
    """The plan's memory prediction equals the most tokens that were resident, and only the head stays."""
    plan = planned(prompts, labels, head, budget=budget)
    backend = FakeBackend()
    run_plan(plan, backend, trie_of(labels), len(prompts))
    assert set(backend.resident_segments) == ({HEAD} if head else set())
    assert plan.peak_resident_tokens == backend.peak_resident_tokens


@given(prompts, label_sets, st.randoms())
def test_the_order_of_rows_changes_nothing(prompts, labels, random):
    """Any permutation of the prompts computes the same tokens and gives each prompt the same scores."""
    shuffled = list(prompts)
    random.shuffle(shuffled)
    first, second = planned(prompts, labels), planned(shuffled, labels)
    trie = trie_of(labels)
    assert first.computed_tokens == second.computed_tokens
    scores = dict(zip(prompts, run_plan(first, FakeBackend(), trie, len(prompts)).tolist(), strict=True))
    again = dict(zip(shuffled, run_plan(second, FakeBackend(), trie, len(prompts)).tolist(), strict=True))
    assert scores == again


def test_a_resident_head_is_not_planned_again():
    """The second window computes the rows only, and still gives the reference's scores."""
    head, labels = (1, 2, 3), LABELS[1]
    backend, trie = FakeBackend(), trie_of(labels)
    rows = [(1, 2, 3, 4), (1, 2, 3, 5, 6)]
    run_plan(planned(rows, labels, head), backend, trie, 2)
    assert backend.head_resident(head)
    second = planned(rows, labels, head, head_resident=True)
    assert HEAD not in {segment.id for pack in second.work for segment in pack.segments}
    np.testing.assert_allclose(
        run_plan(second, backend, trie, 2), reference_scores(FakeReference(), rows, labels), atol=1e-12
    )


def test_a_row_longer_than_the_budget_is_a_chain():
    """1,000 tokens under a budget of 64: segments of at most 64 tokens, each the next one's parent."""
    row = tuple(int(i) % 11 for i in range(1000))
    plan = planned([row], LABELS[0], budget=64)
    segments = [segment for pack in plan.work for segment in pack.segments]
    assert [segment.parent for segment in segments] == [-1, *(segment.id for segment in segments[:-1])]
    assert sum(map(len, segments)) == 1000
    np.testing.assert_allclose(
        run_plan(plan, FakeBackend(), trie_of(LABELS[0]), 1),
        reference_scores(FakeReference(), [row], LABELS[0]),
        atol=1e-12,
    )


def test_sharing_saves_what_it_should():
    """Three rows with a common beginning of 10 below a head of 4: 4 + 10 + 3 * 2 tokens."""
    head = (9, 9, 9, 9)
    common = tuple(range(10))
    rows = [head + common + (20 + i, 30 + i) for i in range(3)]
    assert planned(rows, LABELS[0], head).computed_tokens == 20
