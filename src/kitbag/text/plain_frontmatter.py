"""The fast path for frontmatter that is simple enough to parse line by line.

Used by frontmatter before YAML is tried. `parse_plain_frontmatter` returns exactly what YAML would (with all scalars
as strings), or None whenever that is not certain.
"""

from typing import TypeAlias, cast

YamlValue: TypeAlias = str | list["YamlValue"] | dict[str, "YamlValue"]
Metadata: TypeAlias = dict[str, YamlValue]

_SPECIAL_FIRST = frozenset("\"'[]{}>|*&!%@`#,?-:")
_FLOW_SPECIAL = frozenset("\"'[]{}>|*&!%@`#?:")
_BLOCK_INDICATORS = frozenset((">", ">-", "|", "|-"))
_MAX_KEY_LENGTH = 1000
"""YAML requires the colon of a key within 1,024 characters."""


def parse_plain_frontmatter(text: str) -> Metadata | None:
    """`text`: the frontmatter between the fences, with LF newlines. None: let YAML decide."""
    if not text.replace("\n", "").isprintable():
        return None
    metadata: Metadata = {}
    lines = text.split("\n")
    at, end = 0, len(lines)
    while at < end:
        line = lines[at]
        at += 1
        key, colon, value = line.partition(":")
        if not colon:
            if not line.strip() or line[0] == "#":
                continue
            return None
        if not key.replace("-", "_").isidentifier() or key in metadata or key[0] == "-":
            return None
        if value and value[0] != " ":
            return None
        value = value.strip(" ")
        if not value:
            nested, at = _nested(lines, at)
            if nested is None:
                return None
            metadata[key] = nested
            continue
        if value in _BLOCK_INDICATORS:
            block, at = _block_scalar(lines, at, value)
            if block is None:
                return None
            metadata[key] = block
            continue
        scalar = _scalar(value)
        if scalar is None:
            return None
        while at < end and lines[at][:1] == " ":
            more = lines[at].strip(" ")
            if value is not scalar or not more or _plain_scalar(more) is None:
                return None
            scalar = value = f"{scalar} {more}"
            at += 1
        if at < end and value is scalar and not lines[at].strip():
            following = next((line for line in lines[at:] if line.strip()), "")
            if following[:1] == " ":
                return None
        metadata[key] = scalar
    if len(text) > _MAX_KEY_LENGTH and any(len(key) > _MAX_KEY_LENGTH for key in metadata):
        return None
    return metadata


def _plain_scalar(value: str) -> str | None:
    if value[0] in _SPECIAL_FIRST or value[-1] == ":" or ": " in value or " #" in value:
        return None
    return value


def _scalar(value: str) -> YamlValue | None:
    """A value that ends on its line: plain, quoted, or a flow list of plain words."""
    first = value[0]
    if first not in _SPECIAL_FIRST:
        return _plain_scalar(value)
    if first in "\"'":
        inner = value[1:-1]
        closed = len(value) > 1 and value[-1] == first
        return inner if closed and first not in inner and "\\" not in inner else None
    if first == "[" and value[-1] == "]":
        inner = value[1:-1].strip(" ")
        if not inner:
            return []
        if not _FLOW_SPECIAL.isdisjoint(inner):
            return None
        items = [item.strip(" ") for item in inner.split(",")]
        if any(not item or item[0] == "-" for item in items):
            return None
        return cast("list[YamlValue]", items)
    return None


def _nested(lines: list[str], at: int) -> tuple[YamlValue | None, int]:
    """The value after an empty `key:`: a list, a map of one level, or nothing."""
    start = at
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at == len(lines):
        return "", at
    first = lines[at]
    body = first.lstrip(" ")
    indent = len(first) - len(body)
    if body[0] == "#":
        return None, at
    if body.startswith("- "):
        return _nested_list(lines, at, indent)
    if indent == 0:
        return "", start
    return _nested_map(lines, at, indent)


def _nested_list(lines: list[str], at: int, indent: int) -> tuple[YamlValue | None, int]:
    items: list[YamlValue] = []
    prefix = " " * indent + "- "
    while at < len(lines):
        line = lines[at]
        if line.startswith(prefix):
            text = line[len(prefix) :].strip(" ")
            item = _scalar(text) if text else None
            if not isinstance(item, str):
                return None, at
            items.append(item)
        elif line[:1] in (" ", "-") or not line.strip():
            return (None, at) if line.strip() or _continues(lines, at) else (items, at)
        else:
            break
        at += 1
    return items, at


def _nested_map(lines: list[str], at: int, indent: int) -> tuple[YamlValue | None, int]:
    entries: dict[str, YamlValue] = {}
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            return (None, at) if _continues(lines, at) else (entries, at)
        text = line.lstrip(" ")
        if len(line) - len(text) != indent:
            if line[0] == " ":
                return None, at
            break
        key, colon, value = text.partition(":")
        usable = colon and value[:1] == " " and key.replace("-", "_").isidentifier() and key[0] != "-"
        usable = usable and len(key) <= _MAX_KEY_LENGTH
        value = value.strip(" ")
        scalar = _scalar(value) if usable and value and key not in entries else None
        if scalar is None:
            return None, at
        entries[key] = scalar
        at += 1
    return entries, at


def _continues(lines: list[str], at: int) -> bool:
    following = next((line for line in lines[at:] if line.strip()), "")
    return following[:1] in (" ", "-")


def _block_scalar(lines: list[str], at: int, indicator: str) -> tuple[str | None, int]:
    """A block scalar with one indentation; blank lines only at its end."""
    content: list[str] = []
    indent = 0
    while at < len(lines):
        line = lines[at]
        text = line.lstrip(" ")
        if not text:
            # Spaces beyond the indentation are text to YAML.
            if line or _continues(lines, at):
                return None, at
            at += 1
            continue
        depth = len(line) - len(text)
        if depth == 0:
            break
        indent = indent or depth
        if depth != indent and (indicator[0] == ">" or depth < indent):
            return None, at
        content.append(line[indent:])
        at += 1
    if not content:
        return None, at
    text = (" " if indicator[0] == ">" else "\n").join(content)
    return (text if len(indicator) > 1 else text + "\n"), at
