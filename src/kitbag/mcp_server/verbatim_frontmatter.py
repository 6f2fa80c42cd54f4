"""A skill's frontmatter exactly as written, as JSON: every field, with YAML 1.2 numbers and booleans.

The library reads frontmatter leniently and as strings; clients that compare it with the file need the exact values.
Used by skills_extension. Frontmatter that is not plain YAML has no such form.
"""

import re
from typing import Any, Final, cast

from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.safe_yaml import MAX_DEPTH, MAX_NODES

_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS: Final = {word: value for value, words in ((True, "true"), (False, "false"))
                 for word in (words, words.title(), words.upper())}  # fmt: skip
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,4000}")
_OCTAL_OR_HEX: Final = re.compile(r"0o[0-7]{1,1000}|0x[0-9a-fA-F]{1,1000}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class NotVerbatimError(ValueError):
    """Says what can't be represented."""


def read_verbatim_frontmatter(data: bytes) -> dict[str, Any]:
    """Raises NotVerbatimError."""
    import yaml

    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise NotVerbatimError("it is not UTF-8") from None
    parts = split_frontmatter(text)
    closed = not any(problem.code in ("head-unclosed", "head-fence") for problem in parts.problems)
    if parts.frontmatter is None or not closed or text.split("\n", 1)[0].rstrip() != "---":
        raise NotVerbatimError("it does not start with frontmatter between two `---` lines")
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        value = _Builder(yaml).build(yaml.parse(f"{parts.frontmatter}\n", Loader=loader))  # pyright: ignore[reportUnknownMemberType]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise NotVerbatimError(
            f"its frontmatter is not plain YAML: {str(error).splitlines()[0] if str(error) else ''}"
        ) from None
    if not isinstance(value, dict):
        raise NotVerbatimError("its frontmatter is not a mapping")
    return cast("dict[str, Any]", value)


class _OpenNode:
    __slots__ = ("key", "value")

    def __init__(self, value: "list[Any] | dict[str, Any]") -> None:
        self.value = value
        self.key: str | None = None


class _Builder:
    """Builds values from parser events, checking limits before each node."""

    def __init__(self, yaml: Any) -> None:
        self._yaml = yaml
        self._stack: list[_OpenNode] = []
        self._result: Any = None
        self._nodes = 0

    def build(self, events: Any) -> Any:
        yaml, documents = self._yaml, 0
        for event in events:
            kind = cast("type[Any]", type(event))
            if kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise NotVerbatimError("more than one document")
            elif kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
                self._attach(self._stack.pop().value, "")
            elif kind is yaml.AliasEvent:
                raise NotVerbatimError("an alias")
            elif kind is yaml.ScalarEvent:
                self._check_limits(event)
                self._attach(_parse_scalar(event.value) if not event.style else event.value, event.value)
            elif kind is yaml.SequenceStartEvent or kind is yaml.MappingStartEvent:
                self._check_limits(event)
                self._stack.append(_OpenNode([] if kind is yaml.SequenceStartEvent else {}))
        return self._result

    def _check_limits(self, event: Any) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES or len(self._stack) > MAX_DEPTH:
            raise NotVerbatimError("too large")
        if event.tag is not None or event.anchor is not None:
            raise NotVerbatimError("a tag or an anchor")

    def _attach(self, value: Any, source: str) -> None:
        if not self._stack:
            self._result = value
            return
        parent = self._stack[-1]
        container = parent.value
        if isinstance(container, list):
            container.append(value)
        elif parent.key is None:
            if isinstance(value, list | dict):
                raise NotVerbatimError("a key that is not a string")
            parent.key = source
        else:
            if parent.key in container:
                raise NotVerbatimError(f"`{parent.key[:80]}` twice")
            container[parent.key] = value
            parent.key = None


def _parse_scalar(text: str) -> Any:
    """By the core schema. A value that JSON can't express stays text."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text[2:], 8 if text[1] == "o" else 16)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if number not in (float("inf"), float("-inf")) else text
    return text
