"""Loads the task to pack from `.kitbag/tasks/`, a file, standard input, or a configured command.

A field of the wrong type is a warning; only a task that can't be found or read raises. Used by pack, `kitbag pack`
and mcp_server; uses text.frontmatter, text.safe_yaml and text.safe_json.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, cast

import msgspec

from kitbag.errors import Diagnostic, InvalidError, NotFoundError
from kitbag.library.scopes import Places, boundary_for_file, project_boundary
from kitbag.text.frontmatter import parse_frontmatter
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.hidden_characters import collapse_whitespace, find_disguises, format_code_points, reveal_hidden
from kitbag.text.safe_yaml import YamlError, parse_yaml
from kitbag.text.source_files import (
    LINK_OUTSIDE,
    PathBoundary,
    SourceError,
    decode_text,
    read_text,
    with_trailing_slash,
)

if TYPE_CHECKING:
    import subprocess

TASK_SUFFIXES = (".json", ".yaml", ".yml", ".md")
TASK_FIELDS = frozenset(
    ("id", "title", "description", "type", "size", "labels", "complexity", "depends", "parent", "children", "files")
)
COMMAND_TIMEOUT = 30
_MAX_BYTES = 4 * 1024 * 1024


class PackTask(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str
    description: str
    type: str
    size: str
    labels: tuple[str, ...]
    complexity: str
    depends: tuple[str, ...]
    parent: str
    children: tuple[str, ...]
    files: tuple[str, ...]
    extra: dict[str, str]
    source: str
    """The file or command that it was loaded from."""
    description_line: int
    """Line at which the description starts, for diagnostics."""

    @property
    def values(self) -> dict[str, str]:
        """Values for `{{VAR}}`: TASK_ID, TITLE, LABELS and so on; extra fields under their own names."""
        named = {
            "TASK_ID": self.id,
            "ID": self.id,
            "TASK_TITLE": self.title,
            "TITLE": self.title,
            "DESCRIPTION": self.description,
            "TYPE": self.type,
            "SIZE": self.size,
            "COMPLEXITY": self.complexity,
            "PARENT": self.parent,
            "EPIC_ID": self.parent,
            "LABELS": ", ".join(self.labels),
            "DEPENDS": ", ".join(self.depends),
            "CHILDREN": ", ".join(self.children),
            "FILES": ", ".join(self.files),
        }
        return {**{key.upper(): value for key, value in self.extra.items()}, **{k: v for k, v in named.items() if v}}


class TaskSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where tasks are loaded from; the commands come from the user's settings only."""

    places: Places
    task_command: str = ""
    children_command: str = ""


def load_task(reference: str, source: TaskSource, stdin: str | None = None) -> tuple[PackTask, list[Diagnostic]]:
    """Raises NotFoundError (exit code 4) if there is no such task, InvalidError if it can't be read."""
    if reference == "-":
        try:
            text = decode_text(sys.stdin.buffer.read(_MAX_BYTES))[0] if stdin is None else stdin
        except SourceError as error:
            raise InvalidError(f"standard input: {error.problem}", "pipe a task as JSON, YAML or Markdown") from error
        if not text.strip():
            raise NotFoundError("no task on standard input", "pipe a task as JSON, YAML or Markdown")
        return parse_task(text, "", "standard input")
    path = _find_file(reference, source.places)
    if path is not None:
        return _read_task(path, boundary_for_file(path, source.places.project))
    if source.task_command:
        text = run_task_command(source.task_command, reference, source.places.cwd)
        return parse_task(text, ".json", f"command: {source.task_command}", reference)
    where = "no file .kitbag/tasks/" + reference + "{.json,.yaml,.md}"
    raise NotFoundError(
        f"no task named {reference!r}: {where}", "create that file, pass a file, or set pack.task_command"
    )


def _read_task(path: str, boundary: PathBoundary | None) -> tuple[PackTask, list[Diagnostic]]:
    try:
        text, _, problems = read_text(path, boundary, _MAX_BYTES)
    except SourceError as error:
        raise InvalidError(f"{path}: {error.problem}", error.fix) from error
    task, warnings = parse_task(text, os.path.splitext(path)[1], path, _file_stem(path))
    return task, [
        *(
            Diagnostic(severity="warning", code=p.code, file=path, line=p.line, problem=p.problem, fix=p.fix)
            for p in problems
        ),
        *warnings,
    ]


