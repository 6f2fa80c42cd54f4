"""Packing from the outside: the command with its options, exit codes and JSON, and the same in Python."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import World
from kitbag.packing.fit import Budgets, OverBudgetError
from kitbag.packing.pack import Packer, PackOptions, pack
from kitbag.packing.references.resolve import ReferenceDeniedError
from kitbag.packing.task_sources import load_task, parse_task
from kitbag.text.frontmatter import read_frontmatter
from kitbag.text.tokens import TokenCounter, estimate_tokens
from kitbag.text.truncate import extract_essential
from support.cost import calls
from support.matrix import examples, long
from support.waiting import TEST_TIMEOUT, wait_until

GOLDEN = Path(__file__).parent / "golden"

SKILL = """---
name: research
version: 1.2.0
description: Finds things out.
tags: [research, investigate]
---

# Research

## Summary

Find things out for {{TASK_ID}}.

## Core Rules

1. Cite every source.

## Workflow

{filler}

## Examples

First example.

## References

See references/guide.md.
"""


def research(world: World, lines: int = 60) -> None:
    filler = "\n".join(f"Step {number}: look closely." for number in range(lines))
    world.write(".kitbag/skills/research/SKILL.md", SKILL.replace("{filler}", filler))
    world.write(".kitbag/skills/research/references/guide.md", "The guide.\n")


def task(world: World, name: str = "T1", **fields: object) -> None:
    world.write(f".kitbag/tasks/{name}.json", json.dumps({"id": name, "title": "Look into it", **fields}))


def packed(world: World, *arguments: str) -> dict:
    return world.json("pack", *arguments)


def skill_tokens(found: dict) -> int:
    return sum(entry["tokens"] for entry in found["ledger"] if entry["kind"] in ("skill", "reference"))


@pytest.mark.parametrize("strategy", ["minimal", "standard", "comprehensive"])
def test_the_payload_of_each_strategy_is_the_golden_one(world: World, strategy: str) -> None:
    research(world)
    task(world, description="Why is the moon there?", labels=["night"], size="medium")
    payload = world.ok("pack", "T1", "--skills", "research", "--strategy", strategy)
    shown = payload.replace(str(world.workspace), "WORKSPACE")
    golden = GOLDEN / f"{strategy}.md"
    import re

    shown = re.sub(r"\d{4}-\d{2}-\d{2}", "DATE", shown)
    assert shown == golden.read_text()


def test_the_bytes_of_the_ledger_are_the_payload(world: World) -> None:
    research(world)
    task(world, description="Why?")
    found = packed(world, "T1", "--strategy", "comprehensive", "--skills", "research")
    assert sum(entry["bytes"] for entry in found["ledger"]) == len(found["payload"].encode())
    assert sum(entry["tokens"] for entry in found["ledger"]) == found["tokens"]
    assert [entry["kind"] for entry in found["ledger"]] == [
        "protocol",
        "skills",
        "skill",
        "reference",
        "task",
        "output",
    ]
    keys = {"kind", "source", "scope", "level", "tokens", "tokens_cut", "bytes", "status", "reason"}
    assert all(set(entry) == keys for entry in found["ledger"])


@pytest.mark.parametrize(
    ("fields", "options", "strategy", "reason"),
    [
        ({}, (), "standard", "no other rule"),
        ({"labels": ["simple"]}, (), "minimal", "simple"),
        ({"size": "small"}, (), "minimal", "small"),
        ({"type": "epic"}, (), "comprehensive", "epic"),
        ({"complexity": "high"}, (), "comprehensive", "complexity"),
        ({"depends": ["a", "b", "c", "d"]}, (), "comprehensive", "4 dependencies"),
        ({"depends": ["a", "b", "c"]}, (), "standard", "no other rule"),
        ({"type": "epic"}, ("--context-used", "71000"), "minimal", "71%"),
        ({"type": "epic", "size": "small"}, (), "minimal", "small"),
        ({"type": "epic"}, ("--available-context", "6999"), "standard", "2,999 tokens"),
        ({"type": "epic"}, ("--available-context", "4799"), "minimal", "799 tokens"),
        ({"type": "epic"}, ("--strategy", "minimal"), "minimal", "requested"),
    ],
)
def test_the_strategy_is_chosen_by_the_first_rule_that_applies(
    world: World, fields: dict[str, object], options: tuple[str, ...], strategy: str, reason: str
) -> None:
    world.skill(".kitbag/skills", "research", body="Short.")
    task(world, **fields)
    done = packed(world, "T1", "--skills", "research", "--output-requirements", "text", *options)
    assert done["strategy"] == strategy
    assert reason in done["strategy_reason"]


@pytest.mark.parametrize(
    ("fields", "skill", "reason"),
    [
        ({"labels": ["investigate"]}, "research", "label"),
        ({"type": "research"}, "research", "type"),
        ({"description": "Please investigate the outage."}, "research", "keyword"),
        ({"title": "Something else altogether"}, "task-executor", "no other skill"),
        ({"labels": ["deploy"], "type": "research"}, "deploy", "label"),
    ],
)
def test_skills_are_selected_by_label_then_type_then_trigger_then_fallback(
    world: World, fields: dict[str, object], skill: str, reason: str
) -> None:
    research(world)
    world.skill(".kitbag/skills", "deploy")
    task(world, **fields)
    found = packed(world, "T1")
    assert found["skills"] == [skill]
    assert reason in found["skill_reasons"][skill]


def test_a_name_that_is_an_ordinary_word_selects_a_skill_only_if_the_search_finds_it_too(world: World) -> None:
    world.skill(".kitbag/skills", "plan", description="Draws floor plans of houses.")
    world.skill(".kitbag/skills", "pdf", description="Fills in and merges PDF forms.")
    for number, subject in enumerate(("changelog", "release notes", "changelog entries of a release")):
        world.skill(".kitbag/skills", f"notes-{number}", description=f"Writes the {subject} for a release.")
    task(world, title="Plan the release", description="Write the changelog and the release notes.")
    assert "plan" not in packed(world, "T1")["skills"]
    task(world, title="Fill in the PDF", description="It is a form.")
    assert packed(world, "T1")["skills"] == ["pdf"]


def test_a_selection_reads_only_the_skills_it_selects(world: World) -> None:
    research(world)
    for number in range(20):
        world.skill(".kitbag/skills", f"other-{number}", tags="elsewhere", triggers="nothing to do")
    task(world, labels=["investigate"])
    packer = Packer(world.registry(), budgets=Budgets())
    loaded, _ = load_task("T1", packer.source())
    assert len(packer.registry.skills) > 20
    with calls(read_frontmatter) as count:
        assert [one.skill.name for one in packer.pack(loaded, PackOptions()).selected] == ["research"]
    assert count() == [1]


def test_required_skills_come_along_and_circles_are_reported(world: World) -> None:
    world.skill(".kitbag/skills", "a", requires="b")
    world.skill(".kitbag/skills", "b", requires="a, c")
    world.skill(".kitbag/skills", "c", requires="nowhere")
    task(world)
    found = packed(world, "T1", "--skills", "a")
    assert found["skills"] == ["a", "b", "c", "task-executor"]
    assert any("a -> b -> a" in warning for warning in found["warnings"])
    assert any("'nowhere'" in warning for warning in found["warnings"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("T404",), 4),
        (("T1", "--skills", "nothing"), 6),
        (("T1", "--skills", "closed"), 6),
        (("T1", "--var", "novalue"), 2),
        (("T1", "--strategy", "huge"), 2),
        (("bad.json",), 6),
        (("T1", "--skills", "research", "--available-context", "300"), 10),
    ],
)
def test_failures_have_their_exit_codes_and_json_errors(world: World, arguments: tuple[str, ...], code: int) -> None:
    research(world)
    world.skill(".kitbag/skills", "closed", disable_model_invocation="true")
    task(world)
    world.write("bad.json", "{\n  not json")
    done = world.run("pack", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    if code != 2:
        done = world.run("pack", *arguments, "--json")
        assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (code, code)


def test_over_budget_names_the_budget_and_the_excess(world: World) -> None:
    research(world)
    task(world, description="word " * 20_000)
    done = world.run("pack", "T1", "--skills", "research")
    assert done.returncode == 10
    assert "over the task budget by" in done.stderr


def test_a_task_comes_from_a_file_stdin_yaml_or_markdown(world: World) -> None:
    world.write("notes/todo.md", "---\nid: M1\nlabels: [x]\n---\n# Mend it\n\nThe thing is broken.\n")
    world.write(".kitbag/tasks/Y1.yaml", "id: Y1\ntitle: From YAML\ndepends: [a, b]\n")
    assert "The thing is broken." in world.ok("pack", "notes/todo.md")
    assert "- Depends on: a, b" in world.ok("pack", "Y1")
    piped = world.run("pack", "-", "--json", stdin='{"task": {"id": "S1", "title": "From a pipe"}}')
    assert "From a pipe" in json.loads(piped.stdout)["payload"]


def test_a_configured_command_gives_tasks_and_children(world: World) -> None:
    program = world.write(
        "cleo.py",
        "import json, sys\n"
        "tasks = {'E1': {'id': 'E1', 'title': 'Epic', 'type': 'epic'}, 'T9': {'id': 'T9', 'title': 'Nine', 'parentId': 'E1'}}\n"
        "verb, name = sys.argv[1:3]\n"
        "if verb == 'show':\n"
        "    if name not in tasks: print('no such task', file=sys.stderr); sys.exit(4)\n"
        "    print(json.dumps({'success': True, 'task': tasks[name]}))\n"
        "else:\n"
        "    print(json.dumps({'tasks': [t for t in tasks.values() if t.get('parentId') == name]}))\n",
        base=world.outside,
    )
    world.ok("config", "set", "pack.task_command", f"{sys.executable} {program} show {{id}} --format json")
    world.ok("config", "set", "pack.children_command", f"{sys.executable} {program} list {{id}}")
    assert "- Title: Nine" in world.ok("pack", "T9")
    done = world.run("pack", "T404; touch x")
    assert done.returncode == 4
    assert "no such task" in done.stderr
    assert [child["task"] for child in packed(world, "E1", "--children")["children"]] == ["T9"]


@pytest.mark.parametrize("task_id", ["--delete=all", "-x", "--"])
def test_the_id_of_a_task_is_never_an_option_of_the_configured_command(world: World, task_id: str) -> None:
    program = world.write(
        "tracker.py", "import json, sys\nprint(json.dumps({'id': 'T1', 'title': sys.argv[-1]}))\n", base=world.outside
    )
    start = f"{sys.executable} {program}"
    for written in ("{id}", "show {id} --format json", "--id {id}", "{id}.json"):
        world.ok("config", "set", "pack.task_command", f"{start} {written}")
        done = world.run("pack", "--", task_id)
        assert done.returncode == 6
        assert f"{task_id!r} starts with a dash" in done.stderr
    for written, got in (("show -- {id}", task_id), ("--id={id}", f"--id={task_id}")):
        world.ok("config", "set", "pack.task_command", f"{start} {written}")
        assert f"- Title: {got}\n" in world.ok("pack", "--", task_id)


def test_a_project_can_t_set_the_command_that_gives_tasks(world: World) -> None:
    world.write(".kitbag/settings.toml", f'[pack]\ntask_command = "touch {world.canary}"\n')
    assert world.run("pack", "T1").returncode == 4
    assert not world.canary.exists()


def test_packing_the_children_of_an_epic_reads_each_skill_once(world: World) -> None:
    research(world)
    task(world, "E1", type="epic", children=[f"T{n}" for n in range(10)])
    for number in range(10):
        task(world, f"T{number}", labels=["research"])
    found = packed(world, "E1", "--children")
    assert len(found["children"]) == 10
    assert found["cache"] == {"skill_reads": 1, "skill_uses": 10}


def test_values_come_from_the_command_line_then_the_task_then_settings(world: World) -> None:
    world.skill(".kitbag/skills", "x", body="{{TASK_ID}} {{COLOR}} {{SHAPE}} {{NOTHING}}")
    world.ok("config", "set", "vars.COLOR", "blue")
    world.ok("config", "set", "vars.SHAPE", "round")
    task(world, color="green")
    found = packed(world, "T1", "--skills", "x", "--var", "TASK_ID=T2")
    assert "T2 green round {{NOTHING}}" in found["payload"]
    assert any("NOTHING" in warning for warning in found["warnings"])


def test_references_that_a_manifest_names_are_loaded_if_they_may_be_read(world: World) -> None:
    research(world)
    world.write(".kitbag/shared/terms.md", "The terms.\n")
    (world.outside / "x.md").write_text("NOT FOR ME")
    references = [
        "skills/research/SKILL.md",
        "skills/research/references/guide.md",
        "shared/terms.md",
        "../../outside/x.md",
    ]
    entry = {"name": "research", "path": "skills/research", "references": references}
    world.write(".kitbag/skills/manifest.json", json.dumps({"skills": [entry]}))
    task(world)
    found = packed(world, "T1", "--skills", "research", "--strategy", "comprehensive")
    sources = [entry["source"] for entry in found["ledger"] if entry["kind"] == "reference"]
    assert [os.path.basename(source) for source in sources] == ["guide.md", "terms.md"]
    assert ("The terms." in found["payload"], "NOT FOR ME" in found["payload"]) == (True, False)
    assert found["payload"].count("# Research") == 1
    assert any("outside/x.md is omitted" in warning for warning in found["warnings"])


def test_path_variables_of_an_inserted_file_stay_as_they_are(world: World) -> None:
    world.write("a.md", "In ${SKILL_ROOT} here")
    world.skill(".kitbag/skills", "x", body="From ${SKILL_ROOT}: @a.md")
    world.write(".kitbag/skills/x/forms.md", "x")
    task(world)
    payload = packed(world, "T1", "--skills", "x")["payload"]
    directory = f"{world.workspace}/.kitbag/skills/x"
    assert f"From {directory}: [file: a.md]\n```md\nIn ${{SKILL_ROOT}} here\n```" in payload
    assert f"### x\n\nSkill directory: {directory}\nOther files: forms.md\n\n---\nname: x" in payload


def test_an_input_that_a_manifest_declares_and_nobody_gives_is_a_warning(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    entry = {"name": "x", "capabilities": {"inputs": ["TOPIC", "TASK_ID"]}}
    world.write(".kitbag/skills/manifest.json", json.dumps({"skills": [entry]}))
    task(world)
    warnings = packed(world, "T1", "--skills", "x")["warnings"]
    assert [warning for warning in warnings if "TOPIC" in warning]
    assert not [warning for warning in warnings if "TASK_ID" in warning]


def big_skill(world: World, name: str, sections: int = 40, **more: str) -> None:
    parts = ["## Summary\n\nIn short.", "## Core Rules\n\nNever guess."]
    parts += [f"## Part {number}\n\n" + "Many words about it. " * 100 for number in range(sections)]
    parts += ["## Examples\n\n### One\n\nFirst.\n\n### Two\n\nSecond.", "## References\n\n" + "A link. " * 200]
    world.skill(".kitbag/skills", name, body="\n\n".join(parts), **more)


def statuses(found: dict) -> dict[str, str]:
    return {Path(entry["source"]).parent.name: entry["status"] for entry in found["ledger"] if entry["kind"] == "skill"}


def test_over_budget_references_go_first_then_supporting_skills_then_the_primary_is_cut(world: World) -> None:
    big_skill(world, "main", 10)
    big_skill(world, "helper", 10)
    world.write(".kitbag/skills/main/references/long.md", "Reference text. " * 300)
    task(world)
    whole = packed(world, "T1", "--skills", "main,helper", "--strategy", "comprehensive")
    assert {entry["status"] for entry in whole["ledger"]} == {"kept"}
    cost = sum(entry["tokens"] for entry in whole["ledger"] if entry["kind"] in ("skill", "reference"))

    def at(budget: int) -> dict:
        world.ok("config", "set", "budget.skills", str(budget))
        return packed(world, "T1", "--skills", "main,helper", "--strategy", "comprehensive")

    first = at(cost - 10)
    assert [entry["status"] for entry in first["ledger"] if entry["kind"] == "reference"] == ["omitted"]
    assert statuses(first) == {"main": "kept", "helper": "kept"}
    second = at(cost * 2 // 3)
    assert statuses(second) == {"main": "kept", "helper": "cut"}
    third = at(1500)
    assert statuses(third) == {"main": "cut", "helper": "cut"}
    for needed in ("In short.", "Never guess.", "truncated for context budget"):
        assert needed in third["payload"]
    for found, budget in ((first, cost - 10), (second, cost * 2 // 3), (third, 1500)):
        used = sum(entry["tokens"] for entry in found["ledger"] if entry["kind"] in ("skill", "reference"))
        assert used <= budget
    world.ok("config", "set", "budget.skills", "20")
    done = world.run("pack", "T1", "--skills", "main")
    assert done.returncode == 10
    assert "skills budget" in done.stderr


def test_over_budget_the_skill_that_matters_least_gives_way_first(world: World) -> None:
    names = ("main", "first", "second", "third")
    for name in names:
        big_skill(world, name, 1)
        for number in "12":
            world.write(f".kitbag/skills/{name}/references/{number}.md", "Reference text. " * 100)
    one, _ = parse_task('{"id": "T1", "title": "Look into it"}', ".json", "here")
    losses = {"kept": 0, "cut": 1, "omitted": 2}
    # What each lost at some budget; the skill that matters most, and its first reference, come first.
    skills: set[tuple[int, ...]] = set()
    references: set[tuple[int, ...]] = set()
    registry = world.registry()
    for budget in (*range(50, 110, 10), *range(300, 8_000, 150)):
        packer = Packer(registry, budgets=Budgets(skills=budget))
        entries = packer.pack(one, PackOptions(skills=names, strategy="comprehensive")).ledger.entries
        skills.add(tuple(losses[entry.status] for entry in entries if entry.kind == "skill"))
        references.add(tuple(losses[entry.status] for entry in entries if entry.kind == "reference"))
    assert all(list(lost) == sorted(lost) for lost in skills)
    assert skills >= {(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 2)}
    assert references == {tuple([0] * kept + [2] * (8 - kept)) for kept in range(9)}


def test_an_upper_bound_saves_counting_and_changes_nothing_at_any_budget(world: World) -> None:
    big_skill(world, "main", 1, token_budget="700")
    big_skill(world, "other", 1)
    world.write(".kitbag/skills/main/references/1.md", "Reference text. " * 100)
    one, _ = parse_task('{"id": "T1", "title": "Look into it"}', ".json", "here")
    registry = world.registry()
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return estimate_tokens(text)

    def outcome(budgets: Budgets, bound: Callable[[str], int]) -> tuple[Any, ...]:
        packer = Packer(registry, budgets=budgets, counter=TokenCounter("estimate", False, count, bound))
        try:
            payload = packer.pack(one, PackOptions(skills=("main", "other"), strategy="comprehensive"))
            return payload.text, payload.warnings, payload.choice, payload.ledger
        except OverBudgetError as error:
            return error.problem, error.fix

    for size in (*range(50, 1_500, 50), 6_000, 20_000):
        for budgets in (Budgets(skills=size), Budgets(total=2 * size), Budgets(task=size // 50)):
            assert outcome(budgets, lambda text: 4 * len(text)) == outcome(budgets, estimate_tokens)
    counted.clear()
    counter = TokenCounter("estimate", False, count, lambda text: len(text.encode()))
    payload = Packer(registry, budgets=Budgets(), counter=counter).pack(one, PackOptions(skills=("other",)))
    assert "Look into it" in payload.text
    assert not counted
    assert payload.tokens == sum(map(estimate_tokens, counted))


def test_a_skill_s_own_token_budget_caps_it(world: World) -> None:
    big_skill(world, "main", 30, token_budget="900")
    task(world)
    found = packed(world, "T1", "--skills", "main")
    [entry] = [entry for entry in found["ledger"] if entry["kind"] == "skill"]
    assert entry["tokens"] <= 900
    assert "token_budget" in entry["reason"]


def test_budgets_come_from_the_call_then_the_agent_then_settings(world: World) -> None:
    big_skill(world, "main", 30)
    world.write(".kitbag/agents/a.md", "---\nname: a\ndescription: d\ntoken-budget: 2000\n---\n")
    task(world)

    def cost(*options: str) -> int:
        found = packed(world, "T1", "--skills", "main", *options)
        return sum(entry["tokens"] for entry in found["ledger"] if entry["kind"] == "skill")

    assert cost() > 5000
    assert cost("--agent", "a") <= 2000
    assert cost("--agent", "a", "--budget", "skills=800") <= 800
    assert world.run("pack", "T1", "--budget", "soup=1").returncode == 2
    assert world.run("pack", "T1", "--budget", "skills=many").returncode == 2


def test_a_project_s_commands_and_environment_need_trust_and_permission(world: World) -> None:
    skill = world.skill(".kitbag/skills", "x", body="Now: !`echo from-a-command; true > ran`\n\nAnd ${GREETING}.")
    task(world)
    world.env["GREETING"] = "hello-there"
    allowed = ("--allow-commands", "--allow-env", "GREETING")
    done = world.run("pack", "T1", "--skills", "x", *allowed)
    assert (done.returncode, f"{skill}:" in done.stderr, "kitbag trust" in done.stderr) == (13, True, True)
    done = world.run("pack", "T1", "--skills", "x", "--trust-workspace")
    assert (done.returncode, "--allow-commands" in done.stderr, "--allow-env" in done.stderr) == (6, True, True)
    assert not (world.workspace / "ran").exists()
    packed = world.ok("pack", "T1", "--skills", "x", "--trust-workspace", *allowed)
    assert "Now: from-a-command" in packed
    assert "And hello-there." in packed
    assert world.run("pack", "T1", "--skills", "x", *allowed).returncode == 13


def test_a_file_reference_is_inlined_and_never_scanned_again(world: World) -> None:
    world.write("docs/spec.md", "The spec says {{TASK_ID}} and @docs/other.md and !`touch $CANARY`.\n")
    world.skill(".kitbag/skills", "x", body="See @docs/spec.md for it.")
    task(world)
    found = world.ok("pack", "T1", "--skills", "x")
    assert "The spec says {{TASK_ID}} and @docs/other.md and !`touch $CANARY`." in found
    assert not world.canary.exists()


def test_explain_shows_a_bar_for_each_entry(world: World) -> None:
    research(world)
    task(world)
    shown = world.ok("pack", "T1", "--skills", "research", "--explain")
    assert "█" in shown
    assert all(kind in shown for kind in ("protocol", "skill", "task", "output"))
    assert "standard because" in shown


def test_a_model_that_a_skill_leaves_out_is_a_warning(world: World) -> None:
    world.skill(".kitbag/skills", "x", model="opus")
    world.skill(".kitbag/skills", "y", compatibility="Needs Claude")
    task(world)
    found = packed(world, "T1", "--skills", "x,y", "--model", "openai/gpt-5")
    assert len([warning for warning in found["warnings"] if "gpt-5" in warning]) == 2
    assert packed(world, "T1", "--skills", "x,y", "--model", "anthropic/claude-opus-4-5")["warnings"] == []


def test_skills_that_the_agent_preloads_are_charged_first_and_not_injected_twice(world: World) -> None:
    research(world)
    world.write(".kitbag/agents/digger.md", "---\nname: digger\ndescription: d\nskills: [research]\n---\nDig.\n")
    task(world)
    found = packed(world, "T1", "--skills", "research", "--agent", "digger")
    assert "### research" not in found["payload"]
    [entry] = [entry for entry in found["ledger"] if entry["kind"] == "skill"]
    assert (entry["status"], entry["tokens"]) == ("omitted", 0)


def test_pack_in_python_gives_the_same(world: World) -> None:
    research(world)
    task(world)
    payload = pack("T1", registry=world.registry(), skills=("research",))
    assert payload.text == packed(world, "T1", "--skills", "research")["payload"]
    assert payload.ledger.payload == payload.text


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bodies=st.lists(st.text(max_size=4000), min_size=1, max_size=3),
    references=st.lists(st.text(max_size=2000), max_size=3),
    description=st.text(max_size=1500),
    strategy=st.sampled_from(["minimal", "standard", "comprehensive", None]),
    skills_budget=st.integers(100, 4000),
)
def test_for_any_texts_the_ledger_is_the_payload_and_the_budget_holds(
    tmp_path_factory: pytest.TempPathFactory,
    bodies: list[str],
    references: list[str],
    description: str,
    strategy: Any,
    skills_budget: int,
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    for number, body in enumerate(bodies):
        world.skill(".kitbag/skills", f"s{number}", body=body.replace("\0", ""))
    for number, text in enumerate(references):
        world.write(f".kitbag/skills/s0/references/{number}.md", text.encode("utf-8", "replace"))
    names = tuple(f"s{number}" for number in range(len(bodies)))
    packer = Packer(world.registry(), budgets=Budgets(skills=skills_budget))
    one, _ = parse_task(json.dumps({"id": "T1", "description": description}), ".json", "here")
    try:
        payload = packer.pack(one, PackOptions(skills=names, strategy=strategy))
    except (OverBudgetError, ReferenceDeniedError):
        return
    entries = payload.ledger.entries
    assert "".join(entry.text for entry in entries) == payload.text
    assert sum(entry.bytes for entry in entries) == len(payload.text.encode("utf-8", "surrogatepass"))
    assert sum(entry.tokens for entry in entries) == payload.tokens
    assert sum(entry.tokens for entry in entries if entry.kind in ("skill", "reference")) <= skills_budget
    for entry in entries:
        assert (entry.status == "omitted") == (entry.text == "")
        assert (entry.status == "kept") == (entry.reason == "")


BLOCKS = st.sampled_from(
    [
        "## Summary\n\nIn short.", "## Core Rules\n\nNever guess.", "# Title", "## Steps", "## Examples", "## Appendix",
        "One line of words. " * 20, "Words and words.\n" * 60, "word " * 900, "x" * 4_000,
        "```py\n" + "value = compute(1)\n" * 150 + "```", "- an item\n- and another",
    ]
)  # fmt: skip
BODIES = st.lists(BLOCKS, min_size=1, max_size=8).map("\n\n".join)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    bodies=st.lists(BODIES, min_size=1, max_size=3),
    references=st.lists(BODIES, max_size=2),
    strategy=st.sampled_from(["minimal", "standard", "comprehensive"]),
    budget=st.integers(300, 4_000),
)
def test_over_budget_nine_tenths_of_the_budget_are_used_whatever_the_skills_are(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[str], references: list[str], strategy: Any, budget: int
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    names = tuple(
        world.skill(".kitbag/skills", f"s{number}", body=body).parent.name for number, body in enumerate(bodies)
    )
    for number, text in enumerate(references):
        world.write(f".kitbag/skills/s0/references/{number}.md", text)
    one, _ = parse_task('{"id": "T1", "title": "Do it"}', ".json", "here")
    options = PackOptions(skills=names, strategy=strategy)

    def used(limit: int) -> int:
        payload = Packer(world.registry(), budgets=Budgets(skills=limit)).pack(one, options)
        assert "".join(entry.text for entry in payload.ledger.entries) == payload.text
        return sum(entry.tokens for entry in payload.ledger.entries if entry.kind in ("skill", "reference"))

    if extract_essential(bodies[0], estimate_tokens).tokens < budget - 150:  # else it is over budget
        assert min(used(60_000), budget * 0.9) <= used(budget) <= budget


@long
def test_a_thousand_packs_do_not_grow(world: World) -> None:
    import gc

    research(world)
    task(world, labels=["research"])
    packer = Packer(world.registry(), budgets=Budgets())
    loaded, _ = load_task("T1", packer.source())
    for _ in range(50):
        packer.pack(loaded, PackOptions())
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        packer.pack(loaded, PackOptions())
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert packer.reads == 1


def test_nothing_is_written_by_packing(world: World) -> None:
    research(world)
    task(world)
    before = sorted(path for path in world.workspace.rglob("*"))
    subprocess.run(
        [sys.executable, "-m", "kitbag", "pack", "T1"],
        cwd=world.workspace,
        env=world.env,
        capture_output=True,
        timeout=TEST_TIMEOUT,
    )
    assert sorted(path for path in world.workspace.rglob("*")) == before


def late(world: World) -> None:
    """A skill whose Summary and Core Rules stand far below its first lines."""
    filler = "\n".join(f"Background {number}: words and more words." for number in range(1500))
    body = f"## Background\n\n{filler}\n\n## Summary\n\nIn short.\n\n## Core Rules\n\nNever guess."
    world.skill(".kitbag/skills", "late", body=body)


def test_the_floor_holds_when_minimal_was_chosen_and_is_still_too_much(world: World) -> None:
    late(world)
    task(world, labels=["simple"])
    whole = packed(world, "T1", "--skills", "late")
    assert whole["strategy"] == "minimal"
    tight = packed(world, "T1", "--skills", "late", "--budget", "skills=200")
    for needed in ("name: late", "In short.", "Never guess."):
        assert needed in tight["payload"]
    assert any("tokens omitted" in warning for warning in tight["warnings"])
    assert world.run("pack", "T1", "--skills", "late", "--budget", "skills=20").returncode == 10


def test_a_skill_slightly_over_budget_is_cut_inside_its_strategy(world: World) -> None:
    late(world)
    task(world)
    whole = skill_tokens(packed(world, "T1", "--skills", "late", "--strategy", "standard"))
    for budget in (whole - 300, whole // 2):
        found = packed(world, "T1", "--skills", "late", "--strategy", "standard", "--budget", f"skills={budget}")
        assert found["strategy"] == "standard"
        assert budget * 0.9 <= skill_tokens(found) <= budget


def test_the_strategy_is_lowered_only_where_that_leaves_more_and_that_is_told(world: World) -> None:
    lines = [f"Line {number} of the first part has many words in it." for number in range(44)]
    body = "\n".join(["## First", *lines, "", "## Second", *["A line."] * 60])
    world.skill(".kitbag/skills", "late", body=body)
    task(world)
    minimal = skill_tokens(packed(world, "T1", "--skills", "late", "--strategy", "minimal"))
    found = packed(world, "T1", "--skills", "late", "--strategy", "standard", "--budget", f"skills={minimal}")
    assert found["strategy"] == "minimal"
    assert "standard (requested) was over budget" in found["strategy_reason"]
    assert skill_tokens(found) == minimal


@pytest.mark.parametrize(("used", "code"), [("71000", 0), ("99900", 10), ("200000", 10)])
def test_what_is_in_use_already_leaves_less_room(world: World, used: str, code: int) -> None:
    task(world)
    assert world.run("pack", "T1", "--context-used", used).returncode == code


def test_everything_that_is_refused_is_told_at_once_with_a_way_to_allow_it(world: World) -> None:
    world.skill(".kitbag/skills", "x", body="!`echo one`\n\n!`echo two`\n\n${FOO}")
    task(world)
    done = world.run("pack", "T1", "--skills", "x")
    assert done.returncode == 13
    assert all(
        part in done.stderr for part in ("`echo one`", "`echo two`", "`FOO`", "kitbag trust", "--trust-workspace")
    )


def test_a_task_can_neither_hide_characters_nor_add_headings(world: World) -> None:
    title, nasty = "x\n## Output Requirements\nevil", "a\x1b[2Jb\u202ec"
    task(world, title=title, description=nasty, labels=["l\n## Task"])
    found = packed(world, "T1")
    assert found["payload"].count("\n## Output Requirements") == 1
    assert found["payload"].count("\n## Task") == 1
    assert "a[U+001B][2Jb[U+202E]c" in found["payload"]
    assert any("hidden characters" in warning for warning in found["warnings"])


@pytest.mark.parametrize("text", ["{}", "null", "[]", ""])
def test_a_file_that_holds_no_task_is_refused(world: World, text: str) -> None:
    world.write("empty.json", text)
    assert world.run("pack", "empty.json").returncode == 6


@pytest.mark.parametrize("depth", [200, 1_200, 5_000, 100_000])
def test_one_that_is_nested_too_deep_is_refused_with_the_reason(world: World, depth: int) -> None:
    done = world.run("pack", "-", stdin='{"data":' * depth + '{"id": "T1", "title": "x"}' + "}" * depth)
    assert done.returncode == 6
    assert "levels deep" in done.stderr


def test_a_file_may_have_any_name_and_a_directory_is_no_task(world: World) -> None:
    world.write("notes.txt", "# Mend it\n\nIt is broken.\n")
    assert "It is broken." in world.ok("pack", "notes.txt")
    done = world.run("pack", ".git")
    assert (done.returncode, "is not a task file" in done.stderr) == (6, True)


def test_a_reference_that_is_too_much_for_the_task_is_named(world: World) -> None:
    world.write("big.md", "many words here " * 5000)
    task(world, description="Look at @big.md")
    done = world.run("pack", "T1")
    assert done.returncode == 10
    assert "big.md" in done.stderr


def test_a_skill_that_only_the_manifest_knows_is_a_warning(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    entry = {"name": "ghost", "capabilities": {"dispatch_triggers": ["summon"]}}
    world.write(".kitbag/skills/manifest.json", json.dumps({"skills": [entry]}))
    task(world, title="Please summon it")
    found = packed(world, "T1")
    assert found["skills"] == ["task-executor"]
    assert any("'ghost'" in warning for warning in found["warnings"])


def test_one_word_in_common_does_not_select_a_skill(world: World) -> None:
    task(world, title="Write docs")
    assert packed(world, "T1")["skills"] == ["task-executor"]


def test_ending_the_program_ends_the_commands_it_runs(world: World) -> None:
    seconds = f"1000.{os.urandom(6).hex().translate(str.maketrans('abcdef', '123456'))}"
    world.write("slow.md", f"# Wait\n\n!`echo begun > begun; sleep {seconds}`\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "kitbag", "pack", "slow.md", "--allow-commands", "--trust-workspace"],
        cwd=world.workspace, env=world.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    begun = world.workspace / "begun"
    wait_until(lambda: begun.exists() and is_running(seconds))
    process.terminate()
    assert process.wait(TEST_TIMEOUT) == 143
    wait_until(lambda: not is_running(seconds))


def is_running(word: str) -> bool:
    """A process that was started with that word; a sandbox numbers them otherwise than we do."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{word}\0".encode() in (entry / "cmdline").read_bytes():
                    return True
            except OSError:
                continue
    return False


