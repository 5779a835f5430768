from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import InputError, OptionError, OutputError
from lengthwise.rows import open_sink, open_source
from tests.rows.labelling import ADDED, COLUMNS, answers_for, cells_of, label_bytes, label_file, pass_through

CELLS = st.text(
    st.one_of(
        st.sampled_from(list("\"',;\t|\r\n \u2028\x0b\x85\ufeff\U0001f600äab")),
        st.characters(exclude_categories=("Cs",), exclude_characters="\0"),
    ),
    max_size=12,
)


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[bytes, list[list[str]], str]:
    """A CSV file as bytes, its cells, and its delimiter; all that may vary varies."""
    width = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=8))
    delimiter = draw(st.sampled_from(",;\t|"))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    quoting = draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
    # the csv module of Python 3.11 leaves \r unquoted unless it is part of the line end
    if quoting == csv.QUOTE_MINIMAL and end == "\n":
        rows = [[cell.replace("\r", "") for cell in row] for row in rows]
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([[f"column {place}" for place in range(width)], *rows])
    text = file.getvalue()
    if draw(st.booleans()):
        text = text.removesuffix(end)
    bom, codec = draw(
        st.sampled_from(
            [
                (b"", "utf-8"),
                (codecs.BOM_UTF8, "utf-8"),
                (codecs.BOM_UTF16_LE, "utf-16-le"),
                (codecs.BOM_UTF16_BE, "utf-16-be"),
            ]
        )
    )
    return bom + text.encode(codec), rows, delimiter


@settings(max_examples=150, deadline=None)
@given(csv_files(), st.integers(1, 4))
def test_any_csv_comes_out_byte_for_byte_with_the_answers_behind(
    file: tuple[bytes, list[list[str]], str], size: int
) -> None:
    """Taking the answers off again gives the very bytes that went in, whatever the cells hold."""
    data, rows, delimiter = file
    out = label_bytes(data, size=size, format="csv", delimiter=delimiter)
    codec = "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"
    exact = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(data[:2], "utf-8")
    rest = out
    for added in [ADDED, *([["billing", "0.5", f"{float(i)}", "ok"] for i in range(len(rows))])]:
        tail = "".join(delimiter + cell for cell in added).encode(exact)
        before, found, rest = rest.partition(tail)
        assert found
        assert data.startswith(before)
        data = data.removeprefix(before)
    assert data == rest
    parsed = list(csv.reader(io.StringIO(out.decode(codec), newline=""), delimiter=delimiter))
    assert [row[:-4] for row in parsed[1:] if row] == rows


@settings(max_examples=60, deadline=None)
@given(csv_files())
def test_cells_are_those_of_the_csv_module(file: tuple[bytes, list[list[str]], str]) -> None:
    """What the engine sees of a column is what was written, in input order."""
    data, rows, delimiter = file
    assert cells_of(data, "column 0", 2, format="csv", delimiter=delimiter) == [row[0] for row in rows]


def test_untouched_columns_keep_their_odd_spelling() -> None:
    """Needless quotes, trailing blanks, mixed line ends and a missing last line end all stay."""
    data = b'\xef\xbb\xbf"id", text ,x\r\n007,"plain",  1.50 \n8, spaced ,"a ""b"""\r\n9,"two\nlines",'
    assert label_bytes(data) == (
        b'\xef\xbb\xbf"id", text ,x,label,probability,margin,status\r\n'
        b'007,"plain",  1.50 ,billing,0.5,0.0,ok\n'
        b'8, spaced ,"a ""b""",billing,0.5,1.0,ok\r\n'
        b'9,"two\nlines",,billing,0.5,2.0,ok'
    )


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [
        ("id,text", ","),
        ("id;text", ";"),
        ("id\ttext", "\t"),
        ("id|text", "|"),
        ('"a;b;c",text', ","),
        ('id;"text, or, none"', ";"),
        ("text", ","),
    ],
)
def test_delimiter_is_found_in_the_header(header: str, delimiter: str) -> None:
    """Commas, semicolons, tabs and bars are told apart; quoted ones do not count."""
    source = open_source("-", stdin=io.BytesIO(header.encode()), format="csv")
    assert source.delimiter == delimiter


