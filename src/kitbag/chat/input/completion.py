"""What can be typed next: commands, skills and prompts behind `/`, their arguments, files and agents behind `@`.

Used by the terminal face. Asks for the library, sessions and tasks each time, so that another persona shows at once;
files come from workspace_files. Whatever is offered is clean: what hides or controls is shown as such, and not typed.
"""

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeVar

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
_MOST_ENTRIES: Final = 5_000
_LONGEST_META = 120
_FIRST_WAIT = 0.15
"""Seconds that a key press may wait for the first list of files, where it can't wait in the background."""
_LATER_WAIT = 3.0
_MENTION = re.compile(rf"""{NOT_INSIDE_WORD}@(?:"([^"\n]*)|'([^'\n]*)|([^\s"']*))$""")
_COMMAND = re.compile(r"/(\S*)$")
_ARGUMENT = re.compile(r"/(\S+)[ \t]+(.*)$")
_ELSEWHERE: Final = ("../", "~/", "/")
_STATES: Final = ("on", "name-only", "user-only", "off")
_TASK_VERBS: Final = ("show", "stop", "resume", "answer")
_FEW = 10
"""Agents that have a place beside many files."""
_Search = Callable[[float], list[Completion]]
"""Given the seconds that may be waited for a list of files."""
T = TypeVar("T", bound=LibraryItem)


class CompletionCandidate(NamedTuple):
    """Something that could be typed."""

    text: str
    """What is typed for it."""
    description: str = ""
    label: str = ""
    """Where it is not what is typed."""


class CompletionSources(NamedTuple):
    """What is there to be named, asked for each time."""

    library: Callable[[], Registry]
    workspace: Workspace
    directory: str
    """Where the person is: paths that they type start here."""
    sessions: Callable[[], Iterable[tuple[str, str]]] = tuple
    """(id, what it is about), the newest first."""
    tasks: Callable[[], Iterable[tuple[str, str]]] = tuple
    prompts: Callable[[], Mapping[str, str]] = dict[str, str]
    """Of servers: name to description; offered_prompts makes it."""
    models: Callable[[], Iterable[str]] = tuple
    """Those of the person's settings, besides those that are known."""


def prompt_descriptions(offered: AgentServers) -> dict[str, str]:
    """`mcp__server__prompt` and what it is for."""
    found: dict[str, str] = {}
    for servers in (offered.shared, offered.own):
        for name, (label, prompt) in (servers.prompts() if servers is not None else {}).items():
            wanted = " ".join(f"<{one}>" if one in prompt.needed else f"[{one}]" for one in prompt.arguments)
            found[name] = f"{wanted} {prompt.description or f'of the server {label}'}".strip()
    return found


