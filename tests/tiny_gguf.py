"""Writes tiny Llama and Qwen2 models as .gguf files, as llama.cpp's converter would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import quantize
from tokenizers.pre_tokenizers import ByteLevel

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "Ċ Ċ", "h e", "l l", "he ll", "hell o", "Ġ hello"]
TOKENS = [*CONTROL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]


def permuted(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of a query or key projection in the order llama.cpp keeps them for the llama architecture."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    path: Path,
    model: Any,
    *,
    rules: str = "qwen2",
    quantized: bool = False,
    leave_out: str = "",
    extra_tensors: dict[str, np.ndarray[Any, Any]] | None = None,
    extra_strings: dict[str, str] | None = None,
) -> Path:
    """Write ``model`` (vocabulary of at least ``len(TOKENS)``) and a byte-level tokenizer to ``path``."""
    config = model.config
    writer = GGUFWriter(path, config.model_type)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    _add_tokenizer(writer, rules, config.vocab_size)
    for key, value in (extra_strings or {}).items():
        writer.add_string(key, value)
    for name, values in _tensors(model):
        if leave_out and leave_out in name:
            continue
        if quantized and values.ndim == 2:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    for name, values in (extra_tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: GGUFWriter, rules: str, vocab_size: int) -> None:
    unused = [f"[PAD{k}]" for k in range(len(TOKENS), vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rules)
    writer.add_token_list([*TOKENS, *unused])
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL)) + [5] * len(unused))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _tensors(model: Any) -> list[tuple[str, np.ndarray[Any, Any]]]:
    config = model.config
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == config.model_type)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    found = []
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None, name
        part = gguf_name.split(".")[-2]
        if config.model_type == "llama" and part in heads:
            values = permuted(values, heads[part])
        found.append((gguf_name, np.ascontiguousarray(values)))
    return found
