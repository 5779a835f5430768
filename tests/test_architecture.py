"""The design's rules about the code itself, read off the syntax trees: imports, lengths, tests.

Each rule is a function from source text to complaints, tried on small bad pieces of code first, so that a
rule that has gone blind does not pass for a rule that is kept.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "lengthwise"
TESTS = ROOT / "tests"
PACKAGE = "lengthwise"
LONGEST_FUNCTION = 60

# From the bottom up; a module or package imports from lower lines and from itself only ("" is lengthwise
# itself, the public names).
LAYERS = (
    {"records", "errors", "machine", "version"},
    {"task", "options", "models", "codec"},
    {
        "rows",
        "prompt",
        "encode",
        "labels",
        "plan",
        "backends",
        "score",
        "decide",
        "calibrate",
        "verify",
        "report",
    },
    {"engine"},
    {"prepare"},
    {"classifier"},
    {"cli", "server", "ray_data"},
    {"", "__main__"},
)

# The few stages that do look at another one, and why.
EXCEPTIONS = {
    ("backends", "plan"): "names of the tree's fixed segments; a strategy is tried out on a small plan",
    ("report", "verify"): "the report prints the proof and its limits",
}

# Heavy libraries, and the only places that may name them, at whatever depth in the code.
HOMES = {
    "torch": {"backends"},
    "transformers": {"backends"},
    "fastapi": {"server"},
    "uvicorn": {"server"},
    "starlette": {"server"},
    "ray": {"ray_data"},
}

NOT_AT_START = {
    "torch",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "gguf",
    "safetensors",
    "pyarrow",
    "pandas",
    "scipy",
    "sklearn",
    "fastapi",
}


def source_files() -> list[Path]:
    return sorted(SOURCES.rglob("*.py"))


def files_of_tests() -> list[Path]:
    return sorted(TESTS.rglob("test_*.py"))


def module_name(path: Path) -> str:
    """``plan/tree.py`` is ``lengthwise.plan.tree``; ``plan/__init__.py`` is ``lengthwise.plan``."""
    parts = path.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit_of(module: str) -> str:
    """``lengthwise.plan.tree`` belongs to ``plan``, ``lengthwise`` itself to ``""``."""
    return [*module.split("."), ""][1]


def imported_modules(source: str, package: str) -> Iterator[str]:
    """Every absolute name that an import statement in ``source`` reaches, wherever it stands.

    ``package`` is the package the file lies in; relative imports count from there. ``from a import b``
    gives ``a.b``, since b may be a module.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported_units(source: str, package: str) -> set[str]:
    """The project's modules and packages that ``source`` imports; a name that is neither is ``""``."""
    known = set().union(*LAYERS)
    own = [name for name in imported_modules(source, package) if name.split(".")[0] == PACKAGE]
    return {unit_of(name) if unit_of(name) in known else "" for name in own}


def layer_of(unit: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if unit in layer)


def wrong_imports(source: str, unit: str, package: str) -> list[str]:
    """Imports of the project's own modules that do not point downwards."""
    if unit not in set().union(*LAYERS):
        return [f"{unit} has no place in the layers"]
    return [
        f"{unit or PACKAGE} imports {other or PACKAGE}, which is not below it"
        for other in sorted(imported_units(source, package) - {unit})
        if layer_of(other) >= layer_of(unit) and (unit, other) not in EXCEPTIONS
    ]


def homeless_imports(source: str, unit: str, package: str) -> list[str]:
    """Heavy libraries named outside their homes."""
    libraries = {name.split(".")[0] for name in imported_modules(source, package)}
    return [
        f"{unit or PACKAGE} imports {lib}" for lib in sorted(libraries) if unit not in HOMES.get(lib, {unit})
    ]


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def long_functions(source: str) -> list[str]:
    """Functions whose body has more than 60 lines; parameters, a command's flags, are not counted."""
    lengths = [(node.name, (node.end_lineno or 0) - node.body[0].lineno + 1) for node in functions(source)]
    return [f"{name} has {lines} lines" for name, lines in lengths if lines > LONGEST_FUNCTION]


