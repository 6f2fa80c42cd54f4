"""`kitbag skills explain`: why a message got its skills, or why it did not."""

import os
from typing import TYPE_CHECKING

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option, library_options, open_registry
from kitbag.cli.number_types import IntRange
from kitbag.cli.progress_line import MAX_INDEX_SECONDS, wait_for_index
from kitbag.cli.stdin import read_message
from kitbag.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from kitbag.library.registry import Registry
    from kitbag.packing.routing_explanation import RoutingExplanation


@click.command("explain")
@click.argument("message", nargs=-1)
@click.option(
    "--session",
    "session_id",
    default="",
    metavar="ID",
    help="Explain a message of this session instead; last: the newest one in this directory.",
    show_default="none",
)
@click.option("--turn", type=IntRange(1), help="Number of the message in the session.", show_default="the last one")
@click.option("--skill", "names", multiple=True, metavar="NAME", help="Explain only this skill. Repeatable.")
@click.option("--most", type=IntRange(1), default=5, show_default=True, help="Explain at most this many matches.")
@library_options
@json_option
def explain(
    message: tuple[str, ...],
    session_id: str,
    turn: int | None,
    names: tuple[str, ...],
    most: int,
    dirs: tuple[str, ...],
    team: str,
    persona: str,
    as_json: bool,
) -> None:
    """Explain which skills a message gets, with the features of each and the rule that decides.

    If MESSAGE is -, read it from standard input.
    """
    from kitbag.packing.routing_explanation import explain_routing, new_session_state
    from kitbag.runtime.skill_history import use_history

    if turn and not session_id:
        raise UsageError("--turn needs --session", "list sessions with `kitbag sessions list`")
    if message and session_id:
        raise UsageError("pass a message or --session, not both", "to explain a recorded message, pass only --session")
    text = read_message(message)
    if not text and not session_id:
        problem = "the message is empty" if message else "no message"
        raise UsageError(problem, 'for example: kitbag skills explain "fill this PDF form"')
    if session_id:
        found = _explain_session(session_id, turn or 0, names, most, dirs)
    else:
        registry = open_registry(dirs, team, persona)
        use_history(registry)
        wait_for_index(registry, MAX_INDEX_SECONDS)
        found = explain_routing(registry, text, new_session_state(registry), most=most, names=names)
        _report_untrusted(registry, [one.name for one in found.skills])
    _print(found, as_json)


def _report_untrusted(registry: "Registry", names: list[str]) -> None:
    """Commands show the library of a trusted workspace; a session omits the items of another one."""
    from kitbag.library.untrusted_items import is_project_root

    skills = [skill for name in names if (skill := registry.skills.get_exact(name)) is not None]
    affected = [skill.full_name for skill in skills if is_project_root(skill.root, registry.places)]
    if affected:
        from kitbag.permissions.trust.workspace_trust import check_trust

        if not check_trust(registry.places, if_untrusted="nothing").can_load_items:
            names_text = output.clean(", ".join(affected))
            output.remark(f"workspace not trusted: until you run `kitbag trust`, sessions omit {names_text}")


def _explain_session(
    name: str, turn: int, names: tuple[str, ...], most: int, dirs: tuple[str, ...]
) -> "RoutingExplanation":
    from kitbag.agent.resume import resume
    from kitbag.agent.session_list import find_session, named_sessions, newest_session
    from kitbag.agent.session_routing import read_routing
    from kitbag.assembly.open_store import has_journal, open_store
    from kitbag.library.registry import Registry
    from kitbag.library.scopes import find_places
    from kitbag.packing.routing_explanation import explain_routing
    from kitbag.runtime.skill_history import use_history
    from kitbag.store.redaction import Redactor

    places = find_places()
    home = places.kitbag_home
    if not has_journal(home):
        raise NotFoundError(f"no session named {name[:80]!r}", "there are no sessions yet")
    with open_store(home, Redactor.from_environment(os.environ)) as journal:
        is_last = name == "last"
        session_id = (
            newest_session(journal, places.cwd) if is_last else find_session(named_sessions(journal, name), name).id
        )
        recorded = resume(journal, session_id)
        text, state, number = read_routing(journal, session_id, turn)
    header = recorded.header
    if not os.path.isdir(header.directory):
        raise NotFoundError(f"{header.directory}: the session's directory is gone", "")
    registry = Registry(
        find_places(header.directory),
        extra=(*dirs, *header.extra.splitlines()),
        team=header.team,
        persona=header.persona,
        omit_project=not recorded.prompt_inputs.get("trusted", False),
    )
    use_history(registry)
    wait_for_index(registry, MAX_INDEX_SECONDS)
    return explain_routing(registry, text, state, most=most, names=names, session=session_id, turn=number)


def _print(found: "RoutingExplanation", as_json: bool) -> None:
    from kitbag.packing.catalog import shorten
    from kitbag.text.hidden_characters import collapse_whitespace
    from kitbag.views.routing import explanation_fields

    if as_json:
        return output.as_json(found.to_json())
    if found.session:
        about = shorten(collapse_whitespace(found.message), 200)
        output.echo(f"session {found.session}, message {found.turn}: {output.clean(about)}")
    for number, one in enumerate(found.skills):
        if number:
            output.echo()
        output.echo(output.style(output.clean(one.name), "bold"))
        output.fields(explanation_fields(one))
    if not found.skills:
        output.remark("no skill matches")
    return None
