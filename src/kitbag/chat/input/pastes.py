"""Pasted text and images: long ones appear in the input line as placeholders and are expanded when it is sent.

Used by terminal/make_terminal: `take` for pasted text and dropped files, `from_clipboard` for an image, `expand` on
sending. Image types are detected from content, as in the Read tool.
"""

import base64
import os
import re
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from kitbag.chat.clipboard import read_clipboard
from kitbag.messages import Image
from kitbag.processes.command_runner import TERMINAL_SEQUENCE
from kitbag.text.hidden_characters import remove_hidden
from kitbag.text.human_format import format_count
from kitbag.tools.files.read import MAX_IMAGE_BYTES, format_size, image_type

MAX_INLINE_LINES: Final = 10
MAX_INLINE_CHARACTERS: Final = 1_000
"""Longer text becomes a placeholder."""
MAX_EDITABLE_CHARACTERS: Final = 10_000
"""Longer text of a message that returns to the input line becomes a placeholder: it may have been typed."""
MAX_TEXT_LENGTH: Final = 2_000_000
"""Characters of one paste; the rest is truncated."""
MAX_STORED_CHARACTERS: Final = 40_000_000
"""Total of all stored text and images (base64); the oldest are dropped first."""
MAX_DROPPED_FILES: Final = 20
_MAX_PATHS_LENGTH: Final = 10_000
_MAX_NAME_LENGTH = 40
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLACEHOLDER = re.compile(r"\[(?:pasted text|image) #\d{1,9}[^\[\]\n]{0,80}\]")
_IMAGE_EXTENSIONS: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class ExpandedInput(NamedTuple):
    text: str
    images: tuple[Image, ...] = ()


