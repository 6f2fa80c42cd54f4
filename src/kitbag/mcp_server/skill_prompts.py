"""Skills as MCP prompts: their names, their arguments, and the argument text of an invocation.

Every skill that the user may invoke is a prompt, as it is a command in the chat. Used by prompts and server_state; uses
library/visibility through the registry.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Final

import msgspec

from kitbag.assembly.environment import AgentEnvironment
from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import Skill, to_string_list
from kitbag.library.visibility import evaluate_skills
from kitbag.text.hidden_characters import collapse_whitespace, remove_hidden

MAX_PROMPT_NAME: Final = 64
MAX_DESCRIPTION: Final = 1_024
WHOLE_TEXT: Final = "arguments"
"""The argument of a skill that does not say which it takes."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_PLACEHOLDER: Final = re.compile(r"\[([\w.|-]+)\]|<([\w.|-]+)>")


class PromptParameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    required: bool = False
    choices: tuple[str, ...] = ()
    is_word: bool = True
    """A positional argument; otherwise its value is the whole argument text."""


ParameterCache = dict[tuple[str, int], tuple[PromptParameter, ...]]


class SkillPrompts:
    """For one snapshot of the library."""

    def __init__(self, environment: AgentEnvironment, parameters: ParameterCache | None = None) -> None:
        self._permissions = environment.permissions.with_mode("default")
        """Rules alone decide, whatever the agents' mode is."""
        self.parameter_cache: ParameterCache = parameters if parameters is not None else {}
        library = environment.library
        skills = [
            skill for skill, verdict in evaluate_skills(library.skills, library.visibility_context()) if verdict.user
        ]
        self._by_name: dict[str, Skill] = {}
        # Names that need no change first: they are never taken by another skill's replacement.
        named = [(_safe_name(skill.full_name), skill) for skill in skills]
        for name, skill in sorted(named, key=lambda pair: (pair[0] != pair[1].full_name, pair[1].full_name)):
            self._by_name[self._unused_name(name)] = skill
        self.listed = sorted(self._by_name.items(), key=lambda pair: pair[0])

    def _unused_name(self, name: str) -> str:
        number = 1
        candidate = name
        while candidate in self._by_name:
            number += 1
            candidate = f"{name[: MAX_PROMPT_NAME - len(str(number)) - 1]}-{number}"
        return candidate

    def find(self, name: str) -> Skill:
        """Raises NotFoundError."""
        skill = self._by_name.get(name)
        if skill is None:
            raise NotFoundError(f"no prompt named {name[:100]!r}", "list the prompts to see available ones")
        return skill

    def is_allowed(self, skill: Skill) -> bool:
        return self._permissions.decide("Skill", {"skill": skill.full_name}).effect == "allow"

    def parameters(self, skill: Skill) -> tuple[PromptParameter, ...]:
        """Read once per state of the skill's file."""
        key = skill.path, skill.stamp
        known = self.parameter_cache.get(key)
        if known is None:
            declared = to_string_list(read_skill_details(skill).fields.get("arguments"))
            known = self.parameter_cache[key] = read_parameters(skill.argument_hint, declared)
            if len(self.parameter_cache) > 2 * len(self._by_name) + 100:
                self.parameter_cache.pop(next(iter(self.parameter_cache)))
        return known


def clean_line(text: str) -> str:
    return remove_hidden(collapse_whitespace(text))[:MAX_DESCRIPTION]


def _safe_name(full_name: str) -> str:
    """Clients make commands of prompt names: letters, digits, `_`, `-` and `.` only."""
    safe = _UNSAFE.sub("-", full_name).strip("-.")[:MAX_PROMPT_NAME]
    if not re.search(r"[A-Za-z0-9]", safe):  # such as a name in another script
        return f"skill-{hashlib.sha256(full_name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    return safe


def read_parameters(hint: str, declared: tuple[str, ...]) -> tuple[PromptParameter, ...]:
    """From `argument-hint` and `arguments` of a skill: `<file>` is required, `[a|b]` has two choices."""
    description = clean_line(hint)
    placeholders = _parse_hint(hint)
    if declared and len(set(declared)) == len(declared):
        aligned = placeholders if len(placeholders) == len(declared) else [(False, "")] * len(declared)
        return tuple(
            PromptParameter(
                name=clean_line(name), description=description, required=required, choices=_split_choices(text)
            )
            for name, (required, text) in zip(declared, aligned, strict=True)
        )
    names = [f"argument{number}" if "|" in text else text for number, (_, text) in enumerate(placeholders, 1)]
    if placeholders and len(set(names)) == len(names):
        return tuple(
            PromptParameter(
                name=name,
                description=description,
                required=required,
                choices=_split_choices(text),
                is_word=len(names) > 1,
            )
            for name, (required, text) in zip(names, placeholders, strict=True)
        )
    return (PromptParameter(name=WHOLE_TEXT, description=description, is_word=False),) if description else ()


def _parse_hint(hint: str) -> list[tuple[bool, str]]:
    """(required, text) of each placeholder; empty if the hint holds anything else."""
    matches = [_PLACEHOLDER.fullmatch(word) for word in hint.split()]
    return [(match[2] is not None, match[1] or match[2]) for match in matches if match] if all(matches) else []


def _split_choices(text: str) -> tuple[str, ...]:
    return tuple(choice for choice in text.split("|") if choice) if "|" in text else ()


def argument_text(parameters: tuple[PromptParameter, ...], values: Mapping[str, str]) -> str:
    """What a user would type after `/name`. Raises InvalidError for a missing or unknown argument."""
    if not parameters:  # every skill accepts arguments
        parameters = (PromptParameter(name=WHOLE_TEXT, description="", is_word=False),)
    known = [parameter.name for parameter in parameters]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InvalidError(f"unknown argument {unknown[0][:100]!r}", f"the arguments are: {', '.join(known)}")
    missing = [parameter.name for parameter in parameters if parameter.required and not values.get(parameter.name)]
    if missing:
        raise InvalidError(f"missing argument {missing[0]!r}", f"the arguments are: {', '.join(known)}")
    if not parameters[0].is_word:
        return values.get(known[0], "").strip()
    given = [values.get(name, "") for name in known]
    while given and not given[-1]:
        given.pop()
    return " ".join(map(_quote_word, given))


def _quote_word(value: str) -> str:
    if value and not re.search(r"[\s'\"\\]", value):
        return value
    return shlex.quote(value) if re.search(r"[\"\\]", value) else f'"{value}"'
