"""What an agent's file gives it: in words for whoever has to allow its start, and as a mark, so that what starts later
is what was allowed, and only while the rules still allow it.

Used by delegation, and by runner, which may run in another process and much later.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Final, cast

from kitbag.errors import InvalidError
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.permissions.approvals.approval import PermitError, outcome_digest
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision
from kitbag.tasks.task import TaskRequest
from kitbag.text.hidden_characters import collapse_whitespace

if TYPE_CHECKING:
    from kitbag.library.dialects.permission_modes import PermissionMode

FINGERPRINT_KEY: Final = "agent_was"
"""Its name among the options of a wish."""
RULES_DIGEST_KEY: Final = "rules_said"
"""There too: what the person's rules said about its start when it was requested."""


def describe_agent_tools(definition: AgentFile) -> str:
    """Whatever the one who starts it has: an agent's tools are its own."""
    access = definition.tools
    limited = {rule.partition("(")[0] for rule in access.specifiers}
    has = ", ".join(sorted((*(name for name in access.names if name not in limited), *access.specifiers)))
    if access.mode != "allow":
        has = f"all that your rules leave{', of some only ' if has else ''}{has}"
    has = f"{has}; not {', '.join(sorted(access.denied))}" if access.denied else has
    own = ", ".join(map(collapse_whitespace, definition.inline_servers))
    return f"{has}; it brings the servers {own}" if own else has


def agent_fingerprint(definition: AgentFile) -> str:
    """Of all that a person is shown of it, and of what its servers are."""
    servers = json.dumps(definition.inline_servers, sort_keys=True)
    shown = "\0".join((definition.path, definition.permission_mode or "", describe_agent_tools(definition), servers))
    return hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_agent_unchanged(definition: AgentFile, wish: TaskRequest) -> None:
    """Raises InvalidError where it may do something else, or is another, since its start was allowed."""
    was = wish.options.get(FINGERPRINT_KEY)
    if was and was != agent_fingerprint(definition):
        problem = f"the agent {definition.full_name} ({definition.path}) is not what it was when its start was allowed"
        raise InvalidError(problem, "look at its mode and tools, and start it again")


def with_rules_digest(wish: TaskRequest, permissions: Permissions) -> TaskRequest:
    """`permissions`: the person's. Whoever started it may have been allowed more, by an answer or by a skill."""
    return wish._replace(options={**wish.options, RULES_DIGEST_KEY: outcome_digest(_decide_start(wish, permissions))})


def check_start_still_allowed(wish: TaskRequest, permissions: Permissions) -> None:
    """For the moment at which it starts, which may be much later and in another process. Raises RefusedError where the
    rules have come to be against it."""
    judgement = _decide_start(wish, permissions)
    denying = next((part for part in judgement.parts if part.effect == "deny" and part.rule), None)
    said = wish.options.get(RULES_DIGEST_KEY)
    if said is None:
        is_refused = denying is not None
    else:
        is_refused = judgement.effect != "allow" and outcome_digest(judgement) != said
    if is_refused:
        rule = f" (`{denying.rule}`)" if denying is not None else ""
        problem = f"the agent {wish.agent} is not started: denied since it was allowed: {judgement.reason}{rule}"
        raise PermitError(problem, "leave it, or change the rule and start it again")


def _decide_start(wish: TaskRequest, permissions: Permissions) -> PermissionDecision:
    arguments = {"subagent_type": wish.agent, "prompt": wish.prompt, "description": wish.description}
    return permissions.with_mode(cast("PermissionMode", wish.parent_mode or permissions.mode)).decide("Task", arguments)
