"""What is pasted into the line: a long text and a picture stand there as a few words, and go along when it is sent.

Used by the terminal face: `take` for what is pasted or dropped, `from_clipboard` for a picture, `expand` for what is
sent. Pictures are told by their content, and read as the Read tool reads them.
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
"""A longer text stands in the line as a few words."""
MAX_TEXT_LENGTH: Final = 2_000_000
"""Characters of one text; the rest is cut."""
MAX_STORED_CHARACTERS: Final = 40_000_000
"""Of all texts and pictures (base64) that are held; the oldest go first."""
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
    """Of one chat."""

    def __init__(self, notify: Callable[[str], None] = lambda remark: None) -> None:
        """`tell` gets why something could not be taken as it is, in words for the person."""
        self._tell = notify
        self._held: dict[str, str | Image] = {}
        """By the words that stand for it in the line."""
        self._number = 0

    def take(self, text: str) -> str:
        """What to put into the line for it."""
        text = sanitize_paste(text)
        dropped = self._dropped(text)
        if dropped:
            return dropped
        if len(text) > MAX_TEXT_LENGTH:
            self._tell(f"the pasted text was cut after {MAX_TEXT_LENGTH:,} of {len(text):,} characters")
            text = text[:MAX_TEXT_LENGTH]
        count = text.count("\n") + (not text.endswith("\n"))
        # Words that look like ours are held too, so that nothing else is ever put in their place.
        if count <= MAX_INLINE_LINES and len(text) <= MAX_INLINE_CHARACTERS and not _LABEL.search(text):
            return text
        size = number_of(count, "line") if count > 1 else number_of(len(text), "character")
        return self._hold("pasted text", f", {size}", text)

    def from_clipboard(self, environment: Mapping[str, str] | None = None) -> str | None:
        """The words for the picture in the clipboard; None where there is none, and why was told. Blocks for a few
        seconds at most: call it in a thread."""
        clip = read_clipboard(environment)
        if clip.problem:
            self._tell(clip.problem)
            return None
        return self._hold_image("clipboard", clip.media_type, clip.data)

    def expand(self, text: str) -> ExpandedInput:
        """Texts take the place of their words; pictures go along, and their words stay. What is no longer in the line
        does not go along; what only looks like our words stays as it is."""
        images: dict[str, Image] = {}

        def meant(match: re.Match[str]) -> str:
            label = match[0]
            held = self._held.get(label)
            if isinstance(held, Image):
                images[label] = held
            elif held is not None:
                return held
            else:  # typed, or of an earlier chat, or so long ago that it was dropped
                self._tell(
                    f"nothing is held behind {label}, so it is sent as these words; paste it again if it was meant"
                )
            return label

        return ExpandedInput(_LABEL.sub(meant, text), tuple(images.values()))

    # What is held

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

    # Files that are dropped: their paths are pasted

    def _dropped(self, text: str) -> str:
        """What to put into the line for files, when the text is their paths and one is a picture; else empty."""
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
        """The words for a picture; empty where it is none that can be taken, and why was told."""
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
    """With line feeds alone, and without what a terminal would obey."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _BROKEN.sub("\ufffd", _CONTROL.sub("", TERMINAL_SEQUENCE.sub("", text)))


def _size(held: str | Image) -> int:
    return len(held.data) if isinstance(held, Image) else len(held)


def _paths_in(text: str) -> list[str]:
    """The files that the text names and nothing else: one path as it is, or several as shells and file managers write
    them. Empty where it is anything else."""
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
    """Absolute; empty where the word is no such path. Without quotes, and with the blanks that were escaped."""
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
    """Never waits: a pipe in its place must not hold us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no file")
        return file.read(most)
