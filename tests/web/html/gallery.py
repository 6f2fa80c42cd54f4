"""Writes a page with every block, form, state and component, to look at: `python tests/web/html/gallery.py DIRECTORY`."""

import shutil
import sys
from pathlib import Path

import kitbag.web
from kitbag.chat.ui import ChatStatus, LiveState, RunningCall
from kitbag.dialogs.form import Form, FormOption
from kitbag.views.blocks import (
    Bar,
    BarsBlock,
    Block,
    DiffBlock,
    FieldsBlock,
    LinesBlock,
    NoticeBlock,
    ReplyBlock,
    Span,
    TableBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
    VerbatimBlock,
)
from kitbag.views.rendering.markdown_stream import MarkdownStream
from kitbag.web.html.blocks import render_block
from kitbag.web.html.chat_state import render_live, render_status
from kitbag.web.html.elements import meter
from kitbag.web.html.forms import render_form

REPLY = """# The flaky test

The failure comes from **two clocks**: `expires_at` is computed with `time.time()`, but compared with
`time.monotonic()`. See [the manual](https://docs.example.org/library/time.html) and <https://example.org/issues/12>.

1. Read the clock once.
2. Pass it on:
   - to `Cache.get`
   - to `Cache.put`
3. Run the tests again.

- [x] find the cause
- [ ] fix it

```python
class Cache:
    \"\"\"Keeps values for `seconds`.\"\"\"

    def get(self, key: str, now: float) -> Value | None:
        entry = self._entries.get(key)  # may be too old
        return entry.value if entry and entry.expires_at > now else None
```

| File | Lines | Why |
|---|--:|---|
| `src/cache.py` | 12 | takes the clock as an argument |
| `tests/test_cache.py` | 30 | a clock that the test moves |

> Elapsed time is never asserted.

![the chart](https://example.org/chart.png)
"""
DIFF = """--- a/src/cache.py
+++ b/src/cache.py
@@ -8,5 +8,6 @@ class Cache:
     def get(self, key: str) -> Value | None:
         entry = self._entries.get(key)
-        return entry.value if entry and entry.expires_at > time.monotonic() else None
+        now = self._clock()
+        return entry.value if entry and entry.expires_at > now else None
         # not kept
@@ -40,2 +41,2 @@ def clear
-    self._entries = {}
+    self._entries.clear()
"""
BARS = BarsBlock(
    title="Context of the last request",
    bars=(
        Bar(label="system prompt", tokens=3_200),
        Bar(label="tools", tokens=9_400, note="14 tools"),
        Bar(label="skills", tokens=2_100, note="3 described, 1 loaded"),
        Bar(label="memory files", tokens=1_250, note="AGENTS.md"),
        Bar(label="messages", tokens=41_000, note="18 turns"),
        Bar(label="reserved for the reply", tokens=32_000, is_reserved=True),
    ),
    whole=200_000,
    foot="Loading everything would have used 96,400 tokens more.",
)


def _reply_blocks(text: str) -> list[Block]:
    stream = MarkdownStream()
    pieces = [*stream.add(text), *stream.finish()]
    return [ReplyBlock(piece.text, at == 0, piece.head) for at, piece in enumerate(pieces)]


