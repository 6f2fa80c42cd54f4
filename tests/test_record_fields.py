"""Names in records stay as they are, whatever the fields are called in code."""

from typing import NamedTuple

import msgspec
import pytest

from kitbag.record_fields import RecordFields


class Point(NamedTuple):
    across: int
    down: int = 0


POINT = RecordFields(Point, "down", across="x")


def test_a_renamed_field_keeps_its_name_in_records() -> None:
    assert POINT.write(Point(1, 2)) == {"down": 2, "x": 1}
    assert POINT.read({"x": 1, "down": 2}) == Point(1, 2)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    width: int
    depth: int = 0


def test_a_struct_keeps_its_names_in_records_too() -> None:
    size = RecordFields(Size, "depth", width="w")
    assert size.write(Size(width=1, depth=2)) == {"depth": 2, "w": 1}
    assert size.read({"w": 1}) == Size(width=1)
    with pytest.raises(TypeError, match="Size"):
        RecordFields(Size, "width")


def test_what_an_earlier_version_did_not_write_has_its_default_and_what_a_later_one_adds_is_ignored() -> None:
    assert POINT.read({"x": 1, "colour": "red"}) == Point(1)


def test_where_it_has_to_be_exact_unknown_names_are_refused() -> None:
    with pytest.raises(TypeError, match="unknown to this version"):
        POINT.read({"x": 1, "colour": "red"}, exact=True)


def test_a_field_without_a_default_must_be_there() -> None:
    with pytest.raises(TypeError):
        POINT.read({"across": 1})


@pytest.mark.parametrize("names", [("across",), ("across", "down", "width")])
def test_each_field_is_named_once_and_only_fields_are(names: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="Point"):
        RecordFields(Point, *names)
