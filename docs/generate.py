"""Writes docs/commands.md, docs/settings.md and docs/fields.md from the program itself: `make docs`. A test compares
them."""

import re
import sys
from pathlib import Path

import click

from kitbag.cli.root import EXIT_CODES, cli
from kitbag.library.dialects import field_names, field_reference
from kitbag.library.dialects.field_reference import FieldReference
from kitbag.settings import ITEM_STATES, SETTINGS, STATE_GROUPS

HERE = Path(__file__).resolve().parent

REQUEST_KEYS = """With `--output-format json`: `type` (result), `status` (completed, empty, failed, cancelled, max-turns,
over-budget), `result` (the answer), `session_id`, `model`, `turns` (requests to the model), `usage` (`input`, `output`,
`cache_read`, `cache_write`), `cost_usd`, `seconds`, `error`, `fix`, `failed_calls` (`tool`, `problem`; denied calls included),
`notices` (`severity`, `text`, `fix`), and `earlier` if there were several prompts.

With `--output-format stream-json`: one object per line, with a `type`: `start` (`session`, `model`, `mode`, `directory`, `skills`,
`agents`, `tools`), `text` and `thinking` (`text`, a fragment), `discarded` (ignore the fragments since the last message),
`message` (`message`: `role`, `parts`), `turn_end` (`turn`, `usage`, `cost_usd`), `tool_start` (`call_id`, `name`, `arguments`,
`title`), `tool_progress` (`call_id`, `text`), `tool_end` (`call_id`, `name`, `is_error`, `summary`, `seconds`, `details`, `result`:
what the model gets), `skill_loaded`, `skill_unloaded`, `switched` (`what`: persona, model, mode or skills; `before`, `after`,
`model_notice`: what the model is notified of), `compacted`, `retrying`, `notice`, and last `result`, as above without `failed_calls` and
`notices`."""