BLOCKS: list[Block] = [
    UserBlock("The cache test fails about once in ten runs.\nCan you find out why, and fix it?", images=1),
    ThinkingBlock("The test compares two clocks.\nLet me look at the cache first.", 4.2),
    ToolBlock(name="Read", title="src/cache.py", summary="84 lines", is_error=False, seconds=0.01, details="class Cache:\n    ..."),
    ToolBlock(name="Grep", title="time.monotonic", summary="3 matches in 2 files", is_error=False, seconds=0.2),
    ToolBlock(name="Edit", title="src/cache.py", summary="2 changes", is_error=False, seconds=0.1, details=DIFF),
    ToolBlock(
        name="Bash", title="make test", summary="exit code 2", is_error=True, seconds=34.0,
        details="tests/test_cache.py::test_expiry FAILED\n  assert None == 'value'\nmake: *** [Makefile:12: test] Error 2",
    ),
    *_reply_blocks(REPLY),
    NoticeBlock("warning", "skills/deploy/SKILL.md:3: the description is 1,400 characters long", "shorten it to 1,024"),
    NoticeBlock("error", "the model did not answer: connection refused", "check that the server runs, then send again"),
    NoticeBlock("info", "switched to plan mode"),
    BARS,
    TableBlock(
        title="Skills", headers=("Name", "Scope", "Tokens", "Description"),
        rows=(
            ("code-review", "project", "1,240", "Reviews a change for correctness, tests and naming before it is merged."),
            ("pdf-forms", "user", "3,980", "Fills PDF forms and checks that every required field has a value."),
            ("release-notes", "plugin", "610", "Writes release notes from merged changes."),
        ),
        foot="3 skills, 5,830 tokens if all were loaded",
    ),
    FieldsBlock((("Model", "example/large-2"), ("Directory", "~/projects/cache"), ("Persona", "reviewer"), ("Session", "2f8a91c4")), "This session"),
    VerbatimBlock("You are a careful engineer.\n\n\tKeep changes small.\n\u202ehidden", "System prompt"),
    DiffBlock(DIFF),
    LinesBlock(((Span("3 tasks", "strong"), Span("  1 running", "accent"), Span("  1 failed", "bad")), (Span("/tasks shows them", "dim"),))),
]  # fmt: skip
FORMS = [
    Form(
        prompt="Run this command?",
        options=(
            FormOption(key="y", label="Yes, once"),
            FormOption(key="a", label="Always allow", note="make test:* in this project", continues=True),
            FormOption(key="n", label="No", note="and say why", preview="The agent gets your reason\nand goes on."),
        ),
        above=(VerbatimBlock("rm -rf build && make test", "Bash", exact=True),),
        free_text_hint="or tell the agent what to do instead",
        cancel_effect="deny",
        default="n",
    ),
    Form(
        prompt="Which checks should run?",
        multiple=True,
        options=(FormOption(key="1", label="Types", note="pyright"), FormOption(key="2", label="Lint", note="ruff")),
    ),
    Form(prompt="The key for example/large-2", free_text_hint="API key", secret=True),
]
LIVE = LiveState(
    activity="writing",
    started_at=1.0,
    tokens=1_240,
    tail="The second change makes the clock **an argument**, so",
    running=(RunningCall(name="Bash", title="make test", progress="312 of 840 tests", started_at=3.0),),
    steering=("also run the linter",),
    queued=("then write the changelog entry",),
    todos=(("completed", "find the cause"), ("in_progress", "fix the cache"), ("pending", "run the tests")),
)
STATUS = ChatStatus(
    model="example/large-2", mode="plan", persona="reviewer", used=57_000, window=200_000, cost=0.42, tasks=2,
    questions=1, directory="~/projects/cache",
)  # fmt: skip
SESSIONS = """<aside class="sidebar" id="sidebar" aria-label="Sessions">
<button type="button" class="button primary">New chat</button>
<input class="field" type="search" placeholder="Search sessions" aria-label="Search sessions">
<label class="checkbox"><input type="checkbox"> All directories</label>
<ul class="sessions">
<li><a class="session" href="#1" aria-current="page"><span class="session-title">The cache test fails about once in ten runs</span><span class="session-meta"><span class="dot" data-status="running"></span><time>now</time></span></a></li>
<li><a class="session" href="#2"><span class="session-title">Rename the settings</span><span class="session-meta"><span class="dot" data-status="waiting"></span><time>5 min</time></span></a></li>
<li><a class="session" href="#3"><span class="session-title">Write the release notes of 0.9</span><span class="session-meta"><span class="dot" data-status="completed"></span><time>2 h</time></span></a></li>
<li><a class="session" href="#4"><span class="session-title">Profile the index</span><span class="session-meta"><span class="dot" data-status="failed"></span><time>3 d</time></span></a></li>
</ul></aside>"""
COMPOSER = """<form class="composer" method="dialog">
{completions}<div class="attachments">{attachments}</div>
<textarea aria-label="Message" rows="1" placeholder="Message, /command or @file"></textarea>
<div class="composer-actions"><button type="button" class="button danger">Stop</button><button type="button" class="button">Queue</button><button class="button primary">Send</button></div></form>"""
COMPLETIONS = """<ul class="completions" role="listbox" aria-label="Completions">
<li role="option" aria-selected="true"><span class="completion-label">/context</span><span class="completion-description">what the model was given</span></li>
<li role="option" aria-selected="false"><span class="completion-label">/compact</span><span class="completion-description">summarize the conversation</span></li></ul>"""
ATTACHMENT = """<span class="attachment"><img alt="image 1" src="data:image/gif;base64,R0lGODlhAQABAIAAAFVm7QAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw=="><button type="button" class="button ghost" aria-label="Remove image 1">×</button></span>"""
COMPONENTS = """<div class="page"><h2>Components</h2>
<div class="toolbar"><button class="button primary">Primary</button><button class="button">Secondary</button>
<button class="button danger">Stop task</button><button class="button ghost">Ghost</button><button class="button" disabled>Disabled</button>
<input class="search" type="search" placeholder="Filter" aria-label="Filter"></div>
<div class="toolbar"><span class="badge">idle</span><span class="badge badge-good">trusted</span><span class="badge badge-warning">waiting</span><span class="badge badge-bad">failed</span><span class="badge badge-accent">running</span><span class="tag">project</span>{meters}</div>
<div class="tabs" role="tablist" aria-label="Views"><button role="tab" aria-selected="true">List</button><button role="tab" aria-selected="false">Map</button><button role="tab" aria-selected="false">Difference</button></div>
<div class="split"><div class="card"><h2>Tasks</h2><ul class="tree"><li><div><span class="dot" data-status="running"></span>reviewer <span class="badge badge-accent">running</span></div><ul><li><div><span class="dot" data-status="completed"></span>tests</div></li><li><div><span class="dot" data-status="waiting"></span>docs</div></li></ul></li></ul></div>
<div class="card"><h2>Detail</h2><div class="field"><label for="g-name">Name</label><input id="g-name" value="code-review"></div><div class="field"><label for="g-text">Body</label><textarea id="g-text" rows="3">Check the tests first.</textarea></div>{table}</div></div>
<div class="card"><div class="state state-empty"><h2>No sessions yet</h2><p>Start a chat, and it is listed here.</p><button class="button primary">New chat</button></div></div>
<div class="card"><div class="state state-error"><h2>This session can't be read</h2><p>The journal is damaged at line 812. Everything before it is shown.</p></div></div>
<div class="state state-disconnected"><h2>Not connected</h2><p>The server does not answer. What you type is kept.</p></div>
<div class="state state-untrusted"><h2>Do you trust this folder?</h2><p>Its skills, hooks and servers run nothing until you do.</p><div class="toolbar"><button class="button primary">Trust</button><button class="button ghost">Not now</button></div></div>
<div class="card state-loading" aria-busy="true"><span class="skeleton skeleton-short"></span><span class="skeleton"></span><span class="skeleton"></span></div>
</div>"""


