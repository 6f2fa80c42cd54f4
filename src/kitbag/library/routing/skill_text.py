"""Reads what the search index needs of a skill's file: headings, body, tags, triggers and `paths`.

Used by search_index, for thousands of files in a row; reads at most 64 KB of each. Never raises for content.
"""

import re
from typing import Final, NamedTuple

from kitbag.library.names import slugify
from kitbag.library.path_patterns import split_globs
from kitbag.library.routing.terms import term_keys
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import Skill, to_string_list
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.source_files import SourceError, decode_text, read_bytes

_MAX_BYTES: Final = 64 * 1024
_MAX_BODY: Final = 16_000
"""Short messages often have one telling word, which may come late. All headings count."""
_KEYWORD_FIELD = re.compile(r"\n(?:triggers?|tags|keywords|paths|globs)\b", re.IGNORECASE)
_HEADING = re.compile(r"\n##{0,5}[ \t]+(.+)")
"""Starts with two fixed characters, which `re` finds fast."""
_EXCLUSION = re.compile(r"(?i)(?:(?<=[.;!?])\s+|^|\n)\W{0,4}(?:do not|don't|not for|never|avoid|skip)\b[^.;!?\n]*")
"""A sentence that says what a skill is not for."""
_EXCLUDING: Final = ("not ", "don't", "never", "avoid", "skip")


class SkillText(NamedTuple):
    headings: str
    body: str
    tags: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def read_skill_text(skill: Skill) -> SkillText:
    try:
        data, _, truncated = read_bytes(skill.path, skill.root.boundary, _MAX_BYTES)
        text = data.decode() if data.isascii() else decode_text(data, truncated)[0]
    except SourceError:  # gone, or no text any more
        return SkillText("", "")
    frontmatter, body = _split(text)
    tags, triggers, paths = _read_keywords(skill) if _KEYWORD_FIELD.search(frontmatter) else ((), (), ())
    headings = "\n".join(_HEADING.findall(f"\n{body}"))
    return SkillText(headings, body[:_MAX_BODY], tags, triggers, paths)


def _split(text: str) -> tuple[str, str]:
    if text.startswith("---\n"):
        end = text.find("\n---\n", 3)
        if end >= 0:
            return text[3:end], text[end + 5 :]
    parts = split_frontmatter(text, truncated=True)
    return f"\n{parts.frontmatter or ''}", parts.body


def _read_keywords(skill: Skill) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    details = read_skill_details(skill)
    tags = (*details.tags, *to_string_list(details.metadata.get("keywords")))
    paths = split_globs(details.fields.get("paths", details.metadata.get("globs")))
    return tags, details.triggers, tuple(paths)


def summary_without_exclusions(skill: Skill) -> str:
    """Description and when to use, without sentences such as `Do not use for X`."""
    summary = skill.summary
    lower = summary.lower()
    return _EXCLUSION.sub(" ", summary) if any(word in lower for word in _EXCLUDING) else summary


class SkillProfile(NamedTuple):
    """The terms of a skill that a scan keeps."""

    name_keys: tuple[str, ...]
    summary: dict[str, int]
    """How often each term occurs, by key."""
    length: int
    """Number of terms in the summary."""
    slugs: tuple[str, ...]
    """Of its name and full name."""


def read_profile(skill: Skill) -> SkillProfile:
    return make_profile(skill.name, skill.full_name, summary_without_exclusions(skill))


def make_profile(name: str, full_name: str, summary: str) -> SkillProfile:
    keys = term_keys(summary)
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    slugs = tuple(slug for form in {name, full_name} if (slug := slugify(form)))
    return SkillProfile(tuple(dict.fromkeys(term_keys(full_name))), counts, len(keys), slugs)
