"""All tools, in the order in which a model sees them."""

from typing import Any

from kitbag.tools.base import Tool


def all_tools() -> list[Tool[Any]]:
    from kitbag.tools.ask_user import ASK_USER
    from kitbag.tools.files.edit import EDIT
    from kitbag.tools.files.read import READ
    from kitbag.tools.files.write import WRITE
    from kitbag.tools.search.glob import GLOB
    from kitbag.tools.search.grep import GREP
    from kitbag.tools.shell.bash import BASH
    from kitbag.tools.todo import TODO_WRITE
    from kitbag.tools.web.web_fetch import make_web_fetch
    from kitbag.tools.web.web_search import WEB_SEARCH

    return [
        READ,
        WRITE,
        EDIT,
        BASH,
        GLOB,
        GREP,
        make_web_fetch(),
        WEB_SEARCH,
        TODO_WRITE,
        ASK_USER,
        *skill_tools(),
        *task_tools(),
    ]


def skill_tools() -> list[Tool[Any]]:
    """Only if there are skills."""
    from kitbag.tools.skill import LIST_LOADED_SKILLS, SEARCH_SKILLS, SKILL, UNLOAD_SKILL

    return [SKILL, SEARCH_SKILLS, LIST_LOADED_SKILLS, UNLOAD_SKILL]


def task_tools() -> list[Tool[Any]]:
    """Only if there are agents."""
    from kitbag.tools.task import TASK, TASK_OUTPUT, TASK_STOP

    return [TASK, TASK_OUTPUT, TASK_STOP]
