"""Which backend a model gets, found by trying."""

import random

import numpy as np
import pytest

from lengthwise.backends.bucketed import BucketedBackend
from lengthwise.backends.packed import PackedBackend
from lengthwise.backends.reference import HuggingFaceReference
from lengthwise.backends.select import choose_backend, length_limit_for_sharing, probe_prompts
from lengthwise.plan.bucket import plan_buckets
from tests.strategies import LABELS, reference_scores, run_plan, trie_of
from tests.tiny_models import PACKABLE, VOCAB, tiny_model

SAMPLE = (11, 12, 13, 14, 15)


def chosen(name, strategy="packed"):
    model = tiny_model(name)
    return choose_backend(strategy, model, VOCAB, HuggingFaceReference(model), SAMPLE, 1e-3)


@pytest.mark.parametrize("name", PACKABLE)
def test_ordinary_decoders_are_packed(name):
    """Every promised architecture is packed without a note, and starts with nothing resident."""
    backend, notes = chosen(name)
    assert isinstance(backend, PackedBackend)
    assert notes == []
    assert backend.kv.segments() == ()


def test_a_hybrid_takes_buckets_and_says_so():
    """A model with short convolutions cannot be packed; it is bucketed, with the reason in a note."""
    backend, notes = chosen("lfm2-hybrid")
    assert isinstance(backend, BucketedBackend)
    assert len(notes) == 1
    assert "packed" in notes[0]
    assert "conv" in notes[0]


def test_a_hybrid_that_hides_its_layers_is_found_by_running_it(monkeypatch):
    """Even when the configuration tells nothing, the probe's scores do."""
    model = tiny_model("lfm2-hybrid")
    monkeypatch.setattr("lengthwise.backends.select.ATTENTION_LAYERS", {"conv", "full_attention"})
    backend, notes = choose_backend("packed", model, VOCAB, HuggingFaceReference(model), SAMPLE, 1e-3)
    assert isinstance(backend, BucketedBackend)
    assert "differ from the reference" in notes[0]


def test_a_hybrid_in_buckets_scores_as_alone():
    """Left padding does not leak into the convolution states of other rows."""
    model = tiny_model("lfm2-hybrid")
    rng = random.Random(3)
    rows = [tuple(rng.randrange(10, VOCAB) for _ in range(n)) for n in (1, 2, 9, 40)]
    trie = trie_of(LABELS[1])
    plan = plan_buckets(rows, trie, batch_size=8, budget=1000, max_wants=64)
    scores = run_plan(plan, BucketedBackend(model, VOCAB), trie, len(rows))
    truth = reference_scores(HuggingFaceReference(model), rows, LABELS[1])
    np.testing.assert_allclose(scores, truth, atol=1e-4, rtol=0)


def test_sequential_asks_for_no_backend():
    """The sequential strategy is the reference itself."""
    assert chosen("llama", "sequential") == (None, [])


def test_bucketed_is_taken_when_asked_for():
    """A wish for buckets is not overruled on a model that could be packed."""
    backend, notes = chosen("llama", "bucketed")
    assert isinstance(backend, BucketedBackend)
    assert notes == []


def test_a_model_that_drifts_everywhere_is_run_one_by_one():
    """When neither backend agrees with the reference, rows run alone, with both reasons noted."""

    class OtherReference:
        def score(self, prompt, labels):
            return np.zeros(len(labels))

    backend, notes = choose_backend("packed", tiny_model("llama"), VOCAB, OtherReference(), SAMPLE, 1e-3)
    assert backend is None
    assert [note.split()[0] for note in notes] == ["packed", "bucketed"]


@pytest.mark.parametrize("sample", [(5,), (5, 6), tuple(range(40))])
def test_probe_prompts_are_unlike_in_length_and_share_a_beginning(sample):
    """Whatever the sample, two prompts with a shared beginning come out."""
    first, second = probe_prompts(sample)
    assert len(first) != len(second)
    assert first[:9] == second[:9]


def test_length_dependent_positions_are_known():
    """A longrope model shares forwards only up to its original context; others everywhere."""
    assert length_limit_for_sharing(tiny_model("phi3-longrope").config) == 32
    assert length_limit_for_sharing(tiny_model("llama").config) is None
