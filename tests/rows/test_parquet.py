from __future__ import annotations

import datetime as dt
import gzip
import io
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lengthwise.errors import InputError, OptionError
from lengthwise.rows import open_sink, open_source
from lengthwise.rows.parquet_write import usable_codec
from tests.rows.labelling import COLUMNS, answers_for, label_bytes, label_file, pass_through

TABLE = pa.table(
    {
        "id": pa.array([1, 2, None, 4, 5], pa.int32()),
        "text": pa.array(["a", None, "", "nan", "null"], pa.large_string()),
        "when": pa.array([0, 1, 2, 3, None], pa.timestamp("ns", "Europe/Berlin")),
        "tags": pa.array([["x"], [], None, ["y", None], ["z"]]),
        "kind": pa.array(["k", "l", "k", None, "k"]).dictionary_encode(),
        "raw": pa.array([b"\xff", b"", None, b"b", b"c"]),
        "price": pa.array([Decimal("1.50")] * 5, pa.decimal128(5, 2)),
    }
)


def written(path: Path, table: pa.Table = TABLE, **options: object) -> Path:
    pq.write_table(table, path, **options)
    return path


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
def test_columns_types_metadata_and_codec_stay(tmp_path: Path, codec: str) -> None:
    """The output is the input's table with the answers behind, in the same compression."""
    table = TABLE.replace_schema_metadata({"origin": "crm"})
    path = written(tmp_path / "in.parquet", table, compression=codec)
    label_file(path, tmp_path / "out.parquet", size=2)
    out = pq.ParquetFile(tmp_path / "out.parquet")
    assert out.read().select(TABLE.column_names).equals(pq.read_table(path))
    assert out.schema_arrow.metadata[b"origin"] == b"crm"
    assert out.metadata.row_group(0).column(0).compression == {"none": "UNCOMPRESSED"}.get(
        codec, codec.upper()
    )
    assert [out.metadata.row_group(group).num_rows for group in range(3)] == [2, 2, 1]
    assert out.read(["margin"])["margin"].to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_pandas_index_survives(tmp_path: Path) -> None:
    """A frame written by pandas is read by pandas with its index and the answers."""
    pd.DataFrame({"text": ["a", "b"]}, index=["r1", "r2"]).to_parquet(tmp_path / "in.parquet")
    label_file(tmp_path / "in.parquet", tmp_path / "out.parquet")
    frame = pd.read_parquet(tmp_path / "out.parquet")
    assert list(frame.index) == ["r1", "r2"]
    assert list(frame["label"]) == ["billing", "billing"]


def test_only_wanted_columns_become_values(tmp_path: Path) -> None:
    """Cells are Python values with None for null; rows are numbered from 1 and counted beforehand."""
    with open_source(written(tmp_path / "in.parquet")) as source:
        assert source.total_rows == 5
        assert source.schema.equals(TABLE.schema)
        windows = list(source.windows(4, ["text"]))
    assert [dict(window.cells) for window in windows] == [
        {"text": ["a", None, "", "nan"]},
        {"text": ["null"]},
    ]
    assert [list(window.line_numbers) for window in windows] == [[1, 2, 3, 4], [5]]


def test_windows_do_not_end_with_row_groups(tmp_path: Path) -> None:
    """Windows have the wanted size whatever the file's row groups are."""
    path = written(tmp_path / "in.parquet", pa.table({"n": list(range(100))}), row_group_size=7)
    with open_source(path) as source:
        windows = list(source.windows(16, ["n"]))
    assert [len(window) for window in windows] == [16] * 6 + [4]
    assert [cell for window in windows for cell in window.cells["n"]] == list(range(100))


def test_pipes_in_and_out(tmp_path: Path) -> None:
    """Parquet works through stdin and stdout."""
    data = written(tmp_path / "in.parquet").read_bytes()
    assert pq.read_table(io.BytesIO(label_bytes(data)))["label"].to_pylist() == ["billing"] * 5


def test_no_rows(tmp_path: Path) -> None:
    """A table without rows gives a table without rows, answer columns and all."""
    path = written(tmp_path / "in.parquet", TABLE.slice(0, 0))
    label_file(path, tmp_path / "out.parquet")
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.num_rows == 0
    assert out.column_names == [*TABLE.column_names, "label", "probability", "margin", "status"]


