"""What is known about models, and what the user's own entries change."""

import pytest

from kitbag.messages import Usage
from kitbag.models.catalog import (
    DEFAULT_WINDOW,
    MAX_OUTPUT,
    check_model_settings,
    known_model_names,
    look_up_model,
    model_aliases,
)


@pytest.mark.parametrize(
    ("name", "source", "window"),
    [
        ("anthropic/claude-sonnet-4-5-20250929", "claude-sonnet-4", 200_000),
        ("openrouter/anthropic/claude-opus-4-5", "claude-opus-4-5", 200_000),
        ("bedrock/us.anthropic.claude-haiku-4-5", "claude-haiku-4-5", 200_000),
        ("openai/GPT-5-mini", "gpt-5-mini", 400_000),
        ("ollama/qwen3:8b", "qwen3", 131_072),
    ],
)
def test_a_name_is_found_by_how_it_begins(name: str, source: str, window: int) -> None:
    known = look_up_model(name)
    assert known.source == f"models.toml: {source}"
    assert known.window == window


def test_every_entry_makes_sense() -> None:
    for name in known_model_names():
        known = look_up_model(name)
        assert known.window > known.max_output >= 256
        assert known.max_output <= MAX_OUTPUT
        assert (known.input_price is None) == (known.output_price is None)
    for provider in ("anthropic", "openai"):
        assert {"sonnet", "opus", "haiku", "default", "fast"} <= set(model_aliases(provider))


def test_an_unknown_model_is_assumed_small_and_its_price_is_not_known() -> None:
    known = look_up_model("x/never-heard-of")
    assert known.window == DEFAULT_WINDOW
    assert known.cost(Usage(input=1, output=1)) is None
    assert known.cost(Usage()) == 0.0


def test_what_a_reply_costs() -> None:
    known = look_up_model("anthropic/claude-sonnet-4-5")
    assert known.cost(Usage(input=1_000_000, output=0)) == 3.0
    assert known.cost(Usage(input=0, output=1_000_000, cache_read=1_000_000, cache_write=1_000_000)) == pytest.approx(
        15.0 + 0.3 + 3.75
    )
    assert look_up_model("openai/gpt-5").cost(Usage(input=0, output=0, cache_read=0, cache_write=1_000_000)) == 1.25, (
        "what has no price of its own is input"
    )


def test_the_user_s_own_entries_win_whatever_their_case() -> None:
    own = {"Scripted": {"window": 4_000}, "openai/gpt-5": {"input_price": 1.0}}
    assert look_up_model("scripted", own).window == 4_000
    assert look_up_model("scripted", own).max_output == 1_000
    assert look_up_model("openai/GPT-5", own).input_price == 1.0
    assert look_up_model("openai/gpt-5", own).window == 400_000
    assert look_up_model("openai/gpt-5", own).source == "settings: openai/gpt-5"


def test_price_keys_of_earlier_versions_are_still_read() -> None:
    good, problems = check_model_settings("m", {"input": 1, "cached": 2, "written": 3, "said": 4}, "settings.toml")
    assert problems == []
    usage = Usage(input=1_000_000, cache_read=1_000_000, cache_write=1_000_000, output=1_000_000)
    assert look_up_model("m", {"m": good}).cost(usage) == 10


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("window", 0), ("window", -5), ("window", "4000"), ("window", 4.5), ("window", float("nan")),
        ("window", float("inf")), ("window", True), ("window", 10**30), ("output", 5), ("input_price", float("nan")),
        ("input_price", float("inf")), ("input_price", -1), ("input_price", "free"), ("images", 1), ("colour", "red"), ("source", "x"),
    ],
)  # fmt: skip
def test_an_entry_that_makes_no_sense_is_left_out_and_told(key: str, value: object) -> None:
    good, problems = check_model_settings("m", {key: value, "output_price": 2}, "settings.toml")
    assert good == {"output_price": 2.0}
    assert len(problems) == 1
    assert f"models.m.{key}" in problems[0].problem
    assert problems[0].fix


def test_no_table_is_told_too() -> None:
    assert check_model_settings("m", 3, "settings.toml")[1][0].problem == "`models.m` must be a table"
