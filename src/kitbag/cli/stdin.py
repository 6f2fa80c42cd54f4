"""Reads prompts from standard input: a text added to the prompt, the prompt itself, or one JSON prompt per line.

Used by headless and by commands that take a message. Reads the descriptor directly: a thread that waits in Python's
buffer would block the exit.
"""

import asyncio
import json
import os
import re
import select
import stat
import sys
import threading
from typing import Any, Final, cast

import msgspec

from kitbag.cli import output
from kitbag.errors import UsageError
from kitbag.messages import Image

MAX_INPUT_BYTES: Final = 10 << 20
_FIRST_BYTE_TIMEOUT = 3.0
_CHUNK_BYTES = 1 << 16
_FORMAT_FIX: Final = 'expected {"type": "user", "message": {"role": "user", "content": "..."}} on one line'
_IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
# Piped text is data: nothing in it may look like one of Kitbag's own blocks.
_RESERVED_TAGS = (
    r"(?i)<(?=\s*/?\s*(?:standard-input|available-(?:skills|agents)|suggested-skills|skill-invocation|library-changes"
    r"|session-changes|conversation-summary|task-notification|mentioned-(?:file|folder|agent|command)))"
)


class InputPrompt(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    images: tuple[Image, ...] = ()


def read_prompt(prompt: str) -> InputPrompt:
    """`-`: standard input is the prompt. Raises UsageError if there is none."""
    piped = _read_piped(required=prompt == "-")
    if prompt == "-":
        if not piped.strip():
            raise UsageError("no prompt", 'usage: kitbag -p "PROMPT", or send the prompt on standard input')
        return InputPrompt(text=piped)
    if not prompt.strip():
        raise UsageError("the prompt is empty", 'usage: kitbag -p "PROMPT"')
    if not piped.strip():
        return InputPrompt(text=prompt)
    data = re.sub(_RESERVED_TAGS, "&lt;", piped).strip("\n")
    return InputPrompt(text=f"{prompt}\n\n<standard-input>\n{data}\n</standard-input>")


def read_message(words: tuple[str, ...]) -> str:
    """The words of a command line as one text; `-`: standard input. Raises UsageError for an empty input."""
    if words != ("-",):
        return " ".join(words).strip()
    text = _read_piped(required=True).strip()
    if not text:
        raise UsageError("no message on standard input", "pipe a message in, or pass it as an argument")
    return text


def _descriptor() -> int:
    """-1 if closed: descriptor 0 may be another file then."""
    stream = sys.stdin
    if stream is None or stream.closed:  # pyright: ignore[reportUnnecessaryComparison]
        return -1
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return -1


def _read_piped(required: bool) -> str:
    """Waits for a silent pipe only if it is the prompt."""
    descriptor = _descriptor()
    if descriptor < 0 or (os.isatty(descriptor) and not required):
        return ""
    data = bytearray()
    try:
        mode = os.fstat(descriptor).st_mode
        if not required and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            ready, _, _ = select.select([descriptor], [], [], _FIRST_BYTE_TIMEOUT)
            if not ready:
                output.remark("no data on standard input; continuing without it")
                return ""
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            data += chunk
            if len(data) > MAX_INPUT_BYTES:
                limit = f"more than {MAX_INPUT_BYTES >> 20} MB on standard input"
                raise UsageError(limit, "save it to a file and name the file in the prompt")
    except OSError as error:
        raise UsageError(f"standard input can't be read: {error.strerror}", "redirect it from /dev/null") from error
    return data.decode("utf-8", "replace").replace("\0", "")


class JsonPromptReader:
    """Reads JSON prompts on demand."""

    def __init__(self) -> None:
        self._descriptor = _descriptor()
        self._buffer = bytearray()
        self._at_end = self._descriptor < 0
        self._line_number = 0

    async def next(self) -> InputPrompt | None:
        """None at the end. Raises UsageError for a line that is not a prompt."""
        loop = asyncio.get_running_loop()
        read: asyncio.Future[bytes | None] = loop.create_future()

        def settle(line: bytes | None, error: Exception | None) -> None:
            if not read.done():
                read.set_result(line) if error is None else read.set_exception(error)

        def wait() -> None:
            outcome: tuple[bytes | None, Exception | None]
            try:
                outcome = self._read_line(), None
            except (OSError, UsageError) as error:
                outcome = None, error
            loop.call_soon_threadsafe(settle, *outcome)

        # A daemon thread, so that nothing waits for it if no input comes.
        threading.Thread(target=wait, daemon=True).start()
        line = await read
        return None if line is None else self._parse_prompt(line)

    def _read_line(self) -> bytes | None:
        """The next line that is not blank."""
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline or self._at_end:
                self._buffer = rest
                self._line_number += bool(newline or line)
                if line.strip():
                    return bytes(line)
                if not newline:
                    return None
                continue
            if len(self._buffer) > MAX_INPUT_BYTES:
                raise UsageError(
                    f"line {self._line_number + 1} of standard input is longer than {MAX_INPUT_BYTES >> 20} MB", ""
                )
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
            self._buffer += chunk
            self._at_end = not chunk

    def _parse_prompt(self, line: bytes) -> InputPrompt:
        try:
            value: Any = json.loads(line.decode())
            if value.get("type", "user") != "user":
                raise TypeError
            message = value.get("message", value)
            prompt = _parse_content(message["content"])
            if message.get("role", "user") != "user" or not (prompt.text.strip() or prompt.images):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"line {self._line_number} of standard input is not a valid prompt", _FORMAT_FIX
            ) from error
        return prompt


def _parse_content(content: object) -> InputPrompt:
    """Text, or blocks of text and images. Raises for anything else."""
    if isinstance(content, str):
        return InputPrompt(text=content)
    texts: list[str] = []
    images: list[Image] = []
    for block in cast("list[dict[str, Any]]", content):
        if block["type"] == "text" and isinstance(block["text"], str):
            texts.append(block["text"])
            continue
        source = block["source"]
        if block["type"] != "image" or source["type"] != "base64" or source["media_type"] not in _IMAGE_TYPES:
            raise TypeError
        images.append(Image(media_type=source["media_type"], data=str(source["data"])))
    return InputPrompt(text="\n".join(texts), images=tuple(images))
