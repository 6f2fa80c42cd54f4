"""What is stored holds no secret, and everything else as it was."""

import base64
import hashlib
import html
import json
import re
import uuid
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kitbag.store.redaction import REDACTED, Redactor
from kitbag.store.secret_names import has_secret_value, is_secret_name
from kitbag.store.secrets_by_name import is_placeholder_value
from support.cost import processor_limit
from support.matrix import sample

CANARY = "CANARY_SECRET_4f7a9c"
ODD = "p@ss/w+ö\"r'd &<x>\\n$1"

# Put together, so that no file here looks as if it held one.
TOKENS = [
    "sk-" + "ant-api03-" + "Zz9_-xY8wV7uT6sR5qP4o",
    "sk-" + "proj-" + "a1B2c3D4e5F6g7H8i9J0k1L2",
    "sk-" + "0123456789abcdef0123456789abcdef",
    "sk-" + "or-v1-" + "0123456789abcdef" * 4,
    "sk_" + "live_" + "51H8xYzAbCdEfGhIjKl",
    "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6",
    "gho_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6",
    "github_" + "pat_11AAAAAAA0aBcDeFgHiJkL_mNoPqRsTuVwXyZ",
    "glpat-" + "aB3dE6gH9jK2mN5pQ8sT",
    "xoxb-" + "123456789012-abcdefGHIJKL",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ASIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "npm_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6",
    "pypi-" + "AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDAtMDAwMC0wMDAw",
    "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
    "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
]
KEY_BLOCK = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEowIBAAKCAQEA7b\nq8J2==\n-----END RSA PRIVATE " + "KEY-----"


def spellings(secret: str) -> dict[str, str]:
    data = secret.encode()
    return {
        "plain": secret,
        "URL": quote(secret, safe=""),
        "URL in lower case": quote(secret, safe="").lower(),
        "form": quote_plus(secret),
        "JSON": json.dumps(secret),
        "JSON with letters": json.dumps(secret, ensure_ascii=False),
        "JSON in JSON": json.dumps(json.dumps(secret)),
        "HTML": html.escape(secret),
        "hexadecimal": data.hex(),
        "base64": base64.b64encode(data).decode(),
        "base64 for URLs": base64.urlsafe_b64encode(data).decode(),
        "base64 behind one byte": base64.b64encode(b"x" + data + b"yz").decode(),
        "base64 behind two bytes": base64.b64encode(b"ab" + data + b"q").decode(),
    }


@pytest.mark.parametrize("spelling", list(spellings("x")))
@pytest.mark.parametrize("secret", [CANARY, ODD])
def test_a_known_secret_is_found_however_it_is_spelled(secret: str, spelling: str) -> None:
    written = spellings(secret)[spelling]
    kept = Redactor([secret]).redact_text(f"before {written} after")
    assert kept.startswith("before ")
    assert kept.endswith(" after")
    assert REDACTED in kept
    core = written.strip('"\\')[4:-4] if spelling.startswith("base64") else written.strip('"\\')
    assert core not in kept


