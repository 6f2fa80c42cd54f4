"""Which hosts the user's rules let a fetch reach."""

import pytest

from kitbag.errors import UsageError
from kitbag.net.addresses import parse_address
from kitbag.net.errors import FetchError
from kitbag.net.policy import HostPolicy
from kitbag.net.urls import parse_url


def refusal(policy: HostPolicy, url: str) -> str:
    try:
        policy.check(parse_url(url))
    except FetchError as error:
        return error.kind if error.fix else "no fix"
    return ""


def test_without_rules_every_public_host_is_reached() -> None:
    assert refusal(HostPolicy(), "https://docs.python.org/") == ""
    assert refusal(HostPolicy(), "https://8.8.8.8/") == ""


@pytest.mark.parametrize(
    "url",
    [
        "https://docs.python.org.evil.com/",
        "https://evil.com/docs.python.org",
        "https://evil.com/?docs.python.org",
        "https://evil.com#docs.python.org",
        "https://a.docs.python.org/",
        "https://docs-python.org/",
        "https://xdocs.python.org/",
    ],
)
def test_a_rule_for_one_host_is_for_no_other(url: str) -> None:
    assert refusal(HostPolicy(allow=["docs.python.org"]), url) == "policy"


@pytest.mark.parametrize(
    "url", ["https://docs.python.org/", "https://DOCS.Python.ORG./3", "http://docs.python.org:8080"]
)
def test_a_rule_for_a_host_holds_in_every_spelling_of_it(url: str) -> None:
    assert refusal(HostPolicy(allow=["Docs.python.org."]), url) == ""
    assert refusal(HostPolicy(deny=["docs.PYTHON.org"]), url) == "policy"
    assert refusal(HostPolicy(deny=["*.python.org"]), url) == "policy"


def test_what_is_denied_stays_denied_when_it_is_allowed_or_opened_too() -> None:
    policy = HostPolicy(allow=["*"], deny=["localhost"], allow_private=["localhost:8000"])
    assert refusal(policy, "http://localhost:8000/") == "policy"


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/",
        "http://LOCALHOST.:80",
        "http://a.localhost",
        "http://nas.local",
        "http://x.internal",
        "http://router",
        "http://127.0.0.1",
        "http://[::1]",
    ],
)
def test_an_allow_rule_opens_nothing_that_is_not_public(url: str) -> None:
    host = parse_url(url).host
    assert refusal(HostPolicy(allow=["*", host]), url) == "address"


def test_what_is_opened_is_one_host_on_one_port() -> None:
    policy = HostPolicy(allow_private=["localhost:8000", "[::1]:9", "127.0.0.1:80", "NAS.local:443"])
    for url in (
        "http://localhost:8000/",
        "http://LocalHost.:8000",
        "http://[0::1]:9",
        "http://127.0.0.1",
        "https://nas.local",
    ):
        assert refusal(policy, url) == "", url
    for url in (
        "http://localhost:8001/",
        "http://a.localhost:8000",
        "http://127.0.0.1:8000",
        "http://[::1]",
        "http://nas.local",
        "http://[::ffff:127.0.0.1]:80/",
        "http://127.0.0.2",
    ):
        assert refusal(policy, url) == "address", url


@pytest.mark.parametrize(
    "place",
    [
        "",
        "localhost",
        "localhost:",
        ":80",
        "http://localhost:80",
        "localhost:80/x",
        "localhost:0",
        "*:80",
        "*.local:80",
        "a@b:80",
        "::1:80",
        "localhost:80?",
        "127.1:80",
        "localhost:080",
    ],
)
def test_a_place_that_is_not_one_host_and_port_is_refused(place: str) -> None:
    with pytest.raises(UsageError) as caught:
        HostPolicy(allow_private=[place])
    assert caught.value.fix


@pytest.mark.parametrize("rules", [{"allow": ["http://a.com"]}, {"deny": ["a.com/x"]}])
def test_a_rule_that_names_no_host_is_refused(rules: dict[str, list[str]]) -> None:
    with pytest.raises(UsageError):
        HostPolicy(**rules)


@pytest.mark.parametrize(
    ("address", "leads_there"),
    [
        ("127.0.0.1", True),
        ("10.0.0.1", True),
        ("fd00::1", True),
        ("8.8.8.8", True),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("::ffff:10.0.0.1", False),
        ("224.0.0.1", False),
    ],
)
def test_a_name_that_is_opened_leads_inside_but_not_to_what_no_host_has(address: str, leads_there: bool) -> None:
    policy = HostPolicy(allow_private=["wiki.example:80"])
    found = parse_address(address)
    assert found is not None
    if leads_there:
        policy.check_address(parse_url("http://wiki.example/"), found)
    else:
        with pytest.raises(FetchError):
            policy.check_address(parse_url("http://wiki.example/"), found)


def test_an_address_that_is_named_itself_is_opened_whatever_it_is() -> None:
    assert refusal(HostPolicy(allow_private=["169.254.169.254:80"]), "http://169.254.169.254/") == ""
