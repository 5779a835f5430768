"""The task: labels, template, examples, and the TOML file with all its possible faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lengthwise.errors import TaskError
from lengthwise.task import Example, Label, Task, load_task, parse_template, split_labels

DEFAULT = "You classify support tickets. Answer with exactly one of: billing, technical, account."


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "task.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def fault(folder: Path, text: str | bytes) -> str:
    """The message that a task file with this content gives; it names the file."""
    path = write(folder, text)
    with pytest.raises(TaskError) as caught:
        load_task(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path)).lstrip(":, ")


def test_labels_alone_make_the_default_task() -> None:
    """--labels a,b,c gives the documented template and instructions, to the letter."""
    task = Task.from_labels("billing,technical,account")
    assert [label.value for label in task.labels] == ["billing", "technical", "account"]
    assert task.default_instructions == DEFAULT
    assert task.template == "Ticket: {text}\nCategory:"
    assert (task.normalize, task.calibrate, task.style, task.scoring) == ("sum", "none", "auto", "auto")
    assert task.uses_text
    assert task.columns == ()


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("a,b", ["a", "b"]),
        (" a , b ", ["a", "b"]),
        ('"Loans, leases",Cards', ["Loans, leases", "Cards"]),
        ('"say ""hi""", b', ['say "hi"', "b"]),
        ("账单,技术", ["账单", "技术"]),
        ("None,null,nan,NA", ["None", "null", "nan", "NA"]),
    ],
)
def test_a_string_of_labels_honours_csv_quoting(text: str, labels: list[str]) -> None:
    """Quoted labels may hold commas and quotes; blanks around labels go; words like None stay words."""
    assert split_labels(text) == labels
    assert [label.value for label in Task.from_labels(text).labels] == labels


def test_broken_quoting_is_a_task_error() -> None:
    """A quote that is never closed is not silently mended."""
    with pytest.raises(TaskError, match="comma-separated"):
        Task.from_labels('"a,b')


def test_labels_with_commas_are_listed_with_semicolons() -> None:
    """The default instructions stay unambiguous."""
    task = Task.from_labels(["Credit reporting, credit repair", "Mortgage"])
    assert task.default_instructions.endswith("one of: Credit reporting, credit repair; Mortgage.")


def test_labels_may_be_given_in_full() -> None:
    """Label objects and strings mix; the text is scored, the value is the answer."""
    task = Task.from_labels([Label("B", "billing", "money"), "technical"])
    assert task.label_texts == ("billing", "technical")
    assert task.labels[0].value == "B"


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([], "no labels"),
        ("", "no labels"),
        (["a"], "only one label, 'a'"),
        (["a", "b", "a"], "same value 'a'"),
        ([Label("a", "x"), Label("b", "x")], "same text 'x'"),
        (["a", ""], "is empty"),
        ("a,,b", "is empty"),
        (["a", " \t"], "is empty"),
        (["a", 5], "a label is a number; it must be a string"),
        ([str(i) for i in range(256)], "256 labels; at most 255"),
    ],
)
def test_unusable_labels_are_refused(labels: object, says: str) -> None:
    """Fewer than two, too many, empty or doubled labels, and labels that are no text."""
    with pytest.raises(TaskError, match=says):
        Task.from_labels(labels)  # type: ignore[arg-type]


def test_255_labels_are_allowed() -> None:
    """The most labels there may be."""
    assert len(Task.from_labels([str(i) for i in range(255)]).labels) == 255


