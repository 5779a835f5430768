"""The task: what is asked of a row, and the TOML file it comes from."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.errors import TaskError, suggestion

DEFAULT_TEMPLATE = "Ticket: {text}\nCategory:"
MAX_LABELS = 255
CHOICES = {
    "normalize": ("sum", "mean"),
    "calibrate": ("none", "prior"),
    "style": ("auto", "text", "code"),
    "scoring": ("auto", "first-token", "sequence"),
}
TASK_KEYS: dict[str, type] = {
    "name": str,
    "instructions": str,
    "template": str,
    "labels": list,
    "examples": list,
    **dict.fromkeys(CHOICES, str),
}
LABEL_KEYS: dict[str, type] = {"value": str, "text": str, "description": str}
EXAMPLE_KEYS: dict[str, type] = {"text": str, "columns": dict, "label": str}
TYPE_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    tuple: "a list",
    dict: "a table",
    type(None): "missing",
}

Template = tuple[tuple[str, str | None], ...]
"""Pieces of a template in order: literal text, then the placeholder behind it (None: none)."""


@dataclass(frozen=True, slots=True)
class Label:
    """A possible answer: ``value`` goes to the output, ``text`` is scored, ``description`` is explained."""

    value: str
    text: str
    description: str | None = None

    def __post_init__(self) -> None:
        for name in ("value", "text"):
            _check_type(f"a label's {name}", getattr(self, name), str)
        if self.description is not None:
            _check_type(f"the description of label {self.value!r}", self.description, str)
        if not self.value.strip():
            raise TaskError("a label is empty; give every label a value that is more than blanks.")
        if not self.text.strip():
            raise TaskError(f"the text of label {self.value!r} is empty; leave it out to take the value.")


@dataclass(frozen=True, slots=True)
class Example:
    """A solved row for the prompt: what its placeholders hold, and the value of its label."""

    text: str | None = None
    label: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked of every row; checked when made, TaskError says what is wrong.

    labels        2 to 255 labels; from_labels makes them from plain strings
    instructions  the system message; None: default_instructions; "": none at all
    template      the user message; {text} and {column name} are filled from the row, {{ and }} are braces
    examples      solved rows shown before the row
    normalize     sum of a label's token log-probabilities, or their mean
    calibrate     prior: subtract each label's score on texts that say nothing
    style         score the labels' text or a short code for each; auto: text for few and short labels
    scoring       first-token, the whole sequence, or auto: first-token when that tells the labels apart
    """

    labels: tuple[Label, ...]
    instructions: str | None = None
    template: str = DEFAULT_TEMPLATE
    examples: tuple[Example, ...] = ()
    normalize: str = "sum"
    calibrate: str = "none"
    style: str = "auto"
    scoring: str = "auto"
    name: str = "task"

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "examples", tuple(self.examples))
        for key in ("template", "name"):
            _check_type(key, getattr(self, key), str)
        if self.instructions is not None:
            _check_type("instructions", self.instructions, str)
        for key, allowed in CHOICES.items():
            _check_choice(key, getattr(self, key), allowed)
        _check_labels(self.labels)
        _check_template(self.template)
        for number, example in enumerate(self.examples, 1):
            _check_example(number, example, self)

    @classmethod
    def from_labels(cls, labels: str | Iterable[str | Label], **settings: Any) -> Task:
        """A task from label values alone, as a sequence or as one comma-separated string.

        The string honours CSV quoting, so that '"Loans, leases",Cards' are two labels. ``settings`` are
        the task's other fields.
        """
        known = [key for key in TASK_KEYS if key != "labels"]
        for key in settings:
            if key not in known:
                raise TaskError(f"a task has no setting {key!r}{suggestion(key, known) or '.'}")
        values = split_labels(labels) if isinstance(labels, str) else labels
        return cls(labels=tuple(_label_from(value) for value in values), **settings)

    @property
    def columns(self) -> tuple[str, ...]:
        """The placeholders other than ``text``, in the order of their first use."""
        names = [name for _, name in parse_template(self.template) if name not in (None, "text")]
        return tuple(str(name) for name in dict.fromkeys(names))

    @property
    def uses_text(self) -> bool:
        """Whether the template has a {text} placeholder."""
        return any(name == "text" for _, name in parse_template(self.template))

    @property
    def label_texts(self) -> tuple[str, ...]:
        return tuple(label.text for label in self.labels)

    @property
    def default_instructions(self) -> str:
        """What the instructions are when the task gives none.

        Labels that contain commas themselves are separated by semicolons.
        """
        separator = "; " if any("," in text for text in self.label_texts) else ", "
        return (
            "You classify support tickets. Answer with exactly one of: "
            + separator.join(self.label_texts)
            + "."
        )

    def own_texts(self) -> dict[str, str]:
        """Every text of the task that gets into a prompt, by the place it has in the task."""
        texts = {"template": self.template, "instructions": self.instructions or ""}
        for label in self.labels:
            texts[f"the text of label {label.value!r}"] = label.text
            texts[f"the description of label {label.value!r}"] = label.description or ""
        for number, example in enumerate(self.examples, 1):
            texts[f"examples[{number}].text"] = example.text or ""
            texts |= {f"examples[{number}].columns.{name}": text for name, text in example.columns.items()}
        return texts

    def as_dict(self) -> dict[str, Any]:
        """The whole task as JSON can hold it, defaults filled in; equal tasks give equal dicts."""
        return {
            "name": self.name,
            "instructions": self.default_instructions if self.instructions is None else self.instructions,
            "template": self.template,
            "labels": [
                {"value": label.value, "text": label.text, "description": label.description}
                for label in self.labels
            ],
            "examples": [
                {"text": example.text, "columns": dict(example.columns), "label": example.label}
                for example in self.examples
            ],
            **{key: getattr(self, key) for key in CHOICES},
        }


