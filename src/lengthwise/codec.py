"""Plain encoding: texts to token ids with a tokenizer that adds nothing and knows no control tokens.

Two kinds of tokenizer, one shape: `joint` encodes as the tokenizer does, control tokens included;
`plain_ways` are encodings to which a control token's text is only characters.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lengthwise.records import TokenIds

Encode = Callable[[Sequence[str]], list[list[int]]]


class FastCodec:
    """A tokenizer of the tokenizers library.

    A text without any control token's text is encoded by the tokenizer itself; only for the others a copy
    that knows no control tokens is made, which takes a second with a large vocabulary.
    """

    def __init__(self, tokenizer: Any, controls: Sequence[str]) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._controls = controls
        self._pattern = re.compile("|".join(map(re.escape, controls)) if controls else "(?!)")
        self._normalised = any(token.normalized for token in tokenizer.added_tokens_decoder.values())
        self._clean: Any = None
        self._copies: dict[bool, Any] = {}

    def joint(self, texts: Sequence[str]) -> list[list[int]]:
        return _batch(self._untouched(), texts)

    def begin(self) -> TokenIds:
        """What the tokenizer by itself puts in front of every text."""
        backend = self._untouched()
        with_own = backend.encode("a", add_special_tokens=True).ids
        return _before(with_own, backend.encode("a", add_special_tokens=False).ids)

    def plain_ways(self) -> Iterator[Encode]:
        """First as the tokenizer begins every text, then as it goes on in the middle of one."""
        yield self._plain
        yield lambda texts: _batch(self._copy(first_prefix=False), texts)

    def spans(self, text: str, encode: Encode) -> list[tuple[int, int]]:
        del encode  # this library says itself where tokens lie
        tokenizer = self._for_plain([text])
        return [tuple(span) for span in tokenizer.encode(text, add_special_tokens=False).offsets]

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        return _batch(self._for_plain(texts), texts)

    def _for_plain(self, texts: Sequence[str]) -> Any:
        """The tokenizer itself where no text contains a control token, else the copy.

        A token that is looked for in the normalised text could hide from the search.
        """
        harmless = not self._normalised and not any(self._pattern.search(text) for text in texts)
        return self._untouched() if harmless else self._copy(first_prefix=True)

    def _untouched(self) -> Any:
        """The tokenizer itself unless someone switched truncation or padding on, else a copy without."""
        backend = self._backend
        if backend.truncation is None and backend.padding is None and not backend.encode_special_tokens:
            return backend
        if self._clean is None:
            self._clean = _from_json(json.loads(backend.to_str()))
        return self._clean

    def _copy(self, *, first_prefix: bool) -> Any:
        if first_prefix not in self._copies:
            self._copies[first_prefix] = self._without_controls(first_prefix=first_prefix)
        return self._copies[first_prefix]

    def _without_controls(self, *, first_prefix: bool) -> Any:
        """A copy whose control tokens are called something that no text contains.

        ``first_prefix`` keeps the blank that some SentencePiece tokenizers put before a text's very first
        word; a stretch from the middle of a text must go without.
        """
        data = json.loads(self._backend.to_str())
        nonce = secrets.token_hex(8)
        names = {text: f"\ue000{nonce}-{i}\ue001" for i, text in enumerate(self._controls)}
        for token in data["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        _rename(data["model"], names)
        if not first_prefix:
            _drop_first_prefix(data["pre_tokenizer"])
        return _from_json(data)


class SlowCodec:
    """A tokenizer written in Python."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def joint(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(self._tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]

    def begin(self) -> TokenIds:
        return _before(list(self._tokenizer("a")["input_ids"]), self.joint(["a"])[0])

    def plain_ways(self) -> Iterator[Encode]:
        yield self._plain

    def spans(self, text: str, encode: Encode) -> list[tuple[int, int]]:
        """Evenly spread, for want of better; the caller counts again."""
        count = len(encode([text])[0])
        return [(i * len(text) // count, (i + 1) * len(text) // count) for i in range(count)]

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        tokenize, ids = self._tokenizer.tokenize, self._tokenizer.convert_tokens_to_ids
        return [list(ids(tokenize(text, split_special_tokens=True))) for text in texts]


def _batch(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of texts; the library's own threads only when the user has asked for them."""
    if os.environ.get("TOKENIZERS_PARALLELISM"):
        return [found.ids for found in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def _from_json(data: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer  # noqa: PLC0415 - a heavy library

    return Tokenizer.from_str(json.dumps({**data, "truncation": None, "padding": None}))


def _rename(model: dict[str, Any], names: Mapping[str, str]) -> None:
    """Give pieces of a tokenizer's vocabulary other names; their numbers stay."""
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {names.get(piece, piece): number for piece, number in vocab.items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if not _makes(merge, names)]


def _makes(merge: str | Sequence[str], names: Mapping[str, str]) -> bool:
    """Whether a merge builds one of the names or builds on it."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left in names or right in names or left + right in names


def _drop_first_prefix(node: Any) -> None:
    """Switch off, in a pre-tokenizer's JSON, the blank before the first word of a text."""
    if isinstance(node, dict):
        if node.get("prepend_scheme") == "first":
            node["prepend_scheme"] = "never"
        for value in node.values():
            _drop_first_prefix(value)
    elif isinstance(node, list):
        for value in node:
            _drop_first_prefix(value)


def _before(whole: Sequence[int], part: Sequence[int]) -> TokenIds:
    """What stands in front of ``part`` in ``whole``."""
    for start in range(len(whole) - len(part) + 1):
        if list(whole[start : start + len(part)]) == list(part):
            return tuple(whole[:start])
    return ()
