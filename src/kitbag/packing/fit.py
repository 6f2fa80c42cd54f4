"""Makes skills fit a budget, step by step, in the order of CONTRACT §4, and records what each step took.

References go first, then supporting skills shrink to their heads, then the primary one is cut: a lower
strategy, by sections, by lines. Its head, Summary and Core Rules are never cut. Used by pack.
"""

from collections.abc import Callable
from typing import NamedTuple

from kitbag.errors import KitbagError
from kitbag.ledger import Entry, Status
from kitbag.library.skills import Skill
from kitbag.text.truncate import essential, first_lines, truncate_body, truncate_sections

MINIMAL_LINES = 50
Count = Callable[[str], int]


class Budgets(NamedTuple):
    protocol: int = 2_000
    task: int = 2_000
    skills: int = 15_000
    total: int = 100_000
    fill: int = 70
    """How much of the total may be used at spawn, in percent."""

    @property
    def at_spawn(self) -> int:
        return self.total * self.fill // 100


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


class Part:
    """One text that is kept, cut or omitted as a whole: a skill's main text, or a reference of it."""

    __slots__ = ("_count", "_tokens", "full", "kind", "level", "reason", "scope", "source", "text")

    def __init__(self, kind: str, source: str, scope: str, level: str, text: str, count: Count) -> None:
        self.kind, self.source, self.scope, self.level = kind, source, scope, level
        self.text = text
        self._count = count
        self._tokens = self.full = count(text)
        self.reason = ""

    @property
    def tokens(self) -> int:
        return self._tokens

    def become(self, text: str, reason: str, level: str | None = None) -> None:
        self.text = text
        self._tokens = self._count(text)
        self.reason = f"{self.reason}; {reason}" if self.reason else reason
        self.level = level or self.level

    def entry(self) -> Entry:
        status: Status = "omitted" if not self.text else "cut" if self.reason else "kept"
        cut = max(self.full - self._tokens, 0) if self.reason else 0
        tokens = self._tokens if self.text else 0
        return Entry(self.kind, self.source, self.scope, self.level, self.text, tokens, cut, status, self.reason)


class SkillPiece:
    """A skill on its way into the payload."""

    __slots__ = ("_count", "_whole", "body", "cap", "head", "lowered", "main", "references", "skill", "title")

    def __init__(
        self,
        skill: Skill,
        title: str,
        head: str,
        body: str,
        count: Count,
        cap: int | None = None,
        whole: Callable[[], str] | None = None,
    ) -> None:
        """`whole` gives the body of which `body` is the start: what may never be cut is looked for there."""
        self.skill = skill
        self.title = title
        self.head = head
        self.body = body
        self.cap = cap
        self.lowered = False
        self._whole = whole
        self._count = count
        self.main = Part("skill", skill.path, skill.root.scope, "L1", self._with(body), count)
        self.references: list[Part] = []

    def _with(self, body: str) -> str:
        parts = (self.title, self.head, body.strip("\n"))
        return "\n\n".join(part for part in parts if part) + "\n\n"

    @property
    def tokens(self) -> int:
        return self.main.tokens + sum(reference.tokens for reference in self.references)

    def to_metadata(self, reason: str) -> None:
        self.main.become(self._with(""), reason, "L0")

    def omit(self, reason: str) -> None:
        self.main.become("", reason, "L0")

    def to_minimal(self, reason: str) -> None:
        """The first lines, and of what follows them that which may never be cut."""
        lines = first_lines(self.body, MINIMAL_LINES, self._count).text
        floor = essential(self.body, self._count).text
        missing = [block for block in floor.split("\n\n") if block.strip() and block.strip() not in lines]
        text = lines if not missing else f"{lines.rstrip()}\n\n" + "\n\n".join(missing)
        if self._count(text) < self._count(self.body):
            self.main.become(self._with(text), reason)
            self.lowered = True

    def _cuttable(self) -> str:
        if self._whole is not None:
            self.body, self._whole = self._whole(), None
        return self.body

    def cut_sections(self, allowed: int, reason: str) -> None:
        room = max(allowed - self._count(self._with("")), 0)
        done = truncate_sections(self._cuttable(), room, self._count)
        if done.cuts:
            titles = ", ".join(cut.what for cut in done.cuts[:4]) + (", ..." if len(done.cuts) > 4 else "")
            self.main.become(self._with(done.text), f"{reason}: {titles}")

    def cut_lines(self, allowed: int, reason: str) -> None:
        room = max(allowed - self._count(self._with("")), 0)
        done = truncate_body(self._cuttable(), room, self._count)
        if done.cuts:
            self.main.become(self._with(done.text), reason)

    def shrink_to_cap(self) -> None:
        """`token_budget` in the manifest or the head caps one skill."""
        if self.cap is None:
            return
        why = f"its own token_budget of {self.cap:,}"
        for reference in reversed(self.references):
            if self.tokens > self.cap and reference.text:
                reference.become("", why)
        if self.tokens > self.cap:
            self.cut_sections(self.cap, why)
        if self.tokens > self.cap:
            self.cut_lines(self.cap, why)

    def entries(self) -> list[Entry]:
        return [self.main.entry(), *(reference.entry() for reference in self.references)]


def fit(pieces: list[SkillPiece], others: int, skills_limit: int, spawn_limit: int) -> None:
    """`others` is what protocol, task and output take. Raises OverBudgetError when the floor is too much."""
    for piece in pieces:
        piece.shrink_to_cap()
    limit = min(skills_limit, spawn_limit - others)
    why = "over budget"

    def over() -> bool:
        return sum(piece.tokens for piece in pieces) > limit

    if not over():
        return
    for piece in reversed(pieces):
        for reference in reversed(piece.references):
            if over() and reference.text:
                reference.become("", f"{why}: references go first")
    for piece in reversed(pieces[1:]):
        if over():
            piece.to_metadata(f"{why}: a supporting skill shrinks to its metadata")
    primary = pieces[0]
    if over():
        primary.to_minimal(f"{why}: lower strategy")
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
        raise OverBudgetError("total", tokens + others, spawn_limit)
