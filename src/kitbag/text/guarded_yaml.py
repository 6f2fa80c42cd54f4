"""YAML from files nobody vouches for: all scalars as strings, no aliases, bounded depth and size.

Builds values straight from the parser's events, so that nothing is constructed, expanded or
recursed into before it has been counted. Used by frontmatter and by readers of whole YAML files.
"""

from typing import Any, NamedTuple

from kitbag.text.plain_head import Value

MAX_DEPTH = 40
MAX_NODES = 20_000


class YamlProblem(NamedTuple):
    line: int
    """Counted from 0 inside the text that was read."""
    code: str
    problem: str
    fix: str


class YamlError(Exception):
    def __init__(self, problem: YamlProblem) -> None:
        super().__init__(problem.problem)
        self.problem = problem


def read_yaml(text: str) -> tuple[Value, list[YamlProblem]]:
    """The one document in `text`, and what was odd about it. Raises YamlError when it is not YAML."""
    import yaml

    problems: list[YamlProblem] = []
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return _build(yaml, yaml.parse(text, Loader=loader), problems), problems  # pyright: ignore[reportUnknownMemberType]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        what = ": ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(YamlProblem(line, "yaml-invalid", f"not valid YAML: {what}", "quote the value")) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        fix = "remove the characters that YAML does not allow"
        raise YamlError(YamlProblem(0, "yaml-invalid", f"not valid YAML: {what}", fix)) from error


class _Open:
    """A list or map whose end has not been seen yet."""

    __slots__ = ("key", "value")

    def __init__(self, value: "list[Value] | dict[str, Value]") -> None:
        self.value = value
        self.key: str | None = None


def _build(yaml: Any, events: Any, problems: list[YamlProblem]) -> Value:
    stack: list[_Open] = []
    nodes = 0
    result: Value = ""
    documents = 0
    for event in events:
        kind = type(event)
        if kind is yaml.DocumentStartEvent:
            documents += 1
            if documents > 1:
                break
            continue
        if kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
            closed = stack.pop().value
            result = _place(stack, closed, event, problems) if stack else closed
            continue
        if kind is yaml.ScalarEvent:
            node: Value = event.value
        elif kind is yaml.AliasEvent:
            node = f"*{event.anchor}"
            problems.append(
                YamlProblem(
                    event.start_mark.line,
                    "yaml-alias",
                    f"the alias {node} is not expanded",
                    "write the value out where it is used",
                )
            )
        elif kind is yaml.SequenceStartEvent or kind is yaml.MappingStartEvent:
            stack.append(_Open([] if kind is yaml.SequenceStartEvent else {}))
            node = ""
        else:
            continue
        nodes += 1
        if nodes > MAX_NODES or len(stack) > MAX_DEPTH:
            limit = f"{MAX_NODES} values" if nodes > MAX_NODES else f"{MAX_DEPTH} levels"
            line = event.start_mark.line
            raise YamlError(YamlProblem(line, "yaml-limit", f"more than {limit}", "make it smaller"))
        if kind is yaml.ScalarEvent or kind is yaml.AliasEvent:
            result = _place(stack, node, event, problems) if stack else node
    return result


def _place(stack: list[_Open], node: Value, event: Any, problems: list[YamlProblem]) -> Value:
    parent = stack[-1]
    container = parent.value
    if isinstance(container, list):
        container.append(node)
    elif parent.key is None:
        if not isinstance(node, str):
            line = event.start_mark.line
            raise YamlError(YamlProblem(line, "yaml-invalid", "a list or map stands where a key should", "quote the value"))
        parent.key = node
    else:
        if parent.key in container:
            problems.append(
                YamlProblem(
                    event.start_mark.line,
                    "yaml-duplicate-key",
                    f"`{parent.key}` is given twice; the last one counts",
                    "remove one of them",
                )
            )
        container[parent.key] = node
        parent.key = None
    return container
