"""The end-to-end cases of the design for personas, by the names they have there, in the sample workspace.

Each twice: with the model that is none, which has nothing but the catalogs to choose by, and with a scripted model
behind real sockets in the place of one that decides.
"""

import asyncio
import contextlib
import json
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.agent.run import Run
from kitbag.assembly.run_options import Options
from kitbag.events import Event, SkillLoaded, ToolFinished, ToolStarted
from kitbag.library.routing.agent_search import AgentCandidate, rank_agents
from kitbag.library.skill_files import read_skill_body
from kitbag.models.offline.model import NO_MODEL_LINE
from kitbag.runtime.agent import Agent
from kitbag.runtime.context_report import prepare_agent_report
from kitbag.testing import ModelServer, Rule, Script, Step
from kitbag.text.tokens import estimate_tokens
from support.driving import Driven, chat
from support.waiting import TEST_TIMEOUT

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "workspace"
REVIEW = "Review PR #123 for security issues"
REPORT = "Create an investigation report for incident #456"
INVESTIGATE = "Investigate incident #456"


class Shop:
    """The sample, in a world of its own."""

    def __init__(self, world: World) -> None:
        self.world = world

    def with_agent(
        self,
        persona: str,
        work: Callable[[Agent], Awaitable[Any]],
        model: str = "offline",
        mode: str = "plan",
        resume: str = "",
    ) -> Any:
        """`plan`: agents start without a question, and only read."""
        options = Options(
            directory=str(self.world.workspace),
            model=model,
            team="shop" if persona else "",
            persona=persona,
            mode=mode,
            resume=resume,
            trust_workspace=True,
        )

        async def opened() -> Any:
            async with asyncio.timeout(TEST_TIMEOUT), Agent(options=options) as agent:
                return await work(agent)

        return asyncio.run(opened())

    def ask(self, persona: str, request: str, **more: Any) -> "Told":
        async def work(agent: Agent) -> Told:
            return await tell(agent, request)

        return self.with_agent(persona, work, **more)


class Told:
    """What became of a request."""

    def __init__(self, prompt: str, events: list[Event], run: Run) -> None:
        assert run.error is None, run.error
        self.prompt = prompt
        self.events = events
        self.text = run.ended.text
        self.status = run.ended.status

    def calls(self, tool: str) -> list[dict[str, Any]]:
        return [event.arguments for event in self.events if isinstance(event, ToolStarted) and event.name == tool]

    def results(self, tool: str) -> list[ToolFinished]:
        return [event for event in self.events if isinstance(event, ToolFinished) and event.name == tool]

    @property
    def loaded(self) -> list[str]:
        return [event.name for event in self.events if isinstance(event, SkillLoaded)]


async def tell(agent: Agent, request: str) -> Told:
    events: list[Event] = []
    async with agent.run(request) as run:
        events += [event async for event in run]
    return Told("".join(block.text for block in agent.system_blocks), events, run)


@pytest.fixture
def shop(world: World, monkeypatch: pytest.MonkeyPatch) -> Shop:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "KITBAG_HOME", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    shutil.copytree(SAMPLE, world.workspace, dirs_exist_ok=True)
    return Shop(world)


@pytest.fixture
def decides(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModelServer]]:
    """A model that says these steps; those of an agent's own conversation are found by words of its prompt."""
    opened: list[ModelServer] = []

    def made(*steps: Step | str, **of_agents: list[Step | str]) -> ModelServer:
        rules = [Rule([as_step(one) for one in own], system=words) for words, own in of_agents.items()]
        server = ModelServer(Script([*rules, Rule([as_step(one) for one in steps])]))
        server.__enter__()
        opened.append(server)
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        return server

    yield made
    for server in opened:
        server.__exit__(None, None, None)


def as_step(step: Step | str) -> Step:
    return Step(text=step) if isinstance(step, str) else step


def call(tool: str, **arguments: Any) -> Step:
    return Step(calls=((f"c-{tool}", tool, json.dumps(arguments)),))


MODEL = "anthropic/claude-sonnet-4-5"


def system_of(server: ModelServer, at: int) -> str:
    return "".join(str(block["text"]) for block in server.requests[at].body["system"])


