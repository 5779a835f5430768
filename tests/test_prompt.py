"""From task and cells to strings: row contents, frames, and every quirk of chat templates."""

from __future__ import annotations

import datetime
import decimal
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.encode import Encoder
from lengthwise.errors import LengthwiseError, ModelError, TaskError
from lengthwise.prompt import (
    PROBE_TEXTS,
    PromptFrame,
    RowText,
    build_frame,
    clean_text,
    instructions_text,
    render_rows,
)
from lengthwise.task import Example, Label, Task
from tests import tiny_tokenizers as tiny

TASK = Task.from_labels("billing,technical,account")
INSTRUCTIONS = TASK.default_instructions
FEW_SHOT = Task.from_labels(
    "billing,technical", examples=[Example("paid twice", "billing"), Example("it crashes", "technical")]
)


def frame_of(template: str | None, task: Task = TASK) -> PromptFrame:
    """The frame of a task with one of the tiny chat templates."""
    return build_frame(task, task.label_texts, Encoder(tiny.byte_level(template)).render)


def prompt_of(frame: PromptFrame, text: str, before: str = "Ticket: ", after: str = "\nCategory:") -> str:
    return frame.prefix + frame.content(before, text, after) + frame.suffix


def rows_of(*values: object, template: str = "{text}") -> tuple[list[RowText | None], list[str]]:
    task = Task.from_labels("a,b", template=template)
    return render_rows(task, {"body": values}, ["body"], len(values))


def joint(template: str, content: str, task: Task = TASK) -> str:
    """What the chat template itself makes of instructions and a row."""
    tokenizer = tiny.byte_level(template)
    messages = [
        {"role": "system", "content": task.default_instructions},
        {"role": "user", "content": content},
    ]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


# Rows


def test_the_default_content_is_the_documented_one() -> None:
    """Ticket and category lines around the text."""
    rows, statuses = render_rows(TASK, {"body": ["It crashes"]}, ["body"], 1)
    assert rows == [RowText("Ticket: ", "It crashes", "\nCategory:")]
    assert statuses == ["ok"]


@pytest.mark.parametrize(
    "value",
    [None, math.nan, np.float32("nan"), pd.NA, pd.NaT, "", " ", "\n\t ", "\u200b\ufeff", "\x00"],
)
def test_missing_and_blank_cells_are_empty(value: object) -> None:
    """There is nothing to classify, so there is no prompt."""
    assert rows_of(value) == ([None], ["empty"])


@pytest.mark.parametrize("value", ["NA", "N/A", "nan", "NaN", "null", "None", "-", "0", np.str_("NULL")])
def test_words_for_nothing_stay_texts(value: str) -> None:
    """The string "NA" is told apart from a missing cell."""
    rows, statuses = rows_of(value)
    assert rows == [RowText("", str(value), "")]
    assert statuses == ["ok"]
    assert type(rows[0].text) is str  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, "number"),
        (1.5, "number"),
        (np.int64(3), "number"),
        (decimal.Decimal("1.2"), "number"),
        (True, "boolean"),
        (np.bool_(True), "boolean"),
        (b"text", "bytes"),
        (["a"], "list"),
        (np.array(["a"]), "list"),
        ({"a": 1}, "dict"),
        (datetime.date(2024, 1, 1), "date"),
    ],
)
def test_text_cells_that_hold_no_text_are_errors(value: object, kind: str) -> None:
    """Never a guess at what a number or a list would be as a text."""
    assert rows_of(value) == ([None], [f"error: not text ({kind})"])


def test_several_text_columns_are_joined_without_the_blank_ones() -> None:
    """Line breaks between them; a row is empty only when all are; one that is no text spoils the row."""
    cells = {"a": ["x", None, " ", "x"], "b": ["y", "z", None, 5]}
    rows, statuses = render_rows(Task.from_labels("a,b", template="{text}"), cells, ["a", "b"], 4)
    assert [row.text if row else None for row in rows] == ["x\ny", "z", None, None]
    assert statuses == ["ok", "ok", "empty", "error: not text (number)"]