def load_task(path: str | Path) -> Task:
    """The task in a TOML file; every fault is a TaskError that names the file and, where known, the place."""
    path = Path(path)
    table = _read_toml(path)
    try:
        return _task_from(table)
    except TaskError as error:
        raise TaskError(f"{path}: {error}") from None


def parse_template(template: str) -> Template:
    """The template's literal pieces and placeholders; TaskError for a brace that is neither."""
    parts: list[tuple[str, str | None]] = []
    literal, end = "", 0
    for match in re.finditer(r"\{\{|\}\}|\{([^{}]*)\}|[{}]", template):
        literal += template[end : match.start()]
        end = match.end()
        if match[0] in ("{{", "}}"):
            literal += match[0][0]
        elif match[1]:
            parts.append((literal, match[1]))
            literal = ""
        else:
            raise TaskError(
                f"the template has {match[0]!r} at character {match.start() + 1}; a placeholder is {{text}} "
                "or a column's name in braces, and a brace that is meant as such is doubled."
            )
    literal += template[end:]
    return (*parts, (literal, None)) if literal else tuple(parts)


def split_labels(text: str) -> list[str]:
    """Label values from a comma-separated string with CSV quoting, blanks around them taken off."""
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise TaskError(f"the labels {text!r} are not a comma-separated list ({error}).") from None
    return [value.strip() for row in rows for value in row]


def _label_from(value: object) -> Label:
    if isinstance(value, Label):
        return value
    _check_type("a label", value, str)
    return Label(str(value), str(value))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise TaskError(f"there is no task file {path}; check the path.") from None
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{path} is not UTF-8 (byte {error.start + 1}); save the task file as UTF-8."
        ) from None
    except OSError as error:
        raise TaskError(f"the task file {path} cannot be read ({error.strerror}).") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = re.sub(r" \(at .*\)$", "", str(error))
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else len(text.splitlines())
        raise TaskError(f"{path}, line {line}: this is not TOML: {message}.") from None


def _task_from(table: Mapping[str, Any]) -> Task:
    _check_table("", table, TASK_KEYS)
    if "labels" not in table:
        raise TaskError('there are no labels; add labels = ["one", "another"].')
    settings = {key: value for key, value in table.items() if key not in ("labels", "examples")}
    labels = [_label_in_file(i, entry) for i, entry in enumerate(table["labels"], 1)]
    examples = [_example_in_file(i, entry) for i, entry in enumerate(table.get("examples", []), 1)]
    return Task(labels=tuple(labels), examples=tuple(examples), **settings)