def listed(prompt: str, tag: str) -> dict[str, str]:
    """Name to what is said of it, as it stands in the prompt."""
    if f"<{tag}>" not in prompt:
        return {}
    block = prompt.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
    entries = [line[2:].partition(": ") for line in block.splitlines() if line.startswith("- ")]
    return {name: text for name, _, text in entries}


def body_of(path: str) -> str:
    return (SAMPLE / ".kitbag" / "skills" / path).read_text().split("---\n", 2)[2].strip()


CODE_REVIEW = body_of("shop/developer/code_review.md")
INVESTIGATION = body_of("shop/support/incident_investigation.md")


class TestSkillLoading:
    """CLI Test - Skill Loading."""

    def test_a_security_review_of_a_pr_loads_the_code_review_skill_and_the_answer_follows_it(self, shop: Shop) -> None:
        told = shop.ask("developer", REVIEW)
        catalog = listed(told.prompt, "available-skills")
        assert "security" in catalog["shop/code_review"]
        assert "shop/incident_investigation" not in catalog
        assert CODE_REVIEW not in told.prompt
        [asked] = told.calls("Skill")
        assert asked["skill"] == "shop/code_review"
        assert "security" in asked["reason"]
        assert told.loaded == ["shop/code_review"]
        assert CODE_REVIEW in told.results("Skill")[0].result
        assert told.status == "completed"
        assert told.text.startswith(NO_MODEL_LINE)  # it says what it is
        assert "> # Team code review" in told.text
        assert "# PR #123" in told.text  # what the skill says to read first,
        assert "ILIKE '{email}%'" in told.text  # and what there is to find in it

    def test_a_model_that_decides_gets_the_body_for_the_name_it_saw(
        self, shop: Shop, decides: Callable[..., ModelServer]
    ) -> None:
        server = decides(
            call("Skill", skill="code_review", reason="PR review task"),
            call("Skill", skill="security_analysis", reason="input from outside reaches a query"),
            "Rework: app/search.py:15 puts the address into the query.",
        )
        told = shop.ask("developer", REVIEW, model=MODEL)
        assert "shop/code_review" in listed(system_of(server, 0), "available-skills")
        assert CODE_REVIEW not in system_of(server, 0)
        assert CODE_REVIEW in json_text(server.requests[1].body["messages"][-1])
        assert body_of("shop/developer/security_analysis.md") in json_text(server.requests[2].body["messages"][-1])
        assert told.loaded == ["shop/code_review", "shop/security_analysis"]
        assert told.text.startswith("Rework")

    def test_what_is_on_demand_is_not_in_the_catalog_and_loads_by_its_name(
        self, shop: Shop, decides: Callable[..., ModelServer]
    ) -> None:
        server = decides(call("Skill", skill="python_review"), "Fine.")
        told = shop.ask("developer", "Have a look at this.", model=MODEL)
        assert "python_review" not in system_of(server, 0)
        assert told.loaded == ["shop/python_review"]

    def test_another_persona_s_skill_can_t_be_had(self, shop: Shop, decides: Callable[..., ModelServer]) -> None:
        decides(call("Skill", skill="incident_investigation"), "Then not.")
        told = shop.ask("developer", "Investigate.", model=MODEL)
        assert told.results("Skill")[0].is_error
        assert told.loaded == []


