"""Splits a text into frontmatter (`---`, YAML, `---`) and body, however malformed its fences are.

Used by frontmatter and by whatever shows or checks a whole file; uses frontmatter_fields. Whatever is assumed is
reported as a problem.
"""

import re
from typing import NamedTuple

from kitbag.text.frontmatter_fields import KEY_LINE, SQUEEZED_KEY
from kitbag.text.safe_yaml import YamlError, parse_yaml
from kitbag.text.source_files import FRONTMATTER_LIMIT, FileProblem

_CLOSING_LOOKALIKE = (
    r"\.{3}|\*{3,}|_{3,}|={3,}|\+{3,}|--|[-*_](?: [-*_]){2,}| {1,3}-{3,}|[-\u2013\u2014\u2212]*[\u2013\u2014\u2212]-*"
)
_FIELD_NAME = r"[\w$][\w.$-]*"
_BLOCK_START = re.compile(r":\s*[|>][-+0-9]*\s*$")
_HEADING = re.compile(r"#{1,6} +\S")
_PREAMBLE = (
    r"(?:[ \t]*\n|#[^\n]*\n|//[^\n]*\n|%[A-Z]+ [^\n]*\n|<!--(?:(?!-->)[\s\S]){0,4000}-->[ \t]*\n"
    r"|[ ]{0,3}(?:`{3,}|~{3,})[\w+-]*[ \t]*\n){1,20}"
    r"(?=[ ]{0,3}---[ \t]*\n(?:[^\n]*\n){0,10}?(?:name|description):[^\n]*\n(?:[^\n]*\n){0,200}?---"
    r"|(?:name|description):)"
)
"""What may precede frontmatter: comments, YAML directives, and the code fence that editors put around a whole file."""
_PREAMBLE_STARTS = ("#", "/", "%", "<", "`", "~")
_INVISIBLE = "\ufeff\u200b\u2060"
_CODE_FENCE = r"(?m)^ {0,3}(`{3,}|~{3,})"
_LISTED = r"[\w./:@*-]+(?:\([^()]*\))?"
_SHORT_VALUE = re.compile(rf"name:.*[^,\s]\s*|(?!desc|when|prompt|system)\S+:\s+{_LISTED}(?:\s*,\s*{_LISTED})*\s*")
"""A field whose value is a name or a list of names: no text goes on after it without indentation."""
_JOINED_OPENING = re.compile(r"-{3,}[ \t]*((?:name|description):\s.*)")
_ODD_OPENING = r"\+{3,}|-{3,}[ \t]*(?:#.*|ya?ml)|[-\u2013\u2014\u2212]*[\u2013\u2014\u2212][-\u2013\u2014\u2212]*"


class SplitDocument(NamedTuple):
    """A text split at the `---` fences."""

    frontmatter: str | None
    frontmatter_line: int
    body: str
    body_line: int
    problems: list[FileProblem]


def split_frontmatter(text: str, truncated: bool = False) -> SplitDocument:
    """Splits at `---` on the first line and the next line of three or more dashes, or what was meant as one.

    Whatever is assumed is reported; no text is in neither part except the fences and what precedes the first.
    """
    problems: list[FileProblem] = []
    lines, skipped = _find_opening(text, problems)
    if not lines:
        return SplitDocument(None, 0, text, 1, [])
    end, body = _find_end(lines, truncated, skipped, problems)
    frontmatter = "\n".join(lines[1:end])
    if body is None:
        return SplitDocument(frontmatter, skipped + 2, "\n".join(lines[end + 1 :]), skipped + end + 2, problems)
    return SplitDocument(frontmatter, skipped + 2, "\n".join(lines[end:])[body:], skipped + end + 1, problems)


