"""The Python API, shaped like a scikit-learn classifier that needs no fit."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lengthwise import models
from lengthwise.errors import InputError, OptionError, suggestion
from lengthwise.options import EngineOptions
from lengthwise.records import FloatArray
from lengthwise.report import RunReport
from lengthwise.rows.memory import memory_source
from lengthwise.task import Label, Task, load_task

if TYPE_CHECKING:
    from lengthwise.engine import Engine

TEXT_COLUMN = ("text",)


@dataclass(frozen=True, slots=True)
class Classification:
    """The answers to a list of texts, in its order.

    ``labels`` holds None, and the numbers NaN, for a text without an answer; ``status`` says why.
    ``probabilities`` is (texts, labels) with columns as ``classes``.
    """

    labels: NDArray[np.object_]
    probabilities: FloatArray
    margins: FloatArray
    status: tuple[str, ...]
    classes: NDArray[np.object_]
    report: RunReport

    def __len__(self) -> int:
        return len(self.labels)


class Classifier:
    """Gives each text one of a few labels with a small language model.

    Parameters
    ----------
    labels: the labels, as strings or `Label` records, or as "a,b,c"; or
    task: a `Task`, or the path of a task file
    model: built-in name, hub id, folder or ``.gguf`` file
    **options: the fields of `EngineOptions`, such as ``strategy``, ``threads`` or ``verify``

    The model is loaded at the first call that needs it. ``predict`` raises VerificationError when the
    fast path and the reference disagree beyond numerics. Threads may share one: calls wait for each other.
    """

    def __init__(
        self,
        labels: str | Iterable[str | Label] | None = None,
        *,
        task: Task | str | Path | None = None,
        model: str = models.DEFAULT_MODEL,
        **options: Any,
    ) -> None:
        self._lock = threading.Lock()  # an engine answers one call at a time
        self._configure({"labels": labels, "task": task, "model": model, **options})

    def _configure(self, parameters: dict[str, Any]) -> None:
        labels, task = parameters["labels"], parameters["task"]
        if (labels is None) == (task is None):
            raise OptionError('give either labels=["a", "b"] or task="task.toml", not both or neither.')
        rest = {name: value for name, value in parameters.items() if name not in ("labels", "task", "model")}
        self._options = EngineOptions.from_mapping(rest)
        if isinstance(task, str | Path):
            task = load_task(task)
        elif labels is not None:
            if isinstance(labels, Iterator):
                labels = list(labels)  # it can be read only once; everything else is kept as it was given
            task = Task.from_labels(labels)
        self._parameters = {**parameters, "labels": labels}
        self._task: Task = task
        self._engine: Engine | None = None

    @property
    def classes_(self) -> NDArray[np.object_]:
        """The labels in the order of the probability columns."""
        return np.array([label.value for label in self._task.labels], dtype=object)

    @property
    def engine(self) -> Engine:
        """The engine; loads the model at first use."""
        if self._engine is None:
            from lengthwise.prepare import load_engine  # noqa: PLC0415 - loads torch

            self._engine = load_engine(self._task, self._parameters["model"], self._options)
        return self._engine

    def classify(self, texts: Iterable[object]) -> Classification:
        """Labels, probabilities, margins, status of every text, and the report of the run.

        ``texts`` may be a list, array, Series or generator; None and NaN are texts without an answer.
        """
        source = memory_source(texts)
        with self._lock:
            engine = self.engine
            engine.start()
            parts = [
                engine.answer(window, TEXT_COLUMN)
                for window in source.windows(engine.options.window, TEXT_COLUMN)
            ]
            report = engine.report()
        names = self.classes_
        label = np.concatenate([part.label for part in parts]) if parts else np.empty(0, np.int64)
        found = np.array([names[k] if k >= 0 else None for k in label], dtype=object)
        log_probs = [part.log_probs for part in parts]
        return Classification(
            labels=found,
            probabilities=np.exp(np.concatenate(log_probs)) if parts else np.empty((0, len(names))),
            margins=np.concatenate([part.margin for part in parts]) if parts else np.empty(0),
            status=tuple(status for part in parts for status in part.status),
            classes=names,
            report=report,
        )

    def predict(self, texts: Iterable[object]) -> list[str | None]:
        """The label of every text, in order; None where there is no answer (see `classify`)."""
        return list(self.classify(texts).labels)

    def predict_proba(self, texts: Iterable[object]) -> FloatArray:
        """Probabilities (texts, labels), columns as ``classes_``; NaN rows where there is no answer."""
        return self.classify(texts).probabilities

    def score(self, texts: Iterable[object], truth: Sequence[object]) -> float:
        """Accuracy against the true labels; a text without an answer counts as wrong."""
        predicted, wanted = self.predict(texts), list(truth)
        if len(predicted) != len(wanted):
            raise InputError(f"there are {len(predicted)} texts but {len(wanted)} true labels.")
        if not wanted:
            raise InputError("there is no text to score.")
        return sum(p == t for p, t in zip(predicted, wanted, strict=True)) / len(wanted)

    def fit(self, texts: object = None, labels: object = None) -> Classifier:  # noqa: ARG002 - scikit-learn's
        """Does nothing: there is nothing to train. For pipelines that call it."""
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's
        """The parameters this classifier was made with."""
        return dict(self._parameters)

    def set_params(self, **parameters: Any) -> Classifier:
        """Change parameters; the model is loaded anew at the next call."""
        known = [*self._parameters, *EngineOptions.__dataclass_fields__]
        for name in parameters:
            if name not in known:
                raise OptionError(f"there is no parameter {name!r}{suggestion(name, known)}.")
        self._configure({**self._parameters, **parameters})
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn (1.6 and newer) asks of an estimator; called by scikit-learn only."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags  # noqa: PLC0415 - an extra

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True, allow_nan=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        """For pickling (joblib, processes): the parameters; each process loads the model for itself."""
        return self._parameters

    def __setstate__(self, parameters: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._configure(parameters)

    def __repr__(self) -> str:
        given = {name: value for name, value in self._parameters.items() if value is not None}
        return f"Classifier({', '.join(f'{name}={value!r}' for name, value in given.items())})"
