"""A workspace that changes while a session is open: what was not trusted is neither told nor loaded, and it is said."""

import pytest

from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.testing import Rule, Script, Seen, Step
from support.house import House, load

SKILL = "---\nname: new\ndescription: FRESH words.\n---\nFRESH body.\n"
ITEMS = {
    ".claude/skills/new/SKILL.md": SKILL,
    ".claude/agents/new.md": SKILL,
    ".claude/commands/new.md": SKILL,
}


@pytest.fixture(params=["trusted", "nothing"])
def begun(house: House, request: pytest.FixtureRequest) -> House:
    """Either the workspace was trusted, or there was nothing to trust."""
    if request.param == "trusted":
        house.world.skill(".kitbag/skills", "local-way", description="LOCAL description.")
        house.world.ok("trust", "--yes")
    return house


def writes(house: House, files: dict[str, str], *then: Step) -> Script:
    """A model that answers, while these files appear or change in the workspace."""

    def write(seen: Seen) -> str:
        for path, text in files.items():
            house.world.write(path, text)
        return "Fine."

    return Script([Rule([write, *then, *(Step(text="Yes.") for _ in range(8))])])


@pytest.mark.parametrize("path", ITEMS)
def test_an_item_that_appears_is_not_told_to_the_model(begun: House, path: str) -> None:
    begun.ask("hello", "and?", "and now?", steps=writes(begun, {path: ITEMS[path]}))
    assert "FRESH" not in str(begun.requests)
    assert "no longer trusted" in begun.notices()
    assert begun.notices().count("no longer trusted") == 1
    assert "kitbag trust" in begun.notices()


def test_the_model_can_t_load_it(begun: House) -> None:
    begun.world.skill("~/.kitbag/skills", "mine")
    begun.ask("hello", "and?", steps=writes(begun, ITEMS, load("new")))
    assert "not trusted" in str(begun.requests[-1].messages[-1])
    assert "FRESH" not in str(begun.requests)


def test_neither_can_the_person_and_they_are_told_why(begun: House) -> None:
    with pytest.raises(UntrustedItemError, match="not trusted"):
        begun.ask("hello", "and?", "/new do it", steps=writes(begun, ITEMS))
    assert "FRESH" not in str(begun.requests)


def test_an_agent_that_gives_itself_a_freer_mode_is_left_out(house: House) -> None:
    agent = "---\nname: helper\ndescription: Helps.\n---\nHelp.\n"
    house.world.write(".claude/agents/helper.md", agent)
    house.world.ok("trust", "--yes")
    freer = agent.replace("---\nHelp", "permission-mode: autonomous\n---\nHelp")
    house.ask("hello", "and?", steps=writes(house, {".claude/agents/helper.md": freer}))
    assert "no longer trusted" in house.notices()
    assert house.agent is not None
    assert "helper" not in {agent.name for agent in house.agent.environment.library.agents}


def test_changed_prose_keeps_its_place(house: House) -> None:
    path = house.world.skill(".kitbag/skills", "local-way", description="LOCAL description.")
    house.world.ok("trust", "--yes")
    words = path.read_text().replace("LOCAL", "OTHER")
    house.ask("hello", "and?", steps=writes(house, {".kitbag/skills/local-way/SKILL.md": words}))
    assert "~ skill local-way" in house.requests[-1].messages[-1].text
    assert "not trusted" not in house.notices()


def test_a_run_that_trusts_the_workspace_whatever_it_brings_takes_it(house: House) -> None:
    house.world.skill(".kitbag/skills", "local-way")
    house.ask("hello", "and?", steps=writes(house, ITEMS), trust_workspace=True)
    assert "+ skill new" in house.requests[-1].messages[-1].text


def test_a_memory_file_that_appears_is_not_in_the_prompt_after_a_compaction(begun: House) -> None:
    begun.world.write("~/.kitbag/settings.toml", '[models."scripted"]\nwindow = 4000\n')
    begun.world.write("big.txt", "some words of it\n" * 400)
    reads = 0

    def work(seen: Seen) -> Step:
        nonlocal reads
        reads += 1
        begun.world.write("AGENTS.md", "FRESH memory.")
        return Step(calls=((f"c{reads}", "Read", '{"file_path": "big.txt"}'),)) if reads < 4 else Step(text="Done.")

    script = Script([Rule([Step(text="A summary.")] * 99, system="Write the summary"), Rule([work] * 99)])
    begun.ask("Read.", "and?", steps=script)
    assert "A summary." in str(begun.requests[-1].messages)
    assert "FRESH" not in str(begun.requests)
    assert "no longer trusted" in begun.notices()
