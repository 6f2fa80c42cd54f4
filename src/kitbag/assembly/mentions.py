"""`@file` in what a person says: the files, folders and agents they name are put before the model with the message.

Used by Agent for what a person says and for nothing else. Files are read by the Read tool itself, under the rules of
this run, so that nothing is shown that it would refuse, and Edit knows them as read; mention_syntax finds the names.
"""

import asyncio
import os
import re
import stat
from itertools import islice
from typing import Final, NamedTuple

from kitbag.agent.ask_model import Emit
from kitbag.agent.execute import Executor
from kitbag.assembly.file_extensions import looks_like_file
from kitbag.assembly.mention_syntax import AGENT_PREFIX, Mention, MentionTarget, bare_word, find_mentions, list_targets
from kitbag.errors import InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.messages import Image, Text
from kitbag.permissions.model import PermissionDecision, is_inside
from kitbag.permissions.paths import PathFacts, examine_path
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import ToolContext, ToolOutput
from kitbag.tools.files.paths import authorize_path, display_path, missing_path_output, number_of, visible_line
from kitbag.tools.files.read import MAX_LINES, READ, ReadArguments
from kitbag.tools.search.readable import ReadFilter
from kitbag.tools.search.walk import VCS_DIRECTORIES
from kitbag.tools.web.untrusted_text import untrusted_block

MAX_MENTIONS: Final = 20
MAX_CHARS: Final = 120_000
"""Of all that one message names."""
MAX_IMAGES: Final = 10
MAX_IMAGE_CHARS: Final = 15_000_000
"""Base64, of all pictures of one message."""
MAX_NOTICES: Final = 10
MAX_FOLDER_NAMES: Final = 100
"""Of a folder."""
MAX_TYPED_LINES: Final = 10
MAX_TYPED_CHARS: Final = 1_000
"""A longer text may have been pasted: a file that it names outside of what may be read is not taken as named by the
person."""
_MAX_FOLDER_ENTRIES = 10_000
_MIN_FILE_CHARS = 400
_NUMBERED_LINE = re.compile(r" *(\d+)\t")
_LINES_SHOWN = re.compile(r"lines [\d,]+-[\d,]+ of ((?:more than )?[\d,]+)")


class MentionedContent(NamedTuple):
    blocks: tuple[str, ...] = ()
    """For the tail of the message; those with `images` are followed by so many pictures, in this order."""
    images: tuple[Image, ...] = ()
    notices: tuple[Notice, ...] = ()
    files: tuple[str, ...] = ()
    """Absolute: what was read."""


NO_MENTIONS: Final = MentionedContent()


async def read_mentions(
    text: str, emit: Emit, executor: Executor, base_directory: str, is_interactive: bool, window: int
) -> MentionedContent:
    """What a request names, read as its own calls would read it, with the skills that wait for such a file. `window`:
    the model's, in tokens; a fourth of it at most is filled, about."""
    context = executor.context
    context = context._replace(permissions=executor.approvals.with_session_rules(context.permissions))
    most = min(MAX_CHARS, window)
    found = await gather_mentions(
        text, context, base_directory=base_directory, is_interactive=is_interactive, max_chars=most
    )
    for notice in found.notices:
        emit(notice)
    if executor.path_skills is None or executor.toolset.get("Skill") is None:
        return found
    told = [executor.path_skills.notice_for("Read", {"file_path": path}, base_directory) for path in found.files]
    return found._replace(blocks=(*found.blocks, *filter(None, told)))


async def gather_mentions(
    text: str,
    context: ToolContext,
    *,
    base_directory: str = "",
    is_interactive: bool = False,
    max_chars: int = MAX_CHARS,
) -> MentionedContent:
    """`text`: exactly what the person said. `start`: where paths begin that are not absolute; where the model works if
    it is not given. `person_is_there`: they type it now, so what they name needs no answer of theirs besides. `most`:
    characters of all of it."""
    found = find_mentions(text)
    if not found:
        return NO_MENTIONS
    is_short = len(text) <= MAX_TYPED_CHARS and text.count("\n") < MAX_TYPED_LINES
    gathering = _MentionReader(context, base_directory or context.directory, is_interactive, is_short, max_chars)
    for mention in found:
        await gathering.add(mention)
    return gathering.result()


