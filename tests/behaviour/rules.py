"""Settings with rules, and what asks for approval under them."""

from typing import Any

from conftest import World
from kitbag.permissions.approvals.approval import ApprovalAnswer
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.permissions.rules.live_rules import LiveRules
from kitbag.permissions.rules.load import NO_FLAGS, resolve_workspace
from kitbag.settings import load_settings
from support.workshop import Workshop

USER = "~/.kitbag/settings.toml"


PROJECT = ".kitbag/settings.toml"


TOUCH = "touch made.txt"


def settings(**permissions: Any) -> str:
    rows = [f"{key} = {value!r}".replace("'", '"') for key, value in permissions.items()]
    return "[permissions]\n" + "\n".join(rows) + "\n"


def allow(workshop: Workshop) -> None:
    queue = ApprovalQueue(workshop.journal)
    [waiting] = queue.pending()
    queue.answer(waiting.request.id, ApprovalAnswer(choice="allow"))


def live_rules(world: World, text: str | None) -> LiveRules:
    if text is not None:
        world.write(USER, text)
    places = world.places()
    found = load_settings(places.kitbag_home, places.project_dirs)
    workspace, _ = resolve_workspace(places, found)
    return LiveRules(places, workspace, found, trusted=True, flags=NO_FLAGS)
