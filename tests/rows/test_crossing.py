from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import InputError
from lengthwise.rows import open_sink, open_source
from lengthwise.rows.values import cell_text
from tests.rows.labelling import COLUMNS, label_file, pass_through

CSV = b'id;text;n\n007;"a ""b"", c\nd";\n8;NA;1.50\n'


def convert(data: bytes, out: str, **options: str) -> bytes:
    """stdin in one format, stdout in another."""
    buffer = io.BytesIO()
    source = open_source("-", stdin=io.BytesIO(data), **options)
    pass_through(source, open_sink("-", source=source, answer_columns=COLUMNS, format=out, stdout=buffer))
    return buffer.getvalue()


def test_csv_to_jsonl() -> None:
    """All columns are strings, as they stand in the cells; answers are numbers and strings."""
    rows = [json.loads(line) for line in convert(CSV, "jsonl").splitlines()]
    answer = {"label": "billing", "probability": 0.5, "status": "ok"}
    assert rows == [
        {"id": "007", "text": 'a "b", c\nd', "n": "", **answer, "margin": 0.0},
        {"id": "8", "text": "NA", "n": "1.50", **answer, "margin": 1.0},
    ]


def test_csv_to_parquet() -> None:
    """All columns are strings; an empty cell is an empty string, not null."""
    table = pq.read_table(io.BytesIO(convert(CSV, "parquet")))
    assert table.schema.types == [pa.string()] * 4 + [pa.float64()] * 2 + [pa.string()]
    assert table["n"].to_pylist() == ["", "1.50"]
    assert table["text"].to_pylist() == ['a "b", c\nd', "NA"]


def test_csv_to_tsv_and_back(tmp_path: Path) -> None:
    """Another delimiter means new records: UTF-8, line feeds, quotes where they are needed."""
    (tmp_path / "in.csv").write_bytes("id;text\r\n1;a\tb, c\r\n2;é\r\n".encode("latin-1"))
    out = label_file(tmp_path / "in.csv", tmp_path / "out.tsv", encoding="latin-1")
    assert out.decode().splitlines()[1:] == [
        '1\t"a\tb, c"\tbilling\t0.5\t0.0\tok',
        "2\té\tbilling\t0.5\t1.0\tok",
    ]


def test_jsonl_to_csv() -> None:
    """Missing keys and null are empty, nested values JSON text, true and numbers as in JSON."""
    data = (
        b'{"a":"x, y","b":true}\n{"a":null,"c":[1,{"k":"\xc3\xa9"}]}\n{"a":1.50,"b":12345678901234567890}\n'
    )
    assert convert(data, "csv").decode().splitlines() == [
        "a,b,c,label,probability,margin,status",
        '"x, y",true,,billing,0.5,0.0,ok',
        ',,"[1, {""k"": ""é""}]",billing,0.5,1.0,ok',
        "1.5,12345678901234567890,,billing,0.5,2.0,ok",
    ]


def test_jsonl_to_parquet_keeps_types_that_the_first_lines_agree_on() -> None:
    """bool, int64 and double where all agree (nulls aside), else strings; JSON text for what is no text."""
    rows = [
        {"b": True, "i": 1, "f": 1, "s": "x", "mixed": "1", "nested": [1], "empty": None, "big": 1 << 70},
        {"b": None, "i": 2, "f": 0.5, "s": None, "mixed": 1, "nested": {"k": None}, "big": 1},
    ]
    data = "\n".join(map(json.dumps, rows)).encode()
    table = pq.read_table(io.BytesIO(convert(data, "parquet")))
    assert dict(zip(table.column_names[:8], table.schema.types, strict=False)) == {
        **{"b": pa.bool_(), "i": pa.int64(), "f": pa.float64()},
        **dict.fromkeys(["s", "mixed", "nested", "empty", "big"], pa.string()),
    }
    assert table["b"].to_pylist() == [True, None]
    assert table["f"].to_pylist() == [1.0, 0.5]
    assert table["mixed"].to_pylist() == ["1", "1"]
    assert table["nested"].to_pylist() == ["[1]", '{"k": null}']
    assert table["big"].to_pylist() == [str(1 << 70), "1"]


@pytest.mark.parametrize(
    ("first", "later", "found"),
    [
        ("1", "1.5", "'1.5'"),
        ("1", '"x"', "'x'"),
        ("1", "true", "'true'"),
        ("true", "1", "'1'"),
        ("1.5", '"x"', "'x'"),
        ("1", "9223372036854775808", "'9223372036854775808'"),
        ("1.5", "9007199254740993", "'9007199254740993'"),
    ],
)
def test_jsonl_to_parquet_value_of_another_type(first: str, later: str, found: str) -> None:
    """A later value that the column cannot hold is an error with line, key, value and mend."""
    data = f'{{"k":{first}}}\n' * 100 + f'{{"k":{later}}}\n'
    with pytest.raises(InputError, match=f"line 101: 'k' is {found}, but it is .* write .jsonl or .csv"):
        convert(data.encode(), "parquet")


