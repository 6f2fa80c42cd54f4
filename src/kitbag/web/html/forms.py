"""Renders a question to the user as an HTML form.

Used by the web UI for approvals, the model's questions and the chat's own. Options are plain buttons, not submit
buttons: Enter in a text field can't choose one.
"""

from typing import Final

from kitbag.dialogs.form import Form, FormOption
from kitbag.views.rendering.render import MAX_USER_CHARS, limit_text
from kitbag.views.rendering.styled_text import Cleaner
from kitbag.web.html.blocks import Redact, block_html
from kitbag.web.html.elements import EMPTY, Attribute, Html, element

_EXACT: Final = Cleaner(str, keeps_tabs=True)
"""For what is sent back: secrets are not redacted."""


def render_form(form: Form, form_id: str, redact: Redact) -> str:
    clean = Cleaner(redact, keeps_tabs=True)
    form_id = _EXACT.line(form_id)
    scrolled: dict[str, Attribute] = {"tabindex": 0, "role": "group", "aria-label": "Details"}
    above = element("div", *(block_html(block, clean) for block in form.above), css="above", attributes=scrolled)
    prompt = clean.text(limit_text(form.prompt, MAX_USER_CHARS))
    options = element(
        "div",
        *(_option(option, at, form, form_id, clean) for at, option in enumerate(form.options)),
        css="options",
    )
    fields = element(
        "fieldset",
        element("legend", prompt),
        options if form.options else EMPTY,
        _text_field(form, form_id, clean) if _takes_text(form) else EMPTY,
        element("div", *_actions(form, clean), css="actions"),
    )
    # `dialog`: if no script handles the form, nothing is sent anywhere.
    attributes: dict[str, Attribute] = {"data-form-id": form_id, "method": "dialog", "autocomplete": "off"}
    return element(
        "form",
        above if form.above else EMPTY,
        fields,
        css="question multiple" if form.multiple else "question",
        attributes=attributes,
    )


def _takes_text(form: Form) -> bool:
    return bool(form.free_text_hint or form.secret or form.initial_text)


def _option(option: FormOption, at: int, form: Form, form_id: str, clean: Cleaner) -> Html:
    label = clean.line(option.label) + ("…" if option.continues else "")
    parts = (
        element("kbd", clean.line(option.key)),
        element("span", label, css="option-label"),
        element("span", clean.line(option.note), css="option-note") if option.note else EMPTY,
    )
    attributes: dict[str, Attribute] = {
        "name": "key",
        "value": _EXACT.line(option.key),
        "data-default": bool(form.default) and option.key == form.default,
    }
    if form.multiple:
        name = f"{form_id}-option-{at}"
        box = element("input", attributes={"type": "checkbox", "id": name, **attributes})
        choice = element("label", box, *parts, css="option-choice", attributes={"for": name})
    else:
        choice = element("button", *parts, css="option-choice", attributes={"type": "button", **attributes})
    return element("div", choice, _preview(option.preview, clean), css="option")


def _preview(text: str, clean: Cleaner) -> Html:
    if not text.strip():
        return EMPTY
    shown = clean.text(limit_text(text, MAX_USER_CHARS)).strip("\n")
    return element("details", element("summary", "Preview"), element("pre", shown, css="pre"), css="preview")


def _text_field(form: Form, form_id: str, clean: Cleaner) -> Html:
    """What the user edits is not redacted: it is sent back as it stands here."""
    name = f"{form_id}-text"
    hint = clean.line(form.free_text_hint) or "Your answer"
    text = "" if form.secret else _EXACT.text(form.initial_text)
    attributes: dict[str, Attribute] = {"id": name, "name": "text", "autocomplete": "off", "spellcheck": "false"}
    if "\n" in text:
        field = element("textarea", text, attributes={**attributes, "rows": min(text.count("\n") + 2, 12)})
    else:
        kind = "password" if form.secret else "text"
        field = element("input", attributes={**attributes, "type": kind, "value": text})
    return element("div", element("label", hint, attributes={"for": name}), field, css="field")


def _actions(form: Form, clean: Cleaner) -> list[Html]:
    effect = clean.line(form.cancel_effect) or "cancel"
    cancel = element(
        "button",
        effect[:1].upper() + effect[1:],
        element("kbd", "Esc"),
        css="button ghost",
        attributes={"type": "button", "name": "cancel", "value": "cancel"},
    )
    if not form.multiple and not _takes_text(form):
        return [cancel]
    confirm = element(
        "button",
        "Confirm" if form.multiple else "Send",
        css="button primary",
        attributes={"type": "submit", "name": "send", "value": "send"},
    )
    return [confirm, cancel]
