"""Asks the person in the chat whether something may be done, in the place where it is to be done.

Used by start for the agent's own questions, and by whoever puts a question of background work. What can be said is in
permissions/question_words. Nothing is allowed by Enter alone, and to leave the question is no.
"""

import re
from typing import Final

from kitbag.chat.blocks import Block, Diff, Line, Lines, Remark, Span, Verbatim
from kitbag.chat.change_preview import SHOWN_IN_DIFF, change_preview
from kitbag.chat.face import Face, Filled, Form, Option, Shown, at_once
from kitbag.permissions.approvals import Answer, Question
from kitbag.permissions.question_view import MOST, View, view
from kitbag.permissions.question_words import RULE_EXAMPLE, RULE_PROMPT, choices, is_cut, rule_problem

_PLAIN_PATH: Final = re.compile(r"[\w./@+-]+", re.ASCII)
LEFT: Final = Answer("deny")
"""The run goes on, and the model is told that the person said no."""


class ChatApprover:
    """An Approver."""

    one_at_a_time = True

    def __init__(self, face: Face, shown: Shown = at_once) -> None:
        self._face = face
        self._shown = shown

    async def ask(self, question: Question) -> Answer:
        await self._shown()
        return await ask_approval(self._face, question) or LEFT


async def ask_approval(
    face: Face, question: Question, *, may_allow: bool = True, can_wait: bool = False
) -> Answer | None:
    """The whole dialogue, up to an answer. None: the person left it. `may_allow`: else it can only be denied.
    `can_wait`: one that is left is asked again later."""
    form = approval_form(question, may_allow=may_allow, can_wait=can_wait)
    while True:
        filled = await face.ask(form)
        if filled is None:
            return None
        if may_allow or not {"y", "s", "r"} & {*filled.keys}:
            answer = answer_of(question, filled) or await _answer_in_words(face, question, filled)
            if answer is not None:
                return answer
        # Asked again without what stands above already, unless it is to be seen whole.
        form = form._replace(above=_above(view(question, most=None)) if "e" in filled.keys else ())


def approval_form(question: Question, *, may_allow: bool = True, can_wait: bool = False) -> Form:
    found = view(question, MOST)
    changes = change_preview(question)
    offered = [choice for choice in choices(question) if may_allow or choice.key == "n"]
    options = [Option(choice.key, choice.words) for choice in offered]
    options.append(Option("w", "no, and tell it why"))
    if changes or is_cut(question):
        options.append(Option("e", "show exactly what it was asked for" if changes else "show all of it"))
    prompt = "Allow it?" if may_allow else "It can only be denied."
    prompt += " Esc lets it wait." if can_wait else " Esc is no."
    return Form(prompt, tuple(options), _above(found, changes))


def answer_of(question: Question, filled: Filled) -> Answer | None:
    """None: that is no answer yet; more is to be shown, or words are to be asked for."""
    text = filled.text.strip()
    match filled.keys:
        case ("y",):
            return Answer("allow")
        case ("s",):
            return Answer("allow", "session", question.suggestion)
        case ("r",) if text and not rule_problem(text):
            return Answer("allow", "rule", text)
        case ("n",):
            return Answer("deny", reason=text)
        case ("w",) if text:
            return Answer("deny", reason=text)
        case _:
            return None


async def _answer_in_words(face: Face, question: Question, filled: Filled) -> Answer | None:
    """What needs a second form: a rule, or a reason. None: back to the question."""
    if filled.keys == ("r",):
        return await _ask_for_rule(face, question)
    if filled.keys == ("w",):
        reason = await face.ask(Form("Why not, or what to do instead:", free="the model is told this"))
        return answer_of(question, Filled(("w",), reason.text)) if reason is not None else None
    return None


async def _ask_for_rule(face: Face, question: Question) -> Answer | None:
    text, above = question.suggestion, ()
    while True:
        form = Form(f"{RULE_PROMPT.capitalize()}:", above=above, free=f"such as `{RULE_EXAMPLE}`", text=text)
        filled = await face.ask(form)
        text = filled.text.strip() if filled is not None else ""
        if not text:
            return None
        problem = rule_problem(text)
        if not problem:
            return answer_of(question, Filled(("r",), text))
        above = (Remark("error", problem),)


def _is_in_diff(name: str, value: list[str]) -> bool:
    """Whether a diff tells all of it. Its head tells the path, but not of each that it is no more than a path."""
    if name == "file_path":
        return len(value) == 1 and _PLAIN_PATH.fullmatch(value[0]) is not None
    return name.removesuffix(" (JSON)") in SHOWN_IN_DIFF


def _above(found: View, changes: str = "") -> tuple[Block, ...]:
    """What the action is stands in blocks of its own, so that no line of it passes for one of ours."""
    lines: list[Line] = [(Span(found.head[0], "strong"),), *((Span(line),) for line in found.head[1:])]
    blocks: list[Block] = [Lines(tuple(lines))]
    for name, value in found.arguments:
        if not changes or not _is_in_diff(name, value):
            blocks.append(Verbatim("\n".join(value), name))
    if changes:
        blocks.append(Diff(changes))
    blocks.append(Lines(tuple((Span(line, "dim"),) for line in found.why)))
    if found.warnings:
        warned = ("look out:", *(f"  {warning}" for warning in found.warnings))
        blocks.append(Lines(tuple((Span(line, "warning"),) for line in warned)))
    return tuple(blocks)
