"""From prompt strings to token ids: the only user of a Hugging Face tokenizer.

Every prompt is encoded exactly as the tokenizer encodes the whole rendering in one go, with one exception:
what stands in a row is always characters, never a control token. Both follow from one property of
tokenizers: they cut a text at its control tokens and encode the stretches between independently. The frame
is therefore cut at its last control token before the row and its first one behind it, the outer parts are
encoded once for the job, and the stretch in between, row included, is encoded by a copy of the tokenizer
that knows no control tokens. Trial texts show for every frame that this gives the joint encoding.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import numpy as np

from lengthwise.codec import Encode, FastCodec, SlowCodec
from lengthwise.errors import InputError, ModelError, TaskError
from lengthwise.records import EncodedRows, TokenIds

CUT_MARK = "\n[...]\n"
"""Stands where a too long text was cut: two thirds of what fits come from its beginning, one from its end."""

FIXED_DATE = datetime(2024, 7, 26)
DATE_NOTE = "the chat template shows today's date; it is fixed to 26 Jul 2024, so that a job repeats exactly."
HUGE_TEXT = 200_000
"""Characters from which on a text is counted in pieces before it is encoded as a whole, to spare memory."""

HTML_TAG = re.compile(
    r"</?(a|b|blockquote|body|br|caption|code|div|em|h[1-6]|head|hr|html|i|img|li|ol|p|pre|s|span|strong|sub|sup"
    r"|table|tbody|td|tfoot|th|thead|tr|u|ul) ?/?>"
)
_MARKUP = re.compile(r"[<\[{].*[>\]}]", re.DOTALL)
_TOKENIZER_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)

Key = tuple[str, str, str]
"""A row's content: before, text, after."""


