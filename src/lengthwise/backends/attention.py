"""Attention over a pack: every segment sees its ancestors and, causally, itself.

`PackContext` travels through ``model(...)`` as a keyword argument to the function registered with
Transformers' `AttentionInterface`. Neighbouring small segments are answered by one call with a tree
mask, since a call costs more than a few masked scores do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lengthwise.backends.kv import KeyValue, ResidentKV
from lengthwise.plan.tree import NO_PARENT
from lengthwise.records import Pack, Segment

if TYPE_CHECKING:
    import torch

IMPLEMENTATION = "lengthwise_packed"
BLOCK_TOKENS = 128
"""Segments are joined into one attention call up to this many tokens (measured: see docs/design.md)."""

IGNORED = frozenset(
    {
        "position_ids",
        "cache_position",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
    }
)
"""Keyword arguments that do not change what attention computes here."""


class UnsupportedAttentionError(Exception):
    """The model asks for something packed attention does not do; the caller takes another backend."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive segments answered by one attention call.

    ``begin``/``end`` are token indices in the pack, ``outside`` the ancestors not in the block, root
    first, each as (segment id, start in the pack or -1 when resident, length).
    """

    begin: int
    end: int
    segments: tuple[Segment, ...]
    outside: tuple[tuple[int, int, int], ...]

    @property
    def outside_tokens(self) -> int:
        return sum(length for _, _, length in self.outside)


def blocks_of(
    pack: Pack, resident_lengths: dict[int, tuple[int, int]], limit: int = BLOCK_TOKENS
) -> list[Block]:
    """Cut a pack into blocks.

    ``resident_lengths`` gives (parent, length) of segments kept from earlier packs. A segment joins
    the running block when its parent is in the block or among the block's outside ancestors and the
    block stays within ``limit`` tokens.
    """
    known = dict(resident_lengths)
    starts: dict[int, int] = {}
    at = 0
    for segment in pack.segments:
        known[segment.id] = (segment.parent, len(segment))
        starts[segment.id] = at
        at += len(segment)
    groups: list[tuple[list[Segment], list[int]]] = []
    members: set[int] = set()
    size = 0
    for segment in pack.segments:
        if not groups or size + len(segment) > limit or segment.parent not in members:
            chain = _ancestors(segment.parent, known)
            groups.append(([], chain))
            members = {NO_PARENT, *chain} if segment.parent == NO_PARENT else set(chain)
            size = 0
        groups[-1][0].append(segment)
        members.add(segment.id)
        size += len(segment)
    return [_block(group, chain, starts, known) for group, chain in groups]


def _ancestors(segment_id: int, known: dict[int, tuple[int, int]]) -> list[int]:
    """The chain from the root down to ``segment_id``."""
    chain = []
    while segment_id != NO_PARENT:
        chain.append(segment_id)
        segment_id = known[segment_id][0]
    return chain[::-1]


def _block(
    group: list[Segment], chain: list[int], starts: dict[int, int], known: dict[int, tuple[int, int]]
) -> Block:
    begin = starts[group[0].id]
    end = starts[group[-1].id] + len(group[-1])
    return Block(begin, end, tuple(group), tuple((i, starts.get(i, -1), known[i][1]) for i in chain))


def tree_mask(block: Block, window: int | None, device: torch.device) -> torch.Tensor | None:
    """Which keys each token of the block sees: bool (tokens, outside + tokens), True = visible.

    None stands for plain causal attention without outside keys. ``window`` is the sliding window: a
    query sees keys less than ``window`` positions before it.
    """
    import torch  # noqa: PLC0415 - torch is loaded with the first model, not with the package

    outside = block.outside_tokens
    size = block.end - block.begin
    if len(block.segments) == 1 and not outside and (window is None or size <= window):
        return None
    lengths = torch.tensor([len(segment) for segment in block.segments])
    owner = torch.repeat_interleave(torch.arange(len(block.segments)), lengths)
    position = torch.cat([torch.arange(s.start, s.start + len(s)) for s in block.segments])
    ancestor, sees_outside = _visibility(block)
    inside = ancestor[owner][:, owner] | ((owner[:, None] == owner) & (position[:, None] >= position))
    before = torch.arange(outside) < sees_outside[owner][:, None]
    mask = torch.cat([before, inside], dim=1)
    if window is not None:
        keys = torch.cat([torch.arange(outside), position])
        mask &= position[:, None] - keys < window
    return mask.to(device)


def _visibility(block: Block) -> tuple[torch.Tensor, torch.Tensor]:
    """For each segment of the block: which others are its ancestors, and how many outside keys it sees."""
    import torch  # noqa: PLC0415

    index = {segment.id: i for i, segment in enumerate(block.segments)}
    ancestor = torch.zeros(len(index), len(index), dtype=torch.bool)
    outside = torch.zeros(len(index), dtype=torch.long)
    for i, segment in enumerate(block.segments):
        parent = index.get(segment.parent)
        if parent is None:
            outside[i] = segment.start
        else:
            ancestor[i] = ancestor[parent]
            ancestor[i, parent] = True
            outside[i] = outside[parent]
    return ancestor, outside


@dataclass(slots=True)
class PackContext:
    """One pack on its way through the model; collects the kept segments' keys and values."""

    blocks: Sequence[Block]
    resident: ResidentKV
    keep: dict[int, tuple[int, int]]
    kept: dict[int, dict[int, KeyValue]] = field(default_factory=dict)
    windows_seen: set[int | None] = field(default_factory=set)
    calls: int = 0
    _masks: dict[tuple[int, int | None], torch.Tensor | None] = field(default_factory=dict)

    def mask(self, number: int, window: int | None, like: torch.Tensor) -> torch.Tensor | None:
        """The block's additive mask in the dtype of ``like``; made once per pack and window."""
        import torch  # noqa: PLC0415

        key = (number, window)
        if key not in self._masks:
            visible = tree_mask(self.blocks[number], window, like.device)
            if visible is not None:
                zero = torch.zeros(visible.shape, dtype=like.dtype, device=like.device)
                visible = zero.masked_fill_(~visible, float("-inf"))
            self._masks[key] = visible
        return self._masks[key]

    def keys_and_values(self, block: Block, layer: int, own: KeyValue) -> KeyValue:
        """The outside ancestors' keys and values followed by the block's own."""
        import torch  # noqa: PLC0415

        parts = []
        for segment_id, start, length in block.outside:
            if start < 0:
                parts.append(self.resident.layer(segment_id, layer))
            else:
                parts.append((own[0][:, :, start : start + length], own[1][:, :, start : start + length]))
        mine = (own[0][:, :, block.begin : block.end], own[1][:, :, block.begin : block.end])
        if not parts:
            return mine
        parts.append(mine)
        return torch.cat([k for k, _ in parts], dim=2), torch.cat([v for _, v in parts], dim=2)

    def collect(self, layer: int, own: KeyValue) -> None:
        """Copy what later packs need from this layer."""
        for segment_id, (start, end) in self.keep.items():
            pair = (own[0][:, :, start:end].clone(), own[1][:, :, start:end].clone())
            self.kept.setdefault(segment_id, {})[layer] = pair


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    pack: PackContext | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one layer over a pack: (1, heads, T, d) queries to (1, T, heads, d) outputs.

    Sliding window, soft-capping (Gemma 2) and sinks (``s_aux``, GPT-OSS) are honoured; an argument
    that is not known raises `UnsupportedAttentionError`.
    """
    unknown = sorted(name for name, given in rest.items() if given is not None and name not in IGNORED)
    layer = getattr(module, "layer_idx", None)
    if (
        pack is None
        or layer is None
        or unknown
        or dropout
        or attention_mask is not None
        or is_causal is False
    ):
        raise UnsupportedAttentionError(f"attention arguments {unknown or 'of this model'} are not supported")
    pack.calls += 1
    pack.windows_seen.add(sliding_window)
    pack.collect(layer, (key, value))
    output = query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])
    for number, block in enumerate(pack.blocks):
        keys, values = pack.keys_and_values(block, layer, (key, value))
        queries = query[:, :, block.begin : block.end]
        mask = pack.mask(number, sliding_window, query)
        if softcap is None and s_aux is None:
            result = _fused(queries, keys, values, mask, scaling)
        else:
            result = _explicit(queries, keys, values, mask, scaling, softcap, s_aux)
        output[:, block.begin : block.end] = result.transpose(1, 2)
    return output, None


def _fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    import torch  # noqa: PLC0415

    grouped = query.shape[1] != key.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=grouped
    )


def _explicit(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention written out: softcap * tanh(scores / softcap), then one sink logit a head."""
    import torch  # noqa: PLC0415

    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query, key.transpose(2, 3)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is None:
        size = query.shape[2]
        mask = scores.new_full((size, size), float("-inf")).triu_(1)
    scores = scores + mask
    if sinks is not None:
        column = sinks.reshape(1, -1, 1, 1).to(scores.dtype).expand(-1, -1, query.shape[2], 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights[..., : value.shape[2]], value)