KEYS = {
    "skills list": "list of objects with `name`, `full_name`, `kind` (skill or command), `description`, `when_to_use`, "
    "`argument_hint`, `scope`, `dialect`, `path`, `plugin`, `team`, `group`, `state`, `listed`, `model_may_load`, "
    "`user_may_invoke`, `agents_may_preload`, `reason`. With `--format`: `text`, `described`, `listed`, `total`, `tokens`.",
    "skills show": "keys of `skills list`, and `display_name`, `version`, `tags`, `triggers`, `requires`, `subagents`, "
    "`allowed_tools`, `token_budget`, `metadata` (the parsed frontmatter), `tokens` (`level_0`, `level_1`, `level_2`), "
    "`files` (`path`, `group`, `bytes`, `tokens`), `shadows`, `problems`. With `--level`: `full_name`, `level`, `tokens`, "
    "`text`, and `files` at level 2.",
    "skills which": "list, the used file first: `name`, `full_name`, `description`, `scope`, `path`, `used`, `rule`.",
    "skills search": "keys of `skills list`, and `score`, `probability`, `why`; best first.",
    "skills explain": "`message`, `session`, `turn`, and `skills`, best match first: `name`, `outcome`, `rule`, `listing`, "
    "`probability`, `score`, and of a match `reason`, `usage`, `words`, `body_words`, `passage`, `features`.",
    "skills test": "`tier` (`ranking` or `model`), `model`, `estimated_cost`, `cost`, `passed`, `failed`, `skipped`, "
    "`unchecked_assertions`, `results` (`skill`, `id`, `file`, `message`, `should_load`, `outcome`, `chosen`, `rank`, `reason`, "
    "`cost`), `confusions` (`skill`, `chosen`, `messages`), `problems`.",
    "skills lint": "keys of `skills validate`; with `--collisions` a list of `first`, `second`, `overlap`, `messages`, "
    "`first_words`, `second_words`.",
    "skills budget": "`descriptions` and `names` (`used`, `limit`), `entry`, `tokens`, `counts`, and `skills`: `name`, `listing`, "
    "`reason`, `characters`, `wanted`.",
    "skills usage": "`workspace`, `learning`, and `skills`, most used first: `name`, `suggested`, `loaded`, "
    "`loaded_after_suggestion`, `loaded_after_search`, `invoked`, `last`, `prior`.",
    "skills validate": "list of `path`, `valid`, and `problems` (with `--portable`: `errors`, a list of texts).",
    "skills index": "the manifest itself.",
    "skills set": "`full_name`, `state`, `file`; also for enable and disable, of skills and agents.",
    "agents list": "list of objects with `name`, `full_name`, `display_name`, `description`, `scope`, `dialect`, `plugin`, `team`, "
    "`persona`, `path`, `model` (`name`, `variant`, `alternatives`, `original`), `permission_mode`, `permission_mode_original`, "
    "`max_turns`, `tools` (`mode`, `names`, `specifiers`, `denied`, `unknown`, `original`), `skills`, `background`, `color`, "
    "`isolation`, `priority`, `effort`, `mode`, `hidden`, `disabled`, `model_invocable`, `user_invocable`, `mcp_servers`, `has_hooks`, "
    "`file_extensions`, `argument_hint`, `extra` (unknown fields), `state`, `listed`, `model_may_spawn`, `user_may_run`, `reason`.",
    "agents run": "`id`, `name` (the agent), `status`, `is_finished`, `text` (the answer), `error`, `description`, `turns`, `tokens`, "
    "`cost`, `seconds`, `activity`, `branch`, `warnings`, `is_command`, `is_existing` (nothing was started: an "
    "unfinished task has its `--key`), `code` (exit code of a command), `next` and `size` (of a "
    "command's output, in bytes).",
    "tasks list": "list, newest first: keys of `agents run`, and `kind`, `agent`, `root` (the session that started it), `parent`, "
    "`depth`, `background`, `directory`, `queue`, `priority`, `key`, `not_before` (its scheduled start), `providers` (that its "
    "worker needs), `session`, `created`, `started`, `ended`, `run` (number of starts), `recoveries`.",
    "tasks show": "keys of `tasks list`, and `prompt`, `command`, `waits_for`, `costs` (`id`, `name`, `tokens`, `cost`, `all_tokens`, "
    "`all_cost`, `children`: a list of the same).",
    "tasks output": "keys of `agents run`, and `offset`.",
    "tasks stop": "list of `id`, `status`, `was_finished`, `others` (its subtasks, stopped with it), `processes` (still running).",
    "tasks resume": "`id`, `status`.",
    "tasks watch": "one line per change: `id`, `agent`, `status`, `turns`, `tokens`, `activity`, `error`.",
    "sessions list": "list of `id`, `started`, `last`, `directory`, `model`, `status`, `turns`, `cost`, `about`, `forked_from`, "
    "`problem`, `task`, `persona`, `mode`.",
    "sessions show": "keys of `sessions list`, and `tokens`, `tasks` (ids), `last_message`, `last_answer`.",
    "sessions export": "the document that `--format json` writes: `format`, `version`, `session`, `totals`, `entries` and more.",
    "agents search": "list, best first: `name`, `score`, `fit` (`called`: named in the prompt; `name`: its whole name or file type "
    "matches; `work`: its description matches; `words`: keywords only), `words`, `files`.",
    "agents show": "keys of `agents list`, and `body`, `body_tokens`, `shadows`, `problems`. With `--prompt`: `prompt`, `tokens`, "
    "`token_counter`, `warnings`, `ledger`.",
    "personas list": "list of `name`, `full_name`, `display_name`, `description`, `team`, `scope`, `path`, `core_skills`, "
    "`skills`, `on_demand_skills`, `subagents` (null: all of the team's), `default_model`, `system_prompt_additions`.",
    "personas show": "keys of `personas list`, and `catalog_skills`, `found_on_demand`, `catalog_agents`, "
    "`catalog_tokens`, `problems`.",
    "plugins list": "list of `name`, `display_name`, `version`, `description`, `author`, `license`, `path`, `enabled`, "
    "`default_enabled`, `source`, `digest`, `installed_at`, `skill_dirs`, `agent_paths`, `command_paths`, `root_skill`, `brings` "
    "(components that Kitbag does not run).",
    "plugins install": "keys of `plugins list`, and `updated`, `changed` (`sign`, `path`), `problems`.",
    "pack": "`task`, `payload`, `tokens`, `token_counter`, `strategy`, `strategy_reason`, `skills` (names), `skill_reasons`, "
    "`warnings` (texts), `diagnostics`, `ledger`, `cache` (`skill_reads`, `skill_uses`). With `--children`: `epic`, `children` "
    "(a list of the same) and `cache`.",
    "setup": "`chosen` (`name`, `why`), `usable`, `problem`, `fix`, `providers` (`name`, `address`, `key_variable`, `key`: "
    "environment, kept, missing or not needed; `problem`, `has_key`), `local` (servers on this machine and their models), "
    "`settings_file`, `keys_file`, `problems`. With `--forget`: `provider`, `variable`, `model` (removed from your settings).",
    "config get": "list of `key`, `value`, `source`, `meaning`.",
    "config list": "keys of `config get`.",
    "config unset": "`key`, `file`, `value` (the one that applies now; null: none).",
    "config set": "`key`, `value`, `file`.",
    "config where": "list of `what`, `path`, `exists`.",
    "new": "`kind`, `name`, `path`, `problems`.",
    "init": "`directory`, `created` and `kept` (paths).",
    "undo": "with `--list`: `session`, `messages` (one per user message: `message`, `at`, `about`, `tools`, `undone`, `interrupted`, `problem`, "
    "`files`: `path`, `change`: created, changed or deleted). With `--show`: `session`, `message`, `about`, `redo`, `files` (`path`, "
    "`change`, `kind`, `added`, `removed`, `problem`, `diff`). Otherwise `session`, `message`, `about`, `redo`, `restored` (`path`, "
    "`action`), `left` and `failed` (`path`, `reason`).",
    "context": "`session`, `directory`, `model`, `mode`, `persona`, `window`, `compacted_at`, `left`, `tokens`, `bytes`, "
    "`request_bytes` (the same), `groups`, `skills` (`listed`, `loaded`, `possible`), `tools`, `agents`, `memory`, `turns`, "
    "`last_request` (`provider`, `ours`, `residual`), `pieces`, `warnings`.",
    "servers list": "list of `name`, `label` (in the names of its tools), `agent` (that defines it), `scope` (user or project), "
    "`source`, `transport` (stdio or http), `command` (or its address), `environment` and `headers` (names only), `state` (ready, "
    "off, untrusted, changed, wrong, hidden), `reason`, `fix`, `tools` and `prompts` (names, if cached).",
    "servers test": "keys of `servers list`, and `seconds`.",
    "permissions test": "`tool`, `arguments`, `mode`, `mode_source`, `effect` (allow, ask, deny), `reason`, `parts` (`what`, "
    "`effect`, `reason`, `rule`, `source`), `sandbox`, `network`, `protection`, `trust`, `diagnostics`.",
    "permissions list": "`mode`, `mode_source`, `modes`, `trust`, `rules` (`effect`, `rule`, `scope`, `source`, `examples`), "
    "`ignored` (`setting`, `value`, `source`, `why`), `protection`, `diagnostics`.",
    "permissions pending": "list of waiting approvals: `id`, `tool`, `arguments`, `directory`, `asked_by`, `judgement`, `diff` (of an Edit or "
    "Write), `shown` (lines).",
    "trust show": "`root`, `state` (nothing, untrusted, trusted, changed), `whole`, `problems`, `items` (`kind`, `name`, `path`, "
    "`problem`, `acts`), `changes`.",
    "trust list": "list of `root`, `trusted_at`, `acts`, `exists`.",
    "audit": "`version`, `counts`, `findings` (`rule`, `severity`, `confidence`, `item`, `file`, `line`, `excerpt`, `note`, `why`, "
    "`fix`, `fingerprint`, `suppressed`), `suppressed`, `items` (`kind`, `name`, `path`, `files`, `manifest`: `commands`, "
    "`references`, `environment`, `hosts`, `urls`, `programs`, `tools`, `permission_mode`, `hooks`, `servers`, `scripts`, `links`, "
    "`binaries`), `not_read` (`path`, `reason`), `caution`. With `--since`: also `changes`. With `--explain`: `id`, `severity`, "
    "`confidence`, `title`, `why`, `fix`, `suppressible`.",
    "lock": "`file`, `items`, `files`. With `--check`: `file`, `same`, `differences` (`path`, `what`).",
    "doctor": "`counts`, `roots` (`path`, `kind`, `scope`, `items`), `protection` (`kind`, `version`, `carve_outs`, `problem`, "
    "`fix`, `holds`, `meaning`) and `diagnostics`; `store`: keys of `store status`.",
    "store status": "`journal_bytes`, `undo_bytes`, `output_bytes`, `damaged_bytes`, `damage` (`at`, `folder`, `records`, "
    "`problem`).",
    "store check": "`path`, `records`, `problem`.",
    "store acknowledge": "`acknowledged`: as `damage` of `store status`.",
    "store prune": "`dry_run`, `before`, `sessions`, `tasks`, `records`, `freed_bytes`, `kept` (`id`, `reason`).",
    "sessions delete": "keys of `store prune`.",
}


