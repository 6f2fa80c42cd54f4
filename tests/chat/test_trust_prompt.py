"""The first start in a folder: what it would allow is seen before it counts, and only a person's word makes it count."""

import asyncio
import json

import msgspec
import pytest

from chat.answering import Answer, AnsweringFace, option, text_of
from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.chat.trust_prompt import ask_for_trust, trust_blocks, trust_form
from kitbag.errors import UsageError
from kitbag.permissions.trust.workspace_trust import WorkspaceTrust, check_trust
from kitbag.runtime.agent import Agent
from kitbag.testing import Script, Scripted
from kitbag.views.blocks import DiffBlock, VerbatimBlock


def bring(world: World) -> None:
    world.skill(".kitbag/skills", "x", body="Words.\n\n!`touch $CANARY`\n\n```!\nmake all\nmake test\n```\n")
    world.write(".kitbag/skills/x/scripts/run.sh", "#!/bin/sh\ntouch $CANARY\n")
    world.write(".mcp.json", json.dumps({"mcpServers": {"s": {"command": "touch", "args": [str(world.canary)]}}}))
    world.write(".kitbag/settings.toml", 'permissions.mode = "plan"\n')


def ask(world: World, *answers: Answer) -> tuple[str, AnsweringFace]:
    face = AnsweringFace(*answers)
    return asyncio.run(ask_for_trust(face, world.places())).choice, face


def state(world: World) -> str:
    return check_trust(world.places()).state


def test_a_folder_that_brings_nothing_is_not_asked_about(world: World) -> None:
    world.write("a.py", "print()\n")
    assert ask(world)[0] == "nothing"


def test_what_it_would_run_is_seen_and_a_yes_is_kept(world: World) -> None:
    bring(world)
    trusted, face = ask(world, "t")
    assert trusted == "trusted"
    for text in ("is not trusted", "1 skill", "│ touch $CANARY", "SKILL.md:7", "Servers (1)", "Scripts (1)", "mode"):
        assert text in face.seen(), text
    assert state(world) == "trusted"
    assert not world.canary.exists()


def test_once_it_is_trusted_nothing_is_asked(world: World) -> None:
    bring(world)
    ask(world, "t")
    trusted, face = ask(world)
    assert (trusted, face.forms, face.blocks) == ("trusted", [], [])


@pytest.mark.parametrize(("answer", "trusted"), [("o", "once"), ("n", "without"), ("q", "leave"), (None, "without")])
def test_every_other_answer_keeps_nothing(world: World, answer: str | None, trusted: str) -> None:
    bring(world)
    assert ask(world, answer)[0] == trusted
    assert state(world) == "untrusted"
    assert not (world.home / ".kitbag/trust.json").exists()


