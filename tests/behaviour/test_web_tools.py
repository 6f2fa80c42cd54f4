"""SECURITY.md D44 and D45 through the loop: a hostile model, the rules of a person, a real server as the tripwire."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from behaviour.acting import MODES
from conftest import World
from kitbag.messages import Text, ToolResult
from kitbag.models.provider import ModelRequest
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.store.api_keys import store_key
from kitbag.testing import Rule, Script, Step
from support.house import House
from support.servers import Answer, Server, redirect, reply

PAGE = reply(b"<p>The page.", "200 OK", "Content-Type: text/html")


@pytest.fixture
def house(world: World, monkeypatch: pytest.MonkeyPatch) -> House:
    for name in (
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "KITBAG_MODEL",
        "KITBAG_HOME",
        "BRAVE_API_KEY",
        "TAVILY_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    return House(world)


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for server in made:
        server.close()


def start(servers: list[Server], answer: Answer | bytes = PAGE) -> Server:
    servers.append(Server(answer, None, "127.0.0.1", b""))
    return servers[-1]


def allow(house: House, *rules: str, opened: tuple[str, ...] = (), more: str = "") -> None:
    """The person's own settings."""
    lines = [f"fetch.private = {json.dumps(list(opened))}", f"permissions.allow = {json.dumps(list(rules))}", more]
    house.world.write("~/.kitbag/settings.toml", "\n".join(lines))


def told(house: House, tool: str, mode: str = "", **arguments: Any) -> str:
    """What the model gets for a call."""
    call = Step(calls=(("c1", tool, json.dumps(arguments)),))
    house.ask("Go", steps=[call, "Done."], mode=mode)
    parts = [part for message in house.requests[-1].messages for part in message.parts]
    (result,) = [part for part in parts if isinstance(part, ToolResult)]
    return "".join(part.text for part in result.content if isinstance(part, Text))


@pytest.mark.parametrize("mode", MODES)
def test_D44_a_rule_for_a_host_inside_does_not_open_it(house: House, servers: list[Server], mode: str) -> None:
    server = start(servers)
    allow(house, "WebFetch")
    assert "Cannot fetch from" in told(house, "WebFetch", mode, url=f"http://127.0.0.1:{server.port}/")
    assert server.heads == []


@pytest.mark.parametrize("mode", MODES)
def test_D45_a_page_is_fetched_only_under_a_rule_for_its_host(house: House, servers: list[Server], mode: str) -> None:
    server = start(servers)
    opened = (f"127.0.0.1:{server.port}", f"localhost:{server.port}")
    allow(house, "WebFetch(domain:127.0.0.1)", opened=opened)
    assert "WebFetch is not allowed" in told(house, "WebFetch", mode, url=f"http://localhost:{server.port}/")
    assert server.heads == []
    assert "The page." in told(house, "WebFetch", mode, url=f"http://127.0.0.1:{server.port}/")


def test_D45_a_redirect_to_a_host_without_a_rule_is_told_and_not_followed(house: House, servers: list[Server]) -> None:
    other = start(servers)
    server = start(servers, redirect(f"http://localhost:{other.port}/x"))
    allow(house, "WebFetch(domain:127.0.0.1)", opened=(f"127.0.0.1:{server.port}", f"localhost:{other.port}"))
    found = told(house, "WebFetch", url=f"http://127.0.0.1:{server.port}/")
    assert f"http://localhost:{other.port}/x" in found
    assert "The page." not in found
    assert other.heads == []


@pytest.mark.parametrize("mode", MODES)
def test_D45_a_search_needs_a_rule_too(house: House, servers: list[Server], mode: str) -> None:
    server = start(servers, reply(b'{"results": [{"url": "https://a.example/", "title": "Found"}]}'))
    more = f'search.url = "http://127.0.0.1:{server.port}"'
    allow(house, more=more)
    problem = "WebSearch is not available in this run" if mode == "plan" else "WebSearch is not allowed"
    assert problem in told(house, "WebSearch", mode, query="zebra")
    assert server.heads == []
    allow(house, "WebSearch", more=more)
    assert "1. Found\n" in told(house, "WebSearch", mode, query="zebra")


def test_D45_an_agent_that_explores_uses_the_web_under_the_same_rules(house: House, servers: list[Server]) -> None:
    server = start(servers)
    url = f"http://127.0.0.1:{server.port}/"
    opened = (f"127.0.0.1:{server.port}",)
    allow(house, opened=opened)
    call = Step(calls=(("c1", "WebFetch", json.dumps({"url": url})),))
    house.ask("Go", steps=[call, "Done."], agent="Explore")
    assert server.heads == []
    allow(house, "WebFetch(domain:127.0.0.1)", opened=opened)
    house.ask("Go", steps=[call, "Done."], agent="Explore")
    assert len(server.heads) == 1


