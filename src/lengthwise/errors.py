"""Every error a user can cause, with the exit code the command line gives for it.

LengthwiseError           2   base class: one sentence with what, where, and the mend
├── OptionError           2   an engine option or a flag
├── TaskError             2   the task file or the labels
├── ModelError            2   the model cannot be found, fetched, loaded or used
├── InputError            3   the input file or a record in it
├── OutputError           3   the output cannot be written
├── VerificationError     4   the fast path and the reference disagree
└── Interrupted         130   stopped by the user
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LengthwiseError(Exception):
    """Base of all errors a user can cause; ``str(error)`` is one sentence for a person."""

    exit_code = 2


class OptionError(LengthwiseError):
    """An option has an unknown name or a value that cannot be used."""


class TaskError(LengthwiseError):
    """The task (instructions, labels, template, examples) is not usable as written."""


class ModelError(LengthwiseError):
    """The model cannot be found, fetched, loaded or used."""


class InputError(LengthwiseError):
    """The input cannot be read; names file, line and column where they are known."""

    exit_code = 3


class OutputError(LengthwiseError):
    """The output cannot be written."""

    exit_code = 3


class VerificationError(LengthwiseError):
    """A row's fast answer differs from the reference by more than numerics allow."""

    exit_code = 4


class Interrupted(LengthwiseError):
    """The user stopped the run."""

    exit_code = 130


def suggestion(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'labels'?"`` when a known name is close to ``name``, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
