"""Fits skills into a token budget in the order of CONTRACT §4, and records each cut.

The primary skill gets what it needs, then the supporting skills, then references; each is cut by sections, then by
lines, so that most of the budget is used. The primary skill's frontmatter, Summary and Core Rules are never cut.
Used by pack; uses text.truncate.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kitbag.errors import KitbagError, UsageError
from kitbag.ledger import Entry, EntryStatus
from kitbag.library.agents import AgentFile
from kitbag.library.skills import Skill
from kitbag.settings import Settings
from kitbag.text.sections import parse_sections
from kitbag.text.tokens import TokenCounter
from kitbag.text.truncate import TruncatedText, extract_essential, truncate_body, truncate_to_first_lines

MINIMAL_LINES = 50
MIN_USED = 90
"""Percentage of the budget below which a reference that does not fit is cut instead of omitted."""
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


def declared_budget(agent: AgentFile) -> int | None:
    """The token budget for skills in an agent file; None: the setting applies."""
    return parse_token_count(agent.extra.get("token-budget") or agent.extra.get("token_budget"))


def budgets_from_settings(settings: Settings) -> Budgets:
    return Budgets(**{name: settings.get(f"budget.{name}") for name in BUDGET_NAMES})


def resolve_budgets(budgets: Budgets, agent: AgentFile | None, call: Mapping[str, int]) -> Budgets:
    """Precedence: the call, then the agent file's `token-budget` (for skills), then settings."""
    if agent is not None and (agent_budget := declared_budget(agent)) is not None:
        budgets = msgspec.structs.replace(budgets, skills=agent_budget)
    unknown = set(call) - set(BUDGET_NAMES)
    if unknown:
        known = ", ".join(BUDGET_NAMES)
        raise UsageError(f"unknown budget {', '.join(sorted(unknown))}", f"available budgets: {known}")
    return msgspec.structs.replace(budgets, **call)


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

    def cut(self, allowed: int, reason: str) -> bool:
        """False if the text can't be cut to so few tokens."""
        remaining = allowed
        while True:  # with the blank line after it, the text may have more tokens
            cut = truncate_body(self.text.rstrip("\n"), remaining, self._counter.count, keep_essential=False)
            text = cut.text.rstrip("\n") + "\n\n"
            excess = self._counter.count(text) - allowed
            if not cut.omissions or (excess > 0 and cut.tokens > remaining):
                return False
            if excess <= 0:
                break
            remaining -= excess
        self.replace_text(text, f"{reason}: truncated by {_describe_omissions(cut)}")
        return True

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

    __slots__ = ("_body", "_count", "cap", "full_body", "head", "is_lowered", "main", "references", "skill")

    def __init__(
        self,
        skill: Skill,
        title: str,
        files: str,
        frontmatter: str,
        body: str,
        counter: TokenCounter,
        cap: int | None = None,
    ) -> None:
        """`files`: the skill's directory and files, which precede the frontmatter where there is room for them."""
        self.skill = skill
        self.head = [title, files, frontmatter]
        self.full_body = self._body = body
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
        return "\n\n".join(part for part in (*self.head, body.strip("\n")) if part) + "\n\n"

    @property
    def parts(self) -> list[PayloadPart]:
        return [self.main, *self.references]

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    @property
    def is_over_cap(self) -> bool:
        return self.cap is not None and is_over(self.parts, self.cap)

    @property
    def metadata_tokens(self) -> int:
        return min(self._count(self._render("")), self.main.tokens)

    @property
    def minimum_tokens(self) -> int:
        """With what is never cut."""
        essential = (extract_essential(body, self._count).text for body in {self._body, self.full_body})
        return min(self.main.tokens, *(self._count(self._render(text)) for text in essential))

    def use_minimal(self) -> None:
        """Chooses the minimal strategy: the first lines, and the sections that may never be cut."""
        text = _minimal_body(self.full_body, self._count)
        if self._count(text) < self._count(self.full_body):
            self._body = text
            self.main.replace_text(self._render(text), f"minimal: the first {MINIMAL_LINES} lines")

    def drop_files(self) -> None:
        """Uses the shortest head."""
        self.head[1] = ""

    def to_metadata(self, reason: str) -> None:
        self.main.replace_text(self._render(""), f"{reason}: reduced to its metadata", "L0")

    def omit(self, reason: str) -> None:
        self.main.replace_text("", f"{reason}: no room even for its metadata", "L0")

    def cut(self, allowed: int, reason: str, *, keep_essential: bool = True) -> None:
        """Cuts the main text by sections, then by lines; uses a lower strategy where that leaves more. May stay too
        long if the essential sections must stay."""
        if self.main.tokens <= allowed:
            return
        cut = self._truncate(allowed, keep_essential=keep_essential)
        text, how = self._render(cut.text), f"{reason}: truncated by {_describe_omissions(cut)}"
        lower = self._render(_minimal_body(self.full_body, self._count))
        if self._body == self.full_body and self._count(text) < self._count(lower) <= allowed:
            self.is_lowered = True
            text, how = lower, f"{reason}: switched to a lower strategy"
        if self._count(text) < self.main.tokens:
            self.main.replace_text(text, how)

    def _truncate(self, allowed: int, *, keep_essential: bool) -> TruncatedText:
        """From the whole body if the first lines of it can't be cut enough: a short introduction is essential, and the
        start of a long one may be short."""
        cut = self._truncate_text(self._body, allowed, keep_essential=keep_essential)
        if self._body != self.full_body and self._count(self._render(cut.text)) > allowed:
            cut = self._truncate_text(self.full_body, allowed, keep_essential=keep_essential)
        return cut

    def _truncate_text(self, body: str, allowed: int, *, keep_essential: bool) -> TruncatedText:
        """Tries again where the rendered text has more tokens than its parts."""
        remaining = max(allowed - self._count(self._render("")), 0)
        while True:
            cut = truncate_body(body, remaining, self._count, keep_essential=keep_essential)
            excess = self._count(self._render(cut.text)) - allowed
            if excess <= 0 or cut.tokens > remaining:
                return cut
            remaining -= excess