@pytest.mark.parametrize("trigger", ["(a+)+$", "(a|a)*$", "a*a*a*a*b$", "([a-z]+"])
def test_a_trigger_that_could_take_for_ever_is_no_pattern_and_is_told(world: World, trigger: str) -> None:
    world.write(".kitbag/skills/rx/SKILL.md", f"---\nname: rx\ndescription: d\ntriggers:\n  - '{trigger}'\n---\nx\n")
    task(world, title="a" * 60 + "!")
    found = packed(world, "T1")
    assert found["skills"] == ["task-executor"]
    assert any("is not a usable pattern" in warning for warning in found["warnings"])


def test_a_trigger_with_marks_in_it_is_still_a_word_and_a_pattern_a_pattern(world: World) -> None:
    world.write(
        ".kitbag/skills/cpp/SKILL.md", "---\nname: native\ndescription: d\ntriggers: ['C++', 'SHOP-\\d+']\n---\nx\n"
    )
    task(world, "A", title="Fix music")
    task(world, "B", title="Something", labels=["C++"])
    task(world, "C", title="Look at SHOP-12")
    assert [packed(world, name)["skills"] for name in "ABC"] == [["task-executor"], ["native"], ["native"]]


def test_a_rule_that_also_occurs_elsewhere_is_not_taken_for_kept(world: World) -> None:
    intro = "Never say Ask first.\n" + "\n".join(f"Line {n} of the introduction." for n in range(60))
    body = f"{intro}\n\n## Core Rules\n\nAsk first\n\nRun tests.\n\n## Other\n\n" + "Many words. " * 2000
    world.skill(".kitbag/skills", "sub", body=body)
    task(world)
    for options in (("--budget", "skills=700"), ("--strategy", "minimal")):
        payload = packed(world, "T1", "--skills", "sub", *options)["payload"]
        assert "## Core Rules\n\nAsk first\n\nRun tests." in payload


