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
from kitbag.assembly.mention_syntax import AGENT, Mention, Named, bare_word, find_mentions, meanings
from kitbag.errors import InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.messages import Image, Text
from kitbag.permissions.model import Judgement, is_inside
from kitbag.permissions.paths import Facts, examine
from kitbag.text.hidden_characters import one_line
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import Context, Outcome
from kitbag.tools.files.paths import missing, number_of, settle, shown, visible
from kitbag.tools.files.read import MOST_LINES, READ, ReadArguments
from kitbag.tools.search.readable import Readable
from kitbag.tools.search.walk import NEVER_ENTERED
from kitbag.tools.web.untrusted_text import block

MOST_MENTIONS: Final = 20
MOST_CHARACTERS: Final = 120_000
"""Of all that one message names."""
MOST_IMAGES: Final = 10
MOST_IMAGE_CHARACTERS: Final = 15_000_000
"""Base64, of all pictures of one message."""
MOST_NOTICES: Final = 10
MOST_NAMES: Final = 100
"""Of a folder."""
TYPED_LINES: Final = 10
TYPED_CHARACTERS: Final = 1_000
"""A longer text may have been pasted: a file that it names outside of what may be read is not taken as named by the
person."""
_MOST_ENTRIES = 10_000
_LEAST_USEFUL = 400
_ROW = re.compile(r" *(\d+)\t")
_CUT = re.compile(r"lines [\d,]+-[\d,]+ of ((?:more than )?[\d,]+)")


class Mentioned(NamedTuple):
    blocks: tuple[str, ...] = ()
    """For the tail of the message; those with `images` are followed by so many pictures, in this order."""
    images: tuple[Image, ...] = ()
    notices: tuple[Notice, ...] = ()
    files: tuple[str, ...] = ()
    """Absolute: what was read."""


NOTHING: Final = Mentioned()


async def named_by_person(
    text: str, emit: Emit, executor: Executor, start: str, person_is_there: bool, window: int
) -> Mentioned:
    """What a request names, read as its own calls would read it, with the skills that wait for such a file. `window`:
    the model's, in tokens; a fourth of it at most is filled, about."""
    context = executor.context
    context = context._replace(permissions=executor.approvals.permissions(context.permissions))
    most = min(MOST_CHARACTERS, window)
    found = await mentioned(text, context, start=start, person_is_there=person_is_there, most=most)
    for notice in found.notices:
        emit(notice)
    if executor.path_skills is None or executor.toolset.get("Skill") is None:
        return found
    told = [executor.path_skills.told_for("Read", {"file_path": path}, start) for path in found.files]
    return found._replace(blocks=(*found.blocks, *filter(None, told)))


async def mentioned(
    text: str, context: Context, *, start: str = "", person_is_there: bool = False, most: int = MOST_CHARACTERS
) -> Mentioned:
    """`text`: exactly what the person said. `start`: where paths begin that are not absolute; where the model works if
    it is not given. `person_is_there`: they type it now, so what they name needs no answer of theirs besides. `most`:
    characters of all of it."""
    found = find_mentions(text)
    if not found:
        return NOTHING
    is_short = len(text) <= TYPED_CHARACTERS and text.count("\n") < TYPED_LINES
    gathering = _Gathering(context, start or context.directory, person_is_there, is_short, most)
    for mention in found:
        await gathering.take(mention)
    return gathering.result()


class _Found(NamedTuple):
    """A mention of something that exists."""

    path: str
    """Absolute, or from a home on, as it was named: what `link/..` means is up to whoever follows it."""
    named: Named
    facts: Facts
    is_folder: bool


