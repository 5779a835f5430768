"""The token tree."""

from hypothesis import given
from hypothesis import strategies as st

from lengthwise.plan.tree import HEAD, build_tree, walk
from tests.strategies import heads, prompts


def spelled(nodes, prompts, head, index):
    """All tokens from the root to the end of a node."""
    node = nodes[index]
    own = head if index == HEAD else prompts[node.prompt][node.start : node.end]
    before = spelled(nodes, prompts, head, node.parent) if node.parent >= 0 else ()
    return before + own


def total(nodes):
    return sum(node.end - node.start for i, node in enumerate(nodes) if i != HEAD)


@given(prompts, heads, st.integers(1, 12))
def test_every_prompt_is_spelled_by_the_path_to_its_node(prompts, head, min_saved):
    """Following parents from a prompt's terminal node gives the prompt's tokens, whatever is dissolved."""
    nodes = build_tree(prompts, head, min_saved)
    ends = [i for i in walk(nodes) if nodes[i].terminal >= 0]
    found = {nodes[i].terminal: spelled(nodes, prompts, head, i) for i in ends}
    assert found == dict(enumerate(prompts))


@given(prompts)
def test_without_a_threshold_the_tree_has_one_token_per_distinct_beginning(prompts):
    """With every branch kept, the tree's tokens are exactly the distinct non-empty prefixes."""
    nodes = build_tree(prompts, (), min_saved=1)
    assert total(nodes) == len({prompt[:k] for prompt in prompts for k in range(1, len(prompt) + 1)})


@given(prompts, st.integers(1, 30))
def test_a_threshold_only_adds_tokens(prompts, min_saved):
    """Dissolving branches never computes less than the full tree and never more than no sharing."""
    kept = total(build_tree(prompts, (), min_saved))
    assert total(build_tree(prompts, (), 1)) <= kept <= sum(map(len, prompts))


def test_a_branch_that_saves_too_little_is_dissolved():
    """Two prompts sharing two tokens branch there when 2 tokens saved are enough, and not at 3."""
    pair = [(1, 2, 3, 4), (1, 2, 5, 6)]
    assert total(build_tree(pair, (), 2)) == 6
    assert total(build_tree(pair, (), 3)) == 8


def test_prompts_that_do_not_begin_with_the_head_are_roots():
    """A stray prompt, and one that is only the head itself, hang below no head."""
    nodes = build_tree([(1, 2, 3), (5, 5), (1, 2)], (1, 2), 1)
    parent_of = {node.terminal: node.parent for node in nodes if node.terminal >= 0}
    assert parent_of[0] == HEAD
    assert parent_of[1] == -1
    assert parent_of[2] == -1


@given(prompts, heads)
def test_parents_come_before_children(prompts, head):
    """The walk meets every node once and its parent earlier."""
    nodes = build_tree(prompts, head, 3)
    seen = set()
    for index in walk(nodes):
        assert index not in seen
        assert nodes[index].parent == -1 or nodes[index].parent in seen
        seen.add(index)
