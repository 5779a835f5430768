"""The explanation of a row, drawn for people; what all rows share stands in [[ ]], on terminals in colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lengthwise.cli.common import Line, print_lines
from lengthwise.cli.show import bar, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from lengthwise.cli.explain import ExplainedLabel, Explanation, Piece

LINE_WIDTH = 100
HEAD_STYLE = "cyan"


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Print the whole explanation."""
    ascii_only = not console.encoding.lower().startswith("utf")
    print_lines(console, explanation_lines(explanation, ascii_only=ascii_only))


def explanation_lines(explanation: Explanation, *, ascii_only: bool = True) -> Iterator[Line]:
    """The explanation line by line."""
    yield [(explanation.place, "bold"), f", status {explanation.status}"]
    if explanation.same_text_rows:
        rows = "row " if len(explanation.same_text_rows) == 1 else "rows "
        rows += numbers(explanation.same_text_rows)
        yield f"The same text also stands in {rows}; it is computed once."
    if explanation.tokens:
        yield from _prompt_lines(explanation)
        yield from _token_lines(explanation)
    yield from _label_lines(explanation)
    yield from _score_lines(explanation, ascii_only)
    if explanation.notes:
        yield from _title("Notes")
    yield from (f"  {note}" for note in explanation.notes)


def _title(words: str, rest: str = "") -> Iterator[Line]:
    yield ""
    yield [(words, "bold"), rest]


def _prompt_lines(explanation: Explanation) -> Iterator[Line]:
    """The prompt; the head is marked where its tokens' texts are the beginning of the prompt's."""
    head, count = explanation.head, len(explanation.tokens)
    shared = f"; the first {head}, in [[ ]], are shared by all rows" if head else ""
    yield from _title("Prompt", f" ({count} tokens{shared})")
    text = "".join(token.text for token in explanation.tokens[:head])
    if not text or not explanation.prompt.startswith(text):
        yield from explanation.prompt.split("\n")
        return
    *lines, last = f"[[{text}]]".split("\n")
    rest = explanation.prompt[len(text) :].split("\n")
    yield from ([(line, HEAD_STYLE)] for line in lines)
    yield [(last, HEAD_STYLE), rest[0]]
    yield from rest[1:]


def _token_lines(explanation: Explanation) -> Iterator[Line]:
    yield from _title("Tokens", " ('text':number)")
    words = [shown(token) for token in explanation.tokens]
    head = explanation.head
    if head:
        lines = wrapped(["[[", *words[:head], "]]"])
        yield from ([(line, HEAD_STYLE)] for line in lines)
    yield from wrapped(words[head:])


def _label_lines(explanation: Explanation) -> Iterator[Line]:
    how = {"first-token": "by their first token, in ( )", "sequence": "by all tokens, in ( )"}
    yield from _title("Labels", f", scored {how.get(explanation.rule, explanation.rule)}")
    width = max(len(shorten(label.label)) for label in explanation.labels)
    for label in explanation.labels:
        scored = " ".join(shown(token) for token in label.tokens[: label.scored])
        rest = " ".join(shown(token) for token in label.tokens[label.scored :])
        yield f"  {shorten(label.label):<{width}}  ({scored}) {rest}".rstrip()
    if explanation.terminator:
        yield f"  {shown(explanation.terminator)} ends every label, since one label begins another."


def _score_lines(explanation: Explanation, ascii_only: bool) -> Iterator[Line]:
    if explanation.answer is None:
        yield ""
        yield "There is no answer, so there are no scores."
        return
    how = f"normalize {explanation.normalize}, calibrate {explanation.calibrate}"
    yield from _title("Scores", f" of the reference, one by one ({how})")
    width = max(5, *(len(shorten(label.label)) for label in explanation.labels))
    yield f"    {'label':<{width}}   log p of tokens   log p of label   probability"
    for label in explanation.labels:
        won = label.label == explanation.answer
        line = f"  {'>' if won else ' '} {_scores(label, width)}  {bar(label.probability or 0.0, ascii_only)}"
        yield [(line.rstrip(), "bold" if won else "")]
    tie = ", an exact tie, decided by the order of the labels" if explanation.tied else ""
    yield ["Answer: ", (explanation.answer, "bold"), f", margin {explanation.margin:.4f} nats{tie}"]
    yield f"The labels hold {explanation.label_mass:.2%} of the model's probability."


def _scores(label: ExplainedLabel, width: int) -> str:
    total, log_p, p = label.sum or 0.0, label.log_probability or 0.0, label.probability or 0.0
    return f"{shorten(label.label):<{width}}  {total:>16.4f}  {log_p:>15.4f}  {p:>12.2%}"


def shown(token: Piece) -> str:
    """``'text':number``, with blanks and line breaks visible."""
    return f"{token.text!r}:{token.id}"


def wrapped(words: Sequence[str]) -> list[str]:
    """Words in lines of about 100 characters; one empty line for no words."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= LINE_WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def numbers(rows: Sequence[int], most: int = 10) -> str:
    """``3, 9, 12``; the rest as a count."""
    listed = ", ".join(f"{row:,}" for row in rows[:most])
    return listed + (f" and {len(rows) - most:,} more" if len(rows) > most else "")
