"""Connecting a model in a dialogue: found, tried with a real request, written down; a key is never seen again."""

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chat.answering import Answer, AnsweringFace, option
from conftest import World
from kitbag.assembly.model_sources import load_model_sources
from kitbag.assembly.run_options import Options
from kitbag.chat.dialog import ChatDialog
from kitbag.chat.setup import no_model_notice, run_setup
from kitbag.dialogs.approver import DialogApprover
from kitbag.models.local_servers import LOCAL_PORTS
from kitbag.models.model_selection import select_model
from kitbag.runtime.agent import Agent
from kitbag.settings import load_settings
from kitbag.testing import Fault, ModelServer, Rule, Script, Step

KEY = "sk-proj-Qm2v8sTzR4kLw9XyB1nD"
OTHER = "sk-proj-Zr7c3pHfJ5gVt6QaM0eU"


class House:
    def __init__(self, world: World) -> None:
        self.world = world
        self.home = world.home / ".kitbag"
        self.settings = self.home / "settings.toml"
        self.keys = self.home / "keys.toml"

    def setup(self, *answers: Answer) -> AnsweringFace:
        face = AnsweringFace(*answers)
        self.changed = asyncio.run(run_setup(face, str(self.home)))
        assert face.answers == []
        for key in (KEY, OTHER):
            assert key not in face.everything()
            assert not self.settings.exists() or key not in self.settings.read_text()
            assert all(key not in value for value in os.environ.values())
        return face

    def chosen(self) -> str:
        return select_model(load_model_sources(load_settings(str(self.home), ()), probe=False)[0]).name


@pytest.fixture
def house(world: World, monkeypatch: pytest.MonkeyPatch) -> House:
    for name in list(os.environ):
        if name.startswith(("KITBAG", "ANTHROPIC", "OPENAI", "OPENROUTER", "OLLAMA")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(world.home))
    for name in LOCAL_PORTS:
        monkeypatch.setitem(LOCAL_PORTS, name, 1)  # nobody listens there
    return House(world)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(Script([Rule([Step("Ready, \x1b[2Jand glad.")])])) as made:
        yield made


def failing(status: int, message: str, times: int = 1) -> Script:
    fault = Fault(times, status=status, body=json.dumps({"error": {"message": message}}))
    return Script([Rule([Step("Ready.", fault=fault)])])