def _find_opening(text: str, problems: list[FileProblem]) -> tuple[list[str], int]:
    """The lines from the opening fence on, and how many precede it; no lines without frontmatter.

    A missing fence is added where the text starts with the fields of an item.
    """
    preamble = re.match(_PREAMBLE, text) if text.lstrip()[:1] in _PREAMBLE_STARTS else None
    rest = text[preamble.end() :] if preamble else text.lstrip("\n \t" + _INVISIBLE)
    before = text[: len(text) - len(rest)]
    lines = rest.split("\n")
    skipped = before.count("\n")
    indent = before.rpartition("\n")[2].strip(_INVISIBLE) if not preamble else ""
    if indent:
        lines = [lines[0], *(line.removeprefix(indent) for line in lines[1:])]
    first = lines[0].strip()
    if first.strip("-") or len(first) < 3:
        joined = _JOINED_OPENING.fullmatch(first)
        if joined:
            lines[0] = first = joined[1]
        is_field = re.match(r"[a-z][\w-]*:(?:\s|$)", first)
        fields = lines[: _find_unclosed_end(["", *lines])] if is_field else lines[1 : _find_odd_end(lines)]
        is_closed = len(fields) > 1 and _is_fence(fields[-1]) and any(line[:12] == "description:" for line in fields)
        if is_field and (_count_names(fields) == 2 or is_closed):
            problem, fix = "the opening `---` is missing; the fields are read anyway", "add a line `---` before it"
            if joined:
                problem, fix = "a field follows the opening `---` on its line", "put `---` on a line of its own"
            problems.append(FileProblem("warning", "head-unopened", skipped + 1, problem, fix))
            lines.insert(0, "---")
            skipped -= 1
        elif (
            not is_field and re.fullmatch(_ODD_OPENING, first) and _count_names(fields) >= (1 if first[0] == "+" else 2)
        ):
            problem, fix = f"`{first[:20]}` is read as the opening `---`", "put `---` on a line of its own"
            problems.append(FileProblem("warning", "head-unopened", skipped + 1, problem, fix))
            if first[0] == "+":
                lines[len(fields) + 1 :] = ["---", *lines[len(fields) + 2 :]]
        else:
            return [], 0
    elif before and not re.search(_CODE_FENCE, before):
        problem = "the frontmatter does not start on line 1"
        problems.append(FileProblem("info", "head-not-first", 1, problem, "move `---` to line 1"))
    for mark in re.findall(_CODE_FENCE, before):
        problems.append(FileProblem("warning", "head-wrapped", 1, f"the code fence {mark} is ignored", "remove it"))
        _remove_wrapper_end(lines, mark, has_opening=skipped == before.count("\n"))
    return lines, skipped + _remove_second_opening(lines, skipped, problems)


def _remove_second_opening(lines: list[str], skipped: int, problems: list[FileProblem]) -> int:
    """Removes a first `---` before another one, and a code fence inside the frontmatter; returns the lines removed."""
    if len(lines) > 2 and _is_fence(lines[1]):
        close = _find_closing_fence(lines[1:])
        if (
            close is None
            or _count_names(lines[2 : close + 1]) < 2
            or not all(map(_is_field_line, lines[2 : close + 1]))
        ):
            return 0
        problem, fix = "the second of two opening `---` is read as the first", "remove one of them"
        problems.append(FileProblem("warning", "head-fence", max(skipped, 0) + 1, problem, fix))
        del lines[0]
        return 1
    mark = re.match(_CODE_FENCE, lines[1]) if len(lines) > 2 else None
    close = _find_closing_fence(lines) if mark else None
    if mark and close is not None and lines[close - 1].rstrip() == mark[1]:
        problem = f"the code fence {mark[1]} is ignored"
        problems.append(FileProblem("warning", "head-wrapped", max(skipped, 0) + 2, problem, "remove it"))
        lines[1] = lines[close - 1] = ""
    return 0


def _find_odd_end(lines: list[str]) -> int:
    """Where frontmatter with an odd opening fence ends: at the second `+++` of TOML, else where the fields end."""
    first = lines[0].strip()
    if first[:1] != "+":
        return _find_unclosed_end(lines)
    return next((at for at in range(1, len(lines)) if lines[at].rstrip() == first), 0)


