"""Packs: segments of the token tree laid end to end within a budget, without padding.

Three steps: the tree becomes a list of segments in depth-first order, the list is cut into packs,
and for each pack it is noted which keys and values must stay for later packs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lengthwise.plan.tree import HEAD, NO_PARENT, TreeNode, build_tree, walk
from lengthwise.records import LabelTrie, Pack, Plan, Segment, TokenIds, Want


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment with its wanted positions as (offset in the segment, prompt, trie node)."""

    segment: Segment
    wants: tuple[tuple[int, int, int], ...] = ()


def plan_packs(
    prompts: Sequence[TokenIds],
    trie: LabelTrie,
    head: TokenIds,
    *,
    head_resident: bool,
    budget: int,
    max_wants: int,
    min_saved: int,
) -> Plan:
    """Packs that give every trie node behind every distinct prompt its log-probabilities.

    No pack holds more than ``budget`` tokens (the head alone may) or ``max_wants`` wanted positions.
    With ``head_resident`` the head's keys and values are at the backend already and are not planned
    again. A branch of the tree is kept only when it saves ``min_saved`` tokens.
    """
    nodes = build_tree(prompts, head, min_saved)
    layout = _Layout(budget, has_head=bool(head))
    if head and not head_resident:
        layout.pieces.append(Piece(Segment(HEAD, NO_PARENT, 0, head)))
    for index in walk(nodes):
        if index != HEAD:
            layout.add_node(nodes, index, prompts)
            if nodes[index].terminal >= 0:
                layout.add_continuations(trie, index, nodes[index])
    packs = _cut(layout.pieces, budget, max_wants)
    return _with_residency(packs, resident_head=len(head))


class _Layout:
    """Turns tree nodes into segments, parents before children."""

    def __init__(self, longest: int, *, has_head: bool) -> None:
        self.pieces: list[Piece] = []
        self.longest = longest
        self._last_segment: dict[int, int] = {NO_PARENT: NO_PARENT, HEAD: HEAD if has_head else NO_PARENT}
        self._next_id = HEAD + 1

    def add_node(self, nodes: Sequence[TreeNode], index: int, prompts: Sequence[TokenIds]) -> None:
        node = nodes[index]
        tokens = prompts[node.prompt][node.start : node.end]
        wants = [(len(tokens) - 1, node.terminal, 0)] if node.terminal >= 0 else []
        parent = self._last_segment[node.parent]
        self._last_segment[index] = self._add_chain(parent, node.start, tokens, wants)

    def add_continuations(self, trie: LabelTrie, index: int, node: TreeNode) -> None:
        """Hang the trie's fed nodes below the prompt's last segment."""
        end_of = {0: (self._last_segment[index], node.end)}
        for run in continuation_runs(trie):
            parent, position = end_of[trie.parents[run[0]]]
            tokens = tuple(trie.tokens[label_node] for label_node in run)
            wants = [(offset, node.terminal, label_node) for offset, label_node in enumerate(run)]
            end_of[run[-1]] = (self._add_chain(parent, position, tokens, wants), position + len(run))

    def _add_chain(self, parent: int, start: int, tokens: TokenIds, wants: list[tuple[int, int, int]]) -> int:
        """One segment, or a chain of them where the run is longer than a piece may be; gives the last id."""
        for at in range(0, len(tokens), self.longest):
            part = tokens[at : at + self.longest]
            inside = tuple((o - at, prompt, label) for o, prompt, label in wants if at <= o < at + len(part))
            self.pieces.append(Piece(Segment(self._next_id, parent, start + at, part), inside))
            parent = self._next_id
            self._next_id += 1
        return parent


def continuation_runs(trie: LabelTrie) -> Iterator[list[int]]:
    """The trie's fed nodes as unbranched runs, parents before children, depth first."""
    children: dict[int, list[int]] = defaultdict(list)
    for label_node in range(1, len(trie.parents)):
        children[trie.parents[label_node]].append(label_node)
    pending = list(reversed(children[0]))
    while pending:
        run = [pending.pop()]
        while len(children[run[-1]]) == 1:
            run.append(children[run[-1]][0])
        yield run
        pending.extend(reversed(children[run[-1]]))


def _cut(pieces: Sequence[Piece], budget: int, max_wants: int) -> list[list[Piece]]:
    """Fill packs in order; a piece that does not fit opens the next pack."""
    packs: list[list[Piece]] = []
    tokens = wants = 0
    for piece in pieces:
        full = tokens + len(piece.segment) > budget or wants + len(piece.wants) > max_wants
        if not packs or full:
            packs.append([])
            tokens = wants = 0
        packs[-1].append(piece)
        tokens += len(piece.segment)
        wants += len(piece.wants)
    return packs


def _with_residency(packs: list[list[Piece]], resident_head: int) -> Plan:
    """Note per pack what to keep and what to release, and predict the most resident tokens."""
    segments = {piece.segment.id: piece.segment for pack in packs for piece in pack}
    pack_of = {piece.segment.id: number for number, pack in enumerate(packs) for piece in pack}
    needed_until = dict(pack_of)
    for segment_id in reversed(segments):
        parent = segments[segment_id].parent
        if parent in needed_until:
            needed_until[parent] = max(needed_until[parent], needed_until[segment_id])
    release: dict[int, list[int]] = defaultdict(list)
    for segment_id, last in needed_until.items():
        if segment_id != HEAD and last > pack_of[segment_id]:
            release[last].append(segment_id)
    planned: list[Pack] = []
    resident = peak = resident_head
    for number, pack in enumerate(packs):
        ids = [piece.segment.id for piece in pack]
        keep = tuple(i for i in ids if i == HEAD or needed_until[i] > number)
        planned.append(_pack(pack, keep, tuple(release[number])))
        resident += sum(len(segments[i]) for i in keep if i != HEAD)
        peak = max(peak, resident)
        resident -= sum(len(segments[i]) for i in release[number])
    return Plan(tuple(planned), peak)


def _pack(pieces: Sequence[Piece], keep: tuple[int, ...], release: tuple[int, ...]) -> Pack:
    wants: list[Want] = []
    start = 0
    for piece in pieces:
        wants.extend(Want(start + offset, prompt, node) for offset, prompt, node in piece.wants)
        start += len(piece.segment)
    return Pack(tuple(piece.segment for piece in pieces), tuple(wants), keep, release)