def test_other_columns_are_written_as_they_are() -> None:
    """Numbers and dates as text, missing ones as nothing; lists are refused."""
    task = Task.from_labels("a,b", template="{n}|{text}|{d}")
    cells = {
        "text": ["x"] * 4,
        "n": [5, None, math.nan, [1]],
        "d": [datetime.date(2024, 1, 2), "é", True, ""],
    }
    rows, statuses = render_rows(task, cells, ["text"], 4)
    assert rows[:3] == [
        RowText("5|", "x", "|2024-01-02"),
        RowText("|", "x", "|é"),
        RowText("|", "x", "|True"),
    ]
    assert (rows[3], statuses[3]) == (None, "error: not text (list)")


def test_without_text_placeholder_the_longest_column_is_the_text() -> None:
    """It is the one that may be cut; such a row is empty when all its columns are."""
    task = Task.from_labels("a,b", template="{subject}: {body}.")
    cells = {"subject": ["long subject", "s", None], "body": ["b", "long body", " "]}
    rows, statuses = render_rows(task, cells, [], 3)
    assert rows[:2] == [RowText("", "long subject", ": b."), RowText("s: ", "long body", ".")]
    assert statuses == ["ok", "ok", "empty"]


@given(st.text(), st.text())
def test_what_stands_in_a_row_is_never_interpreted(text: str, subject: str) -> None:
    """Braces in values are characters; the content is literals and values, nothing else."""
    task = Task.from_labels("a,b", template="{{x}} {subject} {text} {{")
    rows, _ = render_rows(task, {"t": [text + "{text}"], "subject": [subject]}, ["t"], 1)
    row = rows[0]
    assert row is not None
    assert row.before + row.text + row.after == f"{{x}} {subject} {text}{{text}} {{"


def test_halves_of_surrogate_pairs_become_replacement_characters() -> None:
    """Anything can be encoded afterwards, and whole pairs are put together."""
    assert clean_text("a\ud83db") == "a\ufffdb"
    assert clean_text("\udc00") == "\ufffd"
    assert clean_text("\ud83d\ude42") == "🙂"
    assert clean_text("\ufeffé") == "\ufeffé"


@given(st.text(st.characters(exclude_categories=())))
def test_clean_texts_can_always_be_encoded(text: str) -> None:
    """And those that could be before are untouched."""
    assert clean_text(text).encode("utf-8").decode("utf-8") == clean_text(text)
    assert clean_text(text) == text or any("\ud800" <= character <= "\udfff" for character in text)


def test_a_placeholder_without_a_column_is_a_task_error() -> None:
    """With the column that was probably meant."""
    task = Task.from_labels("a,b", template="{subjet} {text}")
    with pytest.raises(TaskError, match="'subjet', but there is none; did you mean 'subject'"):
        render_rows(task, {"subject": ["a"], "text": ["b"]}, ["text"], 1)
    with pytest.raises(TaskError, match="no text column was named"):
        render_rows(TASK, {"text": ["b"]}, [], 1)


# Instructions


def test_descriptions_follow_the_instructions() -> None:
    """Only of the labels that have one."""
    task = Task.from_labels([Label("a", "a", "about a"), "b"])
    assert instructions_text(task, task.label_texts).splitlines()[1:] == ["a: about a"]
    own = Task.from_labels([Label("a", "a", "about a"), "b"], instructions="Sort.")
    assert instructions_text(own, own.label_texts) == "Sort.\na: about a"


def test_codes_are_explained_in_the_instructions() -> None:
    """Each with its label and description; the answers asked for are the codes."""
    task = Task.from_labels([Label("a", "billing", "money"), "technical"], instructions="Sort.")
    said = instructions_text(task, ["A", "B"])
    assert said == ("Sort.\nAnswer with exactly one of these codes:\nA: billing - money\nB: technical")


# Chat templates


