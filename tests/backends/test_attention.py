"""Blocks and tree masks of packed attention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.backends.attention import (
    PackContext,
    UnsupportedAttentionError,
    blocks_of,
    packed_attention,
    tree_mask,
)
from lengthwise.backends.kv import ResidentKV
from lengthwise.plan.pack import plan_packs
from tests.strategies import LABELS, heads, prompts, trie_of


def planned(prompts, head, budget):
    return plan_packs(
        prompts, trie_of(LABELS[1]), head, head_resident=False, budget=budget, max_wants=99, min_saved=1
    )


def blocks_with_residents(plan, limit):
    """(pack, block) for a whole plan, with the residents as the backend would know them."""
    shapes = {}
    for pack in plan.work:
        yield from ((pack, block) for block in blocks_of(pack, shapes, limit))
        shapes.update({s.id: (s.parent, len(s)) for s in pack.segments if s.id in pack.keep})


@given(prompts, heads, st.integers(8, 60), st.sampled_from([1, 8, 64]))
def test_blocks_cover_a_pack_once_and_in_order(prompts, head, budget, limit):
    """Laid end to end the blocks are the pack's tokens; only a lone segment exceeds the limit."""
    by_pack = {}
    for pack, block in blocks_with_residents(planned(prompts, head, budget), limit):
        assert block.begin == by_pack.get(id(pack), 0)
        assert block.end - block.begin <= limit or len(block.segments) == 1
        by_pack[id(pack)] = block.end
    assert sum(by_pack.values()) == planned(prompts, head, budget).computed_tokens


@given(prompts, heads, st.integers(8, 60), st.sampled_from([1, 8, 64]), st.sampled_from([None, 1, 3, 100]))
def test_a_token_sees_exactly_its_ancestors_within_the_window(prompts, head, budget, limit, window):
    """The mask equals the definition: all tokens on the path to the root, itself, less than a window away."""
    plan = planned(prompts, head, budget)
    segments = {s.id: s for pack in plan.work for s in pack.segments}
    for _, block in blocks_with_residents(plan, limit):
        mask = tree_mask(block, window, torch.device("cpu"))
        size, outside = block.end - block.begin, block.outside_tokens
        if mask is None:
            mask = torch.ones(size, size, dtype=torch.bool).tril()
        keys = [(i, offset) for i, _, length in block.outside for offset in range(length)]
        own = [(s.id, offset) for s in block.segments for offset in range(len(s))]
        keys += own
        assert mask.shape == (size, outside + size)
        for row, query in enumerate(own):
            path = ancestors_and_self(segments, query[0])
            at = segments[query[0]].start + query[1]
            for column, key in enumerate(keys):
                position = segments[key[0]].start + key[1]
                visible = key[0] in path and position <= at and (window is None or at - position < window)
                assert bool(mask[row, column]) == visible


def ancestors_and_self(segments, segment_id):
    path = set()
    while segment_id >= 0:
        path.add(segment_id)
        segment_id = segments[segment_id].parent
    return path


def test_small_siblings_share_a_call():
    """Three short rows below one head are one block; with a limit of one token each is its own."""
    plan = planned([(1, 2, 5), (1, 2, 6), (1, 2, 7)], (1, 2), budget=100)
    (pack,) = plan.work
    assert len(blocks_of(pack, {}, 128)) == 1
    assert len(blocks_of(pack, {}, 1)) == len(pack.segments)


@pytest.mark.parametrize(
    "extra", [{"position_bias": torch.zeros(1)}, {"dropout": 0.5}, {"is_causal": False}, {"pack": None}]
)
def test_arguments_that_change_the_result_are_refused(extra):
    """An attention argument that is not honoured raises, so that the model takes another backend."""

    class Layer(torch.nn.Module):
        layer_idx = 0

    query = torch.zeros(1, 1, 2, 4)
    arguments = {"pack": PackContext([], ResidentKV(), {}), **extra}
    with pytest.raises(UnsupportedAttentionError):
        packed_attention(Layer(), query, query, query, None, **arguments)
