"""Selects the skills for a task: named ones, or by label, type, trigger or keyword, search, and a fallback.

Used by pack, which reuses one TriggerIndex for many tasks; uses library.routing.
"""

import re
from typing import NamedTuple

import msgspec

from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.library.names import slugify
from kitbag.library.registry import Registry
from kitbag.library.routing.skill_search import search_skills
from kitbag.library.routing.triggers import MAX_TRIGGER_TEXT, compile_trigger, is_regex_trigger
from kitbag.library.skill_files import SkillDetails, read_skill_details
from kitbag.library.skills import Skill
from kitbag.packing.skill_checks import trigger_problem
from kitbag.packing.task_sources import PackTask
from kitbag.text.frontmatter import find_field_line

FALLBACK_SKILL = "task-executor"
MAX_SELECTED = 3
_MAX_REQUIRED = 20
_MIN_SHARED_WORDS = 2
"""A single shared word may be coincidence."""
_MAX_INDEX_SECONDS = 60.0
"""A pack waits for the search index, so that the same task always gets the same skills."""
_WORD = re.compile(r"\w+")


class SelectedSkill(msgspec.Struct, frozen=True, kw_only=True):
    skill: Skill
    reason: str


class MentionedSkill(NamedTuple):
    skill: Skill
    only_name: bool
    """Of the skill, the text has only its name of one word, which may be an ordinary word: plan, review."""


