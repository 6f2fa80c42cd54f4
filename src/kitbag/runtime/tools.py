"""Every tool there is, in the order in which a model is told of them."""

from typing import Any

from kitbag.tools.base import Tool


def every_tool() -> list[Tool[Any]]:
    from kitbag.tools.glob import GLOB
    from kitbag.tools.grep import GREP
    from kitbag.tools.read import READ

    return [READ, GLOB, GREP, *skill_tools()]


def skill_tools() -> list[Tool[Any]]:
    """Only where there are skills."""
    from kitbag.tools.skill import LIST_LOADED_SKILLS, SEARCH_SKILLS, SKILL, UNLOAD_SKILL

    return [SKILL, SEARCH_SKILLS, LIST_LOADED_SKILLS, UNLOAD_SKILL]