class _Gathering:
    """What one message names, as far as there is room for it."""

    def __init__(self, context: Context, start: str, person_is_there: bool, is_short: bool, most: int) -> None:
        self._context = context
        self._start = start
        self._person_is_there = person_is_there
        self._is_short = is_short
        self._blocks: list[str] = []
        self._images: list[Image] = []
        self._notices: list[Notice] = []
        self._files: list[str] = []
        self._seen: set[object] = set()
        self._room = most
        self._picture_room = MOST_IMAGE_CHARACTERS
        self._left_out = 0

    def result(self) -> Mentioned:
        if self._left_out:
            what = f"{number_of(self._left_out, 'more file')} named with @ not taken along"
            self._tell(what, f"name at most {MOST_MENTIONS} in a message; the model can read the others itself")
        notices = self._notices[:MOST_NOTICES]
        if more := len(self._notices) - len(notices):
            notices.append(Notice("warning", f"{more:,} more remarks about what is named with @ are left out"))
        return Mentioned(tuple(self._blocks), tuple(self._images), tuple(notices), tuple(self._files))

    def _tell(self, what: str, fix: str = "") -> None:
        self._notices.append(Notice("warning", one_line(visible(what)), one_line(visible(fix))))

    async def take(self, mention: Mention) -> None:
        if not mention.is_quoted and mention.word.startswith(AGENT) and self._take_agent(mention):
            return
        found = await asyncio.to_thread(self._find, mention)
        if found is None:
            await asyncio.to_thread(self._tell_missing, mention)
            return
        key = (found.facts.resolved, found.named.first, found.named.last)
        if key in self._seen:
            return
        if len(self._seen) == MOST_MENTIONS:
            self._left_out += 1
            return
        self._seen.add(key)
        judgement = self._judge(found)
        if judgement is None:
            return
        context = self._context._replace(judgement=judgement)
        if found.is_folder:
            await asyncio.to_thread(self._take_folder, found, context)
        else:
            await self._take_file(found, context)

    # What is meant

    def _find(self, mention: Mention) -> _Found | None:
        """Of the possible meanings the first that exists: from where the person is, else from the workspace's root."""
        for named in meanings(mention):
            for start in dict.fromkeys((self._start, self._context.workspace.root)):
                path = named.path if named.path.startswith("~") else os.path.join(start, named.path)
                facts = examine(path, self._context.workspace, start)
                try:
                    is_folder = stat.S_ISDIR(os.lstat(facts.resolved).st_mode)
                except (OSError, ValueError):
                    continue
                if not (named.first if is_folder else named.path.endswith("/")):
                    return _Found(path, named, facts, is_folder)
        return None

    def _tell_missing(self, mention: Mention) -> None:
        """Only of what was surely meant as a file: people also write decorators, packages and nicknames."""
        word = bare_word(mention)
        top = word.partition("/")[0]
        has_top = "/" in word and any(
            os.path.isdir(os.path.join(start, top)) for start in (self._start, self._context.workspace.root)
        )
        if not looks_like_file(word, is_quoted=mention.is_quoted, has_top=has_top):
            return
        facts = examine(word, self._context.workspace, self._start)
        said = "".join(part.text for part in missing(self._context, facts).content if isinstance(part, Text))
        close = said.partition("Did you mean ")[2]
        self._tell(f"@{word}: there is no such file", f"did you mean {close}" if close else "")

    def _judge(self, found: _Found) -> Judgement | None:
        """What Read may do. None: it is refused, and the person was told why."""
        context, facts, path = self._context, found.facts, found.facts.requested
        judgement = context.permissions.decide("Read", {"file_path": found.path}, context.directory)
        if judgement.effect == "allow":
            return judgement
        name = shown(path, context)
        decisive = next((part for part in judgement.parts if part.effect == judgement.effect), None)
        rule = f" ({decisive.rule}, {decisive.source})" if decisive is not None and decisive.rule else ""
        reason, fix = f"{judgement.reason}{rule}", ""
        if judgement.effect == "ask":
            roots = context.workspace.read_roots
            inside = any(is_inside(path, root) for root in roots)
            if facts.private:
                fix = f"if the model may read it, allow exactly that: Read(/{path})"
            elif inside and not any(is_inside(facts.resolved, root) for root in roots):
                fix = f"name {facts.resolved} itself"
            elif not self._person_is_there:
                fix = f"allow it by a rule: Read(/{path})"
            elif not self._is_short:
                reason += ", and so long a text may hold words of others"
                fix = "name it in a short message of its own"
            else:
                return judgement
        self._tell(f"@{name} is not shown to the model: {reason}", fix)
        return None

    # Files

    async def _take_file(self, found: _Found, context: Context) -> None:
        name = shown(found.facts.requested, context)
        if self._room < _LEAST_USEFUL:
            self._tell(f"@{name} is not taken along: the files of this message are too long together")
            self._put("mentioned-file", {"path": name}, "[Not shown here for want of room. Use Read.]")
            return
        first = found.named.first or 1
        limit = found.named.last - first + 1 if found.named.last else MOST_LINES
        try:
            outcome = await READ.work(ReadArguments(found.path, first, limit), context)
        except KitbagError as error:
            outcome = Outcome((Text(f"Error: {error.problem}"),), error.problem, is_error=True)
        except OSError as error:
            problem = f"{name} can't be read: {error.strerror or error}"
            outcome = Outcome((Text(f"Error: {problem}"),), problem, is_error=True)
        if outcome.is_error:
            self._tell(f"@{name}: {outcome.summary}")
        else:
            self._files.append(found.facts.requested)
        self._show(name, outcome, first)

    def _show(self, name: str, outcome: Outcome, first: int) -> None:
        text = "\n".join(part.text for part in outcome.content if isinstance(part, Text))
        pictures: list[Image] = []
        for image in (part for part in outcome.content if isinstance(part, Image)):
            if len(self._images) + len(pictures) < MOST_IMAGES and len(image.data) <= self._picture_room:
                pictures.append(image)
                self._picture_room -= len(image.data)
            else:
                self._tell(f"@{name}: a picture is not taken along: there are too many, or they are too large together")
                text = f"{text}\n[A picture is left out here for want of room.]".lstrip()
        if pictures:
            which = "The picture follows" if len(pictures) == 1 else f"{len(pictures)} pictures follow"
            text = f"{text}\n[{which} this text.]".lstrip()
        text, lines = _fitting(text, self._room, first, outcome.cut)
        attributes = {"path": name, "lines": lines, "images": str(len(pictures)) if pictures else ""}
        self._put("mentioned-file", attributes, text)
        self._images += pictures

    def _put(self, tag: str, attributes: dict[str, str], text: str) -> None:
        made = block(tag, attributes, text)
        if made.count("&lt;") > text.count("&lt;") + sum(one.count("<") for one in attributes.values()):
            note = "[Where this text has a tag like those of this conversation, its < is shown as &lt;.]"
            made = block(tag, attributes, f"{text}\n{note}")
        self._blocks.append(made)
        self._room -= len(made)

    # Folders

    def _take_folder(self, found: _Found, context: Context) -> None:
        name = shown(found.facts.requested, context).rstrip("/") + "/"
        try:
            place = settle(context, "Read", {"file_path": found.path}, found.path)
            entries = _entries(place.facts.resolved)
        except InvalidError as error:
            self._tell(f"@{name} is not shown to the model: {error.problem}", error.fix)
            return
        except OSError as error:
            self._tell(f"@{name} can't be read: {error.strerror or error}")
            return
        readable = Readable(place, context)
        names: list[str] = []
        withheld = 0
        while entries and len(names) < MOST_NAMES and withheld < MOST_NAMES:
            is_file, entry = entries.pop()
            if readable.name(entry):  # what may not be read is not named
                names.append(visible(entry) + ("" if is_file else "/"))
            else:
                withheld += 1
        notes = [f"{len(entries):,} more"] if entries else []
        notes += [f"{withheld:,} left out that may not be read"] if withheld else []
        lines = [*names, *([f"[{'; '.join(notes)}]"] if notes else [])] or ["[It is empty.]"]
        self._put("mentioned-folder", {"path": name}, "\n".join(lines))

    # Agents

    def _take_agent(self, mention: Mention) -> bool:
        """False: it is no agent's name, and may be a file's."""
        library, context = self._context.library, self._context
        problem: KitbagError | None = None
        for named in meanings(mention):
            try:
                agent = library.find_agent(named.path.removeprefix(AGENT))
            except KitbagError as error:
                problem = problem or error
                continue
            verdict = library.judge(agent)
            if not verdict.model:
                self._tell(f"the agent {agent.full_name} can't be given work here: {verdict.reason}")
            elif context.delegation is None or not context.permissions.has("Task"):
                self._tell(f"the agent {agent.full_name} can't be given work here: there is no tool for it")
            elif ("agent", agent.full_name) not in self._seen and len(self._seen) < MOST_MENTIONS:
                self._seen.add(("agent", agent.full_name))
                told = f"The person wants the agent {agent.full_name} to do this: give it the work with Task."
                self._put("mentioned-agent", {"name": agent.full_name}, told)
            return True
        if self._find(mention) is not None:
            return False
        word = bare_word(mention).removeprefix(AGENT)
        close = library.agents.close(word)
        fix = f"did you mean {', '.join(f'@{AGENT}{name}' for name in close)}?" if close else "/agents shows all"
        self._tell(f"@{AGENT}{word}: {problem.problem if problem is not None else 'there is no such agent'}", fix)
        return True