class _MentionedPath(NamedTuple):
    """A mention of something that exists."""

    path: str
    """Absolute, or from a home on, as it was named: what `link/..` means is up to whoever follows it."""
    target: MentionTarget
    facts: PathFacts
    is_folder: bool


class _MentionReader:
    """What one message names, as far as there is room for it."""

    def __init__(
        self, context: ToolContext, base_directory: str, is_interactive: bool, is_short: bool, max_chars: int
    ) -> None:
        self._context = context
        self._base_directory = base_directory
        self._is_interactive = is_interactive
        self._is_short = is_short
        self._blocks: list[str] = []
        self._images: list[Image] = []
        self._notices: list[Notice] = []
        self._files: list[str] = []
        self._seen: set[object] = set()
        self._chars_left = max_chars
        self._image_chars_left = MAX_IMAGE_CHARS
        self._omitted = 0

    def result(self) -> MentionedContent:
        if self._omitted:
            what = f"{number_of(self._omitted, 'more file')} named with @ not taken along"
            self._warn(what, f"name at most {MAX_MENTIONS} in a message; the model can read the others itself")
        notices = self._notices[:MAX_NOTICES]
        if more := len(self._notices) - len(notices):
            notices.append(Notice("warning", f"{more:,} more remarks about what is named with @ are left out"))
        return MentionedContent(tuple(self._blocks), tuple(self._images), tuple(notices), tuple(self._files))

    def _warn(self, problem: str, fix: str = "") -> None:
        self._notices.append(
            Notice("warning", collapse_whitespace(visible_line(problem)), collapse_whitespace(visible_line(fix)))
        )

    async def add(self, mention: Mention) -> None:
        if not mention.is_quoted and mention.word.startswith(AGENT_PREFIX) and self._add_agent(mention):
            return
        found = await asyncio.to_thread(self._find, mention)
        if found is None:
            await asyncio.to_thread(self._warn_if_missing, mention)
            return
        key = (found.facts.resolved, found.target.first_line, found.target.last_line)
        if key in self._seen:
            return
        if len(self._seen) == MAX_MENTIONS:
            self._omitted += 1
            return
        self._seen.add(key)
        judgement = self._check_permission(found)
        if judgement is None:
            return
        context = self._context._replace(decision=judgement)
        if found.is_folder:
            await asyncio.to_thread(self._add_folder, found, context)
        else:
            await self._add_file(found, context)

    # What is meant

    def _find(self, mention: Mention) -> _MentionedPath | None:
        """Of the possible meanings the first that exists: from where the person is, else from the workspace's root."""
        for named in list_targets(mention):
            for start in dict.fromkeys((self._base_directory, self._context.workspace.root)):
                path = named.path if named.path.startswith("~") else os.path.join(start, named.path)
                facts = examine_path(path, self._context.workspace, start)
                try:
                    is_folder = stat.S_ISDIR(os.lstat(facts.resolved).st_mode)
                except (OSError, ValueError):
                    continue
                if not (named.first_line if is_folder else named.path.endswith("/")):
                    return _MentionedPath(path, named, facts, is_folder)
        return None

    def _warn_if_missing(self, mention: Mention) -> None:
        """Only of what was surely meant as a file: people also write decorators, packages and nicknames."""
        word = bare_word(mention)
        top = word.partition("/")[0]
        has_top = "/" in word and any(
            os.path.isdir(os.path.join(start, top)) for start in (self._base_directory, self._context.workspace.root)
        )
        if not looks_like_file(word, is_quoted=mention.is_quoted, has_top_folder=has_top):
            return
        facts = examine_path(word, self._context.workspace, self._base_directory)
        said = "".join(
            part.text for part in missing_path_output(self._context, facts).content if isinstance(part, Text)
        )
        close = said.partition("Did you mean ")[2]
        self._warn(f"@{word}: there is no such file", f"did you mean {close}" if close else "")

    def _check_permission(self, found: _MentionedPath) -> PermissionDecision | None:
        """What Read may do. None: it is refused, and the person was told why."""
        context, facts, path = self._context, found.facts, found.facts.requested
        judgement = context.permissions.decide("Read", {"file_path": found.path}, context.directory)
        if judgement.effect == "allow":
            return judgement
        name = display_path(path, context)
        decisive = next((part for part in judgement.parts if part.effect == judgement.effect), None)
        rule = f" ({decisive.rule}, {decisive.source})" if decisive is not None and decisive.rule else ""
        reason, fix = f"{judgement.reason}{rule}", ""
        if judgement.effect == "ask":
            roots = context.workspace.read_roots
            inside = any(is_inside(path, root) for root in roots)
            if facts.private_reason:
                fix = f"if the model may read it, allow exactly that: Read(/{path})"
            elif inside and not any(is_inside(facts.resolved, root) for root in roots):
                fix = f"name {facts.resolved} itself"
            elif not self._is_interactive:
                fix = f"allow it by a rule: Read(/{path})"
            elif not self._is_short:
                reason += ", and so long a text may hold words of others"
                fix = "name it in a short message of its own"
            else:
                return judgement
        self._warn(f"@{name} is not shown to the model: {reason}", fix)
        return None

    # Files

    async def _add_file(self, found: _MentionedPath, context: ToolContext) -> None:
        name = display_path(found.facts.requested, context)
        if self._chars_left < _MIN_FILE_CHARS:
            self._warn(f"@{name} is not taken along: the files of this message are too long together")
            self._add_block("mentioned-file", {"path": name}, "[Not shown here for want of room. Use Read.]")
            return
        first = found.target.first_line or 1
        limit = found.target.last_line - first + 1 if found.target.last_line else MAX_LINES
        try:
            outcome = await READ.run(ReadArguments(found.path, first, limit), context)
        except KitbagError as error:
            outcome = ToolOutput((Text(f"Error: {error.problem}"),), error.problem, is_error=True)
        except OSError as error:
            problem = f"{name} can't be read: {error.strerror or error}"
            outcome = ToolOutput((Text(f"Error: {problem}"),), problem, is_error=True)
        if outcome.is_error:
            self._warn(f"@{name}: {outcome.summary}")
        else:
            self._files.append(found.facts.requested)
        self._add_file_block(name, outcome, first)

    def _add_file_block(self, name: str, outcome: ToolOutput, first: int) -> None:
        text = "\n".join(part.text for part in outcome.content if isinstance(part, Text))
        pictures: list[Image] = []
        for image in (part for part in outcome.content if isinstance(part, Image)):
            if len(self._images) + len(pictures) < MAX_IMAGES and len(image.data) <= self._image_chars_left:
                pictures.append(image)
                self._image_chars_left -= len(image.data)
            else:
                self._warn(f"@{name}: a picture is not taken along: there are too many, or they are too large together")
                text = f"{text}\n[A picture is left out here for want of room.]".lstrip()
        if pictures:
            which = "The picture follows" if len(pictures) == 1 else f"{len(pictures)} pictures follow"
            text = f"{text}\n[{which} this text.]".lstrip()
        text, lines = _truncate(text, self._chars_left, first, outcome.truncation)
        attributes = {"path": name, "lines": lines, "images": str(len(pictures)) if pictures else ""}
        self._add_block("mentioned-file", attributes, text)
        self._images += pictures

    def _add_block(self, tag: str, attributes: dict[str, str], text: str) -> None:
        made = untrusted_block(tag, attributes, text)
        if made.count("&lt;") > text.count("&lt;") + sum(one.count("<") for one in attributes.values()):
            note = "[Where this text has a tag like those of this conversation, its < is shown as &lt;.]"
            made = untrusted_block(tag, attributes, f"{text}\n{note}")
        self._blocks.append(made)
        self._chars_left -= len(made)

    # Folders

    def _add_folder(self, found: _MentionedPath, context: ToolContext) -> None:
        name = display_path(found.facts.requested, context).rstrip("/") + "/"
        try:
            place = authorize_path(context, "Read", {"file_path": found.path}, found.path)
            entries = _list_folder(place.facts.resolved)
        except InvalidError as error:
            self._warn(f"@{name} is not shown to the model: {error.problem}", error.fix)
            return
        except OSError as error:
            self._warn(f"@{name} can't be read: {error.strerror or error}")
            return
        readable = ReadFilter(place, context)
        names: list[str] = []
        withheld = 0
        while entries and len(names) < MAX_FOLDER_NAMES and withheld < MAX_FOLDER_NAMES:
            is_file, entry = entries.pop()
            if readable.display_name(entry):  # what may not be read is not named
                names.append(visible_line(entry) + ("" if is_file else "/"))
            else:
                withheld += 1
        notes = [f"{len(entries):,} more"] if entries else []
        notes += [f"{withheld:,} left out that may not be read"] if withheld else []
        lines = [*names, *([f"[{'; '.join(notes)}]"] if notes else [])] or ["[It is empty.]"]
        self._add_block("mentioned-folder", {"path": name}, "\n".join(lines))

    # Agents

    def _add_agent(self, mention: Mention) -> bool:
        """False: it is no agent's name, and may be a file's."""
        library, context = self._context.library, self._context
        problem: KitbagError | None = None
        for named in list_targets(mention):
            try:
                agent = library.find_agent(named.path.removeprefix(AGENT_PREFIX))
            except KitbagError as error:
                problem = problem or error
                continue
            verdict = library.evaluate(agent)
            if not verdict.model:
                self._warn(f"the agent {agent.full_name} can't be given work here: {verdict.reason}")
            elif context.delegation is None or not context.permissions.has_tool("Task"):
                self._warn(f"the agent {agent.full_name} can't be given work here: there is no tool for it")
            elif ("agent", agent.full_name) not in self._seen and len(self._seen) < MAX_MENTIONS:
                self._seen.add(("agent", agent.full_name))
                told = f"The person wants the agent {agent.full_name} to do this: give it the work with Task."
                self._add_block("mentioned-agent", {"name": agent.full_name}, told)
            return True
        if self._find(mention) is not None:
            return False
        word = bare_word(mention).removeprefix(AGENT_PREFIX)
        close = library.agents.suggest(word)
        fix = f"did you mean {', '.join(f'@{AGENT_PREFIX}{name}' for name in close)}?" if close else "/agents shows all"
        self._warn(
            f"@{AGENT_PREFIX}{word}: {problem.problem if problem is not None else 'there is no such agent'}", fix
        )
        return True