class _Person:
    """Allows everything, and keeps what it was asked."""

    one_at_a_time = True

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(question)
        return ApprovalAnswer(choice="allow")


@pytest.mark.parametrize("agent", ["Explore", "Plan"])
def test_a_read_only_agent_asks_before_it_uses_the_web_and_knows_if_it_cannot(
    house: House, servers: list[Server], agent: str
) -> None:
    server = start(servers)
    url = f"http://127.0.0.1:{server.port}/"
    allow(house, f"Task({agent})", opened=(f"127.0.0.1:{server.port}",))
    fetch = Step(calls=(("c1", "WebFetch", json.dumps({"url": url})),))
    delegate = Step(
        calls=(("c2", "Task", json.dumps({"subagent_type": agent, "prompt": "Look.", "description": "d"})),)
    )
    script = Script(
        [Rule([fetch, Step(text="Done.")] * 2, system="## Your Task"), Rule([delegate, Step(text="Fine.")] * 2)]
    )

    def child_of(approver: _Person | None) -> ModelRequest:
        house.ask("Go", steps=script, approver=approver)
        return next(one for one in house.requests if "## Your Task" in "".join(block.text for block in one.system))

    alone = child_of(None)
    assert not {"WebFetch", "WebSearch"} & {tool.name for tool in alone.tools}
    assert "The web is not available in this run" in alone.system[0].text
    assert server.heads == []
    person = _Person()
    accompanied = child_of(person)
    assert {"WebFetch", "WebSearch"} <= {tool.name for tool in accompanied.tools}
    assert "WebFetch and WebSearch may need the user's approval" in accompanied.system[0].text
    assert "WebFetch" in [question.tool for question in person.asked]
    assert len(server.heads) == 1
    allow(house, f"Task({agent})", "WebFetch(domain:example.com)")
    by_rule = child_of(None)
    assert {tool.name for tool in by_rule.tools} >= {"WebFetch"}
    assert "WebSearch" not in {tool.name for tool in by_rule.tools}


SECRET = "tk-9f3Kx72mQp8LwZ4vR6nB1"
HALVES = SECRET[:12], SECRET[12:]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "path",
    [f"/?q={SECRET}", f"/{base64.b64encode(b'a' + SECRET.encode()).decode()}", f"/?a={HALVES[0]}&b={HALVES[1]}"],
    ids=["plain", "base64", "split"],
)
def test_a_known_secret_is_not_fetched_in_any_mode_and_the_answer_does_not_repeat_it(
    house: House, servers: list[Server], monkeypatch: pytest.MonkeyPatch, mode: str, path: str
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    server = start(servers)
    allow(house, "WebFetch", opened=(f"127.0.0.1:{server.port}",))
    answer = told(house, "WebFetch", mode, url=f"http://127.0.0.1:{server.port}{path}")
    assert "WebFetch is not allowed: it would send a secret of the user" in answer
    assert path not in answer
    assert server.heads == []
    assert "The page." in told(house, "WebFetch", mode, url=f"http://127.0.0.1:{server.port}/docs")


def test_a_redirect_to_a_url_with_a_known_secret_is_not_followed(
    house: House, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    server = start(servers, redirect(f"/next?q={SECRET}"))
    allow(house, "WebFetch", opened=(f"127.0.0.1:{server.port}",))
    answer = told(house, "WebFetch", url=f"http://127.0.0.1:{server.port}/")
    assert "it contains a secret of the user" in answer
    assert SECRET not in answer
    assert len(server.heads) == 1


@pytest.mark.parametrize("arguments", [{"query": f"what is {SECRET}"}, {"query": "x1", "allowed_domains": [*HALVES]}])
def test_a_known_secret_is_not_searched_for(
    house: House, servers: list[Server], monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    server = start(servers)
    allow(house, "WebSearch", more=f'search.url = "http://127.0.0.1:{server.port}"')
    assert "WebSearch is not allowed: it would send a secret" in told(house, "WebSearch", **arguments)
    assert server.heads == []


def test_a_key_that_setup_stored_is_not_fetched_either(house: House, servers: list[Server]) -> None:
    server = start(servers)
    allow(house, "WebFetch", opened=(f"127.0.0.1:{server.port}",))
    store_key(str(house.world.home / ".kitbag"), "OPENAI_API_KEY", SECRET)
    assert "secret of the user" in told(
        house, "WebFetch", url=f"http://127.0.0.1:{server.port}/{SECRET.encode().hex()}"
    )
    assert server.heads == []