class ChatCompleter(Completer):
    """Never raises, and never takes long: what isn't known in time is not offered."""

    def __init__(self, sources: CompletionSources) -> None:
        self._around = sources
        self._files = WorkspaceFiles(sources.workspace)
        self._files.refresh()  # so that the list is there when somebody asks for it

    def close(self) -> None:
        """Ends the listing of files, if one is under way."""
        self._files.close()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        del complete_event
        yield from _without_fail(lambda: self._search(document.text_before_cursor)(_FIRST_WAIT))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Disks are asked in a thread of its own, so that a slow one holds up nothing; it is left behind when it takes
        too long."""
        del complete_event
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Completion]] = loop.create_future()
        try:
            search = self._search(document.text_before_cursor)
        except Exception:  # noqa: BLE001 - as below
            return

        def settle(completions: list[Completion]) -> None:
            if not found.done():
                found.set_result(completions)

        def work() -> None:
            completions = _without_fail(lambda: search(_LATER_WAIT))
            with contextlib.suppress(RuntimeError):  # the chat has ended meanwhile
                loop.call_soon_threadsafe(settle, completions)

        threading.Thread(target=work, daemon=True, name="completion").start()
        try:
            completions = await asyncio.wait_for(found, _LATER_WAIT + 1)
        except TimeoutError:
            return
        for completion in completions:
            yield completion

    def _search(self, text: str) -> _Search:
        """The library and the like are asked here, by whoever they belong to; what is left may be done elsewhere."""
        mention = _MENTION.search(text[-5_000:])
        if mention is not None:
            typed = next((group for group in mention.groups() if group is not None), "")
            if typed.startswith(_ELSEWHERE) or typed == "~":
                return lambda _: _made(self._elsewhere(typed), len(mention[0]))
            agents = self._fitting_agents(typed)
            return lambda wait: _made(self._mentions(typed, agents, wait), len(mention[0]))
        found: list[Completion] = []
        if text.startswith("/") and "\n" not in text:
            if (command := _COMMAND.fullmatch(text)) is not None:
                found = _made(self._commands(command[1]), len(text))
            elif (argument := _ARGUMENT.fullmatch(text)) is not None and argument[1] == "export":
                folder = argument[2]
                return lambda _: _made(self._elsewhere(folder, is_mention=False), len(folder))
            elif argument is not None:
                found = self._arguments(argument[1], argument[2])
        return lambda _: found

    # Behind `/`

    def _commands(self, typed: str) -> list[CompletionCandidate]:
        offers = [
            CompletionCandidate(f"/{one.name}", one.help, f"/{one.name} {one.arguments}") for one in COMMANDS.values()
        ]
        with contextlib.suppress(KitbagError, OSError):
            offers += self._skills(self._around.library())
        offers += [CompletionCandidate(f"/{name}", about) for name, about in self._around.prompts().items()]
        return rank_items(typed, offers, lambda offer: offer.text[1:])

    def _skills(self, library: Registry) -> Iterator[CompletionCandidate]:
        for skill, verdict in evaluate_skills(library.skills, library.visibility_context()):
            name = _typed_name(library.skills, skill) if verdict.user else ""
            if name and name.lower() not in COMMANDS:
                yield CompletionCandidate(f"/{name}", skill.description, f"/{name} {skill.argument_hint}")

    def _arguments(self, command: str, behind: str) -> list[Completion]:
        *before, typed = behind.split(" ")
        offers = self._of_command(command, [word for word in before if word])
        return _made(rank_items(typed, offers, lambda offer: offer.text), len(typed))

    def _of_command(self, command: str, before: list[str]) -> list[CompletionCandidate]:
        library, first = self._around.library, not before
        match command:
            case "persona" if first:
                personas = library().personas
                named = [CompletionCandidate(_typed_name(personas, one), one.description) for one in personas]
                return [*named, CompletionCandidate("none", "without a persona")]
            case "model" if first:
                return [CompletionCandidate(name) for name in dict.fromkeys((*self._around.models(), *_known_models()))]
            case "mode" if first:
                return [CompletionCandidate(mode) for mode in MODES_STRICTEST_FIRST]
            case "agents" if first:
                return self._agents("")
            case "skills" if first:
                return [CompletionCandidate(state) for state in _STATES]
            case "skills" if len(before) == 1 and before[0] in _STATES:
                skills = library().skills
                return [CompletionCandidate(_typed_name(skills, one), one.description) for one in skills]
            case "tasks" if first:
                return [CompletionCandidate(verb) for verb in _TASK_VERBS]
            case "tasks" if len(before) == 1 and before[0] in _TASK_VERBS:
                return [CompletionCandidate(*task) for task in self._around.tasks()]
            case "stop" if first:
                return [
                    *(CompletionCandidate(*task) for task in self._around.tasks()),
                    CompletionCandidate("all", "every task"),
                ]
            case "resume" if first:
                return [
                    CompletionCandidate("last", "the newest one"),
                    *(CompletionCandidate(*one) for one in self._around.sessions()),
                ]
            case _:
                return []

    def _agents(self, start: str) -> list[CompletionCandidate]:
        library = self._around.library()
        found = [(_typed_name(library.agents, one), one) for one, verdict in library.visible_agents() if verdict.model]
        return [CompletionCandidate(f"{start}{name}", agent.description) for name, agent in found if name]

    # Behind `@`

    def _fitting_agents(self, typed: str) -> list[CompletionCandidate]:
        """Not by single letters: who means an agent types a part of its name."""
        try:
            found = [(rank(typed, offer.text[1:]), offer) for offer in self._agents(f"@{AGENT_PREFIX}")]
        except (KitbagError, OSError):
            return []
        return [offer for _, offer in sorted((fit, offer) for fit, offer in found if fit is not None and fit < 4)]

    def _mentions(self, typed: str, agents: list[CompletionCandidate], wait: float) -> list[CompletionCandidate]:
        files = self._files.best_matches(typed, MAX_COMPLETIONS, wait)
        offers = [offer for path in files if (offer := self._file(path)) is not None]
        if typed.startswith(AGENT_PREFIX):
            return [*agents, *offers]
        return [*offers[: MAX_COMPLETIONS - min(len(agents), _FEW)], *agents]

    def _file(self, path: str) -> CompletionCandidate | None:
        """A path of the workspace as it is typed where the person is."""
        root, here = self._around.workspace.root, self._around.directory
        inside = here[len(root) :].strip("/") + "/" if here != root and here.startswith(f"{root}/") else ""
        if inside and path.startswith(inside):
            path = path[len(inside) :]
        elif inside and os.path.lexists(os.path.join(here, path)):
            path = os.path.relpath(os.path.join(root, path), here) + ("/" if path.endswith("/") else "")
        return _file_offer(path) if path else None

    def _elsewhere(self, typed: str, *, is_mention: bool = True) -> list[CompletionCandidate]:
        """One folder, when it is asked for. Raises OSError."""
        folder, slash, name = typed.rpartition("/") if typed != "~" else ("~", "/", "")
        above = folder + slash
        with os.scandir(os.path.join(self._around.directory, os.path.expanduser(above))) as entries:
            some = [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, _MOST_ENTRIES)
                if name.startswith(".") or not entry.name.startswith(".")
            ]
        fitting = [f"{above}{one}" for one in rank_items(name, sorted(some), str)[:MAX_COMPLETIONS]]
        if not is_mention:
            return [CompletionCandidate(path) for path in fitting]
        return [offer for path in fitting if (offer := _file_offer(path)) is not None]


def _without_fail(search: Callable[[], list[Completion]]) -> list[Completion]:
    try:
        return search()
    except Exception:  # noqa: BLE001 - a file or a library that can't be read is no reason not to type on
        return []


def _file_offer(path: str) -> CompletionCandidate | None:
    mention = format_mention(path)
    if not mention:
        return None
    # A folder is a step on the way: its quote stays open.
    is_open = path.endswith("/") and mention[-1] in "\"'"
    return CompletionCandidate(mention[:-1] if is_open else mention, label=f"@{path}")


def _typed_name(names: Namespace[T], item: T) -> str:
    """As it can be typed where a blank ends a name; empty where it can't."""
    if not any(char.isspace() for char in item.full_name):
        return item.full_name
    short = slugify(item.full_name)
    return short if [one.full_name for one in names.candidates(short)] == [item.full_name] else ""


def _known_models() -> list[str]:
    from kitbag.models.catalog import known_model_names, model_aliases

    words = [*model_aliases("anthropic"), *model_aliases("openai")]
    return [*dict.fromkeys(words), *known_model_names()]


def _made(offers: Iterable[CompletionCandidate], replaced: int) -> list[Completion]:
    """What would be typed for them has no character in it that can't be seen."""
    made: dict[str, Completion] = {}
    for offer in offers:
        if (
            not offer.text
            or offer.text in made
            or any(char in "\n\t" for char in offer.text)
            or find_hidden(offer.text)
        ):
            continue
        shown = escape_for_terminal(collapse_whitespace(offer.label or offer.text))
        about = escape_for_terminal(collapse_whitespace(offer.description[: 4 * _LONGEST_META]))
        about = about if len(about) <= _LONGEST_META else f"{about[: _LONGEST_META - 1]}…"
        made[offer.text] = Completion(offer.text, -replaced, display=shown, display_meta=about)
        if len(made) == MAX_COMPLETIONS:
            break
    return list(made.values())
