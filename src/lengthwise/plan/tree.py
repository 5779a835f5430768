"""The token tree: prompts merged where they begin with the same tokens.

A node is a run of tokens between two branching points. The tree is built from the sorted prompts and
the lengths of the common beginnings of neighbours, in time linear in the tokens once they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lengthwise.records import TokenIds

HEAD = 0
"""Id of the segment that holds the job's shared head; it stays resident across windows."""

NO_PARENT = -1


@dataclass(slots=True)
class TreeNode:
    """Tokens ``[start, end)`` of ``prompt``, counted from the root. Built in place, then only read."""

    parent: int
    start: int
    end: int
    prompt: int
    terminal: int = -1
    children: list[int] = field(default_factory=list)


def build_tree(prompts: Sequence[TokenIds], head: TokenIds, min_saved: int) -> list[TreeNode]:
    """The tree of distinct, non-empty ``prompts``; node 0 is the head (its ``prompt`` is -1).

    Prompts that begin with the head, and have something behind it, hang below node 0; any other is a
    root of its own (parent -1). A branching point is kept only when sharing the run before it saves at
    least ``min_saved`` tokens; ``terminal`` is the prompt that ends with the node, or -1.
    """
    nodes = [TreeNode(parent=NO_PARENT, start=0, end=len(head), prompt=-1)]
    keys = [np.asarray(prompt, dtype=">u4").tobytes() for prompt in prompts]
    order = sorted(range(len(prompts)), key=keys.__getitem__)
    width = len(head)
    below = [i for i in order if len(prompts[i]) > width and prompts[i][:width] == head]
    strays = [i for i in order if not (len(prompts[i]) > width and prompts[i][:width] == head)]
    _grow(nodes, prompts, keys, below, root=HEAD, depth=width)
    _grow(nodes, prompts, keys, strays, root=NO_PARENT, depth=0)
    for index, node in enumerate(nodes):
        if node.parent >= 0:
            nodes[node.parent].children.append(index)
    _dissolve_small_branches(nodes, min_saved)
    return nodes


def _grow(
    nodes: list[TreeNode],
    prompts: Sequence[TokenIds],
    keys: list[bytes],
    order: list[int],
    root: int,
    depth: int,
) -> None:
    """Hang the sorted prompts below ``root`` with a stack of the nodes on the current path."""
    stack: list[int] = []
    for rank, prompt in enumerate(order):
        shared = _common_beginning(keys[order[rank - 1]], keys[prompt]) if rank else depth
        shared = max(shared, depth)
        popped = -1
        while stack and nodes[stack[-1]].end > shared:
            popped = stack.pop()
        path_end = nodes[stack[-1]].end if stack else depth
        if popped >= 0 and path_end < shared:
            stack.append(_split(nodes, popped, shared))
        parent = stack[-1] if stack else root
        nodes.append(TreeNode(parent, shared, len(prompts[prompt]), prompt, terminal=prompt))
        stack.append(len(nodes) - 1)


def _split(nodes: list[TreeNode], lower: int, at: int) -> int:
    """Cut node ``lower`` at depth ``at``; gives the id of the new upper part."""
    node = nodes[lower]
    nodes.append(TreeNode(node.parent, node.start, at, node.prompt))
    node.parent, node.start = len(nodes) - 1, at
    return node.parent


def _common_beginning(left: bytes, right: bytes) -> int:
    """How many 4-byte tokens two keys share at the beginning."""
    size = min(len(left), len(right))
    a = np.frombuffer(left, dtype=np.uint32, count=size // 4)
    b = np.frombuffer(right, dtype=np.uint32, count=size // 4)
    different = np.flatnonzero(a != b)
    return int(different[0]) if len(different) else size // 4


def _dissolve_small_branches(nodes: list[TreeNode], min_saved: int) -> None:
    """Give a branching run's tokens back to its children where sharing them saves too little."""
    pending = [i for i, node in enumerate(nodes) if node.parent == NO_PARENT]
    while pending:
        index = pending.pop()
        node = nodes[index]
        saved = (node.end - node.start) * (len(node.children) - 1)
        if index != HEAD and node.terminal < 0 and node.children and saved < min_saved:
            _dissolve(nodes, index)
        pending.extend(node.children)


def _dissolve(nodes: list[TreeNode], index: int) -> None:
    node = nodes[index]
    for child in node.children:
        nodes[child].parent, nodes[child].start = node.parent, node.start
    if node.parent >= 0:
        siblings = nodes[node.parent].children
        place = siblings.index(index)
        siblings[place : place + 1] = node.children
    node.end = node.start  # an empty node is skipped by the walk


def walk(nodes: Sequence[TreeNode]) -> Iterable[int]:
    """Node ids in depth-first order, the head first."""
    roots = [
        i for i, node in enumerate(nodes) if node.parent == NO_PARENT and (i == HEAD or node.end > node.start)
    ]
    pending = list(reversed(roots))
    while pending:
        index = pending.pop()
        yield index
        pending.extend(reversed(nodes[index].children))
