"""Turn a .gguf file into a normal Transformers folder in the cache, once.

The weights become float32 with exactly the values the file's blocks stand for. Transformers can load
such files itself, but only with another package installed and all tensors in memory at once, and it
refuses to save the result. So its knowledge of names and layouts is used here, tensor by tensor.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.backends.load import quiet_transformers
from lengthwise.errors import LengthwiseError, ModelError
from lengthwise.models import (
    CONVERSION_RECORD,
    CONVERTER_VERSION,
    ModelSource,
    cache_errors,
    converted_folder,
    file_sha256,
    locked,
)

logger = logging.getLogger("lengthwise")

SHARD_BYTES = 512 << 20
BLOCK_BYTES = 64 << 20  # of float32 values that are unpacked at once
# Names llama.cpp gives to rules for cutting text, and what Transformers' reading of a file leaves out.
DIGITS_FIRST = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
COMPOSED = frozenset({"qwen2", "deepseek-r1-qwen"})
PLAIN = frozenset({"default", "gpt-2"})
ROPE_FACTORS = "rope_freqs.weight"
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
Array = NDArray[Any]


def loadable_folder(source: ModelSource) -> Path:
    """The folder Transformers can load for ``source``; a ``.gguf`` file is converted on its first use.

    Processes that need the same conversion wait for one another, and none ever sees half of it.
    Raises ModelError when the file cannot be read or converted without loss.
    """
    folder = converted_folder(source)
    if folder.is_dir():
        return folder
    with cache_errors(), locked(folder):
        if not folder.is_dir():  # another process may have converted it while this one waited
            _convert(source, folder)
    return folder


def _convert(source: ModelSource, folder: Path) -> None:
    logger.info("converting %s to a folder of float32 weights, once", source.path.name)
    began = time.perf_counter()
    unfinished = folder.with_name(f".unfinished-{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed; we hold the lock
    unfinished.mkdir()
    try:
        with quiet_transformers():
            write_folder(source.path, unfinished)
        unfinished.replace(folder)
    except LengthwiseError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno:  # the disk's trouble; Transformers' own has no number
            raise
        raise ModelError(
            f"{source.name!r} cannot be converted: {type(error).__name__}: {error}; "
            f"use the model's original Transformers folder."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    logger.info("converted in %.0f s: %s", time.perf_counter() - began, folder)


def write_folder(gguf: Path, folder: Path) -> None:
    """Write config, tokenizer and weights of a ``.gguf`` file into the existing ``folder``."""
    from gguf import GGUFReader  # noqa: PLC0415 - heavy, and only needed to convert
    from transformers import AutoConfig  # noqa: PLC0415

    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    reader = GGUFReader(gguf)
    _refuse_lost_settings(reader, config)
    _restore_llama3_scaling(reader, config)
    skeleton = _skeleton(config, gguf)
    config.architectures = [type(skeleton).__name__]
    config.dtype = "float32"
    config.__dict__.pop("_model_name_or_path", None)
    _write_weights(reader, skeleton, folder)
    config.save_pretrained(folder)
    _read_tokenizer(gguf, _field(reader, "tokenizer.ggml.pre")).save_pretrained(folder)
    record = {"source": str(gguf), "sha256": file_sha256(gguf), "converter": CONVERTER_VERSION}
    (folder / CONVERSION_RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _field(reader: Any, key: str, default: Any = None) -> Any:
    """A metadata value; ``{arch}`` in the key stands for the file's architecture."""
    if "{arch}" in key:
        key = key.format(arch=_field(reader, "general.architecture"))
    field = reader.get_field(key)
    return default if field is None else field.contents()


# --- config ------------------------------------------------------------------------------------------


