"""A real Chromium that uses the real `kitbag web`."""

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from support.waiting import TEST_TIMEOUT
from support.web_program import WebProgram, web_program

Theme = Literal["light", "dark"]
WIDE = (1440, 900)
NARROW = (390, 844)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
)  # fmt: skip


class Chromium:
    """One process for all tests of a worker; each test has a context of its own."""

    def __init__(self) -> None:
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

    def close(self) -> None:
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

    def until(self, script: str) -> None:
        """Until this expression is true in the page."""
        self.page.wait_for_function(script)


class BrowserWindow:
    """Tabs that share storage and workers, as in one window of a browser."""

    def __init__(self, browser: Browser, program: WebProgram, size: tuple[int, int], theme: Theme) -> None:
        self._context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme, reduced_motion="reduce"
        )
        self._program = program
        self.tabs: list[Tab] = []

    def tab(self, path: str = "/") -> Tab:
        tab = Tab(self._context.new_page(), self._program)
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
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(chromium.address)
        window = BrowserWindow(browser, program, size, theme)
        try:
            yield window
        finally:
            window.close()
            browser.close()


__all__ = ["NARROW", "WIDE", "Chromium", "browser_window", "web_program"]
