"""Makes skills fit a budget, step by step, in the order of CONTRACT §4, and records what each step took.

References go first, then supporting skills shrink to their heads, then the primary one is cut: a lower
strategy, by sections, by lines. Its head, Summary and Core Rules are never cut. Used by pack.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from kitbag.errors import KitbagError
from kitbag.ledger import Entry, EntryStatus
from kitbag.library.skills import Skill
from kitbag.text.sections import parse_sections
from kitbag.text.truncate import truncate_body, truncate_by_sections, truncate_to_first_lines

MINIMAL_LINES = 50
CountTokens = Callable[[str], int]


class Budgets(NamedTuple):
    protocol: int = 2_000
    task: int = 2_000
    skills: int = 15_000
    total: int = 100_000
    fill: int = 70
    """How much of the total may be used at spawn, in percent."""


def parse_token_count(written: object) -> int | None:
    """A number of tokens as somebody wrote it."""
    if not isinstance(written, str) or not written.isascii() or not written.isdigit() or len(written) > 9:
        return None
    return int(written) or None


def _minimal_body(body: str, count: CountTokens) -> str:
    start = truncate_to_first_lines(body, MINIMAL_LINES, count)
    if not start.omissions:
        return body
    end = len(os.path.commonprefix([start.text, body]))  # noqa: RUF071 - characters are what is meant
    missing = [
        body[max(section.start, end) : section.end_with_children].strip("\n")
        for section in parse_sections(body)
        if section.role in ("summary", "rules") and section.end_with_children > end
    ]
    # A section below one that is kept is part of it.
    kept: list[str] = []
    for text in missing:
        if text.strip() and not any(text in other for other in kept):
            kept.append(text)
    return "\n\n".join([start.text.rstrip("\n"), *kept])


class OverBudgetError(KitbagError):
    exit_code = 10

    def __init__(self, budget: str, tokens: int, limit: int, fix: str = "") -> None:
        over = tokens - limit
        super().__init__(
            f"over the {budget} budget by {over:,} tokens: {tokens:,} of {limit:,} after all that may be cut",
            fix or f"raise budget.{budget}, or give less",
        )
        self.budget = budget
        self.excess = over


class PayloadPart:
    """One text that is kept, cut or omitted as a whole: a skill's main text, or a reference of it."""

    __slots__ = ("_count", "_tokens", "full", "kind", "level", "reason", "scope", "source", "text")

    def __init__(self, kind: str, source: str, scope: str, level: str, text: str, count: CountTokens) -> None:
        self.kind, self.source, self.scope, self.level = kind, source, scope, level
        self.text = text
        self._count = count
        self._tokens = self.full = count(text)
        self.reason = ""

    @property
    def tokens(self) -> int:
        return self._tokens

    def replace_text(self, text: str, reason: str, level: str | None = None) -> None:
        self.text = text
        self._tokens = self._count(text)
        self.reason = f"{self.reason}; {reason}" if self.reason else reason
        self.level = level or self.level

    def to_entry(self) -> Entry:
        status: EntryStatus = "omitted" if not self.text else "cut" if self.reason else "kept"
        cut = max(self.full - self._tokens, 0) if self.reason else 0
        tokens = self._tokens if self.text else 0
        return Entry(self.kind, self.source, self.scope, self.level, self.text, tokens, cut, status, self.reason)


class PackedSkill:
    """A skill on its way into the payload."""

    __slots__ = ("_count", "body", "cap", "head", "lowered", "main", "references", "skill", "title")

    def __init__(
        self, skill: Skill, title: str, head: str, body: str, count: CountTokens, cap: int | None = None
    ) -> None:
        self.skill = skill
        self.title = title
        self.head = head
        self.body = body
        self.cap = cap
        self.lowered = False
        self._count = count
        self.main = PayloadPart("skill", skill.path, skill.root.scope, "L1", self._with(body), count)
        self.references: list[PayloadPart] = []

    def _with(self, body: str) -> str:
        parts = (self.title, self.head, body.strip("\n"))
        return "\n\n".join(part for part in parts if part) + "\n\n"

    @property
    def tokens(self) -> int:
        return self.main.tokens + sum(reference.tokens for reference in self.references)

    def to_metadata(self, reason: str) -> None:
        self.main.replace_text(self._with(""), reason, "L0")

    def omit(self, reason: str) -> None:
        self.main.replace_text("", reason, "L0")

    def shrink_to_minimal(self, reason: str) -> bool:
        """The first lines, and of what follows them that which may never be cut. False: it is not longer anyway."""
        text = _minimal_body(self.body, self._count)
        if self._count(text) >= self._count(self.body):
            return False
        self.main.replace_text(self._with(text), reason)
        return True

    def cut_sections(self, allowed: int, reason: str) -> None:
        room = max(allowed - self._count(self._with("")), 0)
        done = truncate_by_sections(self.body, room, self._count)
        if done.omissions:
            titles = ", ".join(cut.what for cut in done.omissions[:4]) + (", ..." if len(done.omissions) > 4 else "")
            self._shrink(done.text, f"{reason}: {titles}")

    def cut_lines(self, allowed: int, reason: str) -> None:
        room = max(allowed - self._count(self._with("")), 0)
        self._shrink(truncate_body(self.body, room, self._count).text, reason)

    def _shrink(self, body: str, reason: str) -> None:
        text = self._with(body)
        if self._count(text) < self.main.tokens:
            self.main.replace_text(text, reason)

    def shrink_to_cap(self) -> None:
        """`token_budget` in the manifest or the head caps one skill."""
        if self.cap is None:
            return
        why = f"its own token_budget of {self.cap:,}"
        for reference in reversed(self.references):
            if self.tokens > self.cap and reference.text:
                reference.replace_text("", why)
        if self.tokens > self.cap:
            self.cut_sections(self.cap, why)
        if self.tokens > self.cap:
            self.cut_lines(self.cap, why)

    def to_entries(self) -> list[Entry]:
        return [self.main.to_entry(), *(reference.to_entry() for reference in self.references)]


def fit_to_budget(pieces: list[PackedSkill], other_tokens: int, skills_limit: int, spawn_limit: int) -> None:
    """`others` is what protocol, task and output take. Raises OverBudgetError when the floor is too much."""
    for piece in pieces:
        piece.shrink_to_cap()
    limit = min(skills_limit, spawn_limit - other_tokens)
    why = "over budget"

    def over() -> bool:
        return sum(piece.tokens for piece in pieces) > limit

    if not over():
        return
    for piece in reversed(pieces):
        for reference in reversed(piece.references):
            if over() and reference.text:
                reference.replace_text("", f"{why}: references go first")
    for piece in reversed(pieces[1:]):
        if over():
            piece.to_metadata(f"{why}: a supporting skill shrinks to its metadata")
    primary = pieces[0]
    if over():
        primary.lowered = primary.shrink_to_minimal(f"{why}: lower strategy")
    if over():
        primary.cut_sections(limit - sum(piece.tokens for piece in pieces[1:]), f"{why}: cut by sections")
    if over():
        primary.cut_lines(limit - sum(piece.tokens for piece in pieces[1:]), f"{why}: cut by lines")
    for piece in reversed(pieces[1:]):
        if over():
            piece.omit(f"{why}: no room even for its metadata")
    if over():
        tokens = sum(piece.tokens for piece in pieces)
        if tokens > skills_limit:
            raise OverBudgetError("skills", tokens, skills_limit)
        raise OverBudgetError("total", tokens + other_tokens, spawn_limit)