class TestSubagentRouting:
    """CLI Test - Subagent Routing."""

    def test_an_incident_report_goes_to_investigation_reporter_and_comes_back(self, shop: Shop) -> None:
        told = shop.ask("support", REPORT)
        agents = listed(told.prompt, "available-agents")
        assert "report" in agents["shop/investigation-reporter"]
        assert not any("reviewer" in name for name in agents)
        [task] = told.calls("Task")
        assert task["subagent_type"] == "shop/investigation-reporter"
        assert not told.results("Task")[0].is_error
        assert "The agent shop/investigation-reporter" in told.text
        assert "order=O-1007 request=r-3119 cents=2500 kept=-955" in told.text  # where the cause shows

    def test_it_works_with_a_prompt_of_its_own_and_its_report_reaches_the_model(
        self, shop: Shop, decides: Callable[..., ModelServer]
    ) -> None:
        server = decides(
            call("Task", subagent_type="investigation-reporter", prompt="Incident #456", description="report"),
            "Here is the report.",
            **{
                "You write incident reports": [
                    call("Skill", skill="incident_investigation", reason="how it is done here"),
                    "# INC-456: more was refunded than was paid",
                ]
            },
        )
        told = shop.ask("support", REPORT, model=MODEL)
        of_agent = [at for at, one in enumerate(server.requests) if "## Your Task" in system_of(server, at)]
        own = system_of(server, of_agent[0])
        assert "You write incident reports that are still true in a year." in own
        assert "Incident #456" in own.rpartition("## Your Task")[2]
        assert "You work with a support engineer" not in own  # what the persona tells the main loop
        assert INVESTIGATION in json_text(server.requests[of_agent[1]].body["messages"][-1])
        assert "# INC-456: more was refunded than was paid" in json_text(server.requests[-1].body["messages"][-1])
        assert told.text == "Here is the report."

    def test_an_agent_of_another_persona_can_t_be_started(
        self, shop: Shop, decides: Callable[..., ModelServer]
    ) -> None:
        decides(call("Task", subagent_type="investigation-reporter", prompt="Incident #456"), "Then not.")
        told = shop.ask("developer", REPORT, model=MODEL)
        assert told.results("Task")[0].is_error

    def test_where_nobody_may_be_started_it_is_said_and_the_search_goes_on(self, shop: Shop) -> None:
        told = shop.ask("support", REPORT, mode="default")
        assert told.results("Task")[0].is_error
        assert "The agent shop/investigation-reporter did not complete the task." in told.text
        assert "Task(shop/investigation-reporter)" in told.text  # the rule that would allow it
        assert "# Incident #456" in told.text


class TestProfileSwitch:
    """Profile Switch Test."""

    def test_another_persona_has_another_catalog_and_other_agents_and_loads_its_own_skill(self, shop: Shop) -> None:
        async def work(agent: Agent) -> tuple[Told, Told]:
            before = await tell(agent, REVIEW)
            change = await agent.preview_persona("support")
            assert await agent.use_persona("support") == change
            assert change.dropped == ("shop/code_review",)
            assert "shop/incident_investigation" in change.skills_gained
            assert "shop/code-reviewer" in change.agents_lost
            return before, await tell(agent, INVESTIGATE)

        before, after = shop.with_agent("developer", work)
        assert before.loaded == ["shop/code_review"]
        assert {"shop/code-reviewer", "shop/sql-reviewer"} < set(listed(before.prompt, "available-agents"))
        skills, agents = (listed(after.prompt, f"available-{kind}") for kind in ("skills", "agents"))
        assert {"shop/incident_investigation", "shop/rca", "shop/telemetry"} < set(skills)
        assert not {"shop/code_review", "shop/security_analysis", "shop/pr_management"} & set(skills)
        assert {"shop/investigation-reporter", "shop/incident-triager"} < set(agents)
        assert not [name for name in agents if name.endswith("-reviewer")]
        assert "You work with a support engineer" in after.prompt
        assert "You work with a developer" not in after.prompt
        assert [asked["skill"] for asked in after.calls("Skill")] == ["shop/incident_investigation"]
        assert after.loaded == ["shop/incident_investigation"]
        assert INVESTIGATION in after.results("Skill")[0].result
        assert "# Incident #456" in after.text

    def test_a_model_that_decides_sees_the_change_and_what_was_said_before(
        self, shop: Shop, decides: Callable[..., ModelServer]
    ) -> None:
        server = decides(
            call("Skill", skill="code_review"),
            "Reviewed.",
            call("Skill", skill="incident_investigation", reason="an incident number"),
            "Investigated.",
        )

        async def work(agent: Agent) -> Told:
            await tell(agent, REVIEW)
            await agent.use_persona("support")
            return await tell(agent, INVESTIGATE)

        told = shop.with_agent("developer", work, model=MODEL)
        assert "shop/code_review" in listed(system_of(server, 0), "available-skills")
        assert "shop/incident_investigation" in listed(system_of(server, 2), "available-skills")
        said = json_text(server.requests[2].body["messages"])
        assert REVIEW in said  # the transcript stays,
        assert "Reviewed." in said
        assert CODE_REVIEW not in said  # without what this persona may not see
        assert INVESTIGATION in json_text(server.requests[3].body["messages"][-1])
        assert told.loaded == ["shop/incident_investigation"]

    def test_who_it_was_and_what_it_had_loaded_come_back_on_resume(self, shop: Shop) -> None:
        async def work(agent: Agent) -> str:
            await agent.use_persona("support")
            await tell(agent, INVESTIGATE)
            return agent.session.id

        async def again(agent: Agent) -> tuple[str, list[str], str]:
            persona = agent.environment.library.persona
            loaded = list(agent.session.skills)
            return persona.full_name if persona else "", loaded, "".join(block.text for block in agent.system_blocks)

        session = shop.with_agent("developer", work)
        persona, loaded, prompt = shop.with_agent("", again, resume=session)
        assert persona == "shop/support"
        assert loaded == ["shop/incident_investigation"]
        assert "You work with a support engineer" in prompt


