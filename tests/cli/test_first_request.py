"""What a request may cost before it is sent: no more than it needs is imported."""

import subprocess
import sys

from conftest import World
from kitbag.testing import ModelServer, Rule, Script, Step
from support.waiting import TEST_TIMEOUT

HEAVY = {
    "httpx2", "httpcore2", "anyio", "h11", "yaml", "tomlkit", "pathspec", "tree_sitter", "email", "http.client",
    "importlib.metadata", "kitbag.text.reference_syntax", "kitbag.text.sections", "kitbag.library.routing.skill_search",
    "kitbag.shell.analysis",
}  # fmt: skip


def test_the_first_request_imports_nothing_that_it_does_not_need(world: World) -> None:
    code = (
        "import sys; sys.argv = ['kitbag', '-p', 'Say hi.', '--model', 'anthropic/claude-sonnet-4-5']\n"
        "from kitbag.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)\n"
    )
    with ModelServer(Script([Rule([Step(text="Hi.")])])) as server:
        env = {key: value for key, value in world.env.items() if not key.lower().endswith("_proxy")}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=world.workspace,
            env=env | server.environment(),
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT,
        )
    assert done.stdout == "Hi.\n"
    assert done.stderr.splitlines()[-1] == "[]", done.stderr
