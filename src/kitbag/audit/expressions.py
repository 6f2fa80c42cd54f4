"""Loads regular expressions and word lists from expressions.toml by name. Used by the detectors."""

import functools
import re
import tomllib
from importlib.resources import files
from typing import Any


@functools.cache
def _document() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(files("kitbag.audit").joinpath("expressions.toml").read_text("utf-8"))


@functools.cache
def load_expression(name: str) -> "re.Pattern[str]":
    """`module.name`, compiled."""
    module, _, key = name.partition(".")
    entry = _document()[module][key]
    flags = (re.IGNORECASE if "i" in entry["flags"] else 0) | (re.MULTILINE if "m" in entry["flags"] else 0)
    return re.compile(entry["regex"], flags)


@functools.cache
def load_words(name: str) -> tuple[str, ...]:
    """`module.name`, in file order; empty if it has none."""
    module, _, key = name.partition(".")
    return tuple(_document()[module][key].get("words", ()))


def load_word_table(name: str) -> dict[str, tuple[str, ...]]:
    """`module.name`, a map of word lists."""
    module, _, key = name.partition(".")
    return {word: tuple(meant) for word, meant in _document()[module][key].items()}
