"""Whether shell code only prints or searches for a text: an argument of echo or grep, a help text.

Used by severity. In doubt, it is run.
"""

import re
from typing import Final

from kitbag.audit.regions import AuditedText

_LOOKBACK: Final = 3000
_PRINTER = re.compile(
    r"(?:^|[;&|({]|\bthen|\bdo|\belse|\bif|!)\s*(?:echo|printf|e?grep|rg|ack|\w*(?:log|warn|err|info|fail|usage|finding|report|msg|say|alert|print|check|grep)\w*)"
    r"\s[^;&|\"']*(?:\"[^\"]*\"\s*|'[^']*'\s*)*[^;&|\"']*$",
    re.IGNORECASE,
)
_HEREDOC = re.compile(r"^(?P<command>[^\n]*)<<-?\s*[\"']?(?P<end>\w+)[\"']?(?P<rest>[^\n]*)$", re.MULTILINE)


def is_printed(source: AuditedText, offset: int) -> bool:
    begin, row = source.line_text_at(offset)
    column = offset - begin
    quote = _open_quote(row[:column])
    if quote >= 0 and _PRINTER.search(row[max(0, quote - 400) : quote]):
        # `echo "..." | sh` does more than print.
        closing = row.find(row[quote], column)
        return closing >= 0 and "|" not in row[closing:] and not row[closing:].lstrip("\"'").lstrip().startswith(">")
    return _in_help_text(source, offset, begin)


def _open_quote(before: str) -> int:
    """The offset of the quote that is open at the end; -1 if none is."""
    opened, at = -1, 0
    while at < len(before):
        char = before[at]
        if char == "\\" and (opened < 0 or before[opened] == '"'):
            at += 1
        elif char in "\"'":
            if opened < 0:
                opened = at
            elif before[opened] == char:
                opened = -1
        at += 1
    return opened


def _in_help_text(source: AuditedText, offset: int, begin: int) -> bool:
    """Inside a `cat <<EOF` that only prints."""
    before = source.text[max(0, begin - _LOOKBACK) : begin]
    opened = list(_HEREDOC.finditer(before))
    last = opened[-1] if opened else None
    if last is None or re.search(rf"^\s*{re.escape(last['end'])}\s*$", before[last.end() :], re.MULTILINE):
        return False
    line = last["command"] + last["rest"]
    return (
        last["command"].strip() == "cat"
        and "|" not in line
        and not re.search(r">\s*(?!&)", line)
        and "$(" not in source.text[begin:offset]
    )