def load_children(task: PackTask, source: TaskSource) -> tuple[list[PackTask], list[Diagnostic]]:
    """The tasks of an epic: those it lists, those that name it as parent, or those of the configured command."""
    problems: list[Diagnostic] = []
    children: list[PackTask] = []
    if source.children_command and not task.children:
        text = run_task_command(source.children_command, task.id, source.places.cwd)
        for item in _parse_children(_parse_json(text, source.children_command), source.children_command):
            if isinstance(item, str):
                child, warnings = load_task(item, source)
            else:
                child, warnings = _task_from_fields(item, source.children_command, "", 0)
            if child.id != task.id:
                children.append(child)
            problems += warnings
        return children, problems
    for name in task.children or _find_children(task.id, source.places, problems):
        try:
            child, warnings = _load_child(name, source)
        except (NotFoundError, InvalidError) as error:
            raise type(error)(f"child of {task.id}: {error.problem}", error.fix) from error
        if child.id != task.id:
            children.append(child)
        problems += warnings
    return children, problems


def _load_child(name: str, source: TaskSource) -> tuple[PackTask, list[Diagnostic]]:
    """A task names this file, not the user: it must be inside the workspace and hold no secrets."""
    path = _find_file(name, source.places)
    if path is None:
        return load_task(name, source)
    boundary, real = project_boundary(source.places), os.path.realpath(path)
    if problem := boundary.violation(real, real != os.path.abspath(path)):
        raise InvalidError(f"{path}: not read: {problem}", "use a task of this workspace, or pack that file on its own")
    return _read_task(path, boundary)


def _file_stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _task_folders(places: Places) -> list[str]:
    return [os.path.join(directory, ".kitbag", "tasks") for directory in places.project_dirs or (places.cwd,)]


def _find_file(reference: str, places: Places) -> str | None:
    is_plain_name = reference and os.sep not in reference and reference not in (".", "..") and "\0" not in reference
    for folder in _task_folders(places) if is_plain_name else ():
        for suffix in TASK_SUFFIXES:
            path = os.path.join(folder, reference + suffix)
            if os.path.isfile(path):
                return path
    path = os.path.join(places.cwd, os.path.expanduser(reference)) if "\0" not in reference else ""
    if path and os.path.exists(path) and not os.path.isfile(path):
        raise InvalidError(f"{reference} is not a task file", "use a JSON, YAML or Markdown file")
    return path if path and os.path.isfile(path) else None


