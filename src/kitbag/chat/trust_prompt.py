"""Asks on the first start in a folder whether to trust its content, and shows what that would allow.

Used by start, before anything of the folder is loaded. The user trusts exactly what is shown
(permissions/trust/workspace_trust); the wording is that of `kitbag trust` (views/trust). Without an answer the chat
starts and omits the folder's skills, agents and settings.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from kitbag.chat.ui import ChatUI
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import KitbagError
from kitbag.library.scopes import Places
from kitbag.permissions.trust.workspace_items import count_items
from kitbag.permissions.trust.workspace_trust import TrustChange, WorkspaceTrust, check_trust, trust_workspace
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import format_count
from kitbag.views import trust as trust_words
from kitbag.views.blocks import Block, DiffBlock, LinesBlock, NoticeBlock, Span, VerbatimBlock, text_block

TrustChoice = Literal["nothing", "trusted", "once", "without", "leave"]
"""`nothing`: no need to ask. `once`: for this run only. `without`: continue and omit the folder's content."""


class TrustAnswer(msgspec.Struct, frozen=True):
    choice: TrustChoice
    fingerprint: str = ""
    """For `once`: trusts this content only, also after a reload."""


_MAX_LINES: Final = 14
_MAX_OTHER_ENTRIES: Final = 3
"""Entries of each kind after the first, the most dangerous one: the question must stay visible below them."""
_MAX_LINE_LENGTH: Final = 200


async def ask_for_trust(ui: ChatUI, places: Places) -> TrustAnswer:
    trust = await asyncio.to_thread(check_trust, places)
    if trust.can_load_items:
        return TrustAnswer("nothing" if trust.state == "nothing" else "trusted")
    if not ui.can_ask:
        return TrustAnswer("without")  # the agent's notice counts what is omitted
    form = trust_form(trust)
    while True:
        form_answer = await ui.ask(form)
        match form_answer.keys if form_answer is not None else ():
            case ("t",) if trust.is_complete:
                notice = await asyncio.to_thread(_save, places, trust)
                if notice is not None:
                    ui.show(notice)
                if notice is None or notice.severity != "error":
                    return TrustAnswer("trusted")
                # Saving would fail again.
                trust = msgspec.structs.replace(trust, is_complete=False)
                form = msgspec.structs.replace(form, above=(), options=_options(trust, is_truncated=True))
            case ("o",):
                return TrustAnswer("once", trust.fingerprint)
            case ("q",):
                return TrustAnswer("leave")
            case ("e",):
                form = msgspec.structs.replace(
                    form, above=trust_blocks(trust, whole=True), options=_options(trust, is_truncated=False)
                )
            case _:
                return TrustAnswer("without")


def _save(places: Places, trust: WorkspaceTrust) -> NoticeBlock | None:
    try:
        notice = trust_workspace(places, trust)
    except KitbagError as error:
        return NoticeBlock("error", error.problem, error.fix)
    return NoticeBlock("warning", notice) if notice else None


def trust_form(trust: WorkspaceTrust) -> Form:
    above = trust_blocks(trust, whole=False)
    options = _options(trust, is_truncated=above != trust_blocks(trust, whole=True))
    return Form(prompt="Trust this workspace?", options=options, above=above, cancel_effect="continue without trusting")


def _options(trust: WorkspaceTrust, *, is_truncated: bool) -> tuple[FormOption, ...]:
    note = "allow what is listed, under your rules, until it changes"
    options = [FormOption(key="t", label="trust", note=note)] if trust.is_complete else []
    options += [
        FormOption(key="o", label="trust once", note="for this session only"),
        FormOption(key="n", label="don't trust", note="start without its skills, agents and settings"),
    ]
    options += [FormOption(key="e", label="show everything")] if is_truncated else []
    return (*options, FormOption(key="q", label="exit"))


