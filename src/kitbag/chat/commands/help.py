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
    ("Model and permissions", ("model", "mode", "persona", "permissions")),
    ("Skills, agents and context", ("skills", "agents", "why", "mcp", "memory", "context", "env", "reload")),
    ("Sessions", ("compact", "cost", "copy", "export", "undo", "rewind", "clear", "resume", "exit")),
    ("Background tasks", ("tasks", "stop")),
    ("Setup and help", ("init", "config", "help", "doctor")),
)
_MAX_CUSTOM: Final = 20


async def help_command(chat: CommandContext, arguments: str) -> None:
    name = arguments.strip().removeprefix("/")
    if name:
        chat.show(*await asyncio.to_thread(_describe, chat.agent.environment.library, name))
        return
    chat.show(*(_group(title, names) for title, names in _groups()))
    chat.show(TableBlock(headers=("KEY", "ACTION"), rows=chat.ui.keys, title="Keys"))
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
        headers=("COMMAND", "DESCRIPTION"),
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
                headers=("COMMAND", "DESCRIPTION"),
                rows=rows,
                title="Custom commands",
                foot=f"{more:,} more; see /skills" if more else "",
            )
        )
    if hidden:
        names = ", ".join(f"/{skill.full_name}" for skill in hidden[:_MAX_CUSTOM])
        blocks.append(NoticeBlock("warning", f"built-in commands shadow skills with the same name: {names}"))
    if skills:
        blocks.append(text_block(f"{format_count(skills, 'skill')} available as /NAME; list them with /skills", "dim"))
    blocks.append(text_block("@path attaches a file · /help NAME describes one command", "dim"))
    return blocks


def _skill_usage(skill: Skill) -> str:
    return f"/{skill.full_name} {collapse_whitespace(skill.argument_hint)}".rstrip()


def _describe(library: Registry, name: str) -> list[Block]:
    """Raises NotFoundError, with similar names as its fix."""
    command = COMMANDS.get(name.lower())
    if command is not None:
        runs = "" if command.while_working else "when the agent is done"
        shadowed_skill = library.skills.get_exact(command.name)
        shadows = (
            f"the skill {shorten_path(shadowed_skill.path)}, which can't be run as /{command.name}"
            if shadowed_skill
            else ""
        )
        fields = (("usage", _usage(command)), ("description", command.help), ("runs", runs), ("shadows", shadows))
        return [FieldsBlock(fields, f"/{command.name}")]
    try:
        skill = library.find_skill(name)
    except KitbagError as error:
        suggestion = did_you_mean(name, COMMANDS)
        suggestions = [fix for fix in (suggestion, error.fix) if fix.startswith("did you mean")]
        raise NotFoundError(
            f"no command or skill named /{name}", " ".join(suggestions) or "type /help for commands"
        ) from None
    verdict = library.evaluate(skill)
    return [
        FieldsBlock(
            (
                ("usage", _skill_usage(skill) if verdict.user else ""),
                ("unavailable", "" if verdict.user else verdict.reason),
                ("description", collapse_whitespace(skill.summary)),
                ("kind", skill.kind),
                ("path", shorten_path(skill.path)),
            ),
            f"/{skill.full_name}",
        )
    ]
