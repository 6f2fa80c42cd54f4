"""What the context view shows, as JSON: calls, pieces, differences, checks and pictures of a session.

Used by context_routes, in a thread. The calls of a session are read again only when it has new records. Texts of the
user are redacted and escaped here.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kitbag.agent.model_calls import CallHistory, ModelCall, read_calls
from kitbag.agent.session import STREAM_PREFIX
from kitbag.agent.session_list import find_session, named_sessions, newest_session
from kitbag.assembly.open_journal import open_journal
from kitbag.assembly.open_store import has_journal
from kitbag.errors import NotFoundError
from kitbag.library.scopes import Places
from kitbag.runtime.context_calls import CallContext, CallPiece, SessionContext, make_session_context
from kitbag.runtime.context_check import ContextCheck, check_calls, summarize_check
from kitbag.runtime.context_costs import ContextCosts, compute_costs
from kitbag.runtime.context_diff import diff_calls
from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.views.context_page import render_context_page
from kitbag.views.context_pictures import draw_call, draw_costs, piece_group, piece_label

_MAX_CACHED: Final = 4
_MAX_TEXT: Final = 400_000
"""Characters of one piece."""


class ReadContext(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    about: str
    last_seq: int
    context: SessionContext
    costs: ContextCosts
    check: ContextCheck
    redact: Callable[[str], str]


class ContextReader:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._cached: OrderedDict[str, ReadContext] = OrderedDict()

    def read(self, session_id: str) -> ReadContext:
        """Empty: the newest session of the directory. Raises NotFoundError."""
        if not has_journal(self._places.kitbag_home):
            raise NotFoundError("no sessions yet", "send a message in the chat first")
        with self._lock, open_journal(self._places.kitbag_home) as journal:
            name = session_id or newest_session(journal, self._places.cwd)
            found = find_session(named_sessions(journal, name), name)
            last = journal.last(STREAM_PREFIX + found.id)
            seq = last.seq if last is not None else 0
            cached = self._cached.get(found.id)
            if cached is None or cached.last_seq != seq:
                history: CallHistory = read_calls(journal, found.id)
                context = make_session_context(self._places._replace(cwd=found.directory), history)
                cached = ReadContext(
                    session=found.id,
                    about=found.about,
                    last_seq=seq,
                    context=context,
                    costs=compute_costs(context),
                    check=check_calls(context),
                    redact=journal.redactor.redact_text,
                )
            self._cached[found.id] = cached
            self._cached.move_to_end(found.id)
            while len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
            return cached

    def overview(self, session_id: str, width: int, seen: int = 0) -> dict[str, Any]:
        """`width`: of the picture. `seen`: the `seq` of the overview that the page has; if that is the newest, nothing
        else is in the result."""
        found = self.read(session_id)
        if seen == found.last_seq:
            return {"seq": seen}
        clean = _cleaner(found)
        check = found.check.to_json()
        for finding in check["findings"]:
            finding["text"] = clean(finding["text"])
        return {
            "session": found.session,
            "about": clean(found.about),
            "seq": found.last_seq,
            **found.costs.to_json(),
            "check": {**check, "summary": list(summarize_check(found.check))},
            "chart": found.redact(
                draw_costs(found.costs, width=width, height=240, findings=found.check.findings, with_style=False)
            ),
        }

    def call(self, session_id: str, number: int, width: int) -> dict[str, Any]:
        """`number`: 0 is what would be sent now; negative ones count from the end."""
        found = self.read(session_id)
        explained = found.context.explain(_find_call(found, number))
        clean = _cleaner(found)
        result = explained.to_json()
        for fields, piece in zip(result["pieces"], explained.pieces, strict=True):
            fields |= {
                "label": clean(piece_label(piece)),
                "group": piece_group(piece),
                **{name: clean(fields[name]) for name in ("name", "source", "reason")},
            }
        for fields in result["absent"]:
            fields |= {name: clean(fields[name]) for name in ("name", "reason")}
        height = 480 if width < 700 else 520
        picture = draw_call(explained, width=width, height=height, with_style=False)
        return {**result, "picture": found.redact(picture)}

    def piece(self, session_id: str, number: int, index: int) -> dict[str, Any]:
        """The text of a piece."""
        found = self.read(session_id)
        pieces = found.context.explain(_find_call(found, number)).pieces
        if not 0 <= index < len(pieces):
            raise NotFoundError(f"no piece {index}", "reload the page")
        return _describe_text(found, pieces[index])

    def diff(self, session_id: str, first: int, second: int) -> dict[str, Any]:
        """`first`: 0 is the call before the second."""
        found = self.read(session_id)
        history = found.context.history
        after = history.find(second)
        before = history.find(first) if first else history.before(after)
        if before is None:
            raise NotFoundError(f"call {after.number} is the first", "compare it with a later one")
        result, clean = diff_calls(found.context, before, after).to_json(), _cleaner(found)
        if result["divergence"] is not None:
            names = ("name", "before", "after", "cause")
            result["divergence"] |= {name: clean(result["divergence"][name]) for name in names}
        for change in result["changes"]:
            change["name"] = clean(change["name"])
        return result

    def export_page(self, session_id: str, number: int) -> str:
        found = self.read(session_id)
        return render_context_page(found.session, self._explain(found, number), found.costs, found.check, found.redact)

    def export_picture(self, session_id: str, number: int) -> str:
        found = self.read(session_id)
        return found.redact(draw_call(self._explain(found, number)))

    def _explain(self, found: ReadContext, number: int) -> CallContext:
        return found.context.explain(_find_call(found, number))


def _find_call(found: ReadContext, number: int) -> ModelCall:
    history = found.context.history
    return history.find(number) if number else history.next_request()


def _cleaner(found: ReadContext) -> Callable[[str], str]:
    return lambda text: escape_for_terminal(found.redact(text))


def _describe_text(found: ReadContext, piece: CallPiece) -> dict[str, Any]:
    if piece.kind == "image":
        return {"text": f"({piece.name}, {piece.bytes:,} bytes in base64)", "omitted": 0}
    text = _cleaner(found)(piece.text[:_MAX_TEXT])
    return {"text": text, "omitted": max(len(piece.text) - _MAX_TEXT, 0)}
