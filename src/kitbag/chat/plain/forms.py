"""A form as lines, and what was typed as its answer. Used by the plain face."""

import re
from collections.abc import Callable

from kitbag.chat.ui import Filled, Form

_BETWEEN = re.compile(r"[\s,;]+")


def question_lines(form: Form, clean: Callable[[str], str]) -> list[str]:
    lines = [f"question: {clean(form.prompt)}"]
    for option in form.options:
        note = f" ({clean(option.note)})" if option.note else ""
        lines.append(f"{clean(option.key)}: {clean(option.label)}{note}")
    return [*lines, _how(form, clean)]


def _how(form: Form, clean: Callable[[str], str]) -> str:
    parts: list[str] = []
    if form.options:
        keys = ", ".join(clean(option.key) for option in form.options)
        several = ", one or several with commas between" if form.several else ""
        parts.append(f"type {keys}{several}" if len(form.options) > 1 else f"type {keys}")
    if form.free:
        parts.append(f"{'or ' if parts else ''}type words of your own: {clean(form.free)}")
    if form.secret:
        parts.append("what you type is not shown")
    if form.default:
        parts.append(f"Enter alone is {clean(form.default)}")
    elif form.free and form.text and not form.secret:
        parts.append(f"Enter alone keeps: {clean(form.text)}")
    return "; ".join([*parts, f"Ctrl-C {form.leaving or 'leaves the question'}"])


def answer_to(form: Form, typed: str) -> Filled | str:
    """Or what is wrong with it."""
    typed = typed.strip()
    keys = {option.key.casefold(): option.key for option in form.options}
    if not typed:
        if form.default:
            return Filled((form.default,))
        if form.free and form.text:
            return Filled(text=form.text)
        return "nothing was typed: " + _choices(form)
    if typed.casefold() in keys:
        return Filled((keys[typed.casefold()],))
    if form.several:
        wanted = [word.casefold() for word in _BETWEEN.split(typed) if word]
        if wanted and all(word in keys for word in wanted):
            return Filled(tuple(dict.fromkeys(keys[word] for word in wanted)))
    labels = [option.key for option in form.options if option.label.casefold() == typed.casefold()]
    if len(labels) == 1:
        return Filled((labels[0],))
    if form.free or not form.options:
        return Filled(text=typed)
    return f"{typed} is none of the answers: " + _choices(form)


def _choices(form: Form) -> str:
    keys = ", ".join(option.key for option in form.options)
    own = "words of your own" if form.free or not form.options else ""
    return "type " + " or ".join(part for part in (keys, own) if part)
