"""Lists risky lines. Searches; runs nothing."""

import re
import sys
from pathlib import Path

PATTERNS = [
    (re.compile(r"curl\s.*\|\s*(ba)?sh"), "pipes a download into a shell"),
    (re.compile(r"eval\s*\(.*b64decode"), "evaluates decoded text"),
    (re.compile(r"/dev/tcp/"), "opens a connection from bash"),
    (re.compile(r"rm\s+-rf\s+/"), "removes everything"),
]
BAD_HOSTS = ["pastebin.com", "webhook.site"]

for path in Path(sys.argv[1]).rglob("*.sh"):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for pattern, what in PATTERNS:
            if pattern.search(line):
                print(f"{path}:{number}: {what}")
