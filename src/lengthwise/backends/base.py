"""The contract between plans and models, small enough to write another backend in an afternoon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lengthwise.records import Bucket, FloatArray, LabelTrie, Pack, TokenIds


class Backend(Protocol):
    """Runs the work of a plan.

    A backend answers the wants of a pack or bucket in order: for each want the log-probabilities, over
    the full vocabulary, of the tokens on the trie edges that leave the want's node. The same work gives
    the same bits each time, also after a call that raised.
    """

    name: str

    def max_wants(self) -> int:
        """How many wanted positions one forward may have, so that logits stay within bounded memory."""
        ...

    def run(self, work: Pack | Bucket, trie: LabelTrie) -> list[FloatArray]:
        """One array of shape (edges of the node,) for each want.

        A pack's ``keep`` segments stay resident until a later pack releases them.
        """
        ...

    def head_resident(self, head: TokenIds) -> bool:
        """Whether the keys and values of exactly these tokens are kept from an earlier window."""
        ...

    def reset(self) -> None:
        """Drop everything resident, for instance after a pack that raised."""
        ...


class Reference(Protocol):
    """Plain execution of one unpadded row: the truth that every backend is held against."""

    def score(self, prompt: TokenIds, labels: Sequence[TokenIds]) -> FloatArray:
        """Summed log-probability of each label's tokens behind the prompt, shape (labels,)."""
        ...