class TriggerIndex:
    """Maps words and patterns to the skills that models may load; caches the details of skills that were selected."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._details: dict[str, SkillDetails] = {}
        self._by_word: dict[str, list[Skill]] | None = None
        self._phrases: dict[str, list[tuple[str, Skill]]] = {}
        self._keywords: dict[str, set[str]] = {}
        """Tags and triggers by the full name of the skill."""
        self._patterns: list[tuple[re.Pattern[str], Skill]] = []
        self.problems: list[Diagnostic] = []
        """Invalid triggers."""

    def details(self, skill: Skill) -> SkillDetails:
        details = self._details.get(skill.path)
        if details is None:
            details = self._details[skill.path] = read_skill_details(skill)
        return details

    def _index(self) -> dict[str, list[Skill]]:
        if self._by_word is not None:
            return self._by_word
        self._by_word = {}
        view = self.registry.visibility_context()
        for skill in self.registry.skills:
            if not self.registry.evaluate(skill, view).searchable:
                continue
            entry = self.registry.manifest_entry(skill)
            triggers = entry.dispatch_triggers if entry else ()
            keywords = (*skill.keywords.split("\n"), *triggers)
            if any(keywords):
                self._keywords[skill.full_name] = {slugify(word) for word in keywords}
            for word in dict.fromkeys((skill.name, *keywords)):
                self._add(word, skill)
        return self._by_word

    def _add(self, trigger: str, skill: Skill) -> None:
        if is_regex_trigger(trigger):
            self._add_pattern(trigger, skill)
            return
        key = slugify(trigger)
        if self._by_word is not None and key:
            self._by_word.setdefault(key, []).append(skill)
            if "-" in key:
                self._phrases.setdefault(key.split("-", 1)[0], []).append((key, skill))

    def _add_pattern(self, trigger: str, skill: Skill) -> None:
        pattern, problem = compile_trigger(trigger)
        if pattern is not None:
            self._patterns.append((pattern, skill))
            return
        self.problems.append(trigger_problem(skill, trigger, problem))

    def skills_named(self, word: str) -> list[Skill]:
        """Skills with this word as name, tag or trigger."""
        return self._index().get(slugify(word), [])

    def missing_skill_warnings(self, task: PackTask, match_all_words: bool) -> list[Diagnostic]:
        """Warnings for skills that a manifest lists for this task's labels and type but that are missing. With
        `match_all_words` also by the words of title and description."""
        from kitbag.library.skills_manifest import read_manifest

        words = {slugify(word) for word in (*task.labels, task.type)}
        text = f"-{slugify(f'{task.title} {task.description}')}-" if match_all_words else ""
        warnings: list[Diagnostic] = []
        for root in self.registry.roots("skills"):
            for entry in read_manifest(root)[0].values():
                triggers = {slugify(word) for word in (entry.name, *entry.dispatch_triggers)} - {""}
                matching = {word for word in triggers if word in words or f"-{word}-" in text}
                usable = [s for s in self.registry.skills.candidates(entry.name) if self.registry.evaluate(s).model]
                if matching and not usable:
                    problem = (
                        f"{entry.name!r} matches {', '.join(sorted(matching))!r} but is not usable; {FALLBACK_SKILL} "
                        f"is used"
                    )
                    fix = "run `kitbag skills show` to see why, or `kitbag skills index` to regenerate the manifest"
                    warnings.append(
                        Diagnostic(
                            severity="warning", code="dispatch", file=entry.file, line=0, problem=problem, fix=fix
                        )
                    )
        return warnings

    def skills_mentioned_in(self, text: str) -> list[MentionedSkill]:
        """Skills whose trigger, tag or name is in the text, best match first."""
        index = self._index()
        words = [word.casefold() for word in _WORD.findall(text.replace("_", " "))]
        joined = "-" + "-".join(words) + "-"
        scores: dict[str, int] = {}
        found: dict[str, MentionedSkill] = {}

        def hit(skill: Skill, weight: int, *, only_name: bool = False) -> None:
            only_name = only_name and (skill.full_name not in found or found[skill.full_name].only_name)
            found[skill.full_name] = MentionedSkill(skill, only_name)
            scores[skill.full_name] = scores.get(skill.full_name, 0) + weight

        for word in dict.fromkeys(words):
            for skill in index.get(word, ()):
                hit(skill, 1, only_name=word not in self._keywords.get(skill.full_name, ()))
            for phrase, skill in self._phrases.get(word, ()):
                if f"-{phrase}-" in joined:
                    hit(skill, 2)
        for pattern, skill in self._patterns:
            if pattern.search(text[:MAX_TRIGGER_TEXT]):
                hit(skill, 2)
        return [found[name] for name in sorted(scores, key=lambda name: (-scores[name], name.lower()))]


def select_skills(
    task: PackTask, index: TriggerIndex, names: tuple[str, ...]
) -> tuple[list[SelectedSkill], list[Diagnostic]]:
    """The primary skill first, then supporting and required ones. Raises InvalidError if a named skill is unusable."""
    warnings: list[Diagnostic] = []
    chosen = [
        SelectedSkill(skill=_find_usable_skill(index.registry, name), reason="named") for name in names
    ] or _select_automatically(task, index)
    if not names:
        warnings += index.problems
        warnings += index.missing_skill_warnings(task, match_all_words=not chosen)
    if not chosen:
        chosen = [SelectedSkill(skill=index.registry.find_skill(FALLBACK_SKILL), reason="no other skill matches")]
    unique = {selected.skill.full_name: selected for selected in reversed(chosen)}
    ordered = [unique[name] for name in dict.fromkeys(selected.skill.full_name for selected in chosen)]
    return _add_required_skills(ordered, index, warnings), warnings


def _find_usable_skill(registry: Registry, name: str) -> Skill:
    try:
        skill = registry.find_skill(name)
    except KitbagError as error:
        raise InvalidError(error.problem, error.fix) from error
    verdict = registry.evaluate(skill)
    if not verdict.model:
        raise InvalidError(f"cannot load the skill {skill.full_name!r}: {verdict.reason}")
    return skill


def _select_automatically(task: PackTask, index: TriggerIndex) -> list[SelectedSkill]:
    """Matches by label, else type, else trigger or keyword, else search."""
    hits = [
        SelectedSkill(skill=skill, reason=f"label {label!r}")
        for label in task.labels
        for skill in index.skills_named(label)
    ]
    if not hits and task.type:
        hits = [SelectedSkill(skill=skill, reason=f"type {task.type!r}") for skill in index.skills_named(task.type)]
    if not hits:
        hits = _select_by_text(f"{task.title}\n{task.description}", index)
    unique = {hit.skill.full_name: hit for hit in reversed(hits)}
    return [unique[name] for name in dict.fromkeys(hit.skill.full_name for hit in hits)][:MAX_SELECTED]


def _select_by_text(text: str, index: TriggerIndex) -> list[SelectedSkill]:
    """A name of one word counts if the search finds the skill, too."""
    mentioned = index.skills_mentioned_in(text)
    if mentioned and not any(one.only_name for one in mentioned):
        ranked = []
    else:
        ranked = search_skills(index.registry, text, MAX_SELECTED, wait=_MAX_INDEX_SECONDS)
    best = {hit.skill.full_name for hit in ranked}
    return [
        SelectedSkill(skill=one.skill, reason="trigger or keyword in the task")
        for one in mentioned
        if not one.only_name or one.skill.full_name in best
    ] or [
        SelectedSkill(skill=hit.skill, reason=f"search: {hit.reason}")
        for hit in ranked
        if hit.is_confident and len(hit.words) >= _MIN_SHARED_WORDS
    ]


def _add_required_skills(
    chosen: list[SelectedSkill], index: TriggerIndex, warnings: list[Diagnostic]
) -> list[SelectedSkill]:
    """Adds the skills named under `requires`, once each; a cycle or an unknown name is a warning."""
    found = {selected.skill.full_name: selected for selected in chosen}

    pending: list[tuple[Skill, tuple[str, ...]]] = [
        (selected.skill, (selected.skill.full_name,)) for selected in reversed(chosen)
    ]
    while pending:
        skill, trail = pending.pop()
        added: list[tuple[Skill, tuple[str, ...]]] = []
        for name in index.details(skill).requires:
            required = _find_required_skill(name, skill, index, warnings)
            if required.full_name in trail:
                cycle = " -> ".join((*trail[trail.index(required.full_name) :], required.full_name))
                problem, line = (
                    f"circular `requires`: {cycle}",
                    find_field_line(skill.path, "requires", skill.root.boundary),
                )
                warnings.append(
                    Diagnostic(
                        severity="warning",
                        code="required-circle",
                        file=skill.path,
                        line=line,
                        problem=problem,
                        fix="remove one of them",
                    )
                )
            elif required.full_name not in found and len(found) < _MAX_REQUIRED:
                found[required.full_name] = SelectedSkill(skill=required, reason=f"required by {skill.full_name}")
                added.append((required, (*trail, required.full_name)))
            elif required.full_name not in found:
                problem, line = (
                    f"more than {_MAX_REQUIRED} required skills; {name!r} is omitted",
                    find_field_line(skill.path, "requires", skill.root.boundary),
                )
                warnings.append(
                    Diagnostic(
                        severity="warning",
                        code="required-skill",
                        file=skill.path,
                        line=line,
                        problem=problem,
                        fix="require fewer skills",
                    )
                )
        pending += reversed(added)
    return list(found.values())


def _find_required_skill(name: str, skill: Skill, index: TriggerIndex, warnings: list[Diagnostic]) -> Skill:
    try:
        return _find_usable_skill(index.registry, name)
    except InvalidError as error:
        problem = f"`requires` {name!r}: {error.problem}; {FALLBACK_SKILL} is used instead"
        line = find_field_line(skill.path, "requires", skill.root.boundary)
        warnings.append(
            Diagnostic(
                severity="warning",
                code="required-skill",
                file=skill.path,
                line=line,
                problem=problem,
                fix="fix `requires`",
            )
        )
        return index.registry.find_skill(FALLBACK_SKILL)


_FAMILIES = ("claude", "gpt", "gemini", "llama", "qwen", "mistral", "deepseek", "grok")


def check_model_compatibility(skill: Skill, details: SkillDetails, model: str) -> list[Diagnostic]:
    """Warns if the skill's `model` or `compatibility` excludes the target model."""
    from kitbag.library.dialects.model_names import normalize_model
    from kitbag.library.skills import to_text

    if not model:
        return []
    warnings: list[Diagnostic] = []
    target = model.lower()
    declared = details.fields.get("model")
    if declared:
        expected = normalize_model(declared, skill.root.dialect)[0]
        names = [expected.name, *expected.alternatives]
        fits = expected.name in ("inherit", "default") or any(_is_same_model(str(name), target) for name in names)
        if not fits:
            problem = f"meant for the model {expected.name}, not {model}"
            warnings.append(_model_mismatch(skill, "model", problem))
    compatibility = to_text(details.fields.get("compatibility", "")).lower()
    mentioned = [family for family in _FAMILIES if family in compatibility]
    if mentioned and not any(_is_same_model(family, target) for family in mentioned):
        problem = f"`compatibility` lists {', '.join(mentioned)}, not {model}"
        warnings.append(_model_mismatch(skill, "compatibility", problem))
    return warnings


def _model_mismatch(skill: Skill, field: str, problem: str) -> Diagnostic:
    line = find_field_line(skill.path, field, skill.root.boundary)
    return Diagnostic(
        severity="warning",
        code="model-mismatch",
        file=skill.path,
        line=line,
        problem=problem,
        fix="use that model, or another skill",
    )


_ALIAS_FAMILY = {"sonnet": "claude", "opus": "claude", "haiku": "claude", "fable": "claude"}


def _is_same_model(expected: str, target: str) -> bool:
    expected = expected.lower().rpartition("/")[2]
    if expected in target:
        return True
    return expected in _FAMILIES and any(_ALIAS_FAMILY.get(word) == expected for word in re.split(r"[-/ ]", target))
