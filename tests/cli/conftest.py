"""A command line without a model: the engine is real, its backend and reference are the fake ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from lengthwise import cli, prepare
from lengthwise.backends.base import Reference
from lengthwise.backends.fake import FakeBackend, FakeReference
from lengthwise.encode import Encoder
from lengthwise.engine import Engine, Prepared
from lengthwise.options import EngineOptions
from lengthwise.records import Bucket, FloatArray, LabelTrie, Pack, TokenIds
from lengthwise.task import Task
from tests.tiny_tokenizers import byte_level

NOTE = "a note of the engine"


@cache
def encoder() -> Encoder:
    return Encoder(byte_level())


@dataclass
class FakeModel:
    """Stands for ``prepare.load_engine``; tests set what goes wrong, and see what was asked for."""

    loaded: list[tuple[str, EngineOptions]] = field(default_factory=list)
    before_work: Callable[[int], None] = lambda number: None
    reference: Reference = field(default_factory=FakeReference)
    notes: tuple[str, ...] = ()
    length_limit: int | None = None

    def load_engine(self, task: Task, model: str, options: EngineOptions) -> Engine:
        self.loaded.append((model, options))
        options = options.resolve(device="cpu", dtype="float32", threads=2)
        frame, labels, _ = prepare.encode_task(task, encoder())
        prepared = Prepared(
            task=task,
            frame=frame,
            head=encoder().head(frame),
            labels=labels,
            length_limit=self.length_limit,
            alone_above=None,
            notes=self.notes,
        )
        backend = None if options.strategy == "sequential" else StoppableBackend(self)
        setup = {"model": model, "dtype": "float32", "device": "cpu", "threads": 2, "task": task.as_dict()}
        return Engine(prepared, encoder(), backend, self.reference, options, setup)


class StoppableBackend(FakeBackend):
    """Calls ``before_work`` with the number of the pack, so that a test can interrupt or break a run."""

    name = "packed"

    def __init__(self, model: FakeModel) -> None:
        super().__init__()
        self._model = model

    def run(self, work: Pack | Bucket, trie: LabelTrie) -> list[FloatArray]:
        self._model.before_work(self.forwards)
        return super().run(work, trie)


class ContraryReference(FakeReference):
    """Disagrees with the fake backend about every prompt, by far."""

    def score(self, prompt: TokenIds, labels: Sequence[TokenIds]) -> FloatArray:
        return -5.0 * super().score(prompt, labels)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    """The fake model, put in place of the real ones."""
    fake = FakeModel()
    monkeypatch.setattr(prepare, "load_engine", fake.load_engine)
    return fake


@dataclass(frozen=True)
class Result:
    """What a command did: exit code and what it said."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(model: FakeModel, capfdbinary: Any) -> Run:
    """Run a command line in this process: ``run("classify", path, ...)``."""

    def call(*arguments: object) -> Result:
        capfdbinary.readouterr()
        code = cli.run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Result(code, out.decode(), err.decode())

    return call