def trust_blocks(trust: WorkspaceTrust, *, whole: bool) -> tuple[Block, ...]:
    """`whole`: everything; otherwise about one screen, with the number of omitted entries."""
    tone = "bad" if trust.state == "changed" else "warning"
    blocks: list[Block] = [
        LinesBlock(((Span(trust.root, "strong"), Span(f" {trust_words.STATE_LABELS[trust.state]}", tone)),))
    ]
    if trust.items:
        blocks.append(text_block(f"Contains {count_items(trust.items)}."))
    budget = _LineBudget(whole)
    if trust.state == "changed":
        blocks += _changes(trust.changes, budget)
    for number, group in enumerate(trust_words.list_trust_groups(trust)):
        title = f"{group.heading} ({len(group.entries):,})"
        entries = [_entry(entry, whole) for entry in group.entries]
        blocks += budget.fit(title, entries, len(entries) if whole or number == 0 else _MAX_OTHER_ENTRIES)
    if trust.items and not any(item.capabilities for item in trust.items):
        blocks.append(text_block(trust_words.TEXT_ONLY_NOTE))
    unreadable = [f"{item.path}: {item.problem}" for item in trust.items if item.problem]
    if unreadable:
        blocks += budget.fit(f"{trust_words.UNREADABLE_HEADING} ({len(unreadable):,})", [[line] for line in unreadable])
    if not trust.is_complete:
        blocks.append(text_block(trust_words.INCOMPLETE_HEADING, "bad"))
    if trust.problems:
        blocks.append(VerbatimBlock("\n".join(trust.problems)))
    return tuple(blocks)


class _LineBudget:
    """Lines left on the first screen."""

    def __init__(self, whole: bool) -> None:
        self._lines_left = 1 << 40 if whole else _MAX_LINES

    def fit(self, title: str, entries: list[list[str]], limit: int = 1 << 40) -> list[Block]:
        """As many entries as fit, at most `most`. The title shows their number even if none fits."""
        shown: list[str] = []
        number = 0
        for entry in entries[:limit]:
            if not self._lines_left:
                break
            more = len(entry) - self._lines_left
            shown += entry if more <= 0 else [*entry[: self._lines_left], f"[{format_count(more, 'more line')}]"]
            self._lines_left = max(0, -more)
            number += 1
        blocks: list[Block] = [VerbatimBlock("\n".join(shown), title)] if shown else [text_block(title, "strong")]
        if number < len(entries) and shown:
            blocks.append(text_block(f"{len(entries) - number:,} more", "dim"))
        return blocks


def _entry(entry: trust_words.TrustEntry, whole: bool) -> list[str]:
    path_shown = f"{entry.place}{f'  ({entry.note})' if entry.note else ''}"
    lines = trust_words.safe_lines(entry.text)
    if whole:
        return [path_shown, *(f"    {line}" for line in lines)]
    first = lines[0][:_MAX_LINE_LENGTH]
    rest = sum(map(len, lines)) - len(first)
    return [f"{first}{f' [{rest:,} more characters]' if rest else ''}  ({entry.place})"]


def _changes(changes: Iterable[TrustChange], budget: _LineBudget) -> list[Block]:
    rows: list[list[str]] = []
    for change in changes:
        path_shown, description = trust_words.describe_change(change)
        name = f"{trust_words.safe_lines(collapse_whitespace(path_shown))[0]} ({description})"
        old, new = (trust_words.safe_lines(text) if text else [] for text in (change.old, change.new))
        # The counts delimit the change, whatever its text looks like.
        lines = [f"--- {name}", f"+++ {name}", f"@@ -{change.line},{len(old)} +{change.line},{len(new)} @@"]
        rows.append([*lines, *(f"-{line}" for line in old), *(f"+{line}" for line in new)])
    blocks = budget.fit(f"{trust_words.CHANGED_HEADING} ({format_count(len(rows), 'change')})", rows)
    first = blocks[0]
    if isinstance(first, VerbatimBlock):
        return [text_block(first.title, "strong"), DiffBlock(first.text), *blocks[1:]]
    return blocks
