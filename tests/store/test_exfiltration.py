"""Known secrets in what leaves the machine: found however they are written, and ordinary URLs are left alone."""

import base64
import random
import string
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote

import pytest

from kitbag.store.redaction import Redactor

KEY = "sk-test-Zq7Rk2Lm9Xv4Tn8Wp3Yc6Hd1"
PASSWORD = "p4ss/wörd+&=x!"
SHORT = "hunter42"
KNOWN = Redactor([KEY, PASSWORD, SHORT])


def percent_all(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


WRITTEN: dict[str, Callable[[str], str]] = {
    "plainly": lambda s: f"https://evil.example/?q={s}",
    "in lower case": lambda s: f"https://evil.example/{s.lower()}",
    "percent-encoded": lambda s: f"https://evil.example/?q={quote(s, safe='')}",
    "percent-encoded twice": lambda s: f"https://evil.example/?q={quote(quote(s, safe=''), safe='')}",
    "percent-encoded throughout": lambda s: f"https://evil.example/?q={percent_all(s)}",
    "percent-encoded in mixed case": lambda s: f"https://evil.example/?q={percent_all(s).swapcase()}",
    "in hex": lambda s: f"https://evil.example/{s.encode().hex()}",
    "in hex of mixed case": lambda s: f"https://evil.example/{s.encode().hex()[:9].upper()}{s.encode().hex()[9:]}",
    "in hex with separators": lambda s: f"https://evil.example/{s.encode().hex(':')}",
    "in escaped hex": lambda s: "https://evil.example/" + "".join(f"\\x{byte:02x}" for byte in s.encode()),
    "in base64": lambda s: f"https://evil.example/?q={b64(s)}",
    "in base64 within more": lambda s: f"https://evil.example/?q={b64('a' + s + 'bc')}",
    "in base64 at the third alignment": lambda s: f"https://evil.example/?q={b64('ab' + s + 'c')}",
    "in URL-safe base64": lambda s: f"https://evil.example/{base64.urlsafe_b64encode(s.encode()).decode()}",
    "in base32 in a host": lambda s: (
        f"https://{base64.b32encode(s.encode()).decode().rstrip('=').lower()}.evil.example"
    ),
    "as numbers": lambda s: "https://evil.example/?q=" + ",".join(map(str, s.encode())),
    "reversed": lambda s: f"https://evil.example/{s[::-1]}",
    "in base64, reversed": lambda s: f"https://evil.example/{b64(s)[::-1]}",
    "over two parameters": lambda s: f"https://evil.example/?a={s[:5]}&b={s[5:]}",
    "over many parameters": lambda s: "https://evil.example/?" + "&".join(f"p{i}={c}" for i, c in enumerate(s)),
    "over path segments": lambda s: "https://evil.example/" + "/".join(s[at : at + 3] for at in range(0, len(s), 3)),
    "over names of parameters": lambda s: f"https://evil.example/?{quote(s[:4])}=1&{quote(s[4:], safe='')}=2",
    "in base64 over parameters": lambda s: f"https://evil.example/?a={b64(s)[:7]}&b={b64(s)[7:]}",
}


@pytest.mark.parametrize("secret", [KEY, PASSWORD, SHORT])
@pytest.mark.parametrize("how", WRITTEN)
def test_a_secret_is_found_however_it_is_written(how: str, secret: str) -> None:
    assert KNOWN.reveals_secret([WRITTEN[how](secret)])


@pytest.mark.parametrize("pieces", [(12, 20), (8, 16, 24), (10,)])
def test_a_secret_is_found_over_labels_and_arguments_in_any_order(pieces: tuple[int, ...]) -> None:
    cuts = [0, *pieces, len(KEY)]
    parts = [KEY[start:end] for start, end in pairwise(cuts)]
    assert KNOWN.reveals_secret([f"https://{'.'.join(parts)}.evil.example/"])
    assert KNOWN.reveals_secret(parts)
    assert KNOWN.reveals_secret([f"https://evil.example/?x={'&y='.join(reversed(parts))}"])
    assert KNOWN.reveals_secret([f"https://evil.example/{b64(parts[0])}/{b64(''.join(parts[1:]))}"])


def test_most_of_a_long_secret_is_enough_and_its_prefix_is_not() -> None:
    assert KNOWN.reveals_secret([f"https://evil.example/{KEY[:-4]}"])
    assert not KNOWN.reveals_secret([f"https://docs.example/keys/{KEY[:10]}"])


ORDINARY = [
    "https://docs.python.org/3/library/urllib.parse.html#urllib.parse.quote",
    "https://hunter.io/42/secrets",
    "https://example.com/?q=how+to+store+a+password+in+an+environment+variable&page=42",
    "https://github.com/org/repo/blob/8429fa8c0d1e5f7a9b3c6d2e4f8a1b5c7d9e0f32/src/module.py#L120-L180",
    "https://cdn.example/a/eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "https://s3.example/x?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86",
    "https://ja.wikipedia.org/wiki/%E3%83%91%E3%82%B9%E3%83%AF%E3%83%BC%E3%83%89",
    "https://login.example.com/oauth2/authorize",
    "sk-test- is the prefix of test keys",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_texts_reveal_nothing(text: str) -> None:
    words = ["python", "password1", "localhost", "https://login.example.com/", "secrets", "4242424242"]
    assert not Redactor([KEY, PASSWORD, SHORT, *words]).reveals_secret([text])


def test_random_urls_reveal_none_of_many_secrets() -> None:
    chance = random.Random(7)

    def word(alphabet: str, length: int) -> str:
        return "".join(chance.choices(alphabet, k=length))

    hexadecimal, letters = string.hexdigits.lower()[:16], string.ascii_letters + string.digits
    known = Redactor([word(hexadecimal, 32) for _ in range(50)] + [word(letters, 24) for _ in range(50)])
    for _ in range(40):
        assert not known.reveals_secret([f"https://{word(letters, 20)}.example/{word(hexadecimal, 800)}"])


@pytest.mark.parametrize("value", ["abc12", "python", "12345678", "correct", "https://login.example.com/"])
def test_what_is_too_ordinary_to_look_for_blocks_nothing(value: str) -> None:
    assert not Redactor([value]).reveals_secret([f"https://example.com/{value}"])


def test_a_webhook_and_a_password_in_a_url_are_secrets() -> None:
    known = Redactor(["https://hooks.example/T0AB12CD/x9y8z7", "postgres://app:s3cr3t-pa55@db.example/main"])
    assert known.reveals_secret(["https://evil.example/?u=hooks.example/T0AB12CD/x9y8z7/https"])
    assert known.reveals_secret(["https://evil.example/s3cr3t-pa55"])


def test_secrets_added_later_are_known_too() -> None:
    assert Redactor([]).with_secrets([KEY]).reveals_secret([KEY])
    assert Redactor([KEY]).with_secrets([PASSWORD]).reveals_secret([KEY])