def _parse_children(value: Any, command: str) -> list[Any]:
    """Children in a command's JSON output: a list of tasks or ids, or an object that contains one."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for key in ("children", "tasks", "items", "data", "result", "task", "epic"):
            if isinstance(fields.get(key), list | dict):
                return _parse_children(fields[key], command)
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [None]
    for item in items:
        known = isinstance(item, dict) and any(cast("dict[str, Any]", item).get(key) for key in ("id", "title"))
        if not known and not isinstance(item, str):
            raise InvalidError(f"`{command}` did not print a list of tasks", "print a JSON list of tasks or task IDs")
    return items


def _find_children(task_id: str, places: Places, problems: list[Diagnostic]) -> list[str]:
    names: list[str] = []
    boundary = project_boundary(places)
    for folder in _task_folders(places):
        if (
            problem := boundary.violation(with_trailing_slash(os.path.realpath(folder)))
            if os.path.isdir(folder)
            else ""
        ):
            problems.append(
                Diagnostic(
                    severity="warning",
                    code=LINK_OUTSIDE,
                    file=folder,
                    line=0,
                    problem=f"not read: {problem}",
                    fix=boundary.fix,
                )
            )
            continue
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if name.endswith(TASK_SUFFIXES):
                path = os.path.join(folder, name)
                try:
                    text = read_text(path, boundary, _MAX_BYTES)[0]
                    child, _ = parse_task(text, os.path.splitext(path)[1], path, _file_stem(path))
                except (SourceError, InvalidError) as error:
                    message = f"may be a child of {task_id}, but cannot be read: {error}"
                    problems.append(
                        Diagnostic(
                            severity="warning",
                            code="task-unreadable",
                            file=path,
                            line=0,
                            problem=message,
                            fix="fix the file",
                        )
                    )
                    continue
                if child.parent == task_id:
                    names.append(path)
    return names


def run_task_command(command: str, task_id: str, cwd: str) -> str:
    """`{id}` becomes one argument and never an option; no shell is used. A failure means that there is no such task."""
    import shlex
    import subprocess

    words = _fill_task_id(shlex.split(command), task_id)
    try:
        result = _run_process(words, cwd)
    except FileNotFoundError as error:
        raise InvalidError(f"cannot run the task command: {words[0]} not found", "fix pack.task_command") from error
    except subprocess.TimeoutExpired as error:
        problem = f"the task command timed out after {COMMAND_TIMEOUT} seconds: {' '.join(words)}"
        raise InvalidError(problem, "fix pack.task_command") from error
    except OSError as error:
        raise InvalidError(f"cannot run the task command: {error}", "fix pack.task_command") from error
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).decode("utf-8", "replace").strip().splitlines()
        detail = f": {lines[-1]}" if lines else ""
        raise NotFoundError(
            f"no task named {task_id!r}: `{' '.join(words)}` exited with code {result.returncode}{detail}"
        )
    return result.stdout[:_MAX_BYTES].decode("utf-8", "replace")


def _fill_task_id(words: list[str], task_id: str) -> list[str]:
    """Raises InvalidError if the program could read the id as an option."""
    for at, word in enumerate(words):
        if task_id.startswith("-") and word.startswith("{id}") and "--" not in words[:at]:
            problem = f"the task ID {task_id!r} starts with a dash: `{words[0]}` could treat it as an option"
            raise InvalidError(problem, f"write `-- {{id}}` or `--option={{id}}` in the setting: {' '.join(words)}")
    return [word.replace("{id}", task_id) for word in words]


def _run_process(words: list[str], cwd: str) -> "subprocess.CompletedProcess[bytes]":
    """Runs in its own process group, so that a timeout kills all of it."""
    import signal
    import subprocess

    from kitbag.processes.signals import signal_child_group

    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 - the user's own setting
        words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=COMMAND_TIMEOUT)
        except BaseException:
            signal_child_group(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def parse_task(text: str, suffix: str, source: str, name: str = "") -> tuple[PackTask, list[Diagnostic]]:
    """JSON, YAML, or Markdown with the fields in its frontmatter and the description as its body."""
    if suffix == ".json" or (not suffix and text.lstrip().startswith(("{", "["))):
        objects = _task_objects(_parse_json(text, source))
        if not objects or not any(objects[0].get(key) for key in ("id", "title", "description")):
            raise InvalidError(f"{source}: not a task", 'write {"id": ..., "title": ...}')
        return _task_from_fields(objects[0], source, name, 0)
    if suffix in (".yaml", ".yml"):
        try:
            value, _ = parse_yaml(text)
        except YamlError as error:
            line = error.problem.line + 1
            raise InvalidError(f"{source}:{line}: {error.problem.problem}", error.problem.fix) from error
        if not isinstance(value, dict):
            raise InvalidError(f"{source}: not a list of `key: value` lines", "add `id:`, `title:` and `description:`")
        return _task_from_fields(cast("dict[str, Any]", value), source, name, 0)
    if not suffix and not text.lstrip().startswith("---") and (fields := _yaml_fields(text)):
        return _task_from_fields(fields, source, name, 0)
    parts = split_frontmatter(text)
    frontmatter = parse_frontmatter(text, [], TASK_FIELDS)
    warnings = [
        Diagnostic(severity="warning", code=p.code, file=source, line=p.line, problem=p.problem, fix=p.fix)
        for p in frontmatter.problems
    ]
    fields = cast("dict[str, Any]", dict(frontmatter.metadata))
    body = parts.body.strip()
    line = parts.body_line + (len(parts.body) - len(parts.body.lstrip("\n")))
    if body:
        fields["description"] = body
    if not any(fields.values()):
        raise InvalidError(f"{source}: not a task", "write frontmatter with `title:`, followed by a description")
    if not fields.get("title"):
        first = next((line.strip("# ") for line in body.split("\n") if line.strip()), "")
        fields["title"] = first[:120]
    task, problems = _task_from_fields(fields, source, name, line)
    return task, [*warnings, *problems]


def _yaml_fields(text: str) -> dict[str, Any]:
    """Fields of piped YAML; empty for prose."""
    try:
        value, _ = parse_yaml(text)
    except YamlError:
        return {}
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return fields if TASK_FIELDS & fields.keys() else {}


def _parse_json(text: str, source: str) -> Any:
    from kitbag.text.safe_json import parse_json

    try:
        return parse_json(text)
    except RecursionError as error:
        raise InvalidError(f"{source}: {error}", "simplify the task") from error
    except ValueError as error:
        line = getattr(error, "lineno", 0)
        raise InvalidError(f"{source}:{line}: not valid JSON: {error}", "fix the JSON at that line") from error


def _task_objects(value: Any) -> list[dict[str, Any]]:
    """Tasks in a command's JSON output: a task, a list, or either under `task`, `tasks`, `data` or `result`."""
    if isinstance(value, list):
        return [cast("dict[str, Any]", item) for item in cast("list[Any]", value) if isinstance(item, dict)]
    if not isinstance(value, dict):
        return []
    fields = cast("dict[str, Any]", value)
    for key in ("task", "tasks", "data", "result", "children"):
        inner = fields.get(key)
        if isinstance(inner, dict | list) and not ("id" in fields and "title" in fields):
            return _task_objects(inner)
    return [fields]


