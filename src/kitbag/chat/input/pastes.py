"""Pasted text and images: long ones appear in the input line as placeholders and are expanded when it is sent.

Used by terminal/make_terminal: `take` for pasted text and dropped files, `from_clipboard` for an image, `expand` on
sending. Image types are detected from content, as in the Read tool.
"""

import base64
import os
import re
import shlex
import stat
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from kitbag.chat.input.clipboard import read_clipboard
from kitbag.messages import Image
from kitbag.processes.command_runner import TERMINAL_SEQUENCE
from kitbag.text.hidden_characters import remove_hidden
from kitbag.tools.files.paths import number_of
from kitbag.tools.files.read import MAX_IMAGE_BYTES, format_size, image_type

MAX_INLINE_LINES: Final = 10
MAX_INLINE_CHARACTERS: Final = 1_000
"""Longer text becomes a placeholder."""
MAX_TEXT_LENGTH: Final = 2_000_000
"""Characters of one paste; the rest is truncated."""
MAX_STORED_CHARACTERS: Final = 40_000_000
"""Total of all stored text and images (base64); the oldest are dropped first."""
MAX_DROPPED_FILES: Final = 20
_LONGEST_PATHS: Final = 10_000
_LONGEST_NAME = 40
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BROKEN = re.compile("[\ud800-\udfff]")
_LABEL = re.compile(r"\[(?:pasted text|image) #\d{1,9}[^\[\]\n]{0,80}\]")
_IMAGE_ENDINGS: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class ExpandedInput(NamedTuple):
    text: str
    images: tuple[Image, ...] = ()


class PasteStore:
    """The pastes of one chat."""

    def __init__(self, notify: Callable[[str], None] = lambda remark: None) -> None:
        """`notify` gets a message for the user when something can't be pasted unchanged."""
        self._tell = notify
        self._held: dict[str, str | Image] = {}
        """Content by placeholder."""
        self._number = 0

    def take(self, text: str) -> str:
        """The text or placeholder to insert."""
        text = sanitize_paste(text)
        dropped = self._dropped(text)
        if dropped:
            return dropped
        if len(text) > MAX_TEXT_LENGTH:
            self._tell(f"the pasted text was cut after {MAX_TEXT_LENGTH:,} of {len(text):,} characters")
            text = text[:MAX_TEXT_LENGTH]
        count = text.count("\n") + (not text.endswith("\n"))
        # Store text that looks like a placeholder, too, so that it is never replaced by something else.
        if count <= MAX_INLINE_LINES and len(text) <= MAX_INLINE_CHARACTERS and not _LABEL.search(text):
            return text
        size = number_of(count, "line") if count > 1 else number_of(len(text), "character")
        return self._hold("pasted text", f", {size}", text)

    def from_clipboard(self, environment: Mapping[str, str] | None = None) -> str | None:
        """The placeholder of the clipboard's image; None, after a notice, if there is none. Blocks for a few seconds at
        most: call it in a thread."""
        clip = read_clipboard(environment)
        if clip.problem:
            self._tell(clip.problem)
            return None
        return self._hold_image("clipboard", clip.media_type, clip.data)

    def expand(self, text: str) -> ExpandedInput:
        """Replaces placeholders of text; those of images stay, and the images are attached. Unknown placeholders stay
        as they are."""
        images: dict[str, Image] = {}

        def meant(match: re.Match[str]) -> str:
            label = match[0]
            held = self._held.get(label)
            if isinstance(held, Image):
                images[label] = held
            elif held is not None:
                return held
            else:  # typed by hand, from an earlier chat, or dropped meanwhile
                self._tell(
                    f"nothing is held behind {label}, so it is sent as these words; paste it again if it was meant"
                )
            return label

        return ExpandedInput(_LABEL.sub(meant, text), tuple(images.values()))

    # Storage

    def _hold(self, kind: str, about: str, content: str | Image) -> str:
        self._number += 1
        label = f"[{kind} #{self._number}{about}]"
        self._held[label] = content
        while len(self._held) > 1 and sum(map(_size, self._held.values())) > MAX_STORED_CHARACTERS:
            del self._held[next(iter(self._held))]
        return label

    def _hold_image(self, name: str, media_type: str, data: bytes) -> str:
        shown = re.sub(r"[\[\]]|[^\S ]", "_", remove_hidden(name))
        if len(shown) > _LONGEST_NAME:
            shown = f"{shown[: _LONGEST_NAME // 2 - 1]}…{shown[-_LONGEST_NAME // 2 :]}"
        return self._hold("image", f" {shown}", Image(media_type, base64.b64encode(data).decode()))

    # Dropped files, which terminals paste as paths

    def _dropped(self, text: str) -> str:
        """What to insert if the text consists of file paths and one of them is an image; otherwise empty."""
        if not text.strip() or len(text) > _LONGEST_PATHS:
            return ""
        paths = _paths_in(text)
        if not paths or not any(path.lower().endswith(_IMAGE_ENDINGS) or _is_image(path) for path in paths):
            return ""
        taken = [self._image(path) for path in paths]
        if not any(taken):
            return ""
        return " ".join(words or shlex.quote(path) for words, path in zip(taken, paths, strict=True))

    def _image(self, path: str) -> str:
        """The image's placeholder; empty, after a notice, if it can't be used."""
        name = os.path.basename(path)
        try:
            data = _read(path, MAX_IMAGE_BYTES + 1)
        except OSError as error:
            self._tell(f"{name} can't be read: {error.strerror or error}")
            return ""
        media_type = image_type(data)
        if len(data) > MAX_IMAGE_BYTES and media_type:
            self._tell(f"{name} is too large: pictures may have {format_size(MAX_IMAGE_BYTES)}")
            return ""
        if not media_type:
            if name.lower().endswith(_IMAGE_ENDINGS):
                self._tell(f"{name} is no PNG, JPEG, GIF or WebP picture, whatever its name says")
            return ""
        return self._hold_image(name, media_type, data)


def sanitize_paste(text: str) -> str:
    """Normalizes line breaks and removes control sequences."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _BROKEN.sub("\ufffd", _CONTROL.sub("", TERMINAL_SEQUENCE.sub("", text)))


def _size(held: str | Image) -> int:
    return len(held.data) if isinstance(held, Image) else len(held)


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


def _read(path: str, most: int) -> bytes:
    """Does not block on a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no file")
        return file.read(most)
