"""Rows of JSON Lines and CSV files: what is read, and what a bad file says."""

from pathlib import Path

import pytest

from kitbag.errors import InvalidError, KitbagError, NotFoundError, UsageError
from kitbag.text.row_files import Row, check_columns, fill_columns, find_columns, read_rows


def write(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def test_json_lines_are_rows_with_their_line_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.jsonl", b'\xef\xbb\xbf{"a": 1}\n\n{"a": {"b": null}}')
    assert list(read_rows(path)) == [Row(1, 1, {"a": 1}), Row(2, 3, {"a": {"b": None}})]


def test_csv_has_a_header_quotes_line_breaks_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.csv", '\ufeffname, note\r\n"Anna","a ""b""\nc"\r\n\r\nÖl,\r\n'.encode())
    assert [row.values for row in read_rows(path)] == [{"name": "Anna", "note": 'a "b"\nc'}, {"name": "Öl", "note": ""}]
    assert [row.line for row in read_rows(path)] == [2, 5]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("r.jsonl", b'{"a": 1}\n{"a": \n', "r.jsonl:2: not valid JSON"),
        ("r.jsonl", b'{"a": 1}\n[1]\n', "r.jsonl:2: not a JSON object"),
        ("r.jsonl", b'{"a": "\xff"}\n', "r.jsonl:1: not valid JSON"),
        ("r.jsonl", b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", "r.jsonl:1: not valid JSON"),
        ("r.csv", b"a,b\n1,2\n3\n", "r.csv:3: 1 value, but the header has 2 columns"),
        ("r.csv", b'a,b\n1,2\n3,"4\n', "r.csv:3: not valid CSV"),
        ("r.csv", b'a,b\n"1"x,2\n', "r.csv:2: not valid CSV"),
        ("r.csv", b"a,b,a\n1,2,3\n", "r.csv:1: two columns are named 'a'"),
        ("r.csv", b"a,,b\n1,2,3\n", "r.csv:1: column 2 has no name"),
        ("r.csv", b"a,b\n1,\xff\n", "r.csv:2: not valid UTF-8"),
        ("r.txt", b"a\n", "r.txt: unknown kind of file"),
    ],
)
def test_a_bad_file_is_named_with_the_line(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(KitbagError) as caught:
        list(read_rows(path))
    assert problem in caught.value.problem
    assert caught.value.fix


def test_a_missing_file_and_a_folder_say_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        list(read_rows(str(tmp_path / "none.csv")))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidError):
        list(read_rows(str(tmp_path / "folder.csv")))


def test_columns_are_filled_in_one_pass() -> None:
    row = Row(1, 1, {"a": "{{b}}", "b c": 2, "n": None, "list": ["ö"]})
    text = "{{a}} {{ b c }} [{{n}}] {{list}} {b} {{}}"
    assert find_columns(text) == ["a", "b c", "n", "list"]
    assert fill_columns(text, row) == '{{b}} 2 [] ["ö"] {b} {{}}'


def test_an_unknown_column_names_the_line_and_similar_columns() -> None:
    with pytest.raises(UsageError) as caught:
        check_columns("r.csv", Row(1, 2, {"name": "x", "age": 1}), find_columns("{{nmae}}"))
    assert caught.value.problem == "r.csv:2: no column 'nmae', which the prompt names"
    assert caught.value.fix == "did you mean name?"