def _count_names(lines: list[str]) -> int:
    """How many of `name` and `description` are fields."""
    return len({match[1] for line in lines if (match := re.match(r"(name|description)(?::| *=)(?:\s|$)", line))})


def _remove_wrapper_end(lines: list[str], mark: str, has_opening: bool) -> None:
    """Replaces the line that closes a code fence around the file or around its frontmatter."""
    close = _find_closing_fence(lines)
    fences = [at for at, line in enumerate(lines) if line.startswith(mark)]
    if not has_opening and fences and (close is None or fences[0] < close):
        lines[fences[0]] = "---"
    elif close is not None and close + 1 in fences and lines[close + 1].rstrip() == mark:
        lines[close + 1] = ""
    elif len(fences) % 2 and lines[fences[-1]].rstrip() == mark:
        lines[fences[-1]] = ""


def _find_end(lines: list[str], truncated: bool, skipped: int, problems: list[FileProblem]) -> tuple[int, int | None]:
    """The line that ends the frontmatter, and where the body starts on it; None: on the next line."""
    close = _find_closing_fence(lines)
    start = _find_body_heading(lines, close)
    what = "heading"
    if start is None:
        start, what = _find_body_prose(lines, close), "text"
    if start is not None and _is_mapping(lines[1:close]):
        return close or 0, None
    unclosed_end = _find_unclosed_end(lines) if close is None else 0
    if unclosed_end > 1 and _is_mapping(lines[1:]):
        unclosed_end = len(lines)
    lookalike = _find_closing_lookalike(lines, close, unclosed_end)
    if start is not None and (lookalike is None or start < lookalike[0]):
        start = _first_body_line(lines, start)
        if not "".join(lines[1:start]).strip():
            problems.append(_rule_problem(skipped))
            return start, 0
        problem = f"the frontmatter is not closed; the {what} on line {skipped + start + 1} is read as body"
        fix = f"add `---` after line {skipped + start}"
        problems.append(FileProblem("warning", "head-unclosed", max(skipped, 0) + 1, problem, fix))
        return start, 0
    if lookalike is not None:
        at, body = lookalike
        problem = (
            f"`{lines[at].strip()[:20]}` is read as the closing `---`"
            if body is None
            else "text after the closing `---` is read as the start of the body"
        )
        fix = "put `---` on a line of its own"
        problems.append(FileProblem("warning", "head-fence", skipped + at + 1, problem, fix))
        return lookalike
    if close is not None:
        return close, None
    is_too_long = truncated and unclosed_end == len(lines)
    if unclosed_end == 1:
        problems.append(_rule_problem(skipped))
        return unclosed_end, 0
    problems.append(_too_long_problem() if is_too_long else _unclosed_problem(skipped + 1, skipped + unclosed_end))
    return unclosed_end, 0


def _rule_problem(skipped: int) -> FileProblem:
    """Reported like unclosed frontmatter, because the user may have meant to write fields."""
    problem = "`---` is read as a rule at the top of the text: no fields follow it"
    fix = "add `name:`, `description:` and a closing `---` after it, or remove it"
    return FileProblem("warning", "head-unclosed", max(skipped, 0) + 1, problem, fix)


def _unclosed_problem(line: int, last: int) -> FileProblem:
    problem = "the frontmatter is not closed; lines that look like fields were used"
    return FileProblem("warning", "head-unclosed", line, problem, f"add `---` after line {last}")


def _too_long_problem() -> FileProblem:
    """Reported like unclosed frontmatter, because the effect is the same: fields may be missing."""
    problem = f"the frontmatter is longer than {FRONTMATTER_LIMIT // 1024} KiB; the rest is ignored"
    return FileProblem(
        "warning", "head-unclosed", 1, problem, "move everything that is not a field below the closing `---`"
    )