def _refuse_lost_settings(reader: Any, config: Any) -> None:
    """Settings Transformers' reading of the metadata leaves out would change answers without a word."""
    text = config.get_text_config()
    scaling = _field(reader, "{arch}.rope.scaling.type", "none")
    if scaling != "none" and (getattr(text, "rope_parameters", None) or {}).get("rope_type") != scaling:
        raise ModelError(
            f"the GGUF file asks for position scaling of type {scaling!r}, which its conversion would lose; "
            f"use the model's original Transformers folder."
        )
    window = _field(reader, "{arch}.attention.sliding_window", 0)
    if window and getattr(text, "sliding_window", None) != window:
        raise ModelError(
            f"the GGUF file asks for a sliding window of {window} tokens, which its conversion would lose; "
            f"use the model's original Transformers folder."
        )


def _restore_llama3_scaling(reader: Any, config: Any) -> None:
    """Llama 3.1 and later scale positions; the file states it by one factor for each frequency only."""
    factors = next((tensor.data for tensor in reader.tensors if tensor.name == ROPE_FACTORS), None)
    if factors is None:
        return
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415 - only needed to convert

    theta = config.rope_parameters["rope_theta"]
    plain = 1.0 / theta ** (np.arange(0, 2 * len(factors), 2) / (2 * len(factors)))
    config.rope_parameters = {"rope_theta": theta, **LLAMA3_SCALING, "factor": float(factors.max())}
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    if len(scaled) != len(factors) or not np.allclose(scaled.numpy() * factors, plain, rtol=1e-5, atol=0):
        raise ModelError(
            f"the GGUF file scales its positions ({ROPE_FACTORS}) in a way its conversion would lose; "
            f"use the model's original Transformers folder."
        )


def _skeleton(config: Any, gguf: Path) -> Any:
    """The model without memory for its weights: names and shapes only."""
    import torch  # noqa: PLC0415 - heavy, and only needed to convert
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    auto: Any = AutoModelForCausalLM
    try:
        with torch.device("meta"):
            return auto.from_config(config, dtype=torch.float32, trust_remote_code=False)
    except ValueError as error:
        raise ModelError(
            f"{gguf.name!r} holds a model of type {config.model_type!r}; a decoder language model is needed."
        ) from error


# --- weights -----------------------------------------------------------------------------------------


def _write_weights(reader: Any, skeleton: Any, folder: Path) -> None:
    """Write the tensors as safetensors files of bounded size, so that memory never holds the whole model."""
    wanted = {name: tuple(parameter.shape) for name, parameter in skeleton.named_parameters()}
    _check_space(folder, 4 * sum(int(np.prod(shape)) for shape in wanted.values()))
    shards: list[list[str]] = []
    pending: dict[str, Array] = {}
    seen: set[str] = set()
    for name, values in _tensors(reader, skeleton):
        if wanted.get(name) != values.shape:
            raise ModelError(
                f"tensor {name} of the GGUF file has the shape {values.shape}, and its settings ask for "
                f"{wanted.get(name)}; use the model's original Transformers folder."
            )
        seen.add(name)
        pending[name] = values
        if sum(array.nbytes for array in pending.values()) >= SHARD_BYTES:
            _write_shard(folder, shards, pending)
    if missing := sorted(wanted.keys() - seen):
        raise ModelError(
            f"the GGUF file has no weights for {', '.join(missing[:3])}; it is incomplete, or one part of "
            f"several."
        )
    _write_shard(folder, shards, pending)
    _name_shards(folder, shards)


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"converting needs {needed / 1e9:.1f} GB in {str(folder.parent)!r} and {free / 1e9:.1f} GB are "
            f"free; make room or set LENGTHWISE_CACHE to a folder on another disk."
        )


