"""What the documentation shows works: shell and Python blocks run as printed, data parses, and every command, option,
setting, link and test that a page names exists.

A page's blocks run in order, in a trusted copy of examples/workspace. `<!-- not run: WHY -->` above a block keeps it from
running; its commands are still checked. `console` blocks have `$ command` lines and their output, `...` for any lines.
"""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import click
import pytest
import yaml

from conftest import World
from kitbag.chat.commands import COMMANDS
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.root import cli
from kitbag.settings import SETTINGS, STATE_GROUPS
from support.matrix import sample
from support.waiting import TEST_TIMEOUT

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md", "CONTRIBUTING.md", "examples/README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]  # fmt: skip
GENERATED = ("docs/commands.md", "docs/settings.md", "docs/fields.md")
FENCE = re.compile(r"(?:^<!-- (?P<note>[^\n]*) -->\n\n?)?^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.S | re.M)
PLAIN = re.compile(r"""kitbag( +([\w./:,=@+-]+|"[^"$`\\]*"|'[^']*'))*( +#.*)?""")
"""A command that means the same without a shell."""
INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str
    note: str

    @property
    def runs(self) -> bool:
        return self.kind in ("sh", "console", "python") and not self.note.startswith("not run:")

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def read_page(page: str) -> str:
    return (ROOT / page).read_text()


def read_blocks(page: str) -> list[Block]:
    text = read_page(page)
    return [
        Block(page, text.count("\n", 0, found.start("kind")) + 1, found["kind"], found["text"], found["note"] or "")
        for found in FENCE.finditer(text)
    ]


BLOCKS = [block for page in PAGES if page not in GENERATED for block in read_blocks(page)]


# Running


@pytest.fixture
def shop(world: World) -> World:
    """A trusted copy of the sample workspace in a git repository, with the other examples beside it."""
    shutil.rmtree(world.workspace)
    shutil.copytree(ROOT / "examples", world.workspace.parent / "examples")
    world.workspace = world.workspace.parent / "examples" / "workspace"
    world.env |= {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "KITBAG_MODEL": "offline"}
    world.env = {name: value for name, value in world.env.items() if not name.endswith(("_KEY", "_HOST", "_BASE_URL"))}
    for command in ("git init -q", "git add .", "git -c user.name=a -c user.email=a@b commit -qm sample"):
        subprocess.run(shlex.split(command), cwd=world.workspace, env=world.env, check=True)
    world.ok("trust", "--yes")
    return world


def run_script(shop: World, *arguments: str) -> str:
    done = subprocess.run(
        [*arguments],
        cwd=shop.workspace,
        env=shop.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def run_shell(shop: World, text: str) -> str:
    """Without a shell where that is the same: starting the program anew takes longer than most commands do."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if not all(PLAIN.fullmatch(line) for line in lines):
        return run_script(shop, "sh", "-eu", "-c", text)
    printed = ""
    for line in lines:
        done = shop.run(*shlex.split(line, comments=True)[1:])
        printed += done.stdout + done.stderr
        assert done.returncode == 0, f"exit code {done.returncode}\n{printed}"
    return printed


def run_console(shop: World, text: str) -> None:
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
        printed = run_shell(shop, command)
        pattern = re.escape(expected.strip()).replace(re.escape("..."), "(?s:.*)")
        assert re.fullmatch(pattern, printed.strip()), f"$ {command}\n{printed}"


@pytest.mark.parametrize("page", sample(sorted({block.page for block in BLOCKS if block.runs} - {"README.md"}), 4))
def test_the_examples_of_a_page_run_as_printed(page: str, shop: World) -> None:
    for block in BLOCKS:
        if block.page != page or not block.runs:
            continue
        try:
            if block.kind == "sh":
                run_shell(shop, block.text)
            elif block.kind == "python":
                run_script(shop, sys.executable, "-c", block.text)
            else:
                run_console(shop, block.text)
        except AssertionError as error:
            raise AssertionError(f"{block}: {error}") from None


# Parsing


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS}))
def test_every_block_has_a_known_kind_and_parses(page: str) -> None:
    unit = ConfigParser(interpolation=None)
    parsers = {
        "json": json.loads,
        "toml": tomllib.loads,
        "yaml": yaml.safe_load,
        "ini": unit.read_string,
        "python": ast.parse,
    }
    for block in BLOCKS:
        if block.page == page:
            assert block.kind in (*parsers, "sh", "console", "text"), f"{block}: ```{block.kind}"
            if block.kind in parsers:
                parsers[block.kind](block.text)


@pytest.mark.parametrize("page", ["docs/running.md", "docs/security.md", "docs/servers.md"])
def test_the_settings_that_a_page_shows_are_valid(page: str, world: World) -> None:
    [block] = [block for block in BLOCKS if block.page == page and block.kind == "toml"]
    world.write("~/.kitbag/settings.toml", block.text)
    assert world.json("doctor")["diagnostics"] == []
    assert world.json("permissions", "list")["diagnostics"] == []
    assert "wrong" not in [server["state"] for server in world.json("servers", "list")]


def test_the_unit_and_the_compose_file_of_workers_start_what_exists() -> None:
    blocks = [block for block in BLOCKS if block.page == "docs/fleet.md"]
    [unit] = [block.text for block in blocks if block.kind == "ini"]
    [compose] = [yaml.safe_load(block.text) for block in blocks if block.kind == "yaml"]
    program, _, words = unit.partition("ExecStart=")[2].partition("\n")[0].partition(" ")
    worker, database = compose["services"]["worker"], compose["services"]["db"]["environment"]
    assert Path(program).name == "kitbag"
    for command in (f"kitbag {words}", worker["command"]):
        check_command(command)
    url = urlsplit(worker["environment"]["KITBAG_DATABASE_URL"])
    found = (url.hostname, url.username, url.password, url.path)
    assert found == ("db", database["POSTGRES_USER"], database["POSTGRES_PASSWORD"], f"/{database['POSTGRES_DB']}")
    extras = re.findall(r"kitbag\[([\w,]+)\]", worker["build"]["dockerfile_inline"])[0].split(",")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(declared)


# Commands


def find_commands(page: str) -> list[tuple[str, str]]:
    """Each `kitbag ...` of a page, in blocks and in running text, with its place."""
    found: list[tuple[str, str]] = []
    for block in read_blocks(page):
        for line in block.text.splitlines() if block.kind in ("sh", "console", "text") else ():
            if command := re.match(r"(?:\$ |.*\| ?)?(kitbag\b.*)", line):
                found.append((str(block), command[1].replace("\\|", "|")))
    prose = FENCE.sub("", read_page(page))
    for code in INLINE.finditer(prose):
        if code[2].strip().startswith("kitbag "):
            found.append((page, " ".join(code[2].split()).replace("\\|", "|")))
    return found


def check_command(command: str) -> None:
    """Commands and options exist. `list|show` stands for several commands; upper-case words, `...` for any value."""
    words = shlex.split(command, comments=True)[1:]
    words = words[: next((at for at, word in enumerate(words) if word in ("|", ">", "<", "&&", ";", "&")), len(words))]
    at = next((at for at, word in enumerate(words[:2]) if "|" in word), 0)
    for one in words[at].split("|") if words else ():
        check_words([*words[:at], one, *words[at + 1 :]])


def check_words(words: list[str]) -> None:
    command: click.Command = cli
    context = click.Context(cli, info_name="kitbag", **cli.context_settings)
    while True:
        if command is cli and words and words[-1] in ("-p", "--print", "-r", "--resume"):  # may stand last
            words = [*words, "-"]
        if (
            isinstance(command, CommandGroup)
            and command.bare_command in command.commands
            and words[:1]
            and words[0][0] == "-"
        ):
            words = [command.bare_command, *words]
        values, words, _ = command.make_parser(context).parse_args([*words])
        if not (isinstance(command, click.Group) and words and "prompt" not in values):
            break
        found = command.get_command(context, words[0])
        is_message = command is cli and len(words) == 1 and (" " in words[0] or words[0] == "MESSAGE")
        assert found is not None or is_message or words[0] in ("...", "…"), f"there is no command {words[0]!r}"
        if found is None:
            return
        context = click.Context(found, info_name=words[0], parent=context)
        command, words = found, words[1:]
        if context.command_path == "kitbag trust" and (not words or words[0] not in found.list_commands(context)):
            words = ["add", *words]
    if context.command_path == "kitbag config set" and values.get("key"):
        key = str(values["key"])
        assert key in {setting.key for setting in SETTINGS} or key.startswith(tuple(STATE_GROUPS)), f"no setting {key}"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED])
def test_every_command_and_option_that_a_page_names_exists(page: str) -> None:
    for where, command in find_commands(page):
        try:
            check_command(command)
        except (click.ClickException, ValueError, AssertionError) as error:
            message = error.format_message() if isinstance(error, click.ClickException) else error
            raise AssertionError(f"{where}: {command}: {message}") from None


def test_every_chat_command_is_on_the_page_of_the_chat_and_no_other() -> None:
    page = read_page("docs/chat.md").partition("## Commands")[2].partition("\n## ")[0]
    assert {name for name in re.findall(r"`/([a-z]+)[^`]*`", page) if name != "name"} == set(COMMANDS)


# Links and tests


def list_anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", INLINE.sub("", FENCE.sub("", read_page(page)))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.exists(), f"{page}: {target}"
        assert not anchor or anchor in list_anchors(found), f"{page}: {target}"


def test_every_page_is_reachable_from_the_readme() -> None:
    seen, waiting = set(), ["README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", read_page(page))
        found = [str(((ROOT / page).parent / link).resolve().relative_to(ROOT)) for link in links if "://" not in link]
        waiting += [link for link in found if link not in seen]
    assert set(PAGES) <= seen


def test_every_test_that_a_page_names_exists() -> None:
    paths = [*(ROOT / "tests").rglob("test_*.py")]
    files, text = {path.name for path in paths}, "".join(path.read_text() for path in paths)
    for page in PAGES:
        for name, suffix in re.findall(r"`(?:tests/[\w/]*/)?(test_\w+)(\.py)?`", read_page(page)):
            exists = f"{name}.py" in files if suffix else f"def {name}(" in text
            assert exists, f"{page}: {name}{suffix}"


# Limits


def test_the_limits_that_pages_state_are_those_of_the_code() -> None:
    from kitbag.agent.undo import snapshot
    from kitbag.assembly import mentions
    from kitbag.chat.terminal import title_and_bell
    from kitbag.library import agents, discover
    from kitbag.mcp_server import client_sessions, http, http_guard, server_state, skill_uris, tool_calls
    from kitbag.net.policy import FetchLimits
    from kitbag.packing import memory_files, memory_syntax
    from kitbag.permissions.trust.bounded_reader import ReadLimits
    from kitbag.store import content_store
    from kitbag.tasks import output_file, subagent, task_host, worker_process
    from kitbag.tools.mcp_client import results, stdio_transport

    fetch, scan = FetchLimits(), ReadLimits()
    words = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 8: "eight", 10: "ten", 20: "twenty"}
    limits = {
        "docs/chat.md": [f"nobody has typed for {words[title_and_bell.AWAY_SECONDS]} seconds"],
        "docs/running.md": [
            f"up to {mentions.MAX_MENTIONS} files and about {mentions.MAX_CHARS:,} characters",
            f"at most {mentions.MAX_TYPED_LINES} lines and {mentions.MAX_TYPED_CHARS:,} characters",
            f"files over {snapshot.MAX_FILE_BYTES >> 20} MB",
            f"more than {snapshot.MAX_FILES:,} files or {snapshot.MAX_TOTAL_BYTES >> 20} MB",
            f"more than {snapshot.MAX_SECONDS:.0f} seconds",
            f"after {content_store.MAX_DAYS} days without use, and above {content_store.MAX_BYTES >> 30} GB",
        ],
        "docs/memory.md": [
            f"{memory_files.MAX_CHARACTERS:,} characters",
            f"up to {words[memory_files.MAX_IMPORT_DEPTH]} levels",
            f"`@` in one file | {memory_syntax.MAX_IMPORTS} |",
        ],
        "docs/security.md": [
            f"({scan.files:,} files, {scan.bytes >> 20} MiB, {scan.seconds:.0f} seconds)",
            f"{fetch.total_timeout} s in total, {fetch.idle_timeout} s of silence, header size, {fetch.body_bytes >> 20} MiB",
            f"at most {words[fetch.redirects]}, never from https to http",
        ],
        "docs/mcp.md": [
            f"{http.MAX_BODY_BYTES >> 20} MiB and {http_guard.BODY_TIMEOUT:.0f} seconds per request body",
            f"{http.MAX_SESSIONS:,} sessions, {client_sessions.IDLE_SECONDS / 60:.0f} minutes idle",
            f"more than {skill_uris.MAX_FILES} files or {skill_uris.MAX_BYTES >> 20} MiB",
            f"at least every {tool_calls.PROGRESS_SECONDS:.0f} seconds",
            f"checks every {server_state.MIN_REFRESH_SECONDS:.0f} seconds",
            f"more than {100 / server_state.REFRESH_COST_FACTOR:.0f}% of its time",
        ],
        "docs/servers.md": [
            f"over {stdio_transport.MAX_MESSAGE_BYTES >> 20} MiB are not read",
            f"at most {results.MAX_CHARS:,} characters (beginning and end) and {words[results.MAX_IMAGES]} images",
        ],
        "docs/agents.md": [
            f"else the file, else {subagent.DEFAULT_MAX_TURNS}",
            f"nest {words[task_host.MAX_DEPTH]} levels deep, and {words[task_host.MAX_CONCURRENT]} run at once",
            f"beyond {output_file.MAX_BYTES // 10**6} MB",
            f"rotated at {worker_process.MAX_LOG_BYTES // 10**6} MB",
        ],
        "docs/finding.md": [f"searched {words[discover.MAX_DEPTH]} levels deep, at most {discover.MAX_DIRECTORIES:,} per root"],
        "docs/fields.md": [f"1 to {agents.MAX_TURNS:,} | {subagent.DEFAULT_MAX_TURNS} |"],
    }  # fmt: skip
    for page, stated in limits.items():
        text = " ".join(read_page(page).split())
        assert [one for one in stated if one not in text] == [], page
