"""A skill as loaded at start: the frontmatter fields that the catalog, the visibility rule and selection need.

`read_skill` is the hot path of every scan: it reads only the start of a file. Used by discover, index and
the registry; uses text/frontmatter. skill_files reads the rest on demand.
"""

from typing import NamedTuple

from kitbag.errors import Diagnostic, Severity
from kitbag.library.dialects.field_names import (
    AGENT_LIMITS,
    AGENT_SPELLINGS,
    IGNORED_SKILL_FIELDS,
    KNOWN_FIELDS,
    SKILL_SPELLINGS,
)
from kitbag.library.dialects.field_spelling import FieldSpelling
from kitbag.library.names import MAX_NAME, sanitize_name
from kitbag.library.scopes import Root
from kitbag.text.frontmatter import Frontmatter, find_field_line, first_paragraph, read_frontmatter
from kitbag.text.hidden_characters import find_disguises, find_hidden, format_code_points, remove_hidden
from kitbag.text.plain_frontmatter import Metadata, YamlValue
from kitbag.text.source_files import FileProblem, PathBoundary, SourceError

NO_MODEL, NO_USER, COMMAND, FLAT, REQUIRED, HAS_PATHS, NO_DESCRIPTION = (1 << bit for bit in range(7))

_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))
_OPTIONAL_FIELDS = frozenset(("when_to_use", "argument-hint"))
_KEYWORD_FIELDS = frozenset(("tags", "triggers"))
_AGENT_FIELDS = frozenset(("agent", "mode", "tools"))
_READ_ONLY_AGENTS = frozenset(("plan", "ask"))
_EMPTY_VALUES = ("", "null", "~", "Null", "NULL")


SKILL_SPELLING = FieldSpelling(
    SKILL_SPELLINGS,
    IGNORED_SKILL_FIELDS,
    ("disable_model_invocation", "user_invocable", "allowed_tools", "restrict_tools", "disallowed_tools"),
    {field: AGENT_SPELLINGS[field] for field in AGENT_LIMITS},
)


class Skill(NamedTuple):
    """What a scan keeps of a skill. Commands are skills with the COMMAND flag."""

    root: Root
    location: str
    """The file, relative to the root; absolute for a skill that only a manifest lists."""
    stamp: int
    """The hash of the file's stamp; changes whenever the file does."""
    changed: int
    """The file's ctime in nanoseconds."""
    name: str
    full_name: str
    """`plugin:name`, `team/name`, or the name itself."""
    description: str
    when_to_use: str
    argument_hint: str
    flags: int
    team: str
    group: str
    """Inside a team: `core`, or the folder's name, which may be a persona's."""
    subagents: tuple[str, ...]
    keywords: str
    """Its tags, then its triggers, one per line."""

    @property
    def path(self) -> str:
        return f"{self.root.path}/{self.location}" if self.location[:1] != "/" else self.location

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def kind(self) -> str:
        return "command" if self.flags & COMMAND else "skill"

    @property
    def summary(self) -> str:
        """The text for the catalog: description and when to use."""
        if not self.when_to_use:
            return self.description
        return f"{self.description} {self.when_to_use}" if self.description else self.when_to_use


def is_path_activated(skill: Skill) -> bool:
    """Its description is shown when a file that matches `paths` is used. Commands have no `paths`."""
    return bool(skill.flags & HAS_PATHS) and not skill.flags & COMMAND


def counts_arguments_from_one(skill: Skill) -> bool:
    """`$1` is the first argument, not the second."""
    return skill.root.dialect == "opencode" or (skill.root.dialect == "codex" and bool(skill.flags & COMMAND))