def _tensors(reader: Any, skeleton: Any) -> Iterator[tuple[str, Array]]:
    """Transformers' name and the float32 values of each tensor of the file, one at a time."""
    from transformers import modeling_gguf_pytorch_utils  # noqa: PLC0415 - heavy

    theirs: Any = modeling_gguf_pytorch_utils
    make = theirs.TENSOR_PROCESSORS.get(_field(reader, "general.architecture"), theirs.TensorProcessor)
    processor = make(config=skeleton.config.to_dict())
    names = theirs.get_gguf_hf_weights_map(skeleton, processor)
    gathered: dict[str, Any] = {"tensors": {}}  # experts, which processors collect over several tensors
    for tensor in reader.tensors:
        if tensor.name == ROPE_FACTORS:  # it is in the config by now
            continue
        result = processor.process(
            weights=_unpacked(tensor), name=tensor.name, tensor_key_mapping=names, parsed_parameters=gathered
        )
        if result.name is None:
            continue
        if result.name not in names:
            raise ModelError(
                f"the GGUF file holds the tensor {tensor.name!r}, for which its conversion has no place; "
                f"use the model's original Transformers folder."
            )
        yield names[result.name], np.ascontiguousarray(result.weights, dtype=np.float32)
    for name, values in gathered["tensors"].items():
        yield name, values.numpy()


def _unpacked(tensor: Any) -> Array:
    """The float32 values of a tensor, unpacked in pieces as that takes several times their memory."""
    from gguf import dequantize  # noqa: PLC0415 - heavy, and only needed to convert

    data = tensor.data
    step = max(1, BLOCK_BYTES // (4 * int(tensor.n_elements) // len(data)))
    pieces = (dequantize(data[k : k + step], tensor.tensor_type) for k in range(0, len(data), step))
    first = next(pieces)
    values = np.empty((len(data), *first.shape[1:]), dtype=np.float32)
    values[:step] = first
    for k, piece in enumerate(pieces, start=1):
        values[k * step : (k + 1) * step] = piece
    return values


def _write_shard(folder: Path, shards: list[list[str]], pending: dict[str, Array]) -> None:
    from safetensors.numpy import save_file  # noqa: PLC0415 - only needed to convert

    file = folder / f"model-{len(shards) + 1:05d}.safetensors"
    save_file(pending, file, metadata={"format": "pt"})
    file.chmod(0o644)  # safetensors writes for the owner only, and a cache may be shared
    shards.append(list(pending))
    pending.clear()


def _name_shards(folder: Path, shards: list[list[str]]) -> None:
    """Give the files the names Transformers looks for, which hold the number of all files."""
    if len(shards) == 1:
        (folder / "model-00001.safetensors").replace(folder / "model.safetensors")
        return
    names = [f"model-{k:05d}-of-{len(shards):05d}.safetensors" for k in range(1, len(shards) + 1)]
    for k, name in enumerate(names, start=1):
        (folder / f"model-{k:05d}.safetensors").replace(folder / name)
    weight_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    total = sum((folder / name).stat().st_size for name in names)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")


# --- tokenizer ---------------------------------------------------------------------------------------


def _read_tokenizer(gguf: Path, rules: str | None) -> Any:
    """Transformers' reading of the tokenizer, with what it leaves out put right.

    ``rules`` is llama.cpp's name for the way text is cut before byte pairs are merged.
    """
    from tokenizers import normalizers, pre_tokenizers  # noqa: PLC0415 - only needed to convert
    from transformers import AutoTokenizer  # noqa: PLC0415 - heavy, and only needed to convert

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    backend = tokenizer.backend_tokenizer
    if rules in DIGITS_FIRST:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif rules in COMPOSED:
        backend.normalizer = normalizers.NFC()
    elif rules is not None and rules not in PLAIN | _rules_transformers_knows():
        logger.warning(
            "%s: the tokenizer's rules %r are unknown; texts may become other tokens than in training",
            gguf.name,
            rules,
        )
    return tokenizer


def _rules_transformers_knows() -> frozenset[str]:
    try:
        from transformers.integrations.gguf.gguf_tokenizer_mapping import (  # noqa: PLC0415 - only in newer versions
            GGUF_PRE_TOKENIZER_SPLITS,
        )
    except ImportError:
        return frozenset()
    return frozenset(GGUF_PRE_TOKENIZER_SPLITS)
