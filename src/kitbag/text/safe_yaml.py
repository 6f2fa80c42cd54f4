"""Parses YAML from untrusted files: all scalars as strings, no aliases, bounded depth and size.

Builds values from the parser's events, so that nothing is constructed, expanded or recursed into before it is
counted. Used by frontmatter and by readers of whole YAML files.
"""

from typing import Any, NamedTuple, cast

from kitbag.text.plain_frontmatter import YamlValue

MAX_DEPTH = 40
MAX_NODES = 20_000
MAX_PROBLEMS = 20


class YamlProblem(NamedTuple):
    line: int
    """0-based, in the parsed text."""
    code: str
    problem: str
    fix: str


class YamlError(Exception):
    def __init__(self, problem: YamlProblem) -> None:
        super().__init__(problem.problem)
        self.problem = problem


def parse_yaml(text: str) -> tuple[YamlValue, list[YamlProblem]]:
    """The first document in `text`, and problems with it. Raises YamlError for invalid YAML."""
    import yaml

    problems: list[YamlProblem] = []
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return _build_value(yaml, yaml.parse(text, Loader=loader), problems), problems  # pyright: ignore[reportUnknownMemberType]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        problem = ": ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(YamlProblem(line, "yaml-invalid", f"not valid YAML: {problem}", "quote the value")) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        line = _line_at(text, getattr(error, "position", 0))
        fix = "remove characters that YAML does not allow"
        raise YamlError(YamlProblem(line, "yaml-invalid", f"not valid YAML: {problem}", fix)) from error


def _line_at(text: str, position: object) -> int:
    """The C reader counts bytes, not characters."""
    return text.encode(errors="replace").count(b"\n", 0, position) if isinstance(position, int) else 0


class _OpenContainer:
    """A list or map that is not closed yet."""

    __slots__ = ("key", "line", "value")

    def __init__(self, value: "list[YamlValue] | dict[str, YamlValue]") -> None:
        self.value = value
        self.key: str | None = None
        self.line = 0
        """The line of the key."""


def _build_value(yaml: Any, events: Any, problems: list[YamlProblem]) -> YamlValue:
    stack: list[_OpenContainer] = []
    nodes = 0
    result: YamlValue = ""
    documents = 0
    for event in events:
        kind = cast("type[Any]", type(event))
        if kind is yaml.DocumentStartEvent:
            documents += 1
            if documents > 1:
                problem = "more than one YAML document; only the first is used"
                problems.append(YamlProblem(event.start_mark.line, "yaml-documents", problem, "remove the others"))
                break
            continue
        if kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
            result = stack.pop().value
            if stack:
                _add_node(stack[-1], result, event, problems)
            continue
        if kind is yaml.ScalarEvent:
            node: YamlValue = event.value
        elif kind is yaml.AliasEvent:
            node = f"*{event.anchor}"
            problem = f"YAML alias {node[:80]} is not expanded"
            _add_problem(problems, event.start_mark.line, "yaml-alias", problem, "write out the value")
        elif kind is yaml.SequenceStartEvent or kind is yaml.MappingStartEvent:
            stack.append(_OpenContainer([] if kind is yaml.SequenceStartEvent else {}))
            node = ""
        else:
            continue
        nodes += 1
        if nodes > MAX_NODES or len(stack) > MAX_DEPTH:
            limit = f"{MAX_NODES} values" if nodes > MAX_NODES else f"{MAX_DEPTH} levels"
            line = event.start_mark.line
            raise YamlError(YamlProblem(line, "yaml-limit", f"more than {limit}", "make it smaller"))
        if kind is not yaml.AliasEvent and event.tag is not None:
            problem = f"YAML tag {event.tag[:80]} is ignored; the value is used as written"
            _add_problem(problems, event.start_mark.line, "yaml-tag", problem, "remove the tag")
        if kind is yaml.ScalarEvent or kind is yaml.AliasEvent:
            result = node
            if stack:
                _add_node(stack[-1], node, event, problems)
    return result


def _add_problem(problems: list[YamlProblem], line: int, code: str, problem: str, fix: str) -> None:
    if len(problems) < MAX_PROBLEMS:
        problems.append(YamlProblem(line, code, problem, fix))


def _add_node(parent: _OpenContainer, node: YamlValue, event: Any, problems: list[YamlProblem]) -> None:
    container = parent.value
    if isinstance(container, list):
        container.append(node)
    elif parent.key is None:
        line = event.start_mark.line
        if not isinstance(node, str):
            problem = "not valid YAML: a list or mapping cannot be a key"
            raise YamlError(YamlProblem(line, "yaml-invalid", problem, "quote the value"))
        parent.key, parent.line = node, line
    else:
        if parent.key in container:
            problem = f"duplicate key `{parent.key[:80]}`; the last one is used"
            _add_problem(problems, parent.line, "yaml-duplicate-key", problem, "remove one of them")
        container[parent.key] = node
        parent.key = None
