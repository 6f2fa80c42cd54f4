"""Renders a form as lines and parses the typed answer. Used by plain_ui."""

import re
from collections.abc import Callable

from kitbag.dialogs.form import Form, FormAnswer
from kitbag.text.hidden_characters import collapse_whitespace

_SEPARATORS = re.compile(r"[\s,;]+")


def form_lines(form: Form, clean: Callable[[str], str]) -> list[str]:
    lines = [f"question: {clean(form.prompt)}"]
    for option in form.options:
        note = f" ({collapse_whitespace(clean(option.note))})" if option.note else ""
        lines.append(f"{clean(option.key)}: {clean(option.label)}{note}")
    return [*lines, _instructions(form, clean)]


def _instructions(form: Form, clean: Callable[[str], str]) -> str:
    parts: list[str] = []
    if form.options:
        keys = ", ".join(clean(option.key) for option in form.options)
        several = " (one or more, separated by commas)" if form.multiple else ""
        parts.append(f"type {keys}{several}" if len(form.options) > 1 else f"type {keys}")
    if form.free_text_hint:
        parts.append(f"{'or ' if parts else ''}type {clean(form.free_text_hint)}")
    if form.secret:
        parts.append("input is hidden")
    if form.default:
        parts.append(f"press Enter for {clean(form.default)}")
    elif form.free_text_hint and form.initial_text and not form.secret:
        parts.append(f"press Enter to keep {clean(form.initial_text)}")
    return "; ".join([*parts, f"Ctrl-C to {form.cancel_effect or 'cancel'}"])


def parse_form_answer(form: Form, typed: str) -> FormAnswer | str:
    """Returns the answer, or the problem with it."""
    typed = typed.strip()
    keys = {option.key.casefold(): option.key for option in form.options}
    if not typed:
        if form.default:
            return FormAnswer((form.default,))
        if form.free_text_hint and form.initial_text:
            return FormAnswer(text=form.initial_text)
        return "nothing entered; " + _choices(form)
    if typed.casefold() in keys:
        return FormAnswer((keys[typed.casefold()],))
    if form.multiple:
        selected = [word.casefold() for word in _SEPARATORS.split(typed) if word]
        if selected and all(word in keys for word in selected):
            return FormAnswer(tuple(dict.fromkeys(keys[word] for word in selected)))
    labels = [option.key for option in form.options if option.label.casefold() == typed.casefold()]
    if len(labels) == 1:
        return FormAnswer((labels[0],))
    if form.free_text_hint or not form.options:
        return FormAnswer(text=typed)
    return f"invalid answer {typed}; " + _choices(form)


def _choices(form: Form) -> str:
    keys = ", ".join(option.key for option in form.options)
    free_text = "your own answer" if form.free_text_hint or not form.options else ""
    return "type " + " or ".join(part for part in (keys, free_text) if part)
