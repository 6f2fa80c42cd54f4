"""Turns the events of a run into blocks for the scrollback and a LiveState for the running turn.

Used by chat, one EventView per session. Independent of the UI: passes its output to `show` and `draw`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

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
)
from kitbag.messages import Message, Thinking
from kitbag.store.streaming_redaction import StreamingRedactor
from kitbag.text.human_format import format_count
from kitbag.views.blocks import Block, NoticeBlock, ReplyBlock, ThinkingBlock, ToolBlock, text_block
from kitbag.views.rendering.markdown_stream import MarkdownPiece, MarkdownStream
from kitbag.views.run_outcome import describe_outcome

_WAITING: Final = "waiting for the model"
_MOST_DETAILS: Final = 100
"""Expandable blocks kept for the last turn."""
_CHARACTERS_A_TOKEN: Final = 4


class ShowBlocks(Protocol):
    def __call__(self, *blocks: Block) -> None: ...


def _nothing_held() -> StreamingRedactor:
    return StreamingRedactor(lambda text: text, ())


class EventView:
    details_open = False
    """Whether tool results and thinking are shown in full from now on."""
    used_tokens = 0
    """Tokens of the last request and its reply, as counted by the provider."""

    def __init__(
        self,
        show: ShowBlocks,
        draw: Callable[[LiveState], None],
        make_redactor: Callable[[], StreamingRedactor] = _nothing_held,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make_redactor` returns a new streaming redactor for each reply: it holds text back until it can't be the
        start of a secret."""
        self._show = show
        self._draw = draw
        self._make_held = make_redactor
        self._clock = clock
        self._live = LiveState()
        self._running: dict[str, RunningCall] = {}
        self._asked: dict[str, ToolStarted] = {}
        self._turn: list[Block] = []
        """Expanded versions of the blocks that are shown collapsed."""
        self._todos: tuple[tuple[str, str], ...] = ()
        self._characters = 0
        self._directory = ""
        self._begin_reply()

    @property
    def live(self) -> LiveState:
        return self._live

    def details(self) -> list[Block]:
        """Thinking and tool results of the last turn, expanded."""
        return list(self._turn)

    def replay(self, session: Session, exchanges: int = 3) -> None:
        """Shows the last exchanges of a resumed session."""
        from kitbag.chat.replay import replay_session

        found = replay_session(session, exchanges)
        self.used_tokens, self._todos = found.used_tokens, found.todos
        if found.blocks:
            self._show(*found.blocks)

    def handle(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._text(text)
            case ThinkingDelta(text):
                self._thinking(text)
            case ToolProgress(call_id, text):
                if call_id in self._running:
                    self._running[call_id] = self._running[call_id]._replace(progress=progress_text(text))
                    self._update(self._live.activity)
            case RunStarted(directory=directory):
                self._directory = directory
                self._start()
            case MessageAdded(message):
                self._message(message)
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
                self._end(event)
            case _:
                self._tell(event)

    # Run start and end

    def _start(self) -> None:
        self._turn, self._running, self._asked = [], {}, {}
        self._characters = 0
        self._begin_reply()
        self._live = LiveState(started_at=self._clock())
        self._update(_WAITING)

    def _end(self, ended: RunEnded) -> None:
        self._end_thought()
        self._end_text()
        self._running, self._asked = {}, {}
        problem = describe_outcome(ended)
        if ended.status == "cancelled":
            self._show(NoticeBlock("info", problem))  # the user canceled, so this is no error
        elif problem:
            self._show(NoticeBlock("error", problem, ended.fix))
        self._live = LiveState()
        self._draw(self._live)

    def _update(self, activity: str) -> None:
        self._live = self._live._replace(
            activity=activity,
            tokens=self._characters // _CHARACTERS_A_TOKEN,
            tail=self._stream.tail,
            running=tuple(self._running.values()),
            todos=self._todos,
        )
        self._draw(self._live)

    # Replies

    def _begin_reply(self) -> None:
        self._stream = MarkdownStream()
        self._held = self._make_held()
        self._said: list[str] = []
        self._begins = True
        self._thoughts: list[str] = []
        self._thinks_since = 0.0
        self._has_thought = False

    def _text(self, text: str) -> None:
        self._end_thought()
        self._said.append(text)
        self._characters += len(text)
        self._show_pieces(self._stream.add(self._held.feed(text)))
        self._update("writing")

    def _thinking(self, text: str) -> None:
        if not self._thoughts:
            self._thinks_since = self._clock()
        self._thoughts.append(text)
        self._characters += len(text)
        self._update("thinking")

    def _end_thought(self) -> None:
        if not self._thoughts:
            return
        text, seconds = "".join(self._thoughts), self._clock() - self._thinks_since
        self._thoughts, self._has_thought = [], True
        if text.strip():
            self._show_folded(ThinkingBlock(text, seconds))

    def _end_text(self) -> None:
        self._show_pieces([*self._stream.add(self._held.flush()), *self._stream.finish()])

    def _show_pieces(self, pieces: Sequence[MarkdownPiece]) -> None:
        for text, head in pieces:
            if text.strip():
                self._show(ReplyBlock(text, self._begins, head))
                self._begins = False

    def _message(self, message: Message) -> None:
        """The reply is complete. Shows what was not streamed."""
        if not self._has_thought and not self._thoughts:
            self._thoughts += (part.text for part in message.parts if isinstance(part, Thinking) and part.text)
            self._thinks_since = self._clock()
        self._end_thought()
        said = "".join(self._said)
        if message.text.startswith(said):
            self._show_pieces(self._stream.add(self._held.feed(message.text[len(said) :])))
        self._end_text()
        self._begin_reply()
        self._update(_WAITING)

    def _discard(self, reason: str) -> None:
        if not self._begins:
            self._show(NoticeBlock("warning", f"the reply broke off, so what stands above is not all of it: {reason}"))
        self._begin_reply()
        self._update(_WAITING)

    # Tool calls

    def _tool_started(self, event: ToolStarted) -> None:
        about = call_title(event.name, event.arguments, event.title, self._directory)
        self._asked[event.call_id] = event
        self._running[event.call_id] = RunningCall(event.name, about, "", self._clock())
        self._update("working")

    def _tool_finished(self, event: ToolFinished) -> None:
        running = self._running.pop(event.call_id, None)
        asked = self._asked.pop(event.call_id, None)
        about = running.title if running is not None else ""
        if event.name == "TodoWrite" and asked is not None and not event.is_error:
            todos = parse_todos(asked.arguments)
            self._todos = todos if any(status != "completed" for status, _ in todos) else ()
        summary = call_summary(event.name, about, event.summary, event.is_error)
        done = ToolBlock(event.name, about, summary, event.is_error, event.seconds, event.details)
        self._show_folded(done, open_details=event.details or event.result)
        self._update("working" if self._running else _WAITING)

    def _show_folded(self, block: ThinkingBlock | ToolBlock, open_details: str = "") -> None:
        opened = block._replace(is_open=True)
        if isinstance(opened, ToolBlock):
            opened = opened._replace(details=open_details)
        self._turn = [*self._turn[1 - _MOST_DETAILS :], opened]
        self._show(opened if self.details_open else block)

    # Notices

    def _tell(self, event: Event) -> None:
        match event:
            case SkillLoaded(name, tokens, by, rights):
                if by == "model":  # the tool call already showed that the skill was loaded
                    said = f"skill {name}, {rights}" if rights else ""
                else:  # a skill called by `/name` is loaded for one turn
                    how = "used for this message" if by == "user" else "loaded"
                    said = f"skill {name}, {how}, {format_count(tokens, 'token')}" + (f"; {rights}" if rights else "")
                self._say(said)
            case SkillUnloaded(name, reason):
                self._say(f"skill {name} is not loaded any more" + (f": {reason}" if reason != "unloaded" else ""))
            case Compacted(before, after):
                self.used_tokens = after
                self._say(f"the conversation was compacted: {before:,} -> {after:,} tokens")
            case Retrying(_, seconds, reason):
                self._show(NoticeBlock("warning", f"{reason}; trying again in {seconds:.0f} s"))
                self._update(f"waiting {seconds:.0f} s to try again")
            case Notice(severity, text, fix):
                self._show(NoticeBlock(severity, text, fix))
            case _:
                pass

    def _say(self, text: str) -> None:
        if text:
            self._show(text_block(text, "dim"))
