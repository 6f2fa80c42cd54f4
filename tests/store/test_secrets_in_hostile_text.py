"""What is rejected by a pattern, skipped in a run or decided once for many is what a check of each name decides."""

import random
import re

import pytest

from kitbag.store import secrets_by_name, secrets_by_pattern
from kitbag.store.redaction import REDACTED, Redactor
from kitbag.store.secrets_by_pattern import TextSpan

WORDS = (
    *secrets_by_name.NAME_WORDS,
    "password",
    "api_key",
    "api-",
    "access_key_id",
    "auth_token",
    "s",
    "x.",
    "--",
    "?",
)
SEPARATORS = (
    "=",
    ":",
    ": ",
    " = ",
    "=>",
    ":=",
    "==",
    '": "',
    "': '",
    '\\": \\"',
    "='",
    '="',
    "=`",
    "=\\\\\\\\'",
    " ",
    "",
)
VALUES = (
    "x", "abc", "abcd", "a1b2c3", "a1b2c3d4e5f6", "a1b2c3d4e5f6g7h8", "hunter2", "Password", "string", "$TOKEN", "${X}",
    "os.environ", "a.b2c3d4", "next(x1)", "AbCdEfGhIjKlMnOpQrStUv", "/etc/keys/x1", "a1b2c3d4...", "a1 b2 c3", "\\n", "\\\\",
    "é1a2b3c4d5", "İ1a2b3c4", "token=a1b2c3d4e5f6", "p" * 90 + "1", "correct" * 160,
)  # fmt: skip
ENDS = ("", " ", "\n", '"', "'", "`", '\\"', ",", "&", "?", "(", ".")


def hostile_text(chance: random.Random) -> str:
    """Names, separators and values at random, some of them many times."""
    parts: list[str] = []
    for _ in range(chance.randint(1, 8)):
        name = chance.choice(("", "_", "-", ".")).join(chance.choices(WORDS, k=chance.randint(1, 3)))
        name = chance.choice((str.lower, str.lower, str.upper, str.title))(name)
        part = name + "".join(map(chance.choice, (SEPARATORS, VALUES, ENDS)))
        parts += [part] * chance.choice((1, 1, 2, 9))
    chance.shuffle(parts)
    return chance.choice(("", " ", "\n")).join(parts)


def in_lower_case(text: str) -> str:
    return re.sub("[A-Z]", lambda capital: capital[0].lower(), text)


def check_each_name(text: str) -> set[TextSpan]:
    lowered = in_lower_case(text)
    spans: set[TextSpan] = set()
    for word in secrets_by_name.NAME_WORDS:
        done = 0
        for name in re.finditer(rf"{word.removesuffix('=')}{'(?==)' if '=' in word else ''}[a-z0-9_.-]*+", lowered):
            if name.start() >= done and len(name[0]) <= 64:
                span, _ = secrets_by_name._find_value(text, *name.span())
                spans |= {span} if span else set()
                done = span[1] if span else done
    return spans


@pytest.mark.parametrize("seed", range(4))
def test_every_named_secret_is_found_that_a_check_of_each_name_finds(seed: int) -> None:
    chance = random.Random(seed)
    found = 0
    for _ in range(400):
        text = hostile_text(chance)
        spans = set(secrets_by_name.find_named_secrets(text, in_lower_case(text)))
        assert spans == check_each_name(text), text
        found += len(spans)
    assert found > 400


@pytest.mark.parametrize("seed", range(4))
def test_every_token_with_segments_is_found_however_many_segments_precede_it(seed: int) -> None:
    chance = random.Random(seed)
    plain = secrets_by_pattern._token_pattern("sk-")
    found = 0
    for _ in range(200):
        segments = chance.choices(
            ("sk-", "sk-", "a-", "sk_", "abcdefghijkl-", "abcdefghijklm-", " "), k=chance.randint(1, 500)
        )
        text = "".join(segments) + chance.choice(("", "a1" * 8, "a" * 20, "a1" * 10 + "-sk-" + "b2" * 9))
        expected = [match.span() for match in plain.finditer(text)]
        assert secrets_by_pattern.find_pattern_secrets(text, text) == expected
        found += len(expected)
    assert found > 50


def test_a_value_is_decided_by_what_follows_it_however_often_its_start_was_seen() -> None:
    start = " " * 80 + "PASSWORD=\\\\\\\\'" + "Qw" * 100
    closed, unclosed = f"{start}\\\\\\\\' ", f"{start}\n"
    redacted = Redactor().redact_text(unclosed) + Redactor().redact_text(closed)
    assert Redactor().redact_text(unclosed + closed) == redacted
    assert redacted.count("Qw" * 100) == 1


def test_private_keys_that_share_their_dashes_are_found() -> None:
    header, footer = "-----BEGIN PRIVATE " + "KEY-----", "-----END PRIVATE " + "KEY-----"
    name = header.strip("-")
    assert Redactor().redact_text(f"{header}K{footer}{name}{header}") == f"{REDACTED}{name}{REDACTED}"
    assert Redactor().redact_text(f"{header}\nMIIE\n" * 50 + footer) == REDACTED
