"""The output of a command as the model and the user see it: its start and its end.

Used by Bash, the user's own commands and background commands. Takes bytes as they are printed and renders plain text of
bounded length that says what it omits.
"""

import re
from typing import Final

import msgspec

from kitbag.processes.command_runner import TERMINAL_SEQUENCE, clean_output
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.human_format import format_count
from kitbag.tools.files.read import format_size

MAX_CHARS: Final = 29_000
"""With the notes, a tool output has 30,000."""
HEAD_CHARS: Final = 10_000
"""The end of a long output is worth more: there a test run reports failures."""
_HEAD_BYTES = 1 << 16
_TAIL_BYTES = 1 << 18
_LINE_BYTES = 1 << 12
_MAX_LAST_LINE_CHARS = 200
"""Of the last line, shown as progress."""
_MAX_BINARY_CHARS = 500
_LINE_END = re.compile(r"\r+\n")
_REPLACEMENT_CHARACTER = "\ufffd"


class RenderedOutput(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    lines: int
    """The number of lines printed."""
    truncation: str
    """What the text omits."""
    notes: tuple[str, ...]


class CommandOutput:
    """Written by one thread."""

    __slots__ = ("_head", "_newlines", "_tail", "size")

    def __init__(self) -> None:
        self.size = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._newlines = 0

    def feed(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._newlines += chunk.count(b"\n")
        room = _HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * _TAIL_BYTES:
            del self._tail[:-_TAIL_BYTES]

    def last_line(self) -> str:
        """The last line on the screen."""
        end = bytes((self._tail or self._head)[-_LINE_BYTES:])
        lines = clean_terminal_output(end)[0].split("\n")
        return next((line.strip()[-_MAX_LAST_LINE_CHARS:] for line in reversed(lines) if line.strip()), "")

    def render(self, exclude: str = "") -> RenderedOutput:
        """`exclude` is text that Kitbag added to the command; it is removed from the output."""
        is_complete = self.size == len(self._head) + len(self._tail)
        if is_complete:
            head, overwritten = clean_terminal_output(bytes(self._head + self._tail))
            head = tail = head.replace(exclude, "") if exclude else head
        else:
            head, above = clean_terminal_output(_trim_to_line_end(bytes(self._head)))
            tail, below = clean_terminal_output(_trim_to_line_start(bytes(self._tail[-_TAIL_BYTES:])))
            overwritten = above + below
        if head.count(_REPLACEMENT_CHARACTER) * 5 > len(head) > _MAX_BINARY_CHARS:
            truncation = f"all but the start of the output, which is binary ({format_size(self.size)})"
            return RenderedOutput(
                text=head[:_MAX_BINARY_CHARS],
                lines=self._line_count(),
                truncation=truncation,
                notes=(f"[Omitted: {truncation}.]",),
            )
        notes = (_overwritten_note(overwritten),) if overwritten else ()
        if is_complete and len(head) <= MAX_CHARS:
            return RenderedOutput(text=head, lines=self._line_count(), truncation="", notes=notes)
        return self._render_truncated(head, tail, notes)

    def _line_count(self) -> int:
        """As printed, including an unterminated last line."""
        return self._newlines + (self.size > 0 and not (self._tail or self._head).endswith(b"\n"))

    def _render_truncated(self, head: str, tail: str, notes: tuple[str, ...]) -> RenderedOutput:
        first = head[:HEAD_CHARS]
        at = first.rfind("\n", HEAD_CHARS // 2)
        first = first[:at] if at > 0 and len(head) > len(first) else first
        last = tail[-(MAX_CHARS - HEAD_CHARS) :]
        at = last.find("\n", 0, len(last) // 2)
        last = last[at + 1 :] if at >= 0 and len(tail) > len(last) else last
        line_count = self._line_count()
        lines = line_count - first.count("\n") - last.count("\n") - 2
        size = format_size(max(1, self.size - len(first.encode()) - len(last.encode())))
        what = f"{format_count(lines, 'line')} ({size})" if lines > 0 else size
        omission_mark = f"[... {what} omitted ...]"
        return RenderedOutput(
            text=f"{first}\n\n{omission_mark}\n\n{last}",
            lines=line_count,
            truncation=f"{what} omitted from the middle of the output",
            notes=(*notes, _TRUNCATION_HINT),
        )


_TRUNCATION_HINT = "[To see the omitted output, filter it with grep, head or tail, or redirect it to a file.]"


def _overwritten_note(count: int) -> str:
    what = "1 overwritten line" if count == 1 else f"{count:,} overwritten lines"
    return f"[Omitted: {what}, such as progress bars. Show them with `| tr '\\r' '\\n'`.]"


def _trim_to_line_end(data: bytes) -> bytes:
    at = data.rfind(b"\n", len(data) - _LINE_BYTES)
    return data[: at + 1] if at >= 0 else data


def _trim_to_line_start(data: bytes) -> bytes:
    at = data.find(b"\n", 0, _LINE_BYTES)
    return data[at + 1 :] if at >= 0 else data.lstrip(bytes(range(0x80, 0xC0)))


def clean_terminal_output(data: bytes) -> tuple[str, int]:
    """The text a terminal would show in the end, and how many lines were overwritten."""
    text = data.decode("utf-8", "replace")
    overwritten = 0
    if "\r" in text:
        text = TERMINAL_SEQUENCE.sub("", _LINE_END.sub("\n", text))
        lines: list[str] = []
        for line in text.split("\n"):
            states = [state for state in line.split("\r") if state.strip()] if "\r" in line else [line]
            overwritten += max(0, len(states) - 1)
            lines.append(states[-1] if states else "")
        text = "\n".join(lines)
    return reveal_hidden(clean_output(text)), overwritten
