"""References, arguments and packing options work the same through every way a skill reaches a model."""

import json
from typing import Any

from conftest import World
from kitbag.testing import ModelServer, Step
from support.headless import ask, point, script

BODY = "For {{WHO}}:\n\nSee @calc/core.py and ${FLAVOR}\n\n!`echo from-a-command`\n\nRead references/A.md. {{NOBODY}}"
RESOLVED = ("For Ada:", "See [file: calc/core.py]\n```py\nx = '{{WHO}} @calc/core.py'\n```", "from-a-command")


def house(world: World) -> None:
    world.write("calc/core.py", "x = '{{WHO}} @calc/core.py'\n")
    world.write("~/.kitbag/settings.toml", '[vars]\nWHO = "Ada"\n\n[permissions]\nallow = ["Bash(echo:*)"]\n')
    world.skill("~/.kitbag/skills", "calc-style", body=BODY)
    world.write("~/.kitbag/skills/calc-style/references/A.md", "a")
    world.write("~/.kitbag/agents/calc.md", "---\nname: calc\ndescription: d\nskills: [calc-style]\n---\nCount.\n")
    world.write(".kitbag/tasks/T1.json", json.dumps({"id": "T1", "title": "Count", "description": "Count them."}))


def texts(request: Any) -> str:
    return "\n".join(
        [block["text"] for block in request.body["system"]]
        + [part.get("text") or json.dumps(part) for message in request.body["messages"] for part in message["content"]]
    )


def test_every_way_of_delivery_resolves_the_same_and_warns_about_what_stays(world: World) -> None:
    house(world)
    load = Step(calls=(("c1", "Skill", json.dumps({"skill": "calc-style"})),))
    ways = (
        (("-p", "/calc-style do-this-now"), ["Done."]),
        (("-p", "Go.", "--agent", "calc"), ["Done."]),
        (("-p", "Go."), [load, "Done."]),
        (("agents", "run", "calc", "Go."), ["Done."]),
        (("agents", "run", "general-purpose", "--pack", "T1", "--skills", "calc-style", "--allow-env", "FLAVOR"), ["status: complete"]),
    )  # fmt: skip
    world.env["FLAVOR"] = "sweet"
    for arguments, steps in ways:
        with ModelServer(script(*steps)) as server:
            point(world, server)
            done = world.run(*arguments)
            said = texts(server.requests[-1]).replace("\\n", "\n")
        for text in (
            *RESOLVED,
            f"Skill directory: {world.home}/.kitbag/skills/calc-style",
            "references/A.md",
            "{{NOBODY}}",
        ):
            assert text in said, (arguments, text)
        assert said.count("do-this-now") == (1 if "/calc-style do-this-now" in arguments else 0)
        assert ("See" in said and "and sweet" in said) == ("--allow-env" in arguments), arguments
        assert "SKILL.md:11: no value for {{NOBODY}}" in done.stderr + said, (arguments, done.stderr)
        if "--allow-env" not in arguments:
            assert "SKILL.md:7: `${FLAVOR}` stays as written" in done.stderr + said, (arguments, done.stderr)


def test_a_preload_of_an_untrusted_workspace_or_of_a_plan_runs_nothing(world: World) -> None:
    world.env["CANARY"] = str(world.canary)
    world.skill(".kitbag/skills", "own", body="!`touch $CANARY`")
    world.write("~/.kitbag/agents/user.md", "---\nname: user\ndescription: d\nskills: [own]\n---\nGo.\n")
    world.write("~/.kitbag/agents/plan.md", "---\nname: plan\ndescription: d\nmode: plan\nskills: [own]\n---\nGo.\n")
    with ModelServer(script("One.", "Two.", "Three.")) as server:
        point(world, server)
        ask(world, "Go.", "--agent", "user")
        ask(world, "Go.", "--agent", "plan", "--trust-workspace", "--permission-mode", "plan")
        world.run("agents", "show", "user", "--prompt")
    assert not world.canary.exists()


def test_a_packed_run_says_what_is_not_as_required_and_fails(world: World) -> None:
    house(world)
    with ModelServer(script("I counted them.")) as server:
        point(world, server)
        done = world.run("agents", "run", "Explore", "--pack", "T1")
        assert (done.returncode, done.stdout) == (1, "I counted them.\n")
        assert "not as required: the last line is not `status: complete`" in done.stderr
        # An agent that can't write is not asked to write a file.
        assert ".kitbag/output" not in texts(server.requests[-1])
    with ModelServer(script("Three.\nstatus: complete")) as server:
        point(world, server)
        assert world.run("agents", "run", "Explore", "--pack", "T1").returncode == 0
    refused = world.run("agents", "run", "Explore", "Go.", "--skills", "calc-style")
    assert (refused.returncode, "--pack TASK" in refused.stderr) == (2, True)


def test_an_error_names_only_options_that_the_command_has(world: World) -> None:
    world.skill("~/.kitbag/skills", "wants", body="Use ${FLAVOR}.")
    world.write(".kitbag/tasks/T1.json", '{"id": "T1", "title": "Count"}')
    with ModelServer(script("Three.\nstatus: complete")) as server:
        point(world, server)
        for command in (("pack", "T1"), ("agents", "run", "Explore", "--pack", "T1")):
            refused = world.run(*command, "--skills", "wants")
            assert (refused.returncode, "--allow-env NAME" in refused.stderr) == (6, True), refused.stderr
            assert "--allow-commands" not in refused.stderr
        world.env["FLAVOR"] = "sweet"
        assert world.run("agents", "run", "Explore", "--pack", "T1", "--skills", "wants", "--allow-env", "FLAVOR").returncode == 0  # fmt: skip
        assert "Use sweet." in texts(server.requests[-1])


def test_the_task_tool_packs_with_the_options_of_pack_but_allows_nothing(world: World) -> None:
    house(world)
    world.write("outside.key", "x")

    def task(pack: str) -> Step:
        arguments = {"subagent_type": "Explore", "prompt": "Be quick.", "pack": pack}
        return Step(calls=(("c1", "Task", json.dumps(arguments)),))

    with ModelServer(
        script(task("T1 --skills calc-style --strategy standard --var WHO=Bob"), "Three.\nstatus: complete", "Done.")
    ) as server:
        point(world, server)
        world.write(
            "~/.kitbag/skills/calc-style/SKILL.md", "---\nname: calc-style\ndescription: d\n---\nFor {{WHO}}.\n"
        )
        ask(world, "Go.", "--allowed-tools", "Task,Read")
        assert any("For Bob." in texts(request) and "Be quick." in texts(request) for request in server.requests)
    for pack, reason in (
        ("T1 --allow-env HOME", "only the user can set --allow-env"),
        ("/etc/passwd", "cannot read /etc/passwd"),
        ("T1 T2", "2 tasks"),
        ("T1 --strategy loud", "unknown strategy"),
    ):
        with ModelServer(script(task(pack), "Done.")) as server:
            point(world, server)
            ask(world, "Go.", "--allowed-tools", "Task,Read")
            assert reason in texts(server.requests[-1]), pack
