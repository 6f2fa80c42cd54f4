"""Skills as resources, and the skills extension to the letter."""

import hashlib
import json
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp_types import INVALID_PARAMS
from pydantic import ConfigDict

from conftest import World
from support.connected import at_home, run, served, text

MINE = "~/.kitbag/skills"

__all__ = ["at_home"]  # a fixture that every test here uses


class Ask(types.Request[dict[str, Any] | None, Literal["skills/list", "skills/get", "resources/directory/read"]]):
    method: Literal["skills/list", "skills/get", "resources/directory/read"]
    params: dict[str, Any] | None = None


class Anything(types.Result):
    model_config = ConfigDict(extra="allow")


async def ask(client: Client, method: Any, **params: Any) -> dict[str, Any]:
    answer = await client.session.send_request(Ask(method=method, params=params), Anything)
    return answer.model_dump(by_alias=True, mode="json")


async def refused(client: Client, method: Any, **params: Any) -> str:
    with pytest.raises(MCPError) as caught:
        await ask(client, method, **params)
    assert caught.value.error.code == INVALID_PARAMS
    return caught.value.error.message


HEAD = """---
name: pdf-processing
description: "Extract: fill, and assemble PDF documents"
version: 1.10
count: 007
enabled: true
yes: no
nothing:
metadata:
  version: "2.1.0"
  since: 2024-01-02
  list: [1, two, 3.5]
---
# PDF

See references/FORMS.md.
"""


def make(world: World) -> dict[str, bytes]:
    """All files of a skill by their paths."""
    files = {
        "SKILL.md": HEAD.replace("\n", "\r\n").encode(),
        "references/FORMS.md": b"Forms.\n",
        "scripts/extract.py": b"print(1)\n",
        "templates/regional/eu invoice.md": "Größe".encode(),
        "nested/inner/SKILL.md": b"---\nname: inner\ndescription: Inner.\n---\nInner.\n",
        "data.bin": b"\x00\xff\x01",
        ".hidden": b"hidden",
    }
    for path, data in files.items():
        world.write(f"{MINE}/pdf-processing/{path}", data)
    return files


def test_an_entry_has_the_head_to_the_letter_and_every_file_with_its_digest_and_size(world: World) -> None:
    files = make(world)
    world.write(f"{MINE}/pdf-processing/.git/config", "x")
    secret = world.write("s.txt", "SECRET", world.outside)
    (world.home / ".kitbag/skills/pdf-processing/link.md").symlink_to(secret)

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            capability = client.server_capabilities.extensions
            assert capability == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
            assert client.server_capabilities.resources is not None
            got = await ask(client, "skills/get", uri="skill://pdf-processing/SKILL.md")
            assert got["resultType"] == "complete"
            assert isinstance(got["ttlMs"], int)
            assert got["cacheScope"] in ("public", "private")
            entry = got["skill"]
            assert entry["uri"] == "skill://pdf-processing/SKILL.md"
            assert entry["frontmatter"] == {
                "name": "pdf-processing",
                "description": "Extract: fill, and assemble PDF documents",
                "version": 1.1,
                "count": 7,
                "enabled": True,
                "yes": "no",
                "nothing": None,
                "metadata": {"version": "2.1.0", "since": "2024-01-02", "list": [1, "two", 3.5]},
            }
            listed = {one["uri"]: (one["digest"], one["size"]) for one in entry["resources"]}
            assert len(listed) == len(entry["resources"])
            assert listed == {
                f"skill://pdf-processing/{path.replace(' ', '%20')}": (
                    f"sha256:{hashlib.sha256(data).hexdigest()}",
                    len(data),
                )
                for path, data in files.items()
            }
            for uri, (digest, size) in listed.items():
                contents: Any = (await client.read_resource(uri)).contents[0]
                data = contents.text.encode() if hasattr(contents, "text") else _decoded(contents.blob)
                assert len(data) == size
                assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
            found = await ask(client, "skills/list")
            assert entry in found["skills"]
            assert found["resultType"] == "complete"
            assert "ttlMs" in found
            assert "cacheScope" in found

    run(work)


def _decoded(blob: str) -> bytes:
    import base64

    return base64.b64decode(blob)


