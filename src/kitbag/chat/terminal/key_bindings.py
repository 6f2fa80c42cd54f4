"""Key bindings of the terminal UI, and the escape sequences of terminals with extended keyboard protocols.

Used by terminal_ui. prompt_toolkit adds readline's keys to the input line (Ctrl-A, Alt-B, Ctrl-W, Ctrl-R …).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
from prompt_toolkit.filters import Condition, emacs_mode, has_focus, is_searching, vi_navigation_mode
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import accept_search

from kitbag.chat.terminal.form_queue import FormQueue
from kitbag.chat.terminal.input_line import InputLine
from kitbag.chat.terminal.layout import ChatLayout
from kitbag.chat.terminal.panels import PanelRunner
from kitbag.chat.ui import KeyPressed, UserAction

_ALT_ENTER: Final = (Keys.Escape, Keys.ControlM)
_EDIT_SECONDS: Final = 2.0
_UNKNOWN_SECONDS: Final = 0.1
_LOCK_MODIFIERS: Final = (0, 64, 128, 192)
"""Modifier bits of Caps Lock and Num Lock in extended sequences."""
_KEYBOARD_RESPONSE: Final = re.compile(r"\x1b\[\?\d+u")
_PANEL_KEYS: Final = ("up", "down", "pageup", "pagedown", "home", "end", "enter", "space")
_FORM_MOVES: Final = {"up": -1, "down": 1, "pageup": -8, "pagedown": 8, "home": -9999, "end": 9999}


class KeyActions(msgspec.Struct, frozen=True, kw_only=True):
    """Actions of keys outside the input line, forms and panels."""

    emit: Callable[[UserAction], None]
    redraw: Callable[[], None]
    suspend: Callable[[], None]
    edit: Callable[[], None]
    on_extended_keys: Callable[[], None]
    """The terminal reported the extended keyboard protocol."""
    on_error: Callable[[Exception], None]
    clock: Callable[[], float]
    keys: Mapping[str, str]
    """As DEFAULT_KEYS."""


# Escape sequences


def register_basic_sequences() -> None:
    """Shift-Enter as terminals send it by default, and their response to QUERY_KEYBOARD."""
    sequences = cast("dict[str, Any]", ANSI_SEQUENCES)
    for modifiers in range(2, 9):
        sequences[f"\x1b[13;{modifiers}u"] = _ALT_ENTER
        sequences[f"\x1b[27;{modifiers};13~"] = _ALT_ENTER
    for flags in range(32):
        sequences[f"\x1b[?{flags}u"] = Keys.Ignore


def register_extended_keys() -> None:
    """All sequences of the extended keyboard protocol (`CSI code ; modifiers u`)."""
    sequences = cast("dict[str, Any]", ANSI_SEQUENCES)
    _register_lock_variants(sequences)
    for code in (9, 13, 27, 32, *range(33, 127), 127, *_KEYPAD):
        for modifiers in range(8):
            for lock in _LOCK_MODIFIERS:
                sequences[f"\x1b[{code};{1 + modifiers + lock}u"] = _extended_key(code, modifiers)
        sequences[f"\x1b[{code}u"] = _extended_key(code, 0)


_KEYPAD: Final = {
    57414: Keys.ControlM,
    57417: Keys.Left,
    57418: Keys.Right,
    57419: Keys.Up,
    57420: Keys.Down,
    57421: Keys.PageUp,
    57422: Keys.PageDown,
    57423: Keys.Home,
    57424: Keys.End,
    57425: Keys.Insert,
    57426: Keys.Delete,
}


def _register_lock_variants(sequences: dict[str, Any]) -> None:
    """Arrow keys and the like with Caps Lock or Num Lock on."""
    for sequence, key in list(sequences.items()):
        found = re.fullmatch(r"(\x1b\[\d+;)([2-8])([A-Z~])", sequence)
        if found:
            for lock in _LOCK_MODIFIERS[1:]:
                sequences[f"{found[1]}{int(found[2]) + lock}{found[3]}"] = key
        plain = re.fullmatch(r"\x1b\[(?:([A-DFH])|(\d+)~)", sequence)
        if plain:
            for lock in _LOCK_MODIFIERS[1:]:
                locked = f"\x1b[1;{1 + lock}{plain[1]}" if plain[1] else f"\x1b[{plain[2]};{1 + lock}~"
                sequences[locked] = key


def _extended_key(code: int, modifiers: int) -> Any:
    shift, alt, control = bool(modifiers & 1), bool(modifiers & 2), bool(modifiers & 4)
    if code in _KEYPAD:
        return _KEYPAD[code]
    if code == 13:
        return _ALT_ENTER if modifiers else Keys.ControlM
    if code == 27:
        return Keys.Escape
    if code == 9:
        return Keys.BackTab if shift else Keys.ControlI
    if code == 127:
        return (Keys.Escape, Keys.ControlH) if alt or control else Keys.ControlH
    char = chr(code)
    if control:
        key = _control_key(char)
        return (Keys.Escape, key) if alt and key is not Keys.Ignore else key
    if alt:
        return (Keys.Escape, char.upper() if shift else char)
    return Keys.Ignore


def _control_key(char: str) -> Keys:
    by_char = {" ": "c-@", "@": "c-@", "_": "c-_", "-": "c-_", "/": "c-_", "\\": "c-\\", "]": "c-]", "^": "c-^"}
    name = by_char.get(char) or (f"c-{char.lower()}" if char.isalpha() else "")
    return Keys(name) if name else Keys.Ignore


# Bindings


def make_bindings(
    line: InputLine, forms: FormQueue, panels: PanelRunner, layout: ChatLayout, actions: KeyActions
) -> KeyBindings:
    bindings = _Bindings(actions.on_error)
    _bind_everywhere(bindings, actions)
    _bind_unknown(bindings, actions.clock)
    _bind_line(bindings, line, layout, actions)
    _bind_search(bindings, line)
    _bind_forms(bindings, forms, layout)
    _bind_panels(bindings, panels, forms, layout)
    return bindings


class _Bindings(KeyBindings):
    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        self._on_error = on_error

    def bind(self, where: Any, handler: Callable[[KeyPressEvent], object], *keys: str, eager: bool = False) -> None:
        def handle(event: KeyPressEvent) -> None:
            try:
                handler(event)
            except Exception as error:  # noqa: BLE001 - shown; one key must not end the chat
                self._on_error(error)

        self.add(*keys, filter=where, eager=eager)(handle)


def _bind_everywhere(bindings: _Bindings, actions: KeyActions) -> None:
    def on_response(event: KeyPressEvent) -> None:
        if _KEYBOARD_RESPONSE.fullmatch(event.data):
            actions.on_extended_keys()

    bindings.bind(True, lambda _: actions.redraw(), actions.keys["redraw"])
    bindings.bind(True, lambda _: actions.suspend(), "c-z")
    bindings.bind(True, on_response, Keys.Ignore)


def _bind_unknown(bindings: _Bindings, clock: Callable[[], float]) -> None:
    """Swallows unknown escape sequences and those split by a slow network: they start with Esc, which would
    interrupt the agent, and the rest would end up in the input line."""
    began, is_short = float("-inf"), False

    def begin(event: KeyPressEvent) -> None:
        nonlocal began, is_short
        began, is_short = clock(), event.key_sequence[-1].key == "O"

    def swallow(event: KeyPressEvent) -> None:
        nonlocal began
        if is_short or "@" <= event.data <= "~":
            began = float("-inf")

    bindings.bind(True, begin, "escape", "[")
    bindings.bind(True, begin, "escape", "O")
    bindings.bind(Condition(lambda: clock() - began < _UNKNOWN_SECONDS), swallow, Keys.Any, eager=True)


def _bind_line(bindings: _Bindings, line: InputLine, layout: ChatLayout, actions: KeyActions) -> None:
    here = has_focus(layout.line_window)
    prefixed_at = float("-inf")

    def prefix(_: KeyPressEvent) -> None:
        nonlocal prefixed_at
        prefixed_at = actions.clock()

    # Not a two-key sequence: prompt_toolkit would wait for the second key only as briefly as after Esc.
    is_prefixed = Condition(lambda: actions.clock() - prefixed_at < _EDIT_SECONDS)

    def edit(_: KeyPressEvent) -> None:
        nonlocal prefixed_at
        prefixed_at = float("-inf")
        actions.edit()

    bindings.bind(here, prefix, "c-x", eager=True)
    bindings.bind(here & is_prefixed, edit, "c-e", eager=True)
    bindings.bind(here, edit, actions.keys["edit"])
    handlers: dict[str, Callable[[], None]] = {
        "enter": line.enter,
        "c-j": line.new_line,
        "c-c": line.interrupt,
        "<sigint>": line.interrupt,
        "c-d": line.end_of_input,
        "up": line.up,
        "down": line.down,
        "tab": line.tab,
        actions.keys["image"]: line.paste_image,
        actions.keys["mode"]: lambda: actions.emit(KeyPressed("mode")),
        actions.keys["details"]: lambda: actions.emit(KeyPressed("details")),
    }
    # In Vim's insert mode, Esc leads to its normal mode.
    bindings.bind(here & (emacs_mode | vi_navigation_mode), lambda _: line.escape(), "escape")
    for key, handler in handlers.items():
        bindings.bind(here, lambda _, handler=handler: handler(), key)
    # Otherwise the key keeps its meaning: Ctrl-B moves the cursor.
    is_working = Condition(lambda: line.is_working)
    bindings.bind(
        here & is_working, lambda _: actions.emit(KeyPressed("background")), actions.keys["background"], eager=True
    )
    bindings.bind(here, lambda _: line.new_line(), "escape", "enter")
    bindings.bind(here, lambda _: line.new_line(), "escape", "c-j")
    bindings.bind(here, lambda event: line.paste(event.data), Keys.BracketedPaste)


def _bind_search(bindings: _Bindings, line: InputLine) -> None:
    """Accepting a history search puts the match into the input line, to be edited or sent."""

    def accept(_: KeyPressEvent) -> None:
        accept_search()
        line.buffer.cursor_position = len(line.buffer.text)

    for key in ("enter", "escape", "tab"):
        bindings.bind(is_searching, accept, key, eager=True)


def _bind_forms(bindings: _Bindings, forms: FormQueue, layout: ChatLayout) -> None:
    in_options, in_text = has_focus(layout.form_window), has_focus(layout.text_window)
    in_form = in_options | in_text
    bindings.bind(in_form, lambda _: forms.enter(), "enter")
    bindings.bind(in_form, lambda _: forms.escape(), "escape")
    for key in ("c-c", "<sigint>", "c-g"):
        bindings.bind(in_form, lambda _: forms.escape(cancels=True), key)
    bindings.bind(in_form, lambda event: forms.paste(event.data.replace("\r", "\n")), Keys.BracketedPaste)
    for key, by in _FORM_MOVES.items():
        bindings.bind(in_options, lambda _, by=by: forms.move(by), key)
    bindings.bind(in_options, lambda _: forms.tab(), "tab")
    bindings.bind(in_options, lambda _: forms.delete(), "backspace")
    bindings.bind(in_options, lambda _: forms.delete(everything=True), "c-u")
    bindings.bind(in_options, lambda event: _is_text(event.data) and forms.type(event.data), Keys.Any)
    # In free-text input these would move the cursor or open something else.
    for key in ("up", "down", "tab", "s-tab", "c-r", "c-s", "c-j", "c-o"):
        bindings.bind(in_text, lambda _: None, key)
    bindings.bind(in_text & Condition(lambda: not forms.text_buffer.text), lambda _: forms.escape(cancels=True), "c-d")


def _bind_panels(bindings: _Bindings, panels: PanelRunner, forms: FormQueue, layout: ChatLayout) -> None:
    here = has_focus(layout.panel_window)

    def press(name: str) -> None:
        forms.answer_pause.record_key()
        panels.press(name)

    for key in _PANEL_KEYS:
        bindings.bind(here, lambda _, key=key: press(key), key)
    for key in ("escape", "c-c", "<sigint>", "c-d", "c-g"):
        bindings.bind(here, lambda _: press("escape"), key)
    bindings.bind(here, lambda event: _is_text(event.data) and press(event.data), Keys.Any)


def _is_text(data: str) -> bool:
    return bool(data) and data.isprintable()
