"""Loading refuses whatever would give confident nonsense, and says what the model is."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlamaConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from lengthwise.backends import load
from lengthwise.errors import ModelError, OptionError
from tests.tiny_models import BUILDERS, tiny_model
from tests.tiny_tokenizers import byte_level

SHAPE: dict[str, Any] = {
    "vocab_size": 420,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
}


def save(model: Any, folder: Path, *, tokenizer: bool = True) -> Path:
    model.save_pretrained(folder)
    if tokenizer:
        byte_level().save_pretrained(folder)
    return folder


def qwen(folder: Path, *, tied: bool, **more: Any) -> Path:
    return save(Qwen2ForCausalLM(Qwen2Config(**{**SHAPE, **more}, tie_word_embeddings=tied)), folder)


def edit_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_weights(folder: Path, change: Any) -> None:
    file = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def loaded(folder: Path, dtype: str = "float32") -> load.LoadedModel:
    return load.load_model(folder, device="cpu", dtype=dtype, threads=1)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_every_promised_architecture_loads_as_it_was_saved(name: str, tmp_path: Path) -> None:
    """Weights come back bit for bit, in eval mode, without gradients and with the default attention."""
    model = tiny_model(name)
    result = loaded(save(model, tmp_path))
    assert result.architecture == type(model).__name__
    assert result.context_limit == 512
    assert result.vocab_size == model.config.vocab_size
    assert not result.model.training
    assert not any(parameter.requires_grad for parameter in result.model.parameters())
    assert result.model.config._attn_implementation in {"sdpa", "eager"}
    expected = model.state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in result.model.state_dict().items())


def test_parameters_are_counted_once(tmp_path: Path) -> None:
    """A tied head adds nothing; what a token costs leaves out embedding and head, tied or not."""
    tied, untied = loaded(qwen(tmp_path / "a", tied=True)), loaded(qwen(tmp_path / "b", tied=False))
    embedding = 420 * 32
    assert untied.parameters - tied.parameters == embedding
    assert tied.parameters - tied.non_embedding_parameters == embedding
    assert tied.non_embedding_parameters == untied.non_embedding_parameters
    assert tied.parameters == sum(p.numel() for p in tied.model.parameters())


def test_tied_head_is_no_error(tmp_path: Path) -> None:
    """A checkpoint without lm_head.weight whose config ties the head is whole: head and embedding are one."""
    folder = qwen(tmp_path, tied=True)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    model = loaded(folder).model
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_head_that_would_stay_random_is_an_error(tmp_path: Path) -> None:
    """The same checkpoint with tie_word_embeddings false would answer at random, so it is refused by name."""
    folder = qwen(tmp_path, tied=True)
    edit_config(folder, tie_word_embeddings=False)
    with pytest.raises(ModelError, match=r"lacks lm_head\.weight.*tie_word_embeddings"):
        loaded(folder)


@pytest.mark.parametrize("nested_only", [False, True])
def test_head_tied_in_a_nested_config(nested_only: bool, tmp_path: Path) -> None:
    """With a nested text config that ties the head, wherever it is said, head and embedding are one."""
    text = {**SHAPE, "head_dim": 16, "tie_word_embeddings": True}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 14}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    folder = save(Gemma3ForConditionalGeneration(config), tmp_path)
    raw = json.loads((folder / "config.json").read_text())
    if nested_only:
        raw.pop("tie_word_embeddings", None)
    raw["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(raw))
    assert not any("lm_head" in name for name in load_file(folder / "model.safetensors"))
    result = loaded(folder)
    assert torch.equal(
        result.model.get_output_embeddings().weight, result.model.get_input_embeddings().weight
    )
    assert result.context_limit == 128


def test_own_head_beside_a_tied_config_is_kept(tmp_path: Path) -> None:
    """A checkpoint that brings its own head keeps it, even when the config claims that it is tied."""
    folder = qwen(tmp_path, tied=False)
    head = load_file(folder / "model.safetensors")["lm_head.weight"]
    edit_config(folder, tie_word_embeddings=True)
    assert torch.equal(loaded(folder).model.lm_head.weight, head)


def test_missing_weight_is_named(tmp_path: Path) -> None:
    """A weight the checkpoint lacks would stay random, so it is an error that names it."""
    folder = qwen(tmp_path, tied=True)
    edit_weights(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        loaded(folder)


def test_wrong_shape_is_named(tmp_path: Path) -> None:
    """A weight of another shape than the config says is an error with both shapes."""
    folder = qwen(tmp_path, tied=True)
    edit_config(folder, intermediate_size=64)
    with pytest.raises(ModelError, match=r"\(32, 48\), needed \(32, 64\)"):
        loaded(folder)


def test_unused_weight_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a checkpoint has too much is a line in the log, not an error."""
    folder = qwen(tmp_path, tied=True)
    edit_weights(folder, lambda tensors: tensors.update({"adapter.weight": torch.ones(2, 2)}))
    with caplog.at_level(logging.INFO, logger="lengthwise"):
        loaded(folder)
    assert "adapter.weight" in caplog.text


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_models_that_are_no_decoders_are_refused(kind: str, tmp_path: Path) -> None:
    """BERT and T5 do not predict the next token; the error says what is needed."""
    if kind == "bert":
        small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        model: Any = BertForMaskedLM(BertConfig(vocab_size=420, **small))
    else:
        model = T5ForConditionalGeneration(
            T5Config(vocab_size=420, d_model=32, d_ff=32, num_layers=1, num_heads=2)
        )
    with pytest.raises(ModelError, match=f"type '{kind}'.*decoder language model is needed"):
        loaded(save(model, tmp_path))


