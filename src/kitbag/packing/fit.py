"""Shrinks skills to a token budget, step by step in the order of CONTRACT §4, and records each cut.

References are dropped first, then supporting skills shrink to their metadata, then the primary skill is cut: lower
strategy, sections, lines. Its frontmatter, Summary and Core Rules are never cut. Used by pack; uses text.truncate.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from kitbag.errors import KitbagError
from kitbag.ledger import Entry, EntryStatus
from kitbag.library.skills import Skill
from kitbag.text.sections import parse_sections
from kitbag.text.tokens import TokenCounter
from kitbag.text.truncate import truncate_body, truncate_by_sections, truncate_to_first_lines

MINIMAL_LINES = 50
CountTokens = Callable[[str], int]


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    protocol: int = 2_000
    task: int = 2_000
    skills: int = 15_000
    total: int = 100_000
    fill: int = 70
    """Percentage of the total that may be used at spawn."""


BUDGET_NAMES: Final = ("protocol", "task", "skills", "total", "fill")
"""Fields of Budgets, settings keys below `budget.`, and names for --budget."""


def parse_token_count(value: object) -> int | None:
    """The number of tokens in a setting or field; None if it is not a positive number."""
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 9:
        return None
    return int(value) or None


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
    # A subsection is already part of a kept section.
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
            f"over the {budget} budget by {over:,} tokens: {tokens:,} of {limit:,} after truncation",
            fix or f"raise budget.{budget}, or reduce the input",
        )
        self.budget = budget
        self.excess = over


class PayloadPart:
    """One text that is kept, cut or omitted: the protocol, the task, a skill's main text, one of its references. Its
    tokens are counted on demand, because an exact tokenizer takes long to load."""

    __slots__ = ("_counter", "_full_text", "_tokens", "kind", "level", "reason", "scope", "source", "text")

    def __init__(self, kind: str, source: str, scope: str, level: str, text: str, counter: TokenCounter) -> None:
        self.kind, self.source, self.scope, self.level = kind, source, scope, level
        self.text = self._full_text = text
        self._counter = counter
        self._tokens: int | None = None
        self.reason = ""

    @property
    def tokens(self) -> int:
        if self._tokens is None:
            self._tokens = self._counter.count(self.text)
        return self._tokens

    @property
    def max_tokens(self) -> int:
        """At least `tokens`; counts nothing."""
        return self._counter.upper_bound(self.text) if self._tokens is None else self._tokens

    @property
    def tokens_cut(self) -> int:
        return max(self._counter.count(self._full_text) - self.tokens, 0) if self.reason else 0

    def replace_text(self, text: str, reason: str, level: str | None = None) -> None:
        self.text = text
        self._tokens = None
        self.reason = f"{self.reason}; {reason}" if self.reason else reason
        self.level = level or self.level

    def to_entry(self) -> Entry:
        status: EntryStatus = "omitted" if not self.text else "cut" if self.reason else "kept"
        return Entry(
            kind=self.kind,
            source=self.source,
            scope=self.scope,
            level=self.level,
            text=self.text,
            tokens=self.tokens if self.text else 0,
            tokens_cut=self.tokens_cut,
            status=status,
            reason=self.reason,
        )


def is_over(parts: Iterable[PayloadPart], limit: int) -> bool:
    """Counts exactly only where an upper bound does not decide."""
    parts = list(parts)
    return sum(part.max_tokens for part in parts) > limit and sum(part.tokens for part in parts) > limit


class PackedSkill:
    """A skill that is being fitted into the payload."""

    __slots__ = ("_count", "body", "cap", "frontmatter", "is_lowered", "main", "references", "skill", "title")

    def __init__(
        self, skill: Skill, title: str, frontmatter: str, body: str, counter: TokenCounter, cap: int | None = None
    ) -> None:
        self.skill = skill
        self.title = title
        self.frontmatter = frontmatter
        self.body = body
        self.cap = cap
        self.is_lowered = False
        self._count = counter.count
        self.main = PayloadPart(
            kind="skill",
            source=skill.path,
            scope=skill.root.scope,
            level="L1",
            text=self._render(body),
            counter=counter,
        )
        self.references: list[PayloadPart] = []

    def _render(self, body: str) -> str:
        parts = (self.title, self.frontmatter, body.strip("\n"))
        return "\n\n".join(part for part in parts if part) + "\n\n"

    @property
    def parts(self) -> list[PayloadPart]:
        return [self.main, *self.references]

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    @property
    def is_over_cap(self) -> bool:
        return self.cap is not None and is_over(self.parts, self.cap)

    def to_metadata(self, reason: str) -> None:
        self.main.replace_text(self._render(""), reason, "L0")

    def omit(self, reason: str) -> None:
        self.main.replace_text("", reason, "L0")

    def shrink_to_minimal(self, reason: str) -> bool:
        """Keeps the first lines and the sections that may never be cut. False if that would not be shorter."""
        text = _minimal_body(self.body, self._count)
        if self._count(text) >= self._count(self.body):
            return False
        self.main.replace_text(self._render(text), reason)
        return True

    def cut_sections(self, allowed: int, reason: str) -> None:
        remaining = max(allowed - self._count(self._render("")), 0)
        truncated = truncate_by_sections(self.body, remaining, self._count)
        if truncated.omissions:
            titles = ", ".join(cut.what for cut in truncated.omissions[:4]) + (
                ", ..." if len(truncated.omissions) > 4 else ""
            )
            self._shrink(truncated.text, f"{reason}: {titles}")

    def cut_lines(self, allowed: int, reason: str) -> None:
        remaining = max(allowed - self._count(self._render("")), 0)
        self._shrink(truncate_body(self.body, remaining, self._count).text, reason)

    def _shrink(self, body: str, reason: str) -> None:
        text = self._render(body)
        if self._count(text) < self.main.tokens:
            self.main.replace_text(text, reason)

    def shrink_to_cap(self) -> None:
        """Applies the skill's own `token_budget` from the manifest or its frontmatter."""
        if self.cap is None:
            return
        reason = f"its own token_budget of {self.cap:,}"
        for reference in reversed(self.references):
            if self.is_over_cap and reference.text:
                reference.replace_text("", reason)
        if self.is_over_cap:
            self.cut_sections(self.cap, reason)
        if self.is_over_cap:
            self.cut_lines(self.cap, reason)


