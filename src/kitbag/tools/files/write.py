"""Write: creates a text file or replaces all of it. An existing file must have been read, and not have changed since.

Used by the agent loop. change_file does the work; file_text keeps the encoding and line ends of the existing file,
which the model has not seen.
"""

from typing import Annotated, NamedTuple

from msgspec import Meta, structs

from kitbag.text.human_format import format_count
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description, text_output
from kitbag.tools.files.change_file import FileChange, FileTarget, apply_change, find_target, unseen_problem
from kitbag.tools.files.diff import diff
from kitbag.tools.files.file_text import ENCODING_NAMES, FileText, decode_file, find_unwritable
from kitbag.tools.files.read import format_size
from kitbag.tools.seen_files import MAX_BYTES


class WriteArguments(Arguments, frozen=True):
    file_path: Annotated[str, Meta(min_length=1, max_length=4_096)]
    content: str


async def _write(arguments: WriteArguments, context: ToolContext) -> ToolOutput:
    return await apply_change(context, lambda: _prepare(arguments.file_path, arguments.content, context))


def _prepare(file_path: str, content: str, context: ToolContext) -> FileChange | ToolOutput:
    target = find_target(context, "Write", file_path)
    if problem := check_text("content", content):
        return problem
    written = encode_content(target.before, content)
    if written.data == target.before:
        return text_output(f"{target.shown_path} already has exactly this content.", f"{target.shown_path} unchanged")
    return unseen_problem(context, target, must_be_seen=True) or prepare_whole_file(target, written)


def check_text(argument: str, text: str) -> ToolOutput | None:
    """An error for text that a file can't contain."""
    if len(text) > MAX_BYTES:
        return error_output(
            f"{argument} is too long: {len(text):,} characters, maximum {MAX_BYTES:,}",
            "Write it in parts, or generate it with a command.",
        )
    if found := find_unwritable(text):
        return error_output(
            f"{argument} contains {found[0]} on line {found[1]:,}, which is not valid in a text file", "Remove it."
        )
    return None


class EncodedContent(NamedTuple):
    data: bytes
    text: str
    """With the line ends that are written."""
    encoding_note: str = ""
    """What was kept of the existing file's encoding, or could not be."""


def encode_content(before: bytes | None, content: str) -> EncodedContent:
    """Encode as the existing file is: its encoding, byte order mark and line ends, which the model does not see."""
    old = decode_file(before) if before else FileText("")
    if old is None:  # not text, so nothing to keep
        return EncodedContent(content.encode(), content, "now UTF-8")
    notes: list[str] = []
    # The kernel does not find the interpreter of a script whose first line ends in a carriage return.
    if old.line_ending == "\r\n" and "\r" not in content and not content.startswith("#!"):
        content = content.replace("\n", "\r\n")
        notes.append("\\r\\n line endings preserved")
    try:
        data = old.encode(content)
    except UnicodeEncodeError:
        return EncodedContent(
            content.encode(), content, "; ".join((*notes, f"converted from {ENCODING_NAMES[old.encoding]} to UTF-8"))
        )
    if old.bom or (old.encoding != "utf-8" and not content.isascii()):
        notes.append(f"{ENCODING_NAMES[old.encoding]}{' with byte order mark' if old.bom else ''} preserved")
    return EncodedContent(data, content, "; ".join(notes))


def prepare_whole_file(target: FileTarget, written: EncodedContent) -> FileChange | ToolOutput:
    if len(written.data) > MAX_BYTES:
        return error_output(
            f"the file would be too large: {format_size(len(written.data))}, maximum {format_size(MAX_BYTES)}"
        )
    before = None
    if target.before is not None:
        old = decode_file(target.before)
        before = old.text if old is not None else ""
    changes = diff(before, written.text, target.shown_path)
    lines = written.text.count("\n") + (not written.text.endswith("\n") and written.text != "")
    size = f"{format_count(lines, 'line')}, {format_size(len(written.data))}"
    note = f" ({written.encoding_note})" if written.encoding_note else ""
    if before is None:
        text, summary = f"Created {target.shown_path}: {size}.", f"{target.shown_path} +{changes.added} (new)"
    else:
        text = (
            f"Wrote {target.shown_path}: {size}{note}, {format_count(changes.added, 'line')} added,"
            f" {changes.removed:,} removed."
        )
        summary = f"{target.shown_path} +{changes.added} -{changes.removed}"
    return FileChange(
        target, written.data, structs.replace(text_output(text, summary, changes.truncation), details=changes.text)
    )


WRITE = Tool(name="Write", description=load_description("Write"), arguments=WriteArguments, run=_write)
