"""Edit: replaces one exact text in a file by another. If the text is not found, the error shows the closest match.

Used by the agent loop. change_file does the work, replace finds the text. Quoting a text exactly proves knowing it, so
the file need not have been read; but if it was read and has changed since, it must be read again.
"""

import re
from typing import Annotated, Final

from msgspec import Meta, structs

from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.human_format import format_count
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description, text_output
from kitbag.tools.files.change_file import FileChange, FileTarget, apply_change, find_target, unseen_problem
from kitbag.tools.files.diff import UnifiedDiff, diff
from kitbag.tools.files.file_text import ENCODING_NAMES, FileText, decode_file
from kitbag.tools.files.paths import can_read, missing_path_output
from kitbag.tools.files.read import format_size
from kitbag.tools.files.replace import MAX_POSITIONS, AmbiguousMatch, Replacement, ReplacementTooLong, replace_text
from kitbag.tools.files.write import EncodedContent, check_text, prepare_whole_file
from kitbag.tools.seen_files import MAX_BYTES

CONTEXT_LINES: Final = 2
"""Lines shown before and after a change."""
MAX_ROWS: Final = 16
MAX_ROW_CHARS: Final = 200
_LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)
_MIN_DISTINCTIVE_CHARS = 8
"""A shorter new text may occur in the file by coincidence."""
_QUOTE_EXACTLY = "Read the file and quote its text exactly, without line numbers."


class EditArguments(Arguments, frozen=True):
    file_path: Annotated[str, Meta(min_length=1, max_length=4_096)]
    old_string: str
    new_string: str
    replace_all: bool = False


async def _edit(arguments: EditArguments, context: ToolContext) -> ToolOutput:
    return await apply_change(context, lambda: _prepare(arguments, context))


def _prepare(arguments: EditArguments, context: ToolContext) -> FileChange | ToolOutput:
    target = find_target(context, "Edit", arguments.file_path)
    old, new = arguments.old_string, arguments.new_string
    problem = check_text("old_string", old) or check_text("new_string", new)
    if problem:
        return problem
    if old == new and old:
        return error_output("old_string and new_string are identical")
    if not target.before:
        return _prepare_new_file(target, context, old, new)
    if not old:
        return error_output(
            f"old_string is empty, but {target.shown_path} already exists",
            "Provide the text to replace, or use Write to replace the whole file.",
        )
    if problem := unseen_problem(context, target, must_be_seen=False):
        return problem
    file = decode_file(target.before)
    if file is None:
        return error_output(
            f"{target.shown_path} starts with a UTF-16 byte order mark but is not valid UTF-16",
            "Change it with a command.",
        )
    return _prepare_replacement(target, context, file, arguments)


def _prepare_new_file(target: FileTarget, context: ToolContext, old: str, new: str) -> FileChange | ToolOutput:
    """For a file that does not exist or is empty."""
    if not old:
        return prepare_whole_file(target, EncodedContent(new.encode(), new))
    if target.before is None:
        return missing_path_output(context, target.authorized.facts)
    return error_output(
        f"{target.shown_path} is empty, so it does not contain old_string", "Use Write, or an empty old_string."
    )


def _prepare_replacement(
    target: FileTarget, context: ToolContext, file: FileText, arguments: EditArguments
) -> FileChange | ToolOutput:
    old, new = arguments.old_string, arguments.new_string
    replaced = replace_text(file.text, old, new, replace_all=arguments.replace_all, max_length=MAX_BYTES)
    if replaced is None:
        return _not_found_output(target, context, file, old, new)
    if isinstance(replaced, AmbiguousMatch):
        lines = ", ".join(f"{line:,}" for line in replaced.lines) + (
            ", ..." if replaced.occurrences > MAX_POSITIONS else ""
        )
        return error_output(
            f"old_string occurs {replaced.occurrences:,} times in {target.shown_path}, on lines {lines}",
            "Add surrounding lines to old_string to make it unique, or set replace_all to change all of them.",
        )
    if isinstance(replaced, ReplacementTooLong):
        return error_output(
            f"{target.shown_path} would be too large: {replaced.length:,} characters, maximum {MAX_BYTES:,}"
        )
    try:
        after = file.encode(replaced.text)
    except UnicodeEncodeError as error:
        character, encoding = f"U+{ord(error.object[error.start]):04X}", ENCODING_NAMES[file.encoding]
        return error_output(
            f"new_string contains {character}, which cannot be encoded in {target.shown_path}: the file is {encoding}",
            "Use another character, or convert the file to UTF-8 first.",
        )
    if len(after) > MAX_BYTES:
        return error_output(
            f"{target.shown_path} would be too large: {format_size(len(after))}, maximum {format_size(MAX_BYTES)}"
        )
    if after == target.before:
        return error_output(
            "old_string and new_string differ only in line endings, and the file's line endings are preserved"
        )
    return FileChange(target, after, _render_output(target, context, file, replaced))


