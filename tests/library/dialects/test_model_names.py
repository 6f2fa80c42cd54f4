"""Model names as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.library.dialects.model_names import normalize_model


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (None, "inherit"),
        ("", "inherit"),
        ("null", "inherit"),
        ("inherit", "inherit"),
        ("Inherit", "inherit"),
        ("sonnet", "sonnet"),
        ("Opus", "opus"),
        ("haiku", "haiku"),
        ("fable", "fable"),
        ("fast", "fast"),
        ("default", "default"),
        ("Auto (copilot)", "default"),
        ("claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet@20240620"),
        ("Claude Sonnet 4.5", "claude-sonnet-4-5"),
        ("Claude Sonnet 4.5 (copilot)", "claude-sonnet-4-5"),
        ("Claude Sonnet 4.5 (Preview) (copilot)", "claude-sonnet-4-5"),
        ("Claude Sonnet 4", "claude-sonnet-4"),
        ("Sonnet 4.5", "claude-sonnet-4-5"),
        ("GPT-4.1", "gpt-4.1"),
        ("GPT-5 (copilot)", "gpt-5"),
        ("GPT-5 mini", "gpt-5-mini"),
        ("Gemini 2.5 Pro", "gemini-2.5-pro"),
        ("o4-mini", "o4-mini"),
        ("qwen2.5-coder:7b", "qwen2.5-coder:7b"),
        ("anthropic/claude-sonnet-4-20250514", "anthropic/claude-sonnet-4-20250514"),
        ("openrouter/openai/gpt-5", "openrouter/openai/gpt-5"),
        ("my-tune-v2", "my-tune-v2"),
    ],
)
def test_every_usual_spelling_gives_one_name_without_complaint(written: str | None, name: str) -> None:
    model, problems = normalize_model(written, "copilot")
    assert (model.name, problems) == (name, [])
    assert model.original == written


@pytest.mark.parametrize(
    "written",
    [
        "banana",
        "gpt",
        "claude",
        "Claude is a good choice for this",
        "the best one you have",
        "../../etc/passwd",
        "so\u200bnnet",
        "x" * 300,
        [],
        ["banana"],
        {"a": "b"},
        7,
        True,
    ],
)
def test_what_is_no_model_inherits_with_a_warning(written: object) -> None:
    model, problems = normalize_model(written, "claude")
    assert model.name == "inherit"
    assert [(p.severity, p.code) for p in problems] == [("warning", "model-unknown")]


def test_a_misspelt_alias_is_suggested() -> None:
    _, problems = normalize_model("sonett", "claude")
    assert "`sonnet`" in problems[0].fix


@pytest.mark.parametrize(
    ("written", "name", "variant"),
    [
        ("openai/gpt-5#high", "openai/gpt-5", "high"),
        ("sonnet[1m]", "sonnet", "1m"),
        ("claude-opus-4-1#thinking", "claude-opus-4-1", "thinking"),
        ("composer-2.5[fast=true]", "composer-2.5", "fast=true"),
        ("grok-4.6[effort=high,fast=false]", "grok-4.6", "effort=high,fast=false"),
        ("grok-4.6[effort=high, fast=false]", "grok-4.6", "effort=high,fast=false"),
        ("gpt-5.6-sol[]", "gpt-5.6-sol", ""),
    ],
)
def test_a_variant_is_kept_apart(written: str, name: str, variant: str) -> None:
    model, problems = normalize_model(written, "opencode")
    assert (model.name, model.variant, problems) == (name, variant, [])


@pytest.mark.parametrize(
    "written",
    [
        ["GPT-4.1", "gpt-5", "Claude Sonnet 4.5"],
        "GPT-4.1 | 'gpt-5' | 'Claude Sonnet 4.5'",
        "['GPT-4.1', 'gpt-5', 'Claude Sonnet 4.5']",
        "GPT-4.1, gpt-5, Claude Sonnet 4.5, gpt-5",
    ],
)
def test_several_models_are_a_priority(written: object) -> None:
    model, problems = normalize_model(written, "copilot")
    assert (model.name, model.alternatives) == ("gpt-4.1", ("gpt-5", "claude-sonnet-4-5"))
    assert problems == []


def test_parameters_in_brackets_do_not_part_a_list_and_can_be_read_again() -> None:
    model, problems = normalize_model("gpt-5, grok-4.6[effort=high,fast=false], opus[1m]", "cursor")
    assert (model.name, model.alternatives) == ("gpt-5", ("grok-4.6[effort=high,fast=false]", "opus#1m"))
    assert problems == []
    again = normalize_model(list(model.alternatives), "cursor")[0]
    assert (again.name, again.variant, again.alternatives) == ("grok-4.6", "effort=high,fast=false", ("opus#1m",))
    assert normalize_model("[opus, sonnet[1m]]", "cursor")[0].alternatives == ("sonnet#1m",)


def test_one_bad_name_among_good_ones_is_named() -> None:
    model, problems = normalize_model(["banana", "opus"], "claude")
    assert model.name == "opus"
    assert "`banana`" in problems[0].problem


def test_a_map_of_provider_and_model_is_understood() -> None:
    assert normalize_model({"providerID": "openai", "modelID": "gpt-5"}, "opencode")[0].name == "openai/gpt-5"


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=40))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@given(values)
def test_any_value_gives_a_printable_ascii_name(value: object) -> None:
    model, problems = normalize_model(value, "claude")
    for name in (model.name, *model.alternatives):
        assert name
        assert name.isascii()
        assert name.isprintable()
        assert " " not in name
    assert all(p.severity == "warning" and p.fix for p in problems)


@given(st.text(max_size=40))
def test_a_name_that_was_normalised_stays_as_it_is(text: str) -> None:
    once = normalize_model(text, "copilot")[0]
    assert normalize_model(once.name, "copilot")[0].name == once.name
