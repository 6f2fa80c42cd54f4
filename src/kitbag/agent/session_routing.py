"""What the model of a recorded session knew about skills at one message, and which it loaded for it.

Used by `kitbag skills explain --session` and `/why`; reads the records of the session.
"""

from collections.abc import Iterator

from kitbag.agent.resume import read_session_records
from kitbag.agent.session import Session
from kitbag.agent.session_records import SKILL_USE_FIELDS
from kitbag.agent.touched_files import list_touched_files
from kitbag.agent.user_text import split_user_text
from kitbag.errors import NotFoundError
from kitbag.messages import Text, ToolResult, message_from_json, part_from_json
from kitbag.packing.routing_explanation import RoutingState
from kitbag.packing.suggestions import extract_suggestions, list_suggested
from kitbag.store.journal import Journal, JournalRecord
from kitbag.text.human_format import format_count

_HOW = {
    "suggestion": "the model loaded it after the suggestion",
    "search": "the model found it with SearchSkills and loaded it",
}


def read_routing(journal: Journal, session_id: str, turn: int = 0) -> tuple[str, RoutingState, int]:
    """The message, the state and the number of the message. `turn`: counts the user's messages from 1; 0: the last.
    Raises NotFoundError if there is no such message."""
    records = list(read_session_records(journal, session_id))
    messages = [at for at, record in enumerate(records) if record.kind == "user"]
    number = turn or len(messages)
    if not 1 <= number <= len(messages):
        fix = f"it has {format_count(len(messages), 'message')}" if messages else "send a message first"
        raise NotFoundError(
            f"no message {turn} in session {session_id}" if turn else "the session has no messages", fix
        )
    start = messages[number - 1]
    end = messages[number] if number < len(messages) else len(records)
    session = Session(journal, session_id)
    before: list[str] = []
    for record in records[:start]:
        session.apply(record)
        before += [_suggestions_in(record) if record.kind == "user" else "", *_suggestions_for_file(record)]
    text, suggestions = _user_text(records[start]), _suggestions_in(records[start])
    for_files = "\n".join(block for record in records[start:end] for block in _suggestions_for_file(record))
    catalog = "".join(
        str(entry["text"]) for entry in session.prompt if (entry["kind"], entry["source"]) == ("catalog", "skills")
    )
    state = RoutingState(
        catalog=catalog,
        known=frozenset(session.skills),
        suggested_before="\n".join(before),
        suggested=frozenset(list_suggested(suggestions)),
        suggested_for_files=frozenset(list_suggested(for_files)),
        touched=list_touched_files(session),
        loaded=_list_loaded(records[start:end]),
    )
    return text, state, number


def _list_loaded(records: list[JournalRecord]) -> dict[str, str]:
    """Skills that the message led to, with how."""
    loaded = {str(name): "you invoked it for this message" for _, name in records[0].body.get("one_turn", ())}
    for record in records:
        if record.kind == "skill":
            use = SKILL_USE_FIELDS.read(record.body)
            loaded[use.name] = _HOW.get(use.found, "the model loaded it by name") if use.by == "model" else "preloaded"
    return loaded


def _pieces(record: JournalRecord) -> list[tuple[str, str]]:
    message = message_from_json(record.body["message"])
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return [(kind, piece) for text in texts for kind, _, piece in split_user_text(text)]


def _user_text(record: JournalRecord) -> str:
    return "\n".join(piece for kind, piece in _pieces(record) if kind == "user").strip()


def _suggestions_in(record: JournalRecord) -> str:
    return "\n".join(piece for kind, piece in _pieces(record) if kind == "suggestions")


def _suggestions_for_file(record: JournalRecord) -> Iterator[str]:
    """The blocks that were appended to a tool's result, because its file matched the `paths` of a skill."""
    if record.kind == "result":
        result = part_from_json(record.body["result"])
        for part in result.content if isinstance(result, ToolResult) else ():
            if isinstance(part, Text) and extract_suggestions(part.text):
                yield part.text
