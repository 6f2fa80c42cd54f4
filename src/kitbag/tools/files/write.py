"""Write: a text file, new or as a whole. What exists must have been read before, and not have changed since.

Used by the loop. changing does the work; file_text keeps the encoding and the line ends that a file had, because a
model that read it has not seen them.
"""

from typing import Annotated, NamedTuple

from msgspec import Meta

from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description, failure
from kitbag.tools.files.change_file import Change, Target, change, find_target, unseen_problem
from kitbag.tools.files.diff import diff
from kitbag.tools.files.file_text import NAMES, FileText, file_text, unwritable
from kitbag.tools.files.paths import number_of
from kitbag.tools.files.read import amount
from kitbag.tools.seen_files import MOST_BYTES


class WriteArguments(Arguments, frozen=True):
    file_path: Annotated[str, Meta(min_length=1, max_length=4_096, description="Absolute, or relative.")]
    content: str


async def _write(arguments: WriteArguments, context: Context) -> Outcome:
    return await change(context, lambda: _prepared(arguments.file_path, arguments.content, context))


def _prepared(file_path: str, content: str, context: Context) -> Change | Outcome:
    target = find_target(context, "Write", file_path)
    if problem := text_problem("content", content):
        return problem
    written = as_written(target.before, content)
    if written.data == target.before:
        return answer(f"{target.path} has exactly this content already.", f"{target.path} unchanged")
    return unseen_problem(context, target, must_be_seen=True) or whole_file(target, written)


def text_problem(argument: str, text: str) -> Outcome | None:
    """What can't be the text of a file."""
    if len(text) > MOST_BYTES:
        return failure(
            f"{argument} has {len(text):,} characters; at most {MOST_BYTES:,} are written at a time",
            "Write it in parts, or let a command make it.",
        )
    if found := unwritable(text):
        return failure(f"{argument} holds {found[0]} in line {found[1]:,}, which no text file can", "Leave it out.")
    return None


class Written(NamedTuple):
    data: bytes
    text: str
    """With the line ends that are written."""
    kept: str = ""
    """What was taken over from the file that was there, or could not be, in words."""


def as_written(before: bytes | None, content: str) -> Written:
    """As the file was written before: the encoding, its mark, and line ends that a model does not see."""
    old = file_text(before) if before else FileText("")
    if old is None:  # not a text that could be kept
        return Written(content.encode(), content, "it is UTF-8 now")
    kept: list[str] = []
    # A script whose first line ends in a return is not found to be one.
    if old.breaks_lines_with == "\r\n" and "\r" not in content and not content.startswith("#!"):
        content = content.replace("\n", "\r\n")
        kept.append("its lines end in \\r\\n, as before")
    try:
        data = old.encoded(content)
    except UnicodeEncodeError:
        return Written(content.encode(), content, "; ".join((*kept, f"it was {NAMES[old.encoding]} and is UTF-8 now")))
    if old.mark or (old.encoding != "utf-8" and not content.isascii()):
        kept.append(f"it is {NAMES[old.encoding]}{' with a byte order mark' if old.mark else ''}, as before")
    return Written(data, content, "; ".join(kept))


def whole_file(target: Target, written: Written) -> Change | Outcome:
    if len(written.data) > MOST_BYTES:
        return failure(f"it would have {amount(len(written.data))}; files of up to {amount(MOST_BYTES)} are written")
    before = None
    if target.before is not None:
        old = file_text(target.before)
        before = old.text if old is not None else ""
    found = diff(before, written.text, target.path)
    lines = written.text.count("\n") + (not written.text.endswith("\n") and written.text != "")
    size = f"{number_of(lines, 'line')}, {amount(len(written.data))}"
    kept = f" ({written.kept})" if written.kept else ""
    if before is None:
        text, summary = f"Created {target.path}: {size}.", f"{target.path} +{found.added} (new)"
    else:
        text = f"Wrote {target.path}: {size}{kept}, {number_of(found.added, 'line')} added, {found.removed:,} removed."
        summary = f"{target.path} +{found.added} -{found.removed}"
    return Change(target, written.data, answer(text, summary, found.cut)._replace(details=found.text))


WRITE = Tool("Write", description("Write"), WriteArguments, _write)