class _TaskFields:
    """Reads the fields of a task; what can't be read is reported in `problems`."""

    def __init__(self, fields: dict[str, Any], source: str, line: int) -> None:
        self._fields = fields
        self._source = source
        self._line = line
        self.problems: list[Diagnostic] = []

    def text(self, key: str) -> str:
        value = self._fields.get(key)
        if value is None or isinstance(value, str | int | float | bool):
            return self._visible(key, "" if value is None else str(value).strip())
        self._warn("task-field", 0, f"`{key}` of the task is not a string; ignored", f"write `{key}` as a string")
        return ""

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._fields.get(key)
        if isinstance(value, str):
            return tuple(self._visible(key, part) for part in value.split(",") if part.strip())
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return tuple(self._visible(key, _id_or_text(item)) for item in items if _id_or_text(item))
        if value is not None:
            self._warn("task-field", 0, f"`{key}` of the task is not a list; ignored", f"write `{key}` as a list")
        return ()

    def _visible(self, key: str, value: str) -> str:
        """Reveals hidden characters; puts everything but the description on one line."""
        hidden = find_disguises(value)
        if hidden:
            problem = f"`{key}` of the task contains hidden characters, shown as [U+...]: {format_code_points(hidden)}"
            self._warn("hidden-characters", self._line, problem, "remove them")
            value = reveal_hidden(value)
        return value if key == "description" else collapse_whitespace(value)

    def _warn(self, code: str, line: int, problem: str, fix: str) -> None:
        self.problems.append(
            Diagnostic(severity="warning", code=code, file=self._source, line=line, problem=problem, fix=fix)
        )


def _task_from_fields(fields: dict[str, Any], source: str, name: str, line: int) -> tuple[PackTask, list[Diagnostic]]:
    read = _TaskFields(fields, source, line)
    scalars = str | int | float
    task = PackTask(
        id=read.text("id") or name or "task",
        title=read.text("title"),
        description=read.text("description"),
        type=read.text("type").lower(),
        size=read.text("size").lower(),
        labels=read.texts("labels"),
        complexity=read.text("complexity").lower(),
        depends=read.texts("depends"),
        parent=read.text("parent") or read.text("parentId"),
        children=read.texts("children"),
        files=read.texts("files"),
        extra={k: str(value) for k, value in fields.items() if k not in TASK_FIELDS and isinstance(value, scalars)},
        source=source,
        description_line=line,
    )
    return task, read.problems


def _id_or_text(item: Any) -> str:
    if isinstance(item, dict):
        return str(cast("dict[str, Any]", item).get("id", "")).strip()
    return str(item).strip() if isinstance(item, str | int | float) else ""
