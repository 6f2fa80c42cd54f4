"""Edit: one exact text in a file replaced by another. Where it is not found, the answer says where it comes near.

Used by the loop. changing does the work, replacing finds the text. To quote a text exactly is to know it, so a file
need not have been read before; but one that was read and has changed since has to be read again.
"""

import re
from typing import Annotated, Final

from msgspec import Meta

from kitbag.text.hidden_characters import reveal_hidden
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description, failure
from kitbag.tools.files.change_file import Change, Target, change, find_target, unseen_problem
from kitbag.tools.files.diff import Diff, diff
from kitbag.tools.files.file_text import NAMES, FileText, file_text
from kitbag.tools.files.paths import may_read, missing, number_of
from kitbag.tools.files.read import amount
from kitbag.tools.files.replace import MOST_PLACES, Replaced, Several, TooLong, replace
from kitbag.tools.files.write import Written, text_problem, whole_file
from kitbag.tools.seen_files import MOST_BYTES

AROUND: Final = 2
"""Lines before and after a change that are shown."""
MOST_ROWS: Final = 16
LONGEST_ROW: Final = 200
_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)
_TELLING = 8
"""A new text with fewer characters may be there by chance."""
_EXACTLY = "Quote it exactly as it stands there, without line numbers; Read shows it."


class EditArguments(Arguments, frozen=True):
    file_path: Annotated[str, Meta(min_length=1, max_length=4_096, description="Absolute, or relative.")]
    old_string: str
    new_string: str
    replace_all: bool = False


async def _edit(arguments: EditArguments, context: Context) -> Outcome:
    return await change(context, lambda: _prepared(arguments, context))


def _prepared(arguments: EditArguments, context: Context) -> Change | Outcome:
    target = find_target(context, "Edit", arguments.file_path)
    old, new = arguments.old_string, arguments.new_string
    problem = text_problem("old_string", old) or text_problem("new_string", new)
    if problem:
        return problem
    if old == new and old:
        return failure("old_string and new_string are the same, so there is nothing to change")
    if not target.before:
        return _made(target, context, old, new)
    if not old:
        return failure(
            f"old_string is empty, and {target.path} exists",
            "Name the text that is to be replaced, or use Write to replace the whole file.",
        )
    if problem := unseen_problem(context, target, must_be_seen=False):
        return problem
    found = file_text(target.before)
    if found is None:
        return failure(f"{target.path} is damaged: it begins like UTF-16 and is not", "Use a command to change it.")
    return _changed(target, context, found, arguments)


def _made(target: Target, context: Context, old: str, new: str) -> Change | Outcome:
    """Of a file that does not exist, or holds nothing."""
    if not old:
        return whole_file(target, Written(new.encode(), new))
    if target.before is None:
        return missing(context, target.place.facts)
    return failure(f"{target.path} is empty, so old_string is not in it", "Use Write, or an empty old_string.")


def _changed(target: Target, context: Context, found: FileText, arguments: EditArguments) -> Change | Outcome:
    old, new = arguments.old_string, arguments.new_string
    replaced = replace(found.text, old, new, every=arguments.replace_all, longest=MOST_BYTES)
    if replaced is None:
        return _not_found(target, context, found, old, new)
    if isinstance(replaced, Several):
        lines = ", ".join(f"{line:,}" for line in replaced.lines) + (", ..." if replaced.times > MOST_PLACES else "")
        return failure(
            f"old_string occurs {replaced.times:,} times in {target.path}, in lines {lines}",
            "Take more lines around the one that is meant into old_string, or set replace_all to change them all.",
        )
    if isinstance(replaced, TooLong):
        return failure(f"{target.path} would have {replaced.length:,} characters; at most {MOST_BYTES:,} are written")
    try:
        after = found.encoded(replaced.text)
    except UnicodeEncodeError as error:
        character = f"U+{ord(error.object[error.start]):04X}"
        return failure(
            f"new_string holds {character}, which {target.path} can't: it is {NAMES[found.encoding]}",
            "Use another character, or convert the file to UTF-8 first.",
        )
    if len(after) > MOST_BYTES:
        return failure(
            f"{target.path} would have {amount(len(after))}; files of up to {amount(MOST_BYTES)} are written"
        )
    if after == target.before:
        return failure("only line ends differ between old_string and new_string, and those of the file are kept")
    return Change(target, after, _told(target, context, found, replaced))


