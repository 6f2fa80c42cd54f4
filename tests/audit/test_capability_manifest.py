"""What an item can do, as the manifest says it."""

import hashlib
import os
from pathlib import Path

from conftest import World
from kitbag.audit.capability_manifest import CapabilityManifest, ManifestScript
from kitbag.audit.run import report_to_json, run_audit


def manifest_of(path: Path) -> CapabilityManifest:
    return run_audit((str(path),)).examined[0].manifest


def test_commands_are_verbatim_with_their_place(world: World) -> None:
    path = world.skill(
        "skills", "a", body="x\n\n!`git log  -5 | head`\n\n```!\nls -la\ndate\n```\n\n`!`not`` \\!`escaped`"
    )
    commands = manifest_of(path.parent).commands
    assert [(c.line, c.text) for c in commands] == [(7, "git log  -5 | head"), (9, "ls -la\ndate")]


def test_references_say_whether_they_leave_the_skill(world: World) -> None:
    path = world.skill(
        "skills", "a", body="@references/x.md @../b/y.md @/etc/hosts @~/notes.md mail a@b.example @scope/pkg"
    )
    found = {entry.target: entry.leaves for entry in manifest_of(path.parent).references}
    assert found == {"references/x.md": False, "../b/y.md": True, "/etc/hosts": True, "~/notes.md": True}


def test_a_command_file_may_refer_to_the_workspace_but_not_out_of_it(world: World) -> None:
    world.write("docs/x.md", "x")
    path = world.write(".claude/commands/c.md", "See @docs/x.md and @../../x.md")
    found = {entry.target: entry.leaves for entry in manifest_of(path).references}
    assert found == {"docs/x.md": False, "../../x.md": True}


def test_variables_hosts_and_programs_are_listed(world: World) -> None:
    body = (
        "${HOME_PAGE} !`sudo env A=1 curl -s https://api.example.com/x`\n\n```bash\nNAME=1\n"
        'wget "$URL_BASE/$NAME" | jq . && (cd x; ./run.sh)\n```\n'
    )
    path = world.skill("skills", "a", body=body)
    world.write("skills/a/scripts/x.py", 'import os\nos.environ["TOKEN_A"], os.getenv("TOKEN_B")\n')
    world.write("skills/a/scripts/x.js", "process.env.TOKEN_C\n")
    manifest = manifest_of(path.parent)
    assert manifest.environment == ("HOME_PAGE", "TOKEN_A", "TOKEN_B", "TOKEN_C", "URL_BASE")
    assert manifest.hosts == ("api.example.com",)
    assert {"curl", "wget", "jq", "./run.sh"} <= set(manifest.programs)


def test_tools_are_declared_or_mentioned_or_not_listed_at_all(world: World) -> None:
    body = "Use `WebFetch` and the Write tool, then mcp__docs__search. Read the file."
    listed = manifest_of(world.skill("skills", "a", body=body, allowed_tools="Read, Bash(git log:*)").parent)
    assert listed.tools_declared == ("Read", "Bash(git log:*)")
    assert listed.tools_mentioned == ("WebFetch", "Write", "mcp__docs__search")
    assert manifest_of(world.skill("skills", "b").parent).tools_declared is None
    assert manifest_of(world.skill("skills", "c", allowed_tools="[]").parent).tools_declared == ()


def test_scripts_have_hash_size_and_executable_bit(world: World) -> None:
    path = world.skill("skills", "a")
    script = world.write("skills/a/scripts/x.sh", "#!/bin/sh\nls\n")
    script.chmod(0o755)
    world.write("skills/a/tool", "#!/usr/bin/env python3\n")
    found = manifest_of(path.parent).scripts
    digest = hashlib.sha256(b"#!/bin/sh\nls\n").hexdigest()
    assert found[0] == ManifestScript(path="scripts/x.sh", language="shell", size=13, executable=True, sha256=digest)
    assert [(entry.path, entry.language, entry.executable) for entry in found[1:]] == [("tool", "python", False)]


def test_hooks_servers_mode_links_and_binaries_are_listed(world: World) -> None:
    head = "permissionMode: plan\nhooks:\n  Stop:\n    - hooks:\n        - command: a.sh\nmcpServers:\n  s:\n    command: npx\n    args: [x@1.0.0]\n"
    path = world.write("skills/a/SKILL.md", f"---\nname: a\ndescription: d\n{head}---\nx\n")
    world.write("skills/a/.mcp.json", '{"mcpServers": {"t": {"url": "https://t.example.com"}}}')
    world.write("skills/a/x.bin", b"\0\1\2")
    os.symlink("../../b", path.parent / "link")
    manifest = manifest_of(path.parent)
    assert manifest.permission_mode == "plan"
    assert manifest.hooks == ("a.sh",)
    assert manifest.servers == ("t: https://t.example.com", "s: npx x@1.0.0")
    assert [(entry.path, entry.target, entry.leaves) for entry in manifest.links] == [("link", "../../b", True)]
    assert [(entry.path, entry.size) for entry in manifest.binaries] == [("x.bin", 3)]


def test_a_skill_of_plain_text_can_do_nothing(world: World) -> None:
    manifest = manifest_of(world.skill("skills", "a", body="Write well.").parent)
    assert not manifest.has_capabilities


def test_the_report_says_it_gives_no_permission(world: World) -> None:
    report = run_audit((str(world.skill("skills", "a").parent),))
    document = report_to_json(report, report.findings)
    assert str(document["caution"]).startswith("A clean audit grants no permissions")


def test_the_prompt_of_a_data_file_is_read_like_a_body(world: World) -> None:
    text = "name: a\ndescription: d\nprompt: |\n  State: !`git status`\n  See @~/x.md and ${TOKEN_X}\n"
    manifest = manifest_of(world.write(".kitbag/agents/_subagents/a.yaml", text))
    assert [(entry.line, entry.text) for entry in manifest.commands] == [(4, "git status")]
    assert [(entry.target, entry.leaves) for entry in manifest.references] == [("~/x.md", True)]
    assert manifest.environment == ("TOKEN_X",)
