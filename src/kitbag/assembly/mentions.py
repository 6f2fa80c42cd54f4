"""`@file` mentions in user messages: attaches the files, folders and agents that the user mentions.

Used by base_agent for user messages only. The Read tool itself reads the files under the run's rules, so that nothing
is shown that it would deny, and Edit counts them as read; mention_syntax finds the mentions.
"""

import asyncio
import contextlib
import os
import re
import stat
from itertools import islice
from typing import Final

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.agent.execute import Executor
from kitbag.assembly.mention_syntax import AGENT_PREFIX, Mention, MentionTarget, bare_word, find_mentions, list_targets
from kitbag.errors import InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.library.registry import Registry
from kitbag.messages import Image, Text
from kitbag.packing.suggestions import list_suggested
from kitbag.permissions.model import PermissionDecision, Workspace, is_inside
from kitbag.permissions.paths import PathFacts, examine_path
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import format_count
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import ToolContext, ToolOutput
from kitbag.tools.files.paths import authorize_path, display_path, missing_path_output, visible_line
from kitbag.tools.files.read import MAX_LINES, READ, ReadArguments
from kitbag.tools.search.readable import ReadFilter
from kitbag.tools.search.walk import VCS_DIRECTORIES
from kitbag.tools.web.untrusted_text import untrusted_block

_EXTENSION_LIST = """
    adoc asm astro avif awk bash bat bib bmp c cc cfg cjs clj cmake cmd conf cpp cs css csv cts cu cxx d dart db diff
    doc docx dockerfile dts ejs el elm env erb erl ex exs f90 fish fs gemspec gif go gql gradle graphql groovy h hbs hcl
    hpp hrl hs htm html hxx ico inc ini ipynb java jl jpeg jpg js json json5 jsonc jsonl jsx kt kts less lhs
    lock log lua m4 mak markdown md mdc mdx mjs mk ml mli mm mts nim nix odt org parquet patch pdf
    pem php pl plist pm png po ppt pptx prisma properties proto ps1 psd py pyi pyx r rake rb rego rkt rmd rs rst rtf s
    sass sbt scala scm scss sh sol sql sqlite srt svelte svg swift tcl tex tf tfvars tif tiff toml ts tsv tsx txt v vb
    vim vtt vue wasm webp xls xlsx xml xsd xsl yaml yml zig zip zsh
"""
_EXTENSIONS: Final = frozenset(_EXTENSION_LIST.split())
_PLAIN_PATH = re.compile(r"[\w./~+@%=, -]+")
_PACKAGE = re.compile(r"[a-z0-9~][\w.~-]*/[\w.~-]+(?:@[\w.^~-]+)?")
"""A package with a scope, after its `@`."""
_PATH_PREFIXES: Final = ("./", "../", "~/", "/")


def looks_like_file(word: str, *, is_quoted: bool = False, has_top_folder: bool = False) -> bool:
    """`has_top_folder`: a folder with the name of the first component exists."""
    if not _PLAIN_PATH.fullmatch(word):
        return False
    name = word.rpartition("/")[2]
    stem, dot, extension = name.rpartition(".")
    if dot and stem and extension.lower() in _EXTENSIONS:
        return True
    # One slash and no extension may also be a package: `@types/node`.
    return has_top_folder or word.startswith(_PATH_PREFIXES) or word.count("/") > 1 or (is_quoted and "/" in word)


MAX_MENTIONS: Final = 20
MAX_CHARS: Final = 120_000
"""Per message."""
MAX_IMAGES: Final = 10
MAX_IMAGE_CHARS: Final = 15_000_000
"""Base64, all images of one message."""
MAX_NOTICES: Final = 10
MAX_FOLDER_NAMES: Final = 100
"""Per folder."""
MAX_TYPED_LINES: Final = 10
MAX_TYPED_CHARS: Final = 1_000
"""A longer message may have been pasted, so a file outside the readable folders does not count as mentioned by the
user."""
_MAX_FOLDER_ENTRIES = 10_000
_MIN_FILE_CHARS = 400
_NUMBERED_LINE = re.compile(r" *(\d+)\t")
_LINES_SHOWN = re.compile(r"lines [\d,]+-[\d,]+ of ((?:more than )?[\d,]+)")


