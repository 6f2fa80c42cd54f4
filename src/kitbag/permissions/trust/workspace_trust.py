"""Whether a workspace is trusted: by its resolved folder, and bound to hashes of everything in it that can act.

Nothing that a workspace says takes part in the decision but through those hashes. Changed prose keeps trust; a new
item or link, and a new or changed command, server, hook, script, mode, rule or setting do not. Used by all code that
loads or runs a project's items.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal, NamedTuple, cast

from kitbag.errors import InvalidError
from kitbag.library.scopes import Places
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.capabilities import RESTRICTING, Act, ActKind, text_acts
from kitbag.permissions.trust.store import Approved, Record, Store, change_store, kept_texts, read_store
from kitbag.permissions.trust.workspace_items import Found, Item, look
from kitbag.settings import PERMISSIONS, Entry

State = Literal["nothing", "trusted", "untrusted", "changed"]


class Change(NamedTuple):
    """What is not as it was when the workspace was trusted."""

    mark: Literal["+", "~", "-"]
    kind: ActKind | Literal["item"]
    path: str
    """Of the file that wants it, relative to the workspace."""
    old: str
    new: str
    line: int = 0


class Trust(NamedTuple):
    state: State
    root: str
    """Resolved."""
    folder: str = ""
    """The same as it was reached, which may be through links."""
    items: tuple[Item, ...] = ()
    changes: tuple[Change, ...] = ()
    """Why it is `changed`."""
    whole: bool = True
    """False: not everything could be seen, so it can't be trusted beyond one run."""
    problems: tuple[str, ...] = ()
    for_now: bool = False
    """Trusted for this run alone, whatever it brings."""
    only: str = ""
    """Trusted for this run alone, as long as `seen` is this."""

    @property
    def seen(self) -> str:
        """A fingerprint of all that it brings, as it was read: trust for one session holds for this."""
        acts = sorted(digest for item in self.items for digest in _digests(item))
        return hashlib.sha256("\n".join(acts).encode()).hexdigest()

    @property
    def is_open(self) -> bool:
        """Its items may be loaded and its settings count."""
        return self.state in ("nothing", "trusted")

    @property
    def restricts(self) -> bool:
        """What its settings deny and ask about counts: it can't loosen anything, so a change does not end it."""
        return self.is_open or self.state == "changed"

    def acts_of(self, paths: Collection[str]) -> set[str]:
        """Digests of what these files would do; each path as an item has it."""
        return {digest_of(item.path, act) for item in self.items if item.path in paths for act in item.acts}

    def covers(self, path: str, text: str) -> bool:
        """Whether all that a text would run or read of the environment was there when the file was looked at.

        So what changes between the look and the run, or was never looked at, is not run.
        """
        if self.for_now:
            return True
        if self.state != "trusted":
            return False
        known = {
            (act.kind, act.text)
            for item in self.items
            if path in (os.path.join(self.folder, item.path), os.path.join(self.root, item.path))
            for act in item.acts
        }
        return all((act.kind, act.text) in known for act in text_acts(text))


def workspace_trust(places: Places, trusted_for_now: bool | str = False) -> Trust:
    """Reads, and runs nothing. `trusted_for_now` is a person's word for this run; nothing of it is kept. Where it is
    what `Trust.seen` gave, the word was for what they had seen then, and counts as long as that has not changed."""
    root = os.path.realpath(places.project)
    found = look(places)
    for_now = trusted_for_now is True
    trust = Trust("untrusted", root, places.project, found.items, (), found.whole, found.problems, for_now)
    if not found.items and found.whole:
        return trust._replace(state="nothing")
    if trusted_for_now:
        only = trusted_for_now if isinstance(trusted_for_now, str) else ""
        return trust._replace(state="trusted" if for_now or trust.seen == only else "changed", only=only)
    store = _store(places, root)
    if store.problem:
        trust = trust._replace(problems=(*trust.problems, store.problem))
    record = store.records.get(root)
    if record is None or record.owner != _owner(root):
        return trust
    changes = changes_since(record, found, places)
    if changes:
        return trust._replace(state="changed", changes=changes)
    return trust._replace(state="trusted") if found.whole else trust


def trust_workspace(places: Places, shown: Trust) -> str:
    """Stores that a person agreed to what `shown` holds; not to what is there by now.

    Answers a remark about the file it is kept in. Raises InvalidError when trust could not be kept to.
    """
    if not shown.whole:
        what = f"{shown.root} can't be trusted: not all of it could be looked at ({'; '.join(shown.problems)})"
        raise InvalidError(what, "remove what is too much, or use --trust-workspace for one run")
    if problem := _store_in_workspace(places, shown.root):
        raise InvalidError(problem, "set KITBAG_HOME to a folder outside the workspace")
    owner = _owner(shown.root)
    if owner is None:
        raise InvalidError(f"{shown.root} is gone", "")
    acts = _approved(shown.items)
    seen = {item.path for item in shown.items}

    def change(records: dict[str, Record]) -> None:
        before = records.get(shown.root)
        # What another folder of the workspace brings was not looked at from here, and stays agreed to.
        kept = [
            act
            for act in (before.acts if before and before.owner == owner else ())
            if act.path not in seen and os.path.lexists(os.path.join(shown.root, act.path))
        ]
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        records[shown.root] = Record(shown.root, owner, at, tuple(dict.fromkeys((*acts, *kept))))

    return change_store(_home(places), change)


def forget(places: Places, roots: Iterable[str] | None) -> tuple[list[str], str]:
    """Takes trust away from these workspaces, or from all; answers which had it, and a remark about the file."""
    gone: list[str] = []

    def change(records: dict[str, Record]) -> None:
        gone.extend(root for root in (list(records) if roots is None else roots) if records.pop(root, None))

    return gone, change_store(_home(places), change)