@given(st.text(min_size=6, max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_no_known_secret_is_left_whatever_stands_around_it(secret: str, before: str, after: str) -> None:
    secret = secret.strip()
    is_plain = len(secret) < 12 and (secret.isalpha() or secret.isdigit())
    assume(len(secret) >= 6 and not is_plain and not is_placeholder_value(secret))
    kept = Redactor([secret]).redact_text(f"{before}{secret}{after}")
    assert secret not in kept.replace(REDACTED, "\0")


@pytest.mark.parametrize(
    ("secrets", "text", "kept"),
    [
        (["alpha-1-beta-2", "beta-2-gamma-3"], "x alpha-1-beta-2-gamma-3 y", f"x {REDACTED} y"),
        (["alpha-1-beta-2-gamma-3", "beta-2"], "x alpha-1-beta-2-gamma-3 y", f"x {REDACTED} y"),
        (["alpha-1-beta-2-gamma-3", "alpha-1"], "x alpha-1-beta-2-gamma-3 y", f"x {REDACTED} y"),
        (["alpha-1-beta-2-gamma-3", "gamma-3"], "x alpha-1-beta-2-gamma-3 y", f"x {REDACTED} y"),
        (["alpha-1-alpha"], "x alpha-1-alpha-1-alpha y", f"x {REDACTED} y"),
        (["alpha-1", "beta-2"], "x alpha-1beta-2 y", f"x {REDACTED}{REDACTED} y"),
        (["hunter-2"], "API_KEY=abc-hunter-2-def", f"API_KEY={REDACTED}"),
    ],
)
def test_where_secrets_overlap_nothing_of_any_of_them_is_left(secrets: list[str], text: str, kept: str) -> None:
    assert Redactor(secrets).redact_text(text) == kept


PARTS = st.lists(st.sampled_from(["a", "b", "-", "a-", "ab-a"]), min_size=3, max_size=12).map("".join)


@given(st.lists(PARTS, min_size=1, max_size=3), st.data())
def test_no_character_of_a_known_secret_is_left_however_secrets_overlap(parts: list[str], data: st.DataObject) -> None:
    secrets = [f"-{part}a+" if len(part) % 2 else f"a-{part}-a" for part in parts]
    text = "".join(data.draw(st.lists(st.sampled_from([*secrets, *parts, "-", "a"]), max_size=8)))
    hidden = {
        place
        for secret in secrets
        for start in range(len(text))
        if text.startswith(secret, start)
        for place in range(start, start + len(secret))
    }
    expected = "".join("\0" if place in hidden else character for place, character in enumerate(text))
    kept = Redactor(secrets).redact_known(text).replace(REDACTED, "\0")
    assert re.sub("\0+", "\0", kept) == re.sub("\0+", "\0", expected)


VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.text()
    | st.sampled_from([*spellings(ODD).values(), ODD.replace("'", "'\\''"), *TOKENS]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(VALUES)
def test_without_signs_in_its_json_a_value_stays_as_it_is(value: object) -> None:
    redactor = Redactor([ODD])
    assert redactor.may_contain_secrets(json.dumps(value)) or redactor.redact_value(value) == value


@given(st.text(max_size=200))
def test_what_is_redacted_stays_as_it_is_when_it_is_redacted_again(text: str) -> None:
    redactor = Redactor([CANARY])
    once = redactor.redact_text(text + " API_KEY=abcdef1 password: 'hunter22' " + CANARY)
    assert redactor.redact_text(once) == once


def test_one_that_knows_more_knows_the_others_still() -> None:
    first = Redactor(["plainword", "Geheim+1234"])
    both = first.with_secrets(["Other/5678", "anotherword"])
    text = "plainword Geheim+1234 Other/5678 anotherword"
    assert both.redact_text(text) == " ".join([REDACTED] * 4)
    assert both.may_contain_secrets("Geheim+1234")
    assert both.may_contain_secrets("Other/5678")
    assert "Other/5678" in first.redact_text(text)


def test_secrets_come_from_the_environment_by_their_names() -> None:
    redactor = Redactor.from_environment(
        {
            "CANARY_API_KEY": CANARY,
            "DATABASE_URL": "postgres://me:Sesam%20open1@db.example/app",
            "AWS_REGION": "eu-central-1",
            "SSH_AUTH_SOCK": "/tmp/ssh-1/agent.7",
            "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/creds.json",
            "PATH": "/usr/local/bin",
            "API_TOKEN": "short",
            "PASSWORD": "$ecret-9",
        }
    )
    text = f"{CANARY} eu-central-1 /tmp/ssh-1/agent.7 /usr/local/bin short /home/me/creds.json"
    assert redactor.redact_text(text) == text.replace(CANARY, REDACTED)
    assert redactor.redact_text("it is Sesam open1, you know") == f"it is {REDACTED}, you know"
    assert redactor.redact_text("echo '$ecret-9'") == f"echo '{REDACTED}'"


def test_a_secret_that_is_a_short_plain_word_counts_only_where_it_stands_alone() -> None:
    redactor = Redactor(["hunter", "123456"])
    assert (
        redactor.redact_text("hunter and 123456; bounty_hunters 91234567")
        == f"{REDACTED} and {REDACTED}; bounty_hunters 91234567"
    )


def test_names_that_look_secret_hold_one_or_say_where_it_is() -> None:
    assert all(is_secret_name(name) for name in ("AWS_REGION", "SSH_AUTH_SOCK", "MY_TOKEN", "DB_PASSWORD"))
    assert [has_secret_value(name) for name in ("AWS_REGION", "SSH_AUTH_SOCK", "MAX_TOKENS", "MY_TOKEN")] == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["{}", "x={}", '{{"a": "{}"}}', "https://host/{}/x", "({})", "risk-{}", "\n{}\n"])
def test_tokens_are_known_by_their_shape(token: str, around: str) -> None:
    kept = Redactor().redact_text(around.format(token))
    assert token[6:-2] not in kept
    assert REDACTED in kept


def test_a_private_key_goes_whole_even_when_it_is_cut_off_or_escaped() -> None:
    redactor = Redactor()
    assert redactor.redact_text(f"a\n{KEY_BLOCK}\nb") == f"a\n{REDACTED}\nb"
    assert "MIIEow" not in redactor.redact_text(f"a\n{KEY_BLOCK[:60]}")
    assert "MIIEow" not in redactor.redact_text(json.dumps({"key": KEY_BLOCK}))
    assert redactor.redact_text("-----BEGIN PUBLIC KEY-----\nMIIB\n") == "-----BEGIN PUBLIC KEY-----\nMIIB\n"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Authorization: Bearer abc123def456ghi7", "Authorization: Bearer {}"),
        ("authorization: Basic dXNlcjpwYXNzd29yZA==", "authorization: Basic {}"),
        ("curl -H 'Authorization: token abcdef0123456789' x", "curl -H 'Authorization: token {}' x"),
        ('{"Authorization": "Basic dXNlcjpwYXNzd29yZA=="}', '{{"Authorization": "Basic {}"}}'),
        ("https://me:hunter2@example.org/x", "https://me:{}@example.org/x"),
        ("postgres://app:s3cr3t@db:5432/app", "postgres://app:{}@db:5432/app"),
        ("https://a1b2c3d4e5f6a7b8c9d0@example.org/x", "https://{}@example.org/x"),
        ("GET /x?access_token=abcd1234&page=2", "GET /x?access_token={}&page=2"),
        ("/x?page=2&password=hunter2#top", "/x?page=2&password={}"),
        ("/x?X-Amz-Signature=0a1b2c3d4e5f6a7b&y=1", "/x?X-Amz-Signature={}&y=1"),
        ("OPENAI_API_KEY=abcdefgh", "OPENAI_API_KEY={}"),
        ("export DB_PASSWORD='two words'", "export DB_PASSWORD='{}'"),
        ('MY_SECRET="x y"\nNAME=me', 'MY_SECRET="{}"\nNAME=me'),
        ("A=1\nSLACK_TOKEN=xyz-abc\nB=2", "A=1\nSLACK_TOKEN={}\nB=2"),
        ("+STRIPE_SECRET_KEY=abc123def456", "+STRIPE_SECRET_KEY={}"),
        ('{"api_key": "abcdefgh", "n": 1}', '{{"api_key": "{}", "n": 1}}'),
        ("{'clientSecret': 'abc-def-ghi'}", "{{'clientSecret': '{}'}}"),
        ('\\"password\\": \\"hunter22\\"', '\\"password\\": \\"{}\\"'),
        ("api_key: a1b2c3d4e5", "api_key: {}"),
        ('password = "hunter22"', 'password = "{}"'),
        ("mysql --password=hunter2 db", "mysql --password={} db"),
        ("login --token abc-defg now", "login --token {} now"),
        ('"token": "a1b2c3d4e5f6"', '"token": "{}"'),
        ("token:= 0123456789abcdef0123", "token:= {}"),
        ("x?y db_secret_key:=  a1b2c3d4e5", "x?y db_secret_key:=  {}"),
    ],
)
def test_secrets_are_known_by_their_name_or_place(text: str, kept: str) -> None:
    assert Redactor().redact_text(text) == kept.format(REDACTED)
    many = "\n".join([text] * 40)  # most names in long texts are skipped by a pattern
    assert Redactor().redact_text(many) == "\n".join([kept.format(REDACTED)] * 40)


