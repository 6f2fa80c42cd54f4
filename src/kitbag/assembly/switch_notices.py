"""What a model is told when it has become another persona, or works in another mode: at the tail of the next message,
so that what was sent before it stays as it is.

Used by what changes a session, which writes these words down, and by requests, which puts them into the message.
"""

from collections.abc import Iterable, Sequence

from kitbag.agent.session_records import SessionHeader, SessionSwitch
from kitbag.library.registry import NO_PERSONA, Registry
from kitbag.packing.agent_prompt import MODE_DESCRIPTIONS
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden

_MAX_TEXT_CHARS = 300
_MAX_LISTED = 50


def persona_name(library: Registry) -> str:
    """Who looks: the persona with its team, the team alone, or nobody."""
    return library.persona.full_name if library.persona is not None else library.team


def persona_notice(library: Registry) -> str:
    persona, name = library.persona, escape_notice_text(persona_name(library))
    if not name:
        return "The user has taken off the persona: from here on you are nobody in particular. " + _PERSONA_CONSEQUENCES
    if persona is None:
        return f"The user has chosen the team {name}, and no persona of it. {_PERSONA_CONSEQUENCES}"
    shown = escape_notice_text(persona.display_name)
    who = f"{shown} ({name})" if shown.casefold() != name.casefold() else name
    about = f": {escape_notice_text(persona.description)}" if persona.description else ""
    return f"The user has changed your persona. From here on you are {who}{about.rstrip('.')}. {_PERSONA_CONSEQUENCES}"


_PERSONA_CONSEQUENCES = (
    "Your instructions and the skills and agents listed there have changed with it; use no others, though earlier"
    " messages may name some. The conversation goes on."
)


def mode_notice(mode: str) -> str:
    return (
        f"The user has changed the permission mode to {mode}. {MODE_DESCRIPTIONS[mode][1]} This replaces"
        " what was said before."
    )


def dropped_skills_notice(dropped: Sequence[tuple[str, str]]) -> str:
    """Why each of them is not loaded any more."""
    named = [f"{escape_notice_text(name)} ({escape_notice_text(why)})" for name, why in dropped[:_MAX_LISTED]]
    more = f" and {len(dropped) - _MAX_LISTED} more" if len(dropped) > _MAX_LISTED else ""
    return f"No longer loaded, so do not follow them any more: {', '.join(named)}{more}."


def list_switches(
    before: SessionHeader,
    now: SessionHeader,
    library: Registry,
    dropped: Sequence[tuple[str, str]],
    *,
    has_history: bool,
) -> list[SessionSwitch]:
    """What is otherwise than it was. `library`: as it is seen now. `is_heard`: the model has been told something; else
    it learns all of it from its first prompt."""
    made: list[SessionSwitch] = []
    if header_persona_name(before) != header_persona_name(now):
        made.append(
            SessionSwitch("persona", header_persona_name(before), header_persona_name(now), persona_notice(library))
        )
    if before.model != now.model:
        made.append(SessionSwitch("model", before.model, now.model))
    if before.mode != now.mode:
        made.append(SessionSwitch("mode", before.mode, now.mode, mode_notice(now.mode)))
    if dropped:
        made.append(SessionSwitch("skills", "", "", dropped_skills_notice(dropped)))
    return made if has_history else [one._replace(told="") for one in made]


def header_persona_name(header: SessionHeader) -> str:
    return header.team if header.persona in ("", NO_PERSONA) else header.persona


def render_switches(pending: Iterable[SessionSwitch]) -> str:
    """The block, or nothing. Of several changes of one kind the last counts; none, where it is as it was."""
    lines: list[str] = []
    by_kind: dict[str, list[SessionSwitch]] = {}
    for one in pending:
        by_kind.setdefault(one.what, []).append(one)
    for what, switches in by_kind.items():
        if what == "skills":
            lines += [one.told for one in switches]
        elif switches[0].before != switches[-1].after:
            lines.append(switches[-1].told)
    told = [line for line in lines if line]
    return "\n".join(("<session-changes>", *told, "</session-changes>")) if told else ""


def escape_notice_text(text: str) -> str:
    """Of a name or a description that others wrote: one line, in which nothing can close the block."""
    return collapse_whitespace(reveal_hidden(text))[:_MAX_TEXT_CHARS].replace("<", "&lt;")