def _label_in_file(number: int, entry: object) -> Label:
    if isinstance(entry, str):
        return Label(entry, entry)
    where = f"labels[{number}]"
    if not isinstance(entry, dict):
        raise TaskError(f"{where} is {_type_name(entry)}; it must be a string or a table with a value.")
    _check_table(where, entry, LABEL_KEYS)
    if "value" not in entry:
        raise TaskError(f'{where} has no value; add value = "...".')
    value: str = entry["value"]
    return Label(value, entry.get("text", value), entry.get("description"))


def _example_in_file(number: int, entry: object) -> Example:
    where = f"examples[{number}]"
    if not isinstance(entry, dict):
        raise TaskError(f"{where} is {_type_name(entry)}; it must be a table with a text and a label.")
    _check_table(where, entry, EXAMPLE_KEYS)
    return Example(**entry)


def _check_table(where: str, table: Mapping[str, Any], known: Mapping[str, type]) -> None:
    """Known keys with values of the right type, or a TaskError that names the key."""
    for key, value in table.items():
        place = f"{where}.{key}" if where else key
        if key not in known:
            mend = suggestion(key, known) or f"; known keys are {', '.join(known)}."
            if where and key in TASK_KEYS:
                mend = f"; {key} belongs to the task: move it above the first [[...]] table."
            raise TaskError(f"unknown key {place}{mend}")
        _check_type(place, value, known[key])


def _check_type(what: str, value: object, expected: type) -> None:
    if not isinstance(value, expected):
        raise TaskError(f"{what} is {_type_name(value)}; it must be {TYPE_NAMES[expected]}.")


def _type_name(value: object) -> str:
    return TYPE_NAMES.get(type(value), f"a {type(value).__name__}")


def _check_choice(key: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise TaskError(f"{key} is {value!r}; it must be one of {', '.join(allowed)}.")


def _check_labels(labels: Sequence[Label]) -> None:
    for label in labels:
        if not isinstance(label, Label):
            raise TaskError(f"a label is {_type_name(label)}; make the task with Task.from_labels.")
    if not labels:
        raise TaskError("there are no labels; a choice needs at least two.")
    if len(labels) == 1:
        raise TaskError(f"there is only one label, {labels[0].value!r}; a choice needs at least two.")
    if len(labels) > MAX_LABELS:
        raise TaskError(f"there are {len(labels)} labels; at most {MAX_LABELS} can be told apart.")
    for name in ("value", "text"):
        seen: dict[str, Label] = {}
        for label in labels:
            text = getattr(label, name)
            if text in seen:
                raise TaskError(
                    f"two labels have the same {name} {text!r}: the values are {seen[text].value!r} and "
                    f"{label.value!r}; leave one out."
                )
            seen[text] = label


def _check_template(template: str) -> None:
    names = [name for _, name in parse_template(template) if name is not None]
    if not names:
        raise TaskError("the template has no placeholder, so every row would be the same; add {text}.")
    if names.count("text") > 1:
        raise TaskError("the template uses {text} more than once; use it once.")


def _check_example(number: int, example: Example, task: Task) -> None:
    where = f"examples[{number}]"
    if not isinstance(example, Example):
        raise TaskError(f"{where} is {_type_name(example)}; it must be an Example.")
    values = [label.value for label in task.labels]
    if not example.label:
        raise TaskError(f"{where} has no label.")
    if example.label not in values:
        raise TaskError(
            f"{where} has the label {example.label!r}, which is not among the labels"
            f"{suggestion(example.label, values) or '.'}"
        )
    if task.uses_text and example.text is None:
        raise TaskError(f"{where} has no text, which the template needs.")
    if example.text is not None:
        _check_type(f"{where}.text", example.text, str)
    for name in task.columns:
        if name not in example.columns:
            raise TaskError(f"{where} has no columns.{name}, which the template needs.")
    for name, value in example.columns.items():
        _check_type(f"{where}.columns.{name}", value, str)
        if name not in task.columns:
            raise TaskError(
                f"{where}.columns.{name} is not in the template{suggestion(name, task.columns) or '.'}"
            )