def read_skill(
    root: Root, location: str, path: str, fallback_name: str, team: str = "", group: str = "", flags: int = 0
) -> tuple[Skill | None, list[Diagnostic]]:
    """Never raises for content. Raises FileNotFoundError if there is no such file."""
    try:
        stamp, frontmatter = read_frontmatter(path, KNOWN_FIELDS, root.boundary)
    except SourceError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise error.__cause__ from None
        return None, [
            Diagnostic(severity="error", code=error.code, file=path, line=0, problem=error.problem, fix=error.fix)
        ]
    if flags & FLAT and not frontmatter.present:
        return None, []
    metadata = frontmatter.metadata
    problems: list[FileProblem] = [*frontmatter.problems] if frontmatter.problems else []
    if not SKILL_SPELLING.exact.issuperset(metadata):
        metadata = SKILL_SPELLING.rename(metadata, problems)
    elif "metadata" in metadata:
        problems += SKILL_SPELLING.misplaced(metadata)
    declared_name = None if flags & COMMAND else metadata.get("name")
    if declared_name == fallback_name and _is_plain_name(fallback_name):
        name = fallback_name
    else:
        name = _read_name(declared_name, fallback_name, flags, problems)
    description, flags = _read_description(frontmatter, metadata, flags, problems)
    when_to_use, hint = ("", "") if _OPTIONAL_FIELDS.isdisjoint(metadata) else _read_optional_fields(metadata, problems)
    flags |= _read_flags(metadata, problems)
    if flags & COMMAND and not _AGENT_FIELDS.isdisjoint(metadata):
        _check_agent(root, metadata, problems)
    full_name = f"{root.plugin}:{name}" if root.plugin else f"{team}/{name}" if team else name
    skill = Skill(
        root=root,
        location=location,
        stamp=hash(stamp),
        changed=stamp[1],
        name=name,
        full_name=full_name,
        description=description,
        when_to_use=when_to_use,
        argument_hint=hint,
        flags=flags,
        team=team,
        group=group,
        subagents=to_string_list(metadata["subagents"]) if "subagents" in metadata else (),
        keywords="" if _KEYWORD_FIELDS.isdisjoint(metadata) else _read_keywords(metadata),
    )
    return skill, [to_diagnostic(path, problem, root.boundary) for problem in problems]


def _check_agent(root: Root, metadata: Metadata, problems: list[FileProblem]) -> None:
    """OpenCode and Copilot limit a command to `tools` and run it in the agent that it names, which may limit it; Kitbag
    only does the latter, with `context: fork`."""
    key = "agent" if "agent" in metadata else "mode"
    name = get_text(metadata, key)
    if metadata.get("tools") and "restrict-tools" not in metadata:
        problem = "`tools` limits nothing: the command runs in your session"
        fix = "write `restrict-tools` with these tools, or remove it"
        severity = "info" if root.dialect == "copilot" else "warning"  # in VS Code, most prompts name their tools
        problems.append(FileProblem(severity, "field-ignored", 2, problem, fix, field="tools"))
    if root.dialect not in ("opencode", "copilot") or not name or metadata.get("context") == "fork":
        return
    is_limit = name.lower() in _READ_ONLY_AGENTS
    problem = f"`{key}: {name[:40]}` has no effect without `context: fork`: the command runs in your session"
    agent = "`agent: Plan`" if is_limit else "the name of one of your agents as `agent`"
    fix = f"to run it in an agent, add `context: fork` and {agent}"
    problems.append(FileProblem("warning" if is_limit else "info", "field-ignored", 2, problem, fix, field=key))


def to_diagnostic(path: str, problem: FileProblem, boundary: PathBoundary | None) -> Diagnostic:
    severity: Severity = (
        "error" if problem.severity == "error" else "warning" if problem.severity == "warning" else "info"
    )
    line = find_field_line(path, problem.field, boundary) if problem.field else problem.line
    return Diagnostic(
        severity=severity, code=problem.code, file=path, line=line, problem=problem.problem, fix=problem.fix
    )


def _is_plain_name(name: str) -> bool:
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum() and len(name) <= MAX_NAME


def _read_name(declared: YamlValue | None, fallback: str, flags: int, problems: list[FileProblem]) -> str:
    name, name_problem = sanitize_name(declared, fallback)
    if flags & COMMAND:  # `:` separates its folders
        name = ":".join(sanitize_name(None, part)[0] for part in fallback.split(":"))
    if name_problem:
        problem = f"{name_problem}; the name {name!r} is used"
        problems.append(
            FileProblem(
                severity="warning",
                code="name-unusable",
                line=2,
                problem=problem,
                fix="use lowercase letters, digits and `-`",
                field="name",
            )
        )
    elif declared is not None and name != fallback and not flags & FLAT:
        problem = f"`name` is {name!r}, but the directory is named {fallback!r}"
        problems.append(
            FileProblem(
                severity="info",
                code="name-not-folder",
                line=2,
                problem=problem,
                fix="use the same name for both",
                field="name",
            )
        )
    hidden = find_hidden(fallback)
    if hidden:
        problem = f"the file or directory name contains hidden characters: {format_code_points(hidden)}"
        problems.append(
            FileProblem(severity="warning", code="hidden-characters", line=0, problem=problem, fix="rename it")
        )
    return name


