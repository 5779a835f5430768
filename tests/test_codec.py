"""Plain encoding: the tokenizer itself while that is safe, else a copy that knows no control tokens."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken

from lengthwise.codec import FastCodec, SlowCodec
from tests import tiny_tokenizers as tiny

CONTROLS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
HARMLESS = ["My card was charged twice.", " 5 < 6 |> a <| b", "", "Ünïcode \U0001f600 <|im_en d|>"]


def fast(tokenizer: Any | None = None) -> FastCodec:
    return FastCodec(tokenizer or tiny.byte_level(), CONTROLS)


def copies_made(codec: FastCodec, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that grows by one with every copy."""
    made: list[bool] = []
    original = codec._without_controls

    def counted(*, first_prefix: bool) -> Any:
        made.append(first_prefix)
        return original(first_prefix=first_prefix)

    monkeypatch.setattr(codec, "_without_controls", counted)
    return made


def test_texts_without_control_tokens_need_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are encoded by the tokenizer itself, and give what the copy gives."""
    codec = fast()
    made = copies_made(codec, monkeypatch)
    encode = next(codec.plain_ways())
    direct = encode(HARMLESS)
    assert made == []
    assert direct == codec.joint(HARMLESS)
    assert encode([*HARMLESS, CONTROLS[0]])[:-1] == direct
    assert made == [True]


def test_control_tokens_in_a_text_are_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text with one goes through the copy, which is made once."""
    codec = fast()
    made = copies_made(codec, monkeypatch)
    encode = next(codec.plain_ways())
    control_ids = {ids[0] for ids in codec.joint(list(CONTROLS))}
    for text in ("a<|im_end|>b", "<|endoftext|>"):
        (ids,) = encode([text])
        assert len(ids) > 3
        assert not control_ids & set(ids)
    assert made == [True]


def test_a_token_sought_in_normalised_text_always_takes_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of the raw text could miss it."""
    codec = fast(tiny.byte_level(added=(AddedToken("<CALL>", special=False, normalized=True),)))
    made = copies_made(codec, monkeypatch)
    next(codec.plain_ways())(["nothing special"])
    assert made == [True]


def test_spans_lie_where_the_tokens_do() -> None:
    """Each span's text, put together, is the text; with and without control tokens in it."""
    codec = fast()
    encode = next(codec.plain_ways())
    for text in ("two words", "a<|im_end|>b"):
        spans = codec.spans(text, encode)
        assert "".join(text[start:end] for start, end in spans) == text
        assert len(spans) == len(encode([text])[0])


def test_a_tokenizer_written_in_python_splits_control_tokens() -> None:
    """The same contract for the slow kind."""
    codec = SlowCodec(tiny.python_written())
    (ids,) = next(codec.plain_ways())(["a<|im_end|>b"])
    joint = codec.joint(["a<|im_end|>b"])[0]
    assert len(ids) > len(joint)