def _told(target: Target, context: Context, found: FileText, replaced: Replaced) -> Outcome:
    changes = diff(found.text, replaced.text, target.path)
    text = f"Edited {target.path}"
    if replaced.times > 1:
        text = f"Replaced {replaced.times:,} places in {target.path}"
    seen = may_read(context, target.place.facts.resolved, target.place)
    text += f". Now it reads:\n{_rows(replaced, changes)}" if seen else "."
    summary = f"{target.path} +{changes.added} -{changes.removed}"
    return answer(text, summary, changes.cut)._replace(details=changes.text)


def _rows(replaced: Replaced, changes: Diff) -> str:
    """The lines of the change as Read shows them: a single one with lines around it, of several the first line."""
    if replaced.times == 1:
        rows = _numbered(replaced.text, *replaced.places[0], AROUND, changes)
    else:
        starts = (start for start, _ in replaced.places)
        rows = list(dict.fromkeys(_numbered(replaced.text, start, start, 0, changes)[0] for start in starts))
    if len(rows) > MOST_ROWS:
        half = MOST_ROWS // 2
        rows = [*rows[:half], f"[{len(rows) - 2 * half:,} more lines]", *rows[-half:]]
    if replaced.times > len(replaced.places):
        rows.append(f"[and {number_of(replaced.times - len(replaced.places), 'more place')}]")
    return "\n".join(rows)


def _numbered(text: str, start: int, end: int, around: int, changes: Diff) -> list[str]:
    """The lines from one place to another, and so many around them."""
    if start < end and text[end - 1] == "\n":  # the line that follows is not changed
        end -= 1
    start = text.rfind("\n", 0, start) + 1
    end = text.find("\n", end)
    for _ in range(around):
        start = text.rfind("\n", 0, max(0, start - 1)) + 1
        end = text.find("\n", end + 1) if end >= 0 else end
    lines = text[start : end if end >= 0 else len(text)].split("\n")
    if not lines[-1] and end < 0 and len(lines) > 1:  # the end of the last line begins no other
        lines.pop()
    # Counted from a place near by, because counting from the beginning of a large file takes its time.
    first = changes.lines_before + text.count("\n", changes.start, start) - text.count("\n", start, changes.start) + 1
    return [f"{number:6d}\t{_cut(line.removesuffix(chr(13)))}" for number, line in enumerate(lines, first)]


def _cut(line: str) -> str:
    more = len(line) - LONGEST_ROW
    return reveal_hidden(line[:LONGEST_ROW]) + (f" [{more:,} more characters in this line]" if more > 0 else "")


def _not_found(target: Target, context: Context, found: FileText, old: str, new: str) -> Outcome:
    problem = f"old_string is not in {target.path}"
    if not may_read(context, target.place.facts.resolved, target.place):
        return failure(problem, _EXACTLY)
    if reason := _misquoted(found.text.replace("\r\n", "\n"), old.replace("\r\n", "\n"), new):
        return failure(problem, reason)
    from kitbag.tools.files.closest_match import nearest

    near = nearest(found.text, old)
    if near is None:
        return failure(f"{problem}, and nothing in it comes near", _EXACTLY)
    lines = f"line {near.first:,}" if near.first == near.last else f"lines {near.first:,}-{near.last:,}"
    differs = f": {near.remark}" if near.remark else ""
    marks = " (· is a blank, → a tab)" if near.marked else ""
    rows = "\n".join(near.rows)
    return failure(
        problem, f"It comes near at {lines}{differs}. After - what you sent, after + what is there{marks}:\n{rows}"
    )


def _misquoted(text: str, old: str, new: str) -> str:
    """What is wrong with a quotation that would be found if it were set right in one of the usual ways."""
    from html import unescape

    lines = [line for line in old.split("\n") if line.strip()]
    if all(_NUMBERED.match(line) for line in lines) and (plain := _NUMBERED.sub("", old)) in text:
        return f"It is at {_line_of(text, plain)} without the line numbers, which Read puts there: leave them out."
    unescaped = (
        old.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")
    )
    if unescaped != old and unescaped in text:
        return f"It is at {_line_of(text, unescaped)} without the backslashes: send line breaks and quotes as they are."
    if (plain := unescape(old)) != old and plain in text:
        return f"It is at {_line_of(text, plain)} with &, < and > instead of &amp;, &lt; and &gt;."
    if len(new.strip()) >= _TELLING and new in text:
        return (
            f"But new_string is, at {_line_of(text, new)}: perhaps this was changed before. Read shows what is there."
        )
    return ""


def _line_of(text: str, part: str) -> str:
    return f"line {text.count(chr(10), 0, text.find(part)) + 1:,}"


EDIT = Tool("Edit", description("Edit"), EditArguments, _edit)
