"""A skill while it is edited: what the unsaved text costs, its diagnostics, and which messages find it. Blocks.

Used by library_routes. The text is written to a private directory that takes precedence, so that the library reads it
with the code that reads every skill.
"""

import os
import tempfile
import threading
from typing import Any, Final

from kitbag.errors import Diagnostic, UsageError
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.library.skill_files import list_resources, read_skill_body
from kitbag.library.skills import Skill
from kitbag.packing.routing_explanation import SkillExplanation, explain_routing, new_session_state
from kitbag.packing.skill_checks import check_skill
from kitbag.packing.skill_delivery import render_skill
from kitbag.permissions.trust.workspace_trust import check_trust
from kitbag.runtime.skill_history import use_history
from kitbag.text.tokens import estimate_tokens
from kitbag.views.blocks import Block, diagnostic_block, text_block
from kitbag.views.skill_card import list_skill_files, skill_level_text
from kitbag.web.edited_files import EditableFile, find_base, read_file, replace_file
from kitbag.web.library_reader import CLEAN, audit_blocks, find_item

MAX_INDEX_SECONDS: Final = 5.0
_MAX_MATCHES: Final = 6
_MAX_SPACES: Final = 4


def find_skill(places: Places, kind: str, name: str) -> Skill:
    item = find_item(Registry(places), kind, name)
    if not isinstance(item, Skill) or item.location.startswith("/"):
        raise UsageError(f"a {kind} can't be edited here", "open its file in your editor")
    return item


def open_for_editing(places: Places, kind: str, name: str) -> EditableFile:
    """Raises InvalidError if it is not the user's or the project's, or behind a link."""
    skill = find_skill(places, kind, name)
    return read_file(find_base(skill.root, places), skill.path)


def save_skill(places: Places, kind: str, name: str, text: str, version: str) -> dict[str, Any]:
    """Raises ChangedOnDiskError, InvalidError or UsageError; nothing is written then."""
    skill = find_skill(places, kind, name)
    was_trusted = check_trust(places).state == "trusted"
    saved = replace_file(find_base(skill.root, places), skill.path, text, version)
    is_changed = skill.root.scope == "project" and was_trusted and check_trust(places).state != "trusted"
    notice = "This changes what the workspace can do: review it and trust it again with `kitbag trust`."
    renamed = next((one.full_name for one in Registry(places).skills if one.path == skill.path), skill.full_name)
    return {"version": saved.version, "key": renamed, "notice": notice if is_changed else ""}


def explanation_json(one: SkillExplanation) -> dict[str, Any]:
    match = one.match
    return {
        "name": CLEAN.line(one.name),
        "outcome": one.outcome,
        "rule": CLEAN.line(one.rule),
        "listing": one.listing,
        "score": round(match.score, 2) if match else 0.0,
        "probability": round(match.probability, 2) if match else 0.0,
        "reason": CLEAN.line(match.reason) if match else "",
    }


class SkillDrafts:
    """Keeps a few directories, so that typing does not read the library again."""

    def __init__(self) -> None:
        self._spaces: dict[tuple[str, str], _DraftSpace] = {}
        self._lock = threading.Lock()

    def evaluate(self, places: Places, kind: str, name: str, text: str, message: str) -> dict[str, Any]:
        skill = find_skill(places, kind, name)
        find_base(skill.root, places)
        key = (kind, skill.path)
        with self._lock:
            space = self._spaces.pop(key, None) or _DraftSpace(places, skill)
            self._spaces[key] = space
            for oldest in list(self._spaces)[:-_MAX_SPACES]:
                self._spaces.pop(oldest).close()
        return space.evaluate(skill, text, message)

    def close(self) -> None:
        with self._lock:
            for space in self._spaces.values():
                space.close()
            self._spaces.clear()


class _DraftSpace:
    def __init__(self, places: Places, skill: Skill) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kitbag-draft-")
        self._path = os.path.join(self._folder.name, skill.root.kind, skill.location)
        os.makedirs(os.path.dirname(self._path))
        self._write("")
        for resource in list_resources(skill).files:  # the catalog counts them
            placeholder = os.path.join(os.path.dirname(self._path), resource.path)
            os.makedirs(os.path.dirname(placeholder), exist_ok=True)
            with open(placeholder, "x"):
                pass
        self._registry = Registry(places, extra=(self._folder.name,), use_index=False)
        use_history(self._registry)
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._folder.cleanup()

    def _write(self, text: str) -> None:
        temporary = f"{self._path}.new"
        with open(temporary, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
        os.replace(temporary, self._path)

    def evaluate(self, original: Skill, text: str, message: str) -> dict[str, Any]:
        with self._lock:
            self._write(text)
            registry = self._registry
            registry.refresh()
            draft = next((skill for skill in registry.skills if skill.path == self._path), None)
            problems = [diagnostic_block(self._in_place(one, original)) for one in check_skill(registry, self._path)]
            return {
                "tokens": self._tokens(draft, original),
                "problems": problems or [text_block("no problems", "good")],
                "audit": self._audit(),
                "matches": self._matches(original, message) if message.strip() else [],
                "name": CLEAN.line(draft.full_name) if draft is not None else "",
            }

    def _tokens(self, draft: Skill | None, original: Skill) -> list[int]:
        files = sum(file["tokens"] or 0 for file in list_skill_files(original))
        if draft is None:
            return [0, 0, files]
        in_place = original._replace(name=draft.name, full_name=draft.full_name)
        loaded = render_skill(in_place, content=read_skill_body(draft)).text
        return [estimate_tokens(skill_level_text(self._registry, draft, 0)), estimate_tokens(loaded), files]

    def _audit(self) -> list[Block]:
        return audit_blocks(self._path)[1:]

    def _matches(self, original: Skill, message: str) -> list[dict[str, Any]]:
        registry = self._registry
        state = new_session_state(registry)
        found = explain_routing(registry, message, state, most=_MAX_MATCHES + 1, wait=MAX_INDEX_SECONDS).skills
        shown = [one for one in found if one.match is None or one.match.skill.path != original.path][:_MAX_MATCHES]
        return [
            {**explanation_json(one), "is_this": one.match is not None and one.match.skill.path == self._path}
            for one in shown
        ]

    def _in_place(self, one: Diagnostic, original: Skill) -> Diagnostic:
        """As it will be reported of the saved file."""
        folder, own = os.path.dirname(self._path), os.path.dirname(original.path)
        return one._replace(
            file=one.file.replace(self._path, original.path),
            problem=one.problem.replace(folder, own),
            fix=one.fix.replace(folder, own),
        )