def test_delimiter_agrees_with_the_first_record_when_the_header_is_ambiguous() -> None:
    """A header with more commas than semicolons is still split where the records are."""
    source = open_source("-", stdin=io.BytesIO(b"id;what, when, why\n1;hello\n"))
    assert source.columns == ("id", "what, when, why")


@pytest.mark.parametrize("given_as", ["tab", "\\t", "\t"])
def test_delimiter_can_be_named(given_as: str) -> None:
    """A tab is hard to type, so words work too."""
    assert cells_of(b"a,b\tc\n1,2\t3\n", "a,b", delimiter=given_as) == ["1,2"]


@pytest.mark.parametrize("wrong", ["", ",,", '"', "\n"])
def test_unusable_delimiter(wrong: str) -> None:
    """A delimiter that cannot be one is an error about the flag."""
    with pytest.raises(OptionError, match="it must be one character or the word tab"):
        open_source("-", stdin=io.BytesIO(b"a,b\n"), delimiter=wrong)


def test_tsv_is_split_at_tabs_only(tmp_path: Path) -> None:
    """A TSV header full of commas has one column a tab."""
    path = tmp_path / "in.tsv"
    path.write_bytes(b"a,b,c\ttext\n1,2,3\tx, y\n")
    assert label_file(path, tmp_path / "out.tsv") == (
        b"a,b,c\ttext\tlabel\tprobability\tmargin\tstatus\n1,2,3\tx, y\tbilling\t0.5\t0.0\tok\n"
    )


def test_windows_number_rows_and_lines() -> None:
    """Windows have the wanted size, go on counting, and name the line where each record begins."""
    data = b'text,n\n"a\nb",1\n\nc,2\nd,3\ne,4\n'
    with open_source("-", stdin=io.BytesIO(data)) as source:
        windows = list(source.windows(2, ["n"]))
    assert [window.first_row for window in windows] == [0, 2]
    assert [list(window.line_numbers) for window in windows] == [[2, 5], [6, 7]]
    assert [list(window.cells["n"]) for window in windows] == [["1", "2"], ["3", "4"]]
    assert list(windows[0].cells) == ["n"]