def _entries(resolved: str) -> list[tuple[bool, str]]:
    """(whether it is no folder, name) of a folder that is reached without a link, the first ones at the end: folders
    before files. Raises OSError."""
    folder = open_directory(resolved)
    try:
        with os.scandir(folder) as entries:
            some = islice((entry for entry in entries if entry.name not in NEVER_ENTERED), _MOST_ENTRIES)
            return sorted(((not entry.is_dir(follow_symlinks=False), entry.name) for entry in some), reverse=True)
    finally:
        os.close(folder)


def _fitting(text: str, room: int, first: int, cut: str) -> tuple[str, str]:
    """The text as far as there is room, and which lines these are: `1-200 of 950`; empty where they have no numbers."""
    row = _ROW.match(text)
    is_numbered = row is not None and int(row[1]) == first
    if len(text) > room:
        kept = text[:room].rpartition("\n")[0] or text[:room]
        text = kept
    else:
        kept = ""
    if not is_numbered:
        note = "[Cut here for want of room. Use Read for the rest.]"
        return (f"{text}\n{note}" if kept else text), ""
    last = first
    for line in reversed(text.split("\n")):
        if (row := _ROW.match(line)) is not None:
            last = int(row[1])
            break
    whole = _CUT.search(cut)
    if kept:
        text = f"{text}\n[Cut here for want of room. Go on with Read and offset={last + 1}.]"
    total = f" of {whole[1]}" if whole is not None else f" of {last:,}" if not kept else ""
    return text, f"{first:,}-{last:,}{total}"
