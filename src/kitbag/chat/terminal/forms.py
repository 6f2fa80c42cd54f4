"""The state of a form in place of the input line: how keys change it and how it is drawn.

Used by form_queue and layout. Independent of prompt_toolkit.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from kitbag.chat.terminal.text_fragments import STYLES, FragmentLine, cut_line, wrap
from kitbag.dialogs.form import Form, FormAnswer, FormOption
from kitbag.text.terminal_width import text_width, truncate_to_width

QUIET_SECONDS: Final = 0.3
"""Pause in typing after which keys answer a form."""
RECENT_KEY_SECONDS: Final = 1.0
"""A user who typed within this time may still be typing."""
TYPED_TEXT_SECONDS: Final = 0.6
"""Pause after typed text before a key selects an option again."""
_NOTHING_SELECTED: Final = "nothing selected; use Up and Down, or press an option's key"
_NOTHING_FOUND: Final = "no match; Backspace to change the search, Esc to clear it"
_MAX_LABEL_LINES: Final = 4
_MAX_PREVIEW_LINES: Final = 6


class FormResult(msgspec.Struct, frozen=True):
    answer: FormAnswer | None
    """None: canceled."""


class QuietPeriod:
    """Keeps keys meant for something else from answering a form."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_key = float("-inf")

    def record_key(self) -> None:
        self._last_key = self._clock()

    def start(self) -> None:
        """A form appears: a user who typed just now has not read it yet."""
        if self._clock() - self._last_key < RECENT_KEY_SECONDS:
            self.record_key()

    def reset(self) -> None:
        self._last_key = float("-inf")

    def seconds_left(self) -> float:
        """Remaining seconds without a key; 0: long enough."""
        return max(QUIET_SECONDS - (self._clock() - self._last_key), 0.0)


