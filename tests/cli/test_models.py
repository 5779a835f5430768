"""``lengthwise models``: stdout carries data, errors are ours, and pull makes a model ready."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lengthwise import models
from lengthwise.cli import models as command
from lengthwise.errors import ModelError

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model cache and an empty hub cache for each test."""
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a model."""
    path = tmp_path / "my [bold]model"
    path.mkdir()
    for name in ("config.json", "model.safetensors"):
        (path / name).write_text("{}")
    return path


def test_list_in_a_pipe_is_tab_separated() -> None:
    """Each model is one line with five fields, so that cut and awk can read it."""
    result = RUNNER.invoke(command.app, ["list"])
    assert result.exit_code == 0
    assert result.stdout == "smollm2-135m\tbuilt-in\t-\tnot fetched\t-\n"


def test_list_on_a_terminal_is_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal there are headings, and brackets in a path stay what they are."""
    record = models.ModelRecord(str(folder), "gguf", folder, 98_362_432, True)
    command._print_table([record])
    shown = capsys.readouterr().out
    assert shown.split()[:5] == list(command.HEADINGS)
    assert "98 MB" in shown
    assert "[bold]" in shown.replace("\n", "")


@pytest.mark.parametrize(
    ("path", "converted", "state"),
    [(None, False, "not fetched"), (Path("x"), False, "not converted"), (Path("x"), True, "ready")],
)
def test_states(path: Path | None, converted: bool, state: str) -> None:
    """A model is not fetched, not converted, or ready."""
    assert command._state(models.ModelRecord("n", "built-in", path, 1, converted)) == state
    assert command._state(models.ModelRecord("n", "hub", Path("x"), 1, None)) == "ready"


def test_path_prints_the_folder_alone(folder: Path) -> None:
    """stdout is the folder and nothing else, ready for $(...)."""
    result = RUNNER.invoke(command.app, ["path", str(folder)])
    assert (result.exit_code, result.stdout) == (0, f"{folder}\n")


def test_path_of_what_is_not_here() -> None:
    """An absent model is our error, which names the command that fetches it."""
    result = RUNNER.invoke(command.app, ["path", "smollm2-135m"])
    assert isinstance(result.exception, ModelError)
    assert "lengthwise models pull smollm2-135m" in str(result.exception)
    assert result.stdout == ""


def test_pull_of_a_folder_prints_it(folder: Path) -> None:
    """A folder needs no fetching and no converting."""
    result = RUNNER.invoke(command.app, ["pull", str(folder)])
    assert (result.exit_code, result.stdout) == (0, f"{folder}\n")


def test_pull_of_a_gguf_file_converts_it(tmp_path: Path, cache: Path) -> None:
    """After pull the model is ready: path gives the same folder and list shows it."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - torch only where it is needed

    from tests.tiny_gguf import write_gguf  # noqa: PLC0415

    shape = {"vocab_size": 288, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    config = LlamaConfig(**shape, num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True)
    gguf = write_gguf(tmp_path / "m.gguf", LlamaForCausalLM(config))
    pulled = RUNNER.invoke(command.app, ["pull", str(gguf)])
    assert pulled.exit_code == 0, pulled.exception
    folder = Path(pulled.stdout.strip())
    assert folder.parent == cache / "converted"
    assert (folder / "model.safetensors").is_file()
    assert RUNNER.invoke(command.app, ["path", str(gguf)]).stdout == pulled.stdout
    listed = RUNNER.invoke(command.app, ["list"]).stdout.splitlines()
    assert [line.split("\t")[1:4:2] for line in listed] == [["built-in", "not fetched"], ["gguf", "ready"]]


def test_pull_of_an_unknown_name() -> None:
    """A near miss is our error with a suggestion."""
    result = RUNNER.invoke(command.app, ["pull", "smolm2-135m"])
    assert isinstance(result.exception, ModelError)
    assert "did you mean 'smollm2-135m'?" in str(result.exception)
