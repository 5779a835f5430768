"""The entry point: help, version, exit codes, one line an error, and a quick start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise import models
from lengthwise.cli import common, docs
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
from tests.cli.conftest import FakeModel, Run

COMMANDS = ("classify", "explain", "models")
HEAVY = ("torch", "transformers", "tokenizers", "pyarrow", "numpy", "pandas", "huggingface_hub")
CLASSIFY = ("classify", "tickets.csv", "--labels", "a,b")


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(run: Run, flag: str) -> None:
    """Both spellings show the commands, examples and exit codes, on stdout."""
    result = run(flag)
    assert (result.code, result.err) == (0, "")
    assert all(f"  {command} " in result.out for command in COMMANDS)
    assert "lengthwise classify tickets.csv --labels billing,technical,account" in result.out
    assert "4 verification failed" in result.out
    assert "completion" not in result.out


def test_no_arguments_show_the_help(run: Run) -> None:
    """`lengthwise` alone is a question for help."""
    assert run() == run("--help")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_command(run: Run, command: str, flag: str) -> None:
    """Every command has help under both spellings."""
    result = run(command, flag)
    assert result.code == 0
    assert result.out.startswith(f"Usage: lengthwise {command} ")


def test_every_flag_of_classify_and_explain_is_explained(run: Run) -> None:
    """Each flag has a sentence, flags with a value an example of it, flags with a default that default."""
    for command in ("classify", "explain"):
        text = " ".join(run(command, "--help").out.split())
        flags = [word.rstrip(",") for word in text.split("Examples:")[0].split() if word.startswith("--")]
        assert len(set(flags)) > 15
        for flag in ("--text", "--task", "--labels", "--model", "--device", "--threads", "--format"):
            assert f"E.g. {flag}" in text
    text = " ".join(run("classify", "--help").out.split())
    assert "[default: packed]" in text
    assert "[default: 4096]" in text


def test_version(run: Run) -> None:
    """--version is one line on stdout."""
    assert run("--version").out == f"lengthwise {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("clasify",), "No such command 'clasify'"),
        (("--nonsense",), "No such option: --nonsense"),
        (("classify",), "Missing argument 'INPUT'; see `lengthwise classify --help`"),
        (("classify", "a.csv", "--labls", "a,b"), "No such option: --labls"),
        (("classify", "a.csv", "--batch-size", "many"), "Invalid value for '--batch-size'"),
        (("explain", "a.csv", "--row", "0", "--labels", "a,b"), "Invalid value for '--row'"),
        (("models", "pull"), "Missing argument 'MODEL'"),
    ],
)
def test_usage_errors(run: Run, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2 and one line that names the help."""
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("lengthwise: error: ")
    assert said in result.err
    assert len(result.err.splitlines()) == 1


def test_a_group_without_a_command_shows_its_help(run: Run) -> None:
    """`lengthwise models` is a usage error whose message is the help."""
    result = run("models")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: lengthwise models ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LengthwiseError, 2),
        (OptionError, 2),
        (TaskError, 2),
        (ModelError, 2),
        (InputError, 3),
        (OutputError, 3),
        (VerificationError, 4),
        (Interrupted, 130),
    ],
)
def test_exit_codes_of_our_errors(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: type[LengthwiseError], code: int
) -> None:
    """Each kind of error gives its code and one line, also when a name in it has line breaks and controls."""
    monkeypatch.setattr("lengthwise.cli.job.run", raising(error("what 'a\nb\x1b[31m', where, the mend.")))
    result = run(*CLASSIFY)
    assert result.code == code
    assert result.err == "lengthwise: error: what 'a b\\x1b[31m', where, the mend.\n"


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError("boom"), 1, "this is a bug in lengthwise (RuntimeError: boom)"),
        (KeyError("x"), 1, "LENGTHWISE_DEBUG=1"),
        (MemoryError(), 1, "--max-batch-tokens"),
        (KeyboardInterrupt(), 130, "stopped by the user."),
    ],
)
def test_everything_else_is_one_line_too(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    """No traceback without being asked for."""
    monkeypatch.delenv("LENGTHWISE_DEBUG", raising=False)
    monkeypatch.setattr("lengthwise.cli.job.run", raising(error))
    result = run(*CLASSIFY)
    assert result.code == code
    assert said in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("error", [RuntimeError("boom"), InputError("no file.")])
def test_the_traceback_can_be_had(run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """LENGTHWISE_DEBUG=1 shows it, in front of the one line."""
    monkeypatch.setenv("LENGTHWISE_DEBUG", "1")
    monkeypatch.setattr("lengthwise.cli.job.run", raising(error))
    result = run(*CLASSIFY)
    assert result.err.startswith("Traceback")
    assert result.err.splitlines()[-1].startswith("lengthwise: error: ")


def test_a_warning_looks_like_one(run: Run, model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other modules' notes, logged to "lengthwise", come out as lines of this program."""

    def noting(*_: object, **__: object) -> None:
        common.logger.debug("too small to tell")
        common.logger.info("a note [red]in brackets[/]")
        common.logger.warning("a warning")

    monkeypatch.setattr("lengthwise.cli.job.run", noting)
    assert run(*CLASSIFY).err == "lengthwise: a note [red]in brackets[/]\nlengthwise: warning: a warning\n"


def test_a_program_around_keeps_its_logging(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """After a command the logger is as it was: other handlers get its records again."""
    run(*CLASSIFY)
    common.logger.warning("for the others")
    assert [record.getMessage() for record in caplog.records] == ["for the others"]


def test_the_default_model_is_the_same_everywhere() -> None:
    """The help's default is written out so that it needs no import; it must not drift."""
    assert common.DEFAULT_MODEL == models.DEFAULT_MODEL


def test_the_page_about_the_command_line_is_up_to_date() -> None:
    """docs/cli.md is what `python -m lengthwise.cli.docs` prints."""
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    assert page.read_text(encoding="utf-8") == docs.markdown(), (
        "run: python -m lengthwise.cli.docs > docs/cli.md"
    )


@pytest.mark.parametrize("arguments", [("--help",), ("classify", "--help"), ("--version",)])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """No torch, no NumPy, no Arrow for a look at the help."""
    code = (
        "import sys; from lengthwise import cli; code = cli.run(sys.argv[1:]);"
        f"print(code, sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    )
    assert python("-c", code, *arguments).stderr == "0 []\n"


def test_help_is_quick() -> None:
    """Under 0.3 s of processor time, which is what a machine with nothing else to do needs."""
    before = os.times()
    result = python("-m", "lengthwise", "--help")
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert result.returncode == 0
    assert spent < 0.3


def test_help_in_an_ascii_locale() -> None:
    """No character that such a terminal cannot show."""
    result = python("-m", "lengthwise", "classify", "--help", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.isascii()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently there")
def test_a_reader_that_goes_away() -> None:
    """`lengthwise --help | true`: no complaint about a broken pipe, and the exit code of one."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        result = subprocess.run(
            [sys.executable, "-m", "lengthwise", "--help"], stdout=pipe, stderr=subprocess.PIPE, check=False
        )
    assert (result.returncode, result.stderr) == (141, b"")
