"""`kitbag skills test`: the formats of test files, the tier without a model, and the one with a model."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import World
from kitbag.packing.skill_case_formats import CaseReader
from kitbag.packing.skill_cases import find_case_files, read_cases
from support.matrix import examples
from support.routing_set import SKILLS

LOADS = {"query": "fill in this pdf form", "should_trigger": True}
NOT = {"query": "write a python script", "should_trigger": False}
YAML = "- query: fill in this pdf form\n- query: write a python script\n  should_trigger: no\n"


@pytest.fixture
def library(world: World) -> World:
    for name, description in SKILLS.items():
        world.skill("~/.kitbag/skills", name, description=f'"{description}"')
    return world


def cases_of(world: World, name: str, text: str) -> tuple[list[tuple[str, bool, int]], list[str]]:
    path = world.write(f"~/.kitbag/skills/pdf/evals/{name}", text)
    skill = world.registry().find_skill("pdf")
    assert find_case_files(skill) == [str(path)]
    found = read_cases(skill, str(path))
    path.unlink()
    return [(one.message, one.should_load, one.claims) for one in found.cases], [one.problem for one in found.problems]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("evals.json", json.dumps([LOADS, NOT])),
        ("evals.json", json.dumps({"skill_name": "pdf", "evals": [LOADS, {**NOT, "id": 2}]})),
        ("trigger_evals.json", json.dumps({"should_trigger": [LOADS["query"]], "should_not_trigger": [NOT["query"]]})),
        ("cases.jsonl", f"{json.dumps(LOADS)}\n\n{json.dumps(NOT)}\n"),
        ("triggers.yaml", YAML),
        ("evals.yml", f"evals:\n{YAML}"),
        ("evals.json", "\ufeff" + json.dumps([LOADS, NOT], indent=1).replace("\n", "\r\n")),
        ("camel.json", json.dumps([{**LOADS, "shouldTrigger": True}, {"query": NOT["query"], "shouldTrigger": False}])),
        (
            "waza.json",
            json.dumps({"shouldTriggerPrompts": [LOADS["query"]], "shouldNotTriggerPrompts": [NOT["query"]]}),
        ),
        ("a.json", json.dumps({"should_activate": [LOADS["query"]], "should_not_activate": [NOT["query"]]})),
        ("a.json", json.dumps({"trigger": [LOADS, NOT], "acceptance": ["It works."]})),
        ("a.json", json.dumps({"triggers": {"positive": [LOADS["query"]], "negative": [NOT["query"]]}})),
        ("a.json", json.dumps({"skills": {"pdf": {"should": [LOADS["query"]], "should_not": [NOT["query"]]}}})),
        (
            "a.yaml",
            f"test_cases:\n- {{prompt: {LOADS['query']}, expected: trigger}}\n- {{prompt: {NOT['query']}, expected: no_trigger}}\n",
        ),
        (
            "a.jsonl",
            f'{{"query": "{LOADS["query"]}", "expected_skill": "pdf"}}\n{{"query": "{NOT["query"]}", "expected_skill": null}}\n',
        ),
        ("a.json", json.dumps({"skills": [{"name": "pdf", "positive": [LOADS["query"]], "negative": [NOT["query"]]}]})),
        (
            "a.json",
            json.dumps({"pdf": {"should": [LOADS["query"]], "near": [{"prompt": NOT["query"], "expect": None}]}}),
        ),
        (
            "a.json",
            json.dumps(
                [
                    {"query": LOADS["query"], "expected": "should_trigger"},
                    {"query": NOT["query"], "expected": "should_not_trigger"},
                ]
            ),
        ),
        (
            "a.json",
            json.dumps(
                {
                    "cases": [
                        {"input": LOADS["query"], "expected_action": "activate"},
                        {"input": NOT["query"], "expect": "excel"},
                    ]
                }
            ),
        ),
        ("a.prompts.csv", f"id,should_trigger,prompt\n1,true,{LOADS['query']}\n2,false,{NOT['query']}\n"),
    ],
)
def test_every_format_gives_the_same_cases(library: World, name: str, text: str) -> None:
    assert cases_of(library, name, text) == ([(LOADS["query"], True, 0), (NOT["query"], False, 0)], [])


def test_assertions_and_expectations_are_cases_of_which_only_the_routing_is_tested(library: World) -> None:
    for field in ("assertions", "expectations"):
        text = json.dumps({"evals": [{"id": 1, "prompt": "Fill it.", "expected_output": "x", field: ["a", "b"]}]})
        assert cases_of(library, "evals.json", text) == ([("Fill it.", True, 2)], [])


def test_one_object_is_one_case_as_in_anthropics_guide(library: World) -> None:
    text = json.dumps({"skills": ["pdf"], "query": "Fill it.", "files": [], "expected_behavior": ["a", "b", "c"]})
    assert cases_of(library, "first.json", text) == ([("Fill it.", True, 3)], [])


def test_promptfoo_says_with_assertions_which_skill_is_used(library: World) -> None:
    text = """
