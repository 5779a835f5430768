from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import InputError, OptionError, OutputError
from lengthwise.rows import open_sink, open_source
from tests.rows.labelling import COLUMNS, answers_for, cells_of, label_bytes, label_file

ADDED = '"label": "billing", "probability": 0.5, "margin": {}.0, "status": "ok"'
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text().filter(lambda key: key not in ADDED), VALUES, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(OBJECTS, min_size=1, max_size=8), st.booleans(), st.sampled_from(["\n", "\r\n"]), st.booleans()
)
def test_any_object_comes_out_byte_for_byte_with_the_answers_last(
    rows: list[dict[str, object]], ascii_only: bool, end: str, ends: bool
) -> None:
    """Removing the added members gives back the input's bytes; the whole line is strict JSON."""
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    data = (end.join(lines) + end * ends).encode("utf-8", "surrogatepass")
    if not ascii_only:
        data = data.decode("utf-8", "replace").encode()
    out = label_bytes(data, format="jsonl").decode()
    for number, row in enumerate(rows):
        out = out.replace((", " if row else "") + ADDED.format(number), "", 1)
    assert out.encode() == data


def test_spelling_of_numbers_keys_and_blanks_stays() -> None:
    """1.50, 1e5, escapes, duplicate keys, blanks inside and behind the object stay as written."""
    data = b'  {"a":1.50,"b":1e5, "c":"\\u00e9","a":2 } \t\r\n{ }\n\n{"a":"}"}'
    assert label_bytes(data) == (
        b'  {"a":1.50,"b":1e5, "c":"\\u00e9","a":2 , '
        + ADDED.format(0).encode()
        + b"} \t\r\n{ "
        + ADDED.format(1).encode()
        + b'}\n{"a":"}", '
        + ADDED.format(2).encode()
        + b"}"
    )


def test_values_are_handed_on_as_parsed() -> None:
    """Numbers, null, lists and missing keys are told apart; words for nothing stay words."""
    data = b'{"t":"NA"}\n{"t":1.5}\n{"t":null}\n{"x":1}\n{"t":["a"]}\n{"t":true}\n{"t":"null"}\n'
    assert cells_of(data, "t") == ["NA", 1.5, None, None, ["a"], True, "null"]


def test_columns_are_the_keys_of_the_first_hundred_objects() -> None:
    """Keys are gathered in the order they come; later keys are no columns, and all rows are read."""
    lines = [
        json.dumps({"a": i, **({"b": 1} if i == 99 else {}), **({"c": 1} if i == 100 else {})})
        for i in range(150)
    ]
    with open_source("-", stdin=io.BytesIO("\n".join(lines).encode())) as source:
        assert source.columns == ("a", "b")
        windows = list(source.windows(40, ["a", "b"]))
    assert [cell for window in windows for cell in window.cells["a"]] == list(range(150))
    assert [len(window) for window in windows] == [40, 40, 40, 30]