class MentionedContent(msgspec.Struct, frozen=True, kw_only=True):
    blocks: tuple[str, ...] = ()
    """Appended to the message. Each block with an `images` attribute is followed by that many images, in order."""
    images: tuple[Image, ...] = ()
    notices: tuple[Notice, ...] = ()
    files: tuple[str, ...] = ()
    """Absolute paths of the files that were read."""
    agents: tuple[str, ...] = ()
    """Those that a short message mentions."""
    suggested: tuple[str, ...] = ()
    """Names of the skills that blocks suggest for files."""


NO_MENTIONS: Final = MentionedContent()


async def read_mentions(
    text: str, emit: Emit, executor: Executor, base_directory: str, is_interactive: bool, window: int
) -> MentionedContent:
    """Reads a message's mentions as its own calls would, and adds the path skills for these files. `window`: the
    model's context window in tokens; about a quarter of it is used at most."""
    context = executor.context
    context = msgspec.structs.replace(context, permissions=executor.approvals.with_session_rules(context.permissions))
    max_chars = min(MAX_CHARS, window)
    content = await gather_mentions(
        text, context, base_directory=base_directory, is_interactive=is_interactive, max_chars=max_chars
    )
    for notice in content.notices:
        emit(notice)
    if executor.path_skills is None or executor.toolset.get("Skill") is None:
        return content
    notices = [executor.path_skills.notice_for("Read", {"file_path": path}, base_directory) for path in content.files]
    suggested = tuple(name for notice in notices for name in list_suggested(notice))
    return msgspec.structs.replace(content, blocks=(*content.blocks, *filter(None, notices)), suggested=suggested)


async def gather_mentions(
    text: str,
    context: ToolContext,
    *,
    base_directory: str = "",
    is_interactive: bool = False,
    max_chars: int = MAX_CHARS,
) -> MentionedContent:
    """`text`: exactly what the user typed. `base_directory`: for relative paths; default: the context's directory.
    `is_interactive`: the user types it now, so what they mention needs no approval. `max_chars`: in total."""
    mentions = find_mentions(text)
    if not mentions:
        return NO_MENTIONS
    is_short = len(text) <= MAX_TYPED_CHARS and text.count("\n") < MAX_TYPED_LINES
    reader = _MentionReader(context, base_directory or context.directory, is_interactive, is_short, max_chars)
    for mention in mentions:
        await reader.add(mention)
    return reader.result()


class _MentionedPath(msgspec.Struct, frozen=True, kw_only=True):
    """A mention of an existing path."""

    path: str
    """Absolute or starting with `~`, as written: `link/..` is not normalized."""
    target: MentionTarget
    facts: PathFacts
    is_folder: bool


def _find_path(mention: Mention, workspace: Workspace, base_directory: str) -> _MentionedPath | None:
    """The first target that exists: relative to the user's directory, else to the workspace root."""
    for named in list_targets(mention):
        for start in dict.fromkeys((base_directory, workspace.root)):
            path = named.path if named.path.startswith("~") else os.path.join(start, named.path)
            facts = examine_path(path, workspace, start)
            try:
                is_folder = stat.S_ISDIR(os.lstat(facts.resolved).st_mode)
            except (OSError, ValueError):
                continue
            if not (named.first_line if is_folder else named.path.endswith("/")):
                return _MentionedPath(path=path, target=named, facts=facts, is_folder=is_folder)
    return None


def missing_mentions(text: str, library: Registry, workspace: Workspace, base_directory: str) -> list[str]:
    """Mentions of a message that match no file, folder or agent, as `@word`. Decorators and package scopes are none."""
    missing: dict[str, None] = {}
    for mention in find_mentions(text)[:MAX_MENTIONS]:
        word = bare_word(mention)
        has_top = _has_top_folder(word, workspace, base_directory)
        is_code = not has_top and _is_code(word, text, mention)
        if is_code or _find_path(mention, workspace, base_directory) is not None:
            continue
        if not mention.is_quoted and word.startswith(AGENT_PREFIX) and _names_agent(mention, library):
            continue
        missing[f"@{word}"] = None
    return list(missing)


