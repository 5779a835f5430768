"""Keys and values of segments that later packs attend to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.plan.tree import HEAD
from lengthwise.records import TokenIds

if TYPE_CHECKING:
    import torch

KeyValue = tuple["torch.Tensor", "torch.Tensor"]
"""Keys and values of one layer, each (1, key-value heads, tokens, head size)."""


class ResidentKV:
    """Segment id to its keys and values layer by layer.

    Entries are made once and never changed; a pack that raises leaves no entry behind.
    """

    def __init__(self) -> None:
        self._layers: dict[int, dict[int, KeyValue]] = {}
        self._head: TokenIds = ()

    def layer(self, segment_id: int, layer: int) -> KeyValue:
        """Changes nothing; the tensors are valid until the segment is released."""
        return self._layers[segment_id][layer]

    def add(self, segment_id: int, layers: dict[int, KeyValue], tokens: TokenIds) -> None:
        """Keep a segment; the tensors must be copies that nobody else writes to."""
        self._layers[segment_id] = layers
        if segment_id == HEAD:
            self._head = tokens

    def release(self, segment_id: int) -> None:
        """Forget a segment; its memory is free once no running pack holds it."""
        self._layers.pop(segment_id, None)

    def holds_head(self, head: TokenIds) -> bool:
        """Whether the head with exactly these tokens is resident; changes nothing."""
        return HEAD in self._layers and self._head == head

    def clear(self) -> None:
        """Forget everything."""
        self._layers.clear()
        self._head = ()

    def segments(self) -> tuple[int, ...]:
        """Ids of the resident segments; changes nothing."""
        return tuple(self._layers)

    def size_in_bytes(self) -> int:
        """Bytes of all resident keys and values; changes nothing."""
        pairs = (pair for layers in self._layers.values() for pair in layers.values())
        return sum(tensor.numel() * tensor.element_size() for pair in pairs for tensor in pair)
