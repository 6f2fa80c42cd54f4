"""What a tool is: a name, a description, typed arguments, and one method. Its permission is asked for by the one who
runs it (agent/execute), on the final arguments; a tool never decides for itself whether it may.

Used by every tool and by the loop. The small protocols here cut the knots: what a tool needs of the run it
belongs to comes in a Context, and the runtime ties the ends.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

from kitbag.library.registry import Registry
from kitbag.messages import Image, Text
from kitbag.models.provider import ToolSpec
from kitbag.packing.session_skills import LoadedSkill, SessionSkills
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision, Workspace
from kitbag.tools.delegation import Delegation
from kitbag.tools.seen_files import SeenFiles


class ToolOutput(NamedTuple):
    """What came of a call: a part for the model and a part for the person."""

    content: tuple[Text | Image, ...]
    summary: str
    """For a person: one line such as `120 lines of src/a.py`."""
    is_error: bool = False
    truncation: str = ""
    """What a limit kept out, in words; empty when nothing is missing."""
    loaded_skill: LoadedSkill | None = None
    """A skill that this result delivers."""
    unloaded_skill: str = ""
    """The name of a skill that is no longer loaded."""
    details: str = ""
    """For a person who wants to see more than the summary: a diff, a list, what a command printed."""
    new_directory: str = ""
    """Where relative paths and commands start from now on; empty: where they did."""


def text_output(text: str, summary: str, truncation: str = "") -> ToolOutput:
    return ToolOutput((Text(text),), summary, truncation=truncation)


def error_output(problem: str, fix: str = "") -> ToolOutput:
    """An error the model can use: what is wrong and what to do instead."""
    text = f"Error: {problem}." if not problem.endswith((".", "?", "!")) else f"Error: {problem}"
    return ToolOutput((Text(f"{text} {fix}".strip()),), problem, is_error=True)


class ChangeRecorder(Protocol):
    """Keeps what is about to change, so that it can be taken back."""

    async def keep(self, call_id: str, path: str, before: bytes | None, after: bytes | None) -> None:
        """Durable when it returns, so call it before the change. None: the file does not exist."""
        ...

    def around_command(self, call_id: str) -> AbstractAsyncContextManager[None]:
        """For what can't be told beforehand: the files of the workspace are looked at before and after."""
        ...


class UserAsker(Protocol):
    """Puts questions of the model to the person."""

    async def ask(self, questions: "tuple[UserQuestion, ...]") -> tuple[str, ...]:
        """One answer for each. Raises KitbagError when nobody can be asked."""
        ...


class UserQuestion(NamedTuple):
    text: str
    header: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """(label, what it means); a person may always answer in words of their own."""
    multi_select: bool = False


class ToolContext(NamedTuple):
    """The run a call belongs to."""

    workspace: Workspace
    directory: str
    """Where relative paths start."""
    permissions: Permissions
    library: Registry
    skills: SessionSkills
    decision: PermissionDecision | None = None
    """Of the call that runs: what a command must be confined in."""
    call_id: str = ""
    session_id: str = ""
    environment: Mapping[str, str] | None = None
    """What commands see; None: what this process has."""
    change_recorder: ChangeRecorder | None = None
    asker: UserAsker | None = None
    delegation: Delegation | None = None
    """Other agents; None where there are none."""
    seen_files: SeenFiles | None = None
    """The files that the model knows; without it, nobody asks whether it does."""
    progress: Callable[[str], None] = lambda _: None
    """Tells whoever watches, in a few words, what goes on in a call that takes long."""


class Arguments(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Base of every tool's arguments: a field that is not known is an error, never ignored."""


A_contra = TypeVar("A_contra", bound=Arguments, contravariant=True)
A = TypeVar("A", bound=Arguments)


class ToolFunction(Protocol[A_contra]):
    async def __call__(self, arguments: A_contra, context: ToolContext, /) -> ToolOutput: ...


class Tool(NamedTuple, Generic[A]):
    name: str
    description: str
    """For the model; from the `.md` file beside the tool."""
    arguments: type[A]
    run: ToolFunction[A]
    read_only: bool = False
    """Calls of such tools run side by side, and are repeated after a crash."""
    concurrent: bool = False
    """Calls run side by side although they have effects."""
    approval_facts: "Callable[[A, ToolContext], tuple[tuple[str, str], ...]] | None" = None
    """What a person who is asked must know besides the arguments. Raises KitbagError for what can't be done at all."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, _arguments_schema(self.arguments))

    def parse_arguments(self, arguments: dict[str, Any]) -> A:
        """Raises msgspec.ValidationError, which says which field and why."""
        return msgspec.convert(arguments, self.arguments)


@cache
def _arguments_schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Each struct stands where it is used: msgspec writes references to definitions, which not every provider follows.
    What says little is left out, because it costs tokens in every request: bounds of lengths, which are told when they
    are broken, and empty defaults. Made once: every agent that is started has its own set of the same tools."""
    whole = msgspec.json.schema(arguments)
    return cast("dict[str, Any]", _simplify_schema(whole["$defs"][arguments.__name__], whole["$defs"]))


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
        fields = {**fields, "properties": inner}
    else:
        fields = {key: _simplify_schema(value, definitions) for key, value in fields.items()}
    return {key: value for key, value in fields.items() if key not in _OMITTED_KEYS and (key != "default" or value)}


_OMITTED_KEYS: Final = frozenset(("$ref", "title", "minLength", "maxLength", "additionalProperties"))


def load_description(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()