class TestAKeyThatIsTyped:
    def test_is_tried_kept_for_the_person_alone_and_used_from_then_on(
        self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        face = house.setup("2", "t", f" {KEY}\n", "gpt-5")
        assert house.changed
        assert face.forms[2].secret
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        assert "Ready, " in face.seen()
        assert " tokens in, " in face.seen()
        assert "model set to openai/gpt-5 (test request succeeded)" in face.seen()
        assert stat.S_IMODE(house.keys.stat().st_mode) == 0o600
        assert KEY in house.keys.read_text()
        assert house.chosen() == "openai/gpt-5"

    def test_is_in_no_journal_and_in_no_command(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        call = ("c1", "Bash", json.dumps({"command": "env; cat /proc/self/cmdline"}))
        script = Script([Rule([Step("Ready.")], last="are you ready"), Rule([Step(calls=(call,)), Step("Done.")])])
        with ModelServer(script) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            house.setup("2", "t", KEY, "gpt-5")

            async def go() -> None:
                options = Options(directory=str(house.world.workspace))
                approver = DialogApprover(ChatDialog(AnsweringFace("y")))
                async with Agent(options=options, approver=approver) as agent:
                    assert agent.chosen.name == "openai/gpt-5"
                    assert KEY not in agent.journal.redactor.redact_known(f"the key {KEY} leaked")
                    async with agent.run(f"I pasted {KEY} here.") as run:
                        async for _ in run:
                            pass
                    assert run.ended is not None
                    assert run.ended.text == "Done."

            asyncio.run(go())
            result = json.dumps(server.requests[-1].body)
            assert "HOME=" in result  # what `env` printed
            assert KEY not in result.replace(f"I pasted {KEY} here.", "")
        written = [path for path in house.home.rglob("*") if path.is_file() and path != house.keys]
        assert any(path.name == "journal.db" for path in written)
        assert [path for path in written if KEY.encode() in path.read_bytes()] == []

    @pytest.mark.parametrize(
        ("typed", "problem"),
        [
            ("", "the key is empty"),
            ("a b", "whitespace"),
            ("sk-a\nsk-b", "whitespace"),
            ("clé-of-mine", "invalid characters"),
            ("x" * 5000, "longer than"),
            ("export OPENAI_API_KEY=abc", "whitespace"),
            ("OPENAI_API_KEY=abc", "variable name"),
            ('"abc"', "includes quotes"),
            ("sk-ant-api03-abcdef", "must not be sent to openai"),
        ],
    )
    def test_is_refused_where_it_can_be_none(self, house: House, typed: str, problem: str) -> None:
        face = AnsweringFace("2", "t", lambda _: _filled(typed), None, None)
        asyncio.run(run_setup(face, str(house.home)))
        assert problem in face.seen()
        assert not typed or typed not in face.everything()
        assert not house.keys.exists()

    def test_one_in_the_environment_does_not_win_over_it(
        self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
        house.setup("2", "t", KEY, "gpt-5")
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        sources, _ = load_model_sources(load_settings(str(house.home), ()))
        assert sources.environment[sources.providers["openai"].key_env] == KEY

    def test_of_a_file_that_others_can_read_is_not_used(self, house: House, server: ModelServer) -> None:
        house.home.mkdir()
        house.keys.write_text(f'[keys]\nOPENAI_API_KEY = "{KEY}"\n')
        house.keys.chmod(0o640)
        sources, problems = load_model_sources(load_settings(str(house.home), ()))
        assert "OPENAI_API_KEY" not in sources.environment
        assert ("readable by other users" in problems[0].problem, "chmod 600" in problems[0].fix) == (True, True)
        face = house.setup(None)
        assert "readable by other users" in face.seen()
        house.keys.chmod(0o600)
        assert load_model_sources(load_settings(str(house.home), ()))[0].environment["OPENAI_API_KEY"] == KEY

    def test_sets_nothing_but_keys(self, house: House) -> None:
        house.home.mkdir()
        house.keys.write_text('[keys]\nKITBAG_MODEL = "x/y"\nOLLAMA_HOST = "evil:1"\nANTHROPIC_API_KEY = "a-key"\n')
        house.keys.chmod(0o600)
        environment = load_model_sources(load_settings(str(house.home), ()))[0].environment
        assert "KITBAG_MODEL" not in environment
        assert "OLLAMA_HOST" not in environment
        assert environment["ANTHROPIC_API_KEY"] == "a-key"


def _filled(text: str) -> Any:
    from kitbag.dialogs.form import FormAnswer

    return FormAnswer(text=text)


class TestWhatGoesWrong:
    def test_a_wrong_key_is_told_and_another_one_is_asked_for(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ModelServer(failing(401, f"Incorrect API key provided: {KEY}")) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            face = house.setup("1", "t", KEY, "claude-sonnet-4-5", "k", "t", OTHER)
            assert [one.headers["x-api-key"] for one in server.requests] == [KEY, OTHER]
        assert "401" in face.seen()
        assert "the API key is invalid" in face.seen()
        assert OTHER in house.keys.read_text()
        assert KEY not in house.keys.read_text()
        assert house.chosen() == "anthropic/claude-sonnet-4-5"

    def test_a_model_that_is_not_there_is_told_and_another_one_is_asked_for(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ModelServer(failing(404, "model: claude-nope")) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", KEY + "-of-the-environment")
            face = AnsweringFace("1", "u", "claude-nope", "m", "1")
            assert asyncio.run(run_setup(face, str(house.home)))
        assert "model: claude-nope" in face.seen()
        assert "unknown model" in face.seen()
        assert option(face.forms[3], "m") is not None
        assert face.forms[3].default == "m"
        assert house.chosen() == "anthropic/claude-sonnet-4-5"
        assert not house.keys.exists()

    @pytest.mark.parametrize(
        ("status", "message", "told"),
        [
            (402, "no money", "out of credit"),
            (429, "quota exceeded", "out of credit"),
            (500, "broken", "this may be temporary"),
            (529, "busy", "this may be temporary"),
        ],
    )
    def test_what_else_a_provider_may_say_is_told_in_words(
        self, house: House, monkeypatch: pytest.MonkeyPatch, status: int, message: str, told: str
    ) -> None:
        with ModelServer(failing(status, message, 9)) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            face = house.setup("1", "t", KEY, "claude-sonnet-4-5", None)
        assert message in face.seen()
        assert told in face.seen()
        assert "nothing was saved" in face.seen()
        assert not house.keys.exists()
        assert not house.settings.exists()

    def test_no_server_is_told_and_it_can_be_written_all_the_same(self, house: House) -> None:
        face = house.setup("4", "1", "http://127.0.0.1:1/v1", "qwen3", "s")
        assert "cannot reach" in face.seen()
        assert "that the server is running" in face.seen()
        assert option(face.forms[-1], "k") is None  # it has none
        assert house.chosen() == "ollama/qwen3"

    def test_settings_that_can_not_be_read_are_left_alone(
        self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from kitbag.errors import InvalidError

        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        house.world.write("~/.kitbag/settings.toml", "model = [broken\n")
        with pytest.raises(InvalidError, match="cannot edit"):
            asyncio.run(run_setup(AnsweringFace("2", "t", KEY, "gpt-5"), str(house.home)))
        assert house.settings.read_text() == "model = [broken\n"


class TestAKeyInTheEnvironment:
    def test_is_used_without_being_written(
        self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("WORK_KEY", "of-the-environment")
        face = house.setup("2", "v", "WORK_KEY", "1")
        assert server.requests[-1].headers["authorization"] == "Bearer of-the-environment"
        assert "of-the-environment" not in face.everything() + house.settings.read_text()
        assert 'key_env = "WORK_KEY"' in house.settings.read_text()
        assert not house.keys.exists()

    def test_that_is_not_set_yet_is_told_by_the_line_for_the_profile(self, house: House) -> None:
        face = house.setup("1", "v", "ANTHROPIC_API_KEY", "w", "claude-haiku-4-5")
        assert "│ export ANTHROPIC_API_KEY=" in face.seen()
        assert "once ANTHROPIC_API_KEY is set" in face.seen()
        assert 'model = "anthropic/claude-haiku-4-5"' in house.settings.read_text()

    def test_a_key_that_is_pasted_for_its_name_is_not_shown_again(self, house: House) -> None:
        face = AnsweringFace("1", "v", KEY, None, None)
        asyncio.run(run_setup(face, str(house.home)))
        assert "don't enter the key itself here" in face.seen()
        assert KEY not in face.everything()


class TestPlaces:
    def test_a_server_on_this_machine_is_found_with_its_models(
        self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OLLAMA_HOST", server.url.removeprefix("http://"))
        face = house.setup("4", "1", "gpt-5")
        assert "found: Ollama" in option(face.forms[0], "4").note
        assert "claude-sonnet-4-5, gpt-5" in option(face.forms[1], "1").note
        assert [one.label for one in face.forms[2].options] == ["claude-sonnet-4-5", "gpt-5", "scripted"]
        assert house.settings.read_text().strip() == 'model = "ollama/gpt-5"'

    @pytest.mark.parametrize("protocol", ["1", "2", "3"])
    def test_any_address_that_speaks_a_known_protocol(self, house: House, server: ModelServer, protocol: str) -> None:
        face = house.setup(
            "5", protocol, "nonsense", "http://me:secret@host/", server.url, "Bad Name", "openai", "lab", "t", KEY, "1"
        )
        assert "not a URL" in face.seen()
        assert "without user, password" in face.seen()
        assert "use lowercase letters" in face.seen()
        assert "is reserved" in face.seen()
        assert house.chosen() == "lab/claude-sonnet-4-5"
        assert KEY in json.dumps(server.requests[-1].headers)
        sources, problems = load_model_sources(load_settings(str(house.home), ()))
        assert problems == []
        assert (sources.providers["lab"].key_env, sources.environment["LAB_API_KEY"]) == ("LAB_API_KEY", KEY)
        # And it is offered the next time.
        again = house.setup("7", "u", "1")
        assert option(again.forms[0], "7").label == "lab"

    def test_a_part_of_a_name_narrows_the_list(self, house: House, server: ModelServer) -> None:
        face = house.setup("5", "1", server.url, "lab", "0", "so", "1")
        assert [one.label for one in face.forms[-1].options] == ["claude-sonnet-4-5"]
        assert house.chosen() == "lab/claude-sonnet-4-5"

    def test_an_address_that_is_not_encrypted_is_warned_about_before_the_key_goes_there(self, house: House) -> None:
        face = AnsweringFace("5", "1", "http://192.0.2.7:8000", "lab", "t", None, None)
        asyncio.run(run_setup(face, str(house.home)))
        assert "not encrypted" in face.seen()

    def test_offline_can_be_chosen(self, house: House) -> None:
        house.setup("6")
        assert house.chosen() == "offline"


class TestSettings:
    def test_the_rest_of_the_file_stays_as_it_is(
        self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        before = (
            '# mine\nteam = "a"  # ours\nmodel = "offline" # for now\n\n[providers.openai]\n# why\nprotocol = "chat"\n\n'
            '[permissions]\nallow = ["Read"]\n'
        )
        house.world.write("~/.kitbag/settings.toml", before)
        house.setup("2", "t", KEY, "gpt-5")
        assert house.settings.read_text() == before.replace('"offline"', '"openai/gpt-5"')
        house.setup("2", "t", OTHER, "gpt-5-mini")
        assert house.settings.read_text() == before.replace('"offline"', '"openai/gpt-5-mini"')
        assert OTHER in house.keys.read_text()
        assert KEY not in house.keys.read_text()
        assert stat.S_IMODE(house.settings.stat().st_mode) == 0o600

    def test_a_project_has_no_say(self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.chdir(house.world.workspace)
        house.world.write(".kitbag/settings.toml", '[providers.openai]\nbase_url = "http://127.0.0.1:1"\n')
        house.world.write(".kitbag/keys.toml", '[keys]\nOPENAI_API_KEY = "theirs"\n').chmod(0o600)
        house.setup("2", "t", KEY, "gpt-5")
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        assert not list(Path(house.world.workspace / ".kitbag").glob("*.lock"))

    def test_what_wins_over_it_is_told(
        self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("KITBAG_MODEL", "offline")
        face = house.setup("2", "t", KEY, "gpt-5")
        assert "offline is still used: KITBAG_MODEL in your environment" in face.seen()


def test_to_leave_any_question_writes_nothing(
    house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    for answers in ((None,), ("2", None), ("2", "t", None, None), ("2", "t", KEY, None, None), ("5", None)):
        house.setup(*answers)
        assert not house.changed
        assert not house.settings.exists()
        assert not house.keys.exists()


def test_it_is_said_how_to_connect_one() -> None:
    remark = no_model_notice()
    assert "no model connected" in remark.text
    assert "kitbag setup" in remark.fix
    assert "ANTHROPIC_API_KEY" in remark.fix


@pytest.mark.parametrize("by", ["5", "2", "7"], ids=["typed", "the environment", "the settings"])
def test_before_a_key_is_given_it_is_said_that_it_can_be_read_on_the_way(
    house: House, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:pass@10.255.255.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-elsewhere")
    house.world.write("~/.kitbag/settings.toml", '[providers.lab]\nbase_url = "http://10.255.255.1:9/v1"\n')
    typed = ("1", "http://10.255.255.1:9", "mine") if by == "5" else ()
    face = house.setup(by, *typed, None)
    assert "http://10.255.255.1:9/v1 is not encrypted; the key can be read in transit" in face.everything()
    assert "pass@" not in face.everything()