def _read_description(
    frontmatter: Frontmatter, metadata: Metadata, flags: int, problems: list[FileProblem]
) -> tuple[str, int]:
    description = get_text(metadata, "description")
    if description:
        return _strip_hidden(description, "description", problems), flags
    paragraph = first_paragraph(frontmatter.body_prefix)
    if not frontmatter.present:
        problem = "no frontmatter (`---`)"
    else:
        problem = "no `description`"
    instead = "the first paragraph is used" if paragraph else "models cannot tell when to use it"
    problems.append(
        FileProblem(
            # Commands of Claude Code and Cursor often have no frontmatter: mostly users invoke them.
            severity="info" if paragraph and flags & COMMAND else "warning",
            code="no-description",
            line=1,
            problem=f"{problem}; {instead}",
            fix="add a `description:` that says what it does and when to use it",
            field="description" if "description" in metadata else "",
        )
    )
    return _strip_hidden(paragraph, "description", problems), flags | NO_DESCRIPTION


def _strip_hidden(text: str, field: str, problems: list[FileProblem]) -> str:
    if text.isascii() and text.isprintable():
        return text
    if not find_hidden(text):
        return text
    if hidden := find_disguises(text):
        problem = f"`{field}` contains hidden characters, removed: {format_code_points(hidden)}"
        problems.append(FileProblem("warning", "hidden-characters", 2, problem, "remove them", field=field))
    return remove_hidden(text)


def _read_flags(metadata: Metadata, problems: list[FileProblem]) -> int:
    flags = 0
    if parse_boolean(metadata, "disable-model-invocation", False, problems):
        flags |= NO_MODEL
    if not parse_boolean(metadata, "user-invocable", True, problems):
        flags |= NO_USER
    if metadata.get("activation") == "required":
        flags |= REQUIRED
    if metadata.get("paths"):
        flags |= HAS_PATHS
    return flags


def parse_boolean(metadata: Metadata, key: str, default: bool, problems: list[FileProblem]) -> bool:
    value = metadata.get(key)
    if value is None or value in _EMPTY_VALUES:
        return default
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    problem = f"`{key}` must be true or false; {str(default).lower()} is used"
    fix = f"write `{key}: true` or `{key}: false`"
    problems.append(FileProblem(severity="warning", code="not-a-boolean", line=2, problem=problem, fix=fix, field=key))
    return default


def get_text(metadata: Metadata, key: str) -> str:
    value = metadata.get(key)
    if value is None:
        return ""
    return to_text(value).strip()


def _read_optional_fields(metadata: Metadata, problems: list[FileProblem]) -> tuple[str, str]:
    """When to use it and the argument hint, which few skills have."""
    when = _strip_hidden(get_text(metadata, "when_to_use"), "when_to_use", problems)
    hint = _format_hint(metadata.get("argument-hint", ""))
    return when, _strip_hidden(hint, "argument-hint", problems)


def _read_keywords(metadata: Metadata) -> str:
    words = to_string_list(metadata.get("tags"))
    if "triggers" in metadata:
        words += to_string_list(metadata["triggers"])
    joined = "\n".join(words)
    return joined if joined.count("\n") < len(words) else "\n".join(word.replace("\n", " ") for word in words)


def to_text(value: YamlValue) -> str:
    """Joins any YAML value into one string."""
    if isinstance(value, str):
        return "" if value in _EMPTY_VALUES else value
    if isinstance(value, list):
        return " ".join(to_text(item) for item in value)
    return " ".join(f"{key}: {to_text(item)}" for key, item in value.items())


def _format_hint(value: YamlValue) -> str:
    """`[file]` is a list in YAML, but meant as text."""
    if isinstance(value, list):
        return "[" + ", ".join(to_text(item) for item in value) + "]" if value else ""
    return to_text(value).strip()


def to_string_list(value: YamlValue | None) -> tuple[str, ...]:
    """Accepts a list or a comma- or space-separated string."""
    if isinstance(value, str):
        parts = value.strip("[] ").split(",") if "," in value else value.strip("[] ").split()
        return tuple(part.strip(" '\"") for part in parts if part.strip(" '\""))
    if isinstance(value, list):
        return tuple(text for item in value if (text := to_text(item).strip()))
    return ()
