"""A real Chromium that uses the real `kitbag web`."""

import asyncio
import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, sync_playwright

from support.waiting import TEST_TIMEOUT, wait_until
from support.web_program import WebProgram, web_program

Theme = Literal["light", "dark"]
WIDE = (1440, 900)
NARROW = (390, 844)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
    "--disable-gpu-rasterization", "--in-process-gpu", "--disable-extensions",
)  # fmt: skip


_OFFLINE = """
delete globalThis.SharedWorker;
const [send, open] = [fetch, new Set()];
let isOffline = false;
globalThis.setOffline = (value) => { isOffline = value; if (value) for (const request of open) request.abort(); };
globalThis.fetch = (url, options) => {
  if (isOffline) return Promise.reject(new TypeError("offline"));
  const request = new AbortController();
  open.add(request);
  return send(url, { ...options, signal: request.signal });
};
"""


class Chromium:
    """One process for all tests of a worker, as is the driver that Playwright starts, which takes longer than most tests
    do; each test has a context of its own."""

    def __init__(self) -> None:
        self._driver: Playwright | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The driver's, while no test uses it."""
        self._profile = tempfile.mkdtemp(prefix="kitbag-chromium-")
        program = shutil.which("chromium") or "chromium"
        self._process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"ws://\S+", line):
                self.address = found[0]
                return
        raise RuntimeError("Chromium did not start")

    @contextlib.contextmanager
    def connected(self) -> Iterator[Browser]:
        """Only meanwhile is this a thread with a running event loop, so that a test can run its own before or after."""
        outer = asyncio._get_running_loop()  # with two windows
        asyncio._set_running_loop(outer or self._loop)
        self._driver = self._driver or sync_playwright().start()
        try:
            browser = self._driver.chromium.connect_over_cdp(self.address)
            yield browser
            browser.close()
        finally:
            self._loop = asyncio._get_running_loop()
            asyncio._set_running_loop(outer)

    def close(self) -> None:
        if self._driver is not None:
            asyncio._set_running_loop(self._loop)
            self._driver.stop()
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        shutil.rmtree(self._profile, ignore_errors=True)


class Tab:
    """A page that fails the test if the browser reports an error: a script's, or something the CSP refused."""

    def __init__(self, page: Page, program: WebProgram) -> None:
        self.page = page
        self.program = program
        self.problems: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.set_default_timeout(TEST_TIMEOUT * 1_000)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def open(self, path: str = "/") -> "Tab":
        self.page.goto(f"{self.program.base}{path}#token={self.program.token}")
        return self

    def say(self, text: str) -> None:
        box = self.page.get_by_role("combobox", name="Message")
        box.fill(text)
        box.press("Enter")

    def until_seen(self, *texts: str) -> None:
        for text in texts:
            self.page.get_by_text(text).first.wait_for()

    def evaluate_isolated(self, library: str, expression: str) -> str:
        """In a world of its own, which the CSP of the page does not restrict."""
        session = self.page.context.new_cdp_session(self.page)
        frame = session.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = session.send("Page.createIsolatedWorld", {"frameId": frame})["executionContextId"]
        for text in (library, expression):
            answer = session.send(
                "Runtime.evaluate",
                {"expression": text, "contextId": world, "awaitPromise": True, "returnByValue": True},
            )
            assert "exceptionDetails" not in answer, answer
        session.detach()
        return answer["result"]["value"]

    def go_offline(self) -> None:
        self.page.evaluate("setOffline(true)")
        self.until_seen("reconnecting")

    def go_online(self) -> None:
        self.page.evaluate("setOffline(false)")
        self.until("document.querySelector('.connection').dataset.state === 'connected'")

    def until(self, script: str) -> None:
        """Until this expression is true in the page."""
        wait_until(lambda: self.page.evaluate(script))  # the CSP keeps the page from evaluating it again and again


class BrowserWindow:
    """Tabs that share storage and workers, as in one window of a browser."""

    def __init__(self, browser: Browser, program: WebProgram, size: tuple[int, int], theme: Theme) -> None:
        self._context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme, reduced_motion="reduce"
        )
        self._program = program
        self.tabs: list[Tab] = []

    def tab(self, path: str = "/", *, can_go_offline: bool = False) -> Tab:
        """`can_go_offline`: in a browser without SharedWorkers, whose requests Tab.go_offline aborts."""
        tab = Tab(self._context.new_page(), self._program)
        if can_go_offline:
            tab.page.add_init_script(_OFFLINE)
        self.tabs.append(tab)
        return tab.open(path)

    def close(self) -> None:
        problems = [problem for tab in self.tabs for problem in tab.problems]
        self._context.close()
        assert not problems, problems


@contextlib.contextmanager
def browser_window(
    chromium: Chromium, program: WebProgram, size: tuple[int, int] = WIDE, theme: Theme = "light"
) -> Iterator[BrowserWindow]:
    with chromium.connected() as browser:
        window = BrowserWindow(browser, program, size, theme)
        try:
            yield window
        finally:
            window.close()


__all__ = ["NARROW", "WIDE", "Chromium", "browser_window", "web_program"]