def taken_back(places: Places, trust: Callable[[], Trust]) -> list[Entry]:
    """What the project's settings denied and asked about when a person trusted them, and do not any more. It counts
    until they trust it again, since it may have been taken away to allow something. `trust`: is asked where such was
    ever agreed to."""
    root = os.path.realpath(places.project)
    record = _store(places, root).records.get(root)
    files = {os.path.join(folder, ".kitbag", "settings.toml") for folder in places.project_dirs}
    agreed = [
        (os.path.join(places.project, act.path), act)
        for act in (record.acts if record is not None and record.owner == _owner(root) else ())
        if act.kind == "setting" and act.text.startswith(_RESTRICTING_SETTINGS)
    ]
    agreed = [(file, act) for file, act in agreed if file in files]
    if not agreed or (found := trust()).for_now or found.only:
        return []
    present = {digest for item in found.items for digest in _digests(item)}
    return [entry for file, act in agreed if act.digest not in present for entry in _entries(file, act)]


_RESTRICTING_SETTINGS: Final = tuple(f"{key} = " for key in PERMISSIONS if key != "permissions.allow")


def _entries(file: str, act: Approved) -> list[Entry]:
    key, _, value = act.text.partition(" = ")
    # Of what was too long to be kept, or held a secret, it is only known that it was there.
    is_whole = digest_of(act.path, Act("setting", act.text)) == act.digest
    found: object = json.loads(value) if is_whole else None
    values = cast("list[object]", found) if isinstance(found, list) else [found]
    return [Entry(key, one, file, 0, False) for one in values]


def trusted_workspaces(places: Places) -> Store:
    return read_store(_home(places))


def _home(places: Places) -> str:
    return os.path.realpath(places.kitbag_home)


def _store(places: Places, root: str) -> Store:
    problem = _store_in_workspace(places, root)
    return Store({}, problem) if problem else read_store(_home(places))


def _store_in_workspace(places: Places, root: str) -> str:
    """A workspace must not be able to bring its own trust."""
    if is_inside(_home(places), root):
        return f"the Kitbag home {_home(places)} lies inside the workspace, so what it says about trust is not used"
    return ""


def _owner(root: str) -> int | None:
    try:
        return os.stat(root).st_uid
    except OSError:
        return None


# --- what changed -----------------------------------------------------------------------------------------------


def digest_of(path: str, act: Act) -> str:
    """Two that differ in kind, file, text or bytes never have one digest."""
    bound = json.dumps([act.kind, path, act.text, act.digest])
    return hashlib.sha256(bound.encode()).hexdigest()


def _item_digest(item: Item) -> str:
    return hashlib.sha256(json.dumps(["item", item.path, item.kind]).encode()).hexdigest()


def _digests(item: Item) -> list[str]:
    return [_item_digest(item), *(digest_of(item.path, act) for act in item.acts)]


def _approved(items: Collection[Item]) -> list[Approved]:
    wanted = [(item.path, act) for item in items for act in item.acts]
    texts = kept_texts(_shown(act) for _, act in wanted)
    return [
        *(Approved("item", item.path, _item_digest(item), f"{item.kind} {item.name}") for item in items),
        *(
            Approved(act.kind, path, digest_of(path, act), text)
            for (path, act), text in zip(wanted, texts, strict=True)
        ),
    ]


def _shown(act: Act) -> str:
    return f"{act.text} sha256:{act.digest}" if act.digest else act.text


def changes_since(record: Record, found: Found, places: Places) -> tuple[Change, ...]:
    """Empty when nothing can act that was not agreed to, and nothing that held back is gone."""
    agreed = {act.digest for act in record.acts}
    now = [(item.path, act, digest_of(item.path, act)) for item in found.items for act in item.acts]
    present = {digest for _, _, digest in now}
    gone: dict[tuple[str, str], list[Approved]] = {}
    for old in record.acts:
        if old.kind != "item" and old.digest not in present:
            gone.setdefault((old.path, old.kind), []).append(old)
    changes = [
        Change("+", "item", item.path, "", f"{item.kind} {item.name}")
        for item in found.items
        if _item_digest(item) not in agreed
    ]
    for path, act, digest in now:
        if digest not in agreed:
            before = _counterpart(act, gone.get((path, act.kind), []))
            changes.append(Change("~" if before else "+", act.kind, path, before, _shown(act), act.line))
    seen = {item.path for item in found.items}
    changes += [
        Change("-", old.kind, path, old.text, "")
        for (path, kind), left in gone.items()
        if kind in RESTRICTING and (path in seen or _is_looked_at(path, found, places))
        for old in left
    ]
    return tuple(changes)


def _counterpart(act: Act, gone: list[Approved]) -> str:
    """What stood there before, taken out of `gone`: the same script, or else the first of its kind in that file."""
    if act.kind == "script":
        same = [old for old in gone if old.text.startswith(f"{act.text} sha256:")]
    else:
        start = act.text.partition(":")[0].partition("=")[0]
        same = [old for old in gone if old.text.partition(":")[0].partition("=")[0] == start] or gone
    if not same:
        return ""
    before = same[0]
    gone.remove(before)
    return before.text


def _is_looked_at(path: str, found: Found, places: Places) -> bool:
    """A project's settings that are gone: what they forbade is allowed again. Other files take their rights along."""
    root = places.project
    settings = (os.path.join(folder, ".kitbag", "settings.toml") for folder in places.project_dirs)
    return found.whole and os.path.join(root, path) in settings