def test_the_default_prompt_is_the_documented_one() -> None:
    """System, user and generation prompt, to the letter."""
    assert prompt_of(frame_of(tiny.CHATML), "It crashes") == (
        "<|im_start|>system\nYou classify support tickets. Answer with exactly one of: billing, technical, "
        "account.<|im_end|>\n<|im_start|>user\nTicket: It crashes\nCategory:<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_frame_knows_what_ends_a_turn_and_what_precedes_an_answer() -> None:
    """ChatML: nothing and <|im_end|>; Llama 2: a blank and </s>."""
    chatml = frame_of(tiny.CHATML)
    assert (chatml.label_lead, chatml.terminator_text, chatml.plain) == ("", "<|im_end|>", False)
    llama = build_frame(TASK, TASK.label_texts, Encoder(tiny.llama_like()).render)
    assert (llama.label_lead, llama.terminator_text, llama.plain) == (" ", "</s>", False)
    assert llama.answer("billing") == " billing"


def test_examples_are_earlier_turns() -> None:
    """In order, each answered by its label's text (or code)."""
    frame = frame_of(tiny.CHATML, FEW_SHOT)
    assert frame.prefix.endswith(
        "<|im_start|>user\nTicket: paid twice\nCategory:<|im_end|>\n"
        "<|im_start|>assistant\nbilling<|im_end|>\n"
        "<|im_start|>user\nTicket: it crashes\nCategory:<|im_end|>\n"
        "<|im_start|>assistant\ntechnical<|im_end|>\n"
        "<|im_start|>user\n"
    )
    coded = build_frame(FEW_SHOT, ["A", "B"], Encoder(tiny.byte_level()).render)
    assert "<|im_start|>assistant\nB<|im_end|>" in coded.prefix


@pytest.mark.parametrize("template", [tiny.REFUSES_SYSTEM, tiny.DROPS_SYSTEM, tiny.ALTERNATES])
@pytest.mark.parametrize("task", [TASK, FEW_SHOT])
def test_without_system_role_the_instructions_join_the_first_user_turn(template: str, task: Task) -> None:
    """Once, with a note, whether the template raises, drops them silently or insists on alternation."""
    frame = frame_of(template, task)
    prompt = prompt_of(frame, "It crashes")
    assert prompt.count(task.default_instructions) == 1
    assert "system" not in prompt
    assert prompt.startswith("<|im_start|>user\n" + task.default_instructions + "\n\nTicket: ")
    assert len(frame.notes) == 1
    assert "no system message" in frame.notes[0]


def test_a_template_for_one_message_gets_the_examples_as_text() -> None:
    """Everything in the user message, with a note."""
    frame = frame_of(tiny.ONE_USER_MESSAGE, FEW_SHOT)
    assert frame.prefix == (
        f"<|im_start|>user\n{FEW_SHOT.default_instructions}\n\nTicket: paid twice\nCategory: billing\n\n"
        "Ticket: it crashes\nCategory: technical\n\n"
    )
    assert "one user message only" in frame.notes[0]


@pytest.mark.parametrize(
    "template", [tiny.REFUSES_ALL, tiny.SYNTAX_ERROR, "{{ messages[9].content }}", "hello"]
)
def test_a_template_that_can_hold_nothing_is_a_model_error(template: str) -> None:
    """One sentence, no template engine's traceback."""
    with pytest.raises(ModelError, match="chat template cannot hold this task") as caught:
        frame_of(template)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)


def test_empty_instructions_make_no_system_message() -> None:
    """The template may then put its own default there."""
    frame = frame_of(tiny.CHATML, Task.from_labels("a,b", instructions=""))
    assert frame.prefix == "<|im_start|>user\n"


@pytest.mark.parametrize("text", ["x", "  x  ", "\n\nx\n", "\u3000x\u2003"])
@pytest.mark.parametrize("template", ["{text}", " {text}\n", "Ticket: {text}"])
@pytest.mark.parametrize("chat", [tiny.CHATML, tiny.CHATML_TRIMS])
def test_contents_are_trimmed_where_the_template_trims_them(chat: str, template: str, text: str) -> None:
    """The prompt equals the joint rendering for any blanks around the text."""
    task = Task.from_labels("billing,technical,account", template=template)
    row = render_rows(task, {"text": [text]}, ["text"], 1)[0][0]
    assert row is not None
    prompt = prompt_of(frame_of(chat, task), row.text, row.before, row.after)
    assert prompt == joint(chat, row.before + row.text + row.after)


def test_folded_instructions_keep_the_blanks_behind_them() -> None:
    """The template trims the whole user message, whose beginning is the instructions."""
    chat = tiny.REFUSES_SYSTEM.replace("message.content", "message.content | trim")
    frame = frame_of(chat, Task.from_labels("billing,technical,account", template="{text}"))
    assert (frame.strip_left, frame.strip_right) == (False, True)
    assert prompt_of(frame, " x ", "", "").startswith(f"<|im_start|>user\n{INSTRUCTIONS}\n\n x<|im_end|>")