def asserts_something(test: ast.AST) -> bool:
    """An assert, a call that raises or warns expectedly, or one whose name begins with assert_ or check_."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in ("raises", "warns") or name.startswith(("assert_", "check_")):
                return True
    return False


def weak_tests(source: str) -> list[str]:
    """Test functions that check nothing or do not say what they show."""
    complaints = []
    for node in functions(source):
        if node.name.startswith("test_"):
            if not ast.get_docstring(node):
                complaints.append(f"{node.name} has no docstring")
            if not asserts_something(node):
                complaints.append(f"{node.name} asserts nothing")
    return complaints


def package_of(path: Path) -> str:
    name = module_name(path)
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def complaints_about_sources(rule: Callable[[str, str, str], list[str]]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {complaint}"
        for path in source_files()
        for complaint in rule(path.read_text(encoding="utf-8"), unit_of(module_name(path)), package_of(path))
    ]


@pytest.mark.parametrize(
    ("unit", "package", "source"),
    [
        ("records", "lengthwise", "from lengthwise.engine import Engine"),
        ("plan", "lengthwise.plan", "from lengthwise.score import log_softmax"),
        ("plan", "lengthwise.plan", "from ..score import log_softmax"),
        ("decide", "lengthwise", "from . import verify"),
        ("verify", "lengthwise", "def f():\n    import lengthwise.backends.packed as p"),
        ("engine", "lengthwise", "from lengthwise import classifier, records"),
        ("task", "lengthwise", "if TYPE_CHECKING:\n    from lengthwise.options import EngineOptions"),
        ("classifier", "lengthwise", "from lengthwise.cli.classify import main"),
        ("cli", "lengthwise.cli", "from lengthwise import Classifier"),
        ("plan", "lengthwise.plan", "from lengthwise.backends.base import Backend"),
    ],
)
def test_an_import_that_points_up_or_sideways_is_seen(unit: str, package: str, source: str) -> None:
    """The rule sees absolute, relative, nested and type-only imports."""
    assert len(wrong_imports(source, unit, package)) == 1


@pytest.mark.parametrize(
    ("unit", "package", "source"),
    [
        (
            "plan",
            "lengthwise.plan",
            "from lengthwise.records import Pack\nfrom .tree import walk\nimport numpy",
        ),
        (
            "engine",
            "lengthwise",
            "from lengthwise import verify\nfrom lengthwise.backends.base import Backend",
        ),
        ("cli", "lengthwise.cli", "from lengthwise.classifier import Classifier\nfrom . import explain"),
        ("", "lengthwise", "from .version import __version__\nfrom .classifier import Classifier"),
    ],
)
def test_an_import_that_points_down_is_not_complained_about(unit: str, package: str, source: str) -> None:
    """Lower layers, one's own package and other people's libraries are fine."""
    assert wrong_imports(source, unit, package) == []


def test_imports_point_downwards() -> None:
    """No module imports one beside or above it, save the exceptions stated here."""
    assert complaints_about_sources(wrong_imports) == []


def test_every_module_has_its_layer() -> None:
    """A new module has to be given a place before it can be imported by anyone."""
    units = {unit_of(module_name(path)) for path in source_files()}
    assert wrong_imports("", "novelty", PACKAGE) == ["novelty has no place in the layers"]
    assert {"engine", "plan", "backends", "records"} <= units
    assert units - set().union(*LAYERS) == set()


@pytest.mark.parametrize(("unit", "other"), EXCEPTIONS)
def test_every_exception_is_still_needed(unit: str, other: str) -> None:
    """An exception that nobody uses any more has to go."""
    users = [path for path in source_files() if unit_of(module_name(path)) == unit]
    assert any(other in imported_units(path.read_text(encoding="utf-8"), package_of(path)) for path in users)


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("engine", "import torch"),
        ("rows", "def f():\n    from transformers import AutoTokenizer"),
        ("verify", "if TYPE_CHECKING:\n    import torch.nn.functional as F"),
        ("cli", "from fastapi import FastAPI"),
    ],
)
def test_a_heavy_library_out_of_place_is_seen(unit: str, source: str) -> None:
    """Also inside a function and for types only."""
    assert len(homeless_imports(source, unit, PACKAGE)) == 1


def test_a_heavy_library_at_home_is_not_complained_about() -> None:
    """torch belongs to the backends; NumPy is at home everywhere."""
    assert homeless_imports("import torch\nimport numpy", "backends", "lengthwise.backends") == []
    assert homeless_imports("import numpy", "plan", "lengthwise.plan") == []


def test_heavy_libraries_stay_at_home() -> None:
    """torch and Transformers in the backends, web and cluster libraries in theirs."""
    assert complaints_about_sources(homeless_imports) == []


@pytest.mark.parametrize("module", ["lengthwise", "lengthwise.cli"])
def test_starting_loads_no_heavy_library(module: str) -> None:
    """`import lengthwise` and the command line are there at once: no torch, no Arrow, no model library."""
    code = f"import sys, json, {module}; print(json.dumps([name.split('.')[0] for name in sys.modules]))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(answer.stdout))
    assert PACKAGE in loaded
    assert loaded & NOT_AT_START == set()


def test_a_long_function_is_seen() -> None:
    """61 lines are too many, 60 are not; methods and inner functions count."""
    body = "        x = 1\n"
    too_long = "class A:\n    def f(\n        self,\n    ):\n" + body * 61
    just_right = "class A:\n    def f(self):\n" + body * 60
    assert long_functions(too_long) == ["f has 61 lines"]
    assert long_functions(just_right) == []


def test_no_function_is_long() -> None:
    """Nothing in the package, the benchmarks or the examples has a body of more than 60 lines."""
    files = [path for name in ("src", "bench", "examples") for path in (ROOT / name).rglob("*.py")]
    found = [(path.name, long_functions(path.read_text(encoding="utf-8"))) for path in files]
    assert len(found) > 10
    assert [entry for entry in found if entry[1]] == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def test_a():\n    'Shows.'\n    run()", "asserts nothing"),
        (
            "class TestA:\n    async def test_a(self):\n        'Shows.'\n        self.run()",
            "asserts nothing",
        ),
        ("def test_a():\n    assert run()", "no docstring"),
        ("def test_a():\n    'Shows.'\n    approx(1)", "asserts nothing"),
    ],
)
def test_a_weak_test_is_seen(source: str, complaint: str) -> None:
    """A test without an assertion, or without a docstring, is found, in classes too."""
    (found,) = weak_tests(source)
    assert complaint in found


@pytest.mark.parametrize(
    "line",
    ["assert x", "with pytest.raises(E): f()", "np.testing.assert_allclose(a, b)", "check_order(rows)"],
)
def test_a_sound_test_is_not_complained_about(line: str) -> None:
    """All the ways of asserting that the tests use are known."""
    assert weak_tests(f"def test_a():\n    'Shows.'\n    {line}") == []
    assert weak_tests("def inner():\n    pass") == []


def test_every_test_says_what_it_shows_and_checks_something() -> None:
    """All test functions of this repository have a docstring and an assertion."""
    files = files_of_tests()
    found = [(path.name, weak_tests(path.read_text(encoding="utf-8"))) for path in files]
    assert Path(__file__) in files
    assert [entry for entry in found if entry[1]] == []
