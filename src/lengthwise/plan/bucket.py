"""Buckets: rows sorted by length and padded to the longest of each batch (the classical strategy)."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.records import Bucket, LabelTrie, Plan, TokenIds, Want


def plan_buckets(
    prompts: Sequence[TokenIds], trie: LabelTrie, *, batch_size: int, budget: int, max_wants: int
) -> Plan:
    """Buckets that give every trie node behind every distinct prompt its log-probabilities.

    Each prompt is run once for every deepest continuation of the label trie. A bucket holds at most
    ``batch_size`` sequences, ``budget`` padded tokens and ``max_wants`` head positions; a single
    sequence may exceed the budget, since it cannot be cut.
    """
    routes = continuation_routes(trie)
    depth = max(len(route) for route in routes)
    rows = [(prompt, route) for prompt in range(len(prompts)) for route in range(len(routes))]
    rows.sort(key=lambda row: len(prompts[row[0]]) + len(routes[row[1]]) - 1)
    most = max(1, min(batch_size, max_wants // depth))
    buckets: list[Bucket] = []
    batch: list[tuple[int, int]] = []
    for row in rows:
        width = len(prompts[row[0]]) + len(routes[row[1]]) - 1
        if batch and (len(batch) == most or width * (len(batch) + 1) > budget):
            buckets.append(_bucket(batch, prompts, trie, routes))
            batch = []
        batch.append(row)
    if batch:
        buckets.append(_bucket(batch, prompts, trie, routes))
    return Plan(tuple(buckets))


def continuation_routes(trie: LabelTrie) -> list[list[int]]:
    """Node paths from the root (node 0) to every deepest fed node; ``[[0]]`` when nothing is fed."""
    inner = set(trie.parents)
    leaves = [node for node in range(len(trie.parents)) if node not in inner]
    routes = []
    for leaf in leaves:
        route = [leaf]
        while route[-1] > 0:
            route.append(trie.parents[route[-1]])
        routes.append(route[::-1])
    return routes


def _bucket(
    batch: Sequence[tuple[int, int]], prompts: Sequence[TokenIds], trie: LabelTrie, routes: list[list[int]]
) -> Bucket:
    sequences = [prompts[p] + tuple(trie.tokens[node] for node in routes[r][1:]) for p, r in batch]
    width = max(len(sequence) for sequence in sequences)
    wants = []
    for row, (prompt, route) in enumerate(batch):
        nodes = routes[route]
        for back, node in enumerate(reversed(nodes)):
            if _first_route_with(node, routes) == route:
                wants.append(Want(row * width + width - 1 - back, prompt, node))
    return Bucket(tuple(sequences), tuple(wants))


def _first_route_with(node: int, routes: list[list[int]]) -> int:
    """Several routes pass a shared node; its values are read from the first, so that each comes once."""
    return next(number for number, route in enumerate(routes) if node in route)
