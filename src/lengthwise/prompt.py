"""From a task and a row's cells to the strings of a prompt. No tokens here.

A prompt is ``frame.prefix + content + frame.suffix``. The frame is the same for every row: whatever the
model's chat template puts around the user's message, instructions and solved examples included. The content
is the task's template filled from the row, and within it only the row's text may ever be cut.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lengthwise.errors import ModelError, TaskError, suggestion
from lengthwise.task import Example, Task, Template, parse_template

Message = dict[str, str]
Render = Callable[[list[Message]], str]

PROBE_TEXTS = (
    "My card was charged twice for the same invoice.",
    "the app crashes",
    "5 of 7 items arrived",
    "\nFirst a new line",
    "  two blanks",
    "\ttab",
    "Émile a écrit",
    "ßtrange",
    "账单有问题",
    "セキュリティ",
    "Не работает",
    "🙂 thanks",
    ". dot",
    ", comma",
    "'s quote",
    '"Quoted"',
    "< less",
    "-",
    "# one",
    "_under",
    ":colon",
    "(bracket)",
    "[square]",
)
"""Unlike texts: what the prompts of all of them have in common, any row's prompt has too."""

REFUSED_KINDS = ("bytes", "list", "dict")
_KINDS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "number": (numbers.Number,),
    "bytes": (bytes, bytearray, memoryview),
    "dict": (Mapping,),
    "list": (list, tuple, set),
}
_ARRAY_KINDS = {"bool": "boolean", "bool_": "boolean", "ndarray": "list"}
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad\x00"
_SENTINEL = "lengthwise-0f6c-row-content"
_EDGE = " \n "
_REPLY = "lengthwise-0f6c-reply"
_FOLLOW_UP = "lengthwise-0f6c-follow-up"


@dataclass(frozen=True, slots=True)
class RowText:
    """A row's user content is ``before + text + after``; only ``text`` may be cut.

    ``text`` is the value of {text}, or the longest column value in a template without {text}.
    """

    before: str
    text: str
    after: str


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """What stands around every row's content.

    prefix, suffix   the strings around the content, as the chat template renders them
    strip_left       the template trims the content's beginning, so the content is trimmed likewise
    strip_right      the same for its end
    label_lead       blanks between the prompt and a label's text
    plain            there is no chat template
    terminator_text  what ends an assistant's turn in this template; None: the tokenizer's end of text
    probes           contents of made-up rows, ordinary text first; all unlike each other
    empty            the content of a row whose cells are all empty
    notes            sentences for the report about what was adapted
    """

    prefix: str
    suffix: str
    strip_left: bool = False
    strip_right: bool = False
    label_lead: str = ""
    plain: bool = False
    terminator_text: str | None = None
    probes: tuple[str, ...] = PROBE_TEXTS
    empty: str = ""
    notes: tuple[str, ...] = ()

    def content(self, before: str, text: str, after: str) -> str:
        """The user content as it stands in the prompt."""
        content = before + text + after
        if self.plain:
            return content.rstrip(" \t")  # these blanks are in label_lead
        if self.strip_left:
            content = content.lstrip()
        return content.rstrip() if self.strip_right else content

    def answer(self, label_text: str) -> str:
        """What follows the prompt when the label is the answer; a label's own leading blank is kept."""
        return label_text if label_text[:1].isspace() else self.label_lead + label_text


def render_rows(
    task: Task, cells: Mapping[str, Sequence[object]], text_columns: Sequence[str], count: int
) -> tuple[list[RowText | None], list[str]]:
    """The content of ``count`` rows and a status for each: "ok", "empty" or "error: not text (...)".

    ``cells`` has a value a row for every column. Several text columns are joined by line breaks, blank
    ones left out. Only None, NaN and blank strings are empty; "NA" and "null" are texts like any other. A
    placeholder without a column is a TaskError.
    """
    parts = parse_template(task.template)
    texts = list(text_columns) if task.uses_text else []
    if task.uses_text and not texts:
        raise TaskError("the template uses {text}, but no text column was named.")
    for name in (*texts, *task.columns):
        if name not in cells:
            raise TaskError(
                f"the template needs a column {name!r}, but there is none{suggestion(name, cells) or '.'}"
            )
    rows: list[RowText | None] = []
    statuses: list[str] = []
    for i in range(count):
        row, status = _render_row(
            parts, [cells[name][i] for name in texts], {name: cells[name][i] for name in task.columns}
        )
        rows.append(row)
        statuses.append(status)
    return rows, statuses


def build_frame(
    task: Task, answers: Sequence[str], render: Render | None, *, notes: Sequence[str] = ()
) -> PromptFrame:
    """The frame of a task's prompts.

    ``answers`` are what is scored, one a label: the labels' texts, or short codes, which the instructions
    then explain. ``render`` gives the chat template's text for messages, generation prompt included, and
    raises ModelError when the template refuses them; None: the model has no chat template. A ``notes``
    attribute of it joins the frame's notes.

    Raises TaskError for a plain prompt without a cue behind the row's text, ModelError when the chat
    template can render the task in no way.
    """
    instructions = instructions_text(task, answers)
    if render is None:
        frame = _plain_frame(task, answers, instructions)
    else:
        frame = _chat_frame(task, answers, instructions, render)
        notes = (*getattr(render, "notes", ()), *notes)
    return _with_probes(frame, task, notes)