def test_a_window_ends_early_when_its_records_are_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by bytes too, not only by the number of rows."""
    monkeypatch.setattr("lengthwise.rows.source.WINDOW_BYTES", 10)
    with open_source("-", stdin=io.BytesIO(b"text\n123456789\n123456789\n1\n1\n")) as source:
        assert [len(window) for window in source.windows(100, ["text"])] == [1, 1, 2]


def test_blank_lines_are_left_out() -> None:
    """Blank lines are no rows and do not appear in the output; blank cells are rows."""
    assert label_bytes(b"\na,b\n\n1,2\n   \n,\n\n") == (
        b"a,b,label,probability,margin,status\n1,2,billing,0.5,0.0,ok\n,,billing,0.5,1.0,ok\n"
    )


def test_header_only_is_no_error() -> None:
    """A file without rows has columns, no windows, and an output with a header."""
    source = open_source("-", stdin=io.BytesIO(b"a,b"))
    assert source.columns == ("a", "b")
    assert label_bytes(b"a,b") == b"a,b,label,probability,margin,status"


def test_old_mac_line_ends() -> None:
    """Lines that end with a lone carriage return are lines."""
    assert label_bytes(b"a,b\r1,2\r3,4\r") == (
        b"a,b,label,probability,margin,status\r1,2,billing,0.5,0.0,ok\r3,4,billing,0.5,1.0,ok\r"
    )


def test_words_for_nothing_stay_words() -> None:
    """NA, null, nan and an empty cell are texts; CSV has no missing cells."""
    assert cells_of(b"text,x\nNA,1\nnull,1\nnan,1\nNone,1\n,1\n", "text") == ["NA", "null", "nan", "None", ""]


def test_a_cell_of_ten_megabytes() -> None:
    """The csv module's limit of 128 KiB a field is lifted, also while the delimiter is looked for."""
    text = b"x," * 5_000_000
    out = label_bytes(b'id;text\n1;"' + text + b'"\n')
    assert out.endswith(text + b'";billing;0.5;0.0;ok\n')


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "stdin is empty; it needs a header line"),
        (b"\xef\xbb\xbf", "stdin is empty"),
        (b"\n\n", "stdin is empty"),
        (b"a,b,a\n1,2,3\n", "line 1: the header has two columns called 'a'"),
        (b"\na,,\n1,2,3\n", "line 2: the header has two columns without a name"),
        (b"a,b\n1,2\n3,4,5\n", "line 3: 3 columns where the header has 2; put cells that hold a comma in"),
        (b"a;b\n1;2\n3\n", "line 3: 1 column where the header has 2; put cells that hold a semicolon"),
        (
            b'a,b\n1,"x\ny"\n2,"open\n3,4\n',
            r"line 4: the quoting .* is broken \(noticed at line 5: unexpected end",
        ),
        (b'a,b\n1,2\n3,"x" y\n', "line 3: the quoting of the record that begins here is broken"),
        (b'a,b\n1,"x\n\n"z,3\n', r"line 2: the quoting .* \(noticed at line 4"),
        (b"a,b\n1,2\n3,\x00\n", "line 3: there is a NUL byte"),
        (b"a,b\n1,2\n3,\xe9t\xe9\n", "line 3: byte 0xE9 is not UTF-8 text; .* --encoding latin-1"),
        (b"a,b\r1,2\r3,\xff\r", "line 3: byte 0xFF is not UTF-8"),
    ],
)
def test_what_cannot_be_read_names_the_line(data: bytes, message: str) -> None:
    """Every defect of a CSV file is one sentence with the line, also behind records with line feeds."""
    with pytest.raises(InputError, match=message) as caught:
        label_bytes(data, format="csv")
    assert str(caught.value).count("\n") == 0
    assert caught.value.exit_code == 3


def test_rows_before_a_defect_are_read() -> None:
    """Reading is lazy: the window before the broken record comes out first."""
    with open_source("-", stdin=io.BytesIO(b"a,b\n1,2\n3,4\n5\n")) as source:
        windows = source.windows(2, ["a"])
        assert list(next(windows).cells["a"]) == ["1", "3"]
        with pytest.raises(InputError, match="line 4"):
            next(windows)


def test_a_quote_that_is_never_closed_does_not_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell longer than the limit is taken for broken quoting, with the line where it began."""
    monkeypatch.setattr("lengthwise.rows.csv_read.FIELD_LIMIT", 200_000)
    old = csv.field_size_limit(1000)
    try:
        with pytest.raises(InputError, match=r"line 2: the quoting .* larger than field limit"):
            label_bytes(b'a,b\n1,"' + b"line\n" * 100_000, format="csv", delimiter=",")
    finally:
        csv.field_size_limit(old)


@pytest.mark.parametrize("codec", ["latin-1", "cp1252", "gbk", "shift_jis", "utf-16", "utf-16-be", "utf-32"])
def test_other_encodings_pass_through(codec: str) -> None:
    """A named encoding is read and written; bytes of untouched cells are the same."""
    text = "编号,内容\n1,表}示\n" if codec in ("gbk", "shift_jis") else "id,text\n1,été\n"
    text = text.replace("编号", "番号").replace("内容", "本文") if codec == "shift_jis" else text
    out = label_bytes(text.encode(codec), encoding=codec, format="csv")
    lines = text.splitlines()
    expected = f"{lines[0]},label,probability,margin,status\n{lines[1]},billing,0.5,0.0,ok\n"
    assert out == expected.encode(codec)


def test_bytes_that_no_encoder_would_write_are_kept() -> None:
    """Where a codec has two spellings of a character, the input's own one comes out."""
    twin = b"\xfa\x54"  # cp932 decodes this to a sign that it encodes as 0x81CA
    assert twin.decode("cp932").encode("cp932") != twin
    assert twin + b",billing" in label_bytes(b"a,b\n1," + twin + b"\n", encoding="cp932")


