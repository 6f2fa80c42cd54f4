"""Questions of the terminal face, one after the other: each gets the keys when nobody types something else any more.

Used by terminal; forms holds what a question is, layout shows it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document

from kitbag.chat.terminal.forms import FormResult, FormState, QuietPeriod, answer_line
from kitbag.chat.ui import Form, FormAnswer
from kitbag.views.blocks import Block, LinesBlock

LONE_KEY_SECONDS: Final = 0.25
"""Who types words has pressed the next key by then."""


class FormQueue:
    def __init__(
        self,
        show: Callable[[Block], None],
        changed: Callable[[], None],
        clock: Callable[[], float],
        has_draft: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_draft`: something stands in the line that was not sent."""
        self.state: FormState | None = None
        """The question that is put now."""
        self.text_buffer = Buffer(name="words", multiline=False)
        """Words of one's own. They go into no history."""
        self.typing_pause = QuietPeriod(clock)
        """Keys that went into the line."""
        self.answer_pause = QuietPeriod(clock)
        """Keys that went to a question or a panel: the second of two quick ones must not answer what comes next."""
        self._show = show
        self._changed = changed
        self._has_draft = has_draft
        self._clock = clock
        self._lock = asyncio.Lock()
        self._answer: asyncio.Future[FormResult] | None = None
        self._has_ended = False
        self._alone: tuple[str, FormResult, asyncio.TimerHandle] | None = None
        """A key that has chosen, unless another comes right behind it."""

    async def ask(self, form: Form) -> FormAnswer | None:
        async with self._lock:
            if self._has_ended:
                return None
            for block in form.above:
                self._show(block)
            answered = await self._put(form)
        self._show(LinesBlock((answer_line(form, answered.answer),)))
        return answered.answer

    async def _put(self, form: Form) -> FormResult:
        self.state = state = FormState(form, self._clock)
        self._answer = asyncio.get_running_loop().create_future()
        self.text_buffer.reset(Document(form.initial_text))
        opening = asyncio.ensure_future(self._open(state))
        try:
            return await self._answer
        finally:
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await opening
            self._not_alone()
            self.state = self._answer = None
            self.text_buffer.reset()
            self._changed()

    async def _open(self, state: FormState) -> None:
        """Until it is quiet the line keeps the keys. Then those that come right after the ones for the question before
        count for nothing: a key may have been pressed twice. Where one writes, that does no harm."""
        self.typing_pause.start()
        if self._has_draft() and not state.is_writing:
            self.typing_pause.record_key()  # a user who pauses between words may go on typing just now
        self.answer_pause.start()
        while left := self.typing_pause.seconds_left():
            state.is_waiting = True
            self._changed()
            await asyncio.sleep(left)
        self.typing_pause.reset()  # who was typing has seen the question
        state.is_waiting = False
        self._changed()
        while not state.is_writing and (left := self.answer_pause.seconds_left()):
            await asyncio.sleep(left)
        state.accepts_keys = True

    @property
    def has_keys(self) -> bool:
        return self.state is not None and not self.state.is_waiting

    def close(self) -> None:
        """Nobody answers any more."""
        self._has_ended = True
        self._settle(FormResult(None))

    # Keys, where `has_keys`

    def _is_early(self) -> bool:
        self.answer_pause.record_key()
        return self.state is not None and not self.state.accepts_keys and not self.state.is_writing

    def type(self, text: str) -> None:
        """A key that chooses counts when it stays alone for a moment: who types words answers nothing by a letter."""
        state = self.state
        if state is None or self._is_early():
            return
        if self._alone is not None:
            self._take_for_words(state, text)
        elif state.is_writing or not state.needs_quiet():
            answered = state.type(text)
            if answered is not None:
                self._alone = (
                    text,
                    answered,
                    asyncio.get_running_loop().call_later(LONE_KEY_SECONDS, self._stayed_alone),
                )
            elif state.is_writing:
                self.text_buffer.insert_text(text)
        self._changed()

    def _take_for_words(self, state: FormState, text: str) -> None:
        """Another key came right after one that would have chosen."""
        before = self._not_alone()
        if state.form.free_text_hint:
            state.start_writing()
            self.text_buffer.insert_text(before + text)
        else:
            state.require_quiet()

    def _not_alone(self) -> str:
        if self._alone is None:
            return ""
        text, _, timer = self._alone
        timer.cancel()
        self._alone = None
        return text

    def _stayed_alone(self) -> None:
        if self._alone is not None:
            _, answered, _ = self._alone
            self._alone = None
            self._settle(answered)
            self._changed()

    def paste(self, text: str) -> None:
        """Never an answer by itself."""
        self._not_alone()
        if self.state is not None and self.state.form.free_text_hint and not self._is_early():
            self.state.start_writing()
        if self.state is not None and self.state.is_writing:
            self.text_buffer.insert_text(" ".join(text.split("\n")).strip())
        self._changed()

    def move(self, by: int) -> None:
        if self.state is not None and not self.state.is_writing and not self._is_early():
            self._not_alone()
            self.state.move(by)
            self._changed()

    def enter(self) -> None:
        if self.state is not None and not self._is_early():
            self._not_alone()  # the mark stands on it
            self._settle(self.state.enter(self.text_buffer.text))
            self._changed()

    def tab(self) -> None:
        if self.state is not None:
            self.answer_pause.record_key()
            self.state.start_writing()
            self._changed()

    def escape(self, *, leaves: bool = False) -> None:
        """`leaves`: from the line for words, too."""
        if self.state is not None:
            self._not_alone()
            self.answer_pause.record_key()
            answered = self.state.escape()
            self._settle(FormResult(None) if leaves else answered)
            self._changed()

    def _settle(self, answered: FormResult | None) -> None:
        if answered is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(answered)
