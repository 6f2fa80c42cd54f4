"""The text of a file with its encoding and line ends, so that unchanged parts are written back byte for byte.

Used by Write and Edit. Read shows the same text.
"""

import codecs
import re
from typing import Final, NamedTuple

from kitbag.tools.files.lines import is_utf_16

_HIGH_BYTES: Final = bytes(range(0x80, 0x100))
_ESCAPED: Final = "[\udc80-\udcff]"
ENCODING_NAMES: Final = {"utf-8": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "cp1252": "Windows-1252"}


class FileText(NamedTuple):
    text: str
    """Bytes that are invalid in the encoding become lone surrogates, which no model can send."""
    encoding: str = "utf-8"
    bom: bytes = b""
    """The byte order mark."""

    def encode(self, text: str) -> bytes:
        """Encode another text in the same way. Raises UnicodeEncodeError."""
        if self.encoding.startswith("utf-16"):
            return self.bom + text.encode(self.encoding)
        return self.bom + text.encode(self.encoding, "surrogateescape")

    @property
    def line_ending(self) -> str:
        """`\\r\\n` if every line ends with it, else `\\n`."""
        with_return = self.text.count("\r\n")
        return "\r\n" if with_return and with_return == self.text.count("\n") else "\n"


def decode_file(data: bytes) -> FileText | None:
    """None if the data is not text in a known encoding."""
    if is_utf_16(data):
        encoding = "utf-16-le" if data.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
        try:
            return FileText(data[2:].decode(encoding), encoding, data[:2])
        except UnicodeDecodeError:
            return None
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    body = data[len(bom) :]
    try:
        return FileText(body.decode(), "utf-8", bom)
    except UnicodeDecodeError:
        text = body.decode("utf-8", "surrogateescape")
    broken = len(re.findall(_ESCAPED, text))
    valid = len(body) - len(body.translate(None, _HIGH_BYTES)) - broken
    if bom or valid > broken:  # damaged UTF-8
        return FileText(text, "utf-8", bom)
    return FileText(body.decode("cp1252", "surrogateescape"), "cp1252")


def find_unwritable(text: str) -> tuple[str, int] | None:
    """The first character that no text file can contain: its name and its line."""
    found = re.search("[\0\ud800-\udfff]", text)
    if found is None:
        return None
    name = "a NUL character" if found[0] == "\0" else f"an unpaired surrogate (U+{ord(found[0]):04X})"
    return name, text.count("\n", 0, found.start()) + 1