def test_an_empty_label_text_is_refused() -> None:
    """A label must have something to score."""
    with pytest.raises(TaskError, match="text of label 'a' is empty"):
        Label("a", " ")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"normalise": "sum"}, "no setting 'normalise'; did you mean 'normalize'"),
        ({"normalize": "median"}, "normalize is 'median'; it must be one of sum, mean"),
        ({"scoring": "first"}, "first-token, sequence"),
        ({"template": 5}, "template is a number; it must be a string"),
        ({"instructions": ["a"]}, "instructions is a list; it must be a string"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, object], says: str) -> None:
    """Unknown names with a suggestion, values with what is allowed."""
    with pytest.raises(TaskError, match=says):
        Task.from_labels("a,b", **settings)


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("{text}", (("", "text"),)),
        ("a {text} b", (("a ", "text"), (" b", None))),
        ("{{text}} {x y}", (("{text} ", "x y"),)),
        ("{{{text}}}", (("{", "text"), ("}", None))),
        ("{Ticket: no!r}", (("", "Ticket: no!r"),)),
    ],
)
def test_a_template_is_cut_at_its_placeholders(
    template: str, parts: tuple[tuple[str, str | None], ...]
) -> None:
    """Doubled braces are braces; column names may hold anything but braces, without format magic."""
    assert parse_template(template) == parts


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("Ticket:", "no placeholder"),
        ("", "no placeholder"),
        ("{{text}}", "no placeholder"),
        ("{text", "'{' at character 1"),
        ("{text} }", "'}' at character 8"),
        ("{}", "'{}' at character 1"),
        ("{text} {text}", "more than once"),
    ],
)
def test_unusable_templates_are_refused(template: str, says: str) -> None:
    """No placeholder, single braces, an empty placeholder, the text twice."""
    with pytest.raises(TaskError, match=says):
        Task.from_labels("a,b", template=template)


def test_columns_are_the_placeholders_besides_text() -> None:
    """In the order of their first use, each once."""
    task = Task.from_labels("a,b", template="{subject}: {text} ({channel}, {subject})")
    assert task.columns == ("subject", "channel")


@pytest.mark.parametrize(
    ("example", "says"),
    [
        (Example("x", "c"), "label 'c', which is not among the labels"),
        (Example("x"), "has no label"),
        (Example(None, "a", {"subject": "s"}), "has no text"),
        (Example("x", "a"), "no columns.subject"),
        (
            Example("x", "a", {"subject": "s", "subjet": "s"}),
            "columns.subjet is not in the template; did you",
        ),
        (Example("x", "a", {"subject": 5}), "columns.subject is a number"),  # type: ignore[dict-item]
        (Example(5, "a", {"subject": "s"}), "text is a number"),  # type: ignore[arg-type]
        ("x", "must be an Example"),
    ],
)
def test_unusable_examples_are_refused(example: Example, says: str) -> None:
    """An example needs a known label and all that the template asks for."""
    with pytest.raises(TaskError, match=says):
        Task.from_labels("a,b", template="{subject} {text}", examples=[example])


FULL = """
name = "tickets"
instructions = "Sort."
template = "{subject}: {text}\\nAnswer:"
normalize = "mean"
calibrate = "prior"
style = "text"
scoring = "sequence"

[[labels]]
value = "B"
text = "billing"
description = "money"

[[labels]]
value = "technical"

[[examples]]
text = "charged twice"
columns = { subject = "Invoice" }
label = "B"
"""


def test_a_full_task_file_is_read(tmp_path: Path) -> None:
    """Every key of the format, and what it becomes."""
    task = load_task(write(tmp_path, FULL))
    assert task.name == "tickets"
    assert task.labels == (Label("B", "billing", "money"), Label("technical", "technical"))
    assert task.examples == (Example("charged twice", "B", {"subject": "Invoice"}),)
    assert (task.normalize, task.calibrate, task.style, task.scoring) == ("mean", "prior", "text", "sequence")
    assert task.columns == ("subject",)


def test_a_plain_list_of_labels_is_read(tmp_path: Path) -> None:
    """Two labels are a whole task file; it equals the task made from labels alone."""
    assert load_task(write(tmp_path, 'labels = ["a", "b"]')) == Task.from_labels("a,b")