@pytest.mark.parametrize("when", ["before it is loaded", "before it is read anew"])
def test_this_once_is_said_of_what_was_seen(world: World, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    bring(world)
    (world.workspace / ".mcp.json").unlink()
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.delenv("KITBAG_HOME", raising=False)
    asked = asyncio.run(ask_for_trust(AnsweringFace("o"), world.places()))
    server = json.dumps({"mcpServers": {"evil": {"command": "touch", "args": [str(world.canary)]}}})

    async def go() -> list[str]:
        if when == "before it is loaded":
            world.write(".mcp.json", server)
        options = Options(directory=str(world.workspace), trust_workspace=asked.fingerprint)
        async with Agent(options=options, provider=Scripted(Script([]))) as agent:
            told = [notice.text for notice in agent.notices]
            if when != "before it is loaded":
                assert agent.environment.trust.state == "trusted"
                world.write(".kitbag/skills/x/notes.md", "Prose may change.\n")
                assert (await agent.reload(), agent.environment.trust.state)[1] == "trusted"
                world.write(".mcp.json", server)
                told = [notice.text for notice in (await agent.reload()).notices]
            assert agent.environment.trust.state == "changed"
            assert not agent.environment.library.skills.get_exact("x")
            return told

    assert "workspace changed: " in "\n".join(asyncio.run(go()))
    assert not world.canary.exists()


def test_what_was_seen_runs_this_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(world)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.delenv("KITBAG_HOME", raising=False)
    (world.workspace / ".kitbag/settings.toml").unlink()  # in plan mode no server is started
    asked = asyncio.run(ask_for_trust(AnsweringFace("o"), world.places()))

    async def go() -> None:
        options = Options(directory=str(world.workspace), trust_workspace=asked.fingerprint)
        async with Agent(options=options, provider=Scripted(Script([]))) as agent:
            assert agent.servers is not None
            assert [one.state for one in agent.servers.configured] == ["ready"]

    asyncio.run(go())
    assert world.canary.exists()  # the server was started


def test_a_server_that_is_started_later_is_still_the_one_that_was_seen(world: World) -> None:
    from kitbag.settings import load_settings
    from kitbag.tools.mcp_client.configured_servers import check_still_trusted, configured_servers

    bring(world)
    places = world.places()
    trust = check_trust(places, check_trust(places).fingerprint)
    (one,) = configured_servers(places, trust, load_settings(places.kitbag_home, places.project_dirs))
    check_still_trusted(one.server, places, trust)
    world.skill(".kitbag/skills", "other", body="!`new`\n")  # what else has changed does not matter
    check_still_trusted(one.server, places, trust)
    world.write(".mcp.json", json.dumps({"mcpServers": {"s": {"command": "touch", "args": ["/elsewhere"]}}}))
    with pytest.raises(UsageError, match="has changed"):
        check_still_trusted(one.server, places, trust)


def test_agents_in_the_background_are_held_to_it_too(world: World) -> None:
    from kitbag.tasks.stored_options import parse_options, serialize_options

    bring(world)
    seen = asyncio.run(ask_for_trust(AnsweringFace("o"), world.places())).fingerprint
    assert parse_options(serialize_options(Options(trust_workspace=seen))).trust_workspace == seen
    assert check_trust(world.places(), seen).covers(
        f"{world.workspace}/.kitbag/skills/x/SKILL.md", "!`touch $CANARY`", world.places()
    )
    assert not check_trust(world.places(), seen).covers(
        f"{world.workspace}/.kitbag/skills/x/SKILL.md", "!`evil`", world.places()
    )


def test_enter_alone_trusts_nothing(world: World) -> None:
    bring(world)
    form = trust_form(check_trust(world.places()))
    assert (form.default, form.free_text_hint) == ("", "")


def test_without_an_answer_the_run_says_what_it_left_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(world)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.delenv("KITBAG_HOME", raising=False)
    assert ask(world, None)[0] == "without"

    async def notices() -> str:
        options = Options(directory=str(world.workspace))
        async with Agent(options=options, provider=Scripted(Script([]))) as agent:
            return "\n".join(notice.text for notice in agent.notices)

    notice = asyncio.run(notices())
    assert notice.startswith("workspace not trusted: ")
    assert notice.endswith("1 skill omitted; review with `kitbag trust`, or run with --trust-workspace")


def test_it_is_compact_first_and_whole_on_request(world: World) -> None:
    for number in range(40):
        world.skill(".kitbag/skills", f"s{number}", body=f"!`first {number}`\n\n```!\nsecond {number}\nthird\n```\n")
    trusted, face = ask(world, "e", "n")
    assert trusted == "without"
    first, second = ("\n".join(map(text_of, form.above)) for form in face.forms)
    assert len(first.splitlines()) < 24
    assert "(80)" in first
    assert "66 more" in first
    assert all(f"second {number}\n" in second for number in range(40))
    assert option(face.forms[0], "e") is not None
    assert option(face.forms[1], "e") is None  # there is no more


def test_of_what_is_less_dangerous_a_few_are_shown_first(world: World) -> None:
    bring(world)
    for number in range(9):
        world.write(
            f".claude/agents/a{number}.md", f"---\nname: a{number}\ndescription: Helps.\ntools: Read\n---\nHelp.\n"
        )
    shown = "\n".join(map(text_of, trust_form(check_trust(world.places())).above))
    assert "touch $CANARY" in shown
    assert "(9)" in shown
    assert "6 more" in shown


def test_what_is_seen_whole_at_once_offers_no_more(world: World) -> None:
    world.write("CLAUDE.md", "Be kind.\n")
    form = trust_form(check_trust(world.places()))
    assert option(form, "e") is None
    assert "nothing runs or grants permissions" in "\n".join(map(text_of, form.above))


def test_a_change_is_shown_as_what_it_was_and_what_it_is(world: World) -> None:
    bring(world)
    ask(world, "t")
    path = world.workspace / ".kitbag/skills/x/SKILL.md"
    path.write_text(path.read_text().replace("make all\n", "make evil\n"))
    trusted, face = ask(world, "t")
    assert trusted == "trusted"
    assert "has changed since" in face.seen()
    (diff,) = [block.text for block in face.blocks if isinstance(block, DiffBlock)]
    assert "command, changed" in diff
    assert "-make all\n-make test\n+make evil\n+make test" in diff
    assert state(world) == "trusted"


def test_a_change_that_is_longer_than_a_screen_is_begun(world: World) -> None:
    bring(world)
    ask(world, "t")
    path = world.workspace / ".kitbag/skills/x/SKILL.md"
    path.write_text(path.read_text().replace("make all\n", "make evil\n" * 50))
    blocks = trust_blocks(check_trust(world.places()), whole=False)
    (diff,) = [block.text for block in blocks if isinstance(block, DiffBlock)]
    assert "+make evil" in diff
    assert "more lines]" in diff


def test_what_could_not_be_looked_at_whole_can_not_be_trusted_for_good(world: World) -> None:
    bring(world)
    trust = msgspec.structs.replace(check_trust(world.places()), is_complete=False, problems=("too many files",))
    form = trust_form(trust)
    assert option(form, "t") is None
    assert option(form, "o") is not None
    shown = "\n".join(map(text_of, form.above))
    assert "can't be trusted" in shown
    assert "│ too many files" in shown


def test_where_it_can_not_be_kept_that_is_told_and_asked_again(world: World) -> None:
    bring(world)
    places = world.places()._replace(kitbag_home=str(world.workspace / ".home"))
    face = AnsweringFace("t", "o")
    assert asyncio.run(ask_for_trust(face, places)).choice == "once"
    assert "error: the Kitbag home" in face.seen()
    assert option(face.forms[1], "t") is None


def test_what_hides_is_made_visible_and_stands_behind_the_bar(world: World) -> None:
    world.skill(".kitbag/skills", "x", body="```!\nls\x1b[2J\n? Trust it\n```\n")
    for whole in (False, True):
        blocks = trust_blocks(check_trust(world.places()), whole=whole)
        ours = "\n".join(text_of(block) for block in blocks if not isinstance(block, VerbatimBlock))
        assert "Trust it" not in ours
        assert "\x1b" not in "\n".join(map(text_of, blocks))


def test_no_line_of_a_change_passes_for_the_head_of_a_diff(world: World) -> None:
    from kitbag.views.rendering.render import render

    bring(world)
    ask(world, "t")
    path = world.workspace / ".kitbag/skills/x/SKILL.md"
    path.write_text(path.read_text().replace("make all\n", "-- evil\n++ evil\n@@ -1,1 +1,1 @@\n"))
    ask(world, "t")
    path.write_text(path.read_text().replace("++ evil\n", "++ worse\n"))
    (diff,) = [one for one in trust_blocks(check_trust(world.places()), whole=True) if isinstance(one, DiffBlock)]
    shown = render(diff, 100, color=False, hide=str)
    for line in ("- -- evil", "- ++ evil", "+ -- evil", "+ ++ worse", "+ @@ -1,1 +1,1 @@"):
        assert line in shown, shown


def test_the_root_is_named(world: World) -> None:
    bring(world)
    trust: WorkspaceTrust = check_trust(world.places())
    assert trust.root in text_of(trust_form(trust).above[0])
