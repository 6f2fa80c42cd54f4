"""`/config`: lists the settings with their sources, and changes the user's."""

import asyncio

from kitbag.chat.commands import CommandContext
from kitbag.errors import UsageError
from kitbag.settings import PERMISSION_KEYS, SETTINGS, Settings, load_settings, parse_value, write_setting
from kitbag.text.human_format import shorten_path
from kitbag.views.blocks import FieldsBlock, NoticeBlock, TableBlock, text_block


async def config_command(chat: CommandContext, arguments: str) -> None:
    places = chat.agent.environment.places
    settings = load_settings(places.kitbag_home, places.project_dirs)
    key, _, value = arguments.strip().partition(" ")
    if not key:
        rows = tuple(_row(settings, setting.key, setting.description) for setting in SETTINGS)
        chat.show(TableBlock(headers=("KEY", "VALUE", "SOURCE", "MEANING"), rows=rows, title="Settings"))
        chat.show(text_block("change one with /config KEY VALUE", "dim"))
        problems = (NoticeBlock("warning", diagnostic.problem, diagnostic.fix) for diagnostic in settings.diagnostics)
        chat.show(*problems)
    elif not value.strip():
        found = settings.get_sourced(key)  # raises with close matches
        meaning = next((setting.description for setting in SETTINGS if setting.key == key), "")
        fields = (("value", str(found.value)), ("source", shorten_path(found.source)), ("meaning", meaning))
        chat.show(FieldsBlock(fields, key))
    elif key in PERMISSION_KEYS:
        raise UsageError(f"`{key}` controls what the agent may do", f"run `kitbag config set {key} VALUE`")
    else:
        parsed = parse_value(key, value.strip())
        await asyncio.to_thread(write_setting, settings.user_file, key, parsed)
        chat.show(text_block(f"{key} = {parsed} ({shorten_path(settings.user_file)})"))
        chat.show(text_block("run /reload to apply it; some settings apply only to a new session", "dim"))


def _row(settings: Settings, key: str, description: str) -> tuple[str, str, str, str]:
    found = settings.get_sourced(key)
    return key, str(found.value), shorten_path(found.source), description
