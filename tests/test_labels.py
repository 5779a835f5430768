"""The boundary rule, scoring rules and the label tree, with integers and no tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.errors import TaskError
from lengthwise.labels import build_trie, choose_style, label_tokens
from lengthwise.records import LabelTokens, TokenIds
from lengthwise.task import Task

PROMPT = (1, 2, 3)
LABEL_SETS = st.lists(
    st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple), min_size=1, max_size=12, unique=True
)


def tokens_of(
    *labels: TokenIds, scoring: str = "auto", terminator: int | None = 9, prompt: TokenIds = PROMPT
) -> LabelTokens:
    names = [f"label {i}" for i in range(len(labels))]
    joint = [(*PROMPT, *label) for label in labels]
    return label_tokens(prompt, joint, names, scoring=scoring, terminator=terminator)


def test_labels_follow_the_prompt() -> None:
    """When nothing melts, the labels' tokens are what stands behind the prompt."""
    found = tokens_of((5,), (6, 7))
    assert found.tokens == ((5,), (6, 7))
    assert (found.boundary, found.terminator) == (0, None)


def test_tokens_melted_at_the_boundary_go_to_the_labels() -> None:
    """The prompt's last token differs in one joint encoding: every label takes that place over."""
    found = label_tokens((1, 2, 3), [(1, 2, 3, 5), (1, 2, 36)], ["a", "b"], scoring="auto", terminator=9)
    assert found.boundary == 1
    assert found.tokens == ((3, 5), (36,))
    assert found.scored == ((3,), (36,))


def test_first_tokens_are_enough_when_they_differ() -> None:
    """Only they are scored, in one position."""
    found = tokens_of((5, 1), (6, 1, 2))
    assert found.rule == "first-token"
    assert found.scored == ((5,), (6,))
    assert found.tokens == ((5, 1), (6, 1, 2))
    assert found.trie.continuation_tokens == 0


def test_equal_first_tokens_need_the_sequence() -> None:
    """Whole labels are scored."""
    found = tokens_of((5, 1), (5, 2), (6,))
    assert found.rule == "sequence"
    assert found.scored == found.tokens
    assert found.terminator is None


def test_the_sequence_can_be_asked_for() -> None:
    """An explicit rule is honoured although first tokens differ."""
    assert tokens_of((5, 1), (6, 2), scoring="sequence").rule == "sequence"


def test_asking_for_first_tokens_that_are_equal_names_two_labels() -> None:
    """The error says which labels collide."""
    with pytest.raises(TaskError, match="'label 0' and 'label 2' begin with the same token"):
        tokens_of((5, 1), (6,), (5, 2), scoring="first-token")


def test_a_label_that_begins_another_gets_an_end_and_so_do_all() -> None:
    """Otherwise the longer one could never win; no label is favoured."""
    found = tokens_of((5,), (5, 6), (7,))
    assert found.tokens == ((5, 9), (5, 6, 9), (7, 9))
    assert found.terminator == 9
    assert found.rule == "sequence"


def test_without_a_terminator_a_label_that_begins_another_is_refused() -> None:
    """The model has no token that ends an answer."""
    with pytest.raises(TaskError, match="'label 1' begins with all of 'label 0'"):
        tokens_of((5,), (5, 6), terminator=None)


def test_two_labels_with_the_same_tokens_are_named() -> None:
    """Nothing could tell them apart."""
    with pytest.raises(TaskError, match="'label 0' and 'label 1' have the same tokens"):
        tokens_of((5, 6), (5, 6))


def test_a_label_without_tokens_is_named() -> None:
    """An empty continuation has no score."""
    with pytest.raises(TaskError, match="'label 1' has no tokens"):
        tokens_of((5,), ())


@pytest.mark.parametrize(
    ("style", "counts", "chosen"),
    [
        ("auto", [1, 8], "text"),
        ("auto", [1, 9], "code"),
        ("auto", [1] * 20, "text"),
        ("auto", [1] * 21, "code"),
        ("text", [30] * 100, "text"),
        ("code", [1, 1], "code"),
    ],
)
def test_auto_takes_text_while_labels_are_few_and_short(style: str, counts: list[int], chosen: str) -> None:
    """At most 20 labels of at most 8 tokens; what the task says goes before."""
    assert choose_style(Task.from_labels("a,b", style=style), counts) == chosen


def test_a_tree_by_hand() -> None:
    """Nodes by length then token; edges grouped by node; a label's path is its edges."""
    trie = build_trie([(5, 6), (5, 7, 8), (9,)])
    assert trie.parents == (-1, 0, 1)
    assert trie.tokens == (-1, 5, 7)
    assert trie.edges == ((0, 5), (0, 9), (1, 6), (1, 7), (2, 8))
    assert trie.paths == ((0, 2), (0, 3, 4), (1,))
    assert list(trie.edges_of(1)) == [2, 3]
    assert trie.prefix(2) == (5, 7)


@given(LABEL_SETS)
def test_paths_reproduce_the_labels(labels: list[TokenIds]) -> None:
    """Walking a path gives the label's tokens, each edge leaving the node of what came before."""
    trie = build_trie(labels)
    for label, path in zip(labels, trie.paths, strict=True):
        assert tuple(trie.edges[edge][1] for edge in path) == label
        for i, edge in enumerate(path):
            assert trie.prefix(trie.edges[edge][0]) == label[:i]


@given(LABEL_SETS)
def test_what_is_fed_is_each_proper_beginning_once(labels: list[TokenIds]) -> None:
    """Continuation tokens are the distinct proper beginnings; nodes have edges and earlier parents."""
    trie = build_trie(labels)
    beginnings = {label[:i] for label in labels for i in range(1, len(label))}
    assert trie.continuation_tokens == len(beginnings)
    assert {trie.prefix(node) for node in range(1, len(trie.parents))} == beginnings
    assert all(len(trie.edges_of(node)) > 0 for node in range(len(trie.parents)))
    assert all(parent < node for node, parent in enumerate(trie.parents))
    assert list(trie.edges) == sorted(set(trie.edges))


@given(LABEL_SETS, st.randoms(use_true_random=False))
def test_the_tree_does_not_depend_on_the_labels_order(labels: list[TokenIds], random: object) -> None:
    """The same labels in another order give the same tree, with the paths in that order."""
    shuffled = list(labels)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = build_trie(labels), build_trie(shuffled)
    assert (one.parents, one.tokens, one.edges) == (other.parents, other.tokens, other.edges)
    assert dict(zip(labels, one.paths, strict=True)) == dict(zip(shuffled, other.paths, strict=True))


@given(LABEL_SETS)
def test_with_an_end_no_label_begins_another(labels: list[TokenIds]) -> None:
    """Whatever the labels are, after the rules each can win against each."""
    if len(labels) < 2:
        labels = [*labels, (7,)]
    scored = tokens_of(*labels).scored
    assert not any(b[: len(a)] == a for i, a in enumerate(scored) for j, b in enumerate(scored) if i != j)
