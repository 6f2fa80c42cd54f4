"""Asks for one of a provider's models: by number, by name, or by part of a name. Used by setup."""

from typing import Final

from kitbag.chat.ui import ChatUI, Form, FormOption
from kitbag.errors import KitbagError
from kitbag.models.catalog import model_aliases
from kitbag.models.list_models import list_models
from kitbag.runtime.connect_model import ModelSetup, preview_sources
from kitbag.text.human_format import format_count
from kitbag.views.blocks import Block, NoticeBlock, text_block

_MAX_SHOWN: Final = 15
_MAX_NAME_LENGTH: Final = 200


async def ask_for_model(ui: ChatUI, kitbag_home: str, model_setup: ModelSetup) -> str:
    """Empty if the user goes back."""
    alias_targets = list(
        dict.fromkeys(model_aliases(model_setup.provider).get(word, "") for word in ("default", "opus", "fast"))
    )
    known_models = [name for name in alias_targets if name]
    try:
        offered = await list_models(model_setup.provider, preview_sources(kitbag_home, model_setup))
    except KitbagError as error:
        ui.show(NoticeBlock("error", error.problem, error.fix))
        return ""
    # Recommended models come first if the provider offers them.
    recommended = [name for name in known_models if not offered or any(one.startswith(name) for one in offered)]
    all_models = list(dict.fromkeys((*recommended, *offered)))
    shown, above = all_models, _describe_offered(offered, all_models)
    while True:
        options = tuple(FormOption(str(at), name) for at, name in enumerate(shown[:_MAX_SHOWN], 1))
        form = Form(
            prompt="Which model?",
            options=options,
            above=above,
            free_text_hint="its name, or a part of it",
            default="1" if options else "",
        )
        form_answer = await ui.ask(form)
        if form_answer is None:
            return ""
        if form_answer.keys:
            return shown[int(form_answer.keys[0]) - 1]
        name = form_answer.text.strip().removeprefix(f"{model_setup.provider}/")
        if not name:
            return ""
        matching = [one for one in all_models if name.lower() in one.lower()]
        if name in all_models or not matching:
            if len(name) <= _MAX_NAME_LENGTH and name.isprintable() and not any(char.isspace() for char in name):
                return name
            above = (NoticeBlock("error", "a model's name has no blanks"),)
            continue
        shown, above = matching, (text_block(f"{format_count(len(matching), 'model')} with {name} in the name", "dim"),)


def _describe_offered(offered: list[str], all_models: list[str]) -> tuple[Block, ...]:
    if not offered:
        return (text_block("the provider did not list its models; any name can be written", "dim"),)
    more = f"; the first {_MAX_SHOWN} are shown" if len(all_models) > _MAX_SHOWN else ""
    return (text_block(f"it offers {format_count(len(offered), 'model')}{more}", "dim"),)