def commands_page() -> str:
    parts = [
        "# Commands",
        "Written by `make docs` from the program itself.",
        "All commands and options. Every listing has `--json`, which prints ASCII. A problem or diagnostic has `severity` (error, "
        "warning, info), `code`, `file`, `line` (0: the whole file), `problem` and `fix`. Results go to stdout, notes and errors to "
        'stderr; with `--json` an error is `{"error": {"code", "problem", "fix"}}`.',
        "```\n" + EXIT_CODES.replace("\b\n", "").strip() + "\n```",
    ]
    context = click.Context(cli, info_name="kitbag", **cli.context_settings)
    formatter = context.make_formatter()
    click.Command.format_options(cli, context, formatter)  # of the group itself, without its commands
    parts.append(f"## kitbag -p\n\n```\n{formatter.getvalue().strip()}\n```\n\n{REQUEST_KEYS}")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            parts.append(f"## kitbag {name}\n\n{command.help}")
            for verb in sorted(command.list_commands(inner)):
                leaf = command.get_command(inner, verb)
                assert leaf is not None
                parts.append(_section(f"{name} {verb}", leaf, click.Context(leaf, info_name=verb, parent=inner), "###"))
        else:
            parts.append(_section(name, command, inner, "##"))
    return "\n\n".join(parts) + "\n"


