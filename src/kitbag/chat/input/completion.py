"""Completions: commands, skills and prompts after `/`, their arguments, files and agents after `@`.

Used by terminal/make_terminal. Queries library, sessions and tasks each time, so that a persona change shows at once;
files come from workspace_files. Candidates with hidden or control characters are shown escaped and never inserted.
"""

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from kitbag.assembly.mcp_servers import AgentServers
from kitbag.assembly.mention_syntax import AGENT_PREFIX, NOT_INSIDE_WORD, format_mention
from kitbag.chat.commands import COMMANDS
from kitbag.chat.input.match_ranking import rank, rank_items
from kitbag.chat.input.workspace_files import WorkspaceFiles
from kitbag.errors import KitbagError
from kitbag.library.dialects.permission_modes import MODES_STRICTEST_FIRST
from kitbag.library.names import LibraryItem, Namespace, slugify
from kitbag.library.registry import Registry
from kitbag.library.visibility import evaluate_skills
from kitbag.permissions.model import Workspace
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal, find_hidden

MAX_COMPLETIONS: Final = 50
_MAX_ENTRIES: Final = 5_000
_MAX_DESCRIPTION = 120
_FIRST_WAIT = 0.15
"""Longest wait of a key press for the first file listing, if completion is synchronous."""
_LATER_WAIT = 3.0
_MENTION = re.compile(rf"""{NOT_INSIDE_WORD}@(?:"([^"\n]*)|'([^'\n]*)|([^\s"']*))$""")
_COMMAND = re.compile(r"/(\S*)$")
_ARGUMENT = re.compile(r"/(\S+)[ \t]+(.*)$")
_OUTSIDE: Final = ("../", "~/", "/")
_STATES: Final = ("on", "name-only", "user-only", "off")
_TASK_VERBS: Final = ("show", "stop", "resume", "answer")
_MAX_AGENTS = 10
"""Number of agents offered beside many files."""
_Search = Callable[[float], list[Completion]]
"""Takes the seconds to wait for a file listing."""
T = TypeVar("T", bound=LibraryItem)


class CompletionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """The text to insert."""
    description: str = ""
    label: str = ""
    """What the menu shows, if not `text`."""


class CompletionSources(msgspec.Struct, frozen=True, kw_only=True):
    """What can be completed; each function is called for every completion."""

    library: Callable[[], Registry]
    workspace: Workspace
    directory: str
    """The user's current directory: typed paths are relative to it."""
    sessions: Callable[[], Iterable[tuple[str, str]]] = tuple
    """(id, description), newest first."""
    tasks: Callable[[], Iterable[tuple[str, str]]] = tuple
    prompts: Callable[[], Mapping[str, str]] = dict[str, str]
    """Prompts of MCP servers: name to description, as from prompt_descriptions."""
    models: Callable[[], Iterable[str]] = tuple
    """Models of the user's settings, in addition to the catalog."""


def prompt_descriptions(mcp_servers: AgentServers) -> dict[str, str]:
    """`mcp__server__prompt` names and their descriptions."""
    found: dict[str, str] = {}
    for servers in (mcp_servers.shared, mcp_servers.own):
        for name, (label, prompt) in (servers.prompts() if servers is not None else {}).items():
            wanted = " ".join(f"<{one}>" if one in prompt.needed else f"[{one}]" for one in prompt.arguments)
            found[name] = f"{wanted} {prompt.description or f'prompt of MCP server {label}'}".strip()
    return found


