"""What a model may send to the tools that read: everything wrong is an error, and nothing breaks."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.tools.base import Tool
from kitbag.tools.files.read import READ
from kitbag.tools.search.glob import GLOB
from kitbag.tools.search.grep import GREP
from support.matrix import examples
from support.using import Bench, text_of

TOOLS: tuple[Tool[Any], ...] = (READ, GLOB, GREP)
SUBJECT = {"Read": "file_path", "Glob": "pattern", "Grep": "pattern"}


def test_what_the_model_is_told_about_them_is_short() -> None:
    every = sum(len(json.dumps(tool.spec.schema)) + len(tool.description) + len(tool.name) for tool in TOOLS)
    assert every <= 3_500


def test_schemas_name_the_arguments_as_models_know_them() -> None:
    assert set(READ.spec.schema["properties"]) == {"file_path", "offset", "limit", "pages"}
    assert set(GLOB.spec.schema["properties"]) == {"pattern", "path"}
    assert set(GREP.spec.schema["properties"]) == {
        "pattern", "path", "glob", "type", "output_mode", "-i", "-n", "-A", "-B", "-C", "head_limit", "multiline",
    }  # fmt: skip
    assert all(tool.spec.schema["required"] == [SUBJECT[tool.name]] for tool in TOOLS)
    assert all(tool.read_only for tool in TOOLS)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
@pytest.mark.parametrize(
    "wrong",
    [None, 1, 1.5, True, [], {}, ["a"], "", b"a", "x" * 10_000, float("nan"), float("inf")],
    ids=lambda wrong: repr(wrong)[:20],
)
def test_a_subject_of_the_wrong_kind_is_refused(tool: Tool[Any], wrong: object) -> None:  # D58
    with pytest.raises(msgspec.ValidationError):
        tool.parse_arguments({SUBJECT[tool.name]: wrong})


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_missing_and_unknown_arguments_are_refused(tool: Tool[Any]) -> None:  # D58
    with pytest.raises(msgspec.ValidationError):
        tool.parse_arguments({})
    with pytest.raises(msgspec.ValidationError):
        tool.parse_arguments({SUBJECT[tool.name]: "a", "more": 1})
    with pytest.raises(msgspec.ValidationError):
        tool.parse_arguments([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        (READ, {"offset": -1}),
        (READ, {"offset": "5"}),
        (READ, {"offset": 10**400}),
        (READ, {"limit": 0}),
        (READ, {"limit": 1.5}),
        (READ, {"limit": None}),
        (GREP, {"output_mode": "all"}),
        (GREP, {"-A": -1}),
        (GREP, {"-C": 10**9}),
        (GREP, {"-i": "yes"}),
        (GREP, {"head_limit": 10**9}),
        (GREP, {"ignore_case": True}),
        (GLOB, {"path": 1}),
    ],
)
def test_values_out_of_range_are_refused(tool: Tool[Any], more: dict[str, Any]) -> None:  # D58
    with pytest.raises(msgspec.ValidationError):
        tool.parse_arguments({SUBJECT[tool.name]: "a", **more})


odd = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(categories=["Cs", "Cc", "Cf", "Zs"]), max_size=8),
    st.sampled_from(
        ["..", "/", "~", "~root", "*", "**", "\0", "\\", "-", "--", "(", "[", "{", "a" * 300, "/proc/self", "."]
    ),
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=odd, other=odd, third=odd)
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_whatever_text_comes_the_answer_can_be_sent(
    bench: Bench, tool: Tool[Any], text: str, other: str, third: str
) -> None:
    bench.allowing(mode="plan")
    arguments = {SUBJECT[tool.name]: text} | ({} if tool is READ else {"path": other})
    arguments |= {"glob": third} if tool is GREP else {}
    try:
        outcome = bench.use(tool, **arguments)
    except msgspec.ValidationError:
        return
    text_of(outcome).encode()
    outcome.summary.encode()
    outcome.truncation.encode()
