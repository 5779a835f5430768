"""Which tokens of a label are scored, and the tree they make. Integers only.

The boundary rule: prompt and label are encoded together, and a label's tokens are what follows the longest
beginning that all these encodings share with the prompt's own. What the prompt has beyond it (tokens that
melt together with a label's first characters) is taken off every prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.errors import TaskError
from lengthwise.records import LabelTokens, LabelTrie, TokenIds
from lengthwise.task import Task

MOST_TEXT_LABELS = 20
MOST_TEXT_TOKENS = 8


def label_tokens(
    prompt_ids: TokenIds,
    joint_ids: Sequence[TokenIds],
    label_names: Sequence[str],
    *,
    scoring: str,
    terminator: int | None,
) -> LabelTokens:
    """How labels are scored behind a prompt.

    ``joint_ids[k]`` is the prompt with label k encoded together; ``scoring`` is "auto", "first-token" or
    "sequence"; ``terminator`` ends an answer (None: the model has no such token) and is added to every
    label if one label's tokens begin another's. Raises TaskError for a label without tokens, two labels
    with the same ones, and first tokens that tell nothing apart when "first-token" is asked for.
    """
    common = min(_common(prompt_ids, joint) for joint in joint_ids)
    tokens = [tuple(joint[common:]) for joint in joint_ids]
    _check_distinct(tokens, label_names)
    if nested := _nested(tokens):
        tokens = [_ended(label, terminator, nested, label_names) for label in tokens]
    else:
        terminator = None
    rule = _rule(tokens, label_names, scoring)
    scored = [label[:1] for label in tokens] if rule == "first-token" else tokens
    return LabelTokens(
        tokens=tuple(tokens),
        scored=tuple(scored),
        rule=rule,
        boundary=len(prompt_ids) - common,
        terminator=terminator,
        trie=build_trie(scored),
    )


def build_trie(scored: Sequence[TokenIds]) -> LabelTrie:
    """The labels' tokens merged where they begin alike.

    Nodes are the proper beginnings, shorter ones first, then by token number, so that the tree does not
    depend on the labels' order.
    """
    prefixes = {label[:length] for label in scored for length in range(len(label))}
    order = sorted(prefixes, key=lambda prefix: (len(prefix), prefix))
    node_of = {prefix: node for node, prefix in enumerate(order)}
    edges = sorted({(node_of[label[:i]], label[i]) for label in scored for i in range(len(label))})
    edge_of = {edge: number for number, edge in enumerate(edges)}
    return LabelTrie(
        parents=(-1, *(node_of[prefix[:-1]] for prefix in order[1:])),
        tokens=(-1, *(prefix[-1] for prefix in order[1:])),
        edges=tuple(edges),
        paths=tuple(
            tuple(edge_of[node_of[label[:i]], label[i]] for i in range(len(label))) for label in scored
        ),
    )


def choose_style(task: Task, token_counts: Sequence[int]) -> str:
    """What the task says; for "auto" it is "text" as long as labels are few and short, else "code".

    Few are at most 20, short at most 8 tokens (``token_counts``: tokens of each label's text).
    """
    if task.style != "auto":
        return task.style
    few_and_short = len(token_counts) <= MOST_TEXT_LABELS and max(token_counts) <= MOST_TEXT_TOKENS
    return "text" if few_and_short else "code"


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    for i, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return i
    return min(len(a), len(b))


def _check_distinct(tokens: Sequence[TokenIds], names: Sequence[str]) -> None:
    seen: dict[TokenIds, str] = {}
    for label, name in zip(tokens, names, strict=True):
        if not label:
            raise TaskError(
                f"the label {name!r} has no tokens of its own in this model; give it another text."
            )
        if label in seen:
            raise TaskError(
                f"the labels {seen[label]!r} and {name!r} have the same tokens in this model and cannot "
                "be told apart; give one of them another text."
            )
        seen[label] = name


def _nested(tokens: Sequence[TokenIds]) -> tuple[int, int] | None:
    """Two labels of which the first one's tokens begin the second one's."""
    number_of = {label: number for number, label in enumerate(tokens)}
    for number, label in enumerate(tokens):
        for length in range(1, len(label)):
            if label[:length] in number_of:
                return number_of[label[:length]], number
    return None


def _ended(
    label: TokenIds, terminator: int | None, nested: tuple[int, int], names: Sequence[str]
) -> TokenIds:
    if terminator is None:
        raise TaskError(
            f"the label {names[nested[1]]!r} begins with all of {names[nested[0]]!r}, and this model has no "
            "token that ends an answer; give one of them another text."
        )
    return (*label, terminator)


def _rule(tokens: Sequence[TokenIds], names: Sequence[str], scoring: str) -> str:
    seen: dict[int, str] = {}
    for label, name in zip(tokens, names, strict=True):
        if label[0] in seen:
            if scoring == "first-token":
                raise TaskError(
                    f"the labels {seen[label[0]]!r} and {name!r} begin with the same token, so their first "
                    'tokens cannot tell them apart; take scoring = "sequence" or "auto".'
                )
            return "sequence"
        seen[label[0]] = name
    return "sequence" if scoring == "sequence" else "first-token"
