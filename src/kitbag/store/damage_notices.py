"""Notices about damage to the journal, which every command repeats until the user acknowledges them.

Used by journal_recovery, which adds them, by all user interfaces, and by `kitbag store`. Imports little: `skills list`
asks too.
"""

import os
from typing import Final, NamedTuple

FILE: Final = "state/damage.json"
FIX: Final = "check your tasks and sessions, then run `kitbag store acknowledge`"


class DamageNotice(NamedTuple):
    at: str
    folder: str
    records: int
    problem: str

    def text(self) -> str:
        return (
            f"the journal was damaged ({self.problem}): {self.records:,} records were recovered, later ones are lost;"
            f" unfinished tasks wait for you to resume them. The damaged file is in {self.folder}"
        )


def read_notices(kitbag_home: str) -> list[DamageNotice]:
    """Oldest first."""
    if not os.path.lexists(os.path.join(kitbag_home, FILE)):
        return []
    import json

    from kitbag.store import private_files

    try:
        entries = json.loads(private_files.read(kitbag_home, FILE) or b"[]")
        return [
            DamageNotice(str(entry["at"]), str(entry["folder"]), int(entry["records"]), str(entry["problem"]))
            for entry in entries
        ]
    except (ValueError, KeyError, TypeError, RecursionError, private_files.StoreError):
        return [DamageNotice("", os.path.join(kitbag_home, "state"), 0, f"and {FILE} is damaged too")]


def add_notice(kitbag_home: str, folder: str, records: int, problem: str) -> None:
    import json
    import time

    from kitbag.store import private_files

    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    notices = [notice for notice in read_notices(kitbag_home) if notice.folder != folder]
    notices.append(DamageNotice(at, folder, records, problem))
    data = json.dumps([notice._asdict() for notice in notices]).encode()
    private_files.write(kitbag_home, FILE, data)


def acknowledge(kitbag_home: str) -> list[DamageNotice]:
    """Removes the notices and returns them."""
    notices = read_notices(kitbag_home)
    if notices:
        os.unlink(os.path.join(kitbag_home, FILE))
    return notices
