"""A backend without a model: log-probabilities from a hash of all tokens before a position.

Public, for tests of programs that use lengthwise and of plans: the value at a position depends on
every token from the root on, so a plan that loses an ancestor, mixes rows up or shifts a position gives
other numbers than `FakeReference`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from lengthwise.plan.tree import HEAD
from lengthwise.records import Bucket, FloatArray, LabelTrie, Pack, TokenIds


def fake_log_prob(prefix: TokenIds, token: int) -> float:
    """A fixed number in [-8, 0) for a token behind a prefix."""
    digest = hashlib.blake2b(np.asarray((*prefix, token), dtype="<u4").tobytes(), digest_size=8).digest()
    return -8.0 * (int.from_bytes(digest, "little") + 1) / 2.0**64


class FakeBackend:
    """Answers packs and buckets by following each segment's ancestors; counts what it computes."""

    name = "fake"

    def __init__(self, max_wants: int = 512) -> None:
        self._max_wants = max_wants
        self._resident: dict[int, TokenIds] = {}
        self._lengths: dict[int, int] = {}
        self.computed_tokens = 0
        self.forwards = 0
        self.peak_resident_tokens = 0

    def max_wants(self) -> int:
        return self._max_wants

    def head_resident(self, head: TokenIds) -> bool:
        return bool(head) and self._resident.get(HEAD) == head

    def reset(self) -> None:
        self._resident.clear()

    @property
    def resident_segments(self) -> tuple[int, ...]:
        """Ids of the segments kept at the moment."""
        return tuple(self._resident)

    def run(self, work: Pack | Bucket, trie: LabelTrie) -> list[FloatArray]:
        prefixes = list(self._pack_prefixes(work) if isinstance(work, Pack) else _bucket_prefixes(work))
        self.computed_tokens += work.computed_tokens
        self.forwards += 1
        values = []
        for want in work.wants:
            prefix = prefixes[want.index]
            tokens = [trie.edges[edge][1] for edge in trie.edges_of(want.node)]
            values.append(np.array([fake_log_prob(prefix, token) for token in tokens]))
        return values

    def _pack_prefixes(self, pack: Pack) -> Iterable[TokenIds]:
        """For every token of the pack: all tokens from the root up to and including it."""
        whole: dict[int, TokenIds] = dict(self._resident)
        prefixes: list[TokenIds] = []
        for segment in pack.segments:
            before = whole[segment.parent] if segment.parent >= 0 else ()
            if len(before) != segment.start:
                raise ValueError(
                    f"segment {segment.id} starts at {segment.start}, its parent ends at {len(before)}"
                )
            whole[segment.id] = before + segment.tokens
            prefixes.extend(before + segment.tokens[: i + 1] for i in range(len(segment)))
        self._resident.update({i: whole[i] for i in pack.keep})
        self._lengths.update({segment.id: len(segment) for segment in pack.segments})
        held = sum(self._lengths[i] for i in self._resident)
        self.peak_resident_tokens = max(self.peak_resident_tokens, held)
        for i in pack.release:
            del self._resident[i]
        return prefixes


def _bucket_prefixes(bucket: Bucket) -> Iterable[TokenIds]:
    for sequence in bucket.sequences:
        yield from [()] * (bucket.width - len(sequence))
        yield from (sequence[: i + 1] for i in range(len(sequence)))


class FakeReference:
    """The reference to `FakeBackend`: the same hash, applied to prompt and label directly."""

    def score(self, prompt: TokenIds, labels: Sequence[TokenIds]) -> FloatArray:
        return np.array(
            [
                sum(fake_log_prob(prompt + label[:k], token) for k, token in enumerate(label))
                for label in labels
            ]
        )