def instructions_text(task: Task, answers: Sequence[str]) -> str:
    """The instructions with what the labels mean: their codes, and the descriptions that some have."""
    coded = tuple(answers) != task.label_texts
    lines = [
        (f"{answer}: {label.text}" if coded else label.text)
        + ((" - " if coded else ": ") + label.description if label.description else "")
        for label, answer in zip(task.labels, answers, strict=True)
        if coded or label.description
    ]
    if not coded:
        base = task.default_instructions if task.instructions is None else task.instructions
        return "\n".join([base, *lines]) if base else "\n".join(lines)
    base = "You classify support tickets." if task.instructions is None else task.instructions
    legend = "\n".join(["Answer with exactly one of these codes:", *lines])
    return f"{base}\n{legend}" if base else legend


def _render_row(
    parts: Template, texts: Sequence[object], columns: Mapping[str, object]
) -> tuple[RowText | None, str]:
    values: dict[str, str] = {}
    for value in texts:
        kind = cell_kind(value)
        if kind not in ("text", "missing"):
            return None, f"error: not text ({kind})"
    for name, value in columns.items():
        kind = cell_kind(value)
        if kind in REFUSED_KINDS:
            return None, f"error: not text ({kind})"
        values[name] = "" if kind == "missing" else clean_text(str(value))
    if texts:
        told = [clean_text(value) for value in texts if isinstance(value, str) and not is_blank(value)]
        if not told:
            return None, "empty"
        values["text"] = "\n".join(told)
    elif all(is_blank(value) for value in values.values()):
        return None, "empty"
    return _fill(parts, values), "ok"


def _fill(parts: Template, values: Mapping[str, str]) -> RowText:
    """Put values into the template's places; what is in a value is never looked at again."""
    cut = "text" if "text" in values else max(values, key=lambda name: len(values[name]))
    pieces: list[str] = []
    text: str | None = None
    before = ""
    for literal, name in parts:
        pieces.append(literal)
        if name == cut and text is None:
            before, text, pieces = "".join(pieces), values[name], []
        elif name is not None:
            pieces.append(values[name])
    return RowText(before, text or "", "".join(pieces))


def cell_kind(value: object) -> str:
    """What a cell holds: "text", "missing" (None, NaN, NaT, NA), or a word for anything else."""
    if isinstance(value, str):
        return "text"
    name = type(value).__name__
    not_a_number = isinstance(value, numbers.Number) and bool(value != value)  # noqa: PLR0124
    if value is None or not_a_number or name in ("NAType", "NaTType"):
        return "missing"
    known = (kind for kind, types in _KINDS.items() if isinstance(value, types))
    return next(known, _ARRAY_KINDS.get(name, name))


def is_blank(text: str) -> bool:
    """Whether there is nothing to see: blanks and invisible characters only."""
    return all(character.isspace() or character in _INVISIBLE for character in text)


def clean_text(text: str) -> str:
    """The text as a plain ``str``; a half of a surrogate pair, which no encoding can hold, becomes U+FFFD."""
    text = str(text)
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _example_content(task: Task, example: Example) -> RowText:
    values = {name: example.columns[name] for name in task.columns}
    if task.uses_text:
        values["text"] = example.text or ""
    return _fill(parse_template(task.template), values)


def _turns(task: Task, answers: Sequence[str]) -> list[tuple[str, str]]:
    """(user content, answer) of the task's examples."""
    answer_of = {label.value: answer for label, answer in zip(task.labels, answers, strict=True)}
    turns = []
    for example in task.examples:
        row = _example_content(task, example)
        turns.append((row.before + row.text + row.after, answer_of[example.label]))
    return turns


def _plain_frame(task: Task, answers: Sequence[str], instructions: str) -> PromptFrame:
    """Instructions, examples and row as blocks of text; blanks at the prompt's end go to the labels."""
    literal, name = parse_template(task.template)[-1]
    cue = "" if name is not None else literal
    if not cue.strip():
        raise TaskError(
            "this model has no chat template, so the task's template has to end with a cue for the answer; "
            'add one behind the last placeholder, such as "\\nCategory:".'
        )
    trailing = cue[len(cue.rstrip(" \t")) :]
    lead = trailing or ("" if cue.endswith("\n") else " ")
    frame = PromptFrame(prefix="", suffix="", label_lead=lead, plain=True)
    return replace(frame, prefix=_blocks(frame, instructions, _turns(task, answers)))


def _blocks(frame: PromptFrame, instructions: str, turns: Sequence[tuple[str, str]]) -> str:
    """Instructions and solved examples as paragraphs, each with an empty line behind it."""
    blocks = [instructions] if instructions else []
    blocks += [frame.content("", content, "") + frame.answer(answer) for content, answer in turns]
    return "".join(block + "\n\n" for block in blocks)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A way to put the task into messages. ``first`` goes in front of the row's content."""

    earlier: tuple[Message, ...]
    first: str
    note: str | None

    def messages(self, content: str) -> list[Message]:
        return [*self.earlier, {"role": "user", "content": self.first + content}]