class TestAtATerminal:
    """The same cases as a person types them, in the real program."""

    @staticmethod
    def opened(shop: Shop, persona: str, *arguments: str) -> contextlib.AbstractContextManager[Driven]:
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OLLAMA_HOST"):
            shop.world.env.pop(name, None)
        shop.world.ok("trust", "--yes")
        return chat(shop.world, "--team", "shop", "--persona", persona, *arguments, columns=110, rows=50)

    def test_skill_loading(self, shop: Shop) -> None:
        with self.opened(shop, "developer") as driven:
            driven.say(REVIEW)
            driven.until_seen("shop/code_review", "PR #123", "ILIKE")

    def test_subagent_routing_asks_and_then_reports(self, shop: Shop) -> None:
        with self.opened(shop, "support") as driven:
            driven.say(REPORT)
            driven.until_seen("shop/investigation-reporter", "allow once")
            driven.choose("y")
            driven.until_seen("Incident #456", "request=r-3119")

    def test_profile_switch(self, shop: Shop) -> None:
        with self.opened(shop, "developer") as driven:
            driven.say("/persona support")
            driven.until_seen("shop/developer → shop/support", "+shop/investigation-reporter", "-shop/code-reviewer")
            driven.until_seen("switched to shop/support")
            driven.say(INVESTIGATE)
            driven.until_seen("Skill", "shop/incident_investigation", "Incident #456")


class TestTokenEfficiency:
    """Token Efficiency Validation."""

    @pytest.mark.parametrize("persona", ["developer", "support"])
    def test_the_prompt_with_a_catalog_is_smaller_than_one_with_every_body(self, shop: Shop, persona: str) -> None:
        async def measure(agent: Agent) -> tuple[int, int, int]:
            library = agent.environment.library
            bodies = [read_skill_body(skill).text for skill, _ in library.visible_skills()]
            prompt = "".join(block.text for block in agent.system_blocks)
            told = await asyncio.to_thread(prepare_agent_report(agent))
            ledger = sum(piece["tokens"] for piece in told["pieces"] if piece["kind"] != "tool")
            assert sum(int(entry["tokens"]) for entry in agent.session.prompt) == ledger
            assert not any(body.strip() in prompt for body in bodies)
            return ledger, told["skills"]["listed"], sum(map(estimate_tokens, bodies))

        ours, catalog, bodies = shop.with_agent(persona, measure)
        everything = ours - catalog + bodies
        print(f"{persona}: {ours:,} of {everything:,} tokens, {1 - ours / everything:.0%} saved")
        assert 0 < catalog < bodies
        assert ours < everything