HARMLESS = [
    hashlib.sha256(b"x").hexdigest(),
    hashlib.sha1(b"x").hexdigest(),  # a commit
    str(uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)),
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 40).decode(),
    "sha512-" + base64.b64encode(hashlib.sha512(b"x").digest()).decode(),
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@host",
    "class sk-folding-cube-animation-1 { }",
    "task-1234567890abcdef1234567890",
    "ghp_short npm_config_registry hf_home pypi-upload-token eyJhbGciOi",
    "https://example.org:8080/a@b?q=1 ssh://git@example.org:22/x git@example.org:me/x.git",
    "https://$USER:$PASS@host/ https://<user>:<password>@host/",
    "MAX_TOKENS=4096\nAWS_REGION=eu-west-1\nSSH_AUTH_SOCK=/tmp/a/b\nKEYBOARD=us\nAUTHOR=Ada\nKEY=VALUE",
    "API_KEY=$OTHER_KEY\nTOKEN=$(gh auth token)\nSECRET=${X:-y}\nPASSWORD=<your password>",
    'api_key = os.environ["OPENAI_API_KEY"]\ntoken = next(tokens)\npassword: str = ""\nAPI_KEY: str\n',
    'def login(user, password=None, token=token): ...\nTOKEN = get_token(user)\nkey = "name"',
    '{"key": "value-1", "token": "identifier", "tokens": 12, "keywords": ["a1b2c3d4e5"], "password": "Password"}',
    '{"password": "string", "secret": "required", "env": "OPENAI_API_KEY", "token_budget": "8000"}',
    "Authorization: Bearer <token>\nAuthorization: Basic authentication is old\nBearer authentication",
    "The password is asked for; a token: see below. Secrets are keys to doors.",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIE\n-----END CERTIFICATE-----",
    "The --password option, credentials = standard_b64encode(x), Signature: 8a477f597d28d172789f06886806bc55",
    "--key ./certs/server2.pem --credentials creds.json --auth basic --token-limit 5000",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor([CANARY]).redact_text(text) == text
    many = "\n".join([text] * 40)
    assert Redactor([CANARY]).redact_text(many) == many