def _page(main: str, current: str) -> str:
    styles = "".join(
        f'<link rel="stylesheet" href="css/{name}.css">' for name in ("base", "shell", "components", "chat")
    )
    links = "".join(
        f'<a href="#{name}"{" aria-current=page" if name == current else ""}>{name}</a>'
        for name in ("Chat", "Context", "Tasks", "Library", "Pack")
    )
    policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'"
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Kitbag</title>
<meta name="viewport" content="width=device-width, initial-scale=1, interactive-widget=resizes-content">
<meta http-equiv="Content-Security-Policy" content="{policy}">{styles}</head>
<body><a class="skip-link" href="#main">Skip to content</a><header class="topbar">
<button type="button" class="button ghost drawer-toggle" aria-label="Sessions">☰</button>
<a class="brand" href="#">Kitbag</a><nav class="nav" aria-label="Views">{links}</nav>
<span class="connection" role="status" data-state="connected">connected</span></header><div class="shell">{SESSIONS}
<main class="main" id="main" tabindex="-1"><h1 class="visually-hidden">{current}</h1><div class="view view-{current.lower()}">{main}</div></main></div></body></html>"""


def _chat(blocks: list[Block], live: LiveState, forms: list[Form], composer: str) -> str:
    shown = "".join(render_block(block, str) for block in blocks)
    questions = "".join(render_form(form, f"form{at}", str) for at, form in enumerate(forms))
    return (
        f'<section class="chat" aria-label="Chat"><div class="scrollback" role="log" tabindex="0" aria-label="Conversation">'
        f'<div class="blocks">{shown}</div><div class="live">{render_live(live, str, now=14.0)}</div></div><div class="questions">{questions}</div>'
        f'{composer}<div class="statusbar">{render_status(STATUS)}</div></section>'
    )


def write_gallery(directory: Path) -> list[Path]:
    shutil.copytree(Path(kitbag.web.__file__).parent / "static" / "css", directory / "css", dirs_exist_ok=True)
    plain = COMPOSER.format(completions="", attachments="")
    full = COMPOSER.format(completions=COMPLETIONS, attachments=ATTACHMENT)
    meters = "".join(meter(share, f"{share:.0%} used") for share in (0.3, 0.75, 0.95))
    table = render_block(next(block for block in BLOCKS if isinstance(block, TableBlock)), str)
    long_code = _reply_blocks("Before.\n\n```python\n" + "value = compute(1)\n" * 70 + "```\n\n- a\n- b\n\nAfter.\n")
    pages = {
        "chat": _page(_chat(BLOCKS, LIVE, [], plain), "Chat"),
        "question": _page(_chat(BLOCKS[:5], LiveState(), FORMS[:1], plain), "Chat"),
        "forms": _page(_chat(BLOCKS[:1], LiveState(), FORMS[1:], full), "Chat"),
        "long": _page(_chat(long_code, LiveState(), [], plain), "Chat"),
        "components": _page(COMPONENTS.format(meters=meters, table=table), "Library"),
    }
    paths: list[Path] = []
    for name, text in pages.items():
        paths.append(directory / f"{name}.html")
        paths[-1].write_text(text)
    return paths


if __name__ == "__main__":
    for path in write_gallery(Path(sys.argv[1])):
        print(path)
