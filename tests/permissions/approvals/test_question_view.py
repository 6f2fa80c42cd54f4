"""A person sees every character of what they are asked about (D22)."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.permissions.approvals.approval import ApprovalRequest, action_digest, canonical_json
from kitbag.permissions.approvals.question_view import GUTTER, render_approval, visible_lines
from kitbag.permissions.model import DecisionPart, PermissionDecision


def question(tool: str = "Bash", decision: PermissionDecision | None = None, **arguments: object) -> ApprovalRequest:
    text = canonical_json(arguments)
    decided = decision or PermissionDecision(effect="ask", reason="may modify files", parts=(), sandbox="workspace")
    return ApprovalRequest(
        id="0badcafe",
        tool=tool,
        arguments=text,
        directory="/w/app",
        decision=decided,
        digest=action_digest(tool, text, "/w/app"),
        asked_by="main",
    )


def action(lines: list[str]) -> str:
    return "\n".join(line.removeprefix(GUTTER) for line in lines if line.startswith(GUTTER))


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("ls -la", "ls -la"),
        ("ls" + "\t" * 2000 + "; rm -rf ~", "ls[2,000 tabs]; rm -rf ~"),
        ("ls" + " " * 2000 + "; rm -rf ~", "ls[2,000 spaces]; rm -rf ~"),
        ("ls\t; id", "ls[tab]; id"),
        ("ls\u200b; id", "ls[U+200B]; id"),
        ("ls" + "\u200b" * 500 + "x", "ls[U+200B repeated 500 times]x"),
        ("ls \u202egnp.exe", "ls [U+202E]gnp.exe"),
        ("ls \u2066x\u2069", "ls [U+2066]x[U+2069]"),
        ("ls \x1b[2K\x1b[1Aid", "ls [U+001B][2K[U+001B][1Aid"),
        ("ls\rid", "ls[U+000D]id"),
        ("ls\nid", "ls\nid"),
        ("ls" + "\n" * 300 + "id", "ls\n[299 empty lines]\nid"),
        ("ls\x00id\x7f\x9b", "ls[U+0000]id[U+007F][U+009B]"),
        ("ls \u00a0\u3000\u2003x", "ls [U+00A0][U+3000][U+2003]x"),
        ("ls \u115f\u3164\u2800x", "ls [U+115F][U+3164][U+2800]x"),
        ("ls \U000e0072\U000e006d", "ls [U+E0072][U+E006D]"),
        ("ls \ud800", "ls [U+D800]"),
        ("ls \u2028id", "ls [U+2028]id"),
        ("ls o" + "\u0336" * 9, "ls o[U+0336 repeated 9 times]"),
        ("ls ", "ls[1 space]"),
        ("ls é ü 日本 שלום", "ls é ü 日本 שלום"),
        ("ls e\u0301", "ls e\u0301"),
        ("ls \ufe0f", "ls [U+FE0F]"),
        ("echo [U+200B] [x] [12 spaces]", "echo [U+005B]U+200B] [x] [U+005B]12 spaces]"),
        ("", "[empty]"),
        ("[empty]", "[U+005B]empty]"),
    ],
)
def test_whatever_hides_is_spelled_out(command: str, seen: str) -> None:
    assert action(render_approval(question(command=command))) == seen


ODD = st.text(
    st.sampled_from("ab [U+200B]tab0,\n\t\r \u200b\u202e\x1b\u0336é日\ufe0f\ud800│\u00a0(empty)blanks12"), max_size=40
)


@given(ODD, ODD)
def test_two_different_texts_never_look_the_same(one: str, other: str) -> None:
    assert (visible_lines(one) == visible_lines(other)) == (one == other)


@given(st.text(max_size=60))
def test_every_line_is_harmless_to_a_terminal(text: str) -> None:
    for line in render_approval(question(command=text, **{f"x{text}": text})):
        assert all(char.isprintable() for char in line)


def test_no_line_of_an_action_passes_for_one_of_ours() -> None:
    lines = render_approval(question(command="ls\nwhy: read-only\nsandbox  none\n│ x", description="why: fine"))
    assert [line for line in lines if line.startswith("why:")] == ["why: may modify files"]
    lines = render_approval(question(**{"command": "ls", "a:\nwhy": "x"}))
    assert "a:[U+000A]why:" in lines


def test_nothing_is_left_out_unless_it_says_so_and_all_of_it_can_be_had() -> None:
    text = "head " + "x" * 20_000 + " rm -rf ~ " + "y" * 20_000 + " tail"
    short = action(render_approval(question(command=text)))
    hidden = len(text) - (4000 * 2 // 3) - 4000 // 3
    assert f"[{hidden:,} characters hidden — expand to see them]" in short
    assert short.startswith("head ")
    assert short.endswith(" tail")
    assert action(render_approval(question(command=text), max_characters=None)) == text
    lines = "\n".join(f"line {number}" for number in range(500))
    short = action(render_approval(question(command=lines)))
    assert "characters hidden" in short
    assert short.count("\n") < 70
    kept = short.split("\n")
    at = next(index for index, line in enumerate(kept) if "hidden" in line)
    head, tail = "\n".join(kept[:at]), "\n".join(kept[at + 1 :])
    assert lines.startswith(head)
    assert lines.endswith(tail)
    number = int(kept[at][1:].split(" ")[0].replace(",", ""))
    assert number == len(lines) - len(head) - len(tail)
    assert action(render_approval(question(command=lines), max_characters=None)) == lines


@pytest.mark.parametrize(
    ("command", "warning"),
    [
        ("echo “x”", '“ is U+201C, not "'),
        ("rm ‐rf x", "‐ is U+2010, not -"),
        ("cat ．．／x", "／ is U+FF0F, not /"),
        ("ls\u037e x", "\u037e is U+037E, not ;"),
        ("curl https://exаmple.com", "а is U+0430, not a"),
        ("curl https://аррӏе.com", "р is U+0440, not p (2 times)"),
        ("rm שלום.txt", "right-to-left characters"),
    ],
)
def test_what_looks_like_something_else_is_named(command: str, warning: str) -> None:
    lines = render_approval(question(command=command))
    assert any(line.strip().startswith(warning) for line in lines[lines.index("warnings:") :]), lines


@pytest.mark.parametrize(
    "command", ["echo привет мир", "echo héllo wörld", "ls 日本語", "echo 😀", "echo 'x' \"y\" `z`"]
)
def test_letters_of_other_languages_alone_are_no_reason_to_warn(command: str) -> None:
    assert "warnings:" not in render_approval(question(command=command))


def test_all_that_matters_is_there() -> None:
    parts = (
        DecisionPart(what="git push", effect="ask", reason="uses the network"),
        DecisionPart(what="x" * 900, effect="allow", reason="by a rule", rule="Bash(x:*)", source="f:3"),
    )
    asked = question(
        decision=PermissionDecision(
            effect="ask", reason="uses the network", parts=parts, sandbox="workspace", network=True
        ),
        command="git push",
        timeout=5,
    )
    lines = render_approval(msgspec.structs.replace(asked, facts=(("mode", "autonomous"), ("tools", "Bash, Read"))))
    text = "\n".join(lines)
    for wanted in (
        "Bash, requested by main [0badcafe]",
        "/w/app",
        "can write to the workspace, with network access",
        "autonomous",
        "Bash, Read",
        "timeout (JSON):\n│ 5",
        "why: uses the network",
        "`Bash(x:*)` (f:3)",
        "[700 more characters]",
    ):
        assert wanted in text
    assert "full access" in "\n".join(
        render_approval(
            question(decision=PermissionDecision(effect="ask", reason="x", parts=(), sandbox="none"), command="x")
        )
    )


def test_a_list_and_the_text_of_a_list_are_told_apart() -> None:
    assert render_approval(question("x", a=[1])) != render_approval(question("x", a=json.dumps([1], indent=1)))
