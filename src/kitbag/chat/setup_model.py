"""Which of a provider's models: from what it offers, by number, by name, or by a part of a name.

Used by setup.
"""

from typing import Final

from kitbag.chat.ui import Face, Form, Option
from kitbag.errors import KitbagError
from kitbag.models.catalog import aliases
from kitbag.models.list_models import list_models
from kitbag.runtime.connect_model import Wanted, sources_with
from kitbag.text.human_format import count
from kitbag.views.blocks import Block, Remark, words

_MOST: Final = 15
_LONGEST: Final = 200


async def ask_for_model(face: Face, kitbag_home: str, wanted: Wanted) -> str:
    """Empty: the person went back."""
    known = list(dict.fromkeys(aliases(wanted.provider).get(word, "") for word in ("default", "opus", "fast")))
    usual = [name for name in known if name]
    try:
        offered = await list_models(wanted.provider, sources_with(kitbag_home, wanted))
    except KitbagError as error:
        face.show(Remark("error", error.problem, error.fix))
        return ""
    # What is known to be good here comes first, if it is offered.
    best = [name for name in usual if not offered or any(one.startswith(name) for one in offered)]
    every = list(dict.fromkeys((*best, *offered)))
    shown, above = every, _told(offered, every)
    while True:
        options = tuple(Option(str(at), name) for at, name in enumerate(shown[:_MOST], 1))
        form = Form("Which model?", options, above, free="its name, or a part of it", default="1" if options else "")
        filled = await face.ask(form)
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
            above = (Remark("error", "a model's name has no blanks"),)
            continue
        shown, above = matching, (words(f"{count(len(matching), 'model')} with {name} in the name", "dim"),)


def _told(offered: list[str], every: list[str]) -> tuple[Block, ...]:
    if not offered:
        return (words("the provider did not list its models; any name can be written", "dim"),)
    more = f"; the first {_MOST} are shown" if len(every) > _MOST else ""
    return (words(f"it offers {count(len(offered), 'model')}{more}", "dim"),)
