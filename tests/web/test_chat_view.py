"""The chat in a real browser, with a scripted model on loopback."""

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from conftest import World
from kitbag.testing import Fault, ModelServer, Step
from support.headless import point, reads, script
from support.waiting import wait_until
from support.web_program import web_program

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from support.browser import BrowserWindow, Chromium

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>[x](javascript:alert(3))![y](http://203.0.113.1/z.png)"


def calls(name: str, call_id: str = "c1", **arguments: Any) -> Step:
    return Step(calls=((call_id, name, json.dumps(arguments)),))


@contextlib.contextmanager
def browsing(
    world: World, chromium: "Chromium", *steps: Any, changed: str = "", as_installed: bool = False
) -> "Iterator[BrowserWindow]":
    from support.browser import browser_window

    with ModelServer(script(*steps)) as server:
        point(world, server)
        served = web_program(world, changed=changed, as_installed=as_installed)
        with served as program, browser_window(chromium, program) as window:
            yield window


def test_a_question_is_answered_and_tool_calls_open(world: World, chromium: "Chromium") -> None:
    world.write("a.txt", "line 17\n")
    with browsing(world, chromium, reads(), Step(text="# Hello\n\nThis is **the answer**.", thinking="Hm.")) as window:
        tab = window.tab()
        tab.say("what is this?")
        tab.until_seen("This is the answer.")
        assert tab.page.locator("article h1").inner_text() == "Hello"
        assert not tab.page.get_by_text("line 17").is_visible()
        assert not tab.page.get_by_text("Hm.", exact=True).is_visible()
        tab.page.locator("summary", has_text="a.txt").click()
        tab.page.get_by_text("line 17").wait_for(state="visible")


def test_eight_tabs_share_one_stream_and_show_the_same(world: World, chromium: "Chromium") -> None:
    with browsing(world, chromium, "The answer.", "Another one.") as window:
        first = window.tab()
        first.say("ask")
        first.until_seen("The answer.")
        path = first.page.evaluate("location.pathname")
        others = [window.tab(path) for _ in range(7)]
        for tab in others:
            tab.until_seen("The answer.")
        others[-1].say("again")
        for tab in (first, *others):
            tab.until_seen("Another one.")
            assert tab.page.get_by_text("The answer.").count() == 1


def test_an_approval_shows_its_diff_and_is_answered_once(world: World, chromium: "Chromium") -> None:
    world.write("a.txt", "old line\n")
    edit = calls("Edit", "c2", file_path="a.txt", old_string="old line", new_string="new line")
    with browsing(world, chromium, reads(), edit, "Changed.") as window:
        first = window.tab()
        first.say("change it")
        question = first.page.locator("form.question")
        question.get_by_text("new line").wait_for()
        second = window.tab(first.page.evaluate("location.pathname"))
        second.page.locator("form.question").wait_for()
        chat = first.page.evaluate(
            "performance.getEntriesByType('resource').map(e => e.name).find(n => n.includes('/messages'))"
        )
        identifier = question.get_attribute("data-form-id")
        second.page.locator("form.question button", has_text="allow once").first.click()
        for tab in (first, second):
            tab.until_seen("Changed.")
            assert tab.page.locator("form.question").count() == 0
        with first.program.http() as client:
            late = client.post(chat.replace("/messages", "/answers"), json={"question": identifier, "keys": ["n"]})
        assert late.status_code == 409
    assert (world.workspace / "a.txt").read_text() == "new line\n"


def test_the_reason_of_a_denial_has_the_focus_however_late_the_server_confirms_the_choice(
    world: World, chromium: "Chromium"
) -> None:
    write = calls("Write", "c1", file_path="new.txt", content="new\n")
    with browsing(world, chromium, write, "As you like.") as window:
        tab = window.tab()
        field = tab.page.locator("form.question input[name=text]")

        def confirm_late(route: "Route") -> None:
            confirmed = route.fetch()
            field.wait_for()
            route.fulfill(response=confirmed)

        tab.say("write it")
        tab.page.route("**/answers", confirm_late, times=1)
        with tab.page.expect_response("**/answers") as confirmed:
            tab.page.locator("form.question button[value=w]").click()
        confirmed.value.finished()
        tab.page.evaluate("new Promise(requestAnimationFrame)")
        assert field.evaluate("field => field === document.activeElement")
        field.fill("use another name")
        tab.page.get_by_role("button", name="Send", exact=True).first.click()
        tab.until_seen("As you like.")
        assert "use another name" in tab.page.locator(".block-tool").inner_text()


def test_nothing_can_be_sent_before_the_chat_is_open(world: World, chromium: "Chromium") -> None:
    with browsing(world, chromium, "The answer.") as window:
        tab = window.tab("/library")
        tab.until_seen("Skills")
        shown: list[int] = []
        message = tab.page.get_by_role("combobox", name="Message")

        def open_late(route: "Route") -> None:
            tab.page.locator(".state-loading, .composer").first.wait_for()
            shown.append(message.count())
            route.continue_()

        tab.page.route("**/api/chats", open_late)
        tab.page.get_by_role("link", name="Chat", exact=True).click()
        message.wait_for()
        tab.say("ask")
        tab.until_seen("The answer.")
        assert shown == [0]


_SENT_AT_ONCE = """async () => {
  const { MessagePreview } = await import("/static/js/message_preview.js");
  const kept = [setTimeout, clearTimeout, fetch];
  const [timers, sent] = [new Map(), []];
  globalThis.setTimeout = (run) => (timers.set(timers.size + 1, run), timers.size);
  globalThis.clearTimeout = (timer) => timers.set(timer, () => {});
  globalThis.fetch = async (path, options) => (sent.push(JSON.parse(options.body).text), new Response("{}"));
  const preview = new MessagePreview();
  preview.update("a message");
  preview.update("");
  for (const run of timers.values()) run();
  preview.update("another one");
  for (const run of timers.values()) run();
  [globalThis.setTimeout, globalThis.clearTimeout, globalThis.fetch] = kept;
  return sent;
}"""


def test_a_message_that_was_sent_is_not_previewed_any_more(world: World, chromium: "Chromium") -> None:
    with browsing(world, chromium) as window:
        assert window.tab().page.evaluate(_SENT_AT_ONCE) == ["another one"]


def test_a_message_steers_and_the_work_can_be_stopped(world: World, chromium: "Chromium") -> None:
    with browsing(world, chromium, Step(text="Partial", fault=Fault(kind="idle")), "Now this.") as window:
        tab = window.tab()
        tab.say("begin")
        tab.page.get_by_role("button", name="Stop").wait_for()
        tab.say("rather this")
        tab.page.locator(".waiting", has_text="rather this").wait_for()
        tab.page.get_by_role("combobox", name="Message").press("Escape")
        tab.until_seen("Now this.")
        assert tab.page.locator(".waiting").count() == 0


def test_a_server_that_goes_away_costs_no_typed_text(world: World, chromium: "Chromium") -> None:
    partial = Step(text="Partial", fault=Fault(kind="idle"))
    with browsing(world, chromium, partial, as_installed=True) as window:
        tab = window.tab()
        tab.say("begin")
        tab.page.get_by_role("button", name="Stop").wait_for()
        tab.until_seen("Partial")  # the message was recorded before it was sent
        tab.page.get_by_role("combobox", name="Message").fill("half a thought")
        tab.program.process.kill()
        tab.until_seen("reconnecting")
        tab.program.process.wait()
        port = tab.program.base.rpartition(":")[2]
        with web_program(world, "--port", port) as again:
            tab.until_seen("This tab has no valid token")
            assert tab.page.get_by_role("combobox", name="Message").input_value() == "half a thought"
            path = tab.page.evaluate("location.pathname")
            tab.page.goto(f"{again.url.replace('/#', path + '#')}")
            tab.page.reload()
            tab.page.locator(".block-user", has_text="begin").wait_for()


def test_a_tab_of_an_earlier_start_goes_on_with_the_token_of_another_tab(world: World, chromium: "Chromium") -> None:
    with browsing(world, chromium, "The answer.", as_installed=True) as window:
        tab, other = window.tab(), window.tab("/library")
        tab.say("begin")
        tab.until_seen("The answer.")
        message = tab.page.get_by_role("combobox", name="Message")
        message.fill("half a thought")
        tab.program.process.kill()
        tab.program.process.wait()
        with web_program(world, "--port", tab.program.base.rpartition(":")[2]) as again:
            for one in (tab, other):
                one.until_seen("This tab has no valid token")
            other.page.goto(again.url)
            other.page.reload()
            tab.page.locator(".block-lines", has_text="resumed").wait_for()
            tab.until("document.querySelector('[role=combobox]')?.value === 'half a thought'")
            assert tab.page.evaluate("sessionStorage.getItem('kitbag-token')") == again.token


_OLD_TOKEN_LATER = """async () => {
  const { StreamClient } = await import("/static/js/stream_client.js");
  const [sent, states] = [[], []];
  const hello = 'data: {"kind": "hello", "stream": "", "server": "s"}\\n\\n';
  const fetchOfPage = globalThis.fetch;
  globalThis.fetch = async (path, options) => {
    const given = options?.headers?.authorization;
    if (!["Bearer old", "Bearer new"].includes(given)) return fetchOfPage(path, options);
    sent.push(given);
    if (given === "Bearer old") return new Response("", { status: 401 });
    const stream = new ReadableStream({
      start(one) {
        one.enqueue(new TextEncoder().encode(hello));
        options.signal.addEventListener("abort", () => one.error(options.signal.reason));
      },
    });
    return new Response(stream);
  };
  let settled;
  const client = new StreamClient(() => {}, (state) => (states.push(state), ["connected", "denied"].includes(state) && settled()));
  for (const token of ["new", "old"]) {
    const again = new Promise((resolve) => (settled = resolve));
    client.start(token);
    await again;
  }
  return [client.token, states.includes("denied"), sent];
}"""


def test_the_token_of_an_earlier_start_does_not_take_the_place_of_the_valid_one(
    world: World, chromium: "Chromium"
) -> None:
    with browsing(world, chromium) as window:
        tab = window.tab()
        assert tab.page.evaluate(_OLD_TOKEN_LATER) == ["new", False, ["Bearer new", "Bearer old", "Bearer new"]]


_REFUSED_LATE = """async () => {
  const { StreamClient } = await import("/static/js/stream_client.js");
  const [sent, states] = [[], []];
  const fetchOfPage = globalThis.fetch;
  globalThis.fetch = (path, options) => ["Bearer old", "Bearer new"].includes(options?.headers?.authorization)
    ? new Promise((answer) => sent.push({ answer, options })) : fetchOfPage(path, options);
  const client = new StreamClient(() => {}, (state) => states.push(state));
  client.start("old");
  client.start("new");
  sent[0].answer(new Response("", { status: 401 }));
  for (let turn = 0; turn < 20 && sent.length < 2; turn += 1) await new Promise((resolve) => setTimeout(resolve, 100));
  return [client.token, states.includes("denied"), sent.map((one) => one.options.headers.authorization)];
}"""


def test_a_late_refusal_of_the_old_token_does_not_drop_the_new_one(world: World, chromium: "Chromium") -> None:
    with browsing(world, chromium) as window:
        tab = window.tab()
        assert tab.page.evaluate(_REFUSED_LATE) == ["new", False, ["Bearer old", "Bearer new"]]


def test_a_rewind_in_one_tab_is_seen_in_the_other(world: World, chromium: "Chromium") -> None:
    write = calls("Write", "c1", file_path="new.txt", content="new\n")
    with browsing(world, chromium, "First answer.", write, "Written.", "Again.") as window:
        first = window.tab()
        first.say("begin")
        first.until_seen("First answer.")
        second = window.tab(first.page.evaluate("location.pathname"))
        second.until_seen("First answer.")
        second.say("write it")
        first.page.locator("form.question button", has_text="allow once").first.click()
        for tab in (first, second):
            tab.until_seen("Written.")
        first.say("/rewind 2")
        for tab in (first, second):
            tab.page.locator("form.question button", has_text="conversation and 1 file").wait_for()
        second.say("/rewind 2")  # waits for the other one, and then there is nothing to rewind
        second.page.locator("form.question button", has_text="conversation and 1 file").click()
        for tab in (first, second):
            tab.until_seen("undo this with /rewind undo")
            tab.until_seen("message 2 is not part of the conversation")
            assert tab.page.get_by_text("Written.").count() == 0
            assert tab.page.get_by_text("First answer.").count() == 1
            assert tab.page.locator("form.question").count() == 0
        assert not (world.workspace / "new.txt").exists()
        second.say("/rewind undo")
        first.page.locator("form.question button", has_text="conversation and 1 file").click()
        for tab in (first, second):
            tab.page.locator("article", has_text="Written.").first.wait_for()
        assert (world.workspace / "new.txt").read_text() == "new\n"


def test_a_tab_that_was_offline_catches_up_and_opens_its_session_again(world: World, chromium: "Chromium") -> None:
    """Without SharedWorkers. First in the middle of a reply; then until the server has ended the idle chat."""
    changed = "import kitbag.web.hosted_chats as hosted\nhosted.IDLE_SECONDS = hosted._CHECK_SECONDS = 0.2"
    partial = Step(text="First paragraph.\n\n" + "words of the second " * 40, fault=Fault(kind="idle"))
    with browsing(world, chromium, partial, "And on.", changed=changed) as window:
        tab = window.tab(can_go_offline=True)
        tab.say("begin")
        tail = tab.page.locator(".live-tail", has_text="words of the second")
        tail.wait_for()
        before = tail.inner_text()
        tab.go_offline()
        tab.go_online()
        tail.wait_for()
        assert tail.inner_text() == before
        assert tab.page.get_by_text("First paragraph.").count() == 1
        assert tab.page.locator(".block-user", has_text="begin").count() == 1
        tab.page.get_by_role("combobox", name="Message").press("Escape")
        tab.page.get_by_role("button", name="Send").wait_for()
        message = tab.page.get_by_role("combobox", name="Message")
        message.fill("half a thought")
        path = tab.page.evaluate(
            "performance.getEntriesByType('resource').map(e => e.name).findLast(n => n.includes('/messages'))"
        )
        tab.go_offline()
        with tab.program.http() as client:
            wait_until(
                lambda: client.post(path, json={"text": " "}).json()["problem"].startswith("this chat is no longer")
            )
        tab.go_online()
        tab.page.locator(".block-lines", has_text="resumed").wait_for()
        assert message.input_value() == "half a thought"
        tab.say("go on")
        tab.until_seen("And on.")


def test_images_are_attached_and_details_expanded_and_a_new_session_is_in_all_tabs(
    world: World, chromium: "Chromium"
) -> None:
    world.write("a.txt", "line 17\n")
    png = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    with browsing(world, chromium, reads(), "Seen.") as window:
        tab = window.tab()
        image = {"name": "a.png", "mimeType": "image/png", "buffer": png}
        tab.page.locator("input[type=file]").set_input_files([image])
        tab.page.evaluate(
            """data => {
                const transfer = new DataTransfer();
                transfer.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], "b.png", {type: "image/png"}));
                transfer.items.add(new File(["x"], "c.txt", {type: "text/plain"}));
                for (const type of ["dragover", "drop"])
                    document.querySelector(".chat").dispatchEvent(new DragEvent(type, {dataTransfer: transfer, bubbles: true, cancelable: true}));
            }""",
            base64.b64encode(png).decode(),
        )
        tab.page.locator(".attachment").nth(1).wait_for()
        tab.until_seen("c.txt is no PNG")
        tab.say("what is this?")
        tab.until_seen("Seen.", "2 images")
        tab.page.get_by_role("button", name="Expand all").click()
        tab.page.get_by_text("line 17").wait_for(state="visible")
        tab.page.get_by_role("combobox", name="Message").press("Control+o")
        tab.page.get_by_text("line 17").wait_for(state="hidden")
        first = tab.page.evaluate("location.pathname")
        other = window.tab(first)
        other.until_seen("Seen.")
        tab.say("/clear")
        for one in (tab, other):
            one.until(f"location.pathname !== '{first}'")
            one.page.get_by_text("Seen.").wait_for(state="detached")
        assert tab.page.evaluate("location.pathname") == other.page.evaluate("location.pathname")
        other.say("/exit")
        for one in (tab, other):
            one.until_seen("This chat was closed")


def test_D43_markup_from_anywhere_is_text_and_nothing_leaves_the_machine(world: World, chromium: "Chromium") -> None:
    world.skill("~/.kitbag/skills", "deploy", f"Deploys. {HOSTILE}", "body")
    name = "<b onclick=alert(4)>.txt"
    world.write(name, f"{HOSTILE}\n")
    with browsing(world, chromium, reads(path=name), Step(text=HOSTILE, thinking=HOSTILE)) as window:
        tab = window.tab()
        outside: list[str] = []
        tab.page.on("request", lambda request: outside.append(request.url))
        tab.page.on("dialog", lambda dialog: outside.append(dialog.message))
        tab.say(f"look {HOSTILE}")
        tab.page.locator(".block-reply").first.wait_for()
        tab.say("/skills")
        tab.until_seen("deploy")
        for summary in tab.page.locator("summary").all():
            if summary.is_visible():
                summary.click()
        found = tab.page.evaluate(
            "document.querySelectorAll('main script, main img, main [onclick], main [onerror], main a[href^=javascript]').length"
        )
        assert found == 0
        assert not [url for url in outside if not url.startswith(tab.program.base)]


@pytest.mark.parametrize("session", ["nope", "..%2f..", "%3Cscript%3E"])
def test_a_session_that_does_not_exist_is_reported(world: World, session: str) -> None:
    with web_program(world) as program, program.http() as client:
        answer = client.post("/api/chats", json={"resume": session})
        assert answer.status_code == 404
        assert answer.json()["problem"]


def test_bad_requests_are_answered_and_change_nothing(world: World) -> None:
    with web_program(world, "--model", "offline") as program, program.http() as client:
        chat = client.post("/api/chats", json={}).json()["chat"]

        def send(path: str, body: Any) -> httpx2.Response:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return client.post(path, content=content, headers={"content-type": "application/json"})

        for body in (b"", b"{", b"[]", b'{"text": 1}', b"\xff", b"[" * 100_000, {"text": " "}):
            assert send(f"/api/chats/{chat}/messages", body).status_code == 400
        image = {"media_type": "image/svg+xml", "data": ""}
        assert send(f"/api/chats/{chat}/messages", {"text": "x", "images": [image]}).status_code == 400
        image = {"media_type": "image/png", "data": "not base64!"}
        assert send(f"/api/chats/{chat}/messages", {"text": "x", "images": [image]}).status_code == 400
        assert send(f"/api/chats/{chat}/messages", b'{"text": "' + b"x" * (33 << 20) + b'"}').status_code == 413
        assert send(f"/api/chats/{chat}/keys", {"key": "exit"}).status_code == 400
        assert send(f"/api/chats/{chat}/answers", {"question": "none"}).status_code == 409
        assert send("/api/chats/none/messages", {"text": "x"}).status_code == 404
        assert send("/api/chats", {"directory": "/nowhere"}).status_code == 422
        assert client.get(f"/api/chats/{chat}/blocks?before=-1&limit=x").status_code == 200
        assert client.get("/api/sessions?offset=999999999999999999999&limit=-5").json()["sessions"] == []
