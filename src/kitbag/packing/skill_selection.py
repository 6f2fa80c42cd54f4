"""Which skills a task needs when nobody names them: labels, type, triggers and keywords, search, the fallback.

The words of all skills are indexed once, so that each look-up is one step. Used by pack.
"""

import re
from typing import NamedTuple

from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.library.names import slug
from kitbag.library.registry import Registry
from kitbag.library.routing.skill_search import search, words_of
from kitbag.library.routing.triggers import LONGEST_TEXT, is_pattern, read_pattern
from kitbag.library.skill_files import Details, read_details
from kitbag.library.skills import Skill
from kitbag.packing.task_sources import Task
from kitbag.text.frontmatter import field_line

FALLBACK = "task-executor"
MOST = 3
_MOST_REQUIRED = 20
_SHARED_WORDS = 2
"""One word in common is chance."""
_WORD = re.compile(r"\w+")


class Selected(NamedTuple):
    skill: Skill
    reason: str


class Dispatch:
    """The words that lead to each skill a model may load; the details of every skill are read once."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._details: dict[str, Details] = {}
        self._by_word: dict[str, list[Skill]] | None = None
        self._phrases: dict[str, list[tuple[str, Skill]]] = {}
        self._patterns: list[tuple[re.Pattern[str], Skill]] = []
        self.problems: list[Diagnostic] = []
        """Triggers that can't be used."""

    def details(self, skill: Skill) -> Details:
        found = self._details.get(skill.path)
        if found is None:
            found = self._details[skill.path] = read_details(skill)
        return found

    def _index(self) -> dict[str, list[Skill]]:
        if self._by_word is not None:
            return self._by_word
        self._by_word = {}
        view = self.registry.view()
        for skill in self.registry.skills:
            if not self.registry.judge(skill, view).searchable:
                continue
            details = self.details(skill)
            entry = self.registry.manifest_entry(skill)
            triggers = (*details.triggers, *(entry.dispatch_triggers if entry else ()))
            for word in dict.fromkeys((skill.name, *details.tags, *triggers)):
                self._add(word, skill)
        return self._by_word

    def _add(self, written: str, skill: Skill) -> None:
        if is_pattern(written):
            self._add_pattern(written, skill)
        words = slug(written)
        if self._by_word is not None and words:
            self._by_word.setdefault(words, []).append(skill)
            if "-" in words:
                self._phrases.setdefault(words.split("-", 1)[0], []).append((words, skill))

    def _add_pattern(self, written: str, skill: Skill) -> None:
        pattern, wrong = read_pattern(written)
        if pattern is not None:
            self._patterns.append((pattern, skill))
            return
        what = f"the trigger {written[:60]!r} is not used as a pattern: {wrong}"
        line = field_line(skill.path, "triggers", skill.root.boundary)
        self.problems.append(Diagnostic("warning", "trigger", skill.path, line, what, "write plain words"))

    def named(self, word: str) -> list[Skill]:
        """Skills whose name, tag or trigger is this word."""
        return self._index().get(slug(word), [])

    def missing(self, task: Task, everything: bool) -> list[Diagnostic]:
        """Skills that a manifest promises for this task's labels and type (or all its words) and that are not there."""
        from kitbag.library.skills_manifest import read_manifest

        words = {slug(word) for word in (*task.labels, task.type)}
        text = f"-{slug(f'{task.title} {task.description}')}-" if everything else ""
        found: list[Diagnostic] = []
        for root in self.registry.roots("skills"):
            for entry in read_manifest(root)[0].values():
                triggers = {slug(word) for word in (entry.name, *entry.dispatch_triggers)} - {""}
                asked = {word for word in triggers if word in words or f"-{word}-" in text}
                usable = [s for s in self.registry.skills.candidates(entry.name) if self.registry.judge(s).model]
                if asked and not usable:
                    what = f"{entry.name!r} is meant for {', '.join(sorted(asked))!r} and can't be used; {FALLBACK} is"
                    fix = "`kitbag skills show` tells why, `kitbag skills index` writes a new manifest"
                    found.append(Diagnostic("warning", "dispatch", entry.file, 0, what, fix))
        return found

    def mentioned(self, text: str) -> list[Skill]:
        """Skills with a trigger, tag or name in a text, most often mentioned first."""
        index = self._index()
        words = [word.casefold() for word in _WORD.findall(text.replace("_", " "))]
        joined = "-" + "-".join(words) + "-"
        scores: dict[str, int] = {}
        found: dict[str, Skill] = {}

        def hit(skill: Skill, weight: int) -> None:
            found[skill.full_name] = skill
            scores[skill.full_name] = scores.get(skill.full_name, 0) + weight

        for word in dict.fromkeys(words):
            for skill in index.get(word, ()):
                hit(skill, 1)
            for phrase, skill in self._phrases.get(word, ()):
                if f"-{phrase}-" in joined:
                    hit(skill, 2)
        for pattern, skill in self._patterns:
            if pattern.search(text[:LONGEST_TEXT]):
                hit(skill, 2)
        return [found[name] for name in sorted(scores, key=lambda name: (-scores[name], name.lower()))]


def select_skills(task: Task, dispatch: Dispatch, names: tuple[str, ...]) -> tuple[list[Selected], list[Diagnostic]]:
    """The primary first, then supporting and required ones. Raises InvalidError for a named skill that is no use."""
    warnings: list[Diagnostic] = []
    chosen = [Selected(_usable(dispatch.registry, name), "named") for name in names] or _automatic(task, dispatch)
    if not names:
        warnings += dispatch.problems
        warnings += dispatch.missing(task, everything=not chosen)
    if not chosen:
        chosen = [Selected(dispatch.registry.find_skill(FALLBACK), "nothing else matches")]
    unique = {selected.skill.full_name: selected for selected in reversed(chosen)}
    ordered = [unique[name] for name in dict.fromkeys(selected.skill.full_name for selected in chosen)]
    return _with_required(ordered, dispatch, warnings), warnings


