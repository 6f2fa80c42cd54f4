"""What a tool is: a name, a description, typed arguments and one function. agent/execute asks for permission on the
final arguments; a tool never decides whether it is allowed to run.

Used by every tool and by the agent loop. A tool gets what it needs of its run in a ToolContext; the protocols here let
tools use parts of higher layers without importing them.
"""

import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from kitbag.library.registry import Registry
from kitbag.messages import Image, Text
from kitbag.models.provider import ToolSpec
from kitbag.packing.session_skills import LoadedSkill, SessionSkills
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision, Workspace
from kitbag.tools.background_switch import BackgroundSwitch
from kitbag.tools.delegation import Delegation
from kitbag.tools.seen_files import SeenFiles


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call: content for the model, and a summary and details for the user."""

    content: tuple[Text | Image, ...]
    summary: str
    """For the user: one line such as `120 lines of src/a.py`."""
    is_error: bool = False
    truncation: str = ""
    """What a limit cut off; empty if the output is complete."""
    loaded_skill: LoadedSkill | None = None
    """The skill that this output delivers."""
    unloaded_skill: str = ""
    """The name of the skill that this call unloaded."""
    details: str = ""
    """For a user who wants more than the summary: a diff, a list, the output of a command."""
    new_directory: str = ""
    """The working directory from now on; empty: unchanged."""
    notices: tuple[str, ...] = ()
    """Warnings for the user, also where results are not shown."""
    suggested: tuple[str, ...] = ()
    """Names of the skills that the content suggests for the file of the call."""


def text_output(text: str, summary: str, truncation: str = "") -> ToolOutput:
    return ToolOutput(content=(Text(text),), summary=summary, truncation=truncation)


def error_output(problem: str, fix: str = "") -> ToolOutput:
    """An error the model can act on: the problem and how to fix it."""
    text = f"Error: {problem}." if not problem.endswith((".", "?", "!")) else f"Error: {problem}"
    if fix.partition(" ")[0].isalpha():  # a word, not a name such as `new_string`
        fix = fix[0].upper() + fix[1:]
    return ToolOutput(content=(Text(f"{text} {fix}".strip()),), summary=problem, is_error=True)


class ChangeRecorder(Protocol):
    """Records changes to files so that they can be undone."""

    async def record(self, call_id: str, path: str, before: bytes | None, after: bytes | None) -> None:
        """Record a change before it is made; durable on return. None: the file does not exist."""
        ...

    def record_command(self, call_id: str, named: tuple[str, ...] = ()) -> AbstractAsyncContextManager[None]:
        """Record what a command changes, by snapshots of the workspace before and after it. `named`: absolute paths
        that it writes, recorded even if git ignores them or the workspace is too large."""
        ...

    def move_to_background(self, call_id: str) -> None:
        """The command continues while other tools work."""
        ...


class UserAsker(Protocol):
    """Asks the user the model's questions."""

    async def ask(self, questions: "tuple[UserQuestion, ...]") -> tuple[str, ...]:
        """Return one answer per question. Raises KitbagError if no user can be asked."""
        ...


class UserQuestion(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    header: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """(label, description); the user can always type a different answer."""
    multi_select: bool = False


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a tool call belongs to."""

    workspace: Workspace
    directory: str
    """The working directory, which relative paths start from."""
    permissions: Permissions
    library: Registry
    skills: SessionSkills
    decision: PermissionDecision | None = None
    """The permission decision for this call, including the sandbox a command needs."""
    call_id: str = ""
    session_id: str = ""
    environment: Mapping[str, str] | None = None
    """The environment of commands; None: that of this process."""
    change_recorder: ChangeRecorder | None = None
    authorize_write: "Callable[[str], Coroutine[Any, Any, str]] | None" = None
    """Asks about a protected path that a running command wants to write; returns why not, or an empty text."""
    asker: UserAsker | None = None
    delegation: Delegation | None = None
    """Starts other agents; None if the run can't."""
    background_switch: BackgroundSwitch | None = None
    """None: a call that runs stays in the foreground."""
    seen_files: SeenFiles | None = None
    """The files the model has read; None: no check before a file is overwritten."""
    progress: Callable[[str], None] = lambda _: None
    """Shows the progress of a long call."""


class Arguments(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Base of all tool arguments. Unknown fields are errors."""


NOT_ADVERTISED: Final = msgspec.Meta(extra_json_schema={"x-hidden": True})
"""For a field that is accepted, because other agents' models send it, and costs no tokens in the schema."""

A_contra = TypeVar("A_contra", bound=Arguments, contravariant=True)
A = TypeVar("A", bound=Arguments)


class ToolFunction(Protocol[A_contra]):
    async def __call__(self, arguments: A_contra, context: ToolContext, /) -> ToolOutput: ...


class Tool(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    name: str
    description: str
    """For the model; read from the `.md` file beside the tool."""
    arguments: type[A]
    run: ToolFunction[A]
    read_only: bool = False
    """Calls run concurrently, and are repeated after a crash."""
    concurrent: bool = False
    """Calls run concurrently although they have side effects."""
    approval_facts: "Callable[[A, ToolContext], tuple[tuple[str, str], ...]] | None" = None
    """What the approval prompt shows besides the arguments. Raises KitbagError if the call can't succeed."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, schema=_arguments_schema(self.arguments))

    def parse_arguments(self, arguments: dict[str, Any]) -> A:
        """Raises msgspec.ValidationError, which names the field and the problem."""
        return msgspec.convert(arguments, self.arguments)


@cache
def _arguments_schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Inlines `$ref`, which not every provider resolves, and drops length limits and empty defaults, which cost tokens
    in every request. Cached, because each agent has its own instances of the same tools."""
    schema = msgspec.json.schema(arguments)
    return cast("dict[str, Any]", _simplify_schema(schema["$defs"][arguments.__name__], schema["$defs"]))


def _simplify_schema(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_simplify_schema(item, definitions) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, Any]", schema)
    if "$ref" in fields:
        fields = {**definitions[str(fields["$ref"]).rpartition("/")[2]], **fields}
    if fields.get("type") == "object" and "properties" in fields:
        inner = {name: _simplify_schema(value, definitions) for name, value in fields["properties"].items()}
        inner = {name: value for name, value in inner.items() if "x-hidden" not in value}
        fields = {**fields, "properties": inner}
    else:
        fields = {key: _simplify_schema(value, definitions) for key, value in fields.items()}
    return {key: value for key, value in fields.items() if key not in _OMITTED_KEYS and (key != "default" or value)}


_OMITTED_KEYS: Final = frozenset(
    ("$ref", "title", "minLength", "maxLength", "minimum", "maximum", "maxItems", "pattern", "additionalProperties")
)


def load_description(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()