def _has_top_folder(word: str, workspace: Workspace, base_directory: str) -> bool:
    top, slash, _ = word.partition("/")
    return bool(slash) and any(os.path.isdir(os.path.join(start, top)) for start in (base_directory, workspace.root))


def _is_code(word: str, text: str, mention: Mention) -> bool:
    """`@types/node`, `@click.command()`, or a decorator on a line of its own."""
    if mention.is_quoted:
        return False
    is_alone = "\n" in text and any(line.strip() == f"@{mention.word}" for line in text.split("\n"))
    return "(" in word or is_alone or (_PACKAGE.fullmatch(word) is not None and not looks_like_file(word))


def _names_agent(mention: Mention, library: Registry) -> bool:
    for named in list_targets(mention):
        with contextlib.suppress(KitbagError):
            library.find_agent(named.path.removeprefix(AGENT_PREFIX))
            return True
    return False


class _MentionReader:
    """Collects what one message mentions, up to the limits."""

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
        self._agents: list[str] = []
        self._seen: set[object] = set()
        self._chars_left = max_chars
        self._image_chars_left = MAX_IMAGE_CHARS
        self._omitted = 0

    def result(self) -> MentionedContent:
        if self._omitted:
            problem = f"not included: {format_count(self._omitted, 'more file')} mentioned with @"
            self._warn(problem, f"mention at most {MAX_MENTIONS} per message; the model can read the others itself")
        notices = self._notices[:MAX_NOTICES]
        if omitted_notices := len(self._notices) - len(notices):
            notices.append(
                Notice(severity="warning", text=f"{omitted_notices:,} more warnings about @ mentions omitted")
            )
        return MentionedContent(
            blocks=tuple(self._blocks),
            images=tuple(self._images),
            notices=tuple(notices),
            files=tuple(self._files),
            agents=tuple(self._agents) if self._is_short else (),
        )

    def _warn(self, problem: str, fix: str = "") -> None:
        self._notices.append(
            Notice(
                severity="warning",
                text=collapse_whitespace(visible_line(problem)),
                fix=collapse_whitespace(visible_line(fix)),
            )
        )

    async def add(self, mention: Mention) -> None:
        if not mention.is_quoted and mention.word.startswith(AGENT_PREFIX) and self._add_agent(mention):
            return
        target = await asyncio.to_thread(self._find, mention)
        if target is None:
            await asyncio.to_thread(self._warn_if_missing, mention)
            return
        key = (target.facts.resolved, target.target.first_line, target.target.last_line)
        if key in self._seen:
            return
        if len(self._seen) == MAX_MENTIONS:
            self._omitted += 1
            return
        self._seen.add(key)
        decision = self._check_permission(target)
        if decision is None:
            return
        context = msgspec.structs.replace(self._context, decision=decision)
        if target.is_folder:
            await asyncio.to_thread(self._add_folder, target, context)
        else:
            await self._add_file(target, context)

    # Finding targets

    def _find(self, mention: Mention) -> _MentionedPath | None:
        return _find_path(mention, self._context.workspace, self._base_directory)

    def _warn_if_missing(self, mention: Mention) -> None:
        """Warns only if a file was clearly meant: people also write decorators, packages and handles."""
        word = bare_word(mention)
        has_top = _has_top_folder(word, self._context.workspace, self._base_directory)
        if not looks_like_file(word, is_quoted=mention.is_quoted, has_top_folder=has_top):
            return
        facts = examine_path(word, self._context.workspace, self._base_directory)
        message = "".join(
            part.text for part in missing_path_output(self._context, facts).content if isinstance(part, Text)
        )
        suggestions = message.partition("Did you mean ")[2]
        self._warn(f"@{word}: no such file", f"did you mean {suggestions}" if suggestions else "")

    def _check_permission(self, target: _MentionedPath) -> PermissionDecision | None:
        """The decision for Read. None: denied, and the user was notified."""
        context, facts, path = self._context, target.facts, target.facts.requested
        decision = context.permissions.decide("Read", {"file_path": target.path}, context.directory)
        if decision.effect == "allow":
            return decision
        name = display_path(path, context)
        decisive = next((part for part in decision.parts if part.effect == decision.effect), None)
        rule = f" ({decisive.rule}, {decisive.source})" if decisive is not None and decisive.rule else ""
        reason, fix = f"{decision.reason}{rule}", ""
        if decision.effect == "ask":
            roots = context.workspace.read_roots
            inside = any(is_inside(path, root) for root in roots)
            if facts.private_reason:
                fix = f"to let the model read it, allow exactly this file: Read(/{path})"
            elif inside and not any(is_inside(facts.resolved, root) for root in roots):
                fix = f"mention {facts.resolved} directly"
            elif not self._is_interactive:
                fix = f"allow it with a rule: Read(/{path})"
            elif not self._is_short:
                reason += "; a long message may contain text from other sources"
                fix = "mention it in a separate short message"
            else:
                return decision
        self._warn(f"@{name} is not shown to the model: {reason}", fix)
        return None

    # Files

    async def _add_file(self, target: _MentionedPath, context: ToolContext) -> None:
        name = display_path(target.facts.requested, context)
        if self._chars_left < _MIN_FILE_CHARS:
            self._warn(f"@{name} is not included: the files in this message are too long in total")
            self._add_block("mentioned-file", {"path": name}, "[Omitted: too long. Use Read.]")
            return
        first = target.target.first_line or 1
        limit = target.target.last_line - first + 1 if target.target.last_line else MAX_LINES
        try:
            outcome = await READ.run(ReadArguments(target.path, first, limit), context)
        except KitbagError as error:
            outcome = ToolOutput(content=(Text(f"Error: {error.problem}"),), summary=error.problem, is_error=True)
        except OSError as error:
            problem = f"cannot read {name}: {error.strerror or error}"
            outcome = ToolOutput(content=(Text(f"Error: {problem}"),), summary=problem, is_error=True)
        if outcome.is_error:
            self._warn(f"@{name}: {outcome.summary}")
        else:
            self._files.append(target.facts.requested)
        self._add_file_block(name, outcome, first)

    def _add_file_block(self, name: str, outcome: ToolOutput, first: int) -> None:
        text = "\n".join(part.text for part in outcome.content if isinstance(part, Text))
        pictures: list[Image] = []
        for image in (part for part in outcome.content if isinstance(part, Image)):
            if len(self._images) + len(pictures) < MAX_IMAGES and len(image.data) <= self._image_chars_left:
                pictures.append(image)
                self._image_chars_left -= len(image.data)
            else:
                self._warn(f"@{name}: an image is not included: too many images, or too large in total")
                text = f"{text}\n[Image omitted: too many images, or too large.]".lstrip()
        if pictures:
            announcement = "The image follows" if len(pictures) == 1 else f"{len(pictures)} images follow"
            text = f"{text}\n[{announcement} this text.]".lstrip()
        text, line_range = _truncate(text, self._chars_left, first, outcome.truncation)
        attributes = {"path": name, "lines": line_range, "images": str(len(pictures)) if pictures else ""}
        self._add_block("mentioned-file", attributes, text)
        self._images += pictures

    def _add_block(self, tag: str, attributes: dict[str, str], text: str) -> None:
        rendered = untrusted_block(tag, attributes, text)
        if rendered.count("&lt;") > text.count("&lt;") + sum(value.count("<") for value in attributes.values()):
            note = "[In tags like those used in this conversation, < is shown as &lt;.]"
            rendered = untrusted_block(tag, attributes, f"{text}\n{note}")
        self._blocks.append(rendered)
        self._chars_left -= len(rendered)

    # Folders

    def _add_folder(self, target: _MentionedPath, context: ToolContext) -> None:
        name = display_path(target.facts.requested, context).rstrip("/") + "/"
        try:
            folder = authorize_path(context, "Read", {"file_path": target.path}, target.path)
            entries = _list_folder(folder.facts.resolved)
        except InvalidError as error:
            self._warn(f"@{name} is not shown to the model: {error.problem}", error.fix)
            return
        except OSError as error:
            self._warn(f"cannot read @{name}: {error.strerror or error}")
            return
        readable = ReadFilter(folder, context)
        names: list[str] = []
        withheld = 0
        while entries and len(names) < MAX_FOLDER_NAMES and withheld < MAX_FOLDER_NAMES:
            is_file, entry = entries.pop()
            if readable.display_name(entry):  # names of unreadable files are not shown
                names.append(visible_line(entry) + ("" if is_file else "/"))
            else:
                withheld += 1
        notes = [f"{len(entries):,} more"] if entries else []
        notes += [f"{withheld:,} omitted (reading is not allowed)"] if withheld else []
        lines = [*names, *([f"[{'; '.join(notes)}]"] if notes else [])] or ["[Empty directory.]"]
        self._add_block("mentioned-folder", {"path": name}, "\n".join(lines))

    # Agents

    def _add_agent(self, mention: Mention) -> bool:
        """False: not the name of an agent, but possibly of a file."""
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
                self._warn(f"the agent {agent.full_name} is not available: {verdict.reason}")
            elif context.delegation is None or not context.permissions.has_tool("Task"):
                self._warn(f"the agent {agent.full_name} is not available: the Task tool is disabled")
            elif ("agent", agent.full_name) not in self._seen and len(self._seen) < MAX_MENTIONS:
                self._seen.add(("agent", agent.full_name))
                text = f"The user wants the agent {agent.full_name} to do this. Start it with Task."
                self._add_block("mentioned-agent", {"name": agent.full_name}, text)
                self._agents.append(agent.full_name)
            return True
        if self._find(mention) is not None:
            return False
        word = bare_word(mention).removeprefix(AGENT_PREFIX)
        suggestions = library.agents.suggest(word)
        fix = (
            f"did you mean {', '.join(f'@{AGENT_PREFIX}{name}' for name in suggestions)}?"
            if suggestions
            else "type /agents to list all agents"
        )
        self._warn(f"@{AGENT_PREFIX}{word}: {problem.problem if problem is not None else 'no such agent'}", fix)
        return True