def _usable(registry: Registry, name: str) -> Skill:
    try:
        skill = registry.find_skill(name)
    except KitbagError as error:
        raise InvalidError(error.problem, error.fix) from error
    verdict = registry.judge(skill)
    if not verdict.model:
        raise InvalidError(f"the skill {skill.full_name!r} can't be loaded: {verdict.reason}")
    return skill


def _automatic(task: Task, dispatch: Dispatch) -> list[Selected]:
    """The first of label, type, trigger or keyword, search that has hits."""
    hits = [Selected(skill, f"label {label!r}") for label in task.labels for skill in dispatch.named(label)]
    if not hits and task.type:
        hits = [Selected(skill, f"type {task.type!r}") for skill in dispatch.named(task.type)]
    if not hits:
        text = f"{task.title}\n{task.description}"
        hits = [Selected(skill, "a trigger or keyword in the task") for skill in dispatch.mentioned(text)]
    if not hits:
        found = search(dispatch.registry, task.title, MOST)
        wanted = words_of(task.title)
        hits = [
            Selected(hit.skill, f"search score {hit.score}")
            for hit in found
            if len(wanted & words_of(f"{hit.skill.full_name} {hit.skill.summary}")) >= _SHARED_WORDS
        ]
    unique = {hit.skill.full_name: hit for hit in reversed(hits)}
    return [unique[name] for name in dict.fromkeys(hit.skill.full_name for hit in hits)][:MOST]


def _with_required(chosen: list[Selected], dispatch: Dispatch, warnings: list[Diagnostic]) -> list[Selected]:
    """Adds what skills name under `requires`, once each; a circle and an unknown name are warnings."""
    found = {selected.skill.full_name: selected for selected in chosen}

    pending: list[tuple[Skill, tuple[str, ...]]] = [(one.skill, (one.skill.full_name,)) for one in reversed(chosen)]
    while pending:
        skill, trail = pending.pop()
        needs: list[tuple[Skill, tuple[str, ...]]] = []
        for name in dispatch.details(skill).requires:
            needed = _required(name, skill, dispatch, warnings)
            if needed.full_name in trail:
                circle = " -> ".join((*trail[trail.index(needed.full_name) :], needed.full_name))
                what, line = (
                    f"`requires` goes in a circle: {circle}",
                    field_line(skill.path, "requires", skill.root.boundary),
                )
                warnings.append(Diagnostic("warning", "required-circle", skill.path, line, what, "remove one of them"))
            elif needed.full_name not in found and len(found) < _MOST_REQUIRED:
                found[needed.full_name] = Selected(needed, f"required by {skill.full_name}")
                needs.append((needed, (*trail, needed.full_name)))
            elif needed.full_name not in found:
                what, line = (
                    f"more than {_MOST_REQUIRED} skills; {name!r} is left out",
                    field_line(skill.path, "requires", skill.root.boundary),
                )
                warnings.append(Diagnostic("warning", "required-skill", skill.path, line, what, "require fewer"))
        pending += reversed(needs)
    return list(found.values())


def _required(name: str, skill: Skill, dispatch: Dispatch, warnings: list[Diagnostic]) -> Skill:
    try:
        return _usable(dispatch.registry, name)
    except InvalidError as error:
        what = f"`requires` names {name!r}: {error.problem}; {FALLBACK} is used instead"
        line = field_line(skill.path, "requires", skill.root.boundary)
        warnings.append(Diagnostic("warning", "required-skill", skill.path, line, what, "correct `requires`"))
        return dispatch.registry.find_skill(FALLBACK)


_FAMILIES = ("claude", "gpt", "gemini", "llama", "qwen", "mistral", "deepseek", "grok")


def check_model(skill: Skill, details: Details, model: str) -> list[Diagnostic]:
    """A warning when the skill's `model` or `compatibility` leaves the target model out."""
    from kitbag.library.dialects.model_names import normalise_model
    from kitbag.library.skills import as_text

    if not model:
        return []
    found: list[Diagnostic] = []
    target = model.lower()
    written = details.metadata.get("model")
    if written:
        wanted = normalise_model(written, skill.root.dialect)[0]
        names = [wanted.name, *wanted.alternatives]
        fits = wanted.name in ("inherit", "default") or any(_same_model(str(name), target) for name in names)
        if not fits:
            what = f"meant for the model {wanted.name}, and this is {model}"
            found.append(_mismatch(skill, "model", what))
    compatibility = as_text(details.metadata.get("compatibility", "")).lower()
    mentioned = [family for family in _FAMILIES if family in compatibility]
    if mentioned and not any(_same_model(family, target) for family in mentioned):
        what = f"`compatibility` names {', '.join(mentioned)}, and this is {model}"
        found.append(_mismatch(skill, "compatibility", what))
    return found


def _mismatch(skill: Skill, field: str, what: str) -> Diagnostic:
    line = field_line(skill.path, field, skill.root.boundary)
    return Diagnostic("warning", "model-mismatch", skill.path, line, what, "use that model, or another skill")


_ALIAS_FAMILY = {"sonnet": "claude", "opus": "claude", "haiku": "claude", "fable": "claude"}


def _same_model(wanted: str, target: str) -> bool:
    wanted = wanted.lower().rpartition("/")[2]
    if wanted in target:
        return True
    return wanted in _FAMILIES and any(_ALIAS_FAMILY.get(word) == wanted for word in re.split(r"[-/ ]", target))
