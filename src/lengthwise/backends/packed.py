"""The packed strategy: segments laid end to end, ancestors' keys and values kept, no padding."""

from __future__ import annotations

import copy
import logging
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from lengthwise.backends.attention import (
    IMPLEMENTATION,
    PackContext,
    UnsupportedAttentionError,
    blocks_of,
    packed_attention,
)
from lengthwise.backends.kv import ResidentKV
from lengthwise.backends.logits import chosen_logits, wanted_log_probs, wants_within_memory
from lengthwise.records import Bucket, FloatArray, LabelTrie, Pack, TokenIds

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("lengthwise")


class PackedBackend:
    """Runs packs through any decoder that uses Transformers' attention interface."""

    name = "packed"

    def __init__(self, model: Any, vocab_size: int) -> None:
        self.model = with_packed_attention(model)
        self.vocab_size = vocab_size
        self.kv = ResidentKV()
        self._shape_of: dict[int, tuple[int, int]] = {}
        self.last_context: PackContext | None = None

    def max_wants(self) -> int:
        return wants_within_memory(self.vocab_size)

    def head_resident(self, head: TokenIds) -> bool:
        return bool(head) and self.kv.holds_head(head)

    def reset(self) -> None:
        self.kv.clear()
        self._shape_of.clear()

    def run(self, work: Pack | Bucket, trie: LabelTrie) -> list[FloatArray]:
        if not isinstance(work, Pack):
            raise TypeError("the packed backend runs packs")
        logits, context = self._forward(work)
        values = wanted_log_probs(logits, work.wants, trie)
        for segment in work.segments:
            if segment.id in work.keep:
                self.kv.add(segment.id, context.kept.get(segment.id, {}), segment.tokens)
                self._shape_of[segment.id] = (segment.parent, len(segment))
        for segment_id in work.release:
            self.kv.release(segment_id)
            self._shape_of.pop(segment_id, None)
        return values

    def _forward(self, pack: Pack) -> tuple[torch.Tensor, PackContext]:
        """Logits of the wanted positions (wants, vocabulary) and the context with kept keys and values."""
        import torch  # noqa: PLC0415 - torch is loaded with the first model, not with the package

        ends = list(accumulate(len(segment) for segment in pack.segments))
        span = {s.id: (end - len(s), end) for s, end in zip(pack.segments, ends, strict=True)}
        keep = {segment_id: span[segment_id] for segment_id in pack.keep}
        context = PackContext(blocks_of(pack, self._shape_of), self.kv, keep)
        tokens = [token for segment in pack.segments for token in segment.tokens]
        positions = [p for s in pack.segments for p in range(s.start, s.start + len(s))]
        device = self.model.device
        with torch.inference_mode():
            logits = chosen_logits(
                self.model,
                torch.tensor([want.index for want in pack.wants], dtype=torch.long, device=device),
                input_ids=torch.tensor([tokens], device=device),
                position_ids=torch.tensor([positions], device=device),
                pack=context,
            )
        self.last_context = context
        return logits[0], context


def with_packed_attention(model: Any) -> Any:
    """A second model object over the same weights whose attention is `packed_attention`.

    The modules are copied and the tensors shared, so the reference and the packed path never switch
    each other's settings and no weight is held twice.
    """
    from transformers import AttentionInterface  # noqa: PLC0415 - heavy, loaded with the first model

    AttentionInterface.register(IMPLEMENTATION, packed_attention)
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, memo=shared)
    twin.set_attn_implementation(IMPLEMENTATION)
    if twin.config.get_text_config()._attn_implementation != IMPLEMENTATION:
        raise UnsupportedAttentionError("the model does not take its attention from the interface")
    return twin