def _find_closing_fence(lines: list[str]) -> int | None:
    """The first line after the opening one that consists of three or more dashes."""
    return next((at for at in range(1, len(lines)) if _is_fence(lines[at])), None)


def _is_fence(line: str) -> bool:
    return line.startswith("---") and not line.rstrip().strip("-")


def _find_body_heading(lines: list[str], close: int | None) -> int | None:
    """The heading that starts the body where the first `---` is a rule inside the body, not the closing fence.

    Only a heading after a blank line or a complete field, with prose and no further field after it: elsewhere `# x` is
    a comment.
    """
    for at in range(2, close or 0):
        if lines[at][:1] != "#" or not _HEADING.match(lines[at]):
            continue
        if lines[at - 1].strip() and not _is_complete_field(lines[at - 1]):
            continue
        following = next((lines[below] for below in range(at + 1, close or 0) if lines[below].strip()), "")
        if following and not _is_field_line(following) and following[0] != "#":
            return None if _do_fields_go_on(lines, at, close or 0) else at
    return None


def _find_body_prose(lines: list[str], close: int | None) -> int | None:
    """The prose that starts the body where the first `---` is a rule inside the body, not the closing fence.

    Only after a blank line or a name or list of names, with no further field after it. `Note: text` may start it, prose
    without a colon must be part of it. A list may start it where the field above is complete.
    """
    above = ""
    for at in range(2, close or 0):
        line = lines[at]
        above = lines[at - 1] if lines[at - 1].strip() else above
        is_list = line.startswith("- ") and _is_complete_field(above)
        if (
            (lines[at - 1].strip() and not _follows_short_value(lines, at))
            or (line[:1] in ("", " ", "\t", "#", "-") and not is_list)
            or (line[0].islower() and _is_field_line(line))
        ):
            continue
        has_prose = is_list or any(
            below[:1] not in ("", " ", "\t", "#", "-") and not _is_field_line(below) for below in lines[at:close]
        )
        return at if has_prose and _last_field(lines[:at]) and not _do_fields_go_on(lines, at, close or 0) else None
    return None


def _follows_short_value(lines: list[str], at: int) -> bool:
    """Whether this is a sentence after a name, a list of names or an indented list, which it can't continue."""
    if len(lines[at].split()) < 3 or _is_field_line(lines[at]):
        return False
    above = lines[at - 1]
    return bool(_SHORT_VALUE.fullmatch(above)) or bool(re.match(r"\s+- \S", above) and _is_list(lines, at))


def _is_list(lines: list[str], end: int) -> bool:
    """Whether the field before `end` is a list of one line per item."""
    start = next((at for at in range(end - 1, 0, -1) if lines[at][:1] not in (" ", "\t")), 0)
    return lines[start].rstrip()[-1:] == ":" and all(line.lstrip()[:2] == "- " for line in lines[start + 1 : end])


def _is_complete_field(line: str) -> bool:
    """A field with its value on the same line."""
    return bool(KEY_LINE.match(line)) and line.rstrip()[-1:] != ":" and not _BLOCK_START.search(line)


def _do_fields_go_on(lines: list[str], start: int, close: int) -> bool:
    """Whether fields end the text before the fence: then what resembles a body above them is part of a field.

    `key: x` in the prose of a body is no field.
    """
    last = _last_field(lines[:close])
    return last >= start and all(not line.strip() or _is_field_line(line) for line in lines[last:close])


def _first_body_line(lines: list[str], start: int) -> int:
    """The line after the last field, where unclosed frontmatter goes over to the body; at most `start`."""
    last = _last_field(lines[:start])
    is_valid = _is_mapping(lines[1:start])
    for at in range(last + 1, start):
        line = lines[at]
        # In valid YAML these are comments; elsewhere a list may belong to the last field.
        is_field = (
            line[:1] != "#"
            if is_valid
            else line[:1] in (" ", "\t") or (line[:1] == "-" and lines[last].rstrip()[-1:] == ":")
        )
        if line.strip() and not is_field:
            return at
    return start


