"""Which model is used: the order of the sources, what names mean, and what is said where a name leads nowhere."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest

from kitbag.errors import InvalidError, UsageError
from kitbag.models import local_servers
from kitbag.models.local_servers import first_local_model, local_address
from kitbag.models.model_selection import (
    ModelSources,
    ProviderSettings,
    SelectedModel,
    connect_provider,
    key_variable,
    provider_endpoint,
    select_model,
)

ANTHROPIC = {"ANTHROPIC_API_KEY": "a-key"}
OPENAI = {"OPENAI_API_KEY": "o-key"}


def sources(environment: dict[str, str] | None = None, **more: Any) -> ModelSources:
    return ModelSources(environment=environment or {}, probe_local=False, **more)


def name(chosen: SelectedModel) -> str:
    return chosen.name


class TestOrder:
    def test_flag_then_environment_then_settings_then_what_is_found_then_offline(self) -> None:
        given = sources({**ANTHROPIC, "KITBAG_MODEL": "openai/b"}, model_setting="openai/c")
        assert name(select_model(given, "openai/a")) == "openai/a"
        assert name(select_model(given)) == "openai/b"
        assert name(select_model(msgspec.structs.replace(given, environment=ANTHROPIC))) == "openai/c"
        assert name(select_model(sources(ANTHROPIC))) == "anthropic/claude-sonnet-4-5"
        assert name(select_model(sources(OPENAI))) == "openai/gpt-5"
        assert name(select_model(sources())) == "offline"

    @pytest.mark.parametrize(
        ("given", "flag", "why"),
        [
            (sources(), "offline", "--model"),
            (sources({"KITBAG_MODEL": "offline"}), "", "KITBAG_MODEL"),
            (sources(model_setting="offline"), "", "settings"),
            (sources(ANTHROPIC), "", "ANTHROPIC_API_KEY is set"),
            (sources(), "", "no API key is set"),
        ],
    )
    def test_it_says_why(self, given: ModelSources, flag: str, why: str) -> None:
        assert why in select_model(given, flag).reason

    def test_an_empty_key_is_none(self) -> None:
        assert name(select_model(sources({"ANTHROPIC_API_KEY": "  ", "KITBAG_MODEL": " "}))) == "offline"

    def test_a_key_under_another_name_is_found_too(self) -> None:
        own = {"anthropic": ProviderSettings(key_env="WORK_KEY")}
        assert name(select_model(sources({"WORK_KEY": "x"}, providers=own))) == "anthropic/claude-sonnet-4-5"


class TestNames:
    @pytest.mark.parametrize(
        ("written", "means"),
        [
            ("claude-opus-4-5", "anthropic/claude-opus-4-5"),
            ("gpt-5-mini", "openai/gpt-5-mini"),
            ("o3", "openai/o3"),
            (" anthropic/claude-x ", "anthropic/claude-x"),
            ("openrouter/qwen/qwen3:free", "openrouter/qwen/qwen3:free"),
            ("ollama/qwen3:8b", "ollama/qwen3:8b"),
        ],
    )
    def test_a_model_by_its_name(self, written: str, means: str) -> None:
        assert name(select_model(sources(), written)) == means

    @pytest.mark.parametrize(
        ("key", "word", "means"),
        [
            (ANTHROPIC, "haiku", "anthropic/claude-haiku-4-5"),
            (OPENAI, "sonnet", "openai/gpt-5"),
            (OPENAI, "haiku", "openai/gpt-5-mini"),
            ({**OPENAI, **ANTHROPIC}, "opus", "anthropic/claude-opus-4-5"),
        ],
    )
    def test_an_alias_is_a_model_of_the_provider_that_has_a_key(
        self, key: dict[str, str], word: str, means: str
    ) -> None:
        assert name(select_model(sources(key), word)) == means

    def test_an_alias_without_any_key_says_what_to_set(self) -> None:
        with pytest.raises(InvalidError) as error:
            select_model(sources(), "sonnet")
        assert "ANTHROPIC_API_KEY" in error.value.fix

    def test_an_agent_s_alias_follows_its_parent(self) -> None:
        for parent, means in (
            ("openai/gpt-5", "openai/gpt-5-mini"),
            ("ollama/qwen3", "ollama/qwen3"),
            ("offline", "offline"),
        ):
            usual = select_model(sources(ANTHROPIC), parent)
            assert name(select_model(sources(ANTHROPIC), "haiku", usual)) == means
            assert select_model(sources(ANTHROPIC), "inherit", usual) == usual

    @pytest.mark.parametrize("written", ["qwen3", "anthropic/", "/x", "offline/x", "gpt-oss", "\x1b[31m"])
    def test_a_name_that_leads_nowhere_is_refused(self, written: str) -> None:
        with pytest.raises(UsageError):
            select_model(sources(), written)

    def test_a_script_is_found_again_by_the_same_name(self, tmp_path: Any) -> None:
        file = tmp_path / "s.json"
        file.write_text('["Hello."]')
        chosen = select_model(sources(), f"scripted:{file}")
        assert (chosen.name, chosen.reference) == ("scripted", f"scripted:{file}")
        assert chosen.connect().name == "scripted"
        with pytest.raises(UsageError, match="no script"):
            select_model(sources(), "scripted").connect()
        assert select_model(sources({"KITBAG_SCRIPT": str(file)}), "scripted").connect().name == "scripted"


class TestKeysAndAddresses:
    def test_a_missing_key_is_named(self) -> None:
        for provider, variable in (("anthropic", "ANTHROPIC_API_KEY"), ("openrouter", "OPENROUTER_API_KEY")):
            with pytest.raises(InvalidError) as error:
                connect_provider(provider, sources())
            assert variable in error.value.fix

    def test_a_trailing_slash_changes_nothing_about_that(self) -> None:
        with pytest.raises(InvalidError):
            connect_provider("anthropic", sources({"ANTHROPIC_BASE_URL": "https://api.anthropic.com/"}))

    def test_a_key_that_can_be_none_is_not_sent(self) -> None:
        with pytest.raises(InvalidError, match="characters") as error:
            connect_provider("openai", sources({"OPENAI_API_KEY": "sk-secret\nx"}))
        assert "sk-secret" not in str(error.value)

    def test_an_unknown_provider_says_which_there_are(self) -> None:
        with pytest.raises(UsageError) as error:
            select_model(sources(), "nowhere/x").connect()
        assert "anthropic" in error.value.fix
        assert "[providers.nowhere]" in error.value.fix

    def test_the_key_of_one_provider_goes_to_no_other(self) -> None:
        own = {
            "mine": ProviderSettings(base_url="http://127.0.0.1:1/v1"),
            "gateway": ProviderSettings(base_url="http://127.0.0.1:2", protocol="anthropic"),
        }
        given = sources({**ANTHROPIC, **OPENAI}, providers=own)
        assert (key_variable("mine", given), key_variable("gateway", given)) == ("", "")
        for provider in own:
            headers: Any = connect_provider(provider, given)._client.endpoint.headers  # type: ignore[attr-defined]
            assert "key" not in str(headers)

    def test_one_s_own_address_for_a_known_provider_keeps_its_key(self) -> None:
        given = sources(OPENAI, providers={"openai": ProviderSettings(base_url="http://127.0.0.1:1/v1/")})
        found = provider_endpoint("openai", given)
        assert (found.address, found.key_variable, found.protocol) == (
            "http://127.0.0.1:1/v1",
            "OPENAI_API_KEY",
            "chat",
        )

    @pytest.mark.parametrize("value", ["localhost:8000", "ftp://x", "file:///etc/passwd"])
    def test_what_is_no_address_is_told_with_its_variable(self, value: str) -> None:
        with pytest.raises(UsageError, match="OPENAI_BASE_URL"):
            connect_provider("openai", sources({**OPENAI, "OPENAI_BASE_URL": value}))

    def test_which_protocol(self) -> None:
        assert provider_endpoint("openai", sources(OPENAI)).protocol == "responses"
        assert provider_endpoint("openai", sources({"OPENAI_BASE_URL": "http://x/v1"})).protocol == "chat"
        assert provider_endpoint("ollama", sources()).protocol == "chat"
        assert provider_endpoint("anthropic", sources({"ANTHROPIC_BASE_URL": "http://x/v1/"})).address == "http://x"


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":9000", "http://127.0.0.1:9000/v1"),
        ("http", "http://http:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("box:99", "http://box:99/v1"),
        ("box:99999999", "http://box:11434/v1"),
        ("http://box", "http://box:80/v1"),
        ("https://box/", "https://box:443/v1"),
        ("https://box:8/api/v1", "https://box:8/api/v1"),
        ("[::1]:99", "http://[::1]:99/v1"),
        ("::1", "http://[::1]:11434/v1"),
        ("[::]", "http://[::1]:11434/v1"),
        ("'127.0.0.1:1'", "http://127.0.0.1:1/v1"),
    ],
)
def test_where_ollama_is_by_its_own_variable(written: str, address: str) -> None:
    assert local_address("ollama", {"OLLAMA_HOST": written}) == address
    assert local_address("vllm", {"OLLAMA_HOST": written}) == "http://127.0.0.1:8000/v1"


class Served:
    """A server on this machine that answers `/v1/models` with whatever it is told to."""

    def __init__(self, body: bytes) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.01])

    def __enter__(self) -> str:
        self.thread.start()
        return f"127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class TestLookingOnThisMachine:
    @pytest.fixture(autouse=True)
    def _nothing_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local_servers, "LOCAL_PORTS", {"ollama": 11434})
        monkeypatch.setattr("kitbag.models.model_selection.LOCAL_PORTS", {"ollama": 11434})

    def test_a_server_that_answers_is_used(self) -> None:
        with Served(b'{"data": [{"id": "nomic-embed-text"}, {"id": "qwen3:8b"}]}') as host:
            chosen = select_model(ModelSources(environment={"OLLAMA_HOST": host}))
        assert chosen.name == "ollama/qwen3:8b"
        assert host in chosen.reason

    @pytest.mark.parametrize(
        "body", [b"", b"{}", b"[]", b'{"data": 3}', b'{"data": [{}]}', b'{"data": [{"id": "a b\\n"}]}', b"\xff" * 99]
    )
    def test_what_it_says_must_be_a_model(self, body: bytes) -> None:
        with Served(body) as host:
            assert name(select_model(ModelSources(environment={"OLLAMA_HOST": host}))) == "offline"

    def test_nobody_else_is_asked(self) -> None:
        assert first_local_model("http://192.0.2.1:11434/v1") == ""
        assert first_local_model("https://127.0.0.1:1/v1") == ""