def _list_folder(resolved: str) -> list[tuple[bool, str]]:
    """(is not a folder, name) in reverse order: folders before files, the first at the end. Follows no links. Raises
    OSError."""
    folder = open_directory(resolved)
    try:
        with os.scandir(folder) as entries:
            some = islice((entry for entry in entries if entry.name not in VCS_DIRECTORIES), _MAX_FOLDER_ENTRIES)
            return sorted(((not entry.is_dir(follow_symlinks=False), entry.name) for entry in some), reverse=True)
    finally:
        os.close(folder)


def _truncate(text: str, max_chars: int, first: int, cut: str) -> tuple[str, str]:
    """The truncated text and its line range, such as `1-200 of 950`; empty if the lines are not numbered."""
    row = _NUMBERED_LINE.match(text)
    is_numbered = row is not None and int(row[1]) == first
    if len(text) > max_chars:
        truncated = text[:max_chars].rpartition("\n")[0] or text[:max_chars]
        text = truncated
    else:
        truncated = ""
    if not is_numbered:
        note = "[Truncated. Use Read for the rest.]"
        return (f"{text}\n{note}" if truncated else text), ""
    last = first
    for line in reversed(text.split("\n")):
        if (row := _NUMBERED_LINE.match(line)) is not None:
            last = int(row[1])
            break
    total_match = _LINES_SHOWN.search(cut)
    if truncated:
        text = f"{text}\n[Truncated. Continue with Read and offset={last + 1}.]"
    total = f" of {total_match[1]}" if total_match is not None else f" of {last:,}" if not truncated else ""
    return text, f"{first:,}-{last:,}{total}"
