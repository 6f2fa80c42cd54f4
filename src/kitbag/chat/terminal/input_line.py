"""The input line: submits, pastes, completes, clears.

Used by terminal_ui, key_bindings and layout. History, completer and pastes are passed in.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History, InMemoryHistory

from kitbag.chat.ui import ExitRequested, KeyPressed, Submitted, UserAction
from kitbag.errors import KitbagError
from kitbag.messages import Image
from kitbag.views.blocks import Block, NoticeBlock

EXIT_SECONDS: Final = 2.0
CLEAR_SECONDS: Final = 1.0
_NOTE_SECONDS: Final = 10.0
_MENTION: Final = re.compile(r"(?:^|\s)@\S*$")
_NAME: Final = re.compile(r"/\S+")
_INTERRUPTED: Final = 130


class PasteHandler(Protocol):
    """Replaces long text and images by placeholders in the input line."""

    def take(self, text: str) -> str: ...
    def expand(self, text: str) -> tuple[str, Sequence[Image]]: ...
    def restore(self, text: str, images: Sequence[Image], typed: str) -> str: ...
    def from_clipboard(self) -> str | None: ...


class PassthroughPastes:
    """The default: inserts pasted text unchanged."""

    def take(self, text: str) -> str:
        return text

    def expand(self, text: str) -> tuple[str, Sequence[Image]]:
        return text, ()

    def restore(self, text: str, images: Sequence[Image], typed: str) -> str:
        return typed or text

    def from_clipboard(self) -> str | None:
        return None


class InputLine:
    def __init__(
        self,
        *,
        history: History | None,
        completer: Completer | None,
        pastes: PasteHandler | None,
        emit: Callable[[UserAction], None],
        show: Callable[[Block], None],
        hint: Callable[[str, float], None],
        is_working: Callable[[], bool],
        has_queued: Callable[[], bool],
        clock: Callable[[], float],
        missing_mentions: Callable[[str], Sequence[str]] = lambda text: (),
    ) -> None:
        """`missing_mentions`: the `@names` of a message that match nothing."""
        self._missing_mentions = missing_mentions
        self._warned_text = ""
        """The text whose missing mentions the user has seen."""
        self._completer = completer
        self._pastes: PasteHandler = pastes or PassthroughPastes()
        self._emit = emit
        self._show = show
        self._hint = hint
        self._is_working = is_working
        self._has_queued = has_queued
        self._clock = clock
        self._escaped_at = self._interrupted_at = float("-inf")
        self._clipboard: asyncio.Task[None] | None = None
        self.buffer = Buffer(
            name="line",
            multiline=True,
            history=history if history is not None else InMemoryHistory(),
            completer=_in_thread(completer) if completer is not None else None,
            complete_while_typing=Condition(self._completes_while_typing),
            tempfile_suffix=".md",
            on_text_changed=self._text_changed,
        )

    @property
    def is_working(self) -> bool:
        """Whether the agent works."""
        return self._is_working()

    def _text_changed(self, _: Buffer) -> None:
        if self._warned_text and self.buffer.text.rstrip() != self._warned_text:
            self._warned_text = ""
            self._hint("", 0.0)

    def _completes_while_typing(self) -> bool:
        """Whether to complete while typing: command names and mentions."""
        before = self.buffer.document.text_before_cursor
        return before.startswith("/") or _MENTION.search(before[-200:]) is not None

    # Submitting

    def enter(self) -> None:
        buffer = self.buffer
        if not self._take_completion():
            return
        before = buffer.document.text_before_cursor
        if before.endswith("\\") and buffer.document.is_cursor_at_the_end_of_line:
            buffer.delete_before_cursor()
            self.new_line()
        elif buffer.text.strip():
            self._send()

    def _take_completion(self) -> bool:
        """Takes the marked entry of the menu, or the only one. False: the text may continue and is not sent yet."""
        buffer, state = self.buffer, self.buffer.complete_state
        if state is None or not state.completions:
            self._complete_name()
            return True
        if state.current_completion is not None:
            buffer.complete_state = None
            self._end_mention()
            return buffer.text.startswith("/")
        only, before = state.completions[0], buffer.document.text_before_cursor
        typed = before[len(before) + only.start_position :]
        is_argument = before.startswith("/") and not _NAME.fullmatch(before)
        if len(state.completions) > 1 or typed == only.text or (is_argument and not typed.startswith("@")):
            return True  # an argument may be new, such as the name of a file to write
        buffer.apply_completion(only)
        self._end_mention()
        return bool(_NAME.fullmatch(before)) and only.text.startswith(typed)

    def _complete_name(self) -> None:
        """Completes the `/name` that was typed before its menu opened, if only one name starts with it."""
        document, completer = self.buffer.document, self._completer
        if completer is None or document.text_after_cursor or not _NAME.fullmatch(document.text):
            return
        found = [one.text for one in completer.get_completions(document, CompleteEvent())]
        if len(found) == 1 and found[0].startswith(document.text):
            self.buffer.text = found[0]

    def _end_mention(self) -> None:
        """Adds a space after a completed mention, so that the next word is not part of it; a folder may continue."""
        before, after = self.buffer.document.text_before_cursor, self.buffer.document.text_after_cursor
        if _MENTION.search(before[-200:]) and not before.endswith("/") and not after[:1].isspace():
            self.buffer.insert_text(" ")

    def _is_complete(self, typed: str) -> bool:
        """False: a mention matches nothing, which the user sees; the next Enter sends the text as typed."""
        missing = self._missing_mentions(typed) if "@" in typed and typed != self._warned_text else ()
        if not missing:
            return True
        self._warned_text = typed
        self._hint(f"press Enter again to send as text: no file or agent named {', '.join(missing)}", _NOTE_SECONDS)
        return False

    def _send(self, *, waits: bool = False) -> None:
        if not self._is_complete(self.buffer.text.rstrip()):
            return
        try:
            typed = self.buffer.text.rstrip()
            text, images = self._pastes.expand(typed)
        except (KitbagError, OSError) as error:
            fix = error.fix if isinstance(error, KitbagError) else "fix the line and send it again"
            self._show(NoticeBlock("error", str(error), fix))
            return
        self._clear_line(store=True)
        self._emit(Submitted(text=text, images=tuple(images), typed=typed if typed != text else "", waits=waits))

    def _clear_line(self, *, store: bool) -> None:
        if store:
            self.buffer.append_to_history()
            self.buffer.reset()
            self._text_changed(self.buffer)  # a reset does not say so
        else:
            self.buffer.document = Document()  # undo restores the text

    def new_line(self) -> None:
        self.buffer.insert_text("\n")

    # Exit and cancel

    def escape(self) -> None:
        if self.buffer.complete_state is not None:
            self.buffer.cancel_completion()
            return
        now = self._clock()
        if self.buffer.text and not self._is_working():
            if now - self._escaped_at <= CLEAR_SECONDS:
                self._clear_line(store=True)
                self._escaped_at = float("-inf")
                self._hint("", 0.0)
                return
            self._escaped_at = now
            self._hint("press Esc again to clear the input", CLEAR_SECONDS)
        elif not self._is_working():
            if now - self._escaped_at <= CLEAR_SECONDS:
                self._escaped_at = float("-inf")
                self._hint("", 0.0)
                self._emit(Submitted(text="/rewind"))
                return
            self._escaped_at = now
            self._hint("press Esc again to rewind", CLEAR_SECONDS)
        self._emit(KeyPressed("cancel"))

    def interrupt(self) -> None:
        """Ctrl-C."""
        if self.buffer.complete_state is not None:
            self.buffer.cancel_completion()
        now = self._clock()
        is_second = now - self._interrupted_at <= EXIT_SECONDS
        if self._is_working() and not is_second:
            self._emit(KeyPressed("cancel"))
        elif self.buffer.text:
            self._clear_line(store=False)
            self._hint("press Ctrl-_ to restore the text", EXIT_SECONDS)
            return
        elif is_second:
            self._emit(ExitRequested(immediately=True, exit_code=_INTERRUPTED))
            return
        self._interrupted_at = now
        self._hint("press Ctrl-C again to exit", EXIT_SECONDS)

    def end_of_input(self) -> None:
        """Ctrl-D."""
        if self.buffer.text:
            self.buffer.delete()
        else:
            self._emit(ExitRequested(immediately=True))

    # Moving and completing

    def up(self) -> None:
        if self.buffer.complete_state is None and not self.buffer.text and self._has_queued():
            self._emit(KeyPressed("unqueue"))
        else:
            self.buffer.auto_up()

    def down(self) -> None:
        self.buffer.auto_down()

    def tab(self) -> None:
        state = self.buffer.complete_state
        if state is not None and state.completions:
            self.buffer.apply_completion(state.current_completion or state.completions[0])
            if _NAME.fullmatch(self.buffer.text):
                self.buffer.insert_text(" ")  # arguments follow
            self._end_mention()
        elif self._is_working() and self.buffer.text.strip() and not self._completes_while_typing():
            self._send(waits=True)
        else:
            self.buffer.start_completion(insert_common_part=True)

    # Inserting

    def paste(self, text: str) -> None:
        self.buffer.insert_text(self._pastes.take(text.replace("\r\n", "\n").replace("\r", "\n")))

    def paste_image(self) -> None:
        """Ctrl-V. In the background: clipboard programs may be slow."""
        if self._clipboard is None or self._clipboard.done():
            self._clipboard = asyncio.ensure_future(self._from_clipboard())

    async def _from_clipboard(self) -> None:
        placeholder: str | None = None
        with contextlib.suppress(KitbagError, OSError):
            placeholder = await asyncio.to_thread(self._pastes.from_clipboard)
        if placeholder:
            self.buffer.insert_text(placeholder)
        else:
            self._hint("no image in the clipboard", EXIT_SECONDS)

    def insert(self, *submissions: Submitted) -> None:
        """Inserts before the current text."""
        current = self.buffer.text
        text = "\n".join(self._pastes.restore(one.text, one.images, one.typed) for one in submissions)
        whole = f"{text}\n{current}" if current.strip() else text
        self.buffer.document = Document(whole, len(whole))


def _in_thread(completer: Completer) -> Completer:
    """In a thread, unless it is asynchronous already: typing must not wait for a disk."""
    is_async = type(completer).get_completions_async is not Completer.get_completions_async
    return completer if is_async else ThreadedCompleter(completer)
