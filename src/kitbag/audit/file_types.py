"""File types by content (magic bytes) and by name, and whether the two agree: tables and lookup functions.

Used by file_content and file_checks.
"""

import re
import struct
from typing import Final, Literal

from kitbag.audit.expressions import load_words

TextKind = Literal["markdown", "script", "config", "other"]

_MAGIC: Final = (
    (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"),
    (b"\xfe\xed\xfa\xce", "Mach-O program"),
    (b"\xfe\xed\xfa\xcf", "Mach-O program"),
    (b"\xce\xfa\xed\xfe", "Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xca\xfe\xba\xbe", "Java or Mach-O program"),
    (b"dex\n", "Android program"),
    (b"\0asm", "WebAssembly program"),
    (b"!<arch>\n", "object archive"),
    (b"PK\3\4", "zip archive"),
    (b"PK\5\6", "zip archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ\0", "xz archive"),
    (b"\x28\xb5\x2f\xfd", "zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (b"Rar!\x1a\x07", "rar archive"),
    (b"\xed\xab\xee\xdb", "rpm package"),
    (b"xar!", "macOS package"),
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"GIF8", "image"),
    (b"BM", "image"),
    (b"\0\0\1\0", "image"),
    (b"II*\0", "image"),
    (b"MM\0*", "image"),
    (b"%PDF-", "PDF"),
    (b"wOFF", "font"),
    (b"wOF2", "font"),
    (b"OTTO", "font"),
    (b"\0\1\0\0", "font"),
    (b"true\0", "font"),
    (b"SQLite format 3\0", "database"),
    (b"\xd0\xcf\x11\xe0", "Office document (OLE)"),
    (b"ID3", "audio"),
    (b"OggS", "audio"),
    (b"fLaC", "audio"),
    (b"\x1aE\xdf\xa3", "video"),
)
PROGRAMS: Final = frozenset(load_words("file_types.programs"))
_IMAGE = "png jpg jpeg gif webp bmp ico tif tiff avif heic"
_EXPECTED: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(_IMAGE.split(), frozenset(("image",))),
    "pdf": frozenset(("PDF",)),
    **dict.fromkeys(("ttf", "otf", "woff", "woff2"), frozenset(("font",))),
    **dict.fromkeys(("zip", "docx", "xlsx", "pptx", "odt", "ods", "epub", "whl", "jar"), frozenset(("zip archive",))),
    **dict.fromkeys(("gz", "tgz"), frozenset(("gzip archive",))),
    **dict.fromkeys(("mp3", "ogg", "flac", "wav"), frozenset(("audio",))),
    **dict.fromkeys(("mp4", "mov", "webm", "mkv"), frozenset(("video",))),
}
DOCUMENTS: Final = frozenset(load_words("file_types.documents"))
PICKLES: Final = frozenset(load_words("file_types.pickles"))
"""Formats that run code when loaded."""

_TEXT_KINDS: Final[dict[str, TextKind]] = {
    **dict.fromkeys(load_words("file_types.markdown"), "markdown"),
    **dict.fromkeys(load_words("file_types.script"), "script"),
    **dict.fromkeys(load_words("file_types.config"), "config"),
}
_SHELL: Final = frozenset(load_words("file_types.shell"))
_SCRIPT_NAMES: Final = frozenset(load_words("file_types.script_names"))
_SHELL_NAME = re.compile(r"\b(?:ba|z|k|da|fi|a)?sh\b")
_DATA: Final = frozenset(load_words("file_types.data"))


def file_extension(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return ending.lower() if dot and stem else ""


def detect_magic(start: bytes) -> str:
    """The type by the first bytes; empty for text and unknown types."""
    if start[:4] == b"RIFF":
        return "image" if start[8:12] == b"WEBP" else "audio" if start[8:12] == b"WAVE" else "video"
    if start[4:8] == b"ftyp":
        return "image" if start[8:12] in (b"avif", b"heic", b"mif1") else "video"
    if start[257:262] == b"ustar":
        return "tar archive"
    if start[:2] == b"MZ" and not _is_windows_program(start):
        return ""
    if start[:2] == b"BM" and b"\0" not in start[:64]:
        return ""
    return next((name for signature, name in _MAGIC if start.startswith(signature)), "")


def _is_windows_program(start: bytes) -> bool:
    """The two letters are not enough: a text may start with them."""
    return b"\0" in start[:64]


def is_archive(magic: str) -> bool:
    return magic.endswith(("archive", "package")) and magic not in PROGRAMS


def expected_magic(name: str) -> frozenset[str]:
    return _EXPECTED.get(file_extension(name), frozenset())


def detect_text_kind(name: str, start: str) -> TextKind:
    if start.startswith("#!"):
        return "script"
    base = name.lower()
    if base in _SCRIPT_NAMES:
        return "script"
    return _TEXT_KINDS.get(file_extension(base), "other")


def is_data_file(name: str) -> bool:
    return file_extension(name) in _DATA


def detect_language(name: str, start: str) -> str:
    """`shell`, `python`, `javascript`, `powershell`, else the file extension or nothing."""
    ending = file_extension(name)
    first = start.split("\n", 1)[0] if start.startswith("#!") else ""
    if ending in _SHELL or name.lower() in _SCRIPT_NAMES or _SHELL_NAME.search(first):
        return "shell"
    if ending in ("py", "pyw") or "python" in first:
        return "python"
    if ending in ("js", "mjs", "cjs", "ts", "mts", "cts", "tsx", "jsx") or "node" in first:
        return "javascript"
    if ending in ("ps1", "psm1", "bat", "cmd") or "pwsh" in first:
        return "powershell"
    return ending


def is_encrypted(magic: str, data: bytes) -> bool:
    """Whether the archive needs a password, as far as its headers tell."""
    if magic == "zip archive":
        return _encrypted_zip(data)
    if magic == "7z archive":
        return b"\x06\xf1\x07\x01" in data[-4096:] or b"\x06\xf1\x07\x01" in data[:4096]
    if magic == "rar archive":
        # RAR 4: a flag in the main header; RAR 5: an encryption header right after the signature.
        five = data[:8] == b"Rar!\x1a\x07\x01\0"
        return data[12:13] == b"\x04" if five else bool(data[10:12] and struct.unpack("<H", data[10:12])[0] & 0x80)
    return False


def _encrypted_zip(data: bytes) -> bool:
    at, seen = 0, 0
    while (at := data.find(b"PK\3\4", at)) >= 0 and seen < 2000:
        seen += 1
        if len(data) >= at + 8 and struct.unpack_from("<H", data, at + 6)[0] & 0x1:
            return True
        at += 4
    return False
