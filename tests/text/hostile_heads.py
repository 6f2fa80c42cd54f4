"""Heads that were written to take long or to fill the memory. Used by tests and by bench/hostile.py."""

from typing import Final

ALIAS_BOMB: Final = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{now}: &{now} [{', '.join([f'*{before}'] * 9)}]\n" for before, now in zip("abcdefgh", "bcdefghi", strict=True)
)
HEADS: Final = {
    name: f"name: x\n{text}"
    for name, text in {
        "alias bomb": ALIAS_BOMB,
        "deep": "a: " + "[" * 5_000,
        "brackets": "a: " + "[" * 200_000,
        "block maps": "\n".join(" " * depth + "a:" for depth in range(700)),
        "braces": "a: " + "{a: " * 50_000,
        "long value": "a: " + "x" * 10_000_000,
        "long quoted value": "a: '" + "x" * 10_000_000 + "'\nb: *",
        "broken fields": "\n".join(f"k{number}: a: b" for number in range(25_000)),
        "many fields": "z: [a]]\n" + "\n".join(f"k{number}: [a]" for number in range(25_000)),
        "fields before prose": "description: a: b\n" + "ab:\n" * 60_000 + "Words.",
        "duplicates": "a: {b}\n" * 9_000,
        "quotes": "a: " + '"' * 200_001,
        "dashes": "a:\n" + "- " * 100_000,
        "tag": "a: !!python/object/apply:os.system ['touch /tmp/kitbag-was-here']",
    }.items()
}
