"""Load a Transformers folder as a decoder language model, and refuse what would give wrong answers."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.errors import ModelError, OptionError

logger = logging.getLogger("lengthwise")

TOKENIZER_FILES = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt", "*.tiktoken", "tekken.json")
NAMED = 3  # how many parameters an error lists


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run.

    ``model`` is in eval mode, needs no gradients and has the attention Transformers itself chose.
    ``context_limit`` is the longest sequence in tokens, ``None`` when the architecture has no limit.
    ``parameters`` counts tied weights once; ``non_embedding_parameters`` leaves out the input
    embedding and the output head, so it is what a token costs.
    """

    folder: Path
    model: Any
    tokenizer: Any
    context_limit: int | None
    vocab_size: int
    architecture: str
    dtype: str
    device: str
    parameters: int
    non_embedding_parameters: int


def load_model(folder: Path, *, device: str, dtype: str, threads: int, tokenizer: Any = None) -> LoadedModel:
    """Load model and tokenizer from a Transformers folder; ``device`` and ``dtype`` are resolved names.

    A tokenizer that is loaded already can be handed in. On CPUs weights whose number format is kept stay
    in the mapped file: they are read when first used, and are never in memory twice.
    Sets the number of CPU threads torch uses in this process. Code that comes with a model is never run.
    Raises ModelError when the folder holds no decoder language model, when a weight is missing or has
    another shape than the config says (it would stay random), or when there is no tokenizer.
    """
    import torch  # noqa: PLC0415 - torch is loaded with the first model, not with the package

    torch.set_num_threads(threads)
    with quiet_transformers():
        config = _read_config(folder)
        _check_decoder(config, folder)
        tokenizer = tokenizer or load_tokenizer(folder)
        model = _read_weights(folder, config, getattr(torch, dtype), device)
    total, non_embedding = _count_parameters(model)
    return LoadedModel(
        folder=folder,
        model=model,
        tokenizer=tokenizer,
        context_limit=context_limit(model.config),
        vocab_size=int(model.get_input_embeddings().weight.shape[0]),
        architecture=type(model).__name__,
        dtype=dtype,
        device=device,
        parameters=total,
        non_embedding_parameters=non_embedding,
    )


# --- config ------------------------------------------------------------------------------------------


def _read_config(folder: Path) -> Any:
    from transformers import AutoConfig  # noqa: PLC0415 - heavy, and only needed to load

    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"config.json of the model folder {str(folder)!r} cannot be read ({error})."
        ) from error
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        kind = raw.get("model_type") if isinstance(raw, dict) else None
        what = f"config.json in {str(folder)!r} (model type {kind!r})"
        raise ModelError(_failure(what, error, "a newer transformers may know this model")) from error


def _check_decoder(config: Any, folder: Path) -> None:
    """Refuse models that do not predict a next token from the tokens before it."""
    from transformers.models.auto import modeling_auto  # noqa: PLC0415 - heavy, and only needed to load

    kind = config.model_type
    causal = kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    # BERT and its kin may be asked to act as decoders, but unless trained so they look at later tokens
    looks_ahead = kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(
        config, "is_decoder", False
    )
    if getattr(config, "is_encoder_decoder", False) or looks_ahead or not causal:
        raise ModelError(
            f"the model in {str(folder)!r} is of type {kind!r}; a decoder language model is needed, one that "
            f"predicts the next token (Qwen, Llama, Gemma, Mistral, Phi, GPT-2 and so on)."
        )


def context_limit(config: Any) -> int | None:
    """The longest sequence in tokens that the config promises, ``None`` when it names none.

    ``max_position_embeddings`` (of the text part) already counts scaled positions, except with YaRN,
    where it may be the length before scaling. A sliding window bounds attention, not the sequence.
    """
    text = config.get_text_config()
    stated = getattr(text, "max_position_embeddings", None)
    if not isinstance(stated, int) or stated < 1:
        return None
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type") == "yarn" and rope.get("original_max_position_embeddings"):
        return max(stated, int(rope["original_max_position_embeddings"] * rope.get("factor", 1.0)))
    return stated