def test_thinking_is_switched_off_where_there_is_a_switch() -> None:
    """The empty block that the template itself writes is left alone, without a note."""
    frame = frame_of(tiny.THINKING)
    assert frame.suffix.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert frame.suffix.count("think") == 2
    assert frame.notes == ()


def test_a_thinking_block_left_open_is_closed() -> None:
    """The answer is the next token after the prompt; the report says so."""
    frame = frame_of(tiny.THINKING_ONLY)
    assert frame.suffix.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "thinking block" in frame.notes[0]


@pytest.mark.parametrize("template", [tiny.DATED, tiny.DATE_STRING])
def test_todays_date_is_fixed(template: str) -> None:
    """A job makes the same prompts tomorrow; the report says so."""
    frame = frame_of(template)
    assert frame.prefix.startswith("<|im_start|>system\nToday is 26 Jul")
    assert "2024.<|im_end|>\n<|im_start|>system\n" in frame.prefix
    assert any("26 Jul 2024" in note for note in frame.notes)


@pytest.mark.parametrize("start", ["", "\n", "  {% if true %}\n", "{{ 'a' }}"])
def test_fixing_the_date_changes_nothing_else(start: str) -> None:
    """The rest of the rendering, its first blanks included, is as without it."""
    end = "{% endif %}" if "if" in start else ""
    dated = start + "{{ strftime_now('%Y-%m-%d %-d %b %y') }}" + end + tiny.CHATML
    told = start + "2024-07-26 26 Jul 24" + end + tiny.CHATML
    assert frame_of(dated).prefix == frame_of(told).prefix


# Plain prompts


@pytest.mark.parametrize(
    ("cue", "prompt_end", "lead"),
    [
        ("\nCategory:", "\nCategory:", " "),
        ("\nCategory: ", "\nCategory:", " "),
        ("\nCategory:  ", "\nCategory:", "  "),
        ("\nCategory:\n", "\nCategory:\n", ""),
        ("\nCategory:\n ", "\nCategory:\n", " "),
    ],
)
def test_blanks_at_a_plain_prompts_end_go_to_the_labels(cue: str, prompt_end: str, lead: str) -> None:
    """A trailing blank or none makes no difference; behind a line break none is added."""
    task = Task.from_labels("billing,technical", template="{text}" + cue)
    frame = build_frame(task, task.label_texts, None)
    assert prompt_of(frame, "x", "", cue) == frame.prefix + "x" + prompt_end
    assert frame.answer("billing") == lead + "billing"
    assert frame.plain


def test_a_labels_own_blank_is_the_boundary_blank() -> None:
    """' billing' behind 'Category:' does not get a second blank."""
    assert build_frame(TASK, TASK.label_texts, None).answer(" billing") == " billing"


def test_a_plain_prompt_is_blocks_of_text() -> None:
    """Instructions, solved examples, the row."""
    frame = build_frame(FEW_SHOT, FEW_SHOT.label_texts, None)
    assert prompt_of(frame, "x") == (
        f"{FEW_SHOT.default_instructions}\n\nTicket: paid twice\nCategory: billing\n\n"
        "Ticket: it crashes\nCategory: technical\n\nTicket: x\nCategory:"
    )


@pytest.mark.parametrize("template", ["{text}", "Ticket: {text}\n", "{text} \n\t"])
def test_a_plain_prompt_needs_a_cue(template: str) -> None:
    """Without one, a model would go on with the row's text; the error says what to add."""
    with pytest.raises(TaskError, match="Category:"):
        build_frame(Task.from_labels("a,b", template=template), ["a", "b"], None)


def test_every_frame_has_trial_contents() -> None:
    """Unlike beginnings and the empty row, put through the template and trimmed like any row."""
    frame = frame_of(tiny.CHATML_TRIMS, Task.from_labels("a,b", template="{text}"))
    assert len(frame.probes) == len(PROBE_TEXTS)
    assert frame.probes[3:5] == ("First a new line", "two blanks")
    assert frame_of(tiny.CHATML).empty == "Ticket: \nCategory:"


def test_errors_are_of_the_projects_own_kind() -> None:
    """A renderer that refuses raises what the command line turns into one sentence."""
    render = Encoder(tiny.byte_level(tiny.REFUSES_ALL)).render
    assert render is not None
    with pytest.raises(LengthwiseError, match="the chat template says: no"):
        render([{"role": "user", "content": "x"}])