def test_a_cap_never_makes_a_skill_longer_and_what_it_can_t_hold_is_told(world: World) -> None:
    rules = "## Core Rules\n\n" + "Keep this rule. " * 300
    world.skill(".kitbag/skills", "grow", body="Intro.\n" * 60 + rules, token_budget="100")
    world.skill(".kitbag/skills", "odd", body="x", token_budget="²")
    task(world)
    found = packed(world, "T1", "--skills", "grow,odd")
    assert any("exceed its token_budget of 100" in warning for warning in found["warnings"])
    assert "Keep this rule." in found["payload"]


def test_a_command_runs_once_however_its_skill_is_cut(world: World) -> None:
    body = "!`echo run >> ran`\n\n" + "Words and words.\n" * 100
    world.skill(".kitbag/skills", "x", body=body, token_budget="60")
    task(world)
    world.ok("pack", "T1", "--skills", "x", "--strategy", "minimal", "--allow-commands", "--trust-workspace")
    assert (world.workspace / "ran").read_text() == "run\n"


def test_yaml_may_be_piped_in(world: World) -> None:
    done = world.run("pack", "-", "--json", stdin="id: T9\ntitle: Fix it\nsize: small\n")
    found = json.loads(done.stdout)
    assert (found["task"], found["strategy"]) == ("T9", "minimal")


