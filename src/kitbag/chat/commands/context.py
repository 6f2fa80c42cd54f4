"""`/context`: shows what fills the context window, when it is compacted, and the biggest pieces."""

import asyncio
from typing import Any, Final

from kitbag.chat.commands import CommandContext
from kitbag.runtime.context_report import prepare_agent_report
from kitbag.text.human_format import shorten_path
from kitbag.views.blocks import Bar, BarsBlock, Block, NoticeBlock, TableBlock, text_block
from kitbag.views.context import describe_last_request, describe_skill_tokens

_SHARES: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("memory", frozenset(("memory",))),
    ("catalogs", frozenset(("catalog",))),
    ("tools", frozenset(("tool",))),
    ("loaded skills", frozenset(("skill", "one-message", "preload"))),
    ("results", frozenset(("result", "agent"))),
    (
        "messages",
        frozenset(("user", "changes", "suggestions", "summary", "image", "reply", "thinking", "call", "stub")),
    ),
)
"""Every other kind is part of the system prompt."""
_MAX_PIECES: Final = 10


async def context_command(chat: CommandContext, arguments: str) -> None:
    del arguments
    report = await asyncio.to_thread(prepare_agent_report(chat.agent))
    chat.show(context_bars(report), *_biggest(report))
    if totals := describe_skill_tokens(report):
        chat.show(text_block(f"skills: {totals} · list them with /skills", "dim"))
    if last_request := describe_last_request(report):
        chat.show(text_block(last_request, "dim"))
    chat.show(*(NoticeBlock("warning", warning) for warning in report["warnings"]))


def context_bars(report: dict[str, Any]) -> BarsBlock:
    """Takes the report of runtime/context_report. The bars add up to the window, or to what is in it if that is
    more."""
    used, window = report["tokens"], report["window"]
    sums = dict.fromkeys(("system prompt", *(label for label, _ in _SHARES)), 0)
    for row in report["groups"]:
        label = next((label for label, kinds in _SHARES if row["kind"] in kinds), "system prompt")
        sums[label] += row["tokens"]
    bars = [Bar(label=label, tokens=tokens) for label, tokens in sums.items() if tokens]
    # The rest is free: the space until the session is compacted.
    free = min(report["left"], max(window - used, 0))
    reserved = max(window - used - free, 0)
    bars.append(Bar(label="reserved", tokens=reserved, is_reserved=True, note="for the reply and compaction"))
    share_used = used / window if window else 0.0
    title = f"{used:,} of {window:,} tokens, {share_used:.1%} of the context window of {report['model']}"
    foot = f"{free:,} tokens left before compaction at {report['compacted_at']:,}"
    return BarsBlock(
        bars=tuple(bars),
        whole=max(window, used),
        title=title,
        foot=foot if free else "the session will be compacted before the next request",
    )


def _biggest(report: dict[str, Any]) -> list[Block]:
    rows = sorted(report["groups"], key=lambda row: -row["tokens"])[:_MAX_PIECES]
    if not rows:
        return []
    cells = tuple((row["kind"], f"{row['tokens']:,}", f"{row['bytes']:,}", _name(row)) for row in rows)
    more = len(report["groups"]) - len(cells)
    foot = f"{more:,} smaller ones in `kitbag context` · show the prompt with /env" if more else ""
    return [TableBlock(headers=("KIND", "TOKENS", "BYTES", "NAME"), rows=cells, title="Largest parts", foot=foot)]


def _name(row: dict[str, Any]) -> str:
    name = shorten_path(row["name"])
    return f"{name} ({row['count']} times)".lstrip() if row["count"] > 1 else name
