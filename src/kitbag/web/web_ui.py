"""The ChatUI of a browser: publishes what a chat shows as a topic, and passes on what the user does in any tab.

Used by hosted_chats. Blocks and forms are rendered by html, when a browser needs them. Every tab that shows the
session follows the same topic, so all of them show the same.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from kitbag.chat.ui import ChatStatus, ExitRequested, LiveState, Panel, Submitted, UserAction
from kitbag.dialogs.form import Form, FormAnswer, answer_block, continues
from kitbag.views.blocks import Block, ThinkingBlock, ToolBlock
from kitbag.web.topics import Payload, Topic

_MAX_ACTIONS: Final = 100
"""Actions that wait; a browser that sends more is refused."""
_FRAME_SECONDS: Final = 0.03


_KEYS: Final = (
    ("Enter", "send; while the agent is working, steer it: it gets the message after its running tool calls"),
    ("Alt-Enter", "while the agent is working: queue the message until the agent is done"),
    ("Shift-Enter", "insert a line break"),
    ("! prefix", "run a command in your shell, as in `!git status`"),
    ("Esc", "interrupt the agent and send pending messages; changes so far are kept"),
    ("Ctrl-B", "move the running command or agent to the background"),
    ("Ctrl-O", "expand or collapse tool results and thinking"),
    ("Up", "take back the last pending message, or recall earlier input"),
    ("Ctrl-V", "paste an image; you can also drop one"),
)


class _OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    form: Form
    answer: "asyncio.Future[FormAnswer | None]"


class WebUI:
    """Implements ChatUI."""

    is_plain = False
    keeps_everything = True
    keys: tuple[tuple[str, str], ...] = _KEYS
    can_ask = True

    def __init__(self, topic_name: str) -> None:
        self.redact: Callable[[str], str] = lambda text: text
        self.topic = Topic(topic_name, self._render)
        self.has_agent = False
        """Before that the chat starts: there is nothing to steer or stop."""
        self.is_working = False
        self._actions: asyncio.Queue[UserAction] = asyncio.Queue()
        self._questions: list[_OpenQuestion] = []
        self._form_lock = asyncio.Lock()
        self._last_client = ""
        """The tab of the last action: a text for the input line is for it."""
        self._is_closed = False
        self._live_timer: asyncio.Handle | None = None
        self._live = LiveState()
        self._status = ChatStatus()

    # From the browser

    @property
    def is_full(self) -> bool:
        return self._actions.qsize() >= _MAX_ACTIONS

    @property
    def has_question(self) -> bool:
        return bool(self._questions)

    def act(self, action: UserAction, client: str) -> None:
        self._last_client = client
        self._actions.put_nowait(action)

    def answer(self, question_id: str, answer: FormAnswer | None, client: str) -> bool:
        """False if the question was answered or withdrawn meanwhile."""
        for question in self._questions:
            if question.id == question_id and not question.answer.done():
                self._last_client = client
                question.answer.set_result(answer)
                return True
        return False

    # ChatUI

    def show(self, *blocks: Block) -> None:
        # With the block goes the state that follows in this turn of the loop: a tab never has a paragraph twice.
        if self._live_timer is not None:
            self._live_timer.cancel()
        self._live_timer = asyncio.get_running_loop().call_soon(self._publish_live)
        for block in blocks:
            if isinstance(block, ThinkingBlock | ToolBlock):
                block = msgspec.structs.replace(block, is_open=False)
            self.topic.add("block", block)

    def hint(self, text: str) -> None:
        self.topic.add("hint", {"text": self.redact(text)}, transient=True)

    def unfold(self, expanded: Sequence[Block]) -> None:
        """Each tab expands and collapses by itself."""
        del expanded

    def fold(self) -> None: ...

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        """Renders at most once per turn of the event loop and frame, however often it is called."""
        self._live, self._status = live, status
        self.is_working = self.has_agent and bool(live.activity)
        if self._live_timer is None:
            self._live_timer = asyncio.get_running_loop().call_later(_FRAME_SECONDS, self._publish_live)

    def _publish_live(self) -> None:
        from kitbag.web.html.chat_state import render_live, render_status

        self._live_timer = None
        live, status = self._live, self._status
        self.topic.set(
            "live",
            {
                "html": render_live(live, self.redact),
                "is_working": self.is_working,
                "elapsed": time.monotonic() - live.started_at if live.started_at else 0.0,
                "waiting": len(live.steering) + len(live.queued),
            },
        )
        chosen = {"mode": status.mode, "model": status.model, "persona": status.persona}
        self.topic.set("status", {"html": render_status(status), **chosen})

    async def next(self) -> UserAction:
        return await self._actions.get()

    async def ask(self, form: Form) -> FormAnswer | None:
        async with self._form_lock:
            if self._is_closed:
                return None
            question = _OpenQuestion(
                id=secrets.token_urlsafe(9), form=form, answer=asyncio.get_running_loop().create_future()
            )
            self._questions.append(question)
            self._publish_questions()
            try:
                answer = await question.answer
            finally:
                self._questions.remove(question)
                self._publish_questions()
            if not form.summary:
                self.show(*form.above)
            if not continues(form, answer):
                self.show(answer_block(form, answer))
            return answer

    def _publish_questions(self) -> None:
        from kitbag.web.html.forms import render_form

        questions = [{"id": one.id, "html": render_form(one.form, one.id, self.redact)} for one in self._questions]
        self.topic.set("questions", {"questions": questions})

    async def open(self, panel: Panel) -> bool:
        """The pages of the browser take the place of panels."""
        del panel
        return False

    def insert(self, *submissions: Submitted) -> None:
        text = "\n".join(one.text for one in submissions)
        images = [{"media_type": image.media_type, "data": image.data} for one in submissions for image in one.images]
        self.topic.add("insert", {"text": text, "images": images, "client": self._last_client}, transient=True)

    async def copy(self, text: str) -> bool:
        self.topic.add("copy", {"text": text, "client": self._last_client}, transient=True)
        return True

    def clear(self) -> None:
        self.topic.clear()

    async def close(self) -> None:
        self._is_closed = True
        for question in self._questions:
            if not question.answer.done():
                question.answer.set_result(None)
        if self._live_timer is not None:
            self._live_timer.cancel()
            self._live_timer = None

    def leave(self) -> None:
        """Ends the chat; its background tasks go on."""
        self.act(ExitRequested(), "")

    def _render(self, kind: str, value: Any) -> Payload:
        if kind != "block":
            return value
        from kitbag.web.html.blocks import render_block

        return {"html": render_block(value, self.redact)}