prompts: ["{{prompt}}"]
providers: [anthropic:claude-agent-sdk]
tests:
- vars: {prompt: Fill it.}
  assert: [{type: skill-used, value: "office:pdf"}, {type: contains, value: x}]
- vars: {prompt: Plot it.}
  assert: [{type: not-skill-used, value: pdf}]
- vars: {target: Bake it.}
  assert: [{type: skill-used, value: {name: excel}}]
"""
    expected = [("Fill it.", True, 2), ("Plot it.", False, 1), ("Bake it.", False, 1)]
    assert cases_of(library, "promptfooconfig.yaml", text) == (expected, [])


def test_test_files_also_lie_beside_the_skill_and_in_tests(library: World) -> None:
    for path in ("evals.csv", "trigger-tests.yaml", "tests/triggers.json", "tests/fixture.json", "package.json"):
        library.write(f"~/.kitbag/skills/pdf/{path}", "[]")
    found = find_case_files(library.registry().find_skill("pdf"))
    assert [path.partition("/pdf/")[2] for path in found] == ["evals.csv", "trigger-tests.yaml", "tests/triggers.json"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("evals.json", "[{", "invalid JSON"),
        ("evals.json", "[" * 5_000, "invalid JSON"),
        ("evals.yaml", "a: [", "invalid YAML"),
        ("evals.json", "{}", "no test cases"),
        ("evals.json", '[{"should_trigger": true}]', "case 1 has no message"),
        ("evals.json", '[{"query": 5}]', "case 1 has no message"),
        ("evals.json", '[{"query": ["a"]}]', "case 1 has no message"),
        ("evals.json", '[{"query": " "}, ""]', "case 1 has no message"),
        ("evals.json", "", "no test cases"),
        ("evals.json", '[{"query": "x"},]', "invalid JSON: expecting value at column 17"),
        ("evals.json", '// why\n[{"query": "x"}]', "invalid JSON: expecting value at column 1"),
        ("evals.json", f'[{{"query": "{"x" * 4_200_000}"}}]', "larger than 4 MB"),
        ("evals.yaml", "a: [", "invalid YAML: while"),
        ("evals.json", '[{"query": "x", "should_trigger": null}]', "`should_trigger` is null"),
        ("evals.json", '[{"query": "x", "should_trigger": "perhaps"}]', '`should_trigger` is "perhaps"'),
    ],
)
def test_what_can_not_be_used_is_reported(library: World, name: str, text: str, problem: str) -> None:
    cases, problems = cases_of(library, name, text)
    assert cases == []
    assert problem in problems[0]


def test_a_bad_line_costs_no_other_line_its_case(library: World) -> None:
    path = library.write("~/.kitbag/skills/pdf/evals/cases.jsonl", f"{json.dumps(LOADS)}\n\n{{bad\n{json.dumps(NOT)}\n")
    found = read_cases(library.registry().find_skill("pdf"), str(path))
    assert [one.message for one in found.cases] == [LOADS["query"], NOT["query"]]
    assert [one.line for one in found.problems] == [3]


def test_more_cases_than_the_limit_are_reported(library: World) -> None:
    cases, problems = cases_of(library, "evals.json", json.dumps(["x", *[LOADS] * 5_002]))
    assert (len(cases), problems) == (5_000, ["only the first 5,000 cases are used"])


def test_a_message_with_both_expectations_is_reported(library: World) -> None:
    write_cases(library, "pdf", LOADS, {**LOADS, "query": "Fill in  this PDF form", "should_trigger": False})
    done = library.run("skills", "test")
    assert "case 2 contradicts case 1: the same message should load pdf and should not" in done.stdout
    assert done.stdout.endswith("1 passed, 1 failed, 1 problem\n")


def test_files_that_are_no_tests_are_ignored(library: World) -> None:
    assert cases_of(library, "history.json", '{"iterations": [{"version": "v0"}], "message": "x"}') == ([], [])
    assert cases_of(library, "grading.json", '{"expectations": [{"text": "x", "passed": true}]}') == ([], [])
    assert cases_of(library, "words.json", '["a", "b"]') == ([], [])
    assert cases_of(library, "prices.csv", "a,b\n1,2,3\n") == ([], [])
    assert cases_of(library, "benchmark.json", '{"runs": [{"score": 1}], "evals": "none"}') == ([], [])
    assert cases_of(library, "results.json", "[1, null, [2]]") == ([], [])


_NAMES = st.sampled_from(
    (
        "evals",
        "cases",
        "query",
        "shouldNotTrigger",
        "should_trigger",
        "vars",
        "assert",
        "type",
        "value",
        "expect",
        "pdf",
    )
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.sampled_from(("x", "", "skill-used", "pdf", "no", "\ud800")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES | st.integers(), inner, max_size=4),
)


@given(_VALUES, st.booleans())
@settings(max_examples=examples(100))
def test_any_value_is_read_without_an_error(value: object, is_explicit: bool) -> None:
    reader = CaseReader("pdf", "evals.json", is_explicit=is_explicit)
    reader.read(value)
    assert all(case.message.strip() for case in reader.cases)


def write_cases(world: World, skill: str, *cases: object) -> Path:
    return world.write(f"~/.kitbag/skills/{skill}/evals/evals.json", json.dumps(cases))


def test_failures_exit_with_1_and_name_the_confusion(library: World) -> None:
    assert library.run("skills", "test").returncode == 4
    write_cases(library, "pdf", LOADS, NOT)
    assert library.ok("skills", "test") == "2 passed, 0 failed\n"
    write_cases(
        library, "excel", {"query": "fill in this pdf form"}, {"query": "pivot tables", "should_trigger": False}
    )
    report = library.workspace / "report.xml"
    done = library.run("skills", "test", "--json", "--junit", str(report))
    found = json.loads(done.stdout)
    assert (done.returncode, found["passed"], found["failed"], found["tier"]) == (1, 2, 2, "ranking")
    assert [(one["skill"], one["chosen"]) for one in found["confusions"]] == [("", "excel"), ("excel", "pdf")]
    suites = {suite.get("name"): suite for suite in ElementTree.parse(report).getroot()}
    assert [suites[name].get("failures") for name in ("excel", "pdf")] == ["2", "0"]
    table = library.run("skills", "test", "excel").stdout
    assert "failed: excel 1 (~/.kitbag/skills/excel/evals/evals.json): " in table
    assert "EXPECTED  CHOSEN  TIMES  EXAMPLE" in table
    assert table.endswith("0 passed, 2 failed\n")


def test_a_skill_outside_the_library_competes_with_it(library: World) -> None:
    library.skill("new", "form-filler", "Fills in pdf forms.")
    library.write("new/form-filler/evals/evals.json", json.dumps([LOADS]))
    found = json.loads(library.run("skills", "test", "new/form-filler", "--json").stdout)
    assert {"form-filler", "pdf"} <= set(found["results"][0]["chosen"])
    for path in ("new", "new/form-filler/SKILL.md", "new/form-filler/evals", "new/form-filler/evals/evals.json"):
        assert library.run("skills", "test", path).returncode == 0, path
    assert library.run("skills", "test", "new/none").returncode == 4


def test_hidden_characters_and_control_characters_do_not_break_the_report(library: World) -> None:
    write_cases(library, "pdf", {"query": 'x\x00"<&\u202e\ud800', "id": "a<b"})
    report = library.workspace / "report.xml"
    assert library.run("skills", "test", "--junit", str(report)).returncode == 1
    assert ElementTree.parse(report).getroot()[0][0].get("name", "").startswith("a<b: x")


def test_a_model_is_asked_within_the_cap_and_its_first_load_counts(library: World) -> None:
    write_cases(library, "pdf", {**LOADS, "id": "yes"}, {**NOT, "id": "no"}, {"query": "third", "id": "other"})
    library.skill("~/.kitbag/skills", "runs", body="!`touch $CANARY`")
    search = {"calls": [{"name": "SearchSkills", "arguments": {"query": "pdf"}}]}

    def load(name: str) -> dict[str, object]:
        return {"calls": [{"name": "Skill", "arguments": {"skill": name}}]}

    rules = [
        {"first": "fill in", "replies": [search, load("pdf"), load("excel")]},
        {"first": "third", "replies": [load("runs")]},
        {"replies": ["No skill."]},
    ]
    library.write("script.json", json.dumps({"rules": rules}))
    model = f"scripted:{library.workspace / 'script.json'}"
    done = library.run("skills", "test", "--model", model, "--json")
    found = json.loads(done.stdout)
    assert [(one["id"], one["outcome"], one["chosen"]) for one in found["results"]] == [
        ("yes", "passed", ["pdf"]),
        ("no", "passed", []),
        ("other", "failed", ["runs"]),
    ]
    assert "3 messages, about " in done.stderr
    assert done.returncode == 1
    assert not library.canary.exists()
    assert library.json("sessions", "list") == []
    library.write("~/.kitbag/settings.toml", "[models.scripted]\ninput = 1000000.0\n")
    over = library.run("skills", "test", "--model", model)
    assert over.returncode == 12
    assert "would cost more than the cap" in over.stderr


def test_a_skill_that_the_model_would_not_see_is_an_error(world: World) -> None:
    world.skill(".kitbag/skills", "pdf", "Fills in pdf forms.")
    world.write(".kitbag/skills/pdf/evals/evals.json", json.dumps([LOADS]))
    assert world.run("skills", "test").returncode == 0
    assert world.run("skills", "test", "--model", "offline").returncode == 13


def test_a_model_that_fails_passes_no_test(library: World) -> None:
    write_cases(library, "pdf", {**NOT, "id": "no"}, {**LOADS, "id": "yes"}, {**NOT, "id": "third"})
    library.write("script.json", json.dumps([{"fault": {"status": 401, "times": 99}}]))
    report = library.workspace / "report.xml"
    options = ("--model", f"scripted:{library.workspace / 'script.json'}", "--junit", str(report))
    done = library.run("skills", "test", *options)
    assert done.returncode == 7
    assert done.stdout.count("error: pdf") == 2
    assert "skipped: 1 message: the model failed before" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 passed, 0 failed, 1 skipped, 2 errors; cost ")
    suite = ElementTree.parse(report).getroot()[0]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "0", "2", "1"]


def test_a_report_that_can_not_be_written_is_an_error_before_anything_is_tested(library: World) -> None:
    write_cases(library, "pdf", LOADS)
    for path in ("nowhere/report.xml", "."):
        done = library.run("skills", "test", "--junit", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"--junit {path}: " in done.stderr


def test_a_message_that_invokes_the_skill_loads_it_and_is_not_sent_to_a_model(library: World) -> None:
    library.skill("~/.kitbag/skills", "runs", body="!`touch $CANARY`")
    write_cases(library, "pdf", "/pdf this form", {"query": "/runs", "should_trigger": False})
    library.write("script.json", json.dumps([{"fault": {"status": 401, "times": 99}}]))
    for options in ((), ("--model", f"scripted:{library.workspace / 'script.json'}")):
        found = json.loads(library.run("skills", "test", "--json", *options).stdout)
        assert [(one["outcome"], one["chosen"]) for one in found["results"]] == [
            ("passed", ["pdf"]),
            ("passed", ["runs"]),
        ]
    assert not library.canary.exists()


def test_a_hidden_skill_fails_with_the_reason_why_it_is_hidden(library: World) -> None:
    library.skill("~/.kitbag/skills", "boats", "Paints boats.", **{"disable-model-invocation": "true"})
    write_cases(library, "boats", {"query": "paint my boats"})
    done = library.run("skills", "test", "boats")
    assert "no skill was chosen (a model may not find it: disable-model-invocation is set in its file)" in done.stdout


def test_one_test_file_is_tested_alone(library: World) -> None:
    write_cases(library, "pdf", LOADS, NOT)
    library.write("~/.kitbag/skills/pdf/evals/more.json", json.dumps([LOADS]))
    evals = library.home / ".kitbag/skills/pdf/evals"
    assert library.ok("skills", "test", str(evals / "more.json")) == "1 passed, 0 failed\n"
    assert library.ok("skills", "test", str(evals)) == "3 passed, 0 failed\n"
    assert library.ok("skills", "test", str(evals.parent / "SKILL.md")) == "3 passed, 0 failed\n"
    library.write("~/.kitbag/skills/pdf/evals/notes.txt", "x")
    done = library.run("skills", "test", str(evals / "notes.txt"))
    assert (done.returncode, "not a test file of a skill" in done.stderr) == (4, True)
