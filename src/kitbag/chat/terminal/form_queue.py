"""Shows forms one after another; each gets the keys only once the user stops typing something else.

Used by terminal_ui. forms holds the state of one form, layout draws it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document

from kitbag.chat.terminal.forms import FormResult, FormState, QuietPeriod
from kitbag.dialogs.form import Form, FormAnswer, answer_block, continues
from kitbag.views.blocks import Block

LONE_KEY_SECONDS: Final = 0.25
"""Someone typing text presses the next key within this time."""


class FormQueue:
    def __init__(
        self,
        show: Callable[[Block], None],
        changed: Callable[[], None],
        clock: Callable[[], float],
        has_draft: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_draft`: the input line contains unsent text."""
        self.state: FormState | None = None
        """The current form."""
        self.text_buffer = Buffer(name="words", multiline=False)
        """Free text. Not stored in the history."""
        self.typing_pause = QuietPeriod(clock)
        """Keys typed into the input line."""
        self.answer_pause = QuietPeriod(clock)
        """Keys typed into a form or a panel: the second press of a double press must not answer the next form."""
        self._show = show
        self._changed = changed
        self._has_draft = has_draft
        self._clock = clock
        self._lock = asyncio.Lock()
        self._answer: asyncio.Future[FormResult] | None = None
        self._is_closed = False
        self._request = Form(prompt="")
        """The last form with a summary."""
        self._lone_key: tuple[str, FormResult, asyncio.TimerHandle] | None = None
        """A key that selects an option, unless another key follows at once."""
        self._clears_next = False
        """The next form starts without its initial text."""

    async def ask(self, form: Form) -> FormAnswer | None:
        async with self._lock:
            if self._is_closed:
                return None
            if form.summary:
                form = self._with_request(form)
            else:
                for block in form.above:
                    self._show(block)
            result = await self._run_form(form)
        if not continues(form, result.answer):
            self._show(answer_block(form, result.answer))
        return result.answer

    def _with_request(self, form: Form) -> Form:
        """A question that is asked again shows what it is about again."""
        if not form.above and form.summary == self._request.summary:
            form = msgspec.structs.replace(form, above=self._request.above)
        self._request = form
        return form

    async def _run_form(self, form: Form) -> FormResult:
        self.state = state = FormState(form, self._clock)
        self._answer = asyncio.get_running_loop().create_future()
        self.text_buffer.reset(Document("" if self._clears_next else form.initial_text))
        self._clears_next = False
        opening = asyncio.ensure_future(self._wait_for_pause(state))
        try:
            return await self._answer
        finally:
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await opening
            self._clear_lone_key()
            self.state = self._answer = None
            self.text_buffer.reset()
            self._changed()

    async def _wait_for_pause(self, state: FormState) -> None:
        """Until typing pauses, the input line keeps the keys. Then keys that directly follow those for the previous
        form are ignored, as possible double presses, except in free text."""
        self.typing_pause.start()
        if self._has_draft() and not state.is_writing:
            self.typing_pause.record_key()  # a user who pauses between words may continue typing
        self.answer_pause.start()
        while left := self.typing_pause.seconds_left():
            state.is_waiting = True
            self._changed()
            await asyncio.sleep(left)
        self.typing_pause.reset()  # the user has seen the form by now
        state.is_waiting = False
        self._changed()
        while not state.is_writing and (left := self.answer_pause.seconds_left()):
            await asyncio.sleep(left)
        state.accepts_keys = True

    @property
    def has_keys(self) -> bool:
        return self.state is not None and not self.state.is_waiting

    def close(self) -> None:
        """Cancels the current form and all later ones."""
        self._is_closed = True
        self._resolve(FormResult(None))

    # Keys, if `has_keys`

    def _is_ignored(self) -> bool:
        self.answer_pause.record_key()
        return self.state is not None and not self.state.accepts_keys and not self.state.is_writing

    def type(self, text: str) -> None:
        """An option's key counts only if no other key follows at once, so that typed text answers nothing."""
        state = self.state
        if state is None or self._is_ignored():
            return
        if self._lone_key is not None:
            self._treat_as_text(state, text)
        elif state.is_writing or not state.needs_quiet():
            result = state.type(text)
            if result is not None:
                self._lone_key = (
                    text,
                    result,
                    asyncio.get_running_loop().call_later(LONE_KEY_SECONDS, self._accept_lone_key),
                )
            elif state.is_writing:
                self.text_buffer.insert_text(text)
        self._changed()

    def _treat_as_text(self, state: FormState, text: str) -> None:
        """Another key followed one that would have selected an option."""
        before = self._clear_lone_key()
        if state.form.free_text_hint:
            state.start_writing()
            self.text_buffer.insert_text(before + text)
        else:
            state.require_quiet()

    def _clear_lone_key(self) -> str:
        if self._lone_key is None:
            return ""
        text, _, timer = self._lone_key
        timer.cancel()
        self._lone_key = None
        return text

    def _accept_lone_key(self) -> None:
        if self._lone_key is not None:
            _, result, _ = self._lone_key
            self._lone_key = None
            self._resolve(result)
            self._changed()

    def paste(self, text: str) -> None:
        """A paste never submits an answer."""
        self._clear_lone_key()
        if self.state is not None and self.state.form.searchable and not self._is_ignored():
            self.state.set_search(self.state.search + " ".join(text.split()))
        elif self.state is not None and self.state.form.free_text_hint and not self._is_ignored():
            self.state.start_writing()
        if self.state is not None and self.state.is_writing:
            self.text_buffer.insert_text(" ".join(text.split("\n")).strip())
        self._changed()

    def delete(self, *, everything: bool = False) -> None:
        """Backspace, Ctrl-U: in the search. Ctrl-U directly after an option's key is for the text that it opens."""
        self._clears_next = everything and self._lone_key is not None
        if self.state is not None and self.state.search and not self._is_ignored():
            self.state.set_search("" if everything else self.state.search[:-1])
            self._changed()

    def move(self, by: int) -> None:
        if self.state is not None and not self.state.is_writing and not self._is_ignored():
            self._clear_lone_key()
            if self.state.hidden_rows and abs(by) > 1:
                self.state.scrolled += by
            else:
                self.state.move(by)
            self._changed()

    def enter(self) -> None:
        if self.state is not None and not self._is_ignored():
            self._clear_lone_key()  # the cursor is on its option
            self._resolve(self.state.enter(self.text_buffer.text))
            self._changed()

    def tab(self) -> None:
        if self.state is not None:
            self.answer_pause.record_key()
            self.state.start_writing()
            self._changed()

    def escape(self, *, cancels: bool = False) -> None:
        """`cancels`: also from free-text input."""
        if self.state is not None:
            self._clear_lone_key()
            self.answer_pause.record_key()
            result = self.state.escape()
            self._resolve(FormResult(None) if cancels else result)
            self._changed()

    def _resolve(self, result: FormResult | None) -> None:
        if result is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(result)
