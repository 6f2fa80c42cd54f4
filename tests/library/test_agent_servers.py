"""Which servers an agent's file names and which it describes, in every form in which such files are written."""

from pathlib import Path

import pytest

from kitbag.library.agent_servers import parse_servers
from kitbag.library.agents import read_agent
from kitbag.library.scopes import Root
from kitbag.text.plain_frontmatter import Metadata, YamlValue

DB: Metadata = {"command": "db"}


@pytest.mark.parametrize(
    ("value", "named", "described"),
    [
        ("a, b", ("a", "b"), {}),
        (["a", "b"], ("a", "b"), {}),
        ([{"db": DB}], (), {"db": DB}),
        (["a", {"db": DB}, {"web": {"url": "u"}}], ("a",), {"db": DB, "web": {"url": "u"}}),
        ({"db": DB, "web": {"url": "u"}}, (), {"db": DB, "web": {"url": "u"}}),
        ({"db": DB, "a": "", "b": {}, "c": "true"}, ("a", "b", "c"), {"db": DB}),
        ([{"a": ""}, {"name": "b"}], ("a", "b"), {}),
        ([{"name": "db", "command": "db"}], (), {"db": DB}),
        ({"name": {"command": "db"}}, (), {"name": DB}),
        ([{"db": "npx db"}], (), {"db": "npx db"}),
        ([], (), {}),
        (["", " "], (), {}),
    ],
)
def test_all_forms_are_understood(value: YamlValue, named: tuple[str, ...], described: Metadata) -> None:
    assert parse_servers(value) == (named, described)


def test_a_name_that_hides_something_describes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("---\nname: a\ndescription: d\nmcpServers:\n  - d\u200bb: {command: evil}\n---\nx\n")
    agent, notes = read_agent(str(path), Root(str(tmp_path), "agents", "user", "claude", (0, 0)))
    assert agent is not None
    assert (agent.mcp_servers, agent.inline_servers) == (("db",), {})
    assert "hidden-characters" in [note.code for note in notes]
