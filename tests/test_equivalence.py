"""Packed = bucketed = reference, over real architectures with random weights."""

import copy
import random

import numpy as np
import pytest
import torch

from lengthwise.backends.bucketed import BucketedBackend
from lengthwise.backends.packed import PackedBackend
from lengthwise.backends.reference import HuggingFaceReference
from lengthwise.plan.bucket import plan_buckets
from lengthwise.plan.pack import plan_packs
from tests.strategies import LABELS, reference_scores, run_plan, trie_of
from tests.tiny_models import PACKABLE, VOCAB, WINDOW, tiny_model

TOLERANCE = 1e-4
LENGTHS = (1, 4, WINDOW - 1, WINDOW, WINDOW + 1, 33, 65, 300)
ALL_LABELS = [(7,), (8, 1), (8, 2, 3), (9, 4, 4, 4, 4)]


def unlike_prompts(seed=0):
    """Unrelated prompts of lengths around the sliding window and far beyond it."""
    rng = random.Random(seed)
    return [tuple(rng.randrange(10, VOCAB) for _ in range(length)) for length in LENGTHS]


def related_prompts(depth, seed=0):
    """Prompts that leave a common trunk at ``depth`` different places, plus one stray."""
    rng = random.Random(seed)
    trunk = [rng.randrange(10, VOCAB) for _ in range(4 + 2 * depth)]
    leaves = [
        tuple(trunk[: 4 + 2 * i] + [rng.randrange(10, VOCAB) for _ in range(1 + i % 5)]) for i in range(depth)
    ]
    return list(dict.fromkeys([*leaves, tuple(trunk), (11, 12, 13)])), tuple(trunk[:4])


def packed_scores(backend, prompts, labels, head=(), *, budget=64, min_saved=1):
    trie = trie_of(labels)
    plan = plan_packs(
        prompts,
        trie,
        head,
        head_resident=backend.head_resident(head),
        budget=budget,
        max_wants=16,
        min_saved=min_saved,
    )
    return run_plan(plan, backend, trie, len(prompts))


@pytest.fixture(params=PACKABLE)
def model(request):
    return tiny_model(request.param)


