"""Turns the events of a run into blocks for the scrollback and a LiveState for the current run.

Used by chat, one EventView per session. Independent of the UI: passes its output to `show` and `draw`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from kitbag.agent.session import Session
from kitbag.chat.tool_titles import call_summary, call_title, parse_todos, progress_text
from kitbag.chat.ui import LiveState, RunningCall
from kitbag.events import (
    Compacted,
    Discarded,
    Event,
    MessageAdded,
    Notice,
    Retrying,
    RunEnded,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Waiting,
)
from kitbag.messages import Message, Thinking
from kitbag.store.known_values import KnownValues
from kitbag.store.streaming_redaction import StreamingRedactor
from kitbag.text.human_format import format_count
from kitbag.views.blocks import Block, NoticeBlock, ReplyBlock, ThinkingBlock, ToolBlock, notice_block, text_block
from kitbag.views.rendering.markdown_stream import MarkdownPiece, MarkdownStream
from kitbag.views.run_outcome import describe_outcome

_WAITING: Final = "waiting for the model"
_MAX_DETAILS: Final = 100
"""Expandable blocks kept."""
_CHARACTERS_PER_TOKEN: Final = 4


class ShowBlocks(Protocol):
    def __call__(self, *blocks: Block) -> None: ...


def _no_redaction() -> StreamingRedactor:
    return StreamingRedactor(lambda text: text, KnownValues(()))


class EventView:
    details_open = False
    """Whether tool results and thinking are shown in full from now on."""
    used_tokens = 0
    """Tokens of the last request and its reply, as counted by the provider."""

    def __init__(
        self,
        show: ShowBlocks,
        draw: Callable[[LiveState], None],
        make_redactor: Callable[[], StreamingRedactor] = _no_redaction,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make_redactor` returns a new streaming redactor for each reply: it holds text back until it can't be the
        start of a secret."""
        self._show = show
        self._draw = draw
        self._make_redactor = make_redactor
        self._clock = clock
        self._live = LiveState()
        self._running: dict[str, RunningCall] = {}
        self._started: dict[str, ToolStarted] = {}
        self._details: list[Block] = []
        """Expanded versions of the blocks that are shown collapsed."""
        self._todos: tuple[tuple[str, str], ...] = ()
        self._characters = 0
        self._directory = ""
        self._start_reply()

    @property
    def live(self) -> LiveState:
        return self._live

    def details(self) -> list[Block]:
        """Thinking and tool results, expanded."""
        return list(self._details)

    async def replay(self, session: Session, exchanges: int = 3) -> None:
        """Shows the last exchanges of a resumed session, which nothing may change meanwhile."""
        from kitbag.chat.replay import replay_session

        replay = await asyncio.to_thread(replay_session, session, exchanges)
        self.used_tokens, self._todos = replay.used_tokens, replay.todos
        if replay.blocks:
            self._show(*replay.blocks)

    def handle(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._add_text(text)
            case ThinkingDelta(text):
                self._add_thinking(text)
            case ToolProgress(call_id=call_id, text=text):
                if call_id in self._running:
                    self._running[call_id] = msgspec.structs.replace(
                        self._running[call_id], progress=progress_text(text)
                    )
                    self._update(self._live.activity)
            case RunStarted(directory=directory):
                self._directory = directory
                self._start_run()
            case MessageAdded(message):
                self._finish_message(message)
            case Discarded(reason):
                self._discard(reason)
            case ToolStarted():
                self._tool_started(event)
            case ToolFinished():
                self._tool_finished(event)
            case TurnEnded(usage=usage):
                self.used_tokens = usage.total_input + usage.output
                self._update(self._live.activity)
            case RunEnded():
                self._end_run(event)
            case _:
                self._show_notice(event)

    # Run start and end

    def _start_run(self) -> None:
        self._running, self._started = {}, {}
        self._characters = 0
        self._start_reply()
        self._live = LiveState(started_at=self._clock())
        self._update(_WAITING)

    def _end_run(self, ended: RunEnded) -> None:
        self._finish_thinking()
        self._finish_text()
        self._running, self._started = {}, {}
        problem = describe_outcome(ended)
        if ended.status == "cancelled":
            self._show(NoticeBlock("info", problem))  # the user canceled, so this is no error
        elif problem:
            self._show(NoticeBlock("error", problem, ended.fix))
        self._live = LiveState()
        self._draw(self._live)

    def _update(self, activity: str) -> None:
        self._live = msgspec.structs.replace(
            self._live,
            activity=activity,
            tokens=self._characters // _CHARACTERS_PER_TOKEN,
            tail=self._stream.tail,
            running=tuple(self._running.values()),
            todos=self._todos,
        )
        self._draw(self._live)

    # Replies

    def _start_reply(self) -> None:
        self._stream = MarkdownStream()
        self._redactor = self._make_redactor()
        self._streamed: list[str] = []
        self._is_first = True
        self._thinking_text: list[str] = []
        self._thinking_since = 0.0
        self._has_thinking = False

    def _add_text(self, text: str) -> None:
        self._finish_thinking()
        self._streamed.append(text)
        self._characters += len(text)
        self._show_pieces(self._stream.add(self._redactor.feed(text)))
        self._update("writing")

    def _add_thinking(self, text: str) -> None:
        if not self._thinking_text:
            self._thinking_since = self._clock()
        self._thinking_text.append(text)
        self._characters += len(text)
        self._update("thinking")

    def _finish_thinking(self) -> None:
        if not self._thinking_text:
            return
        text, seconds = "".join(self._thinking_text), self._clock() - self._thinking_since
        self._thinking_text, self._has_thinking = [], True
        if text.strip():
            self._show_collapsed(ThinkingBlock(text, seconds))

    def _finish_text(self) -> None:
        self._show_pieces([*self._stream.add(self._redactor.flush()), *self._stream.finish()])

    def _show_pieces(self, pieces: Sequence[MarkdownPiece]) -> None:
        for piece in pieces:
            if piece.text.strip():
                self._show(ReplyBlock(piece.text, self._is_first, piece.head))
                self._is_first = False

    def _finish_message(self, message: Message) -> None:
        """The reply is complete. Shows what was not streamed."""
        if not self._has_thinking and not self._thinking_text:
            self._thinking_text += (part.text for part in message.parts if isinstance(part, Thinking) and part.text)
            self._thinking_since = self._clock()
        self._finish_thinking()
        streamed = "".join(self._streamed)
        if message.text.startswith(streamed):
            self._show_pieces(self._stream.add(self._redactor.feed(message.text[len(streamed) :])))
        self._finish_text()
        self._start_reply()
        self._update(_WAITING)

    def _discard(self, reason: str) -> None:
        if not self._is_first:
            self._show(NoticeBlock("warning", f"the reply was truncated; the text above is incomplete: {reason}"))
        self._start_reply()
        self._update(_WAITING)

    # Tool calls

    def _tool_started(self, event: ToolStarted) -> None:
        about = call_title(event.name, event.arguments, event.title, self._directory)
        self._started[event.call_id] = event
        self._running[event.call_id] = RunningCall(name=event.name, title=about, progress="", started_at=self._clock())
        self._update("working")

    def _tool_finished(self, event: ToolFinished) -> None:
        running = self._running.pop(event.call_id, None)
        started = self._started.pop(event.call_id, None)
        about = running.title if running is not None else ""
        if event.name == "TodoWrite" and started is not None and not event.is_error:
            todos = parse_todos(started.arguments)
            self._todos = todos if any(status != "completed" for status, _ in todos) else ()
        summary = call_summary(event.name, about, event.summary, event.is_error)
        done = ToolBlock(
            name=event.name,
            title=about,
            summary=summary,
            is_error=event.is_error,
            seconds=event.seconds,
            details=event.details,
        )
        self._show_collapsed(done, open_details=event.details or event.result)
        self._update("working" if self._running else _WAITING)

    def _show_collapsed(self, block: ThinkingBlock | ToolBlock, open_details: str = "") -> None:
        expanded = msgspec.structs.replace(block, is_open=True)
        if isinstance(expanded, ToolBlock):
            expanded = msgspec.structs.replace(expanded, details=open_details)
        self._details = [*self._details[1 - _MAX_DETAILS :], expanded]
        self._show(expanded if self.details_open else block)

    # Notices

    def _show_notice(self, event: Event) -> None:
        match event:
            case SkillLoaded(name=name, tokens=tokens, by=by, rights=permissions):
                if by == "model":  # the tool call already showed that the skill was loaded
                    text = f"skill {name}, {permissions}" if permissions else ""
                else:  # a skill called by `/name` is loaded for one turn
                    how = "used for this message" if by == "user" else "loaded"
                    text = f"skill {name} {how} ({format_count(tokens, 'token')})" + (
                        f"; {permissions}" if permissions else ""
                    )
                self._show_dim(text)
            case SkillUnloaded(name=name, reason=reason):
                self._show_dim(f"skill {name} unloaded" + (f": {reason}" if reason != "unloaded" else ""))
            case Compacted(before=before, after=after):
                self.used_tokens = after
                self._show_dim(f"session compacted: {before:,} → {after:,} tokens")
            case Retrying(seconds=seconds, reason=reason):
                self._update(f"{reason}; retrying in {seconds:.0f}s")
            case Waiting():
                self._update(event.line())
            case Notice():
                self._show(notice_block(event))
            case _:
                pass

    def _show_dim(self, text: str) -> None:
        if text:
            self._show(text_block(text, "dim"))
