"""A .gguf file becomes a Transformers folder with the same numbers, once, whole or not at all."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize
from gguf.quants import quantize
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from lengthwise import models
from lengthwise.backends import convert
from lengthwise.backends.load import load_model, load_tokenizer
from lengthwise.errors import ModelError
from tests.tiny_gguf import CONTROL, TOKENS, write_gguf

SHAPE: dict[str, Any] = {
    "vocab_size": 288,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
IDS = torch.tensor([[1, 40, 259, 7, 7, 200, 2, 13, 280, 99]])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model cache for each test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LENGTHWISE_CACHE", str(folder))
    return folder


def tiny(kind: str = "llama", *, tied: bool = True, **more: Any) -> Any:
    torch.manual_seed(7)
    theta = {"rope_type": "default", "rope_theta": 10000.0}
    settings = {**SHAPE, "tie_word_embeddings": tied, "rope_parameters": theta, **more}
    model: Any = (
        LlamaForCausalLM(LlamaConfig(**settings))
        if kind == "llama"
        else Qwen2ForCausalLM(Qwen2Config(**settings))
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval().requires_grad_(False)


def converted(gguf: Path) -> Path:
    return convert.loadable_folder(models.resolve(str(gguf)))


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(IDS).logits


def load(folder: Path) -> Any:
    return load_model(folder, device="cpu", dtype="float32", threads=1)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_the_model_that_was_written(kind: str, tied: bool, tmp_path: Path) -> None:
    """Writing a model as GGUF and converting it back gives its logits bit for bit, tied head or not."""
    model = tiny(kind, tied=tied)
    loaded = load(converted(write_gguf(tmp_path / "m.gguf", model)))
    assert torch.equal(logits(loaded.model), logits(model))
    assert loaded.model.config.tie_word_embeddings is tied
    assert loaded.context_limit == 256
    assert loaded.architecture == type(model).__name__


def test_logits_are_those_of_transformers_own_loading(tmp_path: Path) -> None:
    """The converted folder and Transformers' direct loading of a quantised file agree bit for bit."""
    pytest.importorskip("accelerate", reason="Transformers needs accelerate to load a GGUF file directly")
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    gguf = write_gguf(tmp_path / "m.gguf", tiny("llama"), quantized=True)
    direct = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=gguf.name, dtype=torch.float32)
    assert torch.equal(logits(load(converted(gguf)).model), logits(direct))


def test_quantised_blocks_keep_exactly_the_values_they_stand_for(tmp_path: Path) -> None:
    """A quantised tensor becomes the float32 values of its blocks, also when unpacked in pieces."""
    model = tiny("qwen2", tied=False)
    folder = converted(write_gguf(tmp_path / "m.gguf", model, quantized=True))
    kind = GGMLQuantizationType.Q8_0
    expected = dequantize(quantize(model.lm_head.weight.numpy(), kind), kind)
    assert np.array_equal(load_file(folder / "model.safetensors")["lm_head.weight"].numpy(), expected)


def test_pieces_and_shards_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacking row by row into many weight files gives the same model as all at once."""
    model = tiny("llama")
    gguf = write_gguf(tmp_path / "m.gguf", model, quantized=True)
    whole = logits(load(converted(gguf)).model)
    monkeypatch.setattr(convert, "BLOCK_BYTES", 4 * 64 * 3)
    monkeypatch.setattr(convert, "SHARD_BYTES", 20_000)
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "other"))
    folder = converted(gguf)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 3
    assert torch.equal(logits(load(folder).model), whole)


def test_second_use_does_not_convert_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing conversion is taken as it is; nothing of the file is read again but its digest."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny())
    first = converted(gguf)
    monkeypatch.setattr(convert, "write_folder", lambda *_: pytest.fail("converted twice"))
    assert converted(gguf) == first


def test_another_file_of_the_same_name_gets_its_own_folder(tmp_path: Path) -> None:
    """Conversions are kept by content, so replacing a file never gives the old model."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny("llama"))
    first = converted(gguf)
    write_gguf(gguf, tiny("qwen2"))
    assert converted(gguf) != first