def _layouts(instructions: str, turns: Sequence[tuple[str, str]]) -> Iterator[_Layout]:
    """From the usual one to those that templates with fewer roles accept."""
    dialogue = [
        {"role": role, "content": content}
        for turn in turns
        for role, content in zip(("user", "assistant"), turn, strict=True)
    ]
    if not instructions:
        yield _Layout(tuple(dialogue), "", None)
    else:
        yield _Layout(({"role": "system", "content": instructions}, *dialogue), "", None)
        folded = (
            "the chat template takes no system message; the instructions stand in the first user message."
        )
        head = instructions + "\n\n"
        if dialogue:
            opening = {"role": "user", "content": head + dialogue[0]["content"]}
            yield _Layout((opening, *dialogue[1:]), "", folded)
        else:
            yield _Layout((), head, folded)
    if dialogue:
        as_text = _blocks(PromptFrame("", "", label_lead=" ", plain=True), instructions, turns)
        yield _Layout((), as_text, "the chat template takes one user message only; the examples stand in it.")


def _chat_frame(task: Task, answers: Sequence[str], instructions: str, render: Render) -> PromptFrame:
    turns = _turns(task, answers)
    reason = "it leaves out the instructions, the examples or the row"
    for layout in _layouts(instructions, turns):
        messages = layout.messages(_SENTINEL)
        try:
            rendered = render(messages)
        except ModelError as error:
            reason = str(error)
            continue
        if _holds_all(rendered, messages):
            return _frame_from(layout, rendered, render)
    raise ModelError(f"the model's chat template cannot hold this task ({reason}); take another model.")


def _holds_all(rendered: str, messages: Sequence[Message]) -> bool:
    """Whether the instructions, the turns in their order, and once only the row's place are all there."""
    if any(message["content"].strip() not in rendered for message in messages):
        return False
    place = 0
    for message in messages:
        if message["role"] != "system":  # some templates put the system message before the last turn
            place = rendered.find(message["content"].strip(), place)
            if place < 0:
                return False
            place += len(message["content"].strip())
    return rendered.count(_SENTINEL) == 1


def _frame_from(layout: _Layout, rendered: str, render: Render) -> PromptFrame:
    prefix, _, raw_suffix = rendered.partition(_SENTINEL)
    suffix = _with_thinking_closed(raw_suffix)
    notes = [layout.note] if layout.note else []
    if suffix != raw_suffix:
        notes.append(
            "the chat template opens a thinking block; it is closed empty, so that the answer is next."
        )
    strip_left, strip_right = _trims(layout, prefix, raw_suffix, render)
    lead, terminator = _reply_edges(layout, raw_suffix, render)
    return PromptFrame(
        prefix=prefix,
        suffix=suffix,
        strip_left=strip_left,
        strip_right=strip_right,
        label_lead=lead if suffix == raw_suffix else "",
        terminator_text=terminator,
        notes=tuple(notes),
    )


def _with_thinking_closed(suffix: str) -> str:
    """The generation prompt with an open think block at its end closed, as thinking models know it."""
    found = re.search(r"<((?:\w+:)?think(?:ing)?)>(\s*)$", suffix)
    return suffix[: found.start(2)] + f"\n\n</{found[1]}>\n\n" if found else suffix


def _trims(layout: _Layout, prefix: str, suffix: str, render: Render) -> tuple[bool, bool]:
    """Whether the template trims the content's beginning and end."""
    before, _, after = render(layout.messages(_EDGE + _SENTINEL + _EDGE)).partition(_SENTINEL)
    return before == prefix, after == suffix


def _reply_edges(layout: _Layout, suffix: str, render: Render) -> tuple[str, str | None]:
    """The blanks the template puts before an assistant's reply, and the mark it puts behind it.

    ("", None) when the template has neither or cannot show them.
    """
    reply, follow_up = {"role": "assistant", "content": _REPLY}, {"role": "user", "content": _FOLLOW_UP}
    try:
        rendered = render([*layout.messages(_SENTINEL), reply, follow_up])
    except ModelError:
        return "", None
    before, _, rest = rendered.partition(_SENTINEL)[2].partition(_REPLY)
    blanks = before.removeprefix(suffix)
    lead = blanks if before.startswith(suffix) and not blanks.strip() else ""
    mark = re.match(r"\s*(<[^<>\s]+>|\[[^\[\]\s]+\])", rest.partition(_FOLLOW_UP)[0])
    return lead, mark[1] if mark else None


def _with_probes(frame: PromptFrame, task: Task, notes: Sequence[str]) -> PromptFrame:
    parts = parse_template(task.template)
    names = [*task.columns, *(["text"] if task.uses_text else [])]

    def content(value: str) -> str:
        row = _fill(parts, dict.fromkeys(names, value))
        return frame.content(row.before, row.text, row.after)

    probes = tuple(content(text) for text in PROBE_TEXTS)
    return replace(frame, probes=probes, empty=content(""), notes=(*frame.notes, *notes))