def test_packed_rows_of_any_length_score_as_alone(model):
    """Rows of 1 to 300 tokens, around and beyond the sliding window, in small and large packs."""
    prompts = unlike_prompts()
    truth = reference_scores(HuggingFaceReference(model), prompts, ALL_LABELS)
    for budget in (16, 64, 1000):
        scores = packed_scores(PackedBackend(model, VOCAB), prompts, ALL_LABELS, budget=budget)
        np.testing.assert_allclose(scores, truth, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("depth", [1, 5, 50])
def test_trees_of_any_depth_score_as_alone(model, depth):
    """A trunk left at up to 50 places: ancestors in the pack and resident, windows shorter than them."""
    prompts, head = related_prompts(depth)
    truth = reference_scores(HuggingFaceReference(model), prompts, ALL_LABELS)
    for budget in (24, 500):
        scores = packed_scores(PackedBackend(model, VOCAB), prompts, ALL_LABELS, head, budget=budget)
        np.testing.assert_allclose(scores, truth, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_bucketed_rows_score_as_alone(model, batch_size):
    """Left padding of up to 299 tokens beside explicit positions changes no score."""
    prompts = unlike_prompts()
    trie = trie_of(ALL_LABELS)
    plan = plan_buckets(prompts, trie, batch_size=batch_size, budget=100_000, max_wants=64)
    scores = run_plan(plan, BucketedBackend(model, VOCAB), trie, len(prompts))
    truth = reference_scores(HuggingFaceReference(model), prompts, ALL_LABELS)
    np.testing.assert_allclose(scores, truth, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("padding", [0, 1, 31, 500])
@pytest.mark.parametrize("name", ["gpt2-learned-positions", "llama"])
def test_padding_amount_changes_nothing(name, padding):
    """ "hi" beside a ticket that is longer by 0, 1, 31 or 500 tokens scores as alone."""
    model = tiny_model(name)
    rows = [(12, 13), tuple(range(20, 22 + min(padding, 270))) + (30,) * max(0, padding - 270)]
    trie = trie_of(LABELS[0])
    plan = plan_buckets(rows, trie, batch_size=2, budget=10_000, max_wants=8)
    scores = run_plan(plan, BucketedBackend(model, VOCAB), trie, 2)
    truth = reference_scores(HuggingFaceReference(model), rows, LABELS[0])
    np.testing.assert_allclose(scores, truth, atol=TOLERANCE, rtol=0)


def test_the_head_is_used_again_in_the_next_window(model):
    """A second window on the same backend computes no head and scores as alone."""
    prompts, head = related_prompts(4)
    backend = PackedBackend(model, VOCAB)
    packed_scores(backend, prompts, ALL_LABELS, head)
    assert backend.head_resident(head)
    more = [head + (200 + i, 40, 50) for i in range(5)]
    truth = reference_scores(HuggingFaceReference(model), more, ALL_LABELS)
    np.testing.assert_allclose(packed_scores(backend, more, ALL_LABELS, head), truth, atol=TOLERANCE, rtol=0)


def test_the_same_pack_twice_gives_the_same_bits(model):
    """X, then Y, then X again on one backend: X = X bit for bit, and only the head stays resident."""
    prompts, head = related_prompts(6)
    other = [head + (100 + i,) * (i + 1) for i in range(6)]
    backend = PackedBackend(model, VOCAB)
    packed_scores(backend, prompts, ALL_LABELS, head)
    held = backend.kv.size_in_bytes()
    first = packed_scores(backend, prompts, ALL_LABELS, head)
    packed_scores(backend, other, ALL_LABELS, head)
    again = packed_scores(backend, prompts, ALL_LABELS, head)
    assert np.array_equal(first, again)
    assert backend.kv.size_in_bytes() == held


def test_a_pack_that_raises_leaves_nothing_behind(monkeypatch):
    """After an error in the middle of a forward the same rows give the same bits as before it."""
    model = tiny_model("qwen2")
    prompts, head = related_prompts(6)
    backend = PackedBackend(model, VOCAB)
    packed_scores(backend, prompts, ALL_LABELS, head)
    first = packed_scores(backend, prompts, ALL_LABELS, head)
    held = backend.kv.segments()

    def fail(*args, **kwargs):
        raise RuntimeError("out of memory, said the test")

    last_layer = backend.model.model.layers[-1]
    with monkeypatch.context() as patch:
        patch.setattr(last_layer, "forward", fail)
        with pytest.raises(RuntimeError, match="said the test"):
            packed_scores(backend, [head + (99, 98, 97)], ALL_LABELS, head)
    assert backend.kv.segments() == held
    assert np.array_equal(packed_scores(backend, prompts, ALL_LABELS, head), first)


def test_packing_leaves_the_models_own_attention_alone(model):
    """The reference gives the same bits before and after a packed backend was made from its model."""
    prompts = unlike_prompts()[:4]
    before = reference_scores(HuggingFaceReference(model), prompts, ALL_LABELS)
    chosen = model.config._attn_implementation
    packed_scores(PackedBackend(model, VOCAB), prompts, ALL_LABELS)
    assert model.config._attn_implementation == chosen
    assert np.array_equal(reference_scores(HuggingFaceReference(model), prompts, ALL_LABELS), before)


def test_the_packed_model_holds_no_weight_twice():
    """All parameters of the packed copy are the tensors of the original."""
    model = tiny_model("llama")
    theirs = {id(p) for p in model.parameters()}
    assert all(id(p) in theirs for p in PackedBackend(model, VOCAB).model.parameters())


def test_half_precision_gives_numbers():
    """bfloat16: a 3-token ticket beside a long one has finite scores near the row alone."""
    model = copy.deepcopy(tiny_model("llama")).bfloat16()
    prompts = [(11, 12, 13), tuple(range(20, 85))]
    truth = reference_scores(HuggingFaceReference(model), prompts, LABELS[0])
    packed = packed_scores(PackedBackend(model, VOCAB), prompts, LABELS[0])
    trie = trie_of(LABELS[0])
    plan = plan_buckets(prompts, trie, batch_size=2, budget=1000, max_wants=8)
    bucketed = run_plan(plan, BucketedBackend(model, VOCAB), trie, 2)
    for scores in (packed, bucketed):
        assert np.isfinite(scores).all()
        np.testing.assert_allclose(scores, truth, atol=0.2, rtol=0)


def test_a_model_that_cannot_restrict_its_head_is_served_too():
    """Without logits_to_keep all strategies take the wanted rows of the full logits."""

    class FullLogits(torch.nn.Module):
        """A model whose forward has no logits_to_keep."""

        def __init__(self, model):
            super().__init__()
            self.inner, self.config, self.device = model, model.config, model.device

        def forward(self, input_ids, attention_mask=None, position_ids=None, use_cache=None, **extra):
            return self.inner(
                input_ids, attention_mask, position_ids=position_ids, use_cache=use_cache, **extra
            )

        def set_attn_implementation(self, name):
            self.inner.set_attn_implementation(name)
            self.config = self.inner.config

    model = FullLogits(tiny_model("llama"))
    prompts = unlike_prompts()[:5]
    truth = reference_scores(HuggingFaceReference(tiny_model("llama")), prompts, ALL_LABELS)
    trie = trie_of(ALL_LABELS)
    plan = plan_buckets(prompts, trie, batch_size=3, budget=1000, max_wants=64)
    found = [
        reference_scores(HuggingFaceReference(model), prompts, ALL_LABELS),
        packed_scores(PackedBackend(model, VOCAB), prompts, ALL_LABELS),
        run_plan(plan, BucketedBackend(model, VOCAB), trie, len(prompts)),
    ]
    for scores in found:
        np.testing.assert_allclose(scores, truth, atol=TOLERANCE, rtol=0)
