"""Interprets a response body: its media type, whether it is text, and its encoding. Used by `fetch`.

Encodings come from our own table, because Python's codecs include some that are not text encodings and some that
decode in quadratic time.
"""

import codecs
import re

_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml)|application/(?:x-)?(?:javascript|ndjson|toml|sh|yaml)|image/svg\+xml"
)
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^\s";,]{1,40})')
_META = re.compile(rb"<meta[^>]{0,200}charset\s{0,5}=\s{0,5}[\"']?([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_DECLARATION = re.compile(rb"<\?xml[^>]{0,100}?\sencoding\s{0,5}=\s{0,5}[\"']([A-Za-z0-9_:.-]{1,40})")
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_SNIFFED = 1024
# As in browsers: Latin-1 and ASCII are windows-1252, GB2312 is GBK.
_NAMES = {
    "utf-8": "utf8 unicode11utf8",
    "utf-16-le": "utf16 utf16le ucs2",
    "utf-16-be": "utf16be",
    "cp1252": "ascii usascii latin1 l1 iso88591 iso885911987 windows1252 cp1252 ansix341968",
    "iso8859-2": "iso88592 latin2",
    "iso8859-5": "iso88595 cyrillic",
    "iso8859-7": "iso88597 greek",
    "iso8859-8": "iso88598 hebrew",
    "iso8859-15": "iso885915 latin9",
    "cp1250": "windows1250 cp1250",
    "cp1251": "windows1251 cp1251",
    "cp1253": "windows1253 cp1253",
    "cp1254": "windows1254 cp1254 iso88599 latin5",
    "cp1255": "windows1255 cp1255",
    "cp1256": "windows1256 cp1256 arabic iso88596",
    "cp1257": "windows1257 cp1257",
    "cp1258": "windows1258 cp1258",
    "cp874": "windows874 tis620",
    "cp866": "cp866 ibm866",
    "koi8-r": "koi8r koi8",
    "koi8-u": "koi8u",
    "mac-roman": "macintosh macroman",
    "cp932": "shiftjis sjis xsjis windows31j mskanji",
    "euc-jp": "eucjp xeucjp",
    "iso2022-jp": "iso2022jp",
    "cp949": "euckr ksc5601 ksc56011987 windows949 korean",
    "gb18030": "gb18030 gbk gb2312 xgbk chinese",
    "big5hkscs": "big5 big5hkscs xxbig5 cnbig5",
}
_ENCODINGS = {name: encoding for encoding, names in _NAMES.items() for name in names.split()}


def parse_media_type(header: str) -> str:
    """`text/html`, in lower case and without parameters; empty if the header is invalid."""
    media_type = header.partition(";")[0].strip().lower()
    return media_type if re.fullmatch(r"[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}", media_type) else ""


def detect_encoding(header: str, body: bytes) -> str:
    """The encoding of the body; empty if it is not text."""
    kind = parse_media_type(header)
    if not _TEXT_TYPES.fullmatch(kind) and (kind or b"\0" in body[:_SNIFFED]):
        return ""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return encoding
    named = _CHARSET.search(header.lower())
    if named and (known := _find_encoding(named[1])):
        return known
    in_page = _DECLARATION.match(body) if "xml" in kind else None
    if in_page is None and kind in ("text/html", "application/xhtml+xml"):
        in_page = _META.search(body, 0, _SNIFFED)
    if in_page and (known := _find_encoding(in_page[1].decode("ascii"))):
        # A page that can be searched as ASCII is not UTF-16, whatever it declares.
        return "utf-8" if known.startswith("utf-16") else known
    return "utf-8"


def _find_encoding(name: str) -> str:
    return _ENCODINGS.get(re.sub("[^a-z0-9]", "", name.lower()), "")


def decode_body(body: bytes, encoding: str, complete: bool) -> str:
    """Invalid bytes become U+FFFD; a character split by truncation is dropped."""
    return codecs.getincrementaldecoder(encoding)("replace").decode(body, final=complete)
