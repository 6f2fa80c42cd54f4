"""Scripts for an agent that starts another one."""

import json
from typing import Any

from kitbag.messages import Text
from kitbag.testing import Rule, Script, Step
from support.house import House

AN_AGENT = "## Your Task"


def task(call_id: str = "t1", **arguments: Any) -> tuple[str, str, str]:
    given = {"subagent_type": "Explore", "prompt": "Find the answer.", **arguments}
    return call_id, "Task", json.dumps(given)


def script(main: list[Any], agent: list[Any]) -> Script:
    def steps(given: list[Any]) -> list[Any]:
        return [Step(text=one) if isinstance(one, str) else one for one in given]

    return Script([Rule(steps(agent), system=AN_AGENT), Rule(steps(main))])


def results(house: House) -> str:
    """What the tools answered in the last request of the one that the person talks to."""
    main = [request for request in house.requests if AN_AGENT not in "".join(b.text for b in request.system)][-1]
    found = [part for message in main.messages for one in message.results for part in one.content]
    return "\n".join(part.text for part in found if isinstance(part, Text))