def test_two_at_once_convert_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users of one file wait for each other and load the same folder."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny())
    calls, original = [], convert.write_folder

    def counted(*arguments: Any) -> None:
        calls.append(arguments)
        original(*arguments)

    monkeypatch.setattr(convert, "write_folder", counted)
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(converted(gguf))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(folders) == 2
    assert folders[0] == folders[1]


def test_failure_leaves_nothing_behind(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that breaks in the middle leaves no folder, and the next attempt is clean."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny())
    with monkeypatch.context() as broken:
        broken.setattr(convert, "_name_shards", lambda *_: (_ for _ in ()).throw(KeyError("broken")))
        with pytest.raises(ModelError, match="cannot be converted: KeyError"):
            converted(gguf)
    assert [entry.suffix for entry in (cache / "converted").iterdir()] == [".lock"]
    assert (converted(gguf) / "config.json").is_file()


def test_leftovers_of_a_killed_run_are_no_obstacle(tmp_path: Path) -> None:
    """Half a conversion, left by a process that was killed, is thrown away."""
    source = models.resolve(str(write_gguf(tmp_path / "m.gguf", tiny())))
    target = models.converted_folder(source)
    left = target.with_name(f".unfinished-{target.name}")
    left.mkdir(parents=True)
    (left / "junk").write_text("half")
    folder = convert.loadable_folder(source)
    assert not left.exists()
    assert not (folder / "junk").exists()


def test_full_disk_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there is too little room the error says how much is needed and how to use another disk."""

    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    gguf = write_gguf(tmp_path / "m.gguf", tiny())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 9, 1))
    with pytest.raises(ModelError, match=r"converting needs .* LENGTHWISE_CACHE"):
        converted(gguf)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device"), "No space left on device.*LENGTHWISE_CACHE"),
        (OSError("no such tokenizer"), "cannot be converted: OSError: no such tokenizer"),
    ],
)
def test_trouble_of_the_disk_and_of_transformers(
    error: OSError, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk says and what Transformers raises under the same name are told apart."""

    def fails(*_: Any) -> None:
        raise error

    gguf = write_gguf(tmp_path / "m.gguf", tiny())
    monkeypatch.setattr(convert, "write_folder", fails)
    with pytest.raises(ModelError, match=says):
        converted(gguf)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    """A file without one of the model's weights is refused by the weight's name."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny(), leave_out="blk.1.ffn_up")
    with pytest.raises(ModelError, match=r"no weights for model\.layers\.1\.mlp\.up_proj\.weight"):
        converted(gguf)


def test_tensor_without_a_place_is_named(tmp_path: Path) -> None:
    """A weight the converted model would leave out is an error, not a silent loss."""
    gguf = write_gguf(
        tmp_path / "m.gguf", tiny(), extra_tensors={"blk.0.attn_sinks.weight": np.ones(4, np.float32)}
    )
    with pytest.raises(ModelError, match=r"blk\.0\.attn_sinks\.weight"):
        converted(gguf)


def test_position_scaling_that_would_be_lost_is_refused(tmp_path: Path) -> None:
    """YaRN in the metadata, which Transformers' reading drops, is an error that names it."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny("qwen2"), extra_strings={"qwen2.rope.scaling.type": "yarn"})
    with pytest.raises(ModelError, match="position scaling of type 'yarn'"):
        converted(gguf)


def test_llama3_position_factors_are_kept(tmp_path: Path) -> None:
    """Llama 3's factors for each frequency become rope settings that give the original's logits."""
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = tiny("llama", rope_parameters=scaling)
    plain = 1 / 500000.0 ** (np.arange(0, 16, 2) / 16)
    factors = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert factors.max() > 2  # otherwise this shows nothing
    gguf = write_gguf(tmp_path / "m.gguf", model, extra_tensors={"rope_freqs.weight": factors})
    loaded = load(converted(gguf))
    assert loaded.model.config.rope_parameters["factor"] == pytest.approx(32.0)
    assert torch.allclose(logits(loaded.model), logits(model), atol=1e-5)


def test_other_position_factors_are_refused(tmp_path: Path) -> None:
    """Factors that are not Llama 3's formula cannot be carried over and are an error."""
    factors = np.linspace(1, 9, 8, dtype=np.float32)
    gguf = write_gguf(tmp_path / "m.gguf", tiny(), extra_tensors={"rope_freqs.weight": factors})
    with pytest.raises(ModelError, match="rope_freqs"):
        converted(gguf)


def test_cut_off_file_is_one_sentence(tmp_path: Path) -> None:
    """A download that stopped half-way is a ModelError, whatever the reader raises."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny())
    gguf.write_bytes(gguf.read_bytes()[:-5000])
    with pytest.raises(ModelError, match="cannot be converted"):
        converted(gguf)


@pytest.mark.parametrize("rules", ["qwen2", "smollm", "gpt-2"])
def test_tokenizer_speaks_chat(rules: str, tmp_path: Path) -> None:
    """Control tokens are single ids, nothing is added to a text, and the chat template is there."""
    tokenizer = load_tokenizer(converted(write_gguf(tmp_path / "m.gguf", tiny("qwen2"), rules=rules)))
    assert [tokenizer.encode(token) for token in CONTROL] == [[0], [1], [2]]
    assert (tokenizer.eos_token, tokenizer.bos_token) == ("<|im_end|>", "<|endoftext|>")
    assert tokenizer.encode("hello") == [TOKENS.index("hello")]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    messy = "  hello\n\n12 <b>é</b> 账单 🙂 hello  \t{x}"
    assert tokenizer.decode(tokenizer.encode(messy)) == messy


def test_smollm_cuts_digits_first(tmp_path: Path) -> None:
    """Blanks in front of a number stay together, as in training: digits are cut off before anything else."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny(), rules="smollm")
    tokens = load_tokenizer(converted(gguf)).tokenize("  12\n\n3")
    assert tokens == ["ĠĠ", "1", "2", "ĊĊ", "3"]


def test_qwen_composes_characters(tmp_path: Path) -> None:
    """A letter and its accent written as two characters give the ids of the one they form."""
    tokenizer = load_tokenizer(converted(write_gguf(tmp_path / "m.gguf", tiny("qwen2"), rules="qwen2")))
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")


def test_unknown_tokenizer_rules_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rules nobody here knows may cut texts differently, so the log says it."""
    gguf = write_gguf(tmp_path / "m.gguf", tiny(), rules="klingon")
    with caplog.at_level(logging.WARNING, logger="lengthwise"):
        converted(gguf)
    assert "'klingon'" in caplog.text


def test_nothing_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither bars nor advice of Transformers reach the user."""
    load(converted(write_gguf(tmp_path / "m.gguf", tiny())))
    assert capsys.readouterr() == ("", "")


@pytest.mark.model
def test_built_in_model_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real built-in model: known sizes, a tied head, chat tokens, and the capital of France."""
    monkeypatch.delenv("LENGTHWISE_CACHE")
    try:
        source = models.resolve("smollm2-135m", allow_download=False)
    except ModelError as error:
        pytest.skip(str(error))
    loaded = load(convert.loadable_folder(source))
    assert (loaded.parameters, loaded.context_limit, loaded.vocab_size) == (134_515_008, 8192, 49152)
    assert loaded.model.config.tie_word_embeddings is True
    prompt = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        tokenize=False,
        add_generation_prompt=True,
    )
    ids = loaded.tokenizer(prompt + "The capital of France is", return_tensors="pt")["input_ids"]
    assert ids[0, 0] == loaded.tokenizer.convert_tokens_to_ids("<|im_start|>")
    with torch.inference_mode():
        best = loaded.model(ids).logits[0, -1].argmax()
    assert loaded.tokenizer.decode(best) == " Paris"
