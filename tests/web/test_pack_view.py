"""Packing in a browser and over HTTP: the payload of `kitbag pack`, and nothing that runs while somebody types."""

from typing import TYPE_CHECKING

import pytest

from conftest import World

if TYPE_CHECKING:
    from support.browser import Chromium

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
TASK = "# Deploy the shop\n\nDeploy it to staging, with deploy.\n"


@pytest.fixture
def house(world: World) -> World:
    world.skill(
        "~/.kitbag/skills",
        "deploy",
        "Deploys the shop.",
        "\n".join(f"- Step {n} of the deployment" for n in range(400)),
    )
    world.write(".kitbag/tasks/SHOP-1.md", TASK)
    return world


def test_payload_bars_and_cuts_follow_what_is_typed(house: World, chromium: "Chromium") -> None:
    from support.browser import NARROW, browser_window, web_program

    with web_program(house) as program, browser_window(chromium, program, NARROW, "dark") as window:
        tab = window.tab("/pack")
        tab.until_seen("Nothing to pack yet")
        tab.page.get_by_label("Or its text").fill(f"Deploy {HOSTILE} with deploy")
        tab.until_seen("nothing cut")
        tab.page.get_by_label("Skills, the primary one first").fill("nothing-like-this")
        tab.until_seen("nothing-like-this")
        tab.page.locator(".state-error").wait_for()
        tab.page.get_by_label("Skills, the primary one first").fill("deploy")
        tab.page.locator(".pack-options > summary").click()
        tab.page.get_by_label("skills", exact=True).fill("900")
        tab.page.locator(".badge", has_text="tokens cut").wait_for()
        tab.page.get_by_label("Task ID or file").fill("SHOP-1")
        tab.until_seen("Deploy the shop")
        assert tab.page.get_by_label("Or its text").is_disabled()
        assert tab.page.locator("main img").count() == 0
        assert tab.page.title() == "Pack – Kitbag"
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_it_packs_as_the_command_does_and_runs_nothing_while_one_types(house: World) -> None:
    from support.browser import web_program

    house.write("~/.kitbag/settings.toml", f'[pack]\ntask_command = "touch {house.canary}"\n')
    with web_program(house) as program, program.http() as client:

        def status(**body: object) -> int:
            return client.post("/api/pack/payload", json=body).status_code

        packed = program.post("/api/pack/payload", task="SHOP-1", skills=["deploy"], budgets={"skills": 900})
        printed = house.json("pack", "SHOP-1", "--skills", "deploy", "--budget", "skills=900")
        assert (packed["text"], packed["tokens"]) == (printed["payload"], printed["tokens"])
        assert packed["tokens_cut"] == sum(entry["tokens_cut"] for entry in printed["ledger"])
        assert status(task="SHOP-404") == 404, "the configured command is not run"
        assert status(text=f"Do !`touch {house.canary}`") == 422
        assert not house.canary.exists()
        assert status(text=" ") == 400
        assert status(text="x", skills=["nothing"]) == 422
        assert status(text="x", budgets={"skills": 0}) == 400
        assert status(text="x", budgets={"moon": 5}) == 400
        assert status(text="x", strategy="huge") == 400
        assert status(text="x" * 50_000) == 422
        client.post("/api/pack/payload", json={"task": "SHOP-404", "runs": True})
        assert house.canary.exists(), "only when the user says so"
