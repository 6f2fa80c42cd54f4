"""What redaction costs per megabyte of text that was written to take long.

    python bench/redaction.py

For each kind of text the processor time per MB: without known secrets, with 200 known secrets, and with 200 while the
text streams in chunks of 40 characters. The floor is `str.translate`, which looks at each character once. Goal: 50 ms
per MB.
"""

import random
import string
import sys
import time
from collections.abc import Callable

sys.path.pop(0)  # some benchmarks are named like folders of tests
from kitbag.store.redaction import Redactor
from kitbag.store.streaming_redaction import StreamingRedactor

GOAL = 50.0
ROUNDS = 2
SIZE = 1_000_000
CHUNK = 40
CHANCE = random.Random(1)
BASE64 = string.ascii_letters + string.digits + "+/"
PEM = "-----BEGIN PRIVATE " + "KEY-----"


def word(alphabet: str, length: int) -> str:
    return "".join(CHANCE.choices(alphabet, k=length))


SECRETS = [word(BASE64, 40) for _ in range(150)] + [word(string.ascii_lowercase, 8) for _ in range(50)]


def repeated(unit: str) -> str:
    return unit * (SIZE // len(unit))


def texts() -> dict[str, str]:
    kinds = {
        "one letter": "a",
        "words": "the quick brown fox jumps over the lazy dog ",
        "lines": "\n",
        "= : quotes": "=:\"'",
        "sk-": "sk-",
        "sk-a1": "sk-a1 ",
        "ghp_": "ghp_",
        "AKIA": "AKIA",
        "eyJ": "eyJ",
        "-eyJ": "-eyJ",
        "eyJ with a dot": "eyJaaaaaaaa.",
        "xox hf_ npm_ gsk_": "xox hf_ npm_ gsk_ r8_ SG. ",
        "password": "password ",
        "password=": "password=",
        "PASSWORD=x": "PASSWORD=x\n",
        "key": "key",
        "key=": "key=",
        "A_TOKEN=": "A_TOKEN=",
        "token: ": "token: ",
        "key='": "key='",
        "key='x'": "key='x' ",
        "all names": "key token secret passw pass= pwd credential auth private cookie signature _pat dsn aws_ ",
        "auth=": "auth=a1b2c3 ",
        "--password": "--password a ",
        "?token=": "?token=a&",
        "authorization": "authorization: ",
        "bearer": "bearer ",
        "://": "://",
        "://a:": "://a:",
        "://a:b@": "://a:b@",
        "?sig=": "?sig=",
        "PEM begin": PEM,
        "PEM begin, lines": f"{PEM}\nMIIE\n",
        "JSON": '{"name": "value", "key": "x", "list": [1, 2, 3]}, ',
        "escaped JSON": '{\\"key\\": \\"x\\"}, ',
        "Unicode": "schön 日本語 ключ ",
        "longer in lower case": "İkey=",
    }
    base64_wall = word(BASE64, SIZE)
    prefixes = [secret[:20] for secret in SECRETS]
    near = " ".join(CHANCE.choices(prefixes, k=SIZE // 21))
    first_letters = word("".join({secret[0] for secret in SECRETS}), SIZE)
    plain = word(string.ascii_lowercase + " ", SIZE)
    return {name: repeated(unit) for name, unit in kinds.items()} | {
        "base64": base64_wall,
        "base64, lines": "\n".join(base64_wall[at : at + 76] for at in range(0, SIZE, 76)),
        "starts of secrets": near,
        "first letters": first_letters,
        "random letters": plain,
        "hexadecimal": word("0123456789abcdef", SIZE),
    }


def least(work: Callable[[str], object], text: str) -> float:
    """Milliseconds per MB."""
    best = 1e9
    for _ in range(ROUNDS):
        started = time.process_time()
        work(text)
        best = min(best, time.process_time() - started)
    return best * 1e3 / (len(text) / 1e6)


def stream(redactor: Redactor, text: str) -> None:
    streaming = StreamingRedactor(redactor.redact_known, redactor.known_values)
    for at in range(0, len(text), CHUNK):
        streaming.feed(text[at : at + CHUNK])
    streaming.flush()


def main() -> None:
    none, many = Redactor(), Redactor(SECRETS)
    table = {ord("a"): "b"}
    print(f"{'ms per MB':<24}{'0 secrets':>10}{'200':>10}{'streamed':>10}{'floor':>10}")
    for name, text in texts().items():
        costs = [
            least(none.redact_text, text),
            least(many.redact_text, text),
            least(lambda one: stream(many, one), text[: SIZE // 10]),
        ]
        floor = least(lambda one: one.translate(table), text)
        missed = "" if max(costs[:2]) <= GOAL else "  MISSED"
        print(f"{name:<24}" + "".join(f"{cost:10.1f}" for cost in costs) + f"{floor:10.1f}{missed}")


if __name__ == "__main__":
    main()