class Row(Protocol):
    """A row's content in three parts, of which only ``text`` may be cut."""

    @property
    def before(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def after(self) -> str: ...


class Frame(Protocol):
    """The strings around a row's content, see ``prompt.PromptFrame``; hashable."""

    @property
    def prefix(self) -> str: ...
    @property
    def suffix(self) -> str: ...
    @property
    def terminator_text(self) -> str | None: ...
    @property
    def probes(self) -> tuple[str, ...]: ...
    @property
    def empty(self) -> str: ...
    def content(self, before: str, text: str, after: str) -> str: ...
    def answer(self, label_text: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Control:
    """A token that steers the model; ``strips_left`` and ``_right``: it swallows blanks on that side."""

    text: str
    id: int
    strips_left: bool
    strips_right: bool


@dataclass(frozen=True, slots=True)
class ChatRenderer:
    """The model's chat template as a function of messages; ModelError when the template refuses them.

    Thinking is switched off where the template has a switch, and today's date is `FIXED_DATE`.
    """

    tokenizer: Any
    template: str
    notes: tuple[str, ...]

    def __call__(self, messages: list[dict[str, str]]) -> str:
        settings: dict[str, Any] = {"enable_thinking": False}
        if "date_string" in self.template:
            settings["date_string"] = FIXED_DATE.strftime("%d %b %Y")
        try:
            rendered = self.tokenizer.apply_chat_template(
                messages, chat_template=self.template, tokenize=False, add_generation_prompt=True, **settings
            )
        except Exception as error:  # templates raise whatever they like
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ModelError(f"the chat template says: {reason}") from None
        return str(rendered)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A frame cut at its control tokens: ids, strings that go with the row, ids.

    ``encode`` encodes the stretch with the row in it; ``trim`` takes off the blanks that the control
    tokens around it swallow; ``tail`` is the string that ``tail_ids`` are made from.
    """

    head_ids: TokenIds
    lead: str
    trail: str
    tail: str
    tail_ids: TokenIds
    trim: Callable[[str], str]
    encode: Encode

    def stretch(self, content: str, answer: str = "") -> str:
        return self.trim(self.lead + content + self.trail + answer)

    def prompts(self, contents: Sequence[str], answer: str = "") -> list[TokenIds]:
        encoded = self.encode([self.stretch(content, answer) for content in contents])
        return [(*self.head_ids, *ids, *self.tail_ids) for ids in encoded]


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A distinct content as tokens (None: it gets no answer), with its uncut number of tokens."""

    ids: TokenIds | None
    status: str
    tokens: int


class Encoder:
    """Prompts and labels as token ids. Never pads, never truncates by itself, leaves the tokenizer as it is.

    Texts are encoded one after the other unless TOKENIZERS_PARALLELISM is set: without it no thread is
    started that a later fork would lose.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._controls = control_tokens(tokenizer)
        texts = sorted((control.text for control in self._controls), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts)) if texts else "(?!)")
        self._codec = FastCodec(tokenizer, texts) if tokenizer.is_fast else SlowCodec(tokenizer)
        self._bos = self._codec.begin()
        self._layouts: dict[Frame, _Layout] = {}
        self.render = _renderer(tokenizer)

    def encode_rows(
        self,
        frame: Frame,
        rows: Sequence[Row | None],
        statuses: Sequence[str],
        *,
        limit: int | None,
        reserve: int,
        on_long: str,
        boundary: int,
        line_numbers: Sequence[int] | None = None,
    ) -> EncodedRows:
        """The window's distinct prompts.

        ``limit`` is the most tokens of prompt and label together, ``reserve`` the label's share of them,
        ``boundary`` how many tokens at a prompt's end are the labels'. A longer row's text is cut
        (``on_long`` "truncate", status "truncated"), left out ("skip", status "error: too long (...)") or
        raises InputError ("error"), which names the line. Raises TaskError when no row could ever fit.
        """
        room = self.check_room(frame, limit=limit, reserve=reserve, boundary=boundary)
        keys = [None if row is None else (row.before, row.text, row.after) for row in rows]
        distinct = dict.fromkeys(key for key in keys if key is not None)
        encoded = self._encode_distinct(frame, list(distinct), room, on_long, boundary)
        found = dict(zip(distinct, encoded, strict=True))
        if on_long == "error":
            _refuse_long(keys, found, room, line_numbers)
        return _assemble(keys, found, statuses)

    def check_room(self, frame: Frame, *, limit: int | None, reserve: int, boundary: int) -> int | None:
        """The most tokens a prompt may have; TaskError when not even an empty row fits. None: any number."""
        if limit is None:
            return None
        fixed = len(self._layout(frame).prompts([frame.empty])[0]) - boundary
        if fixed + reserve >= limit:
            raise TaskError(
                f"the prompt without any row text has {fixed} tokens and the longest label adds {reserve}, "
                f"but only {limit} fit; shorten the instructions, examples or labels, or raise the limit."
            )
        return limit - reserve

    def encode_labels(
        self, frame: Frame, label_texts: Sequence[str]
    ) -> tuple[TokenIds, tuple[TokenIds, ...]]:
        """An ordinary row's prompt, and prompt and label encoded together for every label.

        Raises TaskError for a label that contains a control token.
        """
        layout, probe = self._layout(frame), frame.probes[0]
        prompt = layout.prompts([probe])[0]
        joint = [self._with_answer(layout, prompt, probe, frame.answer(text), text) for text in label_texts]
        return prompt, tuple(joint)

    def head(self, frame: Frame) -> TokenIds:
        """The tokens that every prompt of the job begins with, as far as unlike trial rows can tell."""
        prompts = self._layout(frame).prompts(frame.probes)
        return prompts[0][: _common_length(prompts)]

    def terminator_id(self, frame: Frame) -> int | None:
        """The token that ends an answer: the chat template's end of turn, else the end of text."""
        for control in self._controls:
            if control.text == frame.terminator_text:
                return control.id
        eos = self._tokenizer.eos_token_id
        return None if eos is None else int(eos)

    def single_token_codes(self, frame: Frame, count: int) -> list[str]:
        """``count`` short answers that are a single token each behind the prompt, all different.

        Letters, else numbers, else letters and pairs of letters, else all of these; TaskError when these
        are too few.
        """
        letters = [chr(ord("A") + i) for i in range(26)]
        numbers = [str(i) for i in range(1, max(count, 999) + 1)]
        pairs = [first + second for first in letters for second in letters]
        fit: list[str] = []
        for candidates in (letters, numbers, [*letters, *pairs], [*letters, *pairs, *numbers]):
            if len(candidates) >= count and len(fit := self._single_tokens(frame, candidates)) >= count:
                return fit[:count]
        raise TaskError(
            f"this model's tokenizer has only {len(fit)} codes of one token for {count} labels; "
            'take style = "text".'
        )

    def refuse_controls(self, texts: Mapping[str, str]) -> None:
        """TaskError when one of the task's own texts (place to text) contains a control token."""
        for place, text in texts.items():
            if found := self._pattern.search(text):
                raise TaskError(
                    f"{place} contains {found[0]!r}, a control token of this model; leave it out: the chat "
                    "template puts such tokens where they belong."
                )

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, control tokens included."""
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return str(text)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each token adds to the text; a part of a character is shown as the tokenizer spells it."""
        anchor = self._codec.joint(["x"])[0][-1:]
        base = self.decode(anchor)
        pieces = []
        for token in ids:
            piece = self.decode([*anchor, token]).removeprefix(base)
            unreadable = not piece or "\ufffd" in piece
            pieces.append(str(self._tokenizer.convert_ids_to_tokens(int(token))) if unreadable else piece)
        return pieces

    def _layout(self, frame: Frame) -> _Layout:
        """The frame cut at its control tokens, with the first way to encode rows that is right."""
        if frame not in self._layouts:
            for content in (*frame.probes, frame.empty):
                self.refuse_controls({"the template": content})
            self._layouts[frame] = self._find_layout(frame)
        return self._layouts[frame]

    def _find_layout(self, frame: Frame) -> _Layout:
        joint = self._codec.joint([frame.prefix + probe + frame.suffix for probe in frame.probes])
        begins = joint[0][: len(self._bos)] == list(self._bos)
        bos = () if begins else self._bos
        wanted = [(*bos, *ids) for ids in joint]
        for encode in self._codec.plain_ways():
            layout = self._cut_frame(frame, bos, encode)
            if layout.prompts(frame.probes) == wanted:
                return layout
        raise ModelError(
            "this model's tokenizer encodes a text differently beside a control token, in a way that is "
            "not known here; take another model."
        )

    def _cut_frame(self, frame: Frame, bos: TokenIds, encode: Encode) -> _Layout:
        before = list(self._pattern.finditer(frame.prefix))
        behind = self._pattern.search(frame.suffix)
        start = before[-1].end() if before else 0
        end = behind.start() if behind else len(frame.suffix)
        by_text = {control.text: control for control in self._controls}
        left = bool(before) and by_text[before[-1][0]].strips_right
        right = behind is not None and by_text[behind[0]].strips_left
        head, tail = frame.prefix[:start], frame.suffix[end:]
        head_ids, tail_ids = self._codec.joint([head, tail])
        return _Layout(
            head_ids=(*bos, *head_ids),
            lead=frame.prefix[start:],
            trail=frame.suffix[:end],
            tail=tail,
            tail_ids=tuple(tail_ids),
            trim=_trimmer(left, right),
            encode=encode,
        )

    def _with_answer(
        self, layout: _Layout, prompt: TokenIds, probe: str, answer: str, label: str
    ) -> TokenIds:
        if not layout.tail:
            return layout.prompts([probe], answer)[0]
        (ids,) = self._codec.joint([layout.tail + answer])
        if self._control_ids(ids) != self._control_ids(layout.tail_ids):
            raise TaskError(
                f"the text of label {label!r} contains a control token of this model; give it another text."
            )
        return (*prompt[: len(prompt) - len(layout.tail_ids)], *ids)

    def _control_ids(self, ids: Sequence[int]) -> list[int]:
        """The control tokens among ids, less the one that stands for what a vocabulary lacks."""
        known = {control.id for control in self._controls} - {self._tokenizer.unk_token_id}
        return [token for token in ids if token in known]

    def _single_tokens(self, frame: Frame, candidates: Sequence[str]) -> list[str]:
        prompt, joint = self.encode_labels(frame, candidates)
        fit: dict[int, str] = {}
        for code, ids in zip(candidates, joint, strict=True):
            if len(ids) == len(prompt) + 1 and ids[:-1] == prompt:
                fit.setdefault(ids[-1], code)
        return list(fit.values())

    def _encode_distinct(
        self,
        frame: Frame,
        keys: Sequence[Key],
        room: int | None,
        on_long: str,
        boundary: int,
    ) -> list[_Encoded]:
        layout = self._layout(frame)
        counts = [self._huge_count(layout, frame.content(*key), room) for key in keys]
        whole = [i for i, count in enumerate(counts) if count is None]
        prompts = dict(zip(whole, layout.prompts([frame.content(*keys[i]) for i in whole]), strict=True))
        encoded: list[_Encoded] = []
        for i, key in enumerate(keys):
            ids = prompts.get(i, ())[: -boundary or None]
            tokens = counts[i] or len(ids)
            if room is None or tokens <= room:
                encoded.append(_Encoded(ids, "ok", tokens))
                continue
            kept = self._cut(frame, key, room, boundary) if on_long == "truncate" else None
            status = "truncated" if kept is not None else f"error: too long ({tokens} tokens, {room} fit)"
            encoded.append(_Encoded(kept, status, tokens))
        return encoded

    def _huge_count(self, layout: _Layout, content: str, room: int | None) -> int | None:
        """How many tokens a huge text has, give or take a few, if that is clearly too many; else None."""
        if room is None or len(content) < HUGE_TEXT:
            return None
        step = HUGE_TEXT // 2
        stretches = (content[i : i + step] for i in range(0, len(content), step))
        count = sum(len(layout.encode([stretch])[0]) for stretch in stretches)
        count += len(layout.head_ids) + len(layout.tail_ids)
        return count if count > room + len(content) // step * 4 else None

    def _cut(self, frame: Frame, key: Key, room: int, boundary: int) -> TokenIds | None:
        """The prompt with as much of the row's text as fits; None when its other columns leave no room."""
        before, text, after = key
        layout = self._layout(frame)

        def prompt(kept: str) -> TokenIds:
            return layout.prompts([frame.content(before, kept, after)])[0][: -boundary or None]

        keep = room - len(prompt(CUT_MARK))
        while keep > 0:
            ids = prompt(self._shorten(layout, text, keep))
            if len(ids) <= room:
                return ids
            keep -= len(ids) - room
        return None

    def _shorten(self, layout: _Layout, text: str, keep: int) -> str:
        """About ``keep`` tokens of a text: its beginning, the mark, its end; whole characters only."""
        last = keep // 3
        first = keep - last
        head_spans = self._end_spans(layout, text, first, from_end=False)
        start = whole_character(text, head_spans[min(first, len(head_spans)) - 1][1], back=True)
        if not last:
            return text[:start] + CUT_MARK
        tail_spans = self._end_spans(layout, text, last, from_end=True)
        end = whole_character(text, tail_spans[-min(last, len(tail_spans))][0], back=False)
        return text[:start] + CUT_MARK + text[max(start, end) :]

    def _end_spans(self, layout: _Layout, text: str, count: int, *, from_end: bool) -> list[tuple[int, int]]:
        """Character spans of at least ``count`` tokens at one end of a text, or of all it has."""
        size = 8 * count + 64
        while True:
            offset = max(len(text) - size, 0) if from_end else 0
            part = text[offset:] if from_end else text[:size]
            spans = self._codec.spans(part, layout.encode)
            if len(spans) > count or len(part) == len(text):
                return [(offset + start, offset + end) for start, end in spans] or [(0, len(text))]
            size *= 4


def control_tokens(tokenizer: Any) -> tuple[Control, ...]:
    """The added tokens that steer the model.

    These are all special ones, and those that look like markup (`<think>`, `[INST]`). Runs of blanks,
    HTML tags and words that a tokenizer merely keeps whole are text.
    """
    return tuple(
        Control(token.content, int(number), bool(token.lstrip), bool(token.rstrip))
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.content.strip()
        and (token.special or (_MARKUP.fullmatch(token.content) and not HTML_TAG.fullmatch(token.content)))
    )


def whole_character(text: str, place: int, *, back: bool) -> int:
    """The nearest place at which no emoji or accented letter is cut in two, going back or forth."""
    while 0 < place < len(text) and _belongs_together(text, place):
        place += -1 if back else 1
    return place


def _belongs_together(text: str, place: int) -> bool:
    """Whether the characters before and at ``place`` make one visible character."""
    before, at = text[place - 1], text[place]
    joined = at in "\u200d\ufe0e\ufe0f\u20e3" or "\U0001f3fb" <= at <= "\U0001f3ff" or before == "\u200d"
    if joined or unicodedata.combining(at) or before + at == "\r\n":
        return True
    flags = 0
    while flags < place and "\U0001f1e6" <= text[place - 1 - flags] <= "\U0001f1ff":
        flags += 1
    return "\U0001f1e6" <= at <= "\U0001f1ff" and flags % 2 == 1


def _renderer(tokenizer: Any) -> ChatRenderer | None:
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default") or next(iter(template.values()), None)
    if not template:
        return None
    dated = "strftime_now" in template or "date_string" in template
    if "strftime_now" in template:
        template = _date_macro() + template
    return ChatRenderer(tokenizer, template, (DATE_NOTE,) if dated else ())


def _date_macro() -> str:
    """A template macro that stands in for ``strftime_now`` and always tells `FIXED_DATE`.

    The line break at its end is the one that templates drop behind a block.
    """
    told = {"%" + code: FIXED_DATE.strftime("%" + code) for code in "aAbBdHIjmMpSyY"}
    told |= {"%-d": str(FIXED_DATE.day), "%-m": str(FIXED_DATE.month), "%e": f"{FIXED_DATE.day:2d}"}
    value = "format" + "".join(f"|replace('{code}', '{said}')" for code, said in told.items())
    return "{%- macro strftime_now(format) -%}{{ " + value + " }}{%- endmacro %}\n"


def _trimmer(left: bool, right: bool) -> Callable[[str], str]:
    def trim(text: str) -> str:
        text = text.lstrip(_TOKENIZER_BLANKS) if left else text
        return text.rstrip(_TOKENIZER_BLANKS) if right else text

    return trim


def _common_length(sequences: Sequence[TokenIds]) -> int:
    first, last = min(sequences), max(sequences)
    for i, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return i
    return min(len(first), len(last))


def _refuse_long(
    keys: Sequence[Key | None],
    found: Mapping[Key, _Encoded],
    room: int | None,
    line_numbers: Sequence[int] | None,
) -> None:
    for i, key in enumerate(keys):
        if key is not None and found[key].ids is None:
            where = f"row {i + 1} of the window" if line_numbers is None else f"line {line_numbers[i]}"
            raise InputError(
                f"{where} makes a prompt of {found[key].tokens} tokens, but {room} fit; shorten it, or take "
                "--on-long truncate or skip."
            )


def _assemble(
    keys: Sequence[Key | None], found: Mapping[Key, _Encoded], statuses: Sequence[str]
) -> EncodedRows:
    numbers: dict[TokenIds, int] = {}
    prompt_of_row = np.full(len(keys), -1, dtype=np.int64)
    final = list(statuses)
    cut: list[tuple[int, int, int]] = []
    for i, key in enumerate(keys):
        if key is None:
            continue
        encoded = found[key]
        if encoded.status != "ok":
            final[i] = encoded.status
        if encoded.ids is not None:
            prompt_of_row[i] = numbers.setdefault(encoded.ids, len(numbers))
            if encoded.status == "truncated":
                cut.append((i, encoded.tokens, len(encoded.ids)))
    return EncodedRows(tuple(numbers), prompt_of_row, tuple(final), tuple(cut))
