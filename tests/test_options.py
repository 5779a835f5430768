"""Engine options are checked when they are made."""

import dataclasses

import pytest

from lengthwise.errors import OptionError
from lengthwise.options import EngineOptions, parse_verify


def test_defaults_are_valid_and_frozen():
    """The defaults pass their own checks and cannot be changed afterwards."""
    options = EngineOptions()
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.threads = 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("strategy", "fast"), ("device", "tpu"), ("dtype", "int8"), ("on_long", "cut"), ("batch_size", 0),
     ("threads", -1), ("window", 1.5), ("max_length", 0), ("verify", "some"), ("verify", -2)],
)  # fmt: skip
def test_a_bad_value_names_option_and_value(name, value):
    """The error says which option and what it was."""
    with pytest.raises(OptionError, match=f"{name} is .*{value}"):
        EngineOptions(**{name: value})


def test_an_unknown_name_is_an_error_with_a_suggestion():
    """A misspelt keyword is never swallowed."""
    with pytest.raises(OptionError, match=r"'strategie'.*did you mean 'strategy'"):
        EngineOptions.from_mapping({"strategie": "packed"})


@pytest.mark.parametrize(
    ("given", "parsed"), [("25", 25), (25, 25), ("all", "all"), ("0", "none"), (0, "none")]
)
def test_verify_takes_words_and_numbers(given, parsed):
    """From the command line everything is a string."""
    assert parse_verify(given) == parsed


def test_resolve_makes_a_new_object():
    """Resolving "auto" leaves the given options as they were."""
    options = EngineOptions()
    resolved = options.resolve(device="cpu", dtype="float32", threads=2)
    assert (options.device, options.threads) == ("auto", None)
    assert (resolved.device, resolved.dtype, resolved.threads) == ("cpu", "float32", 2)
