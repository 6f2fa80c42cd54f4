"""`/help`: lists commands and keys, `/help NAME` explains one command or skill; `/exit`."""

import asyncio
from typing import Final

from kitbag.chat.commands import COMMANDS, ChatCommand, CommandContext
from kitbag.errors import KitbagError, NotFoundError
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import did_you_mean, format_count, shorten_path
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, TableBlock, text_block

_GROUPS: Final = (
    ("Who answers, and what it may do", ("model", "mode", "persona", "permissions")),
    ("What it knows", ("skills", "agents", "context", "env", "reload")),
    ("This conversation and others", ("compact", "export", "undo", "clear", "resume", "exit")),
    ("Work in the background", ("tasks", "stop")),
    ("When you are stuck", ("help", "doctor")),
)
KEYS: Final = (
    ("Enter", "send; while it works: queue"),
    ("Alt-Enter", "a new line"),
    ("! in front", "run the line in your own shell: `!git status`"),
    ("Esc", "cancel what works now; what was done is kept"),
    ("Ctrl-C", "stop what works, else clear the line; twice: leave, and background work goes on"),
    ("Shift-Tab", "the next mode: default, acceptEdits, plan"),
    ("Ctrl-O", "unfold results and thoughts, and fold them again"),
    ("Up", "take the last queued message back; else what you typed before"),
    ("Ctrl-R", "search what you typed before"),
    ("Ctrl-V", "paste an image, or a long text as one piece"),
    ("Ctrl-G", "write the message in your editor"),
)
_MAX_CUSTOM: Final = 20


async def help_command(chat: CommandContext, arguments: str) -> None:
    name = arguments.strip().removeprefix("/")
    if name:
        chat.show(*await asyncio.to_thread(_describe, chat.agent.environment.library, name))
        return
    chat.show(*(_group(title, names) for title, names in _groups()))
    chat.show(TableBlock(headers=("KEY", "WHAT IT DOES"), rows=KEYS, title="Keys"))
    chat.show(*await asyncio.to_thread(_custom_blocks, chat.agent.environment.library))


async def exit_command(chat: CommandContext, arguments: str) -> None:
    del arguments
    chat.request_exit()


def _groups() -> list[tuple[str, tuple[str, ...]]]:
    """All commands, including those missing from _GROUPS."""
    grouped = {name for _, names in _GROUPS for name in names}
    rest = tuple(name for name in COMMANDS if name not in grouped)
    return [*_GROUPS, *([("More", rest)] if rest else [])]


def _group(title: str, names: tuple[str, ...]) -> Block:
    return TableBlock(
        headers=("COMMAND", "WHAT IT DOES"),
        rows=tuple((_usage(COMMANDS[name]), COMMANDS[name].help) for name in names if name in COMMANDS),
        title=title,
    )


def _usage(command: ChatCommand) -> str:
    return f"/{command.name} {command.arguments}".rstrip()


def _custom_blocks(library: Registry) -> list[Block]:
    """The user's custom commands and skills that can be called by `/name`."""
    view = library.visibility_context()
    callable_ = [skill for skill in library.skills if library.evaluate(skill, view).user]
    hidden = [skill for skill in callable_ if skill.full_name.lower() in COMMANDS]
    callable_ = [skill for skill in callable_ if skill not in hidden]
    commands = [skill for skill in callable_ if skill.kind == "command"]
    skills = len(callable_) - len(commands)
    blocks: list[Block] = []
    if commands:
        rows = tuple((_skill_usage(skill), collapse_whitespace(skill.summary)) for skill in commands[:_MAX_CUSTOM])
        more = len(commands) - len(rows)
        blocks.append(
            TableBlock(
                headers=("COMMAND", "WHAT IT DOES"),
                rows=rows,
                title="Your commands",
                foot=f"and {more:,} more: /skills" if more else "",
            )
        )
    if hidden:
        names = ", ".join(f"/{skill.full_name}" for skill in hidden[:_MAX_CUSTOM])
        blocks.append(NoticeBlock("warning", f"{names}: the chat's own command is meant, not the skill of that name"))
    if skills:
        blocks.append(text_block(f"{format_count(skills, 'skill')} can be called by /name: /skills shows them", "dim"))
    blocks.append(text_block("@path puts a file into the message · /help NAME tells more about one", "dim"))
    return blocks


def _skill_usage(skill: Skill) -> str:
    return f"/{skill.full_name} {collapse_whitespace(skill.argument_hint)}".rstrip()


def _describe(library: Registry, name: str) -> list[Block]:
    """Raises NotFoundError, with similar names as its fix."""
    command = COMMANDS.get(name.lower())
    if command is not None:
        runs = "" if command.while_working else "when the work in front has ended"
        shadowed_skill = library.skills.get_exact(command.name)
        shadows = (
            f"the skill in {shorten_path(shadowed_skill.path)}, which can't be called by /{command.name}"
            if shadowed_skill
            else ""
        )
        fields = (("type", _usage(command)), ("does", command.help), ("runs", runs), ("hides", shadows))
        return [FieldsBlock(fields, f"/{command.name}")]
    try:
        skill = library.find_skill(name)
    except KitbagError as error:
        suggestion = did_you_mean(name, COMMANDS)
        suggestions = [fix for fix in (suggestion, error.fix) if fix.startswith("did you mean")]
        raise NotFoundError(f"nothing is called /{name}", " ".join(suggestions) or "/help shows all commands") from None
    verdict = library.evaluate(skill)
    return [
        FieldsBlock(
            (
                ("type", _skill_usage(skill) if verdict.user else ""),
                ("can't be called", "" if verdict.user else verdict.reason),
                ("does", collapse_whitespace(skill.summary)),
                ("is a", skill.kind),
                ("path", shorten_path(skill.path)),
            ),
            f"/{skill.full_name}",
        )
    ]