def _describe_omissions(cut: TruncatedText) -> str:
    titles = list(dict.fromkeys(omission.what for omission in cut.omissions))
    sections = [title for title in titles if title != "lines"]
    if not sections:
        return "lines"
    names = ", ".join(sections[:4]) + (", ..." if len(sections) > 4 else "")
    return f"sections{' and lines' if 'lines' in titles else ''}: {names}"


def fit_to_budget(
    pieces: list[PackedSkill], others: Sequence[PayloadPart], preloaded: int, skills_limit: int, spawn_limit: int
) -> None:
    """`others`: protocol, task and output. `preloaded`: tokens of the skills that the agent has already. Raises
    OverBudgetError if the minimum does not fit."""
    for piece in pieces:
        if piece.cap is not None and piece.is_over_cap:
            reason = f"its own token_budget of {piece.cap:,}"
            piece.cut(piece.cap, reason)
            _fill_with_references([piece], piece.cap, reason)
    parts = [part for piece in pieces for part in piece.parts]
    is_over_total = is_over([*parts, *others], spawn_limit - preloaded)
    if pieces and (is_over_total or is_over(parts, skills_limit - preloaded)):
        _fit(pieces, sum(part.tokens for part in others) + preloaded, skills_limit - preloaded, spawn_limit)
    elif is_over_total:
        raise OverBudgetError("total", sum(part.tokens for part in others) + preloaded, spawn_limit)


def _fit(pieces: list[PackedSkill], other_tokens: int, skills_limit: int, spawn_limit: int) -> None:
    limit = min(skills_limit, spawn_limit - other_tokens)
    reason = "over budget"
    _fit_main_texts(pieces, limit, reason)
    _fill_with_references(pieces, limit, reason)
    tokens = sum(piece.tokens for piece in pieces)
    if tokens > skills_limit:
        raise OverBudgetError("skills", tokens, skills_limit)
    if tokens > limit:
        raise OverBudgetError("total", tokens + other_tokens, spawn_limit)


def _fit_main_texts(pieces: list[PackedSkill], limit: int, reason: str) -> None:
    """Each skill gets what it needs, except the metadata of those after it."""
    primary, *supporting = pieces
    for piece in reversed(pieces):
        if primary.minimum_tokens + sum(piece.metadata_tokens for piece in supporting) > limit:
            piece.drop_files()
    remaining = limit - primary.minimum_tokens
    kept = 0
    while kept < len(supporting) and supporting[kept].metadata_tokens <= remaining:
        remaining -= supporting[kept].metadata_tokens
        kept += 1
    for piece in supporting[kept:]:
        piece.omit(reason)
    reserved = sum(piece.metadata_tokens for piece in supporting[:kept])
    primary.cut(limit - reserved, reason)
    remaining = limit - primary.main.tokens
    for piece in supporting[:kept]:
        reserved -= piece.metadata_tokens
        piece.cut(remaining - reserved, reason, keep_essential=False)
        if piece.main.tokens > remaining - reserved:
            piece.to_metadata(reason)
        remaining -= piece.main.tokens


def _fill_with_references(pieces: list[PackedSkill], limit: int, reason: str) -> None:
    """Keeps the first references that fit. The next one is cut if much of the budget would stay unused."""
    remaining = limit - sum(piece.main.tokens for piece in pieces)
    is_full = False
    for reference in [reference for piece in pieces for reference in piece.references if reference.text]:
        if is_full or reference.tokens > remaining:
            is_unused = not is_full and (limit - remaining) * 100 < limit * MIN_USED
            is_full = True
            if not is_unused or not reference.cut(remaining, reason):
                reference.replace_text("", f"{reason}: references are omitted first")
        remaining -= reference.tokens
