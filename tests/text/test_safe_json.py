"""JSON from strangers: the same depth is read on every Python version."""

import json

import pytest

from kitbag.text.safe_json import MAX_DEPTH, parse_json


def nested(depth: int) -> list[str]:
    mixed = '[{"a":' * (depth // 2) + "[]" * (depth % 2) + ("1" if depth % 2 == 0 else "") + "}]" * (depth // 2)
    return ["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, mixed]


def test_what_is_as_deep_as_it_may_be_is_read() -> None:
    for text in nested(MAX_DEPTH):
        assert json.dumps(parse_json(text), separators=(",", ":")) == text


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 600, 1_200, 5_000, 100_000])
def test_what_is_deeper_is_refused(depth: int) -> None:
    for text in nested(depth):
        with pytest.raises(RecursionError, match=f"more than {MAX_DEPTH} levels"):
            parse_json(text)
        with pytest.raises(RecursionError, match=f"more than {MAX_DEPTH} levels"):
            parse_json(f'{{"before": [], "deep": [1, {text}]}}')


def test_what_is_long_is_not_deep() -> None:
    text = json.dumps([[["[" * 300], {"{": {}}] for _ in range(500)])
    assert parse_json(text) == json.loads(text)


def test_what_is_no_json_is_an_error_with_its_place() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        parse_json('{"a": 1,\n}')
    assert caught.value.lineno >= 1
    with pytest.raises(ValueError, match="NaN"):
        parse_json("NaN", parse_constant=_refuse)


def _refuse(name: str) -> object:
    raise ValueError(name)