class TestReviewersByFileExtension:
    """A file's extension decides who reviews it (seed 002, `detect_code_reviewer`)."""

    CASES = (
        ("migrations/002_customer_email.sql", "shop/sql-reviewer", "[.sql]"),
        ("app/search.py", "shop/python-reviewer", "[.py, .pyi]"),
        ("deploy/shop.yml", "shop/config-reviewer", "[.yaml, .yml, .toml, .json]"),
    )

    @pytest.mark.parametrize(("path", "agent", "extensions"), CASES)
    def test_a_changed_file_goes_to_the_reviewer_for_its_kind(
        self, shop: Shop, path: str, agent: str, extensions: str
    ) -> None:
        told = shop.ask("developer", f"Review the change to {path}")
        assert listed(told.prompt, "available-agents")[agent].endswith(extensions)
        assert [task["subagent_type"] for task in told.calls("Task")] == [agent]

    def test_files_of_two_kinds_go_to_two_reviewers_at_once(self, shop: Shop) -> None:
        told = shop.ask("developer", "Review app/search.py and migrations/002_customer_email.sql")
        tasks = {task["subagent_type"]: task["prompt"] for task in told.calls("Task")}
        assert set(tasks) == {"shop/python-reviewer", "shop/sql-reviewer"}
        assert tasks["shop/python-reviewer"].startswith("Handle only app/search.py ")

    def test_a_question_about_a_file_is_no_review(self, shop: Shop) -> None:
        told = shop.ask("developer", "What is in migrations/001_orders.sql?")
        assert told.calls("Task") == []
        assert "CREATE TABLE orders" in told.text

    def test_the_router_ranks_the_reviewer_for_the_file_first(self, shop: Shop) -> None:
        async def ranked(agent: Agent) -> list[str]:
            visible = [one for one, _ in agent.environment.library.visible_agents()]
            candidates = [AgentCandidate(one.full_name, one.description, one.file_extensions) for one in visible]
            return [match.name for match in rank_agents(candidates, "Please review schema.sql")]

        assert shop.with_agent("developer", ranked)[0] == "shop/sql-reviewer"


def json_text(value: Any) -> str:
    """All texts in it, one below the other."""
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return "\n".join(filter(None, map(json_text, parts)))


PRINTED_SKILL = """\
# src/triagent/skills/omnia-data/support/incident_investigation.md
---
name: incident_investigation
display_name: "Incident Investigation"
description: "Investigate production incidents with telemetry analysis and RCA"
version: "1.0.0"
subagents:
  - investigation-reporter  # Associated subagent
tools:
  - mcp__azure-devops__search_work_items
  - mcp__triagent__generate_kusto_query
---

# Investigation Instructions
...
"""
PRINTED_REPORTER = """\
# src/triagent/skills/omnia-data/support/_subagents/investigation-reporter.yaml
name: investigation-reporter
description: "Create detailed incident RCA reports with root cause analysis and recommendations. Use for production incidents requiring formal documentation."
prompt: |
  You are an incident investigation specialist. When investigating:
  1. Gather telemetry data from Application Insights
  2. Identify the root cause using timeline analysis
  3. Document findings in RCA format
  4. Provide actionable recommendations
tools:
  - Read
  - Grep
  - Glob
  - mcp__triagent__generate_kusto_query
  - mcp__azure-devops__create_work_item
model: sonnet
"""


def test_the_files_of_the_design_work_as_printed(world: World, decides: Callable[..., ModelServer]) -> None:
    team = ".kitbag/skills/omnia-data"
    world.write(f"{team}/support/incident_investigation.md", PRINTED_SKILL)
    world.write(f"{team}/support/_subagents/investigation-reporter.yaml", PRINTED_REPORTER)
    world.write(f"{team}/_persona_support.yaml", "name: support\nskills: [incident_investigation]\n")
    report = call("Task", subagent_type="investigation-reporter", prompt="Incident 123.", description="d")
    server = decides(
        call("Skill", skill="incident_investigation"),
        report,
        "Done.",
        **{"incident investigation specialist": ["RCA."]},
    )

    async def work(agent: Agent) -> Told:
        return await tell(agent, "Investigate.")

    options = Options(
        directory=str(world.workspace),
        model=MODEL,
        team="omnia-data",
        persona="support",
        mode="plan",
        trust_workspace=True,
    )

    async def opened() -> Told:
        async with asyncio.timeout(TEST_TIMEOUT), Agent(options=options) as agent:
            return await work(agent)

    told = asyncio.run(opened())
    assert "omnia-data/incident_investigation" in listed(told.prompt, "available-skills")
    assert "omnia-data/investigation-reporter" in listed(told.prompt, "available-agents")
    assert told.loaded == ["omnia-data/incident_investigation"]
    assert "4. Provide actionable recommendations" in system_of(server, 2)
    assert told.text == "Done."