class PasteStore:
    """The pastes of one chat."""

    def __init__(self, notify: Callable[[str], None] = lambda remark: None) -> None:
        """`notify` gets a message for the user when something can't be pasted unchanged."""
        self._notify = notify
        self._stored: dict[str, str | Image] = {}
        """Content by placeholder."""
        self._number = 0

    def take(self, text: str) -> str:
        """The text or placeholder to insert."""
        text = sanitize_paste(text)
        placeholders = self._take_dropped(text)
        if placeholders:
            return placeholders
        if len(text) > MAX_TEXT_LENGTH:
            self._notify(f"pasted text truncated to {MAX_TEXT_LENGTH:,} of {len(text):,} characters")
            text = text[:MAX_TEXT_LENGTH]
        # Store text that looks like a placeholder, too, so that it is never replaced by something else.
        is_short = _count_lines(text) <= MAX_INLINE_LINES and len(text) <= MAX_INLINE_CHARACTERS
        return text if is_short and not _PLACEHOLDER.search(text) else self._fold(text)

    def from_clipboard(self, environment: Mapping[str, str] | None = None) -> str | None:
        """The placeholder of the clipboard's image; None, after a notice, if there is none. Blocks for a few seconds at
        most: call it in a thread."""
        clip = read_clipboard(environment)
        if clip.problem:
            self._notify(clip.problem)
            return None
        return self._store_image("clipboard", clip.media_type, clip.data)

    def expand(self, text: str) -> ExpandedInput:
        """Replaces placeholders of text; those of images stay, and the images are attached. Unknown placeholders stay
        as they are."""
        for placeholder in _PLACEHOLDER.findall(text):
            if placeholder not in self._stored:  # typed by hand, from an earlier chat, or dropped meanwhile
                lost = f"no content stored for {placeholder}; sent as plain text"
                self._notify(f"{lost}. Paste it again to include it")
        return self._expand(text)

    def _expand(self, text: str) -> ExpandedInput:
        images: dict[str, Image] = {}

        def replacement(match: re.Match[str]) -> str:
            stored = self._stored.get(match[0], match[0])
            if isinstance(stored, Image):
                images[match[0]] = stored
                return match[0]
            return stored

        return ExpandedInput(_PLACEHOLDER.sub(replacement, text), tuple(images.values()))

    def restore(self, text: str, images: Sequence[Image], typed: str) -> str:
        """The input line of a message that returns to it: as typed, if that still stands for the message; otherwise,
        as after a crash or a rewind, with new placeholders for its images and what is too long to edit."""
        if typed and self._expand(typed) == (text, tuple(images)):
            return typed
        rest = list(images)
        placed: dict[str, str] = {}
        pieces: list[str] = []
        for piece in re.split(f"({_PLACEHOLDER.pattern})", text):
            if rest and piece.startswith("[image #") and piece not in placed:
                about = piece[:-1].removeprefix("[image #").lstrip("0123456789")
                placed[piece] = self._store("image", about, rest.pop(0))
            is_plain = len(piece) <= MAX_EDITABLE_CHARACTERS and not _PLACEHOLDER.fullmatch(piece)
            pieces.append(placed.get(piece) or (piece if is_plain else self._fold(piece)))
        return " ".join(["".join(pieces), *(self._store("image", "", image) for image in rest)]).strip()

    def _fold(self, text: str) -> str:
        lines = _count_lines(text)
        size = format_count(lines, "line") if lines > 1 else format_count(len(text), "character")
        return self._store("pasted text", f", {size}", text)

    # Storage

    def _store(self, kind: str, about: str, content: str | Image) -> str:
        self._number += 1
        placeholder = f"[{kind} #{self._number}{about}]"
        self._stored[placeholder] = content
        while len(self._stored) > 1 and sum(map(_size, self._stored.values())) > MAX_STORED_CHARACTERS:
            del self._stored[next(iter(self._stored))]
        return placeholder

    def _store_image(self, name: str, media_type: str, data: bytes) -> str:
        shown = re.sub(r"[\[\]]|[^\S ]", "_", remove_hidden(name))
        if len(shown) > _MAX_NAME_LENGTH:
            shown = f"{shown[: _MAX_NAME_LENGTH // 2 - 1]}…{shown[-_MAX_NAME_LENGTH // 2 :]}"
        return self._store("image", f" {shown}", Image(media_type=media_type, data=base64.b64encode(data).decode()))

    # Dropped files, which terminals paste as paths

    def _take_dropped(self, text: str) -> str:
        """What to insert if the text consists of file paths and one of them is an image; otherwise empty."""
        if not text.strip() or len(text) > _MAX_PATHS_LENGTH:
            return ""
        paths = _paths_in(text)
        if not paths or not any(path.lower().endswith(_IMAGE_EXTENSIONS) or _is_image(path) for path in paths):
            return ""
        placeholders = [self._take_image(path) for path in paths]
        if not any(placeholders):
            return ""
        return " ".join(placeholder or shlex.quote(path) for placeholder, path in zip(placeholders, paths, strict=True))

    def _take_image(self, path: str) -> str:
        """The image's placeholder; empty, after a notice, if it can't be used."""
        name = os.path.basename(path)
        try:
            data = _read(path, MAX_IMAGE_BYTES + 1)
        except OSError as error:
            self._notify(f"can't read {name}: {error.strerror or error}")
            return ""
        media_type = image_type(data)
        if len(data) > MAX_IMAGE_BYTES and media_type:
            self._notify(f"{name} is too large (image limit: {format_size(MAX_IMAGE_BYTES)})")
            return ""
        if not media_type:
            if name.lower().endswith(_IMAGE_EXTENSIONS):
                self._notify(f"{name} is not a PNG, JPEG, GIF or WebP image, despite its extension")
            return ""
        return self._store_image(name, media_type, data)


def sanitize_paste(text: str) -> str:
    """Normalizes line breaks and removes control sequences."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", TERMINAL_SEQUENCE.sub("", text)))


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _size(stored: str | Image) -> int:
    return len(stored.data) if isinstance(stored, Image) else len(stored)


def _paths_in(text: str) -> list[str]:
    """The existing files a text consists of: one path, one per line, or several quoted as by a shell. Empty for any
    other text."""
    text = text.strip()
    for words in ([text], text.split("\n"), _shell_words(text)):
        paths = [_path(word.strip()) for word in words if word.strip()]
        if 0 < len(paths) <= MAX_DROPPED_FILES and all(path and _is_file(path) for path in paths):
            return paths
    return []


def _shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _path(word: str) -> str:
    """The absolute path, unquoted and unescaped; empty if the word is none."""
    if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'":
        word = word[1:-1]
    if word.startswith("file://"):
        try:
            address = urlsplit(word)
        except ValueError:
            return ""
        path = unquote(address.path)
        return path if address.netloc in ("", "localhost") and path.isprintable() else ""
    word = os.path.expanduser(word) if word.startswith("~/") else word
    if not word.startswith("/"):
        return ""
    if "\\" in word and not _is_file(word):
        return re.sub(r"\\(.)", r"\1", word)
    return word


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _is_image(path: str) -> bool:
    try:
        return bool(image_type(_read(path, 16)))
    except OSError:
        return False


def _read(path: str, limit: int) -> bytes:
    """Does not block on a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(limit)