def test_missing_answers_are_null(tmp_path: Path) -> None:
    """None, NaN and infinities are null, numbers have six decimals."""
    source = open_source(written(tmp_path / "in.parquet"))
    with source, open_sink(tmp_path / "o.parquet", source=source, answer_columns=COLUMNS) as sink:
        window = next(source.windows(2, ["text"]))
        answers = {**answers_for(window), "label": [None, "a"], "probability": [float("nan"), 2 / 3]}
        sink.write(window, {**answers, "margin": [None, float("inf")]})
        sink.commit()
    out = pq.read_table(tmp_path / "o.parquet")
    assert out["label"].to_pylist() == [None, "a"]
    assert out["probability"].to_pylist() == [None, 0.666667]
    assert out["margin"].to_pylist() == [None, None]


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"PAR1 is no table PAR1", b"id,text\n1,2\n"])
def test_what_is_no_parquet(tmp_path: Path, damage: bytes) -> None:
    """Whatever Arrow says becomes one sentence with the file."""
    path = tmp_path / "in.parquet"
    path.write_bytes(damage)
    with pytest.raises(
        InputError, match=r"in.parquet is not a whole Parquet file .*; fetch or write it again"
    ) as caught:
        open_source(path)
    assert "\n" not in str(caught.value)


def test_damage_in_the_middle(tmp_path: Path) -> None:
    """Damage that shows only while reading is an InputError too."""
    path = written(
        tmp_path / "in.parquet", pa.table({"t": [f"text {i}" for i in range(5000)]}), compression="gzip"
    )
    data = bytearray(path.read_bytes())
    data[100:2000] = b"\xaa" * 1900
    path.write_bytes(bytes(data))
    with open_source(path) as source, pytest.raises(InputError, match="is not a whole Parquet file"):
        list(source.windows(100, ["t"]))


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    """Arrow allows twins; which of them is meant would be a guess."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InputError, match="two columns called 'a'"):
        open_source(written(tmp_path / "in.parquet", table))


def test_an_encoding_makes_no_sense(tmp_path: Path) -> None:
    """An option that would do nothing is refused."""
    with pytest.raises(OptionError, match="--encoding is for text formats"):
        open_source(written(tmp_path / "in.parquet"), encoding="latin-1")


def test_packed_parquet(tmp_path: Path) -> None:
    """Gzip around Parquet is named with the mend."""
    path = tmp_path / "in.parquet.gz"
    path.write_bytes(gzip.compress(written(tmp_path / "in.parquet").read_bytes()))
    with pytest.raises(InputError, match="is gzip around Parquet; unpack it first"):
        open_source(path)


def test_codec_that_cannot_be_written() -> None:
    """A codec this Arrow cannot write gives way to the default one."""
    assert usable_codec("LZO") == "snappy"
    assert usable_codec("UNCOMPRESSED") == "none"
    assert usable_codec("ZSTD") == "zstd"


def test_times_finer_than_pythons_are_texts(tmp_path: Path) -> None:
    """Nanoseconds are not lost when such a column is asked for; others are Python's own values."""
    table = pa.table(
        {
            "ns": pa.array([1_000_000_007], pa.timestamp("ns")),
            "us": pa.array([7], pa.timestamp("us")),
            "of_day": pa.array([7], pa.time64("ns")),
            "took": pa.array([7], pa.duration("ns")),
        }
    )
    with open_source(written(tmp_path / "in.parquet", table)) as source:
        cells = next(source.windows(1, table.column_names)).cells
    assert cells == {
        "ns": ["1970-01-01T00:00:01.000000007"],
        "us": [dt.datetime(1970, 1, 1, 0, 0, 0, 7)],
        "of_day": ["00:00:00.000000007"],
        "took": [7],
    }


def test_pass_through_of_nothing_wanted(tmp_path: Path) -> None:
    """No column need be wanted for records to pass through."""
    source = open_source(written(tmp_path / "in.parquet"))
    windows = pass_through(source, open_sink(tmp_path / "o.parquet", source=source, answer_columns=COLUMNS))
    assert [dict(window.cells) for window in windows] == [{}, {}]