def _render_output(target: FileTarget, context: ToolContext, file: FileText, replaced: Replacement) -> ToolOutput:
    changes = diff(file.text, replaced.text, target.shown_path)
    text = f"Edited {target.shown_path}"
    if replaced.occurrences > 1:
        text = f"Replaced {replaced.occurrences:,} occurrences in {target.shown_path}"
    readable = can_read(context, target.authorized.facts.resolved, target.authorized)
    text += f". It now reads:\n{_render_rows(replaced, changes)}" if readable else "."
    summary = f"{target.shown_path} +{changes.added} -{changes.removed}"
    return structs.replace(text_output(text, summary, changes.truncation), details=changes.text)


def _render_rows(replaced: Replacement, changes: UnifiedDiff) -> str:
    """The changed lines as Read shows them: of one change with context, of several the first line of each."""
    if replaced.occurrences == 1:
        rows = _numbered_lines(replaced.text, *replaced.spans[0], CONTEXT_LINES, changes)
    else:
        starts = (start for start, _ in replaced.spans)
        rows = list(dict.fromkeys(_numbered_lines(replaced.text, start, start, 0, changes)[0] for start in starts))
    if len(rows) > MAX_ROWS:
        half = MAX_ROWS // 2
        rows = [*rows[:half], f"[{len(rows) - 2 * half:,} more lines]", *rows[-half:]]
    if replaced.occurrences > len(replaced.spans):
        rows.append(f"[and {format_count(replaced.occurrences - len(replaced.spans), 'more occurrence')}]")
    return "\n".join(rows)


def _numbered_lines(text: str, start: int, end: int, around: int, changes: UnifiedDiff) -> list[str]:
    """The lines between two positions, with `around` context lines."""
    if start < end and text[end - 1] == "\n":  # the next line is not changed
        end -= 1
    start = text.rfind("\n", 0, start) + 1
    end = text.find("\n", end)
    for _ in range(around):
        start = text.rfind("\n", 0, max(0, start - 1)) + 1
        end = text.find("\n", end + 1) if end >= 0 else end
    lines = text[start : end if end >= 0 else len(text)].split("\n")
    if not lines[-1] and end < 0 and len(lines) > 1:  # the last line end does not start a new line
        lines.pop()
    # Counted from a nearby position, because counting from the start of a large file is slow.
    first = (
        changes.lines_before
        + text.count("\n", changes.window_start, start)
        - text.count("\n", start, changes.window_start)
        + 1
    )
    return [f"{number:6d}\t{_truncate_line(line.removesuffix(chr(13)))}" for number, line in enumerate(lines, first)]


def _truncate_line(line: str) -> str:
    missing = len(line) - MAX_ROW_CHARS
    return reveal_hidden(line[:MAX_ROW_CHARS]) + (f" [{missing:,} more characters in this line]" if missing > 0 else "")


def _not_found_output(target: FileTarget, context: ToolContext, file: FileText, old: str, new: str) -> ToolOutput:
    problem = f"old_string was not found in {target.shown_path}"
    if not can_read(context, target.authorized.facts.resolved, target.authorized):
        return error_output(problem, _QUOTE_EXACTLY)
    if reason := _explain_misquote(file.text.replace("\r\n", "\n"), old.replace("\r\n", "\n"), new):
        return error_output(problem, reason)
    from kitbag.tools.files.closest_match import find_closest_match

    near = find_closest_match(file.text, old)
    if near is None:
        return error_output(f"{problem}, and no similar text was found", _QUOTE_EXACTLY)
    lines = f"line {near.first:,}" if near.first == near.last else f"lines {near.first:,}-{near.last:,}"
    differs = f": {near.difference}" if near.difference else ""
    marks = " (· is a space, → a tab)" if near.whitespace_only else ""
    rows = "\n".join(near.rows)
    return error_output(
        problem, f"Closest match at {lines}{differs}. - is what you sent, + is what the file contains{marks}:\n{rows}"
    )


def _explain_misquote(text: str, old: str, new: str) -> str:
    """What is wrong with a quotation that would be found after one of the usual corrections."""
    from html import unescape

    lines = [line for line in old.split("\n") if line.strip()]
    if all(_LINE_NUMBER.match(line) for line in lines) and (plain := _LINE_NUMBER.sub("", old)) in text:
        return f"It matches at {_line_of(text, plain)} without the line numbers that Read adds; remove them."
    unescaped = (
        old.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")
    )
    if unescaped != old and unescaped in text:
        return (
            f"It matches at {_line_of(text, unescaped)} without the backslashes; send line breaks and quotes unescaped."
        )
    if (plain := unescape(old)) != old and plain in text:
        return f"It matches at {_line_of(text, plain)} with &, < and > instead of &amp;, &lt; and &gt;."
    if len(new.strip()) >= _MIN_DISTINCTIVE_CHARS and new in text:
        return f"new_string is already at {_line_of(text, new)}; this edit may already be done. Read the file."
    return ""


def _line_of(text: str, part: str) -> str:
    return f"line {text.count(chr(10), 0, text.find(part)) + 1:,}"


EDIT = Tool(name="Edit", description=load_description("Edit"), arguments=EditArguments, run=_edit)