def _find_closing_lookalike(lines: list[str], close: int | None, unclosed_end: int) -> tuple[int, int | None] | None:
    """A line meant as the closing fence (`---## Text`, `...`, `***`), and where the body starts on it, as in _find_end.

    It is not one if the frontmatter goes on after it, or, in unclosed frontmatter, if it comes after prose.
    """
    above = ""
    last_field = -1
    for at in range(1, len(lines) if close is None else close):
        line = lines[at]
        has_text = line.startswith("---")
        if has_text or _resembles_fence(line, above):
            if close is None:
                between = lines[unclosed_end:at]
                goes_on = any(line.strip() and line[0] != "#" and not _is_field_line(line) for line in between)
            elif has_text:
                goes_on = not line.lstrip("-").startswith("##") and _are_fields(lines, at + 1, close)
                if not goes_on and _is_mapping(lines[1:close]):
                    return None
            else:
                if last_field < 0:
                    last_field = _last_field(lines[: _find_body_start(lines, at, close)])
                goes_on = last_field > at
            if not goes_on:
                return at, (len(line) - len(line.lstrip("-").lstrip()) if has_text else None)
            if close is None:
                return None
        if line.strip():
            above = line
    return None


def _find_body_start(lines: list[str], start: int, close: int) -> int:
    """The first heading after `start` that no field follows, else `close`."""
    for at in range(start + 1, close):
        if _HEADING.match(lines[at]) and not lines[at - 1].strip():
            following = next((lines[below] for below in range(at + 1, close) if lines[below].strip()), "")
            if not _is_field_line(following):
                return at
    return close


def _is_mapping(lines: list[str]) -> bool:
    """Whether this is valid YAML as it is, with names of fields as keys: then what resembles a heading or a fence is
    inside a quoted value."""
    try:
        value, problems = parse_yaml("\n".join(lines) + "\n")
    except YamlError:
        return False
    return isinstance(value, dict) and not problems and all(map(re.compile(_FIELD_NAME).fullmatch, value))


def _resembles_fence(line: str, above: str) -> bool:
    """`above`: the last line before it that is not blank."""
    if not line or line[0].isalnum() or not re.fullmatch(_CLOSING_LOOKALIKE, line.rstrip()):
        return False
    # An indented line may continue the field above it.
    return line[0] != " " or not (above[:1] in (" ", "\t") or re.search(r":\s*([|>][-+0-9]*\s*)?$", above))


def _are_fields(lines: list[str], start: int, end: int) -> bool:
    """Whether these are all lines of fields, and the first one starts a field."""
    return start < end and lines[start][:1].islower() and all(_is_field_line(lines[at]) for at in range(start, end))


def _is_field_line(line: str) -> bool:
    """A line that starts or continues a field."""
    if line[:1] == " ":
        return bool(line.strip())
    if line.startswith("- ") or KEY_LINE.match(line):
        return True
    return line[:1].islower() and re.match(SQUEEZED_KEY, line) is not None


def _last_field(lines: list[str]) -> int:
    """The last line that starts a field, outside of code blocks; 0 if there is none."""
    fence = ""
    last = 0
    for at, line in enumerate(lines):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~"):
            fence = "" if fence == mark else fence or mark
        elif not fence and line[:1].islower() and KEY_LINE.match(line):
            last = at
    return last


def _find_unclosed_end(lines: list[str]) -> int:
    """The line after the fields of unclosed frontmatter, comments between them and blank lines in blocks included."""
    end = at = 1
    is_block = False
    while at < len(lines):
        line = lines[at]
        if _is_field_line(line):
            if at > end and not (lines[end][:1] == "#" if line[:1] != " " else is_block):
                break
            is_block = is_block if line[:1] == " " else _BLOCK_START.search(line) is not None
            end = at + 1
        elif line[:1] != "#" and line.strip():
            break
        at += 1
    return end
