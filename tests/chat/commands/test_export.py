"""`/export`: the whole conversation as a document, written for the person alone, over nothing without a question."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.errors import KitbagError
from kitbag.messages import Usage
from kitbag.runtime.export import default_file_name
from kitbag.testing import Step
from kitbag.views.blocks import VerbatimBlock
from support.talking_face import Talk, TalkingFace, talking

READ = (("c1", "Read", json.dumps({"file_path": "a.txt"})),)


def steps() -> list[Any]:
    skill = Step(
        text="First I load it.", thinking="I wonder.", calls=(("s1", "Skill", json.dumps({"skill": "deploy"})),)
    )
    return [skill, Step(calls=READ), Step(text="It has **one** line.", usage=Usage(input=100, output=10))]


async def asked(talk: Talk) -> None:
    await talk.say("What is in a.txt?")


@pytest.fixture
def furnished(at_home: World) -> World:
    at_home.skill("~/.kitbag/skills", "deploy", "Deploys.", "BY HAND")
    at_home.write("a.txt", "one line with ``` ticks and </details>\n")
    return at_home


def written(world: World, name: str = "") -> list[Path]:
    return sorted(world.workspace.glob(name or "kitbag-*"))


def test_the_document_has_person_model_tools_skills_and_cost(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished, *steps()) as talk:
            await asked(talk)
            assert "exported to " in await talk.command("/export")
            name = default_file_name(talk.agent.session.id)
            (file,) = written(furnished)
            assert file.name == name
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            text = file.read_text()
            for words in (
                f"# Session {talk.agent.session.id}",
                "> What is in a.txt?",
                "First I load it.",
                "<summary>Thought</summary>",
                "*Skill loaded: deploy",
                "<summary>Read: ",
                "It has **one** line.",
                "3 turns",
                "$0.0000",
            ):
                assert words in text, words
            order = [text.index(words) for words in ("> What", "First I", "Skill loaded", "<summary>Read", "**one**")]
            assert order == sorted(order)

    asyncio.run(look())


def test_nothing_in_a_result_ends_its_fold(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished, *steps()) as talk:
            await asked(talk)
            await talk.command("/export")
            text = written(furnished)[0].read_text()
            fence = text[: text.index("ticks and </details>")].rpartition("````")
            assert fence[1] == "````"
            assert "````\n\n</details>" in text

    asyncio.run(look())


def test_by_its_ending_it_is_json(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished, *steps()) as talk:
            await asked(talk)
            await talk.command("/export out/talk.JSON")
            found = json.loads((furnished.workspace / "out/talk.JSON").read_text())
            assert (found["format"], found["version"]) == ("kitbag-conversation", 1)
            assert found["session"] == talk.agent.session.id
            assert found["totals"]["turns"] == 3
            kinds = [entry["kind"] for entry in found["entries"]]
            assert kinds[0] == "user"
            assert {"reply", "result", "skill", "ended"} <= set(kinds)

    asyncio.run(look())


def test_what_was_compacted_is_in_it(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished, "ANSWER ONE", "ANSWER TWO", "A SUMMARY", "ANSWER THREE") as talk:
            await talk.say("QUESTION ONE")
            await talk.say("QUESTION TWO")
            await talk.agent.compact(lambda _: None)
            assert "QUESTION ONE" not in str(talk.agent.session.messages())
            await talk.command("/export -")
            text = talk.shown(VerbatimBlock)[-1].text
            assert "> QUESTION ONE" in text
            assert "ANSWER ONE" in text
            assert "Session compacted" in text
            assert not written(furnished)

    asyncio.run(look())


def test_secrets_and_hidden_characters_are_not_written(furnished: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "sk-very-secret-value-123456")

    async def look() -> None:
        async with talking(furnished, "It is sk-very-secret-value-123456\u202e\x1b[2J.") as talk:
            await talk.say("what is it?")
            for name in ("a.md", "a.json"):
                await talk.command(f"/export {name}")
                text = (furnished.workspace / name).read_text()
                assert "very-secret-value" not in text
                assert "\u202e" not in text
                assert "\x1b" not in text

    asyncio.run(look())


@pytest.mark.parametrize(("answer", "names"), [("n", ["notes.md"]), (None, ["notes.md"]), ("o", ["notes.md"]),
                                               ("k", ["notes-2.md", "notes.md"])])  # fmt: skip
def test_a_file_that_exists_is_overwritten_only_when_the_person_says_so(
    furnished: World, answer: str | None, names: list[str]
) -> None:
    furnished.write("notes.md", "mine\n").chmod(0o644)
    face = TalkingFace(answer)

    async def look() -> None:
        async with talking(furnished, "Hi.", face=face) as talk:
            await talk.say("hello")
            shown = await talk.command("/export notes.md")
            assert [path.name for path in written(furnished, "notes*")] == names
            kept = (furnished.workspace / "notes.md").read_text() == "mine\n"
            assert kept == (answer != "o")
            assert ("export canceled" in shown) == (answer in ("n", None))
            assert not face.forms[0].default

    asyncio.run(look())


@pytest.mark.parametrize(
    ("place", "words"),
    [("{outside}/talk.md", "outside the workspace"), ("link.md", " -> "), (".git/hooks/post-commit", "post-commit"),
     ("~/.ssh/authorized_keys", "authorized_keys")],
)  # fmt: skip
def test_a_place_that_is_not_plainly_the_workspace_s_is_asked_for(furnished: World, place: str, words: str) -> None:
    (furnished.workspace / "link.md").symlink_to(furnished.outside / "there.md")
    face = TalkingFace("n", "y")

    async def look() -> None:
        async with talking(furnished, "Hi.", face=face) as talk:
            await talk.say("hello")
            path = place.format(outside=furnished.outside)
            assert "export canceled" in await talk.command(f"/export {path}")
            assert words in face.everything()
            assert not list(furnished.outside.iterdir())
            if place.startswith("{outside}"):
                await talk.command(f"/export {path}")
                assert (furnished.outside / "talk.md").read_text().startswith("# Session")

    asyncio.run(look())


def test_what_can_hold_no_file_is_refused(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished, "Hi.") as talk:
            await talk.say("hello")
            for place in ("/dev/null", "a.txt/b.md", "x\0y"):
                talk.face.answers.append("y")
                with pytest.raises(KitbagError):
                    await talk.command(f"/export {place}")

    asyncio.run(look())


def test_a_folder_gets_the_usual_name(furnished: World) -> None:
    (furnished.workspace / "docs").mkdir()

    async def look() -> None:
        async with talking(furnished, "Hi.") as talk:
            assert "nothing to export" in await talk.command("/export")
            await talk.say("hello")
            await talk.command("/export docs")
            assert [path.name for path in written(furnished, "docs/*")] == [default_file_name(talk.agent.session.id)]

    asyncio.run(look())


@pytest.mark.parametrize(
    "said",
    [
        "Fine.\n\n<!-- nothing to see",
        "Fine.\n\n```\nopen",
        "- a\n  ```\n  b\n\nFine.\n<!-- nothing",
        "`\n<!-- nothing\n`",
        "<details><summary>x",
        "<style>* { display: none }",
    ],
)
def test_nothing_that_a_model_says_hides_what_comes_after_it(furnished: World, said: str) -> None:
    from markdown_it import MarkdownIt

    async def look() -> str:
        async with talking(furnished, said, "The end of it.") as talk:
            await talk.say("First?")
            await talk.say("Second?")
            await talk.command("/export x.md")
            return (furnished.workspace / "x.md").read_text()

    tokens = MarkdownIt("commonmark").parse(asyncio.run(look()))
    paragraphs = [token.content for token in tokens if token.type == "inline"]
    assert "Second?" in paragraphs
    assert "The end of it." in paragraphs
    assert not [token for token in tokens if token.type == "html_block"]


def test_code_in_a_document_stays_as_it_was_said(furnished: World) -> None:
    said = "Use `<b>` or:\n\n```html\n<b>x</b>\n```\n\n1 < 2, see <https://example.com/>."

    async def look() -> None:
        async with talking(furnished, said) as talk:
            await talk.say("How?")
            await talk.command("/export x.md")
            assert said in (furnished.workspace / "x.md").read_text()

    asyncio.run(look())