def test_lists_come_in_pages_and_each_skill_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitbag.mcp_server.resources.SKILLS_PAGE_SIZE", 3)
    monkeypatch.setattr("kitbag.mcp_server.resources.RESOURCES_PAGE_SIZE", 3)
    for number in range(8):
        world.skill(MINE, f"skill-{number}")

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            seen: list[str] = []
            cursor: dict[str, str] = {}
            while True:
                page = await ask(client, "skills/list", **cursor)
                assert len(page["skills"]) <= 3
                seen += [one["uri"] for one in page["skills"]]
                if "nextCursor" not in page:
                    break
                cursor = {"cursor": page["nextCursor"]}
            assert [uri for uri in seen if "skill-" in uri] == [f"skill://skill-{n}/SKILL.md" for n in range(8)]
            assert len(set(seen)) == len(seen)
            first = await client.list_resources()
            assert len(first.resources) == 3
            assert first.next_cursor is not None
            assert first.resources[0].mime_type == "text/markdown"
            assert "cursor" in await refused(client, "skills/list", cursor="nonsense!")

    run(work)


def test_what_is_no_skill_by_the_specification_is_loaded_and_read_but_not_listed_as_one(world: World) -> None:
    world.write(f"{MINE}/Bad Name/SKILL.md", "---\nname: Bad Name\ndescription: x\n---\nBAD\n")
    world.write(f"{MINE}/headless/SKILL.md", "No head at all.\n")
    world.write(f"{MINE}/alias/SKILL.md", "---\nname: alias\ndescription: &a x\nother: *a\n---\nALIAS\n")
    for number in range(513):
        world.write(f"{MINE}/large/f{number}", "x")
    world.skill(MINE, "large")

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            found = [one["uri"] for one in (await ask(client, "skills/list"))["skills"]]
            for name in ("Bad%20Name", "headless", "alias", "large"):
                assert f"skill://{name}/SKILL.md" not in found
                assert await refused(client, "skills/get", uri=f"skill://{name}/SKILL.md")
            assert "ALIAS" in str(await client.read_resource("skill://alias/SKILL.md"))
            assert "ALIAS" in await text(client, "load_skill", skill_name="alias")
            assert "512" in await refused(client, "skills/get", uri="skill://large/SKILL.md")

    run(work)


def test_what_is_not_served_is_an_invalid_parameter(world: World) -> None:
    make(world)
    world.skill(MINE, "closed", disable_model_invocation="true")

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            base = "skill://pdf-processing"
            uris = [f"{base}/references/FORMS.md", base, "skill://none/SKILL.md", "file:///etc/passwd", "skill://", "x"]
            for uri in (*uris, "skill://closed/SKILL.md"):
                await refused(client, "skills/get", uri=uri)
            for path in ("../../../secret", "%2e%2e/%2e%2e/x", "references", "nothing", "a%00b", ".git/config", ""):
                with pytest.raises(MCPError) as caught:
                    await client.read_resource(f"{base}/{path}")
                assert caught.value.error.code == INVALID_PARAMS
                assert caught.value.error.data == {"uri": f"{base}/{path}"}

    run(work)


def test_directories_are_read_level_by_level(world: World) -> None:
    make(world)
    (world.home / ".kitbag/skills/pdf-processing/empty").mkdir()

    async def work() -> None:
        async with served(world) as server, server.client() as client:

            async def names(uri: str) -> dict[str, str]:
                found = await ask(client, "resources/directory/read", uri=uri)
                assert found["resultType"] == "complete"
                return {
                    one["uri"].removeprefix("skill://pdf-processing/"): one["mimeType"] for one in found["resources"]
                }

            top = await names("skill://pdf-processing")
            assert top["SKILL.md"] == "text/markdown"
            assert top["templates"] == "inode/directory"
            assert top["empty"] == "inode/directory"
            assert set(top) == {
                "SKILL.md",
                "references",
                "scripts",
                "templates",
                "nested",
                "data.bin",
                ".hidden",
                "empty",
            }
            assert await names("skill://pdf-processing/templates") == {"templates/regional": "inode/directory"}
            assert await names("skill://pdf-processing/empty") == {}
            for uri in ("skill://pdf-processing/SKILL.md", "skill://pdf-processing/..", "skill://none"):
                await refused(client, "resources/directory/read", uri=uri)

    run(work)


def test_two_skills_never_share_an_address(world: World) -> None:
    world.skill(MINE, "tools")
    world.write(f"{MINE}/tools/commit/SKILL.md", "---\nname: other\ndescription: Other.\n---\nOTHER\n")
    world.write("~/x/.claude-plugin/plugin.json", json.dumps({"name": "tools"}))
    world.write("~/x/skills/commit/SKILL.md", "---\nname: commit\ndescription: Commit.\n---\nCOMMIT\n")
    world.ok("plugins", "install", str(world.home / "x"))

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            listed = [one["uri"] for one in (await ask(client, "skills/list"))["skills"]]
            assert "skill://from/tools/commit/SKILL.md" in listed
            assert "COMMIT" in str(await client.read_resource("skill://from/tools/commit/SKILL.md"))
            assert "OTHER" in str(await client.read_resource("skill://tools/commit/SKILL.md"))

    run(work)
