"""Each test has its own home; nothing of the machine's models is seen."""

import pytest

from conftest import World


@pytest.fixture(autouse=True)
def at_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
        world.env.pop(name, None)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))
