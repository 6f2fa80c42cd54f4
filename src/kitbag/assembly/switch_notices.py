"""What a model is told when it has become another persona, or works in another mode: at the tail of the next message,
so that what was sent before it stays as it is.

Used by what changes a session, which writes these words down, and by requests, which puts them into the message.
"""

from collections.abc import Iterable, Sequence

from kitbag.agent.session_records import Header, Switch
from kitbag.library.registry import NOBODY, Registry
from kitbag.packing.agent_prompt import MODES
from kitbag.text.hidden_characters import one_line, reveal_hidden

_LONGEST = 300
_MOST_NAMED = 50


def seen_name(library: Registry) -> str:
    """Who looks: the persona with its team, the team alone, or nobody."""
    return library.persona.full_name if library.persona is not None else library.team


def told_persona(library: Registry) -> str:
    persona, name = library.persona, safe(seen_name(library))
    if not name:
        return "The user has taken off the persona: from here on you are nobody in particular. " + _ABOVE
    if persona is None:
        return f"The user has chosen the team {name}, and no persona of it. {_ABOVE}"
    shown = safe(persona.display_name)
    who = f"{shown} ({name})" if shown.casefold() != name.casefold() else name
    about = f": {safe(persona.description)}" if persona.description else ""
    return f"The user has changed your persona. From here on you are {who}{about.rstrip('.')}. {_ABOVE}"


_ABOVE = (
    "Your instructions and the skills and agents listed there have changed with it; use no others, though earlier"
    " messages may name some. The conversation goes on."
)


def told_mode(mode: str) -> str:
    return f"The user has changed the permission mode to {mode}. {MODES[mode][1]} This replaces what was said before."


def told_dropped(dropped: Sequence[tuple[str, str]]) -> str:
    """Why each of them is not loaded any more."""
    named = [f"{safe(name)} ({safe(why)})" for name, why in dropped[:_MOST_NAMED]]
    more = f" and {len(dropped) - _MOST_NAMED} more" if len(dropped) > _MOST_NAMED else ""
    return f"No longer loaded, so do not follow them any more: {', '.join(named)}{more}."


def switches_between(
    before: Header, now: Header, library: Registry, dropped: Sequence[tuple[str, str]], *, is_heard: bool
) -> list[Switch]:
    """What is otherwise than it was. `library`: as it is seen now. `is_heard`: the model has been told something; else
    it learns all of it from its first prompt."""
    made: list[Switch] = []
    if seen_in(before) != seen_in(now):
        made.append(Switch("persona", seen_in(before), seen_in(now), told_persona(library)))
    if before.model != now.model:
        made.append(Switch("model", before.model, now.model))
    if before.mode != now.mode:
        made.append(Switch("mode", before.mode, now.mode, told_mode(now.mode)))
    if dropped:
        made.append(Switch("skills", "", "", told_dropped(dropped)))
    return made if is_heard else [one._replace(told="") for one in made]


def seen_in(header: Header) -> str:
    return header.team if header.persona in ("", NOBODY) else header.persona


def told_switches(untold: Iterable[Switch]) -> str:
    """The block, or nothing. Of several changes of one kind the last counts; none, where it is as it was."""
    lines: list[str] = []
    by_kind: dict[str, list[Switch]] = {}
    for one in untold:
        by_kind.setdefault(one.what, []).append(one)
    for what, switches in by_kind.items():
        if what == "skills":
            lines += [one.told for one in switches]
        elif switches[0].before != switches[-1].after:
            lines.append(switches[-1].told)
    told = [line for line in lines if line]
    return "\n".join(("<session-changes>", *told, "</session-changes>")) if told else ""


def safe(text: str) -> str:
    """Of a name or a description that others wrote: one line, in which nothing can close the block."""
    return one_line(reveal_hidden(text))[:_LONGEST].replace("<", "&lt;")
