"""Asks for one of a provider's models: by number, by name, or by part of a name. Used by setup."""

from typing import Final

from kitbag.chat.ui import ChatUI, Form, FormOption
from kitbag.errors import KitbagError
from kitbag.models.catalog import model_aliases
from kitbag.models.list_models import list_models
from kitbag.runtime.connect_model import ModelSetup, preview_sources
from kitbag.text.human_format import format_count
from kitbag.views.blocks import Block, NoticeBlock, text_block

_MOST: Final = 15
_LONGEST: Final = 200


async def ask_for_model(ui: ChatUI, kitbag_home: str, wanted: ModelSetup) -> str:
    """Empty if the user goes back."""
    known = list(dict.fromkeys(model_aliases(wanted.provider).get(word, "") for word in ("default", "opus", "fast")))
    usual = [name for name in known if name]
    try:
        offered = await list_models(wanted.provider, preview_sources(kitbag_home, wanted))
    except KitbagError as error:
        ui.show(NoticeBlock("error", error.problem, error.fix))
        return ""
    # Recommended models come first if the provider offers them.
    best = [name for name in usual if not offered or any(one.startswith(name) for one in offered)]
    every = list(dict.fromkeys((*best, *offered)))
    shown, above = every, _describe_offered(offered, every)
    while True:
        options = tuple(FormOption(str(at), name) for at, name in enumerate(shown[:_MOST], 1))
        form = Form(
            "Which model?", options, above, free_text_hint="its name, or a part of it", default="1" if options else ""
        )
        filled = await ui.ask(form)
        if filled is None:
            return ""
        if filled.keys:
            return shown[int(filled.keys[0]) - 1]
        name = filled.text.strip().removeprefix(f"{wanted.provider}/")
        if not name:
            return ""
        matching = [one for one in every if name.lower() in one.lower()]
        if name in every or not matching:
            if len(name) <= _LONGEST and name.isprintable() and not any(char.isspace() for char in name):
                return name
            above = (NoticeBlock("error", "a model's name has no blanks"),)
            continue
        shown, above = matching, (text_block(f"{format_count(len(matching), 'model')} with {name} in the name", "dim"),)


def _describe_offered(offered: list[str], every: list[str]) -> tuple[Block, ...]:
    if not offered:
        return (text_block("the provider did not list its models; any name can be written", "dim"),)
    more = f"; the first {_MOST} are shown" if len(every) > _MOST else ""
    return (text_block(f"it offers {format_count(len(offered), 'model')}{more}", "dim"),)