def test_code_of_a_model_is_never_run(tmp_path: Path) -> None:
    """A model that needs its own Python code is refused without running or asking anything."""
    folder = qwen(tmp_path, tied=True)
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\nfrom transformers import PretrainedConfig as C\n"
    (folder / "configuration_own.py").write_text(code)
    edit_config(folder, model_type="own-model", auto_map={"AutoConfig": "configuration_own.C"})
    with pytest.raises(ModelError, match="never runs such code"):
        loaded(folder)
    assert not ran.exists()


def test_unknown_model_type_is_one_sentence(tmp_path: Path) -> None:
    """A type Transformers has never heard of is a ModelError that names it."""
    folder = qwen(tmp_path, tied=True)
    edit_config(folder, model_type="from-the-future")
    with pytest.raises(ModelError, match=r"'from-the-future'.*newer transformers"):
        loaded(folder)


@pytest.mark.parametrize("text", ["{broken", "[1, 2]", "\x00"])
def test_broken_config_is_one_sentence(text: str, tmp_path: Path) -> None:
    """Whatever stands in config.json, the user gets a ModelError."""
    folder = qwen(tmp_path, tied=True)
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json"):
        loaded(folder)


def test_missing_tokenizer_is_an_error(tmp_path: Path) -> None:
    """Without tokenizer files Transformers may make an empty tokenizer; here it is an error."""
    model = Qwen2ForCausalLM(Qwen2Config(**SHAPE))
    with pytest.raises(ModelError, match="has no tokenizer"):
        loaded(save(model, tmp_path, tokenizer=False))


def test_broken_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    """A tokenizer.json that is no tokenizer is a ModelError."""
    folder = qwen(tmp_path, tied=True)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer in .* cannot be loaded"):
        loaded(folder)


def test_cut_off_weights_are_one_sentence(tmp_path: Path) -> None:
    """A weight file that stops half-way is a ModelError, not a traceback."""
    folder = qwen(tmp_path, tied=True)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"weights in .* cannot be loaded"):
        loaded(folder)


def test_number_format_is_the_one_asked_for(tmp_path: Path) -> None:
    """bfloat16 weights are loaded as bfloat16 or widened exactly to float32, as asked."""
    folder = tmp_path / "m"
    model = Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True)).to(torch.bfloat16)
    save(model, folder)
    wide, narrow = loaded(folder), loaded(folder, "bfloat16")
    assert {p.dtype for p in wide.model.parameters()} == {torch.float32}
    assert {p.dtype for p in narrow.model.parameters()} == {torch.bfloat16}
    assert torch.equal(wide.model.lm_head.weight, narrow.model.lm_head.weight.float())


def test_given_tokenizer_is_used(tmp_path: Path) -> None:
    """A tokenizer that is loaded already is not loaded again."""
    tokenizer = byte_level()
    folder = save(Qwen2ForCausalLM(Qwen2Config(**SHAPE)), tmp_path, tokenizer=False)
    result = load.load_model(folder, device="cpu", dtype="float32", threads=1, tokenizer=tokenizer)
    assert result.tokenizer is tokenizer


