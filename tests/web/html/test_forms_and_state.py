"""Forms, the live state and the status bar."""

from kitbag.chat.ui import ChatStatus, LiveState, RunningCall
from kitbag.dialogs.form import Form, FormOption
from kitbag.views.blocks import text_block
from kitbag.web.html.chat_state import render_live, render_status
from kitbag.web.html.forms import render_form
from web.html.parsed import Parsed, parse

OPTIONS = (FormOption(key="y", label="Yes"), FormOption(key="n", label="No", note="stops", preview="what happens"))


def _form(form: Form) -> Parsed:
    return parse(render_form(form, "f1", str))


def test_options_are_buttons_that_enter_in_a_field_cannot_press() -> None:
    shown = _form(Form(prompt="Run it?", options=OPTIONS, free_text_hint="or say why"))
    buttons = [button for button in shown.named("button") if button["name"] == "key"]
    assert [button["value"] for button in buttons] == ["y", "n"]
    assert {button["type"] for button in buttons} == {"button"}
    assert [button["name"] for button in shown.named("button") if button["type"] == "submit"] == ["send"]
    assert "what happens" in shown.text


def test_only_the_default_option_gets_the_focus() -> None:
    shown = _form(Form(prompt="Run it?", options=OPTIONS, default="n", free_text_hint="x"))
    assert [attributes["value"] for _, attributes in shown.elements if "data-default" in attributes] == ["n"]
    without = _form(Form(prompt="Run it?", options=OPTIONS, free_text_hint="x"))
    assert not [attributes for _, attributes in without.elements if "data-default" in attributes]


def test_several_choices_are_checkboxes_and_none_is_checked() -> None:
    shown = _form(Form(prompt="Which?", options=OPTIONS, multiple=True, default="y"))
    assert [box["value"] for box in shown.named("input")] == ["y", "n"]
    assert {label["for"] for label in shown.named("label")} == {box["id"] for box in shown.named("input")}


def test_a_secret_is_neither_shown_nor_prefilled() -> None:
    field = _form(Form(prompt="Key", free_text_hint="your key", secret=True, initial_text="hunter2")).named("input")[0]
    assert field["type"] == "password"
    assert field["value"] == ""


def test_text_to_edit_is_sent_back_unchanged_so_it_is_not_redacted() -> None:
    form = Form(prompt="Edit", free_text_hint="the command", initial_text="deploy --key k")
    shown = parse(render_form(form, "f1", lambda text: text.replace("--key k", "[redacted]")))
    assert shown.named("input")[0]["value"] == "deploy --key k"
    several = _form(Form(prompt="Edit", free_text_hint="text", initial_text="\none\ntwo"))
    assert "\n\none\ntwo" in several.text or "\none\ntwo" in several.text
    assert several.named("textarea")


def test_the_form_says_what_cancel_does_and_shows_what_it_is_about() -> None:
    shown = _form(Form(prompt="Run it?", options=OPTIONS, cancel_effect="deny", above=(text_block("rm -r x"),)))
    assert "Deny" in shown.text
    assert "rm -r x" in shown.text
    assert shown.named("form")[0]["data-form-id"] == "f1"


def test_the_live_state_tells_how_long_ago_things_began() -> None:
    live = LiveState(
        activity="writing",
        started_at=10.0,
        tail="half a **sen",
        running=(RunningCall(name="Bash", title="make", progress="12 lines", started_at=14.5),),
        queued=("later",),
        steering=("sooner",),
        todos=(("completed", "a"), ("in_progress", "b"), ("odd", "c")),
    )
    shown = parse(render_live(live, str, now=20.0))
    assert [span["data-started-ago"] for _, span in shown.with_class("elapsed")] == ["5.5", "10.0"]
    for text in ("half a **sen", "Bash", "12 lines", "later", "sooner", "writing"):
        assert text in shown.text
    assert [box["aria-label"] for _, box in shown.with_class("task-box")] == ["done", "in progress", "to do"]


def test_an_idle_chat_has_no_live_state() -> None:
    assert render_live(LiveState(), str) == ""


def test_the_status_shows_the_context_in_words_and_as_a_meter() -> None:
    shown = parse(render_status(ChatStatus(model="m", mode="plan", used=50, window=200, cost=None, questions=2)))
    assert "25%" in shown.text
    assert "2 approvals pending" in shown.text
    assert "cost unknown" in shown.text
    assert shown.named("svg")[0]["aria-label"] == "50 of 200 tokens of the context window are used"
    assert render_status(ChatStatus()) == ""