def test_label_that_the_encoding_lacks() -> None:
    """A label that the input's encoding cannot write is an error with the mend."""
    out = io.BytesIO()
    source = open_source("-", stdin=io.BytesIO(b"a,b\n1,2\n"), encoding="latin-1")
    sink = open_sink("-", source=source, answer_columns=COLUMNS, stdout=out)
    window = next(source.windows(1, ["a"]))
    with pytest.raises(
        OutputError, match=r"'账单' cannot be written in iso8859-1.* convert the input to UTF-8"
    ):
        sink.write(window, answers_for(window, "账单"))


def test_labels_are_quoted_for_the_delimiter() -> None:
    """A label with the delimiter, a quote or a line feed stays one cell."""
    label = 'loans; "cards"\nand more, too'
    out = io.BytesIO()
    source = open_source("-", stdin=io.BytesIO(b"a;b\n1;2\n"))
    sink = open_sink("-", source=source, answer_columns=COLUMNS, stdout=out)
    window = next(source.windows(1, ["a"]))
    sink.write(window, answers_for(window, label))
    rows = list(csv.reader(io.StringIO(out.getvalue().decode(), newline=""), delimiter=";", strict=True))
    assert rows[1] == ["1", "2", label, "0.5", "0.0", "ok"]


def test_numbers_and_missing_answers() -> None:
    """Six decimals at most; None, NaN and infinities are empty cells."""
    out = io.BytesIO()
    source = open_source("-", stdin=io.BytesIO(b"a\n1\n2\n3\n"))
    sink = open_sink("-", source=source, answer_columns=COLUMNS, stdout=out)
    window = next(source.windows(3, ["a"]))
    answers = {"label": [None] * 3, "probability": [1 / 3, float("nan"), 1e-7], "status": ["empty"] * 3}
    sink.write(window, {**answers, "margin": [2, float("-inf"), None]})
    assert out.getvalue().decode().splitlines()[1:] == [
        "1,,0.333333,2.0,empty",
        "2,,,,empty",
        "3,,0.0,,empty",
    ]


def test_unknown_column_of_windows() -> None:
    """Asking for a column that is not there lists those that are."""
    source = open_source("-", stdin=io.BytesIO(b"id,text\n"))
    with pytest.raises(OptionError, match="no column 'txt'; it has: id, text; did you mean 'text'"):
        next(source.windows(1, ["txt"]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 70))
def test_row_order_is_input_order(lines: list[int], size: int) -> None:
    """Row i of the output is row i of the input for every window size, with records of several lines."""
    body = "".join(f'{number},"{"x" + chr(10) * breaks}"\n' for number, breaks in enumerate(lines))
    out = label_bytes(f"id,text\n{body}".encode(), size=size)
    rows = list(csv.reader(io.StringIO(out.decode(), newline="")))[1:]
    assert [(row[0], float(row[4])) for row in rows] == [(str(i), float(i)) for i in range(len(lines))]


def test_progress_of_a_file(tmp_path: Path) -> None:
    """The share of bytes read ends at the file's size."""
    path = tmp_path / "in.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 1000)
    source = open_source(path)
    assert source.bytes_total == 4004
    sink = open_sink(tmp_path / "o.csv", source=source, answer_columns=COLUMNS)
    for window in source.windows(10, ["a"]):
        sink.write(window, answers_for(window))
    assert source.bytes_read == 4004
    sink.abort()
    source.close()


def test_a_source_is_read_once() -> None:
    """A second reading gives nothing more instead of wrong rows."""
    source = open_source("-", stdin=io.BytesIO(b"a\n1\n"))
    sink = open_sink("-", source=source, answer_columns=COLUMNS, stdout=io.BytesIO())
    assert len(pass_through(source, sink)) == 1
    assert list(source.windows(1, ["a"])) == []
