"""`/permissions`: the rules with their sources, those of the session too, and what one action would come to."""

import asyncio
import json

import pytest

from conftest import World
from kitbag.errors import UsageError
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.testing import Step
from kitbag.views.blocks import TableBlock
from support import needs
from support.talking_face import talking


def test_rules_are_told_with_effect_and_source_and_where_they_are_changed(at_home: World) -> None:
    at_home.write(
        "~/.kitbag/settings.toml", '[permissions]\nallow = ["Bash(git log:*)"]\ndeny = ["Read(./secret/**)"]\n'
    )
    at_home.write(".kitbag/settings.toml", '[permissions]\nallow = ["Bash(curl:*)"]\nask = ["Bash(git push:*)"]\n')

    async def look() -> None:
        async with talking(at_home, no_tools=("WebFetch",)) as talk:
            shown = await talk.command("/permissions")
            rules = {row[1]: row for row in talk.shown(TableBlock)[0].rows}
            assert rules["Bash(git log:*)"][0] == "allow"
            assert rules["Bash(git log:*)"][4].startswith("~/.kitbag/settings.toml")
            assert rules["Read(./secret/**)"][0] == "deny"
            assert (rules["Bash(git push:*)"][0], rules["Bash(git push:*)"][2]) == ("ask", "project")
            assert rules["WebFetch"][2] == "command line"
            assert "Bash(curl:*)" not in rules
            assert "can only restrict" in shown
            assert "edit rules in ~/.kitbag/settings.toml" in shown

    asyncio.run(look())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/permissions test Bash git push", ("Bash: needs approval", "git push")),
        ("/permissions Bash git push", ("Bash: needs approval", "git push")),
        ("/permissions Bash(git push)", ("Bash: needs approval", "git push")),
        ("/permissions test git push && rm x", ("Bash: denied", "rm x", "`Bash(rm:*)`", "settings.toml")),
        ("/permissions Read README.md", ("Read: allowed",)),
        ("/permissions test Edit(a.txt)", ("Edit: needs approval",)),
        ("/permissions mcp__files__read x", ("mcp__files__read: needs approval",)),
    ],
)
def test_a_decision_is_explained_and_nothing_is_run(at_home: World, line: str, words: tuple[str, ...]) -> None:
    needs.bubblewrap()
    at_home.write("~/.kitbag/settings.toml", '[permissions]\nask = ["Bash(git push:*)"]\ndeny = ["Bash(rm:*)"]\n')

    async def look() -> None:
        async with talking(at_home) as talk:
            shown = await talk.command(line)
            for word in words:
                assert word in shown
            assert "mode  default" in shown

    asyncio.run(look())


def test_the_mode_of_now_decides(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            assert "Write: needs approval" in await talk.command("/permissions Write a.txt")
            await talk.agent.use_mode("plan")
            assert "Write: denied" in await talk.command("/permissions Write a.txt")

    asyncio.run(look())


@pytest.mark.parametrize(
    ("line", "words"), [("/permissions test", "Bash git push"), ("/permissions Bsah(ls)", "Bash(ls)")]
)
def test_what_is_typed_wrong_is_told(at_home: World, line: str, words: str) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            with pytest.raises(UsageError) as found:
                await talk.command(line)
            assert words in found.value.fix

    asyncio.run(look())


class _Agreeing:
    """A person who allows one thing by a rule for the session, and another one only as it is."""

    one_at_a_time = True

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(choice="allow", scope="session", rule="Write" if "a.txt" in question.arguments else "")


def test_what_was_agreed_to_in_this_conversation_is_told(at_home: World) -> None:
    async def look() -> None:
        calls = [
            Step(calls=((f"c{name}", "Write", json.dumps({"file_path": name, "content": "x"})),))
            for name in ("b.txt", "a.txt")
        ]
        async with talking(at_home, *calls, "Done.", approver=_Agreeing()) as talk:
            await talk.say("write them")
            shown = await talk.command("/permissions")
            assert ("allow", "Write", "session", "", "session") in talk.shown(TableBlock)[0].rows
            assert "1 tool call allowed for this session" in shown

    asyncio.run(look())
