"""Asks the person in the chat whether something may be done, in the place where it is to be done.

Used by start for the agent's own questions, and by whoever puts a question of background work. What can be said is in
permissions/question_words. Nothing is allowed by Enter alone, and to leave the question is no.
"""

import re
from collections.abc import Sequence
from typing import Final

from kitbag.chat.change_preview import NOTHING, SHOWN_IN_DIFF, Preview, change_preview
from kitbag.chat.ui import Face, Filled, Form, Option, Shown, at_once
from kitbag.errors import KitbagError
from kitbag.permissions.approvals.approval import Answer, Question
from kitbag.permissions.approvals.choices import RULE_EXAMPLE, RULE_PROMPT, choices, is_cut, rule_problem
from kitbag.permissions.approvals.question_view import MOST, View, view
from kitbag.views.blocks import Block, Diff, Lines, Remark, Span, Tone, Verbatim

_PLAIN_PATH: Final = re.compile(r"[\w./@+-]+", re.ASCII)
_LONGEST: Final = 1_000
LEFT: Final = Answer("deny")
"""The run goes on, and the model is told that the person said no."""


class NotAnsweredError(KitbagError):
    """Nobody is there, which is not the same as no."""


class ChatApprover:
    """An Approver."""

    one_at_a_time = True

    def __init__(self, face: Face, shown: Shown = at_once) -> None:
        self._face = face
        self._shown = shown

    async def ask(self, question: Question) -> Answer:
        await self._shown()
        answer = await ask_approval(self._face, question)
        if answer is None and not self._face.can_ask:
            raise NotAnsweredError("the input is no terminal")
        return answer or LEFT


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
    if changes.diff or is_cut(question):
        options.append(Option("e", "show exactly what it was asked for" if changes.diff else "show all of it"))
    prompt = "Allow it?" if may_allow else "It can only be denied."
    leaving = "lets it wait" if can_wait else "is no"
    return Form(prompt, tuple(options), _above(found, changes), leaving=leaving)


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


def _above(found: View, changes: Preview = NOTHING) -> tuple[Block, ...]:
    """What the action is stands in blocks of its own, so that no line of it passes for one of ours. A diff that is not
    whole takes the place of nothing: what was asked for is shown besides, with its beginning and its end."""
    blocks: list[Block] = [_lines(found.head[:1], "strong"), _lines(found.head[1:])]
    for name, value in found.arguments:
        if not changes.diff or changes.cut or not _is_in_diff(name, value):
            blocks.append(Verbatim("\n".join(value), name, exact=True))
    if changes.diff:
        blocks.append(Diff(changes.diff, exact=True))
    blocks.append(_lines(found.why, "dim"))
    warnings = [f"the diff does not show all of it: {changes.cut}"] if changes.cut else []
    warnings += found.warnings
    if warnings:
        blocks.append(_lines(["look out:", *(f"  {warning}" for warning in warnings)], "warning"))
    return tuple(blocks)


def _lines(texts: Sequence[str], tone: Tone = "plain") -> Lines:
    """A face cuts a line that is very long; here the end of one, such as where a link leads, is what counts."""
    pieces = [text[at : at + _LONGEST] for text in texts for at in range(0, max(len(text), 1), _LONGEST)]
    return Lines(tuple((Span(piece, tone),) for piece in pieces))
