"""The server scenarios of the MCP project's own conformance suite, against the server of `kitbag mcp --http`."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from support import matrix, needs
from support.conformance_server import conformance_server
from support.connected import at_home
from support.waiting import TEST_TIMEOUT

MINE = "~/.kitbag/skills"
SUITE_TIMEOUT = 5 * TEST_TIMEOUT
SHIM = Path(__file__).parents[1] / "support" / "conformance_node20.mjs"

NO_LOGGING = "Kitbag does not declare the logging capability, which protocol 2026-07-28 deprecates"
NO_TASKS = "Kitbag does not declare the tasks extension; its Task tools run agents in the background"
NO_INPUT_REQUIRED = (
    "Kitbag asks through elicitation requests, in protocols that have them, and never returns input-required"
)
EXPECTED_FAILURES = {
    "logging-set-level": NO_LOGGING,
    "tools-call-with-logging": NO_LOGGING,
    "server-sse-polling": "streams are not resumable: a client that lost one repeats its request",
    "server-stateless/sep-2575-server-unsupported-version-error": (
        "over HTTP, server/discover offers the protocols that have sessions, and the SDK's error names the newest, which "
        "Kitbag serves without state"
    ),
    "tasks-lifecycle": NO_TASKS,
    "tasks-capability-negotiation": NO_TASKS,
    "tasks-wire-fields": NO_TASKS,
    "tasks-request-state-removal": NO_TASKS,
    "tasks-mrtr-input": NO_TASKS,
    "tasks-request-headers": NO_TASKS,
    "tasks-dispatch-and-envelope": NO_TASKS,
    "tasks-status-notifications": NO_TASKS,
    "tasks-required-task-error": NO_TASKS,
    "tasks-mrtr-composition": NO_TASKS,
    "input-required-result-basic-elicitation": NO_INPUT_REQUIRED,
    "input-required-result-basic-sampling": NO_INPUT_REQUIRED,
    "input-required-result-basic-list-roots": NO_INPUT_REQUIRED,
    "input-required-result-request-state": NO_INPUT_REQUIRED,
    "input-required-result-multiple-input-requests": NO_INPUT_REQUIRED,
    "input-required-result-multi-round": NO_INPUT_REQUIRED,
    "input-required-result-non-tool-request": NO_INPUT_REQUIRED,
    "input-required-result-result-type": NO_INPUT_REQUIRED,
    "input-required-result-tampered-state": NO_INPUT_REQUIRED,
    "input-required-result-capability-check": NO_INPUT_REQUIRED,
}
"""Scenarios, or single checks of a scenario, that do not apply, and why. docs/mcp.md has the same reasons."""

__all__ = ["at_home"]  # a fixture that every test here uses

# The suite also checks what the SDK deprecates with its newest protocol.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")


async def node(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "node", "--import", SHIM.as_uri(), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), SUITE_TIMEOUT)
    finally:
        if process.returncode is None:
            process.kill()
    return out.decode()


def read_results(folder: Path, scenarios: list[str]) -> dict[str, list[dict[str, Any]]]:
    results: dict[str, list[dict[str, Any]]] = {}
    for path in folder.glob("server-*/checks.json"):
        name = path.parent.name.removeprefix("server-")
        scenario = max((one for one in scenarios if name.startswith(f"{one}-20")), key=len)
        results[scenario] = json.loads(path.read_text())
    return results


def failures(results: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Scenarios and checks that did not pass, with the suite's message."""
    failed: dict[str, str] = {}
    for scenario, checks in results.items():
        wrong = {check["id"]: str(check.get("errorMessage")) for check in checks if check["status"] == "FAILURE"}
        if scenario in EXPECTED_FAILURES or not any(check["status"] == "SUCCESS" for check in checks):
            if wrong or not any(check["status"] == "SUCCESS" for check in checks):
                failed[scenario] = "; ".join(wrong.values()) or "nothing was checked"
            continue
        failed |= {f"{scenario}/{check}": message for check, message in wrong.items()}
    return failed


@matrix.long
def test_every_scenario_of_the_conformance_suite_passes_or_is_listed_with_its_reason(world: World) -> None:
    suite = needs.conformance_suite()
    world.skill(MINE, "test_simple_prompt", body="This is a simple prompt for testing.")
    world.skill(
        MINE,
        "test_prompt_with_arguments",
        body="Prompt with arguments: arg1='$arg1', arg2='$arg2'",
        arguments="[arg1, arg2]",
        argument_hint='"<arg1> <arg2>"',
    )
    world.skill(MINE, "pdf-processing", body="Read references/FORMS.md.")
    world.write(f"{MINE}/pdf-processing/references/FORMS.md", "Forms.")

    async def work() -> None:
        listed = await node(suite, "list", "--server")
        scenarios = [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]
        assert len(scenarios) >= 60, listed
        with tempfile.TemporaryDirectory() as folder:
            async with conformance_server(str(world.workspace)) as url:
                said = await node(suite, "server", "--url", url, "--suite", "all", "-o", folder)
            results = read_results(Path(folder), scenarios)
        assert results.keys() == set(scenarios), said
        failed = failures(results)
        unexpected = {name: message for name, message in failed.items() if name not in EXPECTED_FAILURES}
        assert not unexpected
        assert EXPECTED_FAILURES.keys() <= failed.keys(), "these pass now: remove them from the list"

    asyncio.run(work())
