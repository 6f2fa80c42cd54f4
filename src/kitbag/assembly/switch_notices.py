"""Notices for the model that its persona or mode was switched: appended to the next message, so that everything sent
before stays cached.

Used by what switches a session, which records these notices, and by user_messages, which sends them.
"""

import html
from collections.abc import Iterable, Sequence

import msgspec

from kitbag.agent.session_records import OPTION_FIELDS, SessionHeader, SessionSwitch
from kitbag.assembly.run_options import Options
from kitbag.events import Notice
from kitbag.library.registry import NO_PERSONA, Registry
from kitbag.packing.agent_prompt import MODE_DESCRIPTIONS
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden

_MAX_TEXT_CHARS = 300
_MAX_LISTED = 50


def persona_name(library: Registry) -> str:
    """The persona with its team, the team alone, or empty."""
    return library.persona.full_name if library.persona is not None else library.team


def persona_notice(library: Registry) -> str:
    persona, name = library.persona, escape_notice_text(persona_name(library))
    if not name:
        return "The user removed the persona. You have no persona from now on. " + _PERSONA_CONSEQUENCES
    if persona is None:
        return f"The user selected the team {name} without a persona. {_PERSONA_CONSEQUENCES}"
    display_name = escape_notice_text(persona.display_name)
    title = f"{display_name} ({name})" if display_name.casefold() != name.casefold() else name
    about = f": {escape_notice_text(persona.description)}" if persona.description else ""
    return f"The user changed your persona. From now on you are {title}{about.rstrip('.')}. {_PERSONA_CONSEQUENCES}"


_PERSONA_CONSEQUENCES = (
    "Your instructions and the listed skills and agents have changed. Use only those listed now, even if earlier "
    "messages mention others. The conversation continues."
)


def mode_notice(mode: str) -> str:
    return (
        f"The user changed the permission mode to {mode}. {MODE_DESCRIPTIONS[mode][1]} This replaces the previous mode."
    )


def dropped_skills_notice(dropped: Sequence[tuple[str, str]]) -> str:
    """Lists skills that are no longer loaded, with reasons."""
    named = [f"{escape_notice_text(name)} ({escape_notice_text(reason)})" for name, reason in dropped[:_MAX_LISTED]]
    suffix = f" and {len(dropped) - _MAX_LISTED} more" if len(dropped) > _MAX_LISTED else ""
    return f"No longer loaded; stop following them: {', '.join(named)}{suffix}."


def list_switches(
    before: SessionHeader,
    now: SessionHeader,
    library: Registry,
    dropped: Sequence[tuple[str, str]],
    *,
    has_history: bool,
) -> list[SessionSwitch]:
    """What differs between two headers. `library`: as seen now. `has_history`: the model has seen messages; otherwise
    its first prompt tells it everything."""
    switches: list[SessionSwitch] = []
    if header_persona_name(before) != header_persona_name(now):
        switches.append(
            SessionSwitch(
                what="persona",
                before=header_persona_name(before),
                after=header_persona_name(now),
                model_notice=persona_notice(library),
            )
        )
    if before.model != now.model:
        switches.append(SessionSwitch(what="model", before=before.model, after=now.model))
    if before.mode != now.mode:
        switches.append(
            SessionSwitch(what="mode", before=before.mode, after=now.mode, model_notice=mode_notice(now.mode))
        )
    if changed := [name for name in OPTION_FIELDS if getattr(before, name) != getattr(now, name)]:
        tools_notice = "The available tools have changed." if {"only_tools", "no_tools"}.intersection(changed) else ""
        was, is_now = (_render_options(header, changed) for header in (before, now))
        switches.append(SessionSwitch(what="options", before=was, after=is_now, model_notice=tools_notice))
    if dropped:
        switches.append(SessionSwitch(what="skills", before="", after="", model_notice=dropped_skills_notice(dropped)))
    return switches if has_history else [msgspec.structs.replace(switch, model_notice="") for switch in switches]


def _render_options(header: SessionHeader, names: Iterable[str]) -> str:
    """As on the command line."""
    values = ((OPTION_FIELDS[name], getattr(header, name)) for name in names)
    return " ".join(f"{option} {','.join(value.splitlines())}" for option, value in values if value)


def header_persona_name(header: SessionHeader) -> str:
    return header.team if header.persona in ("", NO_PERSONA) else header.persona


def render_switches(pending: Iterable[SessionSwitch], undone: str = "") -> str:
    """The block, or empty. Of several switches of one kind it has only the last, and none if the value is as
    before. `undone`: what the user undid, with names of files."""
    lines: list[str] = []
    by_kind: dict[str, list[SessionSwitch]] = {}
    for switch in pending:
        by_kind.setdefault(switch.what, []).append(switch)
    for kind, switches in by_kind.items():
        if kind in ("skills", "options"):
            lines += [switch.model_notice for switch in switches]
        elif switches[0].before != switches[-1].after:
            lines.append(switches[-1].model_notice)
    notices = [line for line in (*lines, html.escape(undone, quote=False)) if line]
    return "\n".join(("<session-changes>", *notices, "</session-changes>")) if notices else ""


def restored_tool_notices(options: Options) -> list[Notice]:
    """For a resumed session whose tools the command line limited earlier."""
    if options.only_tools or not options.limited_tools:
        return []
    text = f"tools are limited to {', '.join(options.limited_tools)}, as before; approvals are not restored"
    return [Notice(severity="warning", text=text, fix="pass --allowed-tools to change or approve them")]


def escape_notice_text(text: str) -> str:
    """For names and descriptions that others wrote: one line that can't close the block."""
    return collapse_whitespace(reveal_hidden(text))[:_MAX_TEXT_CHARS].replace("<", "&lt;")