def fit_to_budget(
    pieces: list[PackedSkill], others: Sequence[PayloadPart], preloaded: int, skills_limit: int, spawn_limit: int
) -> None:
    """`others`: protocol, task and output. `preloaded`: tokens of the skills that the agent has already. Raises
    OverBudgetError if the minimum does not fit."""
    for piece in pieces:
        piece.shrink_to_cap()
    parts = [part for piece in pieces for part in piece.parts]
    is_over_total = is_over([*parts, *others], spawn_limit - preloaded)
    if pieces and (is_over_total or is_over(parts, skills_limit - preloaded)):
        _shrink(pieces, sum(part.tokens for part in others) + preloaded, skills_limit - preloaded, spawn_limit)
    elif is_over_total:
        raise OverBudgetError("total", sum(part.tokens for part in others) + preloaded, spawn_limit)


def _shrink(pieces: list[PackedSkill], other_tokens: int, skills_limit: int, spawn_limit: int) -> None:
    limit = min(skills_limit, spawn_limit - other_tokens)
    reason = "over budget"

    def over() -> bool:
        return sum(piece.tokens for piece in pieces) > limit

    for piece in reversed(pieces):
        for reference in reversed(piece.references):
            if over() and reference.text:
                reference.replace_text("", f"{reason}: references are omitted first")
    for piece in reversed(pieces[1:]):
        if over():
            piece.to_metadata(f"{reason}: supporting skill reduced to its metadata")
    primary = pieces[0]
    if over():
        primary.is_lowered = primary.shrink_to_minimal(f"{reason}: switched to a lower strategy")
    if over():
        primary.cut_sections(limit - sum(piece.tokens for piece in pieces[1:]), f"{reason}: truncated by sections")
    if over():
        primary.cut_lines(limit - sum(piece.tokens for piece in pieces[1:]), f"{reason}: truncated by lines")
    for piece in reversed(pieces[1:]):
        if over():
            piece.omit(f"{reason}: no room even for its metadata")
    if over():
        tokens = sum(piece.tokens for piece in pieces)
        if tokens > skills_limit:
            raise OverBudgetError("skills", tokens, skills_limit)
        raise OverBudgetError("total", tokens + other_tokens, spawn_limit)