def test_a_value_is_redacted_through_all_of_it_and_keeps_its_shape() -> None:
    redactor = Redactor([CANARY])
    before = {
        "n": 1,
        "list": [True, None, 1.5, f"x{CANARY}"],
        "deep": ({"env": {"API_KEY": "abcdef", "LANG": "C"}},),
        f"key {CANARY}": "a",
        f"key {CANARY}!": "b",
        "headers": {"Authorization": "Basic abcdefgh", "Cookie": "session=abc", "Accept": "text/html"},
        "password": "hunter22",
        "key": "sort-by-name-2",
    }
    assert redactor.redact_value(before) == {
        "n": 1,
        "list": [True, None, 1.5, f"x{REDACTED}"],
        "deep": [{"env": {"API_KEY": REDACTED, "LANG": "C"}}],
        f"key {REDACTED}": "a",
        f"key {REDACTED}!": "b",
        "headers": {"Authorization": REDACTED, "Cookie": REDACTED, "Accept": "text/html"},
        "password": REDACTED,
        "key": "sort-by-name-2",
    }
    assert redactor.redact_value({CANARY: 1, f"{CANARY}{CANARY}": 2}) == {REDACTED: 1, f"{REDACTED}{REDACTED}": 2}
    assert before["password"] == "hunter22", "what is given is not changed"


HOSTILE = [
    "sk-", "xsk-", "pypi-", "-eyJ", "eyJaaaaaaaa.", "-----BEGIN PRIVATE " + "KEY-----", "://a:", "://a:b@", "key=",
    "A_TOKEN=", "key='", "token: ", "authorization=", "bearer ", "?sig=", "a", '\\\\"key=\\"', "İkey=", "SG.a",
]  # fmt: skip


@pytest.mark.parametrize("unit", sample(HOSTILE, 7))
def test_what_it_costs_grows_with_the_text_and_no_faster(unit: str) -> None:
    redactor = Redactor([CANARY, ODD])
    text = unit * (1_000_000 // len(unit))
    with processor_limit():  # a pattern that reads again and again takes minutes
        redactor.redact_text(text)


def test_what_was_seen_to_be_clean_says_nothing_about_a_text_that_holds_it() -> None:
    redactor = Redactor(["correct-horse-battery"])
    plain = "the staple of a battery"
    for _ in range(2):
        assert redactor.redact_value({"text": plain, "note": [plain]}) == {"text": plain, "note": [plain]}
        assert redactor.redact_value({"text": f"{plain} correct-horse-battery"}) == {"text": f"{plain} [REDACTED]"}
        # The same text is none of a secret's business under one name, and a secret under another.
        assert redactor.redact_value({"note": "hunter2hunter2", "password": "hunter2hunter2"}) == {
            "note": "hunter2hunter2",
            "password": "[REDACTED]",
        }


def test_what_is_remembered_as_clean_is_bounded() -> None:
    redactor = Redactor()
    for number in range(3_000):
        redactor.redact_text(f"{number} " + "x" * 2_000)
    assert sum(map(len, redactor._clean)) < 3_000_000