class ChatCompleter(Completer):
    """Never raises and never takes long: offers only what is available in time."""

    def __init__(self, sources: CompletionSources) -> None:
        self._sources = sources
        self._files = WorkspaceFiles(sources.workspace)
        self._files.refresh()  # so that the listing is ready when it is needed

    def close(self) -> None:
        """Stops a running file listing."""
        self._files.close()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        del complete_event
        yield from _without_errors(lambda: self._search(document.text_before_cursor)(_FIRST_WAIT))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Disk access runs in its own thread, so that a slow disk blocks nothing; after a timeout the thread is
        abandoned."""
        del complete_event
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Completion]] = loop.create_future()
        try:
            search = self._search(document.text_before_cursor)
        except Exception:  # noqa: BLE001 - see _without_errors
            return

        def settle(completions: list[Completion]) -> None:
            if not found.done():
                found.set_result(completions)

        def work() -> None:
            completions = _without_errors(lambda: search(_LATER_WAIT))
            with contextlib.suppress(RuntimeError):  # the chat ended meanwhile
                loop.call_soon_threadsafe(settle, completions)

        threading.Thread(target=work, daemon=True, name="completion").start()
        try:
            completions = await asyncio.wait_for(found, _LATER_WAIT + 1)
        except TimeoutError:
            return
        for completion in completions:
            yield completion

    def _search(self, text: str) -> _Search:
        """Queries the library here, in the thread it belongs to; the returned search may run in another one."""
        mention = _MENTION.search(text[-5_000:])
        if mention is not None:
            typed = next((group for group in mention.groups() if group is not None), "")
            if typed.startswith(_OUTSIDE) or typed == "~":
                return lambda _: _to_completions(self._outside_paths(typed), len(mention[0]))
            agents = self._matching_agents(typed)
            return lambda wait: _to_completions(self._mentions(typed, agents, wait), len(mention[0]))
        found: list[Completion] = []
        if text.startswith("/") and "\n" not in text:
            if (command := _COMMAND.fullmatch(text)) is not None:
                found = _to_completions(self._commands(command[1]), len(text))
            elif (argument := _ARGUMENT.fullmatch(text)) is not None and argument[1] == "export":
                folder = argument[2]
                return lambda _: _to_completions(self._outside_paths(folder, is_mention=False), len(folder))
            elif argument is not None:
                found = self._arguments(argument[1], argument[2])
        return lambda _: found

    # After `/`

    def _commands(self, typed: str) -> list[CompletionCandidate]:
        candidates = [
            CompletionCandidate(text=f"/{one.name}", description=one.help, label=f"/{one.name} {one.arguments}")
            for one in COMMANDS.values()
        ]
        with contextlib.suppress(KitbagError, OSError):
            candidates += self._skills(self._sources.library())
        candidates += [
            CompletionCandidate(text=f"/{name}", description=description)
            for name, description in self._sources.prompts().items()
        ]
        return rank_items(typed, candidates, lambda candidate: candidate.text[1:])

    def _skills(self, library: Registry) -> Iterator[CompletionCandidate]:
        for skill, verdict in evaluate_skills(library.skills, library.visibility_context()):
            name = _typed_name(library.skills, skill) if verdict.user else ""
            if name and name.lower() not in COMMANDS:
                yield CompletionCandidate(
                    text=f"/{name}", description=skill.description, label=f"/{name} {skill.argument_hint}"
                )

    def _arguments(self, command: str, typed_arguments: str) -> list[Completion]:
        *before, typed = typed_arguments.split(" ")
        candidates = self._argument_candidates(command, [word for word in before if word])
        return _to_completions(rank_items(typed, candidates, lambda candidate: candidate.text), len(typed))

    def _argument_candidates(self, command: str, before: list[str]) -> list[CompletionCandidate]:
        library, first = self._sources.library, not before
        match command:
            case "persona" if first:
                personas = library().personas
                named = [
                    CompletionCandidate(text=_typed_name(personas, one), description=one.description)
                    for one in personas
                ]
                return [*named, CompletionCandidate(text="none", description="no persona")]
            case "model" if first:
                return [
                    CompletionCandidate(text=name)
                    for name in dict.fromkeys((*self._sources.models(), *_known_models()))
                ]
            case "model" if len(before) == 1:
                return [CompletionCandidate(text=effort) for effort in ("low", "medium", "high", "default")]
            case "mode" if first:
                return [CompletionCandidate(text=mode) for mode in MODES_STRICTEST_FIRST]
            case "agents" if first:
                return self._agents("")
            case "skills" if first:
                return [CompletionCandidate(text=state) for state in _STATES]
            case "skills" if len(before) == 1 and before[0] in _STATES:
                skills = library().skills
                return [
                    CompletionCandidate(text=_typed_name(skills, one), description=one.description) for one in skills
                ]
            case "tasks" if first:
                return [CompletionCandidate(text=verb) for verb in _TASK_VERBS]
            case "tasks" if len(before) == 1 and before[0] in _TASK_VERBS:
                return _described(self._sources.tasks())
            case "stop" if first:
                return [
                    *_described(self._sources.tasks()),
                    CompletionCandidate(text="all", description="all tasks of this session"),
                ]
            case "resume" if first:
                return [
                    CompletionCandidate(text="last", description="the most recent session"),
                    *_described(self._sources.sessions()),
                ]
            case _:
                return []

    def _agents(self, start: str) -> list[CompletionCandidate]:
        library = self._sources.library()
        found = [(_typed_name(library.agents, one), one) for one, verdict in library.visible_agents() if verdict.model]
        return [
            CompletionCandidate(text=f"{start}{name}", description=agent.description) for name, agent in found if name
        ]

    # After `@`

    def _matching_agents(self, typed: str) -> list[CompletionCandidate]:
        """Requires a substring match: letters in order match too many agents."""
        try:
            found = [(rank(typed, candidate.text[1:]), candidate) for candidate in self._agents(f"@{AGENT_PREFIX}")]
        except (KitbagError, OSError):
            return []
        matching = [(fit, candidate.text, candidate) for fit, candidate in found if fit is not None and fit < 4]
        return [candidate for _, _, candidate in sorted(matching, key=lambda match: match[:2])]

    def _mentions(self, typed: str, agents: list[CompletionCandidate], wait: float) -> list[CompletionCandidate]:
        files = self._files.best_matches(typed, MAX_COMPLETIONS, wait)
        candidates = [candidate for path in files if (candidate := self._file(path)) is not None]
        if typed.startswith(AGENT_PREFIX):
            return [*agents, *candidates]
        return [*candidates[: MAX_COMPLETIONS - min(len(agents), _MAX_AGENTS)], *agents]

    def _file(self, path: str) -> CompletionCandidate | None:
        """A path of the workspace, relative to the current directory."""
        root, here = self._sources.workspace.root, self._sources.directory
        inside = here[len(root) :].strip("/") + "/" if here != root and here.startswith(f"{root}/") else ""
        if inside and path.startswith(inside):
            path = path[len(inside) :]
        elif inside and os.path.lexists(os.path.join(here, path)):
            path = os.path.relpath(os.path.join(root, path), here) + ("/" if path.endswith("/") else "")
        return _file_candidate(path) if path else None

    def _outside_paths(self, typed: str, *, is_mention: bool = True) -> list[CompletionCandidate]:
        """Entries of one directory outside the workspace. Raises OSError."""
        folder, slash, name = typed.rpartition("/") if typed != "~" else ("~", "/", "")
        above = folder + slash
        with os.scandir(os.path.join(self._sources.directory, os.path.expanduser(above))) as entries:
            entry_names = [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, _MAX_ENTRIES)
                if name.startswith(".") or not entry.name.startswith(".")
            ]
        matching = [f"{above}{one}" for one in rank_items(name, sorted(entry_names), str)[:MAX_COMPLETIONS]]
        if not is_mention:
            return [CompletionCandidate(text=path) for path in matching]
        return [candidate for path in matching if (candidate := _file_candidate(path)) is not None]


def _without_errors(search: Callable[[], list[Completion]]) -> list[Completion]:
    try:
        return search()
    except Exception:  # noqa: BLE001 - typing must work even when a file or library is unreadable
        return []


def _file_candidate(path: str) -> CompletionCandidate | None:
    mention = format_mention(path)
    if not mention:
        return None
    # A directory is an intermediate step: leave its quote open.
    is_open = path.endswith("/") and mention[-1] in "\"'"
    return CompletionCandidate(text=mention[:-1] if is_open else mention, label=f"@{path}")


def _described(pairs: Iterable[tuple[str, str]]) -> list[CompletionCandidate]:
    return [CompletionCandidate(text=text, description=description) for text, description in pairs]


def _typed_name(names: Namespace[T], item: T) -> str:
    """The name as it can be typed without spaces; empty if there is none."""
    if not any(char.isspace() for char in item.full_name):
        return item.full_name
    short = slugify(item.full_name)
    return short if [one.full_name for one in names.candidates(short)] == [item.full_name] else ""


def _known_models() -> list[str]:
    from kitbag.models.catalog import known_model_names, model_aliases

    words = [*model_aliases("anthropic"), *model_aliases("openai")]
    return [*dict.fromkeys(words), *known_model_names()]


def _to_completions(candidates: Iterable[CompletionCandidate], replaced: int) -> list[Completion]:
    """Skips candidates whose text has hidden characters."""
    completions: dict[str, Completion] = {}
    for candidate in candidates:
        if (
            not candidate.text
            or candidate.text in completions
            or any(char in "\n\t" for char in candidate.text)
            or find_hidden(candidate.text)
        ):
            continue
        shown = escape_for_terminal(collapse_whitespace(candidate.label or candidate.text))
        description = escape_for_terminal(collapse_whitespace(candidate.description[: 4 * _MAX_DESCRIPTION]))
        description = description if len(description) <= _MAX_DESCRIPTION else f"{description[: _MAX_DESCRIPTION - 1]}…"
        completions[candidate.text] = Completion(candidate.text, -replaced, display=shown, display_meta=description)
        if len(completions) == MAX_COMPLETIONS:
            break
    return list(completions.values())
