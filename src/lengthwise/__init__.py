"""Label thousands of texts with a small language model, with proof that speed changed no answer.

    from lengthwise import Classifier
    clf = Classifier(labels=["billing", "technical", "account"], model="smollm2-135m")
    clf.predict(["My card was charged twice."])

Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

from lengthwise.errors import (
    InputError,
    Interrupted,
    LengthwiseError,
    ModelError,
    OptionError,
    OutputError,
    TaskError,
    VerificationError,
)
from lengthwise.version import __version__

_LAZY = {
    "Classification": "lengthwise.classifier",
    "Classifier": "lengthwise.classifier",
    "EngineOptions": "lengthwise.options",
    "Example": "lengthwise.task",
    "FakeBackend": "lengthwise.backends.fake",
    "FakeReference": "lengthwise.backends.fake",
    "Label": "lengthwise.task",
    "Task": "lengthwise.task",
    "load_task": "lengthwise.task",
}

__all__ = [  # noqa: PLE0604 - the lazy names are found by __getattr__
    "InputError",
    "Interrupted",
    "LengthwiseError",
    "ModelError",
    "OptionError",
    "OutputError",
    "TaskError",
    "VerificationError",
    "__version__",
    *_LAZY,
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'lengthwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