def _section(name: str, command: click.Command, context: click.Context, mark: str) -> str:
    context.max_content_width = 100
    keys = f"\n\nJSON: {KEYS[name]}" if name in KEYS else ""
    return f"{mark} kitbag {name}\n\n```\n{command.get_help(context)}\n```{keys}"


def settings_page() -> str:
    rows = [
        f"| `{s.key}` | {s.kind.replace('|', ', ')} | `{s.default or ' '}` | {'yes' if s.project_may_set else 'no'} | {s.description} |"
        for s in SETTINGS
    ]
    groups = " and ".join(f"`{group}.NAME`" for group in STATE_GROUPS)
    return "\n".join(
        [
            "# Settings",
            "",
            "Written by `make docs` from the program itself.",
            "",
            "Your settings are in `~/.kitbag/settings.toml` (`KITBAG_HOME` moves it), a project's in `.kitbag/settings.toml`, from the",
            "working directory up to the git root. A project's value wins if projects can set the key. `kitbag config get` shows each",
            "value and its source, and `kitbag config set KEY VALUE` changes yours.",
            "",
            "| key | values | default | projects can set it | meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"{groups} set a state: {', '.join(f'`{state}`' for state in ITEM_STATES)}. If yours and a project's",
            "differ, the stricter one applies.",
            "",
        ]
    )


def _field_table(reference: dict[str, FieldReference], spellings: dict[str, tuple[str, ...]] | None = None) -> str:
    rows = ["| field | value | default | meaning | files of |", "|---|---|---|---|---|"]
    for field, about in reference.items():
        name, *others = (spellings or {}).get(field, (field,))
        if spellings is field_names.AGENT_SPELLINGS:  # hyphens and underscores are ignored there
            plain = {one: re.sub("[-_]", "", one).lower() for one in (name, *others)}
            others = [one for at, one in enumerate(others) if _is_new_spelling(one, [name, *others[:at]], plain)]
        also = "; also " + ", ".join(f"`{other}`" for other in others) if others else ""
        rows.append(f"| `{name}`{also} | {about.value} | {about.default} | {about.meaning} | {about.tools} |")
    return "\n".join(rows)


def _is_new_spelling(spelling: str, before: list[str], plain: dict[str, str]) -> bool:
    """Whether it differs from those before it by more than hyphens and underscores. `maxTurns` is listed too, since that
    is what the field is called elsewhere."""
    return spelling != spelling.lower() or plain[spelling] not in [plain[one] for one in before]