class FormState:
    def __init__(self, form: Form, clock: Callable[[], float] = time.monotonic) -> None:
        self.form = form
        self._clock = clock
        self._text_typed_at = float("-inf")
        """Time of the last key that was part of typed text."""
        self.search = ""
        """What was typed to narrow the options of a searchable form."""
        self.options = form.options
        """Those that match."""
        first = 0 if form.multiple or form.searchable else -1  # with multiple choices, Enter alone selects none
        self.cursor = next((at for at, option in enumerate(form.options) if option.key == form.default), first)
        """Index of the option; -1: none."""
        self.chosen: set[str] = set()
        self.is_writing = not form.options and bool(form.free_text_hint or form.secret or form.initial_text)
        """Free text is being entered."""
        self.is_waiting = False
        """The user is typing something else; the form gets no keys yet."""
        self.accepts_keys = False
        """Keys have an effect."""
        self.hint = ""
        self.scrolled = self.hidden_rows = 0
        """Rows of `form.above` that are scrolled away, and that don't fit, if it is drawn with the form."""
        self._typed = ""
        self._confirms_none = False

    # Keys

    def require_quiet(self) -> None:
        """The user types text where only keys are answers: ignore keys until they pause."""
        self._text_typed_at = self._clock()
        self.cursor, self._typed = -1, ""
        self.hint = "text ignored; press a single option key"

    def needs_quiet(self) -> bool:
        if self._clock() - self._text_typed_at >= TYPED_TEXT_SECONDS:
            return False
        self._text_typed_at = self._clock()
        return True

    def move(self, by: int) -> None:
        self.hint = self._typed = ""
        count = len(self.options)
        if not count:
            return
        if self.cursor < 0:
            self.cursor = 0 if by > 0 else count - 1
        elif abs(by) == 1:
            self.cursor = (self.cursor + by) % count
        else:
            self.cursor = min(max(self.cursor + by, 0), count - 1)

    def type(self, char: str) -> FormResult | None:
        """Handles a printable character. If it is no option's key and free text is allowed, sets `is_writing`, and the
        caller inserts the character."""
        self.hint = ""
        if self.form.searchable:
            self.set_search(self.search + char)
            return None
        typed = self._typed + char
        if char == " " and self.form.multiple and not self._typed:
            self.toggle()
            return None
        index = self._option(typed) or self._option(char)
        if index is not None:
            return self._choose(index, typed if self._option(typed) else char)
        if any(option.key.startswith(typed) for option in self.form.options):
            self._typed = typed
        elif self.form.free_text_hint:
            self.is_writing = True
        else:
            self.require_quiet()
        return None

    def set_search(self, text: str) -> None:
        self.hint = ""
        self.search, words = text, text.casefold().split()
        self.options = tuple(option for option in self.form.options if _matches(option, words))
        self.cursor = 0 if self.options else -1

    def _option(self, typed: str) -> int | None:
        keys = [option.key for option in self.form.options]
        if typed in keys:
            return keys.index(typed)
        matches = [at for at, key in enumerate(keys) if key.lower() == typed.lower()]
        return matches[0] if len(matches) == 1 else None

    def _choose(self, at: int, typed: str) -> FormResult | None:
        self.cursor = at
        self._typed = ""
        if any(option.key.startswith(typed) and option.key != typed for option in self.form.options):
            self._typed = typed  # `1` if there is a `10`: Enter decides
            return None
        if self.form.multiple:
            self.toggle()
            return None
        return FormResult(FormAnswer((self.form.options[at].key,)))

    def toggle(self) -> None:
        if 0 <= self.cursor < len(self.form.options):
            self.chosen ^= {self.form.options[self.cursor].key}
            self._confirms_none = False
        else:
            self.hint = _NOTHING_SELECTED

    def enter(self, text: str) -> FormResult | None:
        """`text`: the free-text input."""
        keys = tuple(option.key for option in self.form.options if option.key in self.chosen)
        if self.is_writing:
            if text.strip() or not self.form.options:
                return FormResult(FormAnswer(keys, text))
            self.hint = "type an answer, or press Esc to go back to the options"
            return None
        if not self.form.options:
            return FormResult(FormAnswer())
        if self.form.multiple:
            return self._enter_multiple(keys)
        if self.cursor < 0:
            self.hint = _NOTHING_FOUND if self.form.searchable else _NOTHING_SELECTED
            return None
        return FormResult(FormAnswer((self.options[self.cursor].key,)))

    def _enter_multiple(self, keys: tuple[str, ...]) -> FormResult | None:
        if keys or self._confirms_none:
            return FormResult(FormAnswer(keys))
        self._confirms_none = True
        self.hint = "Space to select; press Enter again to select none"
        return None

    def start_writing(self) -> None:
        if self.form.free_text_hint and not self.form.searchable:
            self.is_writing, self.hint = True, ""

    def escape(self) -> FormResult | None:
        """Returns to the options first."""
        if self.is_writing and self.form.options:
            self.is_writing, self.hint = False, ""
            return None
        if self.search:
            self.set_search("")
            return None
        return FormResult(None)

    # Drawing

    def request_lines(self, above: list[FragmentLine], height: int) -> list[FragmentLine]:
        """At most `height` lines of the rendered `form.above`."""
        if len(above) <= height:
            self.scrolled = self.hidden_rows = 0
            return above
        shown = max(height - 1, 0)
        self.hidden_rows = len(above) - shown
        self.scrolled = min(max(self.scrolled, 0), self.hidden_rows)
        last = self.scrolled + shown
        place = f"  lines {self.scrolled + 1}-{last} of {len(above)} · PageUp and PageDown scroll"
        return [*above[self.scrolled : last], [(STYLES["warning"], place)]][:height]

    def lines(self, width: int, height: int, clean: Callable[[str], str]) -> list[FragmentLine]:
        """At most `height` lines, not counting the free-text input."""
        prompt = wrap(clean(self.form.prompt), width - 2)
        options: list[FragmentLine] = []
        cursor_row = 0
        for at in range(max(self.cursor - height, 0), min(max(self.cursor, 0) + height, len(self.options))):
            option_lines = self._option_lines(at, self.options[at], width, clean)
            if at == self.cursor:
                cursor_row = len(options)
            options.extend(option_lines)
        footer_height = 1 if height > 1 else 0
        room = max(height - footer_height, 1)
        prompt_height = min(len(prompt), max(room - min(len(options), max(room // 2, 1)), 1 if room > 1 else 0))
        if prompt_height < len(prompt) and prompt_height > 0:
            prompt = [*prompt[: prompt_height - 1], truncate_to_width(prompt[prompt_height - 1] + " …", width - 2)]
        lines: list[FragmentLine] = [
            [("bold" if at == 0 else "", ("? " if at == 0 else "  ") + text)]
            for at, text in enumerate(prompt[:prompt_height])
        ]
        if self.form.searchable and room > len(lines):
            lines.append(self._search_line(width, clean))
        room -= len(lines)
        preview = self._preview_lines(width, min(_MAX_PREVIEW_LINES, room // 3), clean)
        room -= len(preview)
        first = min(max(cursor_row - room // 2, 0), max(len(options) - room, 0))
        lines.extend(options[first : first + room])
        lines.extend(preview)
        if footer_height:
            lines.append(self._footer(width, clean))
        return lines[:height]

    def _option_lines(self, at: int, option: FormOption, width: int, clean: Callable[[str], str]) -> list[FragmentLine]:
        is_selected = at == self.cursor and not self.is_writing
        box = ("[x] " if option.key in self.chosen else "[ ] ") if self.form.multiple else ""
        key = "" if self.form.searchable else f"{clean(option.key)}  "
        head = f"{'›' if is_selected else ' '} {box}{key}"
        style = f"bold {STYLES['accent']}" if is_selected else "dim" if self.is_waiting or self.is_writing else ""
        indent = " " * len(head)
        label = " ".join(clean(option.label).split())
        texts = wrap(label, max(width - len(head), 8))
        if len(texts) > _MAX_LABEL_LINES:
            # The end matters: of a rule, it shows that everything below a directory is meant.
            texts = [*texts[: _MAX_LABEL_LINES - 3], "…", *texts[-2:]]
        lines: list[FragmentLine] = [[(style, (head if row == 0 else indent) + text)] for row, text in enumerate(texts)]
        if option.note:
            note = " ".join(clean(option.note).split())
            lines[-1].append(
                ("dim", truncate_to_width("  " + note, width - sum(text_width(text) for _, text in lines[-1])))
            )
        return lines

    def _search_line(self, width: int, clean: Callable[[str], str]) -> FragmentLine:
        count = f"  {len(self.options):,} of {len(self.form.options):,}"
        return cut_line([("dim", "  search: "), ("", f"{clean(self.search)}▏"), ("dim", count)], width)

    def _preview_lines(self, width: int, height: int, clean: Callable[[str], str]) -> list[FragmentLine]:
        option = self.options[self.cursor] if 0 <= self.cursor < len(self.options) else None
        if option is None or not option.preview or height <= 0:
            return []
        texts = [text for line in clean(option.preview).split("\n") for text in wrap(line, width - 4)]
        return [[("dim", f"  │ {text}")] for text in texts[:height]]

    def _footer(self, width: int, clean: Callable[[str], str]) -> FragmentLine:
        if self.is_waiting:
            return [(STYLES["warning"], truncate_to_width("  pause typing for a moment to answer", width))]
        if self.hint:
            return [(STYLES["warning"], truncate_to_width(f"  {self.hint}", width))]
        free_text_hint, cancel_hint = clean(self.form.free_text_hint), f"Esc to {self.form.cancel_effect or 'cancel'}"
        if self.is_writing:
            hints = ["Enter to confirm", "Esc to go back" if self.form.options else cancel_hint]
            if free_text_hint:
                hints.insert(0, f"type {free_text_hint}")
        else:
            hints = ["Up/Down and Enter, or press a key"] if self.form.options else ["Enter to continue"]
            if self.form.searchable:
                hints = ["type to search", "Up/Down and Enter"]
                cancel_hint = "Esc to clear the search" if self.search else cancel_hint
            if self.form.multiple:
                hints = ["Space to select", "Enter to confirm"]
            hints.append(cancel_hint)
            if free_text_hint and not self.form.searchable:
                hints.append(f"Tab to type {free_text_hint}")
        return [("dim", truncate_to_width("  " + " · ".join(hints), width))]


def _matches(option: FormOption, words: list[str]) -> bool:
    text = f"{option.label} {option.note} {option.preview}".casefold()
    return all(word in text for word in words)