@pytest.mark.parametrize(("out", "place"), [("csv", "a CSV header"), ("parquet", "the Parquet schema")])
def test_jsonl_key_that_comes_too_late(out: str, place: str) -> None:
    """A column cannot be added once the header stands; the error names line, key and mend."""
    data = b'{"a":1}\n' * 100 + b'{"a":1,"new":2}\n'
    with pytest.raises(InputError, match=f"line 101: the key 'new' is in none of .* {place} .* write .jsonl"):
        convert(data, out)


@pytest.mark.parametrize(("out", "text"), [("csv", "\\ud83d"), ("csv", "\\u0000"), ("parquet", "\\ud83d")])
def test_jsonl_text_that_only_json_can_write(out: str, text: str) -> None:
    """Half an emoji and NUL are found with their line."""
    with pytest.raises(InputError, match="line 2: a text holds a NUL or half a character"):
        convert(f'{{"a":"x"}}\n{{"a":"{text}"}}\n'.encode(), out)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_jsonl_key_that_only_json_can_write(form: str) -> None:
    """A key with half an emoji is refused before anything is written; JSONL keeps it."""
    data = b'{"\\ud83d":"x"}\n'
    with pytest.raises(InputError, match=r"the key '\\ud83d' cannot be a column's name; write \.jsonl"):
        convert(data, form)
    assert convert(data, "jsonl").startswith(data[:-2])


PARQUET = pa.table(
    {
        "day": pa.array([dt.date(2024, 2, 29), None]),
        "at": pa.array([dt.datetime(2024, 1, 2, 3, 4, 5), None]),
        "ns": pa.array([1, None], pa.timestamp("ns", "UTC")),
        "raw": pa.array([b"\xff\x00", None]),
        "f": pa.array([float("nan"), float("inf")]),
        "list": pa.array([[1.5, float("nan")], None]),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "yes": pa.array([True, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


@pytest.fixture
def parquet() -> bytes:
    """A table with every kind of value that text formats lack."""
    buffer = io.BytesIO()
    pq.write_table(PARQUET, buffer)
    return buffer.getvalue()


def test_parquet_to_jsonl(parquet: bytes) -> None:
    """Dates are ISO, bytes base64, NaN and infinities null, decimals text."""
    lines = convert(parquet, "jsonl").decode().splitlines()
    first, second = (json.loads(line) for line in lines)
    assert {key: first[key] for key in PARQUET.column_names} == {
        "day": "2024-02-29",
        "at": "2024-01-02T03:04:05",
        "ns": "1970-01-01T00:00:00.000000001Z",
        "raw": "/wA=",
        "f": None,
        "list": [1.5, None],
        "price": "1.50",
        "yes": True,
        "map": [["k", 1]],
    }
    assert [second[key] for key in PARQUET.column_names] == [None] * 9
    assert "NaN" not in lines[0]


def test_parquet_to_csv(parquet: bytes) -> None:
    """The same in cells; null is empty, numbers that JSON lacks keep their names."""
    rows = list(csv.reader(io.StringIO(convert(parquet, "csv").decode())))
    assert rows[1][:9] == [
        *("2024-02-29", "2024-01-02T03:04:05", "1970-01-01T00:00:00.000000001Z", "/wA=", "nan"),
        *("[1.5, null]", "1.50", "true", '[["k", 1]]'),
    ]
    assert rows[2][:9] == ["", "", "", "", "inf", "", "", "", ""]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")), st.integers()),
        min_size=1,
        max_size=6,
    )
)
def test_texts_survive_every_crossing(rows: list[tuple[str, int]]) -> None:
    """JSONL to CSV, TSV and Parquet and from each back to JSONL gives the same texts in the same order."""
    data = "\n".join(json.dumps({"text": text, "n": str(n)}) for text, n in rows).encode()
    for form in ("csv", "tsv", "parquet"):
        middle = convert(data, form)
        source = open_source("-", stdin=io.BytesIO(middle), format=form)
        windows = list(source.windows(2, ["text", "n"]))
        cells = [pair for window in windows for pair in zip(*window.cells.values(), strict=True)]
        assert cells == [(text, str(n)) for text, n in rows]


def test_cell_text_of_plain_values() -> None:
    """Numbers in shortest form, times ISO, whatever else as its own text."""
    assert [cell_text(value) for value in (1, 1.5, 1e-7, dt.time(1, 2), dt.timedelta(1))] == [
        *("1", "1.5", "1e-07", "01:02:00", "1 day, 0:00:00"),
    ]