def _ignored_line(fields: frozenset[str], reference: dict[str, FieldReference]) -> str:
    names = sorted(fields - set(reference), key=str.lower)
    return "Known from other tools and ignored: " + ", ".join(f"`{name}`" for name in names) + "."


def fields_page() -> str:
    names, about = field_names, field_reference
    return (
        "\n\n".join(
            [
                "# Fields",
                "Written by `make docs` from the program itself.",
                "All fields that Kitbag reads in skills, agents, commands, personas, teams and manifests. An empty default means that "
                "the field has no effect if it is missing. Unknown fields are kept and ignored; in personas they are a warning. Quote "
                "a YAML value that contains a colon followed by a space, or starts with anything but a letter or digit. "
                "[finding.md](finding.md) says where files are found. `kitbag skills validate PATH` checks a file, with "
                "`--portable` by the rules of the Agent Skills specification.",
                "## Skills",
                "`SKILL.md` in a directory of its own, or a flat `.md` file of a team. The body has the instructions.",
                _field_table(about.SKILL_REFERENCE, names.SKILL_SPELLINGS),
                _ignored_line(names.IGNORED_SKILL_FIELDS, about.SKILL_REFERENCE),
                "## Agents",
                "Markdown with the instructions as body, or YAML, TOML or JSON with a field for them. Names of fields ignore case, "
                "hyphens and underscores. [agents.md](agents.md) explains how agents run, and [servers.md](servers.md) their servers.",
                _field_table(about.AGENT_REFERENCE, names.AGENT_SPELLINGS),
                _ignored_line(names.IGNORED_AGENT_FIELDS, about.AGENT_REFERENCE),
                "`tools` has several forms. Names of other tools are translated; a list that cannot be parsed gives no tools, and an "
                "unknown name is a warning.",
                "```yaml\n"
                "tools: Read, Grep, Bash(git log:*)          # these; commas or spaces\n---\n"
                "tools: [read, search]                       # a list, here with Copilot's names\n---\n"
                "tools: {mode: allowlist, allow: [Read]}     # only these\n---\n"
                "tools: {mode: denylist, deny: [Task]}       # all but these\n---\n"
                "tools: {read: true, write: false}           # a map, as in OpenCode\n---\n"
                'tools: "*"                                  # all; needs quotes\n---\n'
                "tools: []                                   # none\n```",
                "## Commands",
                "Markdown files in a `commands` directory. They have the fields of skills; other tools use these. The name is the "
                "file name, after those of its directories: `gsd/plan.md` is `gsd:plan`.",
                _field_table(about.COMMAND_REFERENCE),
                _ignored_line(names.IGNORED_COMMAND_FIELDS, about.COMMAND_REFERENCE),
                "## Personas",
                "`_persona_NAME.yaml` in a team's directory, or `personas/NAME.yaml`. [personas.md](personas.md) explains them.",
                _field_table(about.PERSONA_REFERENCE),
                "## Teams",
                "A team is a directory with personas, agents or `_team.md`. `_team.md` has no fields: its whole text is added to the "
                "prompt of all personas of the team.",
                "## Skill manifests",
                '`manifest.json` in a skills directory: `{"skills": [...]}`, or the list alone. A skill\'s own frontmatter overrides it. '
                "`kitbag skills index` writes one.",
                _field_table(about.MANIFEST_REFERENCE),
                "## Plugin manifests",
                "`plugin.json` in `.claude-plugin`, `.plugin`, `.github/plugin`, `.codex-plugin` or at the top, or "
                "`gemini-extension.json`. Without a manifest, a directory with `skills`, `agents` or "
                "`commands` is a plugin too. A marketplace, `marketplace.json` in `.claude-plugin`, `.github/plugin`, `.plugin`, "
                "`.agents/plugins` or at the top, has a list `plugins` with the same fields "
                "and `source`, a path relative to the marketplace or to its `metadata.pluginRoot`.",
                _field_table(about.PLUGIN_REFERENCE),
            ]
        )
        + "\n"
    )


PAGES = {"commands.md": commands_page, "settings.md": settings_page, "fields.md": fields_page}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
        sys.stdout.write(f"wrote docs/{name}\n")


if __name__ == "__main__":
    main()