def test_line_numbers_skip_blank_lines() -> None:
    """Blank lines are left out of the rows and counted as lines."""
    with open_source("-", stdin=io.BytesIO(b'\n{"a":1}\n \n{"a":2}\n')) as source:
        assert [list(window.line_numbers) for window in source.windows(5, ["a"])] == [[2, 4]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "stdin is empty; write one JSON object on each line"),
        (b"\n \n", "stdin is empty"),
        (b'{"a":1}\n\n{"a":1,}\n', r"stdin, line 3, column \d+: this is not JSON .*; write one JSON object"),
        (b'{"a":1} {"b":2}\n', "line 1, column 9: this is not JSON .Extra data"),
        (b'{"a":1}\n  5\n', "line 2, column 3: this is a single value, not an object"),
        (b'{"a":1}\n"x"\n', "line 2, column 1: this is a text, not an object"),
        (b'{"a":1}\nnull\n', "line 2, column 1: this is null, not an object"),
        (b'[{"a":1},{"a":2}]', r"line 1, column 1: this is a list, not an object; .* jq -c '\.\[\]' FILE"),
        (b'[\n{"a":1}\n]', r"line 1, column 2: this is not JSON .* jq -c '\.\[\]' FILE"),
        (b'{\n"a":1\n}', r"line 1, column 2: this is not JSON .* jq -c \. FILE"),
        (b'{"a":1}\n{"a":NaN}\n', "line 2: this is not usable JSON .NaN is no JSON number"),
        (b'{"a":1}\n{"a":-Infinity}\n', "line 2: this is not usable JSON .-Infinity is no"),
        (b'{"a":1}\n{"a":"\x00"}\n', "line 2, column 7: this is not JSON .Invalid control character"),
        (b'{"a":1}\n{"a":"\xff"}\n', "line 2: byte 0xFF is not UTF-8 text"),
        (
            b'{"a":1}\n{"a":' + b"[" * 100_000 + b"\n",
            "line 2: this is not usable JSON .it is nested too deeply",
        ),
        (b'{"a":1}\n{"a":' + b"1" * 5000 + b"}\n", "line 2: this is not usable JSON"),
    ],
)
def test_what_cannot_be_read_names_the_line(data: bytes, message: str) -> None:
    """Every defect of a JSONL file is one sentence with the line, and the column where there is one."""
    with pytest.raises(InputError, match=message) as caught:
        label_bytes(data, format="jsonl")
    assert str(caught.value).count("\n") == 0


def test_a_key_that_a_later_object_shares_with_an_answer() -> None:
    """A clash that the first lines did not show is found before the key would stand there twice."""
    data = b'{"a":1}\n' * 100 + b'{"label":"old"}\n'
    with pytest.raises(OutputError, match=r"line 101: the record already has a key 'label'.* --prefix lw_"):
        label_bytes(data, size=200)


def test_answers_are_strict_json() -> None:
    """NaN and infinities are null, labels are escaped."""
    out = io.BytesIO()
    source = open_source("-", stdin=io.BytesIO(b'{"a":1}\n'))
    sink = open_sink("-", source=source, answer_columns=COLUMNS, stdout=out)
    answers = {
        "label": ['say "hi"\n😀'],
        "probability": [float("nan")],
        "margin": [float("inf")],
        "status": [None],
    }
    sink.write(next(source.windows(1, ["a"])), answers)
    assert out.getvalue().decode() == (
        '{"a":1, "label": "say \\"hi\\"\\n😀", "probability": null, "margin": null, "status": null}\n'
    )


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-be", "latin-1", "shift_jis"])
def test_other_encodings_pass_through(codec: str, tmp_path: Path) -> None:
    """The splice lands before the closing brace in encodings of one, two and several bytes."""
    text = '{"a": "表\u80fd}"}\r\n' if codec == "shift_jis" else '{"a": "été} "}\r\n'
    path = tmp_path / "in.jsonl"
    path.write_bytes(text.encode(codec))
    given_codec = None if codec in ("utf-8-sig", "utf-16") else codec
    out = label_file(path, tmp_path / "out.jsonl", encoding=given_codec)
    assert out == (text[:-3] + ", " + ADDED.format(0) + "}\r\n").encode(codec)


def test_a_label_is_escaped_where_the_encoding_lacks_it() -> None:
    """JSON can write any label in ASCII."""
    out = io.BytesIO()
    source = open_source("-", stdin=io.BytesIO(b'{"a":"\xe9"}\n'), encoding="latin-1")
    sink = open_sink("-", source=source, answer_columns=COLUMNS, stdout=out)
    window = next(source.windows(1, ["a"]))
    sink.write(window, answers_for(window, "账单"))
    assert json.loads(out.getvalue().decode("latin-1"))["label"] == "账单"


def test_a_delimiter_makes_no_sense() -> None:
    """An option that would do nothing is refused."""
    with pytest.raises(OptionError, match="--delimiter is for CSV and TSV, but the input is jsonl"):
        open_source("-", stdin=io.BytesIO(b'{"a":1}\n'), delimiter=";")