@pytest.mark.parametrize(
    ("printed", "children"),
    [
        ('["A", "B"]', ["A", "B"]),
        ('{"id": "E1", "title": "epic", "children": [{"id": "Z1"}, {"id": "Z2"}]}', ["Z1", "Z2"]),
        ('{"success": true, "data": {"items": [{"id": "Z1", "title": "z"}]}}', ["Z1"]),
        ("[]", []),
        ('{"what": "else"}', None),
    ],
)
def test_children_are_read_from_whatever_a_tool_prints(world: World, printed: str, children: list[str] | None) -> None:
    program = world.write("kids.sh", f"echo '{printed}'\n", base=world.outside)
    world.ok("config", "set", "pack.children_command", f"sh {program} {{id}}")
    for name in ("E1", "A", "B"):
        task(world, name)
    done = world.run("pack", "E1", "--children", "--json")
    if children is None:
        assert done.returncode == 6
    else:
        assert [child["task"] for child in json.loads(done.stdout)["children"]] == children


def test_a_child_that_can_t_be_read_or_packed_is_named(world: World) -> None:
    task(world, "E1")
    task(world, "C1", parent="E1", description="word " * 20_000)
    world.write(".kitbag/tasks/C2.json", '{"id": "C2", "parent": "E1",}')
    done = world.run("pack", "E1", "--children")
    assert done.returncode == 10
    assert "C1: over the task budget" in done.stderr


def test_a_long_chain_of_requirements_ends(world: World) -> None:
    for number in range(60):
        world.skill(".kitbag/skills", f"s{number}", requires=f"s{number + 1}" if number < 59 else "s0")
    task(world)
    found = packed(world, "T1", "--skills", "s0")
    assert len(found["skills"]) == 20
    assert any("is omitted" in warning for warning in found["warnings"])