def _list_folder(resolved: str) -> list[tuple[bool, str]]:
    """(whether it is no folder, name) of a folder that is reached without a link, the first ones at the end: folders
    before files. Raises OSError."""
    folder = open_directory(resolved)
    try:
        with os.scandir(folder) as entries:
            some = islice((entry for entry in entries if entry.name not in VCS_DIRECTORIES), _MAX_FOLDER_ENTRIES)
            return sorted(((not entry.is_dir(follow_symlinks=False), entry.name) for entry in some), reverse=True)
    finally:
        os.close(folder)


def _truncate(text: str, max_chars: int, first: int, cut: str) -> tuple[str, str]:
    """The text as far as there is room, and which lines these are: `1-200 of 950`; empty where they have no numbers."""
    row = _NUMBERED_LINE.match(text)
    is_numbered = row is not None and int(row[1]) == first
    if len(text) > max_chars:
        kept = text[:max_chars].rpartition("\n")[0] or text[:max_chars]
        text = kept
    else:
        kept = ""
    if not is_numbered:
        note = "[Cut here for want of room. Use Read for the rest.]"
        return (f"{text}\n{note}" if kept else text), ""
    last = first
    for line in reversed(text.split("\n")):
        if (row := _NUMBERED_LINE.match(line)) is not None:
            last = int(row[1])
            break
    whole = _LINES_SHOWN.search(cut)
    if kept:
        text = f"{text}\n[Cut here for want of room. Go on with Read and offset={last + 1}.]"
    total = f" of {whole[1]}" if whole is not None else f" of {last:,}" if not kept else ""
    return text, f"{first:,}-{last:,}{total}"
