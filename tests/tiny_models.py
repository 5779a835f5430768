"""Tiny random models of the architectures we promise, built without a network."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

torch.set_num_threads(1)  # matrices this small are slower on more, above all on a busy machine

VOCAB = 448
WINDOW = 7
"""Shorter than most test prompts, so that the sliding window cuts into ancestors."""

BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]

BUILDERS: dict[str, Callable[[], Any]] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**BASE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**BASE, head_dim=16)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**BASE)),
    "mistral-sliding": lambda: MistralForCausalLM(MistralConfig(**BASE, sliding_window=WINDOW)),
    "gemma2-softcap": lambda: Gemma2ForCausalLM(Gemma2Config(**BASE, head_dim=16, sliding_window=WINDOW)),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**BASE, head_dim=16, sliding_window=WINDOW, layer_types=SLIDING)
    ),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**BASE)),
    "gpt2-learned-positions": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=512, bos_token_id=0, eos_token_id=1
        )
    ),
    "gpt-oss-sinks": lambda: GptOssForCausalLM(
        GptOssConfig(
            **BASE,
            head_dim=16,
            num_local_experts=2,
            num_experts_per_tok=1,
            sliding_window=WINDOW,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        )
    ),
}
"""Architectures that pack."""

PACKABLE = tuple(BUILDERS)

BUILDERS["lfm2-hybrid"] = lambda: Lfm2ForCausalLM(
    Lfm2Config(**BASE, layer_types=["conv", "full_attention", "conv"])
)
BUILDERS["phi3-longrope"] = lambda: Phi3ForCausalLM(
    Phi3Config(
        **BASE,
        original_max_position_embeddings=32,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 32,
            "short_factor": [1.0] * 8,
            "long_factor": [4.0] * 8,
        },
    )
)


@functools.cache
def tiny_model(name: str) -> Any:
    """The model with weights large enough that attention matters, in eval mode; shared by all tests."""
    transformers.logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BUILDERS[name]()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    return model.eval().requires_grad_(False)
