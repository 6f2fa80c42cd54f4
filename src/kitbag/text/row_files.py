"""Rows of a JSON Lines or CSV file, read one at a time, and `{{column}}` variables that they fill.

Used by `kitbag agents run --each`. A file that can't be read completely raises InvalidError with its line.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final, NamedTuple, cast

from kitbag.errors import InvalidError, NotFoundError, UsageError
from kitbag.text.human_format import did_you_mean, format_count
from kitbag.text.safe_json import parse_json

MAX_ROW_BYTES: Final = 10_000_000
_JSON_ENDINGS: Final = (".jsonl", ".ndjson")
_COLUMN: Final = re.compile(r"\{\{[ \t]*([^{}\n]+?)[ \t]*\}\}")


class Row(NamedTuple):
    number: int
    """From 1; header and blank lines don't count."""
    line: int
    """In the file."""
    values: Mapping[str, Any]


def read_rows(path: str) -> Iterator[Row]:
    """By the file's ending. Raises NotFoundError, UsageError and InvalidError."""
    ending = path.lower()
    if not ending.endswith((*_JSON_ENDINGS, ".csv")):
        raise UsageError(f"{path}: unknown kind of file", "use a .jsonl or .csv file")
    try:
        with open(path, "rb") as file:
            if not file.seekable():
                raise InvalidError(f"{path} is not a regular file", "save the rows to a file")
            yield from _read_csv(path, file) if ending.endswith(".csv") else _read_json_lines(path, file)
    except FileNotFoundError:
        raise NotFoundError(f"no file {path}", "check its name") from None
    except OSError as error:
        raise InvalidError(f"can't read {path}: {error.strerror or error}", "name a file that you can read") from error


def _read_json_lines(path: str, file: BinaryIO) -> Iterator[Row]:
    number = 0
    for line, raw in enumerate(iter(lambda: file.readline(MAX_ROW_BYTES + 1), b""), 1):
        place = f"{path}:{line}"
        if len(raw) > MAX_ROW_BYTES:
            raise InvalidError(f"{place}: longer than {MAX_ROW_BYTES:,} bytes", "shorten the row")
        try:
            text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
            if not text.strip():
                continue
            values = parse_json(text)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise InvalidError(f"{place}: not valid JSON: {reason}", "write one JSON object per line") from error
        if not isinstance(values, dict):
            raise InvalidError(f"{place}: not a JSON object", 'write one object per line, such as {"name": "x"}')
        number += 1
        yield Row(number, line, cast("dict[str, Any]", values))


def _read_csv(path: str, file: BinaryIO) -> Iterator[Row]:
    csv.field_size_limit(MAX_ROW_BYTES)
    lines = _decode_lines(path, file)
    reader = csv.reader(lines, strict=True)
    columns: list[str] = []
    number, begins_at = 0, 1
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"{path}:{begins_at}: not valid CSV: {error}"
            raise InvalidError(problem, 'put values with quotes or line breaks in "double quotes"') from error
        line, begins_at = begins_at, reader.line_num + 1
        if not fields:
            continue
        if not columns:
            columns = [name.strip() for name in fields]
            _check_header(f"{path}:{line}", columns)
            continue
        if len(fields) != len(columns):
            found, wanted = format_count(len(fields), "value"), format_count(len(columns), "column")
            problem = f"{path}:{line}: {found}, but the header has {wanted}"
            raise InvalidError(problem, "give each row a value for each column")
        number += 1
        yield Row(number, line, dict(zip(columns, fields, strict=True)))


def _decode_lines(path: str, file: BinaryIO) -> Iterator[str]:
    for line, raw in enumerate(iter(lambda: file.readline(MAX_ROW_BYTES + 1), b""), 1):
        try:
            yield raw.decode("utf-8-sig" if line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidError(f"{path}:{line}: not valid UTF-8: {error.reason}", "save the file as UTF-8") from error


def _check_header(place: str, columns: list[str]) -> None:
    if "" in columns:
        problem = f"{place}: column {columns.index('') + 1} has no name"
        raise InvalidError(problem, "name every column in the first line")
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise InvalidError(f"{place}: two columns are named {twice[:80]!r}", "give each column its own name")


def find_columns(text: str) -> list[str]:
    """The columns that a text names."""
    return list(dict.fromkeys(_COLUMN.findall(text)))


def fill_columns(text: str, row: Row) -> str:
    """In one pass: values are not searched for variables. Values that are not text are written as JSON, null as
    nothing."""
    return _COLUMN.sub(lambda match: format_value(row.values[match[1]]), text)


def format_value(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def check_columns(path: str, row: Row, columns: list[str]) -> None:
    """Raises UsageError if the row lacks one."""
    for name in columns:
        if name not in row.values:
            problem = f"{path}:{row.line}: no column {name[:80]!r}, which the prompt names"
            raise UsageError(problem, did_you_mean(name, row.values))