def test_threads_are_set(tmp_path: Path) -> None:
    """The number of threads is what torch then uses."""
    before = torch.get_num_threads()
    folder = qwen(tmp_path, tied=True)
    try:
        load.load_model(folder, device="cpu", dtype="float32", threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("rope", "limit"),
    [
        (None, 1000),
        ({"rope_type": "linear", "factor": 4.0}, 1000),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}, 4000),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 250}, 1000),
        (
            {
                "rope_type": "llama3",
                "factor": 32.0,
                "original_max_position_embeddings": 500,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
            },
            1000,
        ),
    ],
)
def test_context_limit(rope: dict[str, Any] | None, limit: int) -> None:
    """The limit is max_position_embeddings, except where YaRN states the length before scaling."""
    parameters = {"rope_theta": 10000.0, **(rope or {"rope_type": "default"})}
    config = LlamaConfig(max_position_embeddings=1000, rope_parameters=parameters)
    assert load.context_limit(config) == limit


def test_context_limit_of_nested_and_limitless_configs() -> None:
    """A text part's limit counts; an architecture without positions has none."""
    from transformers import MambaConfig  # noqa: PLC0415

    assert load.context_limit(Gemma3Config(text_config={"max_position_embeddings": 77})) == 77
    assert load.context_limit(MambaConfig()) is None


def test_device_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    """auto prefers cuda, then mps, then cpu; one that is absent is an error that says what there is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert load.resolve_device("auto") == "cpu"
    with pytest.raises(OptionError, match=r"'cuda' is not available.*cpu"):
        load.resolve_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert load.resolve_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert load.resolve_device("auto") == "cuda"
    assert load.resolve_device("cpu") == "cpu"


def test_number_format_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    """auto is float32 except on a GPU with bfloat16 in hardware; a named format is kept."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert load.resolve_dtype("auto", "cpu") == "float32"
    assert load.resolve_dtype("auto", "mps") == "float32"
    assert load.resolve_dtype("auto", "cuda") == "float32"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    assert load.resolve_dtype("auto", "cuda") == "bfloat16"
    assert load.resolve_dtype("float16", "cpu") == "float16"


def test_quiet_is_given_back() -> None:
    """Transformers' own settings are as before, also after an error."""
    from transformers.utils import logging as chatter  # noqa: PLC0415

    def fails() -> None:
        with load.quiet_transformers():
            seen.append(chatter.is_progress_bar_enabled())
            raise RuntimeError("inside")

    seen: list[bool] = []
    before = chatter.get_verbosity(), chatter.is_progress_bar_enabled()
    with pytest.raises(RuntimeError, match="inside"):
        fails()
    assert seen == [False]
    assert (chatter.get_verbosity(), chatter.is_progress_bar_enabled()) == before


PEAK_OF_LOADING = """
import sys
from pathlib import Path
import transformers.models.qwen2.modeling_qwen2
from lengthwise import machine
from lengthwise.backends import load
folder = Path(sys.argv[1])
tokenizer = load.load_tokenizer(folder)
before = machine.peak_memory_bytes()
loaded = load.load_model(folder, device="cpu", dtype="float32", threads=1, tokenizer=tokenizer)
sum(float(parameter.sum()) for parameter in loaded.model.parameters())
print(machine.peak_memory_bytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_weights_are_never_in_memory_twice(tmp_path: Path) -> None:
    """Loading and touching 200 MB of weights takes their size and no second copy of them."""
    big = {**SHAPE, "vocab_size": 50_000, "hidden_size": 1024}
    with torch.device("meta"):
        model = Qwen2ForCausalLM(Qwen2Config(**big, tie_word_embeddings=True))
    tensors = {name: torch.ones(p.shape) for name, p in model.named_parameters() if name != "lm_head.weight"}
    model.config.save_pretrained(tmp_path)
    byte_level().save_pretrained(tmp_path)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    weights = (tmp_path / "model.safetensors").stat().st_size
    command = [sys.executable, "-c", PEAK_OF_LOADING, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    (tmp_path / "model.safetensors").unlink()
    assert weights > 200e6
    assert int(run.stdout) < 1.25 * weights
