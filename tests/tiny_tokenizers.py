"""Small tokenizers of every family, trained on the spot, and chat templates with every quirk."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "My card was charged twice for the same invoice. I need to change the email address on my profile.",
    "The mobile app crashes whenever I open the settings page. Please send me a refund for the payment.",
    "Ticket: I have been waiting for a response for several days now.\nCategory: billing",
    "You classify support tickets. Answer with exactly one of: billing, technical, account.",
    "system user assistant billing technical account Category: Ticket: [INST] [/INST] <<SYS>>",
    "Ich möchte mein Konto kündigen. 账单有问题 🙂 Émile. 1 2 3 4 5 6 7 8 9 0 A B C D E F G H",
    "if (x == 1) { return y; } <p>Hello</p> <b>world</b> https://example.com/?a=b&c=d",
]

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_TRIMS = CHATML.replace("message.content", "message.content | trim")
CHATML_WITH_BOS = "{{ bos_token }}" + CHATML
REFUSES_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHATML
)
DROPS_SYSTEM = CHATML.replace(
    "{% for message in messages %}", "{% for message in messages if message.role != 'system' %}"
)
ALTERNATES = (
    "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% endfor %}" + CHATML
)
ONE_USER_MESSAGE = (
    "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}" + CHATML
)
REFUSES_ALL = "{{ raise_exception('no') }}"
SYNTAX_ERROR = "{% for message in %}"
THINKING = (
    CHATML
    + "{% if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    + "<think>\n\n</think>\n\n{% endif %}"
)
THINKING_ONLY = CHATML + "{% if add_generation_prompt %}<think>\n{% endif %}"
DATED = "<|im_start|>system\nToday is {{ strftime_now('%d %B %Y') }}.<|im_end|>\n" + CHATML
DATE_STRING = (
    "{% if date_string is not defined %}{{ raise_exception('no date') }}{% endif %}"
    "<|im_start|>system\nToday is {{ date_string }}.<|im_end|>\n" + CHATML
)
LLAMA2 = (
    "{% if messages[0].role == 'system' %}"
    "{% set system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}{% if message.role == 'user' %}"
    "{{ bos_token + '[INST] ' + (system if loop.first else '') + message.content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + message.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)

BYTE_LEVEL_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@cache
def _byte_level_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(BYTE_LEVEL_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=CHATML_SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(
        [AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>", "<tool_call>")]
    )
    return tokenizer.to_str()


def byte_level(
    template: str | None = CHATML, *, adds_bos: bool = False, pad: bool = True, added: tuple[Any, ...] = ()
) -> Any:
    """Byte-level BPE as in Qwen, with ChatML's control tokens; ``added`` are further added tokens."""
    backend = Tokenizer.from_str(_byte_level_json())
    if adds_bos:
        backend.post_processor = TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>" if pad else None,
        chat_template=template,
    )
    if added:
        tokenizer.add_tokens(list(added))
    return tokenizer


def _byte_pieces() -> list[str]:
    return [f"<0x{byte:02X}>" for byte in range(256)]


@cache
def _llama_vocab() -> tuple[dict[str, int], list[tuple[str, str]]]:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    vocab = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", *_byte_pieces()])}
    for piece in sorted(model["vocab"], key=model["vocab"].get):
        vocab.setdefault(piece, len(vocab))
    return vocab, [tuple(merge) for merge in model["merges"]]


def llama_like(template: str | None = LLAMA2, *, legacy: bool = False, adds_eos: bool = False) -> Any:
    """SentencePiece-like BPE with byte fallback that begins every text with <s>, as Llama 2's.

    ``legacy`` puts a blank before every stretch behind a control token, as its older versions did.
    """
    vocab, merges = _llama_vocab()
    backend = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    if legacy:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    single = "<s> $A </s>" if adds_eos else "<s> $A"
    backend.post_processor = TemplateProcessing(single=single, special_tokens=[("<s>", 1), ("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template
    )


def unigram(template: str | None = None) -> Any:
    """A Unigram tokenizer, whose model alone would find the control token </s> in a text."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.decoder = decoders.Metaspace(prepend_scheme="never")
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(CORPUS * 3, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template
    )


def word_piece(template: str | None = None) -> Any:
    """A WordPiece tokenizer with [CLS] and [SEP], as BERT's."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        sep_token="[SEP]",
        cls_token="[CLS]",
        pad_token="[PAD]",
        chat_template=template,
    )


def python_written(template: str | None = CHATML) -> Any:
    """A tokenizer without the tokenizers library: one token a byte, ChatML's control tokens."""
    from transformers import PreTrainedTokenizer  # noqa: PLC0415

    class ByteTokenizer(PreTrainedTokenizer):  # type: ignore[misc]
        vocab_size = 256

        def get_vocab(self) -> dict[str, int]:
            return {chr(byte): byte for byte in range(256)} | self.added_tokens_encoder

        def _tokenize(self, text: str, **_: Any) -> list[str]:
            return [chr(byte) for byte in text.encode()]

        def _convert_token_to_id(self, token: str) -> int:
            return ord(token)

        def _convert_id_to_token(self, index: int) -> str:
            return chr(index)

        def convert_tokens_to_string(self, tokens: list[str]) -> str:
            pieces = [bytes([ord(token)]) if len(token) == 1 else token.encode() for token in tokens]
            return b"".join(pieces).decode(errors="replace")

    return ByteTokenizer(
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        extra_special_tokens=["<|im_start|>"],
        chat_template=template,
    )