@pytest.mark.parametrize("encoded", [b"\xef\xbb\xbf", b"\xef\xbb\xbf# note\r\n"])
def test_a_byte_order_mark_is_no_fault(tmp_path: Path, encoded: bytes) -> None:
    """Files saved by Windows editors, with their line ends, are read."""
    task = load_task(write(tmp_path, encoded + 'labels = ["ä", "b"]\r\n'.encode()))
    assert task.labels[0].value == "ä"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('labels = ["a", "b"]\nlabel_from = "x"', "unknown key label_from; did you mean 'labels'"),
        ('labels = ["a", "b"]\nlabels_from = "x"', "unknown key labels_from"),
        ('labels = ["a", "b"]\nwhatever = 1', "unknown key whatever; known keys are name,"),
        ('[[labels]]\nvalue = "a"\ntxt = "b"', "unknown key labels[1].txt; did you mean 'text'"),
        ('[[labels]]\nvalue = "a"\ntemplate = "{text}"', "move it above the first"),
        ('labels = ["a", "b"]\n[[examples]]\nlable = "a"', "unknown key examples[1].lable; did you mean"),
        ("labels = 5", "labels is a number; it must be a list"),
        ('labels = "a,b"', "labels is a string; it must be a list"),
        ('[labels]\nvalue = "a"', "labels is a table; it must be a list"),
        ('labels = ["a", 5]', "labels[2] is a number; it must be a string or a table"),
        ('labels = ["a", true]', "labels[2] is a boolean"),
        ('[[labels]]\ntext = "a"', "labels[1] has no value"),
        ("[[labels]]\nvalue = 5", "labels[1].value is a number; it must be a string"),
        ('labels = ["a", "b"]\ntemplate = 3', "template is a number; it must be a string"),
        ('labels = ["a", "b"]\nstyle = "fast"', "style is 'fast'; it must be one of auto, text, code"),
        ('labels = ["a", "b"]\nexamples = ["x"]', "examples[1] is a string; it must be a table"),
        ('labels = ["a", "b"]\n[[examples]]\ntext = "x"\ncolumns = "y"\nlabel = "a"', "must be a table"),
        ('instructions = "x"', "there are no labels"),
        ("", "there are no labels"),
        ("labels = []", "there are no labels"),
        ('labels = ["a"]', "only one label"),
        ('labels = ["a", "a"]', "same value"),
        ('labels = ["a", ""]', "is empty"),
        ('labels = ["a", "b"]\nlabels = ["c"]', "line 2: this is not TOML"),
        ('name = "x"\nlabels = ["a" "b"]', "line 2: this is not TOML"),
        ('labels = ["a",\n"b"\n', "line 2: this is not TOML"),
        (b'labels = ["\xe4", "b"]', "is not UTF-8 (byte 12)"),
    ],
)
def test_a_faulty_task_file_says_where_and_what(tmp_path: Path, text: str | bytes, says: str) -> None:
    """Unknown keys with a suggestion, wrong types with the right one, syntax errors with their line."""
    assert says in fault(tmp_path, text)


def test_a_missing_task_file_and_a_folder_are_named(tmp_path: Path) -> None:
    """The path is in the message, and there is no traceback of another error."""
    with pytest.raises(TaskError, match=r"no task file .*nothing\.toml") as caught:
        load_task(tmp_path / "nothing.toml")
    assert caught.value.__suppress_context__
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(tmp_path)


def test_a_task_as_dict_is_json_and_tells_tasks_apart(tmp_path: Path) -> None:
    """The fingerprint of a job: defaults filled in, equal for equal tasks."""
    task = load_task(write(tmp_path, FULL))
    assert json.loads(json.dumps(task.as_dict()))["examples"][0]["columns"] == {"subject": "Invoice"}
    plain = Task.from_labels("billing,technical,account")
    assert plain.as_dict()["instructions"] == DEFAULT
    assert plain.as_dict() == Task.from_labels(["billing", "technical", "account"]).as_dict()
    assert plain.as_dict() != Task.from_labels("billing,technical,other").as_dict()


def test_own_texts_are_all_that_gets_into_a_prompt(tmp_path: Path) -> None:
    """Each text under a name that a message can use."""
    texts = load_task(write(tmp_path, FULL)).own_texts()
    assert texts["examples[1].columns.subject"] == "Invoice"
    assert texts["the description of label 'B'"] == "money"
    assert {"Sort.", "billing", "charged twice"} <= set(texts.values())