# --- tokenizer ---------------------------------------------------------------------------------------


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a Transformers folder, without its model; ModelError when there is none."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy, and only needed to load

    # without these files Transformers may make an empty tokenizer instead of failing
    if not any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES):
        raise ModelError(
            f"the model folder {str(folder)!r} has no tokenizer (tokenizer.json); save the model's own there."
        )
    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        mend = "save the model's own tokenizer there again"
        raise ModelError(_failure(f"the tokenizer in {str(folder)!r}", error, mend)) from error


# --- weights -----------------------------------------------------------------------------------------


def _read_weights(folder: Path, config: Any, dtype: Any, device: str) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - heavy, and only needed to load

    auto: Any = AutoModelForCausalLM
    try:
        model, info = auto.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # so that they are named below
            output_loading_info=True,
        )
        _check_loaded(model, info, folder)
        model.eval().requires_grad_(requires_grad=False)
        return model.to(device)
    except ModelError:
        raise
    except Exception as error:
        mend = "fetch or save the model again"
        raise ModelError(_failure(f"the weights in {str(folder)!r}", error, mend)) from error


def _check_loaded(model: Any, info: Any, folder: Path) -> None:
    """Refuse a model with a weight the checkpoint did not give; log what the checkpoint has too much."""
    if info["mismatched_keys"]:
        shapes = [
            f"{name} is {tuple(has)}, needed {tuple(needs)}" for name, has, needs in info["mismatched_keys"]
        ]
        raise ModelError(
            f"weights in {str(folder)!r} have other shapes than its config.json says: {_some(shapes)}."
        )
    empty = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if missing := sorted({*info["missing_keys"], *empty}):
        raise ModelError(
            f"the checkpoint in {str(folder)!r} lacks {_some(missing)}, which would stay random; fetch or "
            f"save the model again, or set tie_word_embeddings in its config.json if they are the same."
        )
    if unused := sorted(info["unexpected_keys"]):
        logger.info("%s: the model does not use %s of its checkpoint", folder.name, _some(unused))


def _count_parameters(model: Any) -> tuple[int, int]:
    counted = {parameter.data_ptr(): parameter.numel() for parameter in model.parameters()}
    outer = {
        module.weight.data_ptr()
        for module in (model.get_input_embeddings(), model.get_output_embeddings())
        if module is not None
    }
    total = sum(counted.values())
    return total, total - sum(count for pointer, count in counted.items() if pointer in outer)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _failure(what: str, error: Exception, mend: str) -> str:
    """One sentence for whatever Transformers raised."""
    if "trust_remote_code" in str(error):
        return (
            f"{what} needs Python code that comes with the model, and lengthwise never runs such code; use a "
            f"model that Transformers knows by itself."
        )
    lines = str(error).strip().splitlines()
    return f"{what} cannot be loaded: {lines[0].rstrip('.') if lines else type(error).__name__}; {mend}."


# --- device and number format ------------------------------------------------------------------------


def resolve_device(device: str) -> str:
    """The device to use: for "auto" cuda, mps or cpu in this order.

    Raises OptionError when torch does not have the one that is named.
    """
    import torch  # noqa: PLC0415 - torch is loaded with the first model, not with the package

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return next(name for name, is_there in there.items() if is_there)
    kind = device.partition(":")[0]
    if not there.get(kind, False):
        usable = ", ".join(name for name, is_there in there.items() if is_there)
        raise OptionError(f"device {device!r} is not available to torch here; use auto or one of: {usable}.")
    return device


def resolve_dtype(dtype: str, device: str) -> str:
    """The number format to use: for "auto" bfloat16 on a GPU that has it in hardware, else float32.

    float32 also on Apple's mps: half precision decides near ties by chance. A named format is kept.
    """
    if dtype != "auto":
        return dtype
    import torch  # noqa: PLC0415 - torch is loaded with the first model, not with the package

    if device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    return "float32"


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no advice from Transformers while it loads; its settings are restored."""
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415 - heavy

    chatter: Any = transformers_logging
    verbosity, bars = chatter.get_verbosity(), chatter.is_progress_bar_enabled()
    chatter.set_verbosity_error()
    chatter.disable_progress_bar()
    try:
        yield
    finally:
        chatter.set_verbosity(verbosity)
        if bars:
            chatter.enable_progress_bar()
