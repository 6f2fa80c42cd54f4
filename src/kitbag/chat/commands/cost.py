"""`/cost`: shows the tokens and the cost of the session."""

from kitbag.chat.commands import CommandContext
from kitbag.text.human_format import format_cost
from kitbag.views.blocks import FieldsBlock, NoticeBlock


async def cost_command(chat: CommandContext, arguments: str) -> None:
    del arguments
    totals, background = chat.agent.session.totals, chat.background.cost
    usage = totals.usage
    total = None if background is None else totals.cost + background
    fields = (
        ("model", chat.agent.chosen.name),
        ("requests", f"{totals.turns:,}"),
        ("input", f"{usage.total_input:,} tokens"),
        ("from cache", f"{usage.cache_read:,} tokens"),
        ("output", f"{usage.output:,} tokens"),
        ("cost", format_cost(totals.cost)),
        ("background", format_cost(background) if background != 0 else ""),
        ("total", format_cost(total) if background != 0 else ""),
    )
    chat.show(FieldsBlock(fields, "Cost of this session"))
    if totals.unpriced:
        fix = "add its price to your settings, see docs/running.md"
        chat.show(NoticeBlock("warning", "the price of a model is unknown, so the cost is too low", fix))
